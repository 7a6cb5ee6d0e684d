//! What the bitcode knows of a place and the source position does not.

use inkwell::module::Module;
use inkwell::types::BasicTypeEnum;
use inkwell::values::{AsValueRef, InstructionOpcode, InstructionValue};
use llvm_sys::core::{LLVMGetCalledValue, LLVMGetValueName2};

use super::written::Hint;
use crate::plan::Place;

impl Hint {
    pub fn of(module: &Module, place: &Place) -> Hint {
        let Some(function) = module.get_function(&place.function) else {
            return Hint::default();
        };
        let instructions = function
            .get_basic_blocks()
            .into_iter()
            .flat_map(|block| block.get_instructions());
        let mut counted = instructions.filter(|instruction| !is_debug(*instruction));
        let Some(instruction) = counted.nth(place.instruction as usize) else {
            return Hint::default();
        };
        match instruction.get_opcode() {
            InstructionOpcode::Call | InstructionOpcode::Invoke => Hint {
                callee: Hint::callee_of(instruction),
                bytes: None,
            },
            InstructionOpcode::Store => Hint {
                callee: None,
                bytes: stored_bytes(instruction),
            },
            _ => Hint::default(),
        }
    }

    /// Intrinsics are named by what they do.
    pub fn callee_of(instruction: InstructionValue) -> Option<String> {
        let mut length = 0;
        // SAFETY: the instruction is a call, which has a callee; LLVM keeps the name as long as the module.
        let name = unsafe {
            let callee = LLVMGetCalledValue(instruction.as_value_ref());
            let start = LLVMGetValueName2(callee, &mut length);
            std::slice::from_raw_parts(start.cast::<u8>(), length)
        };
        let name = String::from_utf8_lossy(name).into_owned();
        match name.strip_prefix("llvm.").and_then(|rest| rest.split_once('.')) {
            Some((operation @ ("memcpy" | "memmove" | "memset"), _)) => Some(operation.into()),
            _ => (!name.is_empty()).then_some(name),
        }
    }
}

fn is_debug(instruction: InstructionValue) -> bool {
    instruction.get_opcode() == InstructionOpcode::Call
        && Hint::callee_of(instruction).is_some_and(|name| name.starts_with("llvm.dbg."))
}

fn stored_bytes(instruction: InstructionValue) -> Option<u64> {
    let value = instruction.get_operand(0)?.value()?;
    let bits = match value.get_type() {
        BasicTypeEnum::IntType(ty) => ty.get_bit_width(),
        BasicTypeEnum::PointerType(_) => 64,
        BasicTypeEnum::FloatType(ty) => ty.get_bit_width(),
        _ => return None,
    };
    Some(u64::from(bits.div_ceil(8)))
}
