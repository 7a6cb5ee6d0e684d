//! Whether code always fences, and whether it may leave something that waits for a fence, whatever way is taken through the functions that it calls.
//!
//! Functions that persist are often told how by a constant (`flush(p, size, true)`): a branch on a parameter that a call gives a constant goes one way in that call.

use crashproof_llvm::{Block, IntPredicate, Opcode, Value};
use rustc_hash::FxHashSet;

use super::calls::is_own;
use super::effects::Analysis;
use crate::ir::{Code, Persistence};
use crate::plan::known::{self, Length};

/// Calls within calls that are looked into; of what is deeper, nothing is relied on.
const DEPTH: u32 = 8;

/// The parameters of a function that are known in one call.
type Given = Vec<Option<u64>>;

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Question {
    AlwaysFences,
    MayLeavePending,
}

/// What is asked of a function, for known parameters, and how deep it is looked into: functions that call each other come up again and again.
#[derive(PartialEq, Eq, Hash)]
pub(super) struct Asked<'m>(Question, Value<'m>, Given, u32);

impl<'m> Analysis<'m, '_> {
    /// Whether an instruction fences; of a call of a function with a body, whatever way is taken through that.
    pub(super) fn always_fences(&self, instruction: Value<'m>) -> bool {
        self.fences(instruction, &Given::new(), DEPTH)
    }

    /// Whether an instruction may flush something, or store it past the cache, and not wait for it.
    pub(super) fn may_leave_pending(&self, instruction: Value<'m>) -> bool {
        self.leaves_pending(instruction, &Given::new(), DEPTH)
    }

    fn fences(&self, instruction: Value<'m>, given: &Given, depth: u32) -> bool {
        let fences = self.of([instruction]).fences;
        let Some(callee) = looked_into(instruction).filter(|_| fences) else {
            return fences;
        };
        if depth == 0 {
            return false;
        }
        let given = self.given(instruction, given);
        self.once(Asked(Question::AlwaysFences, callee, given.clone(), depth), || {
            let step = |fenced: bool, at: Value<'m>| fenced || self.fences(at, &given, depth - 1);
            self.at_ends(callee, &given, false, step).iter().all(|fenced| *fenced)
        })
    }

    fn leaves_pending(&self, instruction: Value<'m>, given: &Given, depth: u32) -> bool {
        let effects = self.of([instruction]);
        if !effects.persists && !effects.streams && !effects.leaves_pending {
            return false;
        }
        let Some(callee) = looked_into(instruction) else {
            let ends_in_flush = matches!(instruction.persistence().last(), Some(Persistence::Flush(_)));
            return effects.leaves_pending || effects.streams || ends_in_flush || !effects.fences;
        };
        if depth == 0 {
            return true;
        }
        let given = self.given(instruction, given);
        self.once(Asked(Question::MayLeavePending, callee, given.clone(), depth), || {
            let step = |pending: bool, at: Value<'m>| {
                self.leaves_pending(at, &given, depth - 1) || (pending && !self.fences(at, &given, depth - 1))
            };
            self.at_ends(callee, &given, false, step).contains(&true)
        })
    }

    fn once(&self, asked: Asked<'m>, answer: impl FnOnce() -> bool) -> bool {
        if let Some(&known) = self.answers.borrow().get(&asked) {
            return known;
        }
        let answer = answer();
        self.answers.borrow_mut().insert(asked, answer);
        answer
    }

    /// Whether what an instruction stores is persistent when its function ends, because that function has a library persist the range.
    pub(super) fn persists_itself(&self, function: Value<'m>, store: Value<'m>) -> bool {
        let written = store.store_pointer().zip(store.stored_size()).or_else(|| {
            let callee = store.called_function()?;
            let Length::Argument(index) = known::written(callee.name())?.length else {
                return None;
            };
            let size = store.arguments().get(index as usize)?.unsigned()?;
            Some((store.destination()?, size))
        });
        let Some(((variable, from), size)) =
            written.and_then(|(pointer, size)| Some((self.behind_variable(pointer)?, size)))
        else {
            return false;
        };
        let covers = |at: Value<'m>| {
            self.persisted_range(at)
                .is_some_and(|(other, start, len)| other == variable && start <= from && from + size <= start + len)
        };
        let step = |persistent: bool, at: Value<'m>| at != store && (persistent || covers(at));
        // Only a variable that stays the same means the same place.
        self.copied_parameter(variable).is_some() && !self.at_ends(function, &Given::new(), true, step).contains(&false)
    }

    /// What a library function persists and nothing else, as so many bytes behind where a variable points to.
    fn persisted_range(&self, call: Value<'m>) -> Option<(Value<'m>, u64, u64)> {
        let callee = call.called_function().filter(|callee| !callee.has_body())?;
        let (at, length) = crashproof_library::persisted_range(callee.name())?;
        let arguments = call.arguments();
        let (variable, start) = self.behind_variable(*arguments.get(at as usize)?)?;
        Some((variable, start, arguments.get(length as usize)?.unsigned()?))
    }

    /// What `step` makes of the first state, instruction by instruction, on all ways to an end of the function.
    fn at_ends(
        &self,
        function: Value<'m>,
        given: &Given,
        first: bool,
        step: impl Fn(bool, Value<'m>) -> bool,
    ) -> FxHashSet<bool> {
        let mut ends = FxHashSet::default();
        let mut seen = FxHashSet::default();
        let mut open: Vec<(Block<'m>, bool)> = function.blocks().take(1).map(|entry| (entry, first)).collect();
        while let Some((block, state)) = open.pop() {
            if !seen.insert((block, state)) {
                continue;
            }
            let state = block.code().fold(state, &step);
            if block.code().any(Value::is_return) {
                ends.insert(state);
            }
            open.extend(self.successors(block, given).into_iter().map(|next| (next, state)));
        }
        ends
    }

    /// Where a block leads to.
    fn successors(&self, block: Block<'m>, given: &Given) -> Vec<Block<'m>> {
        let successors = block.successors();
        let branch = block
            .code()
            .last()
            .filter(|last| last.opcode() == Some(Opcode::LLVMBr) && last.is_branch());
        let condition = branch.and_then(|branch| self.known(branch.operand(0)?, given));
        match (condition, &successors[..]) {
            (Some(condition), [then, otherwise]) => vec![if condition != 0 { *then } else { *otherwise }],
            _ => successors,
        }
    }

    /// What a call gives to the parameters of what it calls.
    fn given(&self, call: Value<'m>, given: &Given) -> Given {
        let arguments = call.arguments().into_iter();
        arguments.map(|argument| self.known(argument, given)).collect()
    }

    /// A number that is the same in every execution of the call.
    fn known(&self, value: Value<'m>, given: &Given) -> Option<u64> {
        if let Some(constant) = value.unsigned() {
            return Some(constant);
        }
        if let Some((_, index)) = value.as_parameter() {
            return given.get(index as usize).copied().flatten();
        }
        let operand = |index: u32| value.operand(index).and_then(|operand| self.known(operand, given));
        match value.opcode()? {
            Opcode::LLVMZExt => operand(0),
            Opcode::LLVMTrunc => {
                let width = value.ty().bits()?;
                operand(0)
                    .filter(|_| width < 64)
                    .map(|number| number & ((1 << width) - 1))
            }
            Opcode::LLVMXor => Some(operand(0)? ^ operand(1)?),
            Opcode::LLVMICmp => {
                let equal = match value.predicate()? {
                    IntPredicate::LLVMIntEQ => true,
                    IntPredicate::LLVMIntNE => false,
                    _ => return None,
                };
                Some(u64::from((operand(0)? == operand(1)?) == equal))
            }
            Opcode::LLVMLoad => self.known(self.copied_parameter(value.operand(0)?)?, given),
            _ => None,
        }
    }

    /// What a variable holds that only the beginning of its function stores to, as unoptimised code does with parameters.
    fn copied_parameter(&self, variable: Value<'m>) -> Option<Value<'m>> {
        let is_store = |user: &Value<'m>| user.opcode() == Some(Opcode::LLVMStore);
        let mut stores = variable.users().into_iter().filter(is_store);
        let store = stores
            .next()
            .filter(|_| variable.is_alloca() && stores.next().is_none())?;
        let is_mark = |user: Value<'m>| {
            user.called_function()
                .is_some_and(|callee| callee.name().starts_with("llvm.lifetime."))
        };
        let is_only_read = variable
            .users()
            .into_iter()
            .all(|user| user == store || user.opcode() == Some(Opcode::LLVMLoad) || is_mark(user));
        let is_at_entry = store.block() == variable.function()?.blocks().next();
        (is_only_read && is_at_entry && store.operand(1) == Some(variable)).then(|| store.operand(0))?
    }
}

/// The function that a call goes through, if what it does is in its body.
fn looked_into(instruction: Value) -> Option<Value> {
    let called = instruction.called_function().filter(|callee| callee.has_body());
    called.filter(|callee| !is_own(*callee))
}
