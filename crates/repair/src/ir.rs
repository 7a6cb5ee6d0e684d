//! What locating and planning ask of the bitcode beyond LLVM itself: what code does for persistence, and places that are named in plans.
//!
//! Instructions are counted without the debug intrinsics, which LLVM 19 keeps now as instructions and now beside them.

use std::path::{Path, PathBuf};

use crashproof_compiler::instrument::assembly::{self, Operation};
use crashproof_llvm::{AtomicOrdering, DebugLocation, File, Holder, Module, Opcode, Value};

use crate::plan::known::{self, Length, Written};
use crate::plan::{Place, Position};

/// The instruction that a plan names; `None` if the module has none such (it is another module, or was changed since).
pub fn find<'m>(module: &'m Module, place: &Place) -> Option<Value<'m>> {
    module.function(&place.function)?.code().nth(place.instruction as usize)
}

/// Questions about a value.
pub trait Code<'m>: Copy + Into<Value<'m>> {
    /// Whether a function is marked as one that does not return.
    fn never_returns(self) -> bool {
        self.into().attribute(Holder::Function, "noreturn").is_some()
    }

    /// A function whose code is here and has no debug information, so that no frame is ever in it: the compiler's intrinsics in its headers.
    fn is_unseen(self) -> bool {
        self.into().has_body() && self.source_name().is_none()
    }

    /// The name of a function that the source has, from its debug information.
    fn source_name(self) -> Option<&'m str> {
        /// Among the operands of a `DISubprogram`, as LLVM 19 has them.
        const NAME: usize = 2;
        let name = self.into().subprogram()?.string(NAME);
        (!name.is_empty()).then_some(name)
    }

    /// Where a call of a memory function writes: a known one, or one without debug information that stores once, through a parameter, as the compiler's
    /// headers have them (`_mm_store_si128`).
    fn written(self) -> Option<Written> {
        let function = self.into().called_function()?;
        known::written(function.name()).or_else(|| {
            let mut stores = function
                .code()
                .filter(|_| function.is_unseen())
                .filter(|inner| inner.is_call() || inner.store_pointer().is_some_and(|to| !to.base().is_alloca()));
            let (store, None) = (stores.next()?, stores.next()) else {
                return None;
            };
            // Unoptimised: parameter, variable, pointer.
            let variable = store
                .store_pointer()?
                .operand(0)
                .filter(|variable| variable.is_alloca())?;
            let assigned = function.code().find(|inner| inner.store_pointer() == Some(variable))?;
            Some(Written {
                destination: assigned.operand(0)?.as_parameter()?.1,
                length: Length::Constant(store.stored_size()?),
            })
        })
    }

    /// The pointer that a store, or a call of a memory function, writes through.
    fn destination(self) -> Option<Value<'m>> {
        self.into()
            .store_pointer()
            .or_else(|| self.into().operand(self.written()?.destination))
    }

    /// Template and constraints, of a call of inline assembly.
    fn assembly(self) -> Option<(&'m str, &'m str)> {
        let (template, constraints, _) = self.into().callee()?.inline_assembly()?;
        Some((template, constraints))
    }

    /// Whether a store is marked `!nontemporal`.
    fn is_nontemporal(self) -> bool {
        self.into().has_metadata("nontemporal")
    }

    /// What an instruction does for persistence, if it does nothing else.
    fn persistence(self) -> Vec<Persistence<'m>> {
        let instruction: Value = self.into();
        if instruction.opcode() == Some(Opcode::LLVMFence) {
            // Only a sequentially consistent one is an instruction on x86.
            let full = instruction.ordering() == AtomicOrdering::LLVMAtomicOrderingSequentiallyConsistent;
            return if full { vec![Persistence::Fence] } else { Vec::new() };
        }
        if let Some((template, constraints)) = self.assembly() {
            let operations = assembly::recognise(template, constraints).unwrap_or_default();
            return operations
                .into_iter()
                .filter_map(|operation| match operation {
                    Operation::Flush { argument, .. } => instruction.operand(argument).map(Persistence::Flush),
                    Operation::Fence { .. } => Some(Persistence::Fence),
                })
                .collect();
        }
        let Some(callee) = instruction.called_function() else {
            return Vec::new();
        };
        match callee.name() {
            "llvm.x86.sse.sfence" | "llvm.x86.sse2.mfence" => vec![Persistence::Fence],
            "llvm.x86.clwb" | "llvm.x86.clflushopt" | "llvm.x86.sse2.clflush" => {
                instruction.operand(0).map(Persistence::Flush).into_iter().collect()
            }
            _ => Vec::new(),
        }
    }

    /// Where in the source an instruction is, if the compiler said so.
    fn location(self) -> Option<DebugLocation<'m>> {
        self.into().debug_location().filter(|location| location.line() > 0)
    }

    fn position(self) -> Option<Position> {
        let location = self.location()?;
        Some(Position {
            file: path(location.file()?),
            line: location.line(),
            column: location.column(),
        })
    }

    /// As plans name it.
    fn place(self) -> Option<Place> {
        let function = self.into().function()?;
        let instruction = function.code().position(|other| other == self.into())?;
        Some(Place {
            function: function.name().to_owned(),
            instruction: u32::try_from(instruction).ok()?,
            position: self.position(),
        })
    }
}

impl<'m> Code<'m> for Value<'m> {}

/// What an instruction does for persistence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Persistence<'m> {
    /// Of the line at this pointer.
    Flush(Value<'m>),
    Fence,
}

/// As debug info has it, joined with its folder, and without `.` and `..`.
pub fn path(file: File) -> PathBuf {
    normalized(&Path::new(&*file.directory()).join(&*file.name()))
}

/// Without `.`, and without `..` as far as the text goes.
pub fn normalized(path: &Path) -> PathBuf {
    use std::path::Component::*;
    let mut out = PathBuf::new();
    for component in path.components() {
        match component {
            CurDir => {}
            ParentDir if matches!(out.components().next_back(), Some(Normal(_))) => {
                out.pop();
            }
            other => out.push(other),
        }
    }
    out
}
