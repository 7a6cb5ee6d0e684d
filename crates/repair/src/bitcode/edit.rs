//! Insertions after instructions, and redirected calls.

use inkwell::memory_buffer::MemoryBuffer;
use inkwell::module::Module;
use inkwell::values::AsValueRef;
use llvm_sys::core::*;
use llvm_sys::debuginfo::LLVMInstructionGetDebugLoc;
use llvm_sys::prelude::*;
use llvm_sys::{LLVMIntPredicate, LLVMOpcode};
use rustc_hash::FxHashMap;

use super::ApplyError;
use crate::ir::{self, Value};
use crate::plan::known::Length;
use crate::plan::object::{self, Part};

/// The function that flushes a range, as text of IR.
const FLUSH: &str = include_str!("flush.ll");
const FLUSH_NAME: &str = "crashproof.flush";

pub struct Editor<'m, 'context> {
    module: &'m Module<'context>,
    builder: LLVMBuilderRef,
    context: LLVMContextRef,
    flush: Value<'m>,
    /// What was inserted last after an instruction.
    inserted: FxHashMap<Value<'m>, Value<'m>>,
}

// Every block below works on values of the module, which is borrowed, with a builder of its context; types are checked by LLVM's verifier
// in the end.

impl<'m, 'context> Editor<'m, 'context> {
    pub fn new(module: &'m Module<'context>) -> Result<Editor<'m, 'context>, ApplyError> {
        let invalid = |reason: String| ApplyError::Invalid { reason };
        let buffer = MemoryBuffer::create_from_memory_range_copy(FLUSH.as_bytes(), "flush");
        let context = module.get_context();
        let flush = context
            .create_module_from_ir(buffer)
            .map_err(|reason| invalid(reason.to_string()))?;
        // SAFETY: two live modules; LLVM copies the strings.
        unsafe {
            LLVMSetDataLayout(flush.as_mut_ptr(), LLVMGetDataLayoutStr(module.as_mut_ptr()));
            LLVMSetTarget(flush.as_mut_ptr(), LLVMGetTarget(module.as_mut_ptr()));
        }
        module
            .link_in_module(flush)
            .map_err(|reason| invalid(reason.to_string()))?;
        let flush = ir::function(module, FLUSH_NAME).ok_or_else(|| invalid(format!("no function {FLUSH_NAME}")))?;
        // SAFETY: see above.
        unsafe {
            let context = LLVMGetModuleContext(module.as_mut_ptr());
            Ok(Editor {
                module,
                builder: LLVMCreateBuilderInContext(context),
                context,
                flush,
                inserted: FxHashMap::default(),
            })
        }
    }

    /// Flushes what the stores, of one object if there are several, have written, after the last.
    pub fn flush(&mut self, stores: &[Value<'m>]) -> Result<(), ApplyError> {
        let Some(&last) = stores.last() else { return Ok(()) };
        let Some(pointer) = last.destination() else {
            return Ok(());
        };
        self.after(last)?;
        let parts: Option<Vec<Part>> = stores.iter().map(|&store| object::part(store)).collect();
        let range = parts.and_then(|parts| Some((Part::range(&parts)?, parts)));
        // SAFETY: see above.
        unsafe {
            let (start, length) = match (stores, range) {
                ([_, _, ..], Some(((start, end), parts))) => self.range(stores, &parts, (start, end), pointer),
                _ => (pointer.raw(), self.length(last)),
            };
            let flush = self.call(self.flush, &mut [start, length]);
            self.inserted.extend(Value::new(flush).map(|flush| (last, flush)));
        }
        Ok(())
    }

    /// Pointer and length of several parts of an object, seen from the pointer of the last.
    unsafe fn range(
        &self,
        stores: &[Value<'m>],
        parts: &[Part<'m>],
        (start, end): (i64, Option<i64>),
        pointer: Value<'m>,
    ) -> (LLVMValueRef, LLVMValueRef) {
        // SAFETY: see above; distances are within the object.
        unsafe {
            let name = c"".as_ptr();
            let i64_type = LLVMInt64TypeInContext(self.context);
            let constant = |number: i64| LLVMConstInt(i64_type, number as u64, 1);
            let from_last = start - parts.last().map_or(start, |last| last.start);
            let byte = LLVMInt8TypeInContext(self.context);
            let first = LLVMBuildGEP2(self.builder, byte, pointer.raw(), &mut constant(from_last), 1, name);
            let open = stores.iter().zip(parts).find(|(_, part)| part.end.is_none());
            let length = match (end, open) {
                (None, Some((&store, part))) => {
                    LLVMBuildAdd(self.builder, self.length(store), constant(part.start - start), name)
                }
                (end, _) => constant(end.unwrap_or(start) - start),
            };
            (first, length)
        }
    }

    /// How much a single store, or call of a memory function, has written.
    unsafe fn length(&self, store: Value<'m>) -> LLVMValueRef {
        // SAFETY: see above; arguments are there, as the known function has them.
        unsafe {
            let i64_type = LLVMInt64TypeInContext(self.context);
            if let Some(size) = store.stored_size() {
                return LLVMConstInt(i64_type, size, 0);
            }
            let written = store.written();
            let argument = |index: u32| store.operand(index).map_or(LLVMConstInt(i64_type, 0, 0), Value::raw);
            let zero = LLVMConstInt(i64_type, 0, 0);
            let one = LLVMConstInt(i64_type, 1, 0);
            let name = c"".as_ptr();
            match written.map(|written| (written.destination, written.length)) {
                Some((_, Length::Argument(index))) => {
                    LLVMBuildIntCast2(self.builder, argument(index), i64_type, 0, name)
                }
                Some((destination, Length::String)) => {
                    let length = self.call(self.string_length(), &mut [argument(destination)]);
                    LLVMBuildAdd(self.builder, length, one, name)
                }
                Some((_, Length::Printed { size })) => {
                    let size = LLVMBuildIntCast2(self.builder, argument(size), i64_type, 0, name);
                    let printed = LLVMBuildIntCast2(self.builder, store.raw(), i64_type, 1, name);
                    let with_zero = LLVMBuildAdd(self.builder, printed, one, name);
                    let fits = LLVMBuildICmp(self.builder, LLVMIntPredicate::LLVMIntULT, with_zero, size, name);
                    LLVMBuildSelect(self.builder, fits, with_zero, size, name)
                }
                Some((_, Length::Returned)) => {
                    let returned = LLVMBuildIntCast2(self.builder, store.raw(), i64_type, 1, name);
                    let some = LLVMBuildICmp(self.builder, LLVMIntPredicate::LLVMIntSGT, returned, zero, name);
                    LLVMBuildSelect(self.builder, some, returned, zero, name)
                }
                Some((_, Length::Constant(size))) => LLVMConstInt(i64_type, size, 0),
                None => zero,
            }
        }
    }

    fn string_length(&self) -> Value<'m> {
        const NAME: &str = "strlen";
        if let Some(function) = ir::function(self.module, NAME) {
            return function;
        }
        let context = self.module.get_context();
        let pointer = context.ptr_type(inkwell::AddressSpace::default());
        let ty = context.i64_type().fn_type(&[pointer.into()], false);
        let function = self.module.add_function(NAME, ty, None);
        // SAFETY: it was just added to the module.
        unsafe { Value::new(function.as_value_ref()) }.unwrap_or(self.flush)
    }

    pub fn fence(&mut self, after: Value<'m>) -> Result<(), ApplyError> {
        const NAME: &str = "llvm.x86.sse.sfence";
        self.after(after)?;
        // SAFETY: see above; the intrinsic takes nothing and returns nothing.
        unsafe {
            let id = LLVMLookupIntrinsicID(NAME.as_ptr().cast(), NAME.len());
            let function = LLVMGetIntrinsicDeclaration(self.module.as_mut_ptr(), id, std::ptr::null_mut(), 0);
            if let Some(function) = Value::new(function) {
                let fence = self.call(function, &mut []);
                self.inserted.extend(Value::new(fence).map(|fence| (after, fence)));
            }
        }
        Ok(())
    }

    /// Lets a call be one of the copy; through a pointer, if it is to the original.
    pub fn redirect(&mut self, call: Value<'m>, original: &str, copy: &str) -> Result<(), ApplyError> {
        let find = |name: &str| {
            ir::function(self.module, name).ok_or_else(|| ApplyError::NoSuchFunction { name: name.to_owned() })
        };
        let (original, copy) = (find(original)?, find(copy)?);
        // SAFETY: see above; the callee is the last operand of a call.
        unsafe {
            let callee = match call.is_indirect_call() {
                false => copy.raw(),
                true => {
                    LLVMPositionBuilderBefore(self.builder, call.raw());
                    LLVMSetCurrentDebugLocation2(self.builder, LLVMInstructionGetDebugLoc(call.raw()));
                    let pointer = LLVMGetCalledValue(call.raw());
                    let name = c"".as_ptr();
                    let equal = LLVMIntPredicate::LLVMIntEQ;
                    let is_original = LLVMBuildICmp(self.builder, equal, pointer, original.raw(), name);
                    LLVMBuildSelect(self.builder, is_original, copy.raw(), pointer, name)
                }
            };
            let operands = LLVMGetNumOperands(call.raw());
            LLVMSetOperand(call.raw(), (operands - 1) as u32, callee);
        }
        Ok(())
    }

    /// Takes out a flush or fence, whose result nobody uses.
    pub fn remove(&mut self, instruction: Value<'m>) {
        // SAFETY: see above; nothing refers to it any more, because it was looked up for this alone.
        unsafe {
            if LLVMGetFirstUse(instruction.raw()).is_null() && LLVMIsATerminatorInst(instruction.raw()).is_null() {
                LLVMInstructionEraseFromParent(instruction.raw());
            }
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
        // SAFETY: see above; a block has a terminator, which nothing is inserted after.
        unsafe {
            let mut next = match last.opcode() {
                Some(LLVMOpcode::LLVMInvoke) => {
                    let normal = LLVMGetNormalDest(last.raw());
                    // Another way in would execute what is inserted, too.
                    if predecessors(normal) != 1 {
                        return Err(no_room());
                    }
                    LLVMGetFirstInstruction(normal)
                }
                _ => LLVMGetNextInstruction(last.raw()),
            };
            while !next.is_null() && LLVMGetInstructionOpcode(next) == LLVMOpcode::LLVMPHI {
                next = LLVMGetNextInstruction(next);
            }
            if next.is_null() {
                return Err(no_room());
            }
            LLVMPositionBuilderBefore(self.builder, next);
            LLVMSetCurrentDebugLocation2(self.builder, LLVMInstructionGetDebugLoc(anchor.raw()));
        }
        Ok(())
    }

    unsafe fn call(&self, function: Value<'m>, arguments: &mut [LLVMValueRef]) -> LLVMValueRef {
        // SAFETY: see above; the arguments are as the function has them.
        unsafe {
            LLVMBuildCall2(
                self.builder,
                LLVMGlobalGetValueType(function.raw()),
                function.raw(),
                arguments.as_mut_ptr(),
                arguments.len() as u32,
                c"".as_ptr(),
            )
        }
    }
}

impl Drop for Editor<'_, '_> {
    fn drop(&mut self) {
        // SAFETY: the builder is this editor's own.
        unsafe { LLVMDisposeBuilder(self.builder) }
    }
}

/// How many branches lead to a block.
unsafe fn predecessors(block: LLVMBasicBlockRef) -> usize {
    // SAFETY: uses of a live block.
    unsafe {
        let mut used = LLVMGetFirstUse(LLVMBasicBlockAsValue(block));
        let mut count = 0;
        while !used.is_null() {
            count += 1;
            used = LLVMGetNextUse(used);
        }
        count
    }
}
