//! Flushes and fences. They do not look at the address first: whoever flushes means PM, and a hook is cheaper than the
//! breakpoint that the instruction itself has while it is recorded.

use crashproof_sites::SiteKind;
use crashproof_wire::hooks::Hook;
use crashproof_wire::record::{FENCE_MFENCE, FENCE_SFENCE, FLUSH_CLFLUSH, FLUSH_CLFLUSHOPT, FLUSH_CLWB};
use llvm_sys::LLVMAtomicOrdering::LLVMAtomicOrderingSequentiallyConsistent;

use super::Pass;
use super::assembly::{self, Operation};
use super::ir::Value;

impl Pass<'_> {
    /// `name` is without `llvm.`.
    pub(super) fn persistence_intrinsic(&mut self, call: Value, name: &str) {
        let flush = |kind| Operation::Flush { kind, argument: 0 };
        let operation = match name {
            "x86.clwb" => flush(FLUSH_CLWB),
            "x86.clflushopt" => flush(FLUSH_CLFLUSHOPT),
            "x86.sse2.clflush" => flush(FLUSH_CLFLUSH),
            "x86.sse.sfence" => Operation::Fence { kind: FENCE_SFENCE },
            "x86.sse2.mfence" => Operation::Fence { kind: FENCE_MFENCE },
            _ => return,
        };
        self.persistence(call, &[operation]);
    }

    pub(super) fn inline_assembly(&mut self, call: Value, template: &str, constraints: &str) {
        if let Some(operations) = assembly::recognise(template, constraints)
            && call.ty().is_void()
        {
            self.persistence(call, &operations);
        }
    }

    /// Only this strongest one is an instruction on x86.
    pub(super) fn fence(&mut self, fence: Value) {
        if fence.ordering() == LLVMAtomicOrderingSequentiallyConsistent && !fence.is_single_threaded() {
            self.persistence(fence, &[Operation::Fence { kind: FENCE_MFENCE }]);
        }
    }

    /// Only the first hook can decline: either there is a runtime that records, or there is none.
    fn persistence(&mut self, instruction: Value, operations: &[Operation]) {
        let parts = self.set_apart(instruction);
        let mut block = parts.head;
        for (index, &operation) in operations.iter().enumerate() {
            self.ir.build_in(block, parts.location);
            let done = match operation {
                Operation::Flush { kind, argument } => {
                    let pointer = instruction.operand(argument);
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
