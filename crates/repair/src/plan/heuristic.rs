//! The heuristic of section 4.3: where a fix does the least to memory that is not persistent.
//!
//! A candidate's score is, of the pointer that the store writes through, or that a call hands down to it, the number of PM aliases less the
//! number of other aliases. Deviation: the paper sums over all pointers that a call passes. What a function only reads says nothing of where it
//! writes, and would keep each fix of a `copy(to, from)` in `copy`; all pointers count only further out than where the pointer comes from. The paper counts "aliases to pointers"; which pointers, it shows in listing 6 alone, where `addr` has two: those that
//! the callers of `modify` pass, not the copies of them on the way. So what is counted here is where pointers come from:
//!
//! - [`Mode::Program`]: the abstract objects of the pointer analysis ([`PointsTo`]) that a pointer may point to, each once, whatever the offset. An object
//!   is PM if a pointer that the trace shows to write PM may point to it; for each event that pointer is the outermost one on its stack that
//!   was handed down as a parameter to the store (`pm_addr` on line 15, not `addr` on line 3, which points to everything that anyone passes).
//! - [`Mode::Trace`]: without the analysis. The pointers that direct callers hand down, followed up to where each comes from; PM are those that the trace
//!   shows to write PM.
//!
//! Where both places have the same score by the program, the trace decides: calling contexts are not told apart by the analysis, and so a pointer that a
//! shared function returned may seem to be to anything.
//!
//! Both give listing 6 its scores 0, 0 and 1. Functions are no data and do not count. Deviation: the paper rules out calls that pass no argument;
//! here, those that pass no pointer, for the same reason (PM is reached through globals, and so it is whoever calls), and so are all calls
//! further out.

use std::cell::RefCell;
use std::collections::BTreeSet;

use crashproof_llvm::{Opcode, Value, ValueKind};
use crashproof_program::pointers::{Callees, ObjectId, ObjectKind, PointsTo};
use rustc_hash::{FxHashMap, FxHashSet};

use super::aliases::Aliases;
use crate::ir::Code;

/// A place that the trace, or a finding, shows to write PM.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PmWrite<'m> {
    /// The store, or the call of a memory function.
    pub at: Value<'m>,
    /// The calls on its stack, innermost first, as far as they are known.
    pub calls: Vec<Value<'m>>,
}

/// Which aliases count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Program,
    Trace,
}

pub struct Heuristic<'m, 'a> {
    points_to: &'a PointsTo<'m>,
    mode: Mode,
    /// What a pointer that writes PM may point to.
    pm_objects: FxHashSet<ObjectId>,
    /// Without what cannot be mapped, if there is something that can: because calling contexts are not told apart, a pointer to PM may seem to be
    /// one to the heap as well.
    counted_as_pm: FxHashSet<ObjectId>,
    pm_pointers: FxHashSet<Value<'m>>,
    /// The direct calls of each function.
    callers: FxHashMap<Value<'m>, Vec<Value<'m>>>,
    sources: RefCell<FxHashMap<Value<'m>, BTreeSet<Value<'m>>>>,
}

impl<'m, 'a> Heuristic<'m, 'a> {
    pub fn new(
        functions: impl Iterator<Item = Value<'m>>,
        points_to: &'a PointsTo<'m>,
        writes: &[PmWrite<'m>],
        mode: Mode,
    ) -> Heuristic<'m, 'a> {
        let mut callers: FxHashMap<Value, Vec<Value>> = FxHashMap::default();
        for call in functions.flat_map(Value::code) {
            if let Some(callee) = call.called_function().filter(|callee| callee.has_body()) {
                callers.entry(callee).or_default().push(call);
            }
        }
        let mut pm_pointers = FxHashSet::default();
        for write in writes {
            pm_pointers.extend(write.root());
        }
        let mut pm_objects = FxHashSet::default();
        let mut counted_as_pm = FxHashSet::default();
        for pointer in &pm_pointers {
            let objects = points_to.objects(*pointer);
            let mapped = objects
                .iter()
                .copied()
                .filter(|object| points_to.may_be_persistent(*object));
            let mapped: Vec<ObjectId> = mapped.collect();
            pm_objects.extend(&objects);
            counted_as_pm.extend(if mapped.is_empty() { objects } else { mapped });
        }
        let mut heuristic = Heuristic {
            points_to,
            mode,
            pm_objects,
            counted_as_pm,
            pm_pointers: FxHashSet::default(),
            callers,
            sources: RefCell::default(),
        };
        heuristic.pm_pointers = pm_pointers
            .iter()
            .flat_map(|pointer| heuristic.sources(*pointer))
            .collect();
        heuristic
    }

    fn score(&self, pointer: Value<'m>, mode: Mode) -> i64 {
        let count = |is_pm: bool| if is_pm { 1 } else { -1 };
        match mode {
            Mode::Program => {
                let objects = self.points_to.objects(pointer).into_iter();
                let data = objects.filter(|object| !matches!(self.points_to.kind(*object), ObjectKind::Function(_)));
                data.map(|object| count(self.counted_as_pm.contains(&object))).sum()
            }
            Mode::Trace => {
                let sources = self.sources(pointer);
                sources
                    .iter()
                    .map(|source| count(self.pm_pointers.contains(source)))
                    .sum()
            }
        }
    }

    fn scores_in(&self, places: &[Value<'m>], mode: Mode) -> Vec<Option<i64>> {
        let mut is_out = false;
        let mut scores = Vec::new();
        let mut handed_down = places.first().and_then(|store| store.destination());
        for (index, place) in places.iter().enumerate() {
            if index > 0 {
                let parameter = handed_down.and_then(parameter);
                handed_down = parameter.and_then(|(_, index)| argument(*place, index));
            }
            is_out |= pointers(*place).is_empty();
            let pointers = handed_down.map_or_else(|| pointers(*place), |pointer| vec![pointer]);
            let sum = || pointers.iter().map(|pointer| self.score(*pointer, mode)).sum();
            scores.push((!is_out).then(sum));
        }
        scores
    }

    /// The pointers that a pointer was handed down from by direct calls; itself, if it was not.
    fn sources(&self, pointer: Value<'m>) -> BTreeSet<Value<'m>> {
        if let Some(known) = self.sources.borrow().get(&pointer) {
            return known.clone();
        }
        let mut found = BTreeSet::new();
        let mut seen = FxHashSet::default();
        let mut pending = vec![pointer.base()];
        while let Some(pointer) = pending.pop() {
            if !seen.insert(pointer) || pointer.kind() == ValueKind::LLVMConstantPointerNullValueKind {
                continue;
            }
            let Some((function, index)) = parameter(pointer) else {
                found.insert(identity(origin(pointer)));
                continue;
            };
            let calls = self.callers.get(&function).map_or(&[][..], Vec::as_slice);
            pending.extend(calls.iter().filter_map(|call| call.operand(index)));
            if calls.is_empty() {
                found.insert(identity(origin(pointer)));
            }
        }
        self.sources.borrow_mut().insert(pointer, found.clone());
        found
    }
}

impl<'m> Aliases<'m> for Heuristic<'m, '_> {
    fn scores(&self, places: &[Value<'m>]) -> Vec<Option<i64>> {
        self.scores_in(places, self.mode)
    }

    fn scores_of_trace(&self, places: &[Value<'m>]) -> Vec<Option<i64>> {
        self.scores_in(places, Mode::Trace)
    }

    /// To memory that may be mapped, or that the trace shows to be.
    fn may_be_pm(&self, pointer: Value<'m>) -> bool {
        if pointer.base().is_alloca() {
            return false;
        }
        let objects = self.points_to.objects(pointer);
        // A pointer that points nowhere, as far as the analysis sees.
        objects.is_empty()
            || objects
                .iter()
                .any(|object| self.pm_objects.contains(object) || self.points_to.may_be_persistent(*object))
    }

    fn callees(&self, call: Value<'m>) -> Option<Vec<Value<'m>>> {
        match self.points_to.callees(call) {
            Callees::Open(_) => None,
            Callees::Closed(functions) => Some(functions),
        }
    }
}

impl<'m> PmWrite<'m> {
    /// The pointer that was handed down to the write, from as far out as the stack shows.
    fn root(&self) -> Option<Value<'m>> {
        let mut pointer = self.at.destination()?.base();
        for call in &self.calls {
            let Some((_, index)) = parameter(pointer) else { break };
            let Some(argument) = argument(*call, index) else { break };
            pointer = argument.base();
        }
        Some(origin(pointer))
    }
}

fn argument<'m>(call: Value<'m>, index: u32) -> Option<Value<'m>> {
    call.operand(index)
        .filter(|_| (index as usize) < call.arguments().len())
}

/// The pointers that a store writes through, or a call passes.
fn pointers<'m>(place: Value<'m>) -> Vec<Value<'m>> {
    match place.store_pointer() {
        Some(pointer) => vec![pointer],
        None => place
            .arguments()
            .into_iter()
            .filter(|argument| argument.is_pointer())
            .collect(),
    }
}

/// The parameter that a pointer is, or moves along from: its function and index.
fn parameter<'m>(pointer: Value<'m>) -> Option<(Value<'m>, u32)> {
    origin(pointer).as_parameter()
}

/// The same for all loads of a variable.
fn identity(pointer: Value) -> Value {
    let variable = pointer.operand(0).filter(|variable| variable.is_alloca());
    variable
        .filter(|_| pointer.opcode() == Some(Opcode::LLVMLoad))
        .unwrap_or(pointer)
}

/// What a pointer is computed from by accesses of fields and elements, and by way of variables that nothing else is assigned to.
fn origin<'m>(pointer: Value<'m>) -> Value<'m> {
    let mut origin = pointer.base();
    // As deep as copies of copies go; none is met twice.
    let mut seen: Vec<Value> = Vec::new();
    while origin.opcode() == Some(Opcode::LLVMLoad) {
        let Some(variable) = origin
            .operand(0)
            .filter(|variable| variable.is_alloca() && !seen.contains(variable))
        else {
            break;
        };
        seen.push(variable);
        let assigned = variable
            .users()
            .into_iter()
            .filter(|user| user.store_pointer() == Some(variable));
        let is_itself = |value: &Value| value.opcode() == Some(Opcode::LLVMLoad) && value.operand(0) == Some(variable);
        let mut sources = assigned
            .filter_map(|store| Some(store.operand(0)?.base()))
            .filter(|value| !is_itself(value));
        match (sources.next(), sources.next()) {
            (Some(source), None) => origin = source,
            _ => break,
        }
    }
    origin
}

#[cfg(test)]
mod tests {
    use crashproof_llvm::Context;
    use crashproof_program::pointers::PointsTo;

    use super::*;
    use crate::locate::{Locator, Wanted};
    use crate::testing::Snippet;

    /// The scores of the places on a stack, in both modes; `writes` are stacks that the trace shows.
    fn scores(code: &Snippet, writes: &[&str], stack: &str) -> [Vec<Option<i64>>; 2] {
        let locator = Locator::new(&code.program.module);
        let located = |stack: &str| {
            let stack = locator.stack(&code.stack(stack), Wanted::Store).unwrap();
            let calls: Vec<Value> = stack.calls.into_iter().map_while(Result::ok).collect();
            PmWrite { at: stack.at[0], calls }
        };
        let writes: Vec<PmWrite> = writes.iter().map(|stack| located(stack)).collect();
        let PmWrite { at, calls } = located(stack);
        let places: Vec<Value> = [at].into_iter().chain(calls).collect();
        let points_to = PointsTo::of(&code.program.module);
        [Mode::Program, Mode::Trace]
            .map(|mode| Heuristic::new(code.program.module.functions(), &points_to, &writes, mode).scores(&places))
    }

    #[test]
    fn listing_6() {
        let context = Context::create();
        let code = Snippet::c(
            &context,
            "#include <sys/mman.h>
static void update(char *addr, int idx, char val) {
    addr[idx] = val; //@ store
}
static void modify(char *addr) {
    update(addr, 1, 2); //@ update
}
static void foo(char *vol_addr, char *pm_addr) {
    for (int i = 0; i < INT32_MAX; i++)
        modify(vol_addr);
    modify(pm_addr); //@ modify
}
int main(void) {
    foo(malloc(64), mmap(0, 4096, 3, MAP_SHARED, 3, 0)); //@ main
}",
        );
        let stack = "update@store modify@update foo@modify";
        let [program, trace] = scores(&code, &[stack], stack);
        assert_eq!(program, [Some(0), Some(0), Some(1)]);
        assert_eq!(trace, [Some(0), Some(0), Some(1)]);
        let whole = "update@store modify@update foo@modify main@main";
        let [program, trace] = scores(&code, &[whole], whole);
        // The call in main passes both; what it hands down to the store is PM.
        assert_eq!(program, [Some(0), Some(0), Some(1), Some(1)]);
        assert_eq!(trace, [Some(0), Some(0), Some(1), Some(1)]);
    }

    #[test]
    fn a_copy_loop_of_a_library_of_its_own() {
        let context = Context::create();
        let code = Snippet::c(
            &context,
            "#include <sys/mman.h>
static void copy(char *to, const char *from, long n) {
    while (n--)
        *to++ = *from++; //@ store
}
struct log { long used; char data[100]; };
static void append(struct log *log, const char *text) {
    copy(log->data + log->used, text, 8); //@ copy
}
int main(int c, char **v) {
    char line[32], other[32];
    copy(line, v[0], 8);
    copy(other, line, 8);
    struct log *log = mmap(0, 4096, 3, MAP_SHARED, 3, 0);
    append(log, line); //@ append
}",
        );
        let stack = "copy@store append@copy main@append";
        let [program, trace] = scores(&code, &[stack], stack);
        // to: the log, two buffers. from is only read, and does not count.
        assert_eq!(program, [Some(-1), Some(1), Some(1)]);
        assert_eq!(trace, [Some(-1), Some(1), Some(1)]);
    }

    #[test]
    fn a_shared_function_that_returns_the_pointer() {
        let context = Context::create();
        let code = Snippet::c(
            &context,
            "#include <sys/mman.h>
struct table { long *slots; };
static long *find(struct table *table, long n) { return &table->slots[n]; }
static void set(long *slot, long value) {
    *slot = value; //@ store
}
static void put(struct table *table, long n) {
    set(find(table, n), n); //@ put
}
int main(void) {
    struct table dram = {malloc(64)}, pm = {mmap(0, 4096, 3, MAP_SHARED, 3, 0)};
    set(find(&dram, 1), 2);
    put(&pm, 3); //@ main
}",
        );
        let stack = "set@store put@put";
        let [program, trace] = scores(&code, &[stack], stack);
        // The analysis cannot tell the slots apart, the heap's are no PM all the same; the trace knows which call was it.
        assert_eq!(program, [Some(0), Some(0)]);
        assert_eq!(trace, [Some(0), Some(1)]);
    }

    #[test]
    fn a_call_without_pointers_is_out() {
        let context = Context::create();
        let code = Snippet::c(
            &context,
            "static long *pool;
static void set(long *at, long value) {
    *at = value; //@ store
}
static void tick(int n) {
    set(pool, n); //@ set
}
static void run(char *unused) {
    tick(3); //@ tick
}
int main(int c, char **v) {
    pool = aligned_alloc(64, 64);
    run(v[0]); //@ run
}",
        );
        let stack = "set@store tick@set run@tick main@run";
        let [program, trace] = scores(&code, &[stack], stack);
        assert_eq!(program, [Some(1), Some(1), None, None]);
        assert_eq!(trace, [Some(1), Some(1), None, None]);
    }

    #[test]
    fn what_may_be_persistent_and_what_a_pointer_may_call() {
        let context = Context::create();
        let code = Snippet::c(
            &context,
            "#include <sys/mman.h>
void *stranger(void);
static char *pool;
__attribute__((malloc, noinline)) static void *from_pool(long n) { return pool += n; }
__attribute__((malloc, noinline)) static void *from_heap(long n) { return malloc(n); }
static void one(char *p) { *p = 1; } //@ one
static void two(char *p) { *p = 1; } //@ two
static void three(char *p) { *p = 1; } //@ three
static void four(char *p) { *p = 1; } //@ four
static void five(char *p) { *p = 1; } //@ five
int main(int c, char **v) {
    char local[8];
    pool = mmap(0, 4096, 3, MAP_SHARED, 3, 0);
    one(pool); two(local); three(stranger()); four(from_pool(8)); five(from_heap(8));
    void (*choice)(char *) = c ? one : two;
    choice(local); //@ choice
    ((void (*)(char *))stranger())(0); //@ unknown
}",
        );
        let locator = Locator::new(&code.program.module);
        let points_to = PointsTo::of(&code.program.module);
        let heuristic = Heuristic::new(code.program.module.functions(), &points_to, &[], Mode::Program);
        let may_be_pm = |name: &str| {
            let store = locator
                .stack(&code.stack(&format!("{name}@{name}")), Wanted::Store)
                .unwrap()
                .at[0];
            heuristic.may_be_pm(store.store_pointer().unwrap())
        };
        assert_eq!(
            ["one", "two", "three", "four", "five"].map(may_be_pm),
            [true, false, true, true, false]
        );
        let call = |line: &str| {
            let calls = locator
                .stack(&code.stack(&format!("main@{line}")), Wanted::Call)
                .unwrap()
                .at;
            let call = calls.into_iter().find(|call| call.is_indirect_call()).unwrap();
            heuristic
                .callees(call)
                .map(|callees| callees.iter().map(|callee| callee.name()).collect::<Vec<_>>())
        };
        assert_eq!(call("choice"), Some(vec!["one", "two"]));
        assert_eq!(call("unknown"), None);
    }
}
