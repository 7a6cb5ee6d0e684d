//! Which part of which object a store writes, as far as it can be seen in the function: for flushing several parts at once.

use std::ops::Range;

use llvm_sys::LLVMOpcode;
use llvm_sys::core::*;
use llvm_sys::target::{LLVMABISizeOfType, LLVMGetModuleDataLayout, LLVMOffsetOfElement};
use llvm_sys::{LLVMTypeKind, prelude::LLVMTypeRef};

use super::known::Length;
use crate::ir::Value;

/// What the addresses of several stores are counted from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Object<'m> {
    /// What this pointer points to.
    Pointer(Value<'m>),
    /// What the pointer in this variable points to.
    Variable(Value<'m>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part<'m> {
    pub object: Object<'m>,
    /// Bytes from where the object's pointer points to.
    pub start: i64,
    /// `None`: a call wrote as much as it was told to.
    pub end: Option<i64>,
}

impl Part<'_> {
    /// The range of all parts, if they are parts of one object and a flush of it costs no more lines than one of each: from where, and to where if that is
    /// known. What is not, is what the last part (by address) has.
    pub fn range(parts: &[Part]) -> Option<(i64, Option<i64>)> {
        let object = parts.first()?.object;
        let start = parts.iter().map(|part| part.start).min()?;
        let known = parts.iter().filter_map(|part| part.end).max().unwrap_or(start);
        let mut open = parts.iter().filter(|part| part.end.is_none());
        let end = match (open.next(), open.next()) {
            (None, _) => Some(known),
            (Some(last), None) if (0..=LINE).contains(&(last.start - known)) => None,
            _ => return None,
        };
        let is_one = parts.iter().all(|part| part.object == object);
        (is_one && known - start <= LINE * parts.len() as i64).then_some((start, end))
    }
}

/// Bytes of a cache line.
const LINE: i64 = 64;

/// `None` if the distance is not a constant.
pub fn part(store: Value) -> Option<Part> {
    let (pointer, size) = written(store)?;
    let (base, start) = base(pointer)?;
    let object = match base.opcode() {
        Some(LLVMOpcode::LLVMLoad) => match base.operand(0) {
            Some(variable) if variable.is_alloca() || variable.is_global_variable() => Object::Variable(variable),
            _ => Object::Pointer(base),
        },
        _ => Object::Pointer(base),
    };
    Some(Part {
        object,
        start,
        end: match size {
            Some(size) => Some(start.checked_add(i64::try_from(size).ok()?)?),
            None => None,
        },
    })
}

/// Pointer, and size if that is constant.
fn written(store: Value) -> Option<(Value, Option<u64>)> {
    if let Some(pointer) = store.store_pointer() {
        return Some((pointer, Some(store.stored_size()?)));
    }
    let written = store.written()?;
    let size = match written.length {
        Length::Argument(length) => store.operand(length)?.constant_integer(),
        Length::Constant(size) => Some(size),
        Length::String | Length::Printed { .. } | Length::Returned => return None,
    };
    Some((store.operand(written.destination)?, size))
}

/// Whether the object is the same one throughout: nothing writes the variable that holds its pointer.
pub fn stays<'m>(object: Object<'m>, mut instructions: impl Iterator<Item = Value<'m>>) -> bool {
    let Object::Variable(variable) = object else {
        return true;
    };
    let private = is_private(variable);
    instructions.all(|instruction| {
        if let Some(pointer) = instruction.store_pointer() {
            let target = pointer.base();
            // Other stores to the object do not change the pointer to it; a store through any other pointer might.
            let same = part(instruction).is_some_and(|part| part.object == object);
            return target != variable && (private || same || target.is_alloca() && is_private(target));
        }
        private
            || !instruction.is_call()
            || instruction
                .called_function()
                .is_some_and(|function| function.is_intrinsic())
    })
}

/// A local variable whose address nobody has.
pub fn is_private(variable: Value) -> bool {
    if !variable.is_alloca() {
        return false;
    }
    let mut uses = Vec::new();
    // SAFETY: uses of a live value; users of a local variable are instructions.
    unsafe {
        let mut used = LLVMGetFirstUse(variable.raw());
        while !used.is_null() {
            uses.extend(Value::new(LLVMGetUser(used)));
            used = LLVMGetNextUse(used);
        }
    }
    uses.into_iter().all(|user| match user.opcode() {
        Some(LLVMOpcode::LLVMLoad) => true,
        Some(LLVMOpcode::LLVMStore) => user.operand(0) != Some(variable),
        _ => user.called_function().is_some_and(|function| {
            function.name().starts_with("llvm.dbg.") || function.name().starts_with("llvm.lifetime.")
        }),
    })
}

/// What the pointer is computed from, and the distance in bytes.
fn base(pointer: Value) -> Option<(Value, i64)> {
    let (mut base, mut distance) = (pointer, 0_i64);
    while base.opcode() == Some(LLVMOpcode::LLVMGetElementPtr) {
        distance = distance.checked_add(element_distance(base)?)?;
        base = base.operand(0)?;
    }
    Some((base, distance))
}

/// Of a `getelementptr` with constant indices.
fn element_distance(access: Value) -> Option<i64> {
    // SAFETY: it is an element access of a module with a layout; types are sized, indices of structs constant and within them.
    unsafe {
        let module = match access.function() {
            Some(function) => LLVMGetGlobalParent(function.raw()),
            // A constant expression: it is an element of a global.
            None => return None,
        };
        let layout = LLVMGetModuleDataLayout(module);
        let mut ty = LLVMGetGEPSourceElementType(access.raw());
        let size = |ty: LLVMTypeRef| i64::try_from(LLVMABISizeOfType(layout, ty)).ok();
        let index = |number: u32| -> Option<i64> {
            let value = access.operand(number)?;
            (!LLVMIsAConstantInt(value.raw()).is_null()).then(|| LLVMConstIntGetSExtValue(value.raw()))
        };
        let mut distance = index(1)?.checked_mul(size(ty)?)?;
        let indices: Range<u32> = 2..LLVMGetNumOperands(access.raw()) as u32;
        for number in indices {
            let index = index(number)?;
            if LLVMGetTypeKind(ty) == LLVMTypeKind::LLVMStructTypeKind {
                let index = u32::try_from(index).ok()?;
                distance = distance.checked_add(LLVMOffsetOfElement(layout, ty, index) as i64)?;
                ty = LLVMStructGetTypeAtIndex(ty, index);
            } else {
                ty = LLVMGetElementType(ty);
                distance = distance.checked_add(index.checked_mul(size(ty)?)?)?;
            }
        }
        Some(distance)
    }
}
