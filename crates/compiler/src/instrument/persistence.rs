//! Flushes and fences. Those that are nothing else do not look at the address first: whoever flushes means PM, and a hook is cheaper than the
//! breakpoint that the instruction itself has while it is recorded.
//!
//! A locked instruction is a fence whatever memory it is on, and has no breakpoint. It stays as it is; before it, the code looks whether anything
//! waits for a fence, which is two loads beside an instruction that takes some twenty cycles, and only then calls the hook. The record comes
//! before the instruction, so that another thread that has seen what was published by it stores to PM after the fence, in the trace too.

use crashproof_llvm::AtomicOrdering::LLVMAtomicOrderingSequentiallyConsistent;
use crashproof_llvm::Value;
use crashproof_sites::SiteKind;
use crashproof_wire::hooks::{Hook, PENDING_OFFSET, SLOT};
use crashproof_wire::record::{FENCE_LOCKED, FENCE_MFENCE, FENCE_SFENCE, FLUSH_CLFLUSH, FLUSH_CLFLUSHOPT, FLUSH_CLWB};

use super::Pass;
use super::assembly::{self, Operation};

/// What an intrinsic flushes or fences. `name` is without `llvm.`.
pub(crate) fn operation(name: &str) -> Option<Operation> {
    let flush = |kind| Operation::Flush { kind, argument: 0 };
    Some(match name {
        "x86.clwb" => flush(FLUSH_CLWB),
        "x86.clflushopt" => flush(FLUSH_CLFLUSHOPT),
        "x86.sse2.clflush" => flush(FLUSH_CLFLUSH),
        "x86.sse.sfence" => Operation::Fence { kind: FENCE_SFENCE },
        "x86.sse2.mfence" => Operation::Fence { kind: FENCE_MFENCE },
        _ => return None,
    })
}

impl<'m> Pass<'m> {
    /// `name` is without `llvm.`.
    pub(super) fn persistence_intrinsic(&mut self, call: Value<'m>, name: &str) {
        if let Some(operation) = operation(name) {
            self.persistence(call, &[operation]);
        }
    }

    pub(super) fn inline_assembly(&mut self, call: Value<'m>, template: &str, constraints: &str) {
        match assembly::recognise(template, constraints) {
            Some(operations) if call.ty().is_void() && operations != [assembly::LOCKED_FENCE] => {
                self.persistence(call, &operations);
            }
            _ if assembly::is_locked(template, constraints) => self.fence_by_lock(call),
            _ => {}
        }
    }

    /// Before a locked instruction, wherever it stores.
    pub(super) fn fence_by_lock(&mut self, instruction: Value<'m>) {
        let site = self.site(SiteKind::Fence, instruction, None);
        let location = instruction.debug_location();
        let (head, tail) = self.ir.split_before(instruction);
        let recorded = self.ir.block_before(tail);
        let pending = self.ir.block_at_end(head.function());

        self.ir.at_end(head, location);
        let hooks = self.ir.load_variable(SLOT);
        let absent = self.ir.equal(hooks, self.ir.i64(0));
        self.ir.branch_if(absent, tail, recorded);

        self.ir.at_end(recorded, location);
        let threads = self.ir.load_i32(hooks, PENDING_OFFSET as u64);
        let threads = self.ir.as_i64(threads);
        let some = self.ir.at_most(self.ir.i64(1), threads);
        self.ir.branch_if_unlikely(some, pending, tail);

        self.ir.at_end(pending, location);
        self.event(site, Hook::Fence, &[self.ir.i64(FENCE_LOCKED.into())]);
        self.ir.branch(tail);
    }

    /// Only this strongest one is an instruction on x86.
    pub(super) fn fence(&mut self, fence: Value<'m>) {
        if fence.ordering() == LLVMAtomicOrderingSequentiallyConsistent && !fence.is_single_threaded() {
            self.persistence(fence, &[Operation::Fence { kind: FENCE_MFENCE }]);
        }
    }

    /// Only the first hook can decline: either there is a runtime that records, or there is none.
    fn persistence(&mut self, instruction: Value<'m>, operations: &[Operation]) {
        let parts = self.set_apart(instruction);
        let mut block = parts.head;
        for (index, &operation) in operations.iter().enumerate() {
            self.ir.at_end(block, parts.location);
            let done = match operation {
                Operation::Flush { kind, argument } => {
                    let pointer = instruction.operand_at(argument);
                    let site = self.site(SiteKind::Flush, instruction, Some((pointer, None)));
                    let arguments = [self.ir.as_i64(pointer), self.ir.i64(kind.into())];
                    self.event(site, Hook::Flush, &arguments)
                }
                Operation::Fence { kind } => {
                    let site = self.site(SiteKind::Fence, instruction, None);
                    self.event(site, Hook::Fence, &[self.ir.i64(kind.into())])
                }
            };
            if index == 0 && operations.len() > 1 {
                block = self.ir.block_before(parts.original);
                let declined = self.ir.equal(done, self.ir.i64(0));
                self.ir.branch_if(declined, parts.original, block);
            } else if index == 0 {
                self.finish(&parts, done);
            } else if index + 1 == operations.len() {
                self.ir.branch(parts.tail);
            }
        }
    }
}
