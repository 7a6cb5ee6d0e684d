//! What the bitcode knows of a place and the source position does not.

use crate::ir;
use crate::plan::Place;
use crashproof_llvm::Module;

/// Tells writes and calls at one position apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hint {
    /// Name of the function that it calls, if it is a call of one; intrinsics by what they do (`memcpy`).
    pub callee: Option<String>,
    /// Bytes that it stores, if that is a constant.
    pub bytes: Option<u64>,
}

impl Hint {
    pub(crate) fn of(module: &Module, place: &Place) -> Hint {
        let Some(instruction) = ir::find(module, place) else {
            return Hint::default();
        };
        Hint {
            callee: instruction.called_function().map(|callee| plain_callee(callee.name())),
            bytes: instruction.stored_size(),
        }
    }
}

fn plain_callee(name: &str) -> String {
    crashproof_library::intrinsic(name).unwrap_or(name).into()
}
