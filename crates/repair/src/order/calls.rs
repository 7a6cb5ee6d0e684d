//! What calls and assembly in the code of a statement do ([`Effects`]).

use crashproof_library::{self as table, Effect};

use super::effects::{Access, Analysis, Effects};
use super::library::{self, COMPUTING, OWN, REGISTERS, Role};
use crate::ir::Code;
use crate::plan::known::{self, Length};
use crashproof_llvm::Value;

impl<'m> Analysis<'m, '_> {
    pub(super) fn add_call(&self, call: Value<'m>, effects: &mut Effects<'m>, open: &mut Vec<Value<'m>>) {
        if let Some((template, constraints)) = call.assembly() {
            let is_barrier = constraints.contains("~{memory}");
            effects.barrier |= is_barrier;
            // In a function of its own it is there for more than the statements of the list: the end of a critical section, say.
            if is_barrier && !open.is_empty() && template.trim().is_empty() {
                effects
                    .fixed
                    .get_or_insert_with(|| "keeps the compiler from moving memory accesses across it".into());
            }
            self.add_assembly(call, template, constraints, effects);
            return;
        }
        let Some(callee) = call.called_function() else {
            effects.fixed.get_or_insert_with(|| "calls through a pointer".into());
            effects.stores_anywhere = true;
            effects.leaves_pending = true;
            return;
        };
        if callee.never_returns() {
            let name = name_of(callee);
            effects.ends.get_or_insert_with(|| format!("a call of {name}"));
        }
        if is_own(callee) {
            self.add_persisting(call, !callee.name().contains("flush"), effects);
            return;
        }
        if is_pointing(callee) {
            return;
        }
        if callee.has_body() {
            let inner = self.summary(callee, open);
            effects.absorb(&inner);
            return;
        }
        self.add_external(call, callee.name(), effects, open);
    }

    /// Of a function that flushes what its pointers are to, or fences, or both.
    fn add_persisting(&self, call: Value<'m>, fences: bool, effects: &mut Effects<'m>) {
        effects.persists = true;
        effects.fences |= fences;
        effects.barrier = true;
        let pointers = call.arguments().into_iter().filter(|argument| argument.is_pointer());
        effects
            .flushes
            .extend(pointers.map(|pointer| self.access(pointer, None, false)));
    }

    fn add_assembly(&self, call: Value<'m>, template: &str, constraints: &str, effects: &mut Effects<'m>) {
        let template = template.trim();
        if template.is_empty() {
            return;
        }
        if computes(template, constraints) {
            effects.clock |= template.contains("rdtsc");
            let only_waits = |word: &str| ["pause", "nop"].contains(&word);
            effects.waits |= constraints.contains("~{memory}") || words(template).any(only_waits);
            return;
        }
        if template.starts_with("movnt") && !template.contains([';', '\n']) {
            effects.streams = true;
            let pointers = call.arguments().into_iter().filter(|argument| argument.is_pointer());
            effects
                .accesses
                .extend(pointers.map(|pointer| self.access(pointer, Some(64), true)));
            return;
        }
        effects.stores_anywhere = true;
        effects.leaves_pending = true;
        effects
            .fixed
            .get_or_insert_with(|| format!("has assembly of its own (`{template}`)"));
    }

    fn add_external(&self, call: Value<'m>, name: &str, effects: &mut Effects<'m>, open: &mut Vec<Value<'m>>) {
        let arguments = call.arguments();
        let role = library::role(name);
        if let Role::Persists { fences, .. } = role {
            self.add_persisting(call, fences, effects);
            return;
        }
        if let Some(copy) = library::copying(name) {
            let size = arguments.get(copy.size).and_then(|size| size.unsigned());
            let destination = arguments.get(copy.destination);
            // They may tell it not to wait, or not to flush.
            let flags = copy.flags.and_then(|index| arguments.get(index));
            let waits = copy.fences && flags.is_none_or(|flags| waits_by(*flags));
            effects.accesses.extend(destination.map(|to| Access {
                settled: waits,
                ..self.access(*to, size, true)
            }));
            let source = copy.source.and_then(|index| arguments.get(index));
            effects
                .accesses
                .extend(source.map(|from| self.access(*from, size, false)));
            effects
                .flushes
                .extend(destination.map(|to| self.access(*to, size, false)));
            if flags.is_some_and(|flags| flags.unsigned().is_none()) {
                effects.leaves_pending = true;
                effects
                    .fixed
                    .get_or_insert_with(|| format!("calls {name} with flags that are not constant"));
            }
            effects.persists = true;
            effects.fences |= waits;
            effects.barrier = true;
            return;
        }
        if name.starts_with("llvm.") && known::written(name).is_none() {
            match name {
                "llvm.trap" | "llvm.debugtrap" | "llvm.ubsantrap" => {
                    effects.ends.get_or_insert_with(|| "a trap".into());
                }
                _ if COMPUTING.iter().any(|prefix| name.starts_with(prefix)) => {}
                _ => {
                    effects.stores_anywhere = true;
                    effects.leaves_pending = true;
                    effects.fixed.get_or_insert_with(|| format!("uses {name}"));
                }
            }
            return;
        }
        if let Some(written) = known::written(name)
            && !matches!(written.length, Length::Returned)
        {
            let bytes = match written.length {
                Length::Argument(index) | Length::Printed { size: index } => {
                    arguments.get(index as usize).and_then(|size| size.unsigned())
                }
                Length::Constant(bytes) => Some(bytes),
                Length::String | Length::Returned => None,
            };
            for (index, pointer) in arguments
                .iter()
                .enumerate()
                .filter(|(_, argument)| argument.is_pointer())
            {
                let is_destination = index as u32 == written.destination;
                // What it reads is no longer than what it writes, of the copying ones.
                let size = match is_destination || matches!(written.length, Length::Argument(_)) {
                    true => bytes,
                    false => None,
                };
                effects.accesses.push(self.access(*pointer, size, is_destination));
            }
            return;
        }
        let mut access = |from: usize| {
            let pointers = arguments
                .iter()
                .enumerate()
                .filter(|(_, argument)| argument.is_pointer());
            let accesses = pointers.map(|(index, pointer)| self.access(*pointer, None, index >= from));
            effects.accesses.extend(accesses);
        };
        match role {
            Role::Reads => access(usize::MAX),
            Role::Scans(from) => access(from),
            Role::Draws => effects.draws = true,
            Role::Returns => {}
            Role::Outputs => {
                effects
                    .fixed
                    .get_or_insert_with(|| format!("calls {name}, so that the outside knows what was done before it"));
            }
            Role::Persists { .. } | Role::Other => {
                let is_known = keeps_to_itself(name) && !name.starts_with("pmem");
                effects.stores_anywhere |= !is_known;
                let settles = settles(name, &arguments);
                effects.leaves_pending |= !is_known && !settles;
                // It may call what it is given.
                for callback in arguments
                    .iter()
                    .filter(|argument| argument.is_function() && argument.has_body())
                {
                    let inner = self.summary(*callback, open);
                    effects.accesses.extend(inner.accesses.iter().cloned());
                    effects.leaves_pending |= inner.leaves_pending;
                    effects.streams |= inner.streams;
                }
                effects.fixed.get_or_insert_with(|| match settles {
                    true => format!("calls {name}, which may read and write any object of the pool"),
                    false => format!("calls {name}, which may do anything"),
                });
            }
        }
    }
}

/// Of the functions of the header that a repair adds.
pub(super) fn is_own(function: Value) -> bool {
    function.source_name().is_some_and(|name| OWN.contains(&name))
}

/// Of PMDK's functions that make an address of an object's id.
pub(super) fn is_pointing(function: Value) -> bool {
    let name = function.source_name().unwrap_or(function.name());
    table::effects(name).is_some_and(|effects| effects.contains(&Effect::Translates))
}

/// A library function that stores nothing into memory that it is given, or nothing but that.
fn keeps_to_itself(name: &str) -> bool {
    known::effect(name) == Some(known::Effect::Nothing)
}

fn name_of(function: Value) -> String {
    function.source_name().unwrap_or(function.name()).to_owned()
}

/// Whether a call of libpmemobj leaves nothing that waits for a fence.
fn settles(name: &str, arguments: &[Value]) -> bool {
    let is_known = |constructor: &Value| constructor.is_null() || (constructor.is_function() && constructor.has_body());
    let effects = table::effects(name).unwrap_or_default();
    effects.contains(&Effect::Settles)
        || (effects.contains(&Effect::SettlesUnlessConstructed) && arguments.iter().rev().nth(1).is_some_and(is_known))
}

/// Whether flags of PMDK's copying functions say that they wait for what they have flushed.
fn waits_by(flags: Value) -> bool {
    flags.unsigned().is_some_and(|flags| flags & library::NOT_WAITING == 0)
}

fn words(template: &str) -> impl Iterator<Item = &str> {
    template.split(|at: char| at == ';' || at.is_whitespace())
}

/// Assembly that only computes in registers, or waits.
fn computes(template: &str, constraints: &str) -> bool {
    let statements = template.split([';', '\n']).map(str::trim);
    let mut mnemonics = statements.filter_map(|statement| {
        let mut words = statement.split_whitespace();
        // `rep bsf` is `tzcnt` on newer processors, `rep nop` is `pause`; of others it is a loop over memory.
        words.find(|word| *word != "rep")
    });
    mnemonics.all(|mnemonic| REGISTERS.contains(&mnemonic)) && !constraints.contains('*') && !template.contains('(')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assembly_without_memory_computes() {
        for template in ["rdtsc", "pause", "rep; bsf $1,$0", "rep nop", "bsr $1, $0\n\tnop"] {
            assert!(computes(template, "=r,rm,~{memory}"), "{template}");
        }
        for template in [
            "rep stosb",
            "rep; stosb",
            "bsf (%rdi), %rax",
            "lock; nop",
            "xchgq $0,$1",
        ] {
            assert!(!computes(template, "=r,rm,~{memory}"), "{template}");
        }
        assert!(!computes("bsf $1,$0", "=r,*m"));
    }
}
