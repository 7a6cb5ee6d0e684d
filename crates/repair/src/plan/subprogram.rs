//! Persistent subprograms (section 4.2.4): a copy of a function, and of what it calls, that flushes whatever it may write to PM.
//!
//! A copy is made once and used by all fixes. What is provably a variable on the stack, a global or the heap's is not flushed. A function that writes nothing
//! that may be PM needs no copy. The subprogram must be known completely: a callee without bitcode has to be a known function
//! ([`known`]), a call through a pointer must be to one of a closed set. Beyond the paper, flushes of one object in one basic
//! block are one.

use std::collections::BTreeSet;

use crashproof_llvm::{Opcode, Value};
use rustc_hash::{FxHashMap, FxHashSet};

use super::aliases::Aliases;
use super::fences::is_compiler_barrier;
use super::known::{self, Effect};
use super::{PersistentFunction, Place};
use crate::ir::Code;

/// What a function does that its persistent copy would have to mind.
#[derive(Clone, Debug, Default)]
struct Body<'m> {
    /// Stores, and calls of known memory functions, to what may be PM.
    flushes: Vec<Value<'m>>,
    /// Calls of functions that have bitcode.
    calls: Vec<(Value<'m>, Vec<Value<'m>>)>,
}

pub(super) struct Subprograms<'m, 'a> {
    aliases: &'a dyn Aliases<'m>,
    /// Stores that write PM, whatever the analysis thinks: findings and trace say so.
    marked: &'a FxHashSet<Value<'m>>,
    /// Nothing but these is flushed.
    marked_only: bool,
    bodies: FxHashMap<Value<'m>, Result<Body<'m>, String>>,
    /// Names of the copies.
    copies: FxHashMap<Value<'m>, String>,
    /// In the order in which they were asked for.
    made: Vec<Value<'m>>,
}

impl<'m, 'a> Subprograms<'m, 'a> {
    pub(super) fn new(aliases: &'a dyn Aliases<'m>, marked: &'a FxHashSet<Value<'m>>, marked_only: bool) -> Self {
        Subprograms {
            aliases,
            marked,
            marked_only,
            bodies: FxHashMap::default(),
            copies: FxHashMap::default(),
            made: Vec::new(),
        }
    }

    /// Whether the function can have a persistent copy; if not, why.
    pub(super) fn check(&mut self, function: Value<'m>) -> Result<(), String> {
        let needing = self.needing_copies(function)?;
        if !needing.contains(&function) {
            return Err(format!("`{}` writes nothing that may be persistent", function.name()));
        }
        Ok(())
    }

    /// The name of the function's persistent copy, which [`Subprograms::check`] has allowed.
    pub(super) fn copy_of(&mut self, function: Value<'m>) -> String {
        for needing in self.needing_copies(function).unwrap_or_default() {
            if let std::collections::hash_map::Entry::Vacant(entry) = self.copies.entry(needing) {
                entry.insert(copy_name(needing));
                self.made.push(needing);
            }
        }
        self.copies
            .get(&function)
            .cloned()
            .unwrap_or_else(|| copy_name(function))
    }

    /// Of the function and all that it calls, those that write what may be PM, or call one that does.
    fn needing_copies(&mut self, function: Value<'m>) -> Result<Vec<Value<'m>>, String> {
        let mut reached = vec![function];
        let mut next = 0;
        while let Some(&at) = reached.get(next) {
            next += 1;
            if !self.bodies.contains_key(&at) {
                let body = self.body(at);
                self.bodies.insert(at, body);
            }
            for (_, callees) in &self.body_of(at)?.calls {
                for callee in callees {
                    if !reached.contains(callee) {
                        reached.push(*callee);
                    }
                }
            }
        }
        let mut needing: BTreeSet<Value> = BTreeSet::new();
        loop {
            let before = needing.len();
            for &function in &reached {
                let body = self.body_of(function)?;
                let calls = body.calls.iter().flat_map(|(_, callees)| callees);
                if !body.flushes.is_empty() || calls.into_iter().any(|callee| needing.contains(callee)) {
                    needing.insert(function);
                }
            }
            if needing.len() == before {
                break;
            }
        }
        if let Some(variadic) = needing.iter().find(|function| function.is_variadic()) {
            return Err(format!("`{}` takes a variable number of arguments", variadic.name()));
        }
        Ok(reached
            .into_iter()
            .filter(|function| needing.contains(function))
            .collect())
    }

    fn body_of(&self, function: Value<'m>) -> Result<&Body<'m>, String> {
        match self.bodies.get(&function) {
            Some(Ok(body)) => Ok(body),
            Some(Err(reason)) => Err(reason.clone()),
            None => Err(format!("`{}` was not looked at", function.name())),
        }
    }

    fn body(&self, function: Value<'m>) -> Result<Body<'m>, String> {
        let mut body = Body::default();
        for instruction in function.code() {
            if let Some(pointer) = instruction.store_pointer() {
                if !instruction.is_nontemporal() && self.may_be_pm(instruction, pointer) {
                    body.flushes.push(instruction);
                }
            } else if instruction.opcode() == Some(Opcode::LLVMIndirectBr) {
                return Err(format!("`{}` has computed gotos", function.name()));
            } else if instruction.is_call() {
                self.call(instruction, &mut body)
                    .map_err(|reason| format!("{reason} (in `{}`)", function.name()))?;
            }
        }
        Ok(body)
    }

    fn call(&self, call: Value<'m>, body: &mut Body<'m>) -> Result<(), String> {
        if call.is_musttail() {
            return Err("a call must be the last thing that is done".into());
        }
        if let Some((template, constraints)) = call.assembly() {
            let harmless = !call.persistence().is_empty()
                || is_compiler_barrier(call)
                || !constraints.contains('*') && !template.contains(['(', '[']);
            return match harmless {
                true => Ok(()),
                false => Err("inline assembly may write".into()),
            };
        }
        let Some(function) = call.called_function() else {
            return self.indirect_call(call, body);
        };
        if function.has_body() {
            body.calls.push((call, vec![function]));
            return Ok(());
        }
        match known::effect(function.name()) {
            Some(Effect::Nothing) => Ok(()),
            Some(Effect::Writes(written)) => {
                let destination = call.operand(written.destination);
                if destination.is_some_and(|to| self.may_be_pm(call, to)) {
                    body.flushes.push(call);
                }
                Ok(())
            }
            None if function.is_intrinsic() && !call.arguments().iter().any(|argument| argument.is_pointer()) => Ok(()),
            None if function.never_returns() => Ok(()),
            None => Err(format!(
                "it calls `{}`, which was not built by crashproof cc, and what that writes is not known",
                function.name()
            )),
        }
    }

    fn may_be_pm(&self, store: Value<'m>, pointer: Value<'m>) -> bool {
        self.marked.contains(&store) || (!self.marked_only && self.aliases.may_be_pm(pointer))
    }

    fn indirect_call(&self, call: Value<'m>, body: &mut Body<'m>) -> Result<(), String> {
        let callees = self
            .aliases
            .callees(call)
            .ok_or("it calls through a pointer that may be to anything")?;
        let mut known = Vec::new();
        for callee in callees {
            if callee.has_body() {
                known.push(callee);
            } else if known::effect(callee.name()) != Some(Effect::Nothing) {
                return Err(format!("it may call `{}` through a pointer", callee.name()));
            }
        }
        if !known.is_empty() {
            body.calls.push((call, known));
        }
        Ok(())
    }

    /// The copies that were asked for. `group` puts stores together that are flushed at once; `fenced` are the places after which fixes of the originals
    /// fence.
    pub(super) fn finish(
        self,
        group: impl Fn(Vec<Value<'m>>) -> Vec<Vec<Value<'m>>>,
        fenced: &[Place],
    ) -> Vec<PersistentFunction> {
        let places = |stores: Vec<Value<'m>>| stores.iter().filter_map(|store| store.place()).collect();
        let mut made = Vec::new();
        for &function in &self.made {
            let Ok(body) = self.body_of(function) else { continue };
            let calls = body.calls.iter().flat_map(|(call, callees)| {
                let copies = callees.iter().filter_map(|callee| self.copies.get(callee));
                copies.filter_map(|copy| Some((call.place()?, copy.clone())))
            });
            let fences = fenced.iter().filter(|place| place.function == function.name());
            made.push(PersistentFunction {
                original: function.name().to_owned(),
                name: copy_name(function),
                flushes: group(body.flushes.clone()).into_iter().map(places).collect(),
                calls: calls.collect(),
                fences: fences.cloned().collect(),
            });
        }
        made
    }
}

fn copy_name(function: Value) -> String {
    format!("{}_persist", function.name())
}
