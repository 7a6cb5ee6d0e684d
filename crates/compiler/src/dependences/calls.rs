//! Calls: labels go to the callee with its arguments and come back with its result; what library functions do is known from the table of
//! library functions. Of one that has nothing to do with labels there, nothing is known: its result carries no label, and what it loads from PM is
//! not seen.

use crashproof_library::{self as library, Effect, Extent};
use crashproof_llvm::Opcode::{LLVMCall, LLVMInvoke};
use crashproof_llvm::Value;
use crashproof_sites::SiteKind;
use crashproof_wire::labels::{LabelHook, MOST_ARGUMENTS};

use super::build;
use super::function::Function;

/// Bytes of a `va_list`.
const VARIABLE_ARGUMENTS: u64 = 24;
/// As long as a string is.
const WHOLE: u64 = u64::MAX;

impl<'m> Function<'_, 'm> {
    pub(super) fn call(&mut self, call: Value<'m>) {
        let Some(callee) = call.called_value() else { return };
        if callee.is_inline_assembly() {
            let label = self.operands(call, call.argument_count());
            self.set_label(call, label);
            return;
        }
        if callee.is_function() && callee.is_declaration() {
            if let Some(intrinsic) = callee.name().strip_prefix("llvm.") {
                self.intrinsic(call, intrinsic);
                return;
            }
            if let Some(effects) = library::effects(callee.name()).filter(|effects| moves_labels(effects))
                && effects.iter().all(|effect| fits(call, *effect))
            {
                self.library(call, effects);
                return;
            }
        }
        self.ordinary(call, callee);
    }

    fn ordinary(&mut self, call: Value<'m>, callee: Value<'m>) {
        call.remove_attribute("memory");
        let ends = call.is_musttail();
        if ends {
            self.leave(self.empty());
        }
        let depth = build::returns_twice(call).then(|| build::call(&self.pass.ir, LabelHook::Depth, &[self.frame]));
        let arguments = call.argument_count().min(MOST_ARGUMENTS as u32);
        let copies: Vec<Option<Value<'m>>> = (0..arguments).map(|index| self.copied_argument(call, index)).collect();
        let callee = self.pass.ir.as_i64(callee);
        let count = self.pass.ir.i64(arguments.into());
        build::call(&self.pass.ir, LabelHook::Call, &[callee, count]);
        for (index, copy) in copies.into_iter().enumerate() {
            let label = copy.unwrap_or_else(|| self.label(call.operand_at(index as u32)));
            if !build::is_empty(label) {
                let index = self.pass.ir.i64(index as u64);
                build::call(&self.pass.ir, LabelHook::Pass, &[index, label]);
            }
        }
        if ends || !self.build_after_call(call) {
            return;
        }
        if let Some(depth) = depth {
            build::call(&self.pass.ir, LabelHook::Restore, &[self.frame, depth]);
        }
        if !call.ty().is_void() {
            let label = build::call(&self.pass.ir, LabelHook::Result, &[callee]);
            self.set_label(call, label);
        }
    }

    /// The label of what an argument points to, if a copy of that is passed.
    fn copied_argument(&mut self, call: Value<'m>, index: u32) -> Option<Value<'m>> {
        let size = build::by_value(&self.pass.ir, call, index)?;
        let size = self.pass.ir.i64(size);
        Some(self.read(call, index, size))
    }

    /// What is built from here on is executed when the call has returned. False: there is no such place.
    fn build_after_call(&self, call: Value<'m>) -> bool {
        match call.opcode() {
            Some(LLVMInvoke) => {
                // Edges that begin at a choice and end at a meeting have been split.
                let Some(start) = call.normal_destination().and_then(build::first_ordinary) else {
                    return false;
                };
                self.pass.ir.before(start, call.debug_location());
                true
            }
            _ => self.build_after(call),
        }
    }

    fn intrinsic(&mut self, call: Value<'m>, name: &str) {
        let kind = name.split('.').next().unwrap_or_default();
        match kind {
            "memcpy" | "memmove" => {
                let length = self.pass.ir.as_i64(call.operand_at(2));
                self.copy(call, (Some(0), 1), length, self.label(call.operand_at(2)));
            }
            "memset" => self.fill(call, 0, 1, 2),
            "va_start" => {
                let size = self.pass.ir.i64(VARIABLE_ARGUMENTS);
                self.written(call, 0, size);
            }
            "va_copy" => {
                let size = self.pass.ir.i64(VARIABLE_ARGUMENTS);
                self.copy(call, (Some(0), 1), size, self.empty());
            }
            _ if call.ty().is_void() => {}
            _ => {
                let label = self.operands(call, call.argument_count());
                self.set_label(call, label);
            }
        }
    }

    /// Reads come before the call, and so do writes whose extent is known then.
    fn library(&mut self, call: Value<'m>, effects: &[Effect]) {
        let mut result = self.empty();
        let argument = |index: u32| call.operand_at(index);
        for &effect in effects {
            let from = match effect {
                Effect::Reads(pointer, extent) => {
                    let length = self.length(call, extent);
                    self.read(call, pointer, length)
                }
                Effect::ReadsText(pointer, most) => {
                    let length = self.text(call, pointer, most);
                    self.read(call, pointer, length)
                }
                Effect::Compares(one, other, most) => {
                    let most = self.most(call, most);
                    let [first, second] = [one, other].map(|index| self.pass.ir.as_i64(argument(index)));
                    let length = build::call(&self.pass.ir, LabelHook::Compared, &[first, second, most]);
                    let first = self.read(call, one, length);
                    let second = self.read(call, other, length);
                    self.combine(first, second, LLVMCall)
                }
                Effect::Copies {
                    to,
                    from,
                    extent: Extent::Argument(length),
                } => {
                    let bytes = self.pass.ir.as_i64(argument(length));
                    self.copy(call, (Some(to), from), bytes, self.label(argument(length)));
                    continue;
                }
                Effect::CopiesText { to, from, padded_to } => {
                    let length = self.text(call, from, padded_to);
                    self.copy(call, (Some(to), from), length, self.empty());
                    continue;
                }
                Effect::Fills {
                    to,
                    value,
                    extent: Extent::Argument(length),
                } => {
                    self.fill(call, to, value, length);
                    continue;
                }
                Effect::Returns(index) | Effect::ReturnsInside(index) | Effect::DependsOn(index) => {
                    self.label(argument(index))
                }
                Effect::DependsOnAll => self.operands(call, call.argument_count()),
                _ => {
                    if let Some((pointer, Some(extent))) = written(effect) {
                        let length = self.length(call, extent);
                        self.written(call, pointer, length);
                    }
                    continue;
                }
            };
            result = self.combine(result, from, LLVMCall);
        }
        if !call.ty().is_void() {
            self.set_label(call, result);
        }
        if call.is_musttail() || !self.build_after_call(call) {
            return;
        }
        for &effect in effects {
            match effect {
                Effect::ReturnsNew(extent) if extent != Extent::Unknown => {
                    let length = self.length(call, extent);
                    let address = self.pass.ir.as_i64(call);
                    build::call(&self.pass.ir, LabelHook::Fresh, &[address, length]);
                }
                Effect::ReturnsCopy(from) => {
                    let length = self.text(call, from, None);
                    self.copy(call, (None, from), length, self.empty());
                }
                Effect::ReturnsMoved(from, Extent::Argument(length)) => {
                    let length = self.pass.ir.as_i64(argument(length));
                    self.copy(call, (None, from), length, self.empty());
                }
                _ => {
                    if let Some((pointer, None)) = written(effect) {
                        let length = build::at_least_zero(&self.pass.ir, build::signed(&self.pass.ir, call));
                        self.written(call, pointer, length);
                    }
                }
            }
        }
    }

    /// Bytes that the arguments tell.
    fn length(&self, call: Value<'m>, extent: Extent) -> Value<'m> {
        let ir = &self.pass.ir;
        let (one, other) = factors(extent).expect("moves_labels refuses other extents");
        let one = ir.as_i64(call.operand_at(one));
        match other {
            Some(other) => ir.multiply(one, ir.as_i64(call.operand_at(other))),
            None => one,
        }
    }

    fn most(&self, call: Value<'m>, argument: Option<u32>) -> Value<'m> {
        match argument {
            Some(index) => self.pass.ir.as_i64(call.operand_at(index)),
            None => self.pass.ir.i64(WHOLE),
        }
    }

    fn text(&self, call: Value<'m>, pointer: u32, most: Option<u32>) -> Value<'m> {
        let most = self.most(call, most);
        let address = self.pass.ir.as_i64(call.operand_at(pointer));
        build::call(&self.pass.ir, LabelHook::Text, &[address, most])
    }

    fn read(&mut self, call: Value<'m>, pointer: u32, length: Value<'m>) -> Value<'m> {
        self.pass.site(SiteKind::Load, call, pointer, length.unsigned());
        let (address, label) = (
            self.pass.ir.as_i64(call.operand_at(pointer)),
            self.label(call.operand_at(pointer)),
        );
        build::call(&self.pass.ir, LabelHook::Load, &[address, length, label])
    }

    fn written(&mut self, call: Value<'m>, pointer: u32, length: Value<'m>) {
        self.pass.site(SiteKind::Memory, call, pointer, length.unsigned());
        let address = self.pass.ir.as_i64(call.operand_at(pointer));
        build::call(&self.pass.ir, LabelHook::Written, &[address, length]);
    }

    fn fill(&mut self, call: Value<'m>, to: u32, value: u32, length: u32) {
        let [target, value, length] = [to, value, length].map(|index| call.operand_at(index));
        let label = self.combine(self.label(target), self.label(length), LLVMCall);
        let value = self.label(value);
        self.pass.site(SiteKind::Memory, call, to, length.unsigned());
        let (address, length) = (self.pass.ir.as_i64(target), self.pass.ir.as_i64(length));
        build::call(&self.pass.ir, LabelHook::Store, &[address, length, value, label]);
    }

    /// From what an argument points to, to what another does, or the result. `measure` is the label of the length.
    fn copy(&mut self, call: Value<'m>, (to, from): (Option<u32>, u32), length: Value<'m>, measure: Value<'m>) {
        let source = call.operand_at(from);
        let target = to.map_or(call, |to| call.operand_at(to));
        let label_from = self.combine(self.label(source), measure, LLVMCall);
        let label_to = self.combine(self.label(target), measure, LLVMCall);
        let size = length.unsigned();
        self.pass.site(SiteKind::Load, call, from, size);
        let source = self.pass.ir.as_i64(source);
        build::call(&self.pass.ir, LabelHook::Source, &[source, length, label_from]);
        self.pass.site(SiteKind::Memory, call, to.unwrap_or(from), size);
        let target = self.pass.ir.as_i64(target);
        let labels = build::pack(&self.pass.ir, label_to, label_from);
        build::call(&self.pass.ir, LabelHook::Copy, &[target, source, length, labels]);
    }
}

/// Whether what a function does to labels is known: it has to do with them, and with nothing that labels cannot follow.
fn moves_labels(effects: &[Effect]) -> bool {
    let is_known = |effect: &Effect| match *effect {
        Effect::Copies { extent, .. } | Effect::Fills { extent, .. } => matches!(extent, Extent::Argument(_)),
        Effect::Reads(_, extent) => factors(extent).is_some(),
        Effect::Writes(_, extent) => matches!(extent, Extent::Returned { .. }) || factors(extent).is_some(),
        Effect::ReturnsMoved(_, extent) => matches!(extent, Extent::Argument(_)),
        Effect::AppendsText { .. }
        | Effect::WritesText(..)
        | Effect::Scans(_)
        | Effect::WritesElsewhere
        | Effect::ReturnsHeld(_)
        | Effect::KeepsAnything => false,
        _ => true,
    };
    let has_labels = |effect: &Effect| match *effect {
        Effect::ReturnsNew(extent) => extent != Extent::Unknown,
        Effect::Returns(_)
        | Effect::ReturnsInside(_)
        | Effect::ReturnsCopy(_)
        | Effect::ReturnsMoved(..)
        | Effect::DependsOn(_)
        | Effect::DependsOnAll => true,
        _ => effect.is_read() || effect.destination().is_some(),
    };
    effects.iter().all(is_known) && effects.iter().any(has_labels)
}

/// A range that is written with something of the function's own; without an extent, as many bytes as it returns.
fn written(effect: Effect) -> Option<(u32, Option<Extent>)> {
    match effect {
        Effect::Writes(to, Extent::Returned { .. }) => Some((to, None)),
        Effect::Writes(to, extent) => Some((to, Some(extent))),
        Effect::Prints { to, room } => Some((to, room.map(Extent::AtMost))),
        _ => None,
    }
}

/// The arguments whose product is a number of bytes.
fn factors(extent: Extent) -> Option<(u32, Option<u32>)> {
    match extent {
        Extent::Argument(index) | Extent::AtMost(index) => Some((index, None)),
        Extent::Product(one, other) | Extent::AtMostProduct(one, other) => Some((one, Some(other))),
        Extent::Wide(_) | Extent::Returned { .. } | Extent::Unknown => None,
    }
}

/// A program may have a function of its own with such a name, from a library.
fn fits(call: Value, effect: Effect) -> bool {
    let argument = |index: u32| call.arguments().get(index as usize).copied();
    let pointer = |index: u32| argument(index).is_some_and(Value::is_pointer);
    let integer = |value: Value| value.ty().bits().is_some_and(|bits| bits <= 64);
    let number = |index: u32| argument(index).is_some_and(integer);
    let extent = |extent: Extent| factors(extent).is_some_and(|(one, other)| number(one) && other.is_none_or(number));
    let most = |most: Option<u32>| most.is_none_or(number);
    let returns_pointer = call.is_pointer();
    match effect {
        Effect::Reads(from, length) => pointer(from) && extent(length),
        Effect::ReadsText(from, limit) => pointer(from) && most(limit),
        Effect::Compares(one, other, limit) => pointer(one) && pointer(other) && most(limit),
        Effect::CopiesText { to, from, padded_to } => pointer(to) && pointer(from) && most(padded_to),
        Effect::Copies {
            to,
            from,
            extent: length,
        } => pointer(to) && pointer(from) && extent(length),
        Effect::Fills {
            to,
            value,
            extent: length,
        } => pointer(to) && number(value) && extent(length),
        Effect::ReturnsNew(Extent::Unknown) => true,
        Effect::ReturnsNew(length) => returns_pointer && extent(length),
        Effect::ReturnsCopy(from) => returns_pointer && pointer(from),
        Effect::ReturnsMoved(from, length) => returns_pointer && pointer(from) && extent(length),
        Effect::Returns(index) | Effect::ReturnsInside(index) | Effect::DependsOn(index) => argument(index).is_some(),
        _ => written(effect).is_none_or(|(to, length)| pointer(to) && length.map_or(integer(call), extent)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_follow_what_the_table_says_of_bytes_and_results() {
        let followed = |name: &str| library::effects(name).is_some_and(moves_labels);
        for name in [
            "memcpy",
            "strlen",
            "sprintf",
            "read",
            "malloc",
            "strdup",
            "pmemobj_memset",
            "pmemobj_direct",
            "abs",
            "qsort",
            "fread",
            "_Znwm",
            "pmem_memcpy_persist",
            "write",
        ] {
            assert!(followed(name), "{name}");
        }
        // What they do cannot be said in labels, or has nothing to do with them.
        for name in [
            "strcat", "strlcpy", "wmemcpy", "gets", "sscanf", "recvfrom", "memccpy", "fopen", "close", "stat",
        ] {
            assert!(!followed(name), "{name}");
        }
    }
}
