//! From bitcode to [`Constraints`].
//!
//! Pointers are values of pointer type and integers wide enough to hold one: clang turns pointers into integers at atomics, unions and calls. A
//! narrower value carries part of a pointer only from a load straight to a store, as in a loop that copies bytes.
//!
//! A local variable that is only ever loaded and stored is no object but a pointer itself (at `-O0`, most are); all loads of it are one variable
//! with it, since order does not count here.

mod allocators;
mod calls;
mod externals;
mod instructions;
mod values;

use std::collections::HashMap;

use inkwell::module::Module;
use llvm_sys::core::*;
use llvm_sys::prelude::{LLVMBasicBlockRef, LLVMModuleRef, LLVMTypeRef, LLVMValueRef};
use llvm_sys::target::{LLVMABISizeOfType, LLVMGetModuleDataLayout, LLVMTargetDataRef};
use llvm_sys::{LLVMLinkage, LLVMOpcode, LLVMTypeKind, LLVMValueKind};
use rustc_hash::FxHashMap;

use allocators::{Allocators, Frame};

use super::ObjectKind;
use super::constraints::{Constraint, Constraints, Function, ObjectId, Variable};
use super::offsets::Shift;

/// Of memory whose size is not known, offsets are told apart up to here.
const UNKNOWN_SIZE: u32 = 256;

/// The constraints of a module, and what they are about.
pub struct Generated {
    pub constraints: Constraints,
    pub values: FxHashMap<LLVMValueRef, Variable>,
    pub objects: Vec<ObjectKind>,
    pub fresh: FxHashMap<ObjectId, Variable>,
    /// The instruction of each [`Constraint::Call`], in their order.
    pub calls: Vec<LLVMValueRef>,
    /// The variables of values in the clones of their functions.
    pub clones: FxHashMap<LLVMValueRef, Vec<Variable>>,
}

pub fn constraints(module: &Module) -> Generated {
    // SAFETY: the module is borrowed; all references are to values of it, whose kinds are checked before they are relied upon.
    unsafe {
        let module = module.as_mut_ptr();
        let mut generator = Generator::new(LLVMGetModuleDataLayout(module));
        generator.module(module);
        Generated {
            constraints: generator.constraints,
            values: generator
                .values
                .into_iter()
                .filter_map(|(value, variable)| Some((value, variable?)))
                .collect(),
            objects: generator.objects,
            fresh: generator.fresh,
            calls: generator.calls,
            clones: generator.clones,
        }
    }
}

struct Generator {
    layout: LLVMTargetDataRef,
    constraints: Constraints,
    objects: Vec<ObjectKind>,
    /// `None`: holds no pointer.
    values: FxHashMap<LLVMValueRef, Option<Variable>>,
    /// Objects of globals and functions, and of what else is made once.
    globals: FxHashMap<LLVMValueRef, ObjectId>,
    functions: FxHashMap<LLVMValueRef, Function>,
    /// Local variables that are only loaded and stored.
    locals: FxHashMap<LLVMValueRef, bool>,
    /// What those hold.
    contents: FxHashMap<LLVMValueRef, Variable>,
    carriers: FxHashMap<LLVMTypeRef, bool>,
    named: HashMap<String, Variable>,
    calls: Vec<LLVMValueRef>,
    fresh: FxHashMap<ObjectId, Variable>,
    unknown: Option<Variable>,
    /// The one object of all constants of numbers.
    plain_constants: Option<ObjectId>,
    no_alias: u32,
    by_value: u32,
    allocators: Allocators,
    /// The clones that are being made, each in that before it.
    frames: Vec<Frame>,
    clones: FxHashMap<LLVMValueRef, Vec<Variable>>,
}

impl Generator {
    fn new(layout: LLVMTargetDataRef) -> Generator {
        let kind = |name: &str| {
            // SAFETY: a name and its length.
            unsafe { LLVMGetEnumAttributeKindForName(name.as_ptr().cast(), name.len()) }
        };
        Generator {
            layout,
            constraints: Constraints::default(),
            objects: vec![ObjectKind::Unknown],
            values: FxHashMap::default(),
            globals: FxHashMap::default(),
            functions: FxHashMap::default(),
            locals: FxHashMap::default(),
            contents: FxHashMap::default(),
            carriers: FxHashMap::default(),
            named: HashMap::new(),
            calls: Vec::new(),
            fresh: FxHashMap::default(),
            unknown: None,
            plain_constants: None,
            no_alias: kind("noalias"),
            by_value: kind("byval"),
            allocators: Allocators::default(),
            frames: Vec::new(),
            clones: FxHashMap::default(),
        }
    }

    fn object(&mut self, kind: ObjectKind, end: u32) -> ObjectId {
        self.objects.push(kind);
        self.constraints.object(end)
    }

    /// A new object, and a variable that points to its begin.
    fn pointer_to(&mut self, kind: ObjectKind, end: u32) -> Variable {
        let object = self.object(kind, end);
        let variable = self.constraints.variable();
        self.constraints.address(variable, object);
        variable
    }

    /// Points to what unknown code may reach.
    fn unknown(&mut self) -> Variable {
        match self.unknown {
            Some(unknown) => unknown,
            None => {
                let variable = self.constraints.variable();
                self.constraints.address(variable, ObjectId::UNKNOWN);
                self.unknown = Some(variable);
                variable
            }
        }
    }

    fn escape(&mut self, variable: Variable) {
        self.constraints.copy(Variable::ESCAPED, variable);
    }

    /// A variable that is shared under a name.
    fn named(&mut self, name: &str) -> Variable {
        if let Some(variable) = self.named.get(name) {
            return *variable;
        }
        let variable = self.constraints.variable();
        self.named.insert(name.to_owned(), variable);
        variable
    }

    unsafe fn module(&mut self, module: LLVMModuleRef) {
        // SAFETY: as the caller says: a live module, here and below.
        unsafe {
            let main = LLVMGetNamedFunction(module, c"main".as_ptr());
            let is_whole = !main.is_null() && LLVMIsDeclaration(main) == 0;
            let functions: Vec<LLVMValueRef> = functions(module).collect();
            for &function in &functions {
                if LLVMIsDeclaration(function) == 0 {
                    self.declare(function);
                }
            }
            self.find_allocators(&functions);
            let mut global = LLVMGetFirstGlobal(module);
            while !global.is_null() {
                self.global(global);
                global = LLVMGetNextGlobal(global);
            }
            for &function in &functions {
                if LLVMIsDeclaration(function) != 0 {
                    continue;
                }
                self.body(function);
                // Called from outside, so with anything.
                let is_local = matches!(
                    LLVMGetLinkage(function),
                    LLVMLinkage::LLVMInternalLinkage | LLVMLinkage::LLVMPrivateLinkage
                );
                if (function == main || !is_whole && !is_local)
                    && let Some(address) = self.value(function)
                {
                    self.escape(address);
                }
            }
        }
    }

    /// The variables of a function's parameters and result.
    unsafe fn declare(&mut self, function: LLVMValueRef) -> Function {
        if let Some(known) = self.functions.get(&function) {
            return known.clone();
        }
        // SAFETY: a function.
        unsafe {
            let function_record = self.record(function);
            self.functions.insert(function, function_record.clone());
            let object = self.global_object(function);
            self.constraints.objects[object.0 as usize].function = Some(function_record.clone());
            if LLVMIsDeclaration(function) != 0 {
                let Function {
                    parameters,
                    further,
                    result,
                } = function_record.clone();
                if let Some(further) = further {
                    self.escape(further);
                }
                self.external(&name(function), &parameters, &[], result, function);
            }
            function_record
        }
    }

    /// Variables for a function's parameters and result, in the clone that is being made or the function itself.
    unsafe fn record(&mut self, function: LLVMValueRef) -> Function {
        // SAFETY: a function.
        unsafe {
            let ty = LLVMGlobalGetValueType(function);
            let mut parameters = Vec::new();
            for index in 0..LLVMCountParams(function) {
                let parameter = LLVMGetParam(function, index);
                parameters.push(self.parameter(function, parameter, index));
            }
            let is_variadic = LLVMIsFunctionVarArg(ty) != 0;
            let further = is_variadic.then(|| self.pointer_to(ObjectKind::Arguments(function), 0));
            let result = self
                .is_carrier(LLVMGetReturnType(ty))
                .then(|| self.constraints.variable());
            Function {
                parameters,
                further,
                result,
            }
        }
    }

    /// The variables of the function whose body is at hand: of the clone, if it is one.
    unsafe fn at_hand(&mut self, function: LLVMValueRef) -> Function {
        match self.frames.last() {
            Some(frame) => frame.record.clone(),
            // SAFETY: a function.
            None => unsafe { self.declare(function) },
        }
    }

    unsafe fn parameter(&mut self, function: LLVMValueRef, parameter: LLVMValueRef, index: u32) -> Option<Variable> {
        // SAFETY: a parameter of this function.
        unsafe {
            let variable = self.value(parameter)?;
            let attribute = LLVMGetEnumAttributeAtIndex(function, index + 1, self.by_value);
            if attribute.is_null() {
                return Some(variable);
            }
            // The callee has a copy.
            let size = self.size_of(LLVMGetTypeAttributeValue(attribute));
            let given = self.constraints.variable();
            let object = self.object(ObjectKind::Stack(parameter), size);
            self.constraints.address(variable, object);
            self.constraints.push(Constraint::CopyMemory {
                to: variable,
                from: given,
                length: Some(size),
            });
            Some(given)
        }
    }

    unsafe fn global(&mut self, global: LLVMValueRef) {
        // SAFETY: a global variable.
        unsafe {
            if name(global).starts_with("llvm.") {
                return;
            }
            let object = self.global_object(global);
            if LLVMIsDeclaration(global) != 0 {
                let Some(address) = self.value(global) else { return };
                self.escape(address);
                return;
            }
            self.initialise(object, 0, LLVMGetInitializer(global));
        }
    }

    /// The object of a global variable or function.
    unsafe fn global_object(&mut self, global: LLVMValueRef) -> ObjectId {
        if let Some(object) = self.globals.get(&global) {
            return *object;
        }
        // SAFETY: a global value.
        if unsafe { self.is_plain_constant(global) } {
            let object = match self.plain_constants {
                Some(object) => object,
                None => self.object(ObjectKind::Constants, 0),
            };
            self.constraints.objects[object.0 as usize].is_constant = true;
            self.plain_constants = Some(object);
            self.globals.insert(global, object);
            return object;
        }
        // SAFETY: a global value.
        let is_constant = unsafe {
            !LLVMIsAGlobalVariable(global).is_null() && LLVMIsGlobalConstant(global) != 0
                || !LLVMIsAFunction(global).is_null()
        };
        // SAFETY: a global value.
        let (kind, end) = unsafe {
            match LLVMGetValueKind(global) {
                LLVMValueKind::LLVMFunctionValueKind => (ObjectKind::Function(global), 0),
                _ => {
                    let ty = LLVMGlobalGetValueType(global);
                    let size = if LLVMTypeIsSized(ty) != 0 {
                        self.size_of(ty)
                    } else {
                        UNKNOWN_SIZE
                    };
                    (ObjectKind::Global(global), size)
                }
            }
        };
        let object = self.object(kind, end);
        self.constraints.objects[object.0 as usize].is_constant = is_constant;
        self.globals.insert(global, object);
        object
    }

    /// A constant of numbers alone.
    unsafe fn is_plain_constant(&mut self, global: LLVMValueRef) -> bool {
        // SAFETY: a global value, which has an initialiser if it is a variable and no declaration.
        unsafe {
            !LLVMIsAGlobalVariable(global).is_null()
                && LLVMIsGlobalConstant(global) != 0
                && LLVMIsDeclaration(global) == 0
                && {
                    let initial = LLVMGetInitializer(global);
                    LLVMGetValueKind(initial) == LLVMValueKind::LLVMConstantDataArrayValueKind
                        || !self.is_carrier(LLVMTypeOf(initial))
                }
        }
    }

    /// Stores the pointers of a constant at an offset of an object.
    unsafe fn initialise(&mut self, object: ObjectId, offset: u32, constant: LLVMValueRef) {
        // SAFETY: a constant, whose parts are constants.
        unsafe {
            let ty = LLVMTypeOf(constant);
            if constant.is_null() || LLVMIsNull(constant) != 0 || !self.is_carrier(ty) {
                return;
            }
            match LLVMGetValueKind(constant) {
                LLVMValueKind::LLVMConstantStructValueKind => {
                    for index in 0..LLVMGetNumOperands(constant) as u32 {
                        let at = llvm_sys::target::LLVMOffsetOfElement(self.layout, ty, index) as u32;
                        self.initialise(object, offset + at, LLVMGetOperand(constant, index));
                    }
                }
                LLVMValueKind::LLVMConstantArrayValueKind | LLVMValueKind::LLVMConstantVectorValueKind => {
                    let step = self.size_of(LLVMGetElementType(ty));
                    for index in 0..LLVMGetNumOperands(constant) as u32 {
                        self.initialise(object, offset + index * step, LLVMGetOperand(constant, index));
                    }
                }
                _ => {
                    let Some(value) = self.value(constant) else { return };
                    let from = value;
                    self.constraints.push(Constraint::Initialise { object, offset, from });
                }
            }
        }
    }

    unsafe fn body(&mut self, function: LLVMValueRef) {
        // SAFETY: a function with a body.
        unsafe {
            let Function { result, .. } = self.at_hand(function);
            for block in blocks(function) {
                let mut instruction = LLVMGetFirstInstruction(block);
                while !instruction.is_null() {
                    if LLVMGetInstructionOpcode(instruction) == LLVMOpcode::LLVMRet {
                        let returned = LLVMGetOperand(instruction, 0);
                        if let Some(result) = result
                            && LLVMGetNumOperands(instruction) == 1
                            && let Some(value) = self.value(returned)
                        {
                            self.constraints.copy(result, value);
                        }
                    } else {
                        self.instruction(function, instruction);
                    }
                    instruction = LLVMGetNextInstruction(instruction);
                }
            }
        }
    }

    /// Whether values of the type may hold a pointer.
    fn is_carrier(&mut self, ty: LLVMTypeRef) -> bool {
        if let Some(known) = self.carriers.get(&ty) {
            return *known;
        }
        // SAFETY: a type, and its parts.
        let is_carrier = unsafe {
            match LLVMGetTypeKind(ty) {
                LLVMTypeKind::LLVMPointerTypeKind => true,
                LLVMTypeKind::LLVMIntegerTypeKind => LLVMGetIntTypeWidth(ty) >= 64,
                LLVMTypeKind::LLVMStructTypeKind => (0..LLVMCountStructElementTypes(ty))
                    .any(|index| self.is_carrier(LLVMStructGetTypeAtIndex(ty, index))),
                LLVMTypeKind::LLVMArrayTypeKind | LLVMTypeKind::LLVMVectorTypeKind => {
                    self.is_carrier(LLVMGetElementType(ty))
                }
                _ => false,
            }
        };
        self.carriers.insert(ty, is_carrier);
        is_carrier
    }

    fn size_of(&self, ty: LLVMTypeRef) -> u32 {
        // SAFETY: a type of the module, with its layout; asked only for types that have a size.
        let size = unsafe { LLVMABISizeOfType(self.layout, ty) };
        u32::try_from(size).unwrap_or(u32::MAX / 2).min(u32::MAX / 2)
    }

    /// What an access of a value of this size touches besides its first pointer: its further ones.
    fn words(&self, size: u32) -> impl Iterator<Item = Shift> + use<> {
        (0..size.max(1).div_ceil(8)).map(|word| Shift::By(i64::from(word) * 8))
    }
}

pub(super) fn functions(module: LLVMModuleRef) -> impl Iterator<Item = LLVMValueRef> {
    // SAFETY: a live module, whose functions are not changed meanwhile.
    let first = unsafe { LLVMGetFirstFunction(module) };
    std::iter::successors((!first.is_null()).then_some(first), |function| {
        // SAFETY: a function of the module.
        let next = unsafe { LLVMGetNextFunction(*function) };
        (!next.is_null()).then_some(next)
    })
}

fn blocks(function: LLVMValueRef) -> impl Iterator<Item = LLVMBasicBlockRef> {
    // SAFETY: a function, and its blocks.
    let first = unsafe { LLVMGetFirstBasicBlock(function) };
    std::iter::successors((!first.is_null()).then_some(first), |block| {
        // SAFETY: a block of the function.
        let next = unsafe { LLVMGetNextBasicBlock(*block) };
        (!next.is_null()).then_some(next)
    })
}

fn instructions(block: LLVMBasicBlockRef) -> impl Iterator<Item = LLVMValueRef> {
    // SAFETY: a block, and its instructions.
    let first = unsafe { LLVMGetFirstInstruction(block) };
    std::iter::successors((!first.is_null()).then_some(first), |instruction| {
        // SAFETY: an instruction of the block.
        let next = unsafe { LLVMGetNextInstruction(*instruction) };
        (!next.is_null()).then_some(next)
    })
}

/// The name of a global value.
unsafe fn name(value: LLVMValueRef) -> String {
    let mut length = 0;
    // SAFETY: a global value; the bytes are LLVM's for as long as it lives.
    unsafe {
        let start = LLVMGetValueName2(value, &mut length);
        String::from_utf8_lossy(std::slice::from_raw_parts(start.cast::<u8>(), length)).into_owned()
    }
}
