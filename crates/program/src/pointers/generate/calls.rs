//! The constraints of calls.

use crashproof_llvm::{Holder, Value};

use super::{Generator, UNKNOWN_SIZE};
use crate::pointers::ObjectKind;
use crate::pointers::constraints::{Call, Constraint, Function, Variable};
use crate::pointers::offsets::Shift;

impl<'m> Generator<'m> {
    pub(super) fn call(&mut self, function: Value<'m>, call: Value<'m>) {
        let Some(callee) = call.callee() else { return };
        let operands = call.arguments();
        if callee.is_intrinsic() {
            // Whatever it does: it will be asked where they point to.
            for operand in &operands {
                self.value(*operand);
            }
            self.intrinsic(callee.name(), function, call, &operands);
        } else if callee.is_function() {
            let arguments: Vec<_> = operands.iter().map(|operand| self.value(*operand)).collect();
            let result = self.value(call);
            if callee.is_declaration() {
                self.external(callee.name(), &arguments, &operands, result, call);
                return;
            }
            match self.clone_at(callee, &operands) {
                Some(known) => self.direct(known, &arguments, result),
                None => {
                    let result = result.map(|result| self.fresh(call, callee, result));
                    let known = self.declare(callee);
                    self.direct(known, &arguments, result);
                }
            }
        } else if callee.is_inline_assembly() {
            self.assembly(call, &operands);
        } else {
            let arguments = operands.iter().map(|operand| self.value(*operand)).collect();
            let result = self.value(call).map(|result| self.fresh(call, call, result));
            let Some(callee) = self.value(callee) else { return };
            self.calls.push(call);
            self.constraints.push(Constraint::Call(Call {
                callee,
                arguments,
                result,
            }));
        }
    }

    fn direct(&mut self, known: Function, arguments: &[Option<Variable>], result: Option<Variable>) {
        let Function {
            parameters,
            further,
            result: returned,
        } = known;
        for (argument, parameter) in arguments.iter().zip(&parameters) {
            if let (Some(argument), Some(parameter)) = (argument, parameter) {
                self.constraints.copy(*parameter, *argument);
            }
        }
        if let Some(further) = further {
            for argument in arguments.iter().skip(parameters.len()).flatten() {
                self.constraints.store(further, *argument);
            }
        }
        if let (Some(to), Some(from)) = (result, returned) {
            self.constraints.copy(to, from);
        }
    }

    /// What the function promises to be new memory (`__attribute__((malloc))`) is an object of this call. Returns the variable to which
    /// the function's result goes.
    fn fresh(&mut self, call: Value<'m>, callee: Value<'m>, result: Variable) -> Variable {
        let is_promised = |by: Value| by.attribute(Holder::Result, "noalias").is_some();
        if !is_promised(call) && !is_promised(callee) {
            return result;
        }
        // It holds what the function put there.
        let object = self.object(ObjectKind::Fresh(call), UNKNOWN_SIZE);
        self.constraints.address(result, object);
        let returned = self.constraints.variable();
        self.fresh.insert(object, returned);
        self.constraints.push(Constraint::CopyMemory {
            to: result,
            from: returned,
            length: None,
        });
        returned
    }

    /// Inline assembly may move what it is given to whatever it is given, and give it back; nothing else.
    fn assembly(&mut self, call: Value<'m>, operands: &[Value<'m>]) {
        let arguments: Vec<Variable> = operands.iter().filter_map(|operand| self.value(*operand)).collect();
        for (index, to) in arguments.iter().enumerate() {
            for (other, from) in arguments.iter().enumerate() {
                if index != other {
                    self.constraints.store(*to, *from);
                }
            }
        }
        if let Some(result) = self.value(call) {
            for argument in arguments {
                self.constraints.copy(result, argument);
                self.constraints.load(result, argument);
            }
        }
    }

    fn intrinsic(&mut self, name: &str, function: Value<'m>, call: Value<'m>, operands: &[Value<'m>]) {
        let name = name.strip_prefix("llvm.").unwrap_or(name);
        let is = |prefix: &str| name == prefix || name.strip_prefix(prefix).is_some_and(|rest| rest.starts_with('.'));
        let result = self.value(call);
        let mut argument = |index: usize| operands.get(index).and_then(|operand| self.value(*operand));
        if is("memcpy") || is("memmove") || is("memcpy.inline") || name.starts_with("memcpy.element") {
            let length = operands.get(2).and_then(|length| length.signed());
            if let (Some(to), Some(from)) = (argument(0), argument(1)) {
                let length = length.map(|length| u32::try_from(length).unwrap_or(u32::MAX));
                self.constraints.push(Constraint::CopyMemory { to, from, length });
            }
        } else if is("va_start") {
            let Function { further, .. } = self.at_hand(function);
            if let (Some(list), Some(further)) = (operands.first().and_then(|list| self.value(*list)), further) {
                for offset in [8, 16] {
                    let at = self.constraints.shifted(list, Shift::By(offset));
                    self.constraints.store(at, further);
                }
            }
        } else if is("va_copy") {
            if let (Some(to), Some(from)) = (argument(0), argument(1)) {
                let length = Some(24);
                self.constraints.push(Constraint::CopyMemory { to, from, length });
            }
        } else if is("masked.store") || is("masked.scatter") || is("masked.compressstore") {
            if let (Some(from), Some(pointer)) = (argument(0), argument(1)) {
                let size = self.size_of(operands[0].ty());
                self.store_words(pointer, from, size);
            }
        } else if let Some(result) = result {
            if is("masked.load") || is("masked.gather") || is("masked.expandload") {
                if let Some(pointer) = argument(0) {
                    let size = self.size_of(call.ty());
                    self.load_words(result, pointer, size);
                }
            } else if is("returnaddress") || is("frameaddress") || is("addressofreturnaddress") || is("sponentry") {
                let unknown = self.unknown();
                self.constraints.copy(result, unknown);
            } else {
                // Expectations, minima, thread-local addresses pass their operands on; masks and arithmetic move them.
                let is_same = [
                    "expect",
                    "threadlocal.address",
                    "launder.invariant.group",
                    "strip.invariant.group",
                    "ssa.copy",
                ];
                let shift = match is_same.iter().any(|same| is(same)) {
                    true => Shift::By(0),
                    false => Shift::Steps(1),
                };
                for operand in operands {
                    if let Some(from) = self.value(*operand) {
                        self.constraints.push(Constraint::Shift {
                            to: result,
                            from,
                            shift,
                        });
                    }
                }
            }
        }
    }
}
