//! Which part of which object a store writes, as far as it can be seen in the function: for flushing several parts at once.

use super::known::Length;
use crate::ir::Code;
use crashproof_llvm::{Opcode, Value};

/// What the addresses of several stores are counted from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Object<'m> {
    /// What this pointer points to.
    Pointer(Value<'m>),
    /// What the pointer in this variable points to.
    Variable(Value<'m>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part<'m> {
    pub object: Object<'m>,
    /// Bytes from where the object's pointer points to.
    pub start: i64,
    /// `None`: a call wrote as much as it was told to.
    pub end: Option<i64>,
}

impl Part<'_> {
    /// The range of all parts, if they are parts of one object and a flush of it costs no more lines than one of each: from where, and to where if that is
    /// known. What is not, is what the last part (by address) has.
    pub(crate) fn range(parts: &[Part]) -> Option<(i64, Option<i64>)> {
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
pub(crate) fn part(store: Value) -> Option<Part> {
    let (pointer, size) = written(store)?;
    let (base, start) = base(pointer)?;
    let object = match base.opcode() {
        Some(Opcode::LLVMLoad) => match base.operand(0) {
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
        Length::Argument(length) => store.operand(length)?.unsigned(),
        Length::Constant(size) => Some(size),
        Length::String | Length::Printed { .. } | Length::Returned => return None,
    };
    Some((store.operand(written.destination)?, size))
}

/// Whether the object is the same one throughout: nothing writes the variable that holds its pointer.
pub(crate) fn stays<'m>(object: Object<'m>, mut instructions: impl Iterator<Item = Value<'m>>) -> bool {
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
pub(crate) fn is_private(variable: Value) -> bool {
    if !variable.is_alloca() {
        return false;
    }
    variable.users().into_iter().all(|user| match user.opcode() {
        Some(Opcode::LLVMLoad) => true,
        Some(Opcode::LLVMStore) => user.operand(0) != Some(variable),
        _ => user.called_function().is_some_and(|function| {
            function.name().starts_with("llvm.dbg.") || function.name().starts_with("llvm.lifetime.")
        }),
    })
}

/// What the pointer is computed from, and the distance in bytes.
fn base(pointer: Value) -> Option<(Value, i64)> {
    let (base, distance) = pointer.base_and_offset(Value::is_instruction);
    // A constant expression: it is an element of a global.
    (!base.is_element_pointer()).then_some((base, distance?))
}
