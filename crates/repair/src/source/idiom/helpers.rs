//! The functions that a program has for flushing and fencing: those that do just that when they are run.

use std::collections::{BTreeMap, BTreeSet};

use super::interpret::{self, Action};
use crate::ir::Code;
use crate::observed::{Observed, Seen};
use crashproof_llvm::{Module, TypeKind, Value};

/// A function that flushes or fences, and does nothing else that matters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Helper {
    /// As the source calls it.
    pub name: String,
    pub linkage_name: String,
    pub role: Role,
    /// Whether there is a parameter before the range, such as a pool.
    pub has_leading: bool,
    /// In how many stacks of flushes and fences the trace has it, and how many calls there are: the more, the more it is the program's way.
    pub weight: (usize, usize),
}

impl Helper {
    /// What nobody calls may be how the program does it, and may be a leftover.
    pub(super) fn is_used(&self) -> bool {
        self.weight != (0, 0)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Role {
    Flush,
    Persist,
    Fence,
    FlushLine,
    PersistLine,
}

/// All of a program, the most used first.
pub(super) fn helpers(module: &Module, observed: &Observed) -> Vec<Helper> {
    let calls = call_counts(module);
    let persistent = persistent_functions(module);
    let mut helpers: Vec<Helper> = module
        .functions()
        .filter(|function| persistent.contains(function) && !function.is_variadic())
        .filter_map(|function| {
            let (role, has_leading) = role(module, function)?;
            let name = function.source_name().unwrap_or(function.name()).to_owned();
            let seen = |events: &[Seen]| events.iter().filter(|seen| is_on(seen, &name, function.name())).count();
            let weight = (
                seen(&observed.flushes) + seen(&observed.fences),
                calls.get(function.name()).copied().unwrap_or(0),
            );
            Some(Helper {
                linkage_name: function.name().to_owned(),
                name,
                role,
                has_leading,
                weight,
            })
        })
        .collect();
    helpers.sort_by(|a, b| b.weight.cmp(&a.weight).then_with(|| a.name.cmp(&b.name)));
    helpers
}

/// Functions that may flush or fence, themselves or by what they call; only these are worth running.
fn persistent_functions<'m>(module: &'m Module<'_>) -> BTreeSet<Value<'m>> {
    let mut found: BTreeSet<Value> = BTreeSet::new();
    let mut callers: BTreeMap<Value, Vec<Value>> = BTreeMap::new();
    for function in module.functions().filter(|function| function.has_body()) {
        for instruction in function.code() {
            if !instruction.persistence().is_empty() || instruction.is_indirect_call() {
                found.insert(function);
            } else if let Some(callee) = instruction.called_function() {
                callers.entry(callee).or_default().push(function);
                if !callee.has_body() && callee.name().starts_with("pmem_") {
                    found.insert(function);
                }
            }
        }
    }
    let mut work: Vec<Value> = found.iter().copied().collect();
    while let Some(function) = work.pop() {
        for caller in callers.get(&function).into_iter().flatten() {
            if found.insert(*caller) {
                work.push(*caller);
            }
        }
    }
    found
}

fn is_on(seen: &Seen, name: &str, linkage_name: &str) -> bool {
    seen.stack.iter().any(|frame| {
        let function = frame.function.as_deref().unwrap_or_default();
        function == name || function == linkage_name
    })
}

fn call_counts(module: &Module) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for instruction in module.functions().flat_map(Value::code) {
        if let Some(callee) = instruction.called_function() {
            *counts.entry(callee.name().to_owned()).or_default() += 1;
        }
    }
    counts
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Parameter {
    Pointer,
    Integer,
    Other,
}

fn parameters(function: Value) -> Vec<Parameter> {
    let kind = |parameter: Value| match parameter.ty().kind() {
        TypeKind::LLVMPointerTypeKind => Parameter::Pointer,
        TypeKind::LLVMIntegerTypeKind => Parameter::Integer,
        _ => Parameter::Other,
    };
    function.parameters().map(kind).collect()
}

/// Where the machine's range is.
const RANGE: u64 = 0x2000_0000_0000;
const LINE: u64 = 64;

/// Ranges within a line, of a line, over two and more.
const RANGES: [(u64, u64); 7] = [(0, 8), (4, 1), (0, 64), (60, 8), (8, 100), (63, 2), (0, 256)];

pub(super) fn role(module: &Module, function: Value) -> Option<(Role, bool)> {
    use Parameter::{Integer, Pointer};
    let run = |arguments: &[u64]| interpret::run(module, function, arguments);
    match parameters(function)[..] {
        [] => {
            let actions = run(&[])?;
            (!actions.is_empty() && actions.iter().all(|action| *action == Action::Fence))
                .then_some((Role::Fence, false))
        }
        [Pointer] => {
            let lines = |offset| run(&[RANGE + offset]).and_then(|actions| of_line(&actions, RANGE + offset));
            let first = lines(0)?;
            [4, 60, 63]
                .iter()
                .all(|offset| lines(*offset) == Some(first))
                .then_some((first, false))
        }
        [Pointer | Integer, Integer] => {
            let ranges = |(offset, size)| {
                run(&[RANGE + offset, size]).and_then(|actions| of_range(&actions, RANGE + offset, size))
            };
            let first = ranges(RANGES[0])?;
            RANGES
                .iter()
                .all(|range| ranges(*range) == Some(first))
                .then_some((first, false))
        }
        [Pointer, Pointer, Integer] => {
            let ranges = |(offset, size)| {
                run(&[interpret::OBJECT, RANGE + offset, size])
                    .and_then(|actions| of_range(&actions, RANGE + offset, size))
            };
            let first = ranges(RANGES[0])?;
            RANGES
                .iter()
                .all(|range| ranges(*range) == Some(first))
                .then_some((first, true))
        }
        _ => None,
    }
}

/// Flushes exactly the line of the address.
fn of_line(actions: &[Action], address: u64) -> Option<Role> {
    match of_range(actions, address, 1)? {
        Role::Persist => Some(Role::PersistLine),
        _ => Some(Role::FlushLine),
    }
}

/// Flushes every line of the range, none else; a fence after the last flush makes it a persist.
fn of_range(actions: &[Action], address: u64, size: u64) -> Option<Role> {
    let mut flushed: Vec<u64> = actions
        .iter()
        .filter_map(|action| match action {
            Action::Flush(at) => Some(at / LINE),
            Action::Fence => None,
        })
        .collect();
    flushed.sort_unstable();
    flushed.dedup();
    let wanted: Vec<u64> = (address / LINE..(address + size).div_ceil(LINE)).collect();
    let fences = matches!(actions.last(), Some(Action::Fence));
    (flushed == wanted).then_some(if fences { Role::Persist } else { Role::Flush })
}

#[cfg(test)]
mod tests {

    use crashproof_llvm::Context;

    use super::*;
    use crate::testing::Snippet;

    fn roles(code: &str) -> Vec<(String, Role)> {
        let context = Context::create();
        let snippet = Snippet::c(&context, code);
        let mut roles: Vec<(String, Role)> = helpers(&snippet.program.module, &Observed::default())
            .into_iter()
            .map(|helper| (helper.name, helper.role))
            .collect();
        roles.sort();
        roles
    }

    #[test]
    fn what_a_function_does_is_seen_when_it_runs() {
        let found = roles(
            "static void by_lines(const void *p, size_t n) {
                for (uintptr_t at = (uintptr_t)p & ~63ul; at < (uintptr_t)p + n; at += 64) CLWB(at);
            }
            static void down(char *p, long n) {
                uintptr_t last = ((uintptr_t)p + n - 1) / 64;
                do CLWB(last * 64); while (last-- > (uintptr_t)p / 64);
            }
            static void one(void *p) { CLWB(p); }
            static void fence(void) { SFENCE(); }
            static int both(void *p, unsigned n) { by_lines(p, n); fence(); return 0; }
            static void (*chosen)(const void *, size_t) = by_lines;
            static void indirect(void *p, size_t n) { chosen(p, n); }
            static void starts_only(void *p, size_t n) { CLWB(p); }
            static void forgets_the_end(char *p, size_t n) { for (size_t i = 0; i < n; i += 64) CLWB(p + i); }
            static void asks(void *p, size_t n) { if (getenv(\"X\")) by_lines(p, n); }
            static void writes(int *p, size_t n) { by_lines(p, n); }
            void use(char *p, int *q) {
                by_lines(p, 1); down(p, 1); one(p); fence(); both(p, 1); indirect(p, 1); starts_only(p, 1); forgets_the_end(p, 1); asks(p, 1);
            }",
        );
        let expected = [
            ("both", Role::Persist),
            ("by_lines", Role::Flush),
            ("down", Role::Flush),
            ("fence", Role::Fence),
            ("indirect", Role::Flush),
            ("one", Role::FlushLine),
        ];
        assert_eq!(found, expected.map(|(name, role)| (name.to_owned(), role)));
    }
}
