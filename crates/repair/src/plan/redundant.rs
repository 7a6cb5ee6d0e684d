//! `--performance`: removal of flushes and fences that do nothing (section 7).
//!
//! That a run found one redundant says nothing of other runs, so a finding is only where to look. Removed is what an earlier flush or fence of the
//! *same basic block* makes void, whatever the input:
//!
//! - a flush, if the same lines were flushed before, by an instruction that is as strong (a `clflush` is ordered by itself, so only another makes it
//!   void), with no store in between that may go to these lines;
//! - an `sfence`, if there was a fence before, and neither a flush nor a store to anything but local variables in between;
//! - and in between nothing that is atomic, and no call but of what is known to be harmless. A call of a function that does nothing but
//!   flush what it is given is a flush, to be removed as a whole; any other call is a call.
//!
//! Everything else is refused with the reason: never an `mfence`, a locked instruction, or a flush that another path needs.
//!
//! Two addresses are the same if they are computed in the same way from the same values, which includes variables and fields that nothing in between may have
//! changed.

use std::collections::BTreeMap;

use crashproof_compiler::instrument::assembly::{self, Operation};
use crashproof_finding::{Finding, Kind};
use crashproof_library as library;
use crashproof_llvm::{Opcode, Value};
use crashproof_program::pointers::{ObjectKind, PointsTo};
use crashproof_wire::record::{FENCE_SFENCE, FLUSH_CLFLUSH};

use super::fences::is_compiler_barrier;
use super::{Edit, Fix, Left, Place, Plan, SafeBy};
use crate::ir::{Code, Persistence};
use crate::locate::{Locator, Wanted};

pub(super) struct Redundant<'m, 'a> {
    pub locator: &'a Locator<'m>,
    pub points_to: &'a PointsTo<'m>,
}

/// Whether a finding is of this kind.
pub(super) fn concerns(finding: &Finding) -> bool {
    matches!(
        finding.kind,
        Kind::RedundantFlush | Kind::FlushUnmodified | Kind::RedundantFence
    )
}

/// A flush that is one instruction or call.
struct Flush<'m> {
    /// A function, if it is a call of one.
    callee: Option<Value<'m>>,
    operands: Vec<Value<'m>>,
    /// Ordered without a fence.
    is_strong: bool,
}

impl<'m> Redundant<'m, '_> {
    /// Adds the removals to the plan, and what is refused to what is left.
    pub(super) fn remove(&self, findings: &[Finding], plan: &mut Plan) {
        let mut removed: BTreeMap<Place, (Edit, Vec<usize>)> = BTreeMap::new();
        for (index, finding) in findings.iter().enumerate().filter(|(_, finding)| concerns(finding)) {
            let found = match finding.kind {
                Kind::RedundantFence => self.fence(finding).map(|fence| (fence, false)),
                _ => self.flush(finding).map(|flush| (flush, true)),
            };
            let place = found.and_then(|(void, is_flush)| {
                let place = void.place().ok_or("it is not in the bitcode")?;
                match plan.fixes.iter().any(|fix| fix.edit.places().contains(&place)) {
                    true => Err("another fix needs it".to_owned()),
                    false => Ok((place, is_flush)),
                }
            });
            match place {
                Ok((place, is_flush)) => {
                    let edit = match is_flush {
                        true => Edit::RemoveFlush { flush: place.clone() },
                        false => Edit::RemoveFence { fence: place.clone() },
                    };
                    removed.entry(place).or_insert((edit, Vec::new())).1.push(index);
                }
                Err(reason) => plan.left.push(Left { finding: index, reason }),
            }
        }
        plan.fixes.extend(removed.into_values().map(|(edit, findings)| Fix {
            findings,
            edit,
            safe_by: SafeBy::VoidInBasicBlock,
            candidates: Vec::new(),
        }));
    }

    /// The flush that can be removed: the one of the finding, or the call of the function that it is all of.
    fn flush(&self, finding: &Finding) -> Result<Value<'m>, String> {
        let stack = self
            .locator
            .stack(&finding.stack, Wanted::Flush)
            .map_err(|error| error.to_string())?;
        let [at] = stack.at[..] else {
            return Err("its line has several flushes".into());
        };
        let here = self.is_void_flush(at);
        let Err(reason) = here else { return Ok(at) };
        // In a function that only flushes, the calls of it are what may be void.
        let mut inner = at;
        for call in stack.calls.into_iter().map_while(Result::ok) {
            if !inner.function().is_some_and(|function| is_pure_flush(function, 0)) {
                break;
            }
            if self.is_void_flush(call).is_ok() {
                return Ok(call);
            }
            inner = call;
        }
        Err(reason)
    }

    fn is_void_flush(&self, at: Value<'m>) -> Result<(), String> {
        let flush = as_flush(at).ok_or("it does more than flush what it is given")?;
        let before = before(at)?;
        let mut reason = "no earlier flush of the same line in its basic block".to_owned();
        for (index, earlier) in before.iter().enumerate().rev() {
            if let Some(other) = as_flush(*earlier) {
                if other.callee == flush.callee
                    && (other.is_strong || !flush.is_strong)
                    && other.operands.len() == flush.operands.len()
                    && other
                        .operands
                        .iter()
                        .zip(&flush.operands)
                        .all(|(a, b)| self.is_same(*a, *b, &before))
                {
                    return Ok(());
                }
                continue;
            }
            if let Some(obstacle) = self.obstacle(*earlier, &flush) {
                let is_later = before[..index].iter().any(|other| as_flush(*other).is_some());
                if is_later {
                    reason = format!("{obstacle} lies between it and the flush before");
                }
                break;
            }
        }
        Err(reason)
    }

    /// Why a flush after this instruction may do something that one before it has not done.
    fn obstacle(&self, instruction: Value<'m>, flush: &Flush<'m>) -> Option<String> {
        if instruction.is_atomic() {
            return Some("an atomic operation".into());
        }
        if let Some(pointer) = instruction.store_pointer() {
            let pointers = flush.operands.iter().filter(|operand| operand.is_pointer());
            let may_meet = pointers
                .into_iter()
                .any(|flushed| self.may_share_line(pointer, *flushed));
            return may_meet.then(|| "a store that may go to the same line".into());
        }
        is_obstructing_call(instruction)
    }

    /// Whether two pointers may be to the same line. What an allocator of the program's own hands out may lie side by side, other objects
    /// than those of PM do not lie beside PM.
    fn may_share_line(&self, stored: Value<'m>, flushed: Value<'m>) -> bool {
        if stored.base().is_alloca() && !flushed.base().is_alloca() {
            return false;
        }
        let [ours, theirs] = [stored, flushed].map(|pointer| self.points_to.objects(pointer));
        let is_fresh = |object: &_| {
            matches!(self.points_to.kind(*object), ObjectKind::Fresh(_)) && self.points_to.may_be_persistent(*object)
        };
        ours.is_empty()
            || theirs.is_empty()
            || self.points_to.may_share_object(stored, flushed)
            || ours.iter().any(is_fresh) && theirs.iter().any(|object| self.points_to.may_be_persistent(*object))
            || theirs.iter().any(is_fresh) && ours.iter().any(|object| self.points_to.may_be_persistent(*object))
    }

    /// The fence that can be removed.
    fn fence(&self, finding: &Finding) -> Result<Value<'m>, String> {
        let stack = self
            .locator
            .stack(&finding.stack, Wanted::Fence)
            .map_err(|error| error.to_string())?;
        let [at] = stack.at[..] else {
            return Err("its line has several fences".into());
        };
        if !is_sfence(at) {
            return Err("it is more than an sfence, which is never removed".into());
        }
        for earlier in before(at)?.into_iter().rev() {
            let operations = earlier.persistence();
            if !operations.is_empty() && operations.iter().all(|operation| *operation == Persistence::Fence) {
                return Ok(at);
            }
            let obstacle = match earlier.store_pointer() {
                _ if earlier.is_atomic() => Some("an atomic operation".into()),
                Some(pointer) if pointer.base().is_alloca() && !earlier.is_nontemporal() => None,
                Some(_) => Some("a store".into()),
                None if as_flush(earlier).is_some() || !operations.is_empty() => Some("a flush".into()),
                None => is_obstructing_call(earlier),
            };
            if let Some(obstacle) = obstacle {
                return Err(format!(
                    "{obstacle} comes before it in its basic block, and no fence in between"
                ));
            }
        }
        Err("no earlier fence in its basic block".into())
    }

    /// Whether two values, both used in the block of which `before` are the instructions, are the same.
    fn is_same(&self, a: Value<'m>, b: Value<'m>, before: &[Value<'m>]) -> bool {
        if a == b {
            return true;
        }
        let (Some(opcode), true) = (a.opcode(), a.opcode() == b.opcode()) else {
            return false;
        };
        let operands = |value: Value<'m>| (0..).map_while(move |index| value.operand(index)).collect::<Vec<_>>();
        let same_operands = || {
            let (ours, theirs) = (operands(a), operands(b));
            ours.len() == theirs.len() && ours.iter().zip(&theirs).all(|(a, b)| self.is_same(*a, *b, before))
        };
        match opcode {
            Opcode::LLVMGetElementPtr => a.source_element() == b.source_element() && same_operands(),
            Opcode::LLVMBitCast
            | Opcode::LLVMPtrToInt
            | Opcode::LLVMIntToPtr
            | Opcode::LLVMSExt
            | Opcode::LLVMZExt
            | Opcode::LLVMTrunc
            | Opcode::LLVMAdd
            | Opcode::LLVMSub
            | Opcode::LLVMMul
            | Opcode::LLVMAnd
            | Opcode::LLVMOr
            | Opcode::LLVMShl => a.ty() == b.ty() && same_operands(),
            Opcode::LLVMLoad => {
                let (Some(from), true) = (a.operand(0), same_operands()) else {
                    return false;
                };
                let position = |value| before.iter().position(|other| *other == value);
                let (Some(first), Some(second)) = (position(a), position(b)) else {
                    return false;
                };
                let between = &before[first.min(second)..first.max(second)];
                a.ty() == b.ty() && !a.is_volatile() && !between.iter().any(|other| self.may_change(*other, from))
            }
            _ => false,
        }
    }

    /// Whether an instruction may change what a pointer points to.
    fn may_change(&self, instruction: Value<'m>, pointer: Value<'m>) -> bool {
        let is_variable = pointer.is_alloca();
        match instruction.store_pointer() {
            Some(stored) if is_variable && stored.is_alloca() => stored == pointer,
            Some(stored) => {
                let [ours, theirs] = [stored, pointer].map(|pointer| self.points_to.objects(pointer));
                // A variable that is only loaded and stored has no address that anything could go through.
                let is_plain = is_variable && theirs.is_empty();
                !is_plain && (ours.is_empty() || theirs.is_empty() || self.points_to.may_share_object(stored, pointer))
            }
            None => instruction.is_atomic() || is_obstructing_call(instruction).is_some(),
        }
    }
}

/// The instructions before one in its block.
fn before(at: Value) -> Result<Vec<Value>, String> {
    let block = at.block().ok_or("it is not in the bitcode")?;
    Ok(block.code().take_while(|other| *other != at).collect())
}

/// A call that may store, flush, fence or never come back.
fn is_obstructing_call(instruction: Value) -> Option<String> {
    if !instruction.is_call() || !instruction.persistence().is_empty() || as_flush(instruction).is_some() {
        return None;
    }
    if is_compiler_barrier(instruction) {
        return None;
    }
    const HARMLESS: [&str; 5] = [
        "llvm.lifetime.",
        "llvm.dbg.",
        "llvm.assume",
        "llvm.expect",
        "llvm.annotation",
    ];
    let name = instruction.called_function().map(Value::name);
    match name {
        Some(name) if HARMLESS.iter().any(|harmless| name.starts_with(harmless)) => None,
        Some(name) => Some(format!("a call of `{name}`")),
        None => Some("a call".into()),
    }
}

fn as_flush(instruction: Value) -> Option<Flush> {
    if let Some((template, constraints)) = instruction.assembly() {
        let operations = assembly::recognise(template, constraints)?;
        let [Operation::Flush { kind, argument }] = operations[..] else {
            return None;
        };
        return Some(Flush {
            callee: None,
            operands: vec![instruction.operand(argument)?],
            is_strong: kind == FLUSH_CLFLUSH,
        });
    }
    let callee = instruction.called_function()?;
    if let [Persistence::Flush(pointer)] = instruction.persistence()[..] {
        return Some(Flush {
            callee: None,
            operands: vec![pointer],
            is_strong: callee.name() == "llvm.x86.sse2.clflush",
        });
    }
    (instruction.opcode() == Some(Opcode::LLVMCall) && is_pure_flush(callee, 0)).then(|| Flush {
        callee: Some(callee),
        operands: instruction.arguments(),
        is_strong: false,
    })
}

fn is_sfence(instruction: Value) -> bool {
    if let Some((template, constraints)) = instruction.assembly() {
        let operations = assembly::recognise(template, constraints).unwrap_or_default();
        return operations == [Operation::Fence { kind: FENCE_SFENCE }];
    }
    instruction
        .called_function()
        .is_some_and(|callee| callee.name() == "llvm.x86.sse.sfence")
}

/// Whether a function does nothing but flush, by what it is given alone.
fn is_pure_flush(function: Value, depth: u32) -> bool {
    const DEEPEST: u32 = 4;
    if !function.has_body() {
        return matches!(
            library::effects(function.name()),
            Some([library::Effect::Flushes { .. }])
        );
    }
    if depth > DEEPEST {
        return false;
    }
    let mut flushes = false;
    let is_harmless = |instruction: Value, flushes: &mut bool| {
        let is_local = |pointer: Option<Value>| pointer.is_some_and(|pointer| pointer.base().is_alloca());
        if instruction.is_atomic() || instruction.is_volatile() {
            return false;
        }
        match instruction.opcode() {
            Some(Opcode::LLVMStore) => is_local(instruction.store_pointer()),
            Some(Opcode::LLVMLoad) => is_local(instruction.operand(0)),
            Some(Opcode::LLVMRet) => instruction.operand(0).is_none(),
            Some(Opcode::LLVMCall) => {
                let operations = instruction.persistence();
                let is_flush = !operations.is_empty()
                    && operations
                        .iter()
                        .all(|operation| matches!(operation, Persistence::Flush(_)))
                    || instruction
                        .called_function()
                        .is_some_and(|callee| is_pure_flush(callee, depth + 1));
                *flushes |= is_flush;
                is_flush || is_obstructing_marker(instruction).is_none()
            }
            Some(
                Opcode::LLVMInvoke
                | Opcode::LLVMCallBr
                | Opcode::LLVMIndirectBr
                | Opcode::LLVMUnreachable
                | Opcode::LLVMResume,
            ) => false,
            _ => true,
        }
    };
    function
        .code()
        .all(|instruction| is_harmless(instruction, &mut flushes))
        && flushes
}

/// As [`is_obstructing_call`], without looking into functions.
fn is_obstructing_marker(call: Value) -> Option<()> {
    let is_marker = is_compiler_barrier(call)
        || call.called_function().is_some_and(|callee| {
            callee.is_intrinsic()
                && (callee.name().starts_with("llvm.lifetime.") || callee.name().starts_with("llvm.dbg."))
        });
    (!is_marker).then_some(())
}

#[cfg(test)]
mod tests {
    use crashproof_llvm::Context;
    use crashproof_program::pointers::PointsTo;

    use super::*;
    use crate::testing::Snippet;

    const CODE: &str = "#include <sys/mman.h>
#include <immintrin.h>
struct node { long key; struct node *next; };
static long counter;
static void flush(void *p) { CLWB(p); } //@ wrapped
static void flush_range(char *p, long n) { for (char *end = p + n; p < end; p += 64) CLWB(p); } //@ looped
static void persist(void *p) { CLWB(p); SFENCE(); } //@ persisted
static void work(struct node *n, struct node *other, int c) {
    n->key = 1; CLWB(&n->key);
    CLWB(&n->key); //@ twice
    n->key = 2;
    CLWB(&n->key); //@ stored
    other->key = 3;
    CLWB(&n->key); //@ aliased
    counter = 4;
    CLWB(&n->key); //@ volatile
    CLWB(&n->next->key);
    CLWB(&n->next->key); //@ field
    n = n->next; CLWB(&n->key); //@ moved
    puts(\"x\");
    CLWB(&n->key); //@ called
    __atomic_fetch_add(&counter, 1, __ATOMIC_SEQ_CST);
    CLWB(&n->key); //@ atomic
    if (c)
        CLWB(&n->key); //@ branch
    flush(n);
    flush(n); //@ wrapper
    flush_range((char *)n, 100);
    flush_range((char *)n, 100); //@ range
    flush_range((char *)n, 200); //@ longer
    persist(n);
    persist(n); //@ persist
    _mm_clflush(n);
    _mm_clflush(n); //@ strong
}
static void fences(struct node *n) {
    SFENCE();
    SFENCE(); //@ fence
    CLWB(n);
    SFENCE(); //@ needed
    n->key = 1;
    SFENCE(); //@ after_store
    _mm_mfence(); //@ mfence
    _mm_sfence(); //@ after_mfence
}
static void order(struct node *n) {
    CLWB(n);
    _mm_clflush(n); //@ stronger
}
int main(int c, char **v) {
    struct node *pool = mmap(0, 4096, 3, MAP_SHARED, 3, 0);
    work(pool, pool + c, c); //@ main
    fences(pool);
    order(pool);
}";

    #[test]
    fn removed_and_refused() {
        let context = Context::create();
        let code = Snippet::c(&context, CODE);
        let locator = Locator::new(&code.program.module);
        let points_to = PointsTo::of(&code.program.module);
        let redundant = Redundant {
            locator: &locator,
            points_to: &points_to,
        };
        let judge = |kind: Kind, stack: &str| {
            let mut plan = Plan::default();
            redundant.remove(&[code.finding(kind, stack, None)], &mut plan);
            match (&plan.fixes[..], &plan.left[..]) {
                ([fix], []) => match &fix.edit {
                    Edit::RemoveFlush { flush: place } | Edit::RemoveFence { fence: place } => {
                        let line = place.position.as_ref().map_or(0, |position| position.line);
                        format!("removed {line}")
                    }
                    other => panic!("{other:?}"),
                },
                ([], [left]) => left.reason.clone(),
                other => panic!("{other:?}"),
            }
        };
        let removed = |name: &str| format!("removed {}", code.line(name));
        for name in ["twice", "volatile", "field", "strong"] {
            assert_eq!(
                judge(Kind::RedundantFlush, &format!("work@{name} main@main")),
                removed(name),
                "{name}"
            );
        }
        for (name, reason) in [
            (
                "stored",
                "a store that may go to the same line lies between it and the flush before",
            ),
            (
                "aliased",
                "a store that may go to the same line lies between it and the flush before",
            ),
            ("called", "a call of `puts` lies between it and the flush before"),
            ("atomic", "an atomic operation lies between it and the flush before"),
            ("branch", "no earlier flush of the same line in its basic block"),
        ] {
            assert_eq!(judge(Kind::FlushUnmodified, &format!("work@{name}")), reason, "{name}");
        }
        assert!(!judge(Kind::RedundantFlush, "work@moved").starts_with("removed"));
        assert_eq!(
            judge(Kind::RedundantFlush, "flush@wrapped work@wrapper"),
            removed("wrapper")
        );
        assert_eq!(
            judge(Kind::RedundantFlush, "flush_range@looped work@range"),
            removed("range")
        );
        assert!(!judge(Kind::RedundantFlush, "flush_range@looped work@longer").starts_with("removed"));
        assert!(!judge(Kind::RedundantFlush, "persist@persisted work@persist").starts_with("removed"));
        assert!(!judge(Kind::RedundantFlush, "order@stronger").starts_with("removed"));

        assert_eq!(judge(Kind::RedundantFence, "fences@fence"), removed("fence"));
        assert_eq!(
            judge(Kind::RedundantFence, "fences@after_mfence"),
            removed("after_mfence")
        );
        assert!(judge(Kind::RedundantFence, "fences@needed").starts_with("a flush comes before it"));
        assert!(judge(Kind::RedundantFence, "fences@after_store").starts_with("a store comes before it"));
        assert!(judge(Kind::RedundantFence, "fences@mfence").starts_with("it is more than an sfence"));
    }
}
