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

use crashproof_llvm::{Holder, Layout, Module, Opcode, Type, TypeKind, Value, ValueKind};
use rustc_hash::FxHashMap;

use allocators::{Allocators, Frame};

use super::ObjectKind;
use super::constraints::{Constraint, Constraints, Function, ObjectId, Variable};
use super::offsets::Shift;

/// Of memory whose size is not known, offsets are told apart up to here.
const UNKNOWN_SIZE: u32 = 256;

/// The constraints of a module, and what they are about.
pub(super) struct Generated<'m> {
    pub constraints: Constraints,
    pub values: FxHashMap<Value<'m>, Variable>,
    pub objects: Vec<ObjectKind<'m>>,
    pub fresh: FxHashMap<ObjectId, Variable>,
    /// The instruction of each [`Constraint::Call`], in their order.
    pub calls: Vec<Value<'m>>,
    /// The variables of values in the clones of their functions.
    pub clones: FxHashMap<Value<'m>, Vec<Variable>>,
}

pub(super) fn constraints<'m>(module: &'m Module) -> Generated<'m> {
    let mut generator = Generator::new(module.layout());
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

struct Generator<'m> {
    layout: Layout<'m>,
    constraints: Constraints,
    objects: Vec<ObjectKind<'m>>,
    /// `None`: holds no pointer.
    values: FxHashMap<Value<'m>, Option<Variable>>,
    /// Objects of globals and functions, and of what else is made once.
    globals: FxHashMap<Value<'m>, ObjectId>,
    functions: FxHashMap<Value<'m>, Function>,
    /// Local variables that are only loaded and stored.
    locals: FxHashMap<Value<'m>, bool>,
    /// What those hold.
    contents: FxHashMap<Value<'m>, Variable>,
    carriers: FxHashMap<Type<'m>, bool>,
    named: HashMap<String, Variable>,
    calls: Vec<Value<'m>>,
    fresh: FxHashMap<ObjectId, Variable>,
    unknown: Option<Variable>,
    /// The one object of all constants of numbers.
    plain_constants: Option<ObjectId>,
    allocators: Allocators<'m>,
    /// The clones that are being made, each in that before it.
    frames: Vec<Frame<'m>>,
    clones: FxHashMap<Value<'m>, Vec<Variable>>,
}

impl<'m> Generator<'m> {
    fn new(layout: Layout<'m>) -> Generator<'m> {
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
            allocators: Allocators::default(),
            frames: Vec::new(),
            clones: FxHashMap::default(),
        }
    }

    fn object(&mut self, kind: ObjectKind<'m>, end: u32) -> ObjectId {
        self.objects.push(kind);
        self.constraints.object(end)
    }

    /// A new object, and a variable that points to its begin.
    fn pointer_to(&mut self, kind: ObjectKind<'m>, end: u32) -> Variable {
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

    fn module(&mut self, module: &'m Module) {
        let main = module.function("main").filter(|main| main.has_body());
        let functions: Vec<Value> = module.functions().collect();
        let defined = || functions.iter().copied().filter(|function| function.has_body());
        for function in defined() {
            self.declare(function);
        }
        self.find_allocators(&functions);
        for global in module.globals() {
            self.global(global);
        }
        for function in defined() {
            self.body(function);
            // Called from outside, so with anything.
            if (Some(function) == main || main.is_none() && !function.is_local())
                && let Some(address) = self.value(function)
            {
                self.escape(address);
            }
        }
    }

    /// The variables of a function's parameters and result.
    fn declare(&mut self, function: Value<'m>) -> Function {
        if let Some(known) = self.functions.get(&function) {
            return known.clone();
        }
        let function_record = self.record(function);
        self.functions.insert(function, function_record.clone());
        let object = self.global_object(function);
        self.constraints.objects[object.0 as usize].function = Some(function_record.clone());
        if function.is_declaration() {
            let Function {
                parameters,
                further,
                result,
            } = function_record.clone();
            if let Some(further) = further {
                self.escape(further);
            }
            self.external(function.name(), &parameters, &[], result, function);
        }
        function_record
    }

    /// Variables for a function's parameters and result, in the clone that is being made or the function itself.
    fn record(&mut self, function: Value<'m>) -> Function {
        let mut parameters = Vec::new();
        for (parameter, index) in function.parameters().zip(0..) {
            parameters.push(self.parameter(function, parameter, index));
        }
        let is_variadic = function.is_variadic();
        let further = is_variadic.then(|| self.pointer_to(ObjectKind::Arguments(function), 0));
        let returned = function.value_type().and_then(Type::returned);
        let is_carrier = returned.is_some_and(|ty| self.is_carrier(ty));
        let result = is_carrier.then(|| self.constraints.variable());
        Function {
            parameters,
            further,
            result,
        }
    }

    /// The variables of the function whose body is at hand: of the clone, if it is one.
    fn at_hand(&mut self, function: Value<'m>) -> Function {
        match self.frames.last() {
            Some(frame) => frame.record.clone(),
            None => self.declare(function),
        }
    }

    fn parameter(&mut self, function: Value<'m>, parameter: Value<'m>, index: u32) -> Option<Variable> {
        let variable = self.value(parameter)?;
        let Some(attribute) = function.attribute(Holder::Parameter(index), "byval") else {
            return Some(variable);
        };
        // The callee has a copy.
        let size = attribute.ty().map_or(UNKNOWN_SIZE, |ty| self.size_of(ty));
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

    fn global(&mut self, global: Value<'m>) {
        if global.name().starts_with("llvm.") {
            return;
        }
        let object = self.global_object(global);
        if global.is_declaration() {
            let Some(address) = self.value(global) else { return };
            self.escape(address);
            return;
        }
        if let Some(initial) = global.initializer() {
            self.initialise(object, 0, initial);
        }
    }

    /// The object of a global variable or function.
    fn global_object(&mut self, global: Value<'m>) -> ObjectId {
        if let Some(object) = self.globals.get(&global) {
            return *object;
        }
        if self.is_plain_constant(global) {
            let object = match self.plain_constants {
                Some(object) => object,
                None => self.object(ObjectKind::Constants, 0),
            };
            self.constraints.objects[object.0 as usize].is_constant = true;
            self.plain_constants = Some(object);
            self.globals.insert(global, object);
            return object;
        }
        let is_constant = global.is_global_constant() || global.is_function();
        let (kind, end) = match global.is_function() {
            true => (ObjectKind::Function(global), 0),
            false => {
                let ty = global.value_type().filter(|ty| ty.is_sized());
                (
                    ObjectKind::Global(global),
                    ty.map_or(UNKNOWN_SIZE, |ty| self.size_of(ty)),
                )
            }
        };
        let object = self.object(kind, end);
        self.constraints.objects[object.0 as usize].is_constant = is_constant;
        self.globals.insert(global, object);
        object
    }

    /// A constant of numbers alone.
    fn is_plain_constant(&mut self, global: Value<'m>) -> bool {
        let initial = global.initializer().filter(|_| global.is_global_constant());
        initial.is_some_and(|initial| {
            initial.kind() == ValueKind::LLVMConstantDataArrayValueKind || !self.is_carrier(initial.ty())
        })
    }

    /// Stores the pointers of a constant at an offset of an object.
    fn initialise(&mut self, object: ObjectId, offset: u32, constant: Value<'m>) {
        let ty = constant.ty();
        if constant.is_null() || !self.is_carrier(ty) {
            return;
        }
        match constant.kind() {
            ValueKind::LLVMConstantStructValueKind => {
                for index in 0..constant.operand_count() {
                    let at = self.layout.offset_of(ty, index) as u32;
                    self.initialise(object, offset + at, constant.operand_at(index));
                }
            }
            ValueKind::LLVMConstantArrayValueKind | ValueKind::LLVMConstantVectorValueKind => {
                let step = ty.element(0).map_or(0, |element| self.size_of(element));
                for index in 0..constant.operand_count() {
                    self.initialise(object, offset + index * step, constant.operand_at(index));
                }
            }
            _ => {
                let Some(from) = self.value(constant) else { return };
                self.constraints.push(Constraint::Initialise { object, offset, from });
            }
        }
    }

    fn body(&mut self, function: Value<'m>) {
        let Function { result, .. } = self.at_hand(function);
        for instruction in function.instructions() {
            if instruction.opcode() != Some(Opcode::LLVMRet) {
                self.instruction(function, instruction);
            } else if let Some(result) = result
                && let Some(returned) = instruction.operand(0)
                && let Some(value) = self.value(returned)
            {
                self.constraints.copy(result, value);
            }
        }
    }

    /// Whether values of the type may hold a pointer.
    fn is_carrier(&mut self, ty: Type<'m>) -> bool {
        if let Some(known) = self.carriers.get(&ty) {
            return *known;
        }
        let is_carrier = match ty.kind() {
            TypeKind::LLVMPointerTypeKind => true,
            TypeKind::LLVMIntegerTypeKind => ty.bits() >= Some(64),
            TypeKind::LLVMStructTypeKind => {
                (0..ty.length() as u32).any(|index| ty.element(index).is_some_and(|ty| self.is_carrier(ty)))
            }
            TypeKind::LLVMArrayTypeKind | TypeKind::LLVMVectorTypeKind => {
                ty.element(0).is_some_and(|ty| self.is_carrier(ty))
            }
            _ => false,
        };
        self.carriers.insert(ty, is_carrier);
        is_carrier
    }

    fn size_of(&self, ty: Type) -> u32 {
        let size = self.layout.size_of(ty);
        u32::try_from(size).unwrap_or(u32::MAX / 2).min(u32::MAX / 2)
    }

    /// What an access of a value of this size touches besides its first pointer: its further ones.
    fn words(&self, size: u32) -> impl Iterator<Item = Shift> + use<> {
        (0..size.max(1).div_ceil(8)).map(|word| Shift::By(i64::from(word) * 8))
    }
}
