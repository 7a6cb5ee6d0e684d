//! Insertions after instructions, and redirected calls.

use crashproof_llvm::{Builder, IntPredicate, Module, Opcode, Value};
use rustc_hash::FxHashMap;

use super::ApplyError;
use crate::ir::Code;
use crate::plan::known::Length;
use crate::plan::object::{self, Part};

/// The function that flushes a range, as text of IR.
const FLUSH: &str = include_str!("flush.ll");
const FLUSH_NAME: &str = "crashproof.flush";

/// Adds the function that flushes a range.
pub(super) fn link_flush(module: &mut Module) -> Result<(), ApplyError> {
    let invalid = |reason| ApplyError::Invalid { reason };
    let mut flush = module.parse_text(FLUSH).map_err(invalid)?;
    flush.set_target_of(module);
    module.link_in(flush).map_err(invalid)
}

pub(super) struct Editor<'m> {
    module: &'m Module<'m>,
    builder: Builder<'m>,
    flush: Value<'m>,
    /// What was inserted last after an instruction.
    inserted: FxHashMap<Value<'m>, Value<'m>>,
}

impl<'m> Editor<'m> {
    /// After [`link_flush`].
    pub(super) fn new(module: &'m Module<'m>) -> Result<Editor<'m>, ApplyError> {
        Ok(Editor {
            module,
            builder: Builder::new(module),
            flush: function(module, FLUSH_NAME)?,
            inserted: FxHashMap::default(),
        })
    }

    /// Flushes what the stores, of one object if there are several, have written, after the last.
    pub(super) fn flush(&mut self, stores: &[Value<'m>]) -> Result<(), ApplyError> {
        let Some(&last) = stores.last() else { return Ok(()) };
        let Some(pointer) = last.destination() else {
            return Ok(());
        };
        self.after(last)?;
        let parts: Option<Vec<Part>> = stores.iter().map(|&store| object::part(store)).collect();
        let range = parts.and_then(|parts| Some((Part::range(&parts)?, parts)));
        let (start, length) = match (stores, range) {
            ([_, _, ..], Some(((start, end), parts))) => self.range(stores, &parts, (start, end), pointer)?,
            _ => (pointer, self.length(last)?),
        };
        let flush = self.call(self.flush, &[start, length])?;
        self.inserted.insert(last, flush);
        Ok(())
    }

    /// Pointer and length of several parts of an object, seen from the pointer of the last.
    fn range(
        &self,
        stores: &[Value<'m>],
        parts: &[Part<'m>],
        (start, end): (i64, Option<i64>),
        pointer: Value<'m>,
    ) -> Result<(Value<'m>, Value<'m>), ApplyError> {
        let constant = |number: i64| self.builder.i64(number as u64);
        let from_last = start - parts.last().map_or(start, |last| last.start);
        let first = self.builder.offset_pointer(pointer, constant(from_last));
        let open = stores.iter().zip(parts).find(|(_, part)| part.end.is_none());
        let length = match (end, open) {
            (None, Some((&store, part))) => self.builder.add(self.length(store)?, constant(part.start - start)),
            (end, _) => constant(end.unwrap_or(start) - start),
        };
        Ok((first, length))
    }

    /// How much a single store, or call of a memory function, has written.
    fn length(&self, store: Value<'m>) -> Result<Value<'m>, ApplyError> {
        let builder = &self.builder;
        if let Some(size) = store.stored_size() {
            return Ok(builder.i64(size));
        }
        let (zero, one) = (builder.i64(0), builder.i64(1));
        let number = |value: Value<'m>, signed| match value.ty().bits() {
            Some(_) => Ok(builder.integer_cast(value, zero.ty(), signed)),
            None => Err(ApplyError::Invalid {
                reason: "a length that is no integer".into(),
            }),
        };
        let argument = |index: u32| store.operand(index).unwrap_or(zero);
        Ok(
            match store.written().map(|written| (written.destination, written.length)) {
                Some((_, Length::Argument(index))) => number(argument(index), false)?,
                Some((destination, Length::String)) => {
                    let length = self.call(self.string_length(), &[argument(destination)])?;
                    builder.add(length, one)
                }
                Some((_, Length::Printed { size })) => {
                    let size = number(argument(size), false)?;
                    let printed = number(store, true)?;
                    let with_zero = builder.add(printed, one);
                    let fits = builder.compare(IntPredicate::LLVMIntULT, with_zero, size);
                    builder.select(fits, with_zero, size)
                }
                Some((_, Length::Returned)) => {
                    let returned = number(store, true)?;
                    let some = builder.compare(IntPredicate::LLVMIntSGT, returned, zero);
                    builder.select(some, returned, zero)
                }
                Some((_, Length::Constant(size))) => builder.i64(size),
                None => zero,
            },
        )
    }

    fn call(&self, function: Value<'m>, arguments: &[Value<'m>]) -> Result<Value<'m>, ApplyError> {
        match function.takes(arguments) {
            true => Ok(self.builder.call(function, arguments)),
            false => Err(ApplyError::Invalid {
                reason: format!("`{}` is declared with other parameters", function.name()),
            }),
        }
    }

    fn string_length(&self) -> Value<'m> {
        const NAME: &str = "strlen";
        self.module.function(NAME).unwrap_or_else(|| {
            let (size, pointer) = (self.module.integer_type(64), self.module.pointer_type());
            self.module.add_function(NAME, size, &[pointer])
        })
    }

    pub(super) fn fence(&mut self, after: Value<'m>) -> Result<(), ApplyError> {
        self.after(after)?;
        if let Some(function) = self.module.intrinsic("llvm.x86.sse.sfence") {
            let fence = self.call(function, &[])?;
            self.inserted.insert(after, fence);
        }
        Ok(())
    }

    /// Lets a call be one of the copy; through a pointer, if it is to the original.
    pub(super) fn redirect(&mut self, call: Value<'m>, original: &str, copy: &str) -> Result<(), ApplyError> {
        let (original, copy) = (function(self.module, original)?, function(self.module, copy)?);
        let mut callee = copy;
        if call.is_indirect_call()
            && let Some(pointer) = call.called_value()
        {
            self.builder.before(call, call.debug_location());
            let is_original = self.builder.equal(pointer, original);
            callee = self.builder.select(is_original, copy, pointer);
        }
        // What is called is the last operand.
        self.builder.set_operand(call, call.operand_count() - 1, callee);
        Ok(())
    }

    /// Takes out a flush or fence, whose result nobody uses.
    pub(super) fn remove(&mut self, instruction: Value<'m>) {
        if !instruction.is_used() && instruction.successors().is_empty() {
            self.builder.remove(instruction);
        }
    }

    /// Lets the builder insert after an instruction, and after what was inserted there: flushes come before their fence.
    fn after(&mut self, anchor: Value<'m>) -> Result<(), ApplyError> {
        let no_room = || match anchor.place() {
            Some(place) => ApplyError::NoRoom { place },
            None => ApplyError::Invalid {
                reason: "an instruction without a function".into(),
            },
        };
        let last = self.inserted.get(&anchor).copied().unwrap_or(anchor);
        let mut next = match last.normal_destination() {
            // Another way in would execute what is inserted, too.
            Some(normal) if normal.use_count() != 1 => return Err(no_room()),
            Some(normal) => normal.instructions().next(),
            None => last.next(),
        };
        while let Some(phi) = next.filter(|next| next.opcode() == Some(Opcode::LLVMPHI)) {
            next = phi.next();
        }
        self.builder.before(next.ok_or_else(no_room)?, anchor.debug_location());
        Ok(())
    }
}

fn function<'m>(module: &'m Module, name: &str) -> Result<Value<'m>, ApplyError> {
    module
        .function(name)
        .ok_or_else(|| ApplyError::NoSuchFunction { name: name.to_owned() })
}
