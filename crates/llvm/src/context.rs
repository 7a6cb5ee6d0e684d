//! Contexts and modules: read, linked, verified, written.

use std::cell::RefCell;
use std::ffi::{CString, c_void};
use std::marker::PhantomData;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::{io, ptr};

use llvm_sys::analysis::{LLVMVerifierFailureAction, LLVMVerifyModule};
use llvm_sys::bit_writer::LLVMWriteBitcodeToFile;
use llvm_sys::core::*;
use llvm_sys::error::{LLVMDisposeErrorMessage, LLVMGetErrorMessage};
use llvm_sys::ir_reader::LLVMParseIRInContext;
use llvm_sys::linker::LLVMLinkModules2;
use llvm_sys::prelude::*;
use llvm_sys::target::LLVMGetModuleDataLayout;
use llvm_sys::transforms::pass_builder::*;
use llvm_sys::{LLVMDiagnosticSeverity, LLVMLinkage};

use crate::{Layout, Node, Type, UNNAMED, Value, c_string, message, text};

/// Types, constants and metadata of some modules.
pub struct Context(pub(crate) LLVMContextRef);

impl Context {
    /// An empty one.
    pub fn create() -> Context {
        // SAFETY: asks for nothing.
        Context(unsafe { LLVMContextCreate() })
    }

    /// A module without anything in it.
    pub fn create_module(&self, name: &str) -> Module<'_> {
        // SAFETY: a C string; the module borrows the context.
        Module::new(unsafe { LLVMModuleCreateWithNameInContext(c_string(name).as_ptr(), self.0) })
    }

    /// Reads bitcode. The error is LLVM's.
    pub fn parse_bitcode(&self, bitcode: &[u8]) -> Result<Module<'_>, String> {
        let (mut module, mut error) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the buffer refers to bytes that are there until it is disposed of: a module is read whole. LLVM sets one of
        // the two results.
        unsafe {
            let buffer = LLVMCreateMemoryBufferWithMemoryRange(bitcode.as_ptr().cast(), bitcode.len(), UNNAMED, 0);
            #[expect(deprecated, reason = "its successor ends the process on errors")]
            let failed = llvm_sys::bit_reader::LLVMParseBitcodeInContext(self.0, buffer, &mut module, &mut error);
            LLVMDisposeMemoryBuffer(buffer);
            match failed {
                0 => Ok(Module::new(module)),
                _ => Err(message(error)),
            }
        }
    }

    /// Reads a file of bitcode.
    pub fn read_bitcode(&self, path: &Path) -> Result<Module<'_>, String> {
        self.parse_bitcode(&std::fs::read(path).map_err(|error| error.to_string())?)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: made by `create`; its modules borrow it, so they are gone.
        unsafe { LLVMContextDispose(self.0) }
    }
}

/// A module: functions and global variables.
pub struct Module<'c> {
    pub(crate) raw: LLVMModuleRef,
    /// Instructions that were taken out of their blocks, and that handles may yet refer to.
    pub(crate) removed: RefCell<Vec<LLVMValueRef>>,
    context: PhantomData<&'c Context>,
}

extern "C" fn keep_error(diagnostic: LLVMDiagnosticInfoRef, error: *mut c_void) {
    // SAFETY: `link_in` gives a string of its own that outlives the handler; LLVM gives a diagnostic.
    unsafe {
        if LLVMGetDiagInfoSeverity(diagnostic) == LLVMDiagnosticSeverity::LLVMDSError {
            *error.cast::<String>() = message(LLVMGetDiagInfoDescription(diagnostic));
        }
    }
}

impl<'c> Module<'c> {
    /// Of a module that nobody else owns, whose context lives for `'c`.
    pub(crate) fn new(raw: LLVMModuleRef) -> Module<'c> {
        Module {
            raw,
            removed: RefCell::default(),
            context: PhantomData,
        }
    }

    pub(crate) fn context(&self) -> LLVMContextRef {
        // SAFETY: a live module.
        unsafe { LLVMGetModuleContext(self.raw) }
    }

    /// Moves all of another module of the context into this one. The error is LLVM's.
    pub fn link_in(&mut self, other: Module<'c>) -> Result<(), String> {
        let same = self.context() == other.context();
        assert!(same, "modules of two contexts");
        let mut error = String::new();
        // SAFETY: two live modules of one context, of which LLVM takes the other; the handler is there only while its string is.
        let failed = unsafe {
            let context = self.context();
            LLVMContextSetDiagnosticHandler(context, Some(keep_error), (&raw mut error).cast());
            let failed = LLVMLinkModules2(self.raw, other.give_up());
            LLVMContextSetDiagnosticHandler(context, None, ptr::null_mut());
            failed
        };
        match failed {
            0 => Ok(()),
            _ => Err(error),
        }
    }

    /// Reads IR as text, into a module of the same context.
    pub fn parse_text(&self, text: &str) -> Result<Module<'c>, String> {
        let (mut module, mut error) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: LLVM copies the text, with a zero at its end, takes the buffer, and sets one of the two results.
        unsafe {
            let buffer = LLVMCreateMemoryBufferWithMemoryRangeCopy(text.as_ptr().cast(), text.len(), UNNAMED);
            match LLVMParseIRInContext(self.context(), buffer, &mut module, &mut error) {
                0 => Ok(Module::new(module)),
                _ => Err(message(error)),
            }
        }
    }

    /// The module for LLVM to own.
    fn give_up(self) -> LLVMModuleRef {
        self.dispose_of_removed();
        std::mem::ManuallyDrop::new(self).raw
    }

    fn dispose_of_removed(&self) {
        for instruction in self.removed.take() {
            // SAFETY: it is in no block and has no users; whoever held a handle of it borrowed the module.
            unsafe { LLVMDeleteInstruction(instruction) };
        }
    }

    /// LLVM's verifier has the last word on what was built.
    pub fn verify(&self) -> Result<(), String> {
        let mut error = ptr::null_mut();
        let action = LLVMVerifierFailureAction::LLVMReturnStatusAction;
        // SAFETY: a live module; LLVM makes a message in any case.
        let (failed, error) = unsafe { (LLVMVerifyModule(self.raw, action, &mut error), message(error)) };
        match failed {
            0 => Ok(()),
            _ => Err(error),
        }
    }

    /// Writes a file of bitcode.
    pub fn write_bitcode(&self, path: &Path) -> io::Result<()> {
        let name = CString::new(path.as_os_str().as_bytes())?;
        // SAFETY: a live module and a C string.
        match unsafe { LLVMWriteBitcodeToFile(self.raw, name.as_ptr()) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Runs passes, by the names that `opt` has for them, without a target machine.
    pub fn run_passes(&mut self, passes: &str) -> Result<(), String> {
        let passes = c_string(passes);
        // SAFETY: a live module of which no handles are left, a C string, options and an error that are disposed of.
        unsafe {
            let options = LLVMCreatePassBuilderOptions();
            let error = LLVMRunPasses(self.raw, passes.as_ptr(), ptr::null_mut(), options);
            LLVMDisposePassBuilderOptions(options);
            if error.is_null() {
                return Ok(());
            }
            let text = LLVMGetErrorMessage(error);
            let reason = std::ffi::CStr::from_ptr(text).to_string_lossy().into_owned();
            LLVMDisposeErrorMessage(text);
            Err(reason)
        }
    }

    /// Has debug information as calls of intrinsics: LLVM 19 keeps it beside the instructions, where its C interface cannot read it, and where it does
    /// not move with them.
    pub fn use_debug_intrinsics(&mut self) {
        // SAFETY: a live module of which no handles are left.
        unsafe { LLVMSetIsNewDbgInfoFormat(self.raw, 0) }
    }

    /// What the module was compiled from.
    pub fn source_file_name(&self) -> &str {
        let mut length = 0;
        // SAFETY: a live module, whose name nobody changes.
        unsafe { text(LLVMGetSourceFileName(self.raw, &mut length), length) }
    }

    /// The triple that code is made for.
    pub fn target(&self) -> &str {
        // SAFETY: a live module; only `link_in` changes the triple.
        unsafe { std::ffi::CStr::from_ptr(LLVMGetTarget(self.raw)) }
            .to_str()
            .unwrap_or_default()
    }

    /// Takes layout and target from another module.
    pub fn set_target_of(&mut self, other: &Module) {
        // SAFETY: two live modules; LLVM copies the strings.
        unsafe {
            LLVMSetDataLayout(self.raw, LLVMGetDataLayoutStr(other.raw));
            LLVMSetTarget(self.raw, LLVMGetTarget(other.raw));
        }
    }

    /// Sizes and offsets.
    pub fn layout(&self) -> Layout<'_> {
        // SAFETY: a live module, which the layout borrows.
        Layout(unsafe { LLVMGetModuleDataLayout(self.raw) }, PhantomData)
    }

    /// Adds to the module's own assembly, which need not be UTF-8.
    pub fn append_assembly(&self, text: &[u8]) {
        // SAFETY: pointer and length of one string, which LLVM copies.
        unsafe { LLVMAppendModuleInlineAsm(self.raw, text.as_ptr().cast(), text.len()) }
    }

    /// Functions, declared and defined.
    pub fn functions(&self) -> impl Iterator<Item = Value<'_>> {
        // SAFETY: a live module, and functions of it.
        let first = unsafe { Value::new(LLVMGetFirstFunction(self.raw)) };
        // SAFETY: as above.
        std::iter::successors(first, |at| unsafe { Value::new(LLVMGetNextFunction(at.raw())) })
    }

    /// Global variables, declared and defined.
    pub fn globals(&self) -> impl Iterator<Item = Value<'_>> {
        // SAFETY: a live module, and variables of it.
        let first = unsafe { Value::new(LLVMGetFirstGlobal(self.raw)) };
        // SAFETY: as above.
        std::iter::successors(first, |at| unsafe { Value::new(LLVMGetNextGlobal(at.raw())) })
    }

    /// The function of this name.
    pub fn function(&self, name: &str) -> Option<Value<'_>> {
        let name = CString::new(name).ok()?;
        // SAFETY: a live module and a C string.
        unsafe { Value::new(LLVMGetNamedFunction(self.raw, name.as_ptr())) }
    }

    /// The global variable of this name.
    pub fn global(&self, name: &str) -> Option<Value<'_>> {
        let name = CString::new(name).ok()?;
        // SAFETY: a live module and a C string.
        unsafe { Value::new(LLVMGetNamedGlobal(self.raw, name.as_ptr())) }
    }

    /// Declares a function.
    pub fn add_function<'m>(&'m self, name: &str, result: Type<'m>, parameters: &[Type<'m>]) -> Value<'m> {
        let ty = result.function(parameters);
        self.assert_has_type(ty);
        // SAFETY: a live module, a C string, a function type of the context.
        Value(
            unsafe { LLVMAddFunction(self.raw, c_string(name).as_ptr(), ty.0) },
            PhantomData,
        )
    }

    /// An intrinsic that is not overloaded, by its whole name.
    pub fn intrinsic(&self, name: &str) -> Option<Value<'_>> {
        // SAFETY: pointer and length of one string; a known number of an intrinsic without types.
        unsafe {
            let id = LLVMLookupIntrinsicID(name.as_ptr().cast(), name.len());
            if id == 0 || LLVMIntrinsicIsOverloaded(id) != 0 {
                return None;
            }
            Value::new(LLVMGetIntrinsicDeclaration(self.raw, id, ptr::null_mut(), 0))
        }
    }

    /// Declares a global variable.
    pub fn add_global<'m>(&'m self, name: &str, ty: Type<'m>) -> Value<'m> {
        self.assert_has_type(ty);
        // SAFETY: a live module, a C string, a type of the context.
        Value(
            unsafe { LLVMAddGlobal(self.raw, ty.0, c_string(name).as_ptr()) },
            PhantomData,
        )
    }

    /// Adds a variable that only this module sees, without a name, of zeros.
    pub fn add_zeros<'m>(&'m self, ty: Type<'m>) -> Value<'m> {
        let variable = self.add_global("", ty);
        // SAFETY: a variable and the initial value of its type.
        unsafe {
            LLVMSetLinkage(variable.raw(), LLVMLinkage::LLVMPrivateLinkage);
            LLVMSetInitializer(variable.raw(), LLVMConstNull(ty.0));
        }
        variable
    }

    /// The compile units of the debug information.
    pub fn compile_units(&self) -> Vec<Node<'_>> {
        let name = c"llvm.dbg.cu".as_ptr();
        // SAFETY: the vector has room for as many operands as LLVM says there are.
        let units = unsafe {
            let mut units = vec![ptr::null_mut(); LLVMGetNamedMetadataNumOperands(self.raw, name) as usize];
            LLVMGetNamedMetadataOperands(self.raw, name, units.as_mut_ptr());
            units
        };
        // SAFETY: values of the module's context.
        let units = units.into_iter().filter_map(|unit| unsafe { Value::new(unit) });
        units.filter_map(Node::of).collect()
    }

    /// The module as text.
    pub fn print(&mut self) -> String {
        // SAFETY: a live module of which no handles are left: LLVM changes the form of debug information meanwhile.
        unsafe { message(LLVMPrintModuleToString(self.raw)) }
    }

    /// An integer type of the context.
    pub fn integer_type(&self, bits: u32) -> Type<'_> {
        // SAFETY: a live context, which outlives the module.
        Type(unsafe { LLVMIntTypeInContext(self.context(), bits) }, PhantomData)
    }

    /// The type of pointers.
    pub fn pointer_type(&self) -> Type<'_> {
        // SAFETY: as above.
        Type(unsafe { LLVMPointerTypeInContext(self.context(), 0) }, PhantomData)
    }

    /// The type of no value.
    pub fn void_type(&self) -> Type<'_> {
        // SAFETY: as above.
        Type(unsafe { LLVMVoidTypeInContext(self.context()) }, PhantomData)
    }

    fn assert_has_type(&self, ty: Type) {
        // SAFETY: a live type.
        let context = unsafe { LLVMGetTypeContext(ty.0) };
        assert!(context == self.context(), "a type of another context");
    }
}

impl Drop for Module<'_> {
    fn drop(&mut self) {
        self.dispose_of_removed();
        // SAFETY: this module is the owner, and what borrowed it is gone.
        unsafe { LLVMDisposeModule(self.raw) }
    }
}
