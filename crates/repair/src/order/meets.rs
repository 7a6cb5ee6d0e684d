//! Whether two pieces of code may touch the same memory ([`Effects`]).

use crashproof_llvm::{Opcode, TypeKind, Value};
use crashproof_program::pointers::PointsTo;

use super::effects::{Access, Analysis, Effects, Field};
use crate::ir::{Code, Persistence};
use crate::plan::known;

impl<'m> Analysis<'m, '_> {
    pub(super) fn access(&self, pointer: Value<'m>, size: Option<u64>, writes: bool) -> Access<'m> {
        Access {
            pointer,
            size,
            writes,
            settled: false,
            field: self.field(pointer, size),
        }
    }

    pub(super) fn size_of(&self, value: Value<'m>) -> Option<u64> {
        Some(self.layout.size_of(value.ty()))
    }

    /// The member that an address is of, if so many bytes stay within it.
    fn field(&self, pointer: Value<'m>, size: Option<u64>) -> Option<Field<'m>> {
        let size = size?;
        let mut at = pointer;
        while at.is_element_pointer() {
            let mut ty = at.source_element()?;
            let mut found = None;
            let first_is_zero = at.operand(1)?.unsigned() == Some(0);
            let stays_in_array = ty.kind() == TypeKind::LLVMArrayTypeKind && first_is_zero;
            for position in 2..at.operand_count() {
                match ty.kind() {
                    TypeKind::LLVMStructTypeKind => {
                        let index = u32::try_from(at.operand(position)?.unsigned()?).ok()?;
                        found = Some(Field { record: ty, index });
                        ty = ty.element(index)?;
                    }
                    TypeKind::LLVMArrayTypeKind => ty = ty.element(0)?,
                    _ => return None,
                }
            }
            if let Some(field) = found {
                let member = field.record.element(field.index)?;
                return (size <= self.layout.size_of(member)).then_some(field);
            }
            if !stays_in_array {
                return None;
            }
            at = at.operand(0)?;
        }
        None
    }

    /// A variable of a function whose address does not leave it.
    pub(super) fn is_private(&self, variable: Value<'m>) -> bool {
        if let Some(known) = self.private.borrow().get(&variable) {
            return *known;
        }
        let mut open = vec![variable];
        let mut is_private = true;
        while let Some(pointer) = open.pop() {
            for user in pointer.users() {
                match user.opcode() {
                    Some(Opcode::LLVMLoad) => {}
                    Some(Opcode::LLVMStore) if user.operand(0) != Some(pointer) => {}
                    Some(Opcode::LLVMGetElementPtr) => open.push(user),
                    Some(Opcode::LLVMCall) => {
                        let callee = user.called_function().map_or("", |callee| callee.name());
                        let is_copy = known::written(callee).is_some() && callee.starts_with("llvm.");
                        is_private &=
                            is_copy || callee.starts_with("llvm.dbg.") || callee.starts_with("llvm.lifetime.");
                    }
                    _ => is_private = false,
                }
            }
        }
        self.private.borrow_mut().insert(variable, is_private);
        is_private
    }

    /// Whether a pointer is to a variable of its function whose address does not leave it.
    pub(super) fn is_own(&self, pointer: Value<'m>) -> bool {
        let base = pointer.base();
        base.is_alloca() && self.is_private(base)
    }

    fn may_meet(&self, a: &Access<'m>, b: &Access<'m>) -> bool {
        let (base_a, base_b) = (a.pointer.base(), b.pointer.base());
        if self.is_own(base_a) || self.is_own(base_b) {
            return base_a == base_b;
        }
        if let (Some(ours), Some(theirs)) = (a.field, b.field)
            && ours.record == theirs.record
            && ours.index != theirs.index
        {
            return false;
        }
        let points_to = self.points_to.get_or_init(|| PointsTo::of(self.module));
        let size = |access: &Access| access.size.and_then(|size| u32::try_from(size).ok());
        points_to.may_overlap(a.pointer, size(a), b.pointer, size(b))
    }

    /// Whether the code of one and the code of the other, both in `function`, touch the same memory, and one of them writes it.
    pub(super) fn conflict(&self, a: &Effects<'m>, b: &Effects<'m>, function: Option<Value<'m>>) -> bool {
        let writes = |variable: Value<'m>| {
            let mut accesses = a.accesses.iter().chain(&b.accesses);
            accesses.any(|access| access.writes && access.pointer.base() == variable)
        };
        let are_apart = |ours: &Access<'m>, theirs: &Access<'m>| {
            self.behind_variable(ours.pointer).is_some_and(|(variable, from)| {
                self.behind_variable(theirs.pointer).is_some_and(|(other, to)| {
                    // In another invocation of the function the variable may hold something else.
                    variable == other
                        && variable.function() == function
                        && function.is_some_and(|function| !self.is_recursive(function))
                        && are_apart((from, ours.size), (to, theirs.size))
                        && !writes(variable)
                })
            })
        };
        (a.draws && b.draws)
            || a.accesses.iter().any(|ours| {
                b.accesses.iter().any(|theirs| {
                    (ours.writes || theirs.writes) && !are_apart(ours, theirs) && self.may_meet(ours, theirs)
                })
            })
    }

    /// A pointer as so many bytes behind where a variable points to, which stays in its function.
    pub(super) fn behind_variable(&self, pointer: Value<'m>) -> Option<(Value<'m>, u64)> {
        // A larger index may be a negative number.
        let is_small = |index: Value| index.unsigned().is_some_and(|number| number < 1 << 31);
        let is_plain = |gep: Value<'m>| (1..gep.operand_count()).all(|index| gep.operand(index).is_some_and(is_small));
        let (at, offset) = pointer.base_and_offset(is_plain);
        let offset = u64::try_from(offset?).ok()?;
        let variable = at.operand(0).filter(|_| at.opcode() == Some(Opcode::LLVMLoad))?;
        (variable.is_alloca() && self.is_private(variable)).then_some((variable, offset))
    }

    /// Whether the first stores to a member that the second flushes by its name.
    pub(super) fn flushes_member(&self, storing: Value<'m>, flushing: Value<'m>) -> bool {
        let flushed = flushing
            .persistence()
            .into_iter()
            .filter_map(|operation| match operation {
                Persistence::Flush(pointer) => Some(pointer),
                Persistence::Fence => None,
            });
        let given = flushing.is_call().then(|| flushing.arguments()).into_iter().flatten();
        let stored = storing
            .store_pointer()
            .and_then(|pointer| self.field(pointer, storing.stored_size()));
        let mut pointers = flushed.chain(given.filter(|argument| argument.is_pointer()));
        stored.is_some() && pointers.any(|pointer| self.field(pointer, Some(1)) == stored)
    }

    /// Whether what the code flushes, whole lines of it, may hold what the other stores in a way that one execution need not show: in a branch
    /// (`branches`), at an index, or through another pointer to a struct of the same type.
    pub(super) fn may_flush_stores_of(&self, flushing: &Effects<'m>, storing: &Effects<'m>, branches: bool) -> bool {
        let points_to = self.points_to.get_or_init(|| PointsTo::of(self.module));
        let mut stores = storing
            .accesses
            .iter()
            .filter(|access| access.writes && !access.settled);
        stores.any(|store| {
            flushing.flushes.iter().any(|flush| {
                let is_constant = has_constant_offset(store.pointer) && has_constant_offset(flush.pointer);
                let shows = !branches && is_constant && {
                    let record = |access: &Access<'m>| self.field(access.pointer, Some(1)).map(|field| field.record);
                    origin(store.pointer) == origin(flush.pointer)
                        || record(store).is_none()
                        || record(store) != record(flush)
                };
                !shows && !self.is_own(store.pointer) && points_to.may_share_object(flush.pointer, store.pointer)
            })
        })
    }

    /// Whether all that the code reads are variables of its function whose address stays in it.
    pub(super) fn reads_only_variables(&self, effects: &Effects<'m>) -> bool {
        effects.accesses.iter().all(|access| self.is_own(access.pointer))
    }
}

/// Whether one of two ranges ends before the other begins; one of unknown length has no end.
fn are_apart(a: (u64, Option<u64>), b: (u64, Option<u64>)) -> bool {
    let ends_before = |(start, size): (u64, Option<u64>), other: u64| size.is_some_and(|size| start + size <= other);
    ends_before(a, b.0) || ends_before(b, a.0)
}

/// The variable or value that a pointer is computed from.
fn origin(pointer: Value) -> Value {
    let base = pointer.base();
    match base.opcode() {
        Some(Opcode::LLVMLoad) => base.operand(0).unwrap_or(base),
        _ => base,
    }
}

fn has_constant_offset(pointer: Value) -> bool {
    let mut at = pointer;
    while at.is_element_pointer() {
        let count = at.operand_count();
        let is_constant = |index| at.operand(index).is_some_and(|index| index.unsigned().is_some());
        let Some(inner) = at.operand(0).filter(|_| (1..count).all(is_constant)) else {
            return false;
        };
        at = inner;
    }
    true
}
