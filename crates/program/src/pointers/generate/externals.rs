//! What functions without bitcode do to pointers.
//!
//! Functions of libc, the C++ runtime and PMDK by what they are known to do. Any other may keep all that it is given, reach whatever can be
//! reached from there, and return any of it.

use crashproof_library::{self as library, Argument, Effect, Extent, Given};
use crashproof_llvm::Value;

use super::{Generator, UNKNOWN_SIZE};
use crate::pointers::ObjectKind;
use crate::pointers::constraints::{Call, Constraint, Variable};
use crate::pointers::offsets::Shift;

/// A call of a function without bitcode. `operands` are the values of the arguments, if they are known; `at` is the call, or the function.
struct External<'a, 'm> {
    name: &'a str,
    arguments: &'a [Option<Variable>],
    operands: &'a [Value<'m>],
    result: Option<Variable>,
    at: Value<'m>,
}

impl<'m> External<'_, 'm> {
    fn argument(&self, index: Argument) -> Option<Variable> {
        self.arguments.get(index as usize).copied().flatten()
    }

    fn operand(&self, index: Argument) -> Option<Value<'m>> {
        self.operands.get(index as usize).copied()
    }
}

fn effects(name: &str) -> Option<&'static [Effect]> {
    library::effects(name).filter(|effects| !effects.contains(&Effect::KeepsAnything))
}

/// Whether the function returns memory that is new.
pub(super) fn is_allocator(name: &str) -> bool {
    let is_new = |effect: &Effect| {
        matches!(
            effect,
            Effect::ReturnsNew(_) | Effect::ReturnsCopy(_) | Effect::ReturnsMoved(..) | Effect::ReturnsMapping
        )
    };
    effects(name).is_some_and(|effects| effects.iter().any(is_new))
}

impl<'m> Generator<'m> {
    /// A call of a function without bitcode; see [`External`].
    pub(super) fn external(
        &mut self,
        name: &str,
        arguments: &[Option<Variable>],
        operands: &[Value<'m>],
        result: Option<Variable>,
        at: Value<'m>,
    ) {
        let Some(effects) = effects(name) else {
            for argument in arguments.iter().flatten() {
                self.escape(*argument);
            }
            if let Some(result) = result {
                let unknown = self.unknown();
                self.constraints.copy(result, unknown);
            }
            return;
        };
        let call = External {
            name,
            arguments,
            operands,
            result,
            at,
        };
        for effect in effects {
            self.effect(*effect, &call);
        }
    }

    fn effect(&mut self, effect: Effect, call: &External<'_, 'm>) {
        match effect {
            Effect::ReturnsNew(extent) => self.returns_new(extent, call),
            Effect::ReturnsCopy(_) => self.returns_new(Extent::Unknown, call),
            Effect::ReturnsMoved(from, _) => {
                self.returns_new(Extent::Unknown, call);
                if let (Some(to), Some(from)) = (call.result, call.argument(from)) {
                    let length = None;
                    self.constraints.push(Constraint::CopyMemory { to, from, length });
                }
            }
            Effect::ReturnsMapping => {
                if let Some(result) = call.result {
                    let object = self.object(ObjectKind::Mapping(call.at), UNKNOWN_SIZE);
                    self.constraints.address(result, object);
                    self.holds_itself(result);
                }
            }
            Effect::Returns(index) => {
                if let (Some(to), Some(from)) = (call.result, call.argument(index)) {
                    self.constraints.copy(to, from);
                }
            }
            Effect::ReturnsInside(index) => {
                if let (Some(to), Some(from)) = (call.result, call.argument(index)) {
                    let shift = Shift::Steps(1);
                    self.constraints.push(Constraint::Shift { to, from, shift });
                }
            }
            Effect::ReturnsHeld(index) => {
                if let (Some(to), Some(from)) = (call.result, call.argument(index)) {
                    self.constraints.load(to, from);
                }
            }
            Effect::ReturnsOwn => self.returns_shared(call.name, call),
            Effect::ReturnsShared(name) => self.returns_shared(name, call),
            Effect::ReturnsKept(name) => {
                if let Some(to) = call.result {
                    let kept = self.named(name);
                    self.constraints.copy(to, kept);
                }
            }
            Effect::Copies { to, from, extent } => {
                if let (Some(to), Some(from)) = (call.argument(to), call.argument(from)) {
                    let length = match extent {
                        Extent::Argument(index) => call.operand(index).and_then(Value::signed),
                        _ => None,
                    };
                    let length = length.map(|length| u32::try_from(length).unwrap_or(u32::MAX));
                    self.constraints.push(Constraint::CopyMemory { to, from, length });
                }
            }
            Effect::StoresInside { at, from } => {
                if let (Some(at), Some(from)) = (call.argument(at), call.argument(from)) {
                    let inside = self.constraints.shifted(from, Shift::Steps(1));
                    self.constraints.store(at, inside);
                }
            }
            Effect::StoresNew(index) => {
                if let Some(pointer) = call.argument(index) {
                    let new = self.pointer_to(ObjectKind::Heap(call.at), UNKNOWN_SIZE);
                    self.holds_itself(new);
                    self.constraints.store(pointer, new);
                }
            }
            Effect::StoresKept(at, name) => {
                if let Some(at) = call.argument(at) {
                    let kept = self.named(name);
                    self.constraints.store(at, kept);
                }
            }
            Effect::Keeps(index, name) => {
                if let Some(from) = call.argument(index) {
                    let kept = self.named(name);
                    self.constraints.copy(kept, from);
                }
            }
            Effect::KeepsInside(index, name) => {
                if let Some(from) = call.argument(index) {
                    let to = self.named(name);
                    let shift = Shift::Steps(1);
                    self.constraints.push(Constraint::Shift { to, from, shift });
                }
            }
            Effect::Calls {
                function,
                given,
                result,
            } => self.calls_back(function, given, result, call),
            Effect::CallsLater { function, given } => self.calls_back(function, given, None, call),
            // Bytes that are no pointers, and what is of no concern to them.
            Effect::Reads(..)
            | Effect::ReadsText(..)
            | Effect::Compares(..)
            | Effect::CopiesText { .. }
            | Effect::AppendsText { .. }
            | Effect::Fills { .. }
            | Effect::Writes(..)
            | Effect::WritesText(..)
            | Effect::Prints { .. }
            | Effect::Scans(_)
            | Effect::WritesElsewhere
            | Effect::DependsOn(_)
            | Effect::DependsOnAll
            | Effect::KeepsAnything
            | Effect::Flushes { .. }
            | Effect::Fences
            | Effect::Persists { .. }
            | Effect::TakesFlags(_)
            | Effect::ReachesFurther
            | Effect::Settles
            | Effect::SettlesUnlessConstructed
            | Effect::Translates
            | Effect::Outputs
            | Effect::Draws
            | Effect::Throws => {}
        }
    }

    fn calls_back(&mut self, function: Argument, given: &[Given], result: Option<&str>, call: &External<'_, 'm>) {
        let Some(callee) = call.argument(function) else { return };
        let given = given.iter().map(|given| match *given {
            Given::Argument(index) => call.argument(index),
            Given::Inside(index) => Some(self.constraints.shifted(call.argument(index)?, Shift::Steps(1))),
            Given::Shared(name) => Some(self.shared(name)),
            Given::Kept(name) => Some(self.named(name)),
        });
        let arguments = given.collect();
        let result = result.map(|name| self.named(name));
        self.calls.push(call.at);
        self.constraints.push(Constraint::Call(Call {
            callee,
            arguments,
            result,
        }));
    }

    fn returns_new(&mut self, extent: Extent, call: &External<'_, 'm>) {
        let mut number = |index| {
            let number = self.number(call.operand(index)?, 0)?;
            u32::try_from(number).ok()
        };
        let size = match extent {
            Extent::Argument(size) => number(size),
            Extent::Product(one, other) => {
                number(one).and_then(|one| number(other).and_then(|other| one.checked_mul(other)))
            }
            _ => None,
        };
        let end = size.unwrap_or(UNKNOWN_SIZE);
        if let Some(result) = call.result {
            let object = self.object(ObjectKind::Heap(call.at), end);
            self.constraints.address(result, object);
        }
    }

    fn returns_shared(&mut self, name: &str, call: &External<'_, 'm>) {
        if let Some(result) = call.result {
            let shared = self.shared(name);
            self.constraints.copy(result, shared);
        }
    }

    /// Memory of a library, made once for its name.
    fn shared(&mut self, name: &str) -> Variable {
        if let Some(known) = self.named.get(name) {
            return *known;
        }
        let variable = self.pointer_to(ObjectKind::Library(name.to_owned()), UNKNOWN_SIZE);
        self.named.insert(name.to_owned(), variable);
        self.holds_itself(variable);
        variable
    }

    /// What an object holds may point anywhere into it.
    fn holds_itself(&mut self, pointer: Variable) {
        let inside = self.constraints.shifted(pointer, Shift::Steps(1));
        self.constraints.store(inside, inside);
    }
}
