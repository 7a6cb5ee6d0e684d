//! Goes through all functions of the front end's module and notes what each store and each call refers to.

use std::cell::RefCell;
use std::collections::HashMap;

use crashproof_llvm::{Module, Node, Opcode, Value};
use crashproof_sites::pointer::Pointer;
use crashproof_sites::{Call, Location, Target};

use super::types::Types;
use super::walker::{Context, Walker};
use super::{Exported, FrontEnd, Function, Position};

/// Tells the objects apart that a function writes to, by the pointers it has to them.
pub(super) type Object = usize;

/// A store of the source, or another operation that writes memory.
pub(super) struct Access {
    pub position: Position,
    /// Bytes; `None`: not a constant.
    pub size: Option<u64>,
    pub target: Target,
    pub object: Object,
}

pub(super) fn read(module: &mut Module, with_loads: bool) -> FrontEnd {
    module.use_debug_intrinsics();
    let module = &*module;
    let mut types = Types::new(module);
    for subprogram in module.functions().filter_map(Value::subprogram) {
        types.add_root(subprogram);
        types.is_cplusplus |= subprogram.string(3).starts_with("_Z");
    }
    let mut functions: HashMap<String, Function> = HashMap::new();
    let mut calls = Vec::new();
    let mut context = Context::default();
    for function in module.functions() {
        let Some(subprogram) = function.subprogram() else {
            continue;
        };
        let name = linkage_name(subprogram);
        let file = source_file(subprogram);
        let mut visitor = Visitor {
            walker: Walker::new(function, module.layout(), &mut types, &mut context),
            name,
            file: &file,
            objects: HashMap::new(),
            accesses: Vec::new(),
            loads: HashMap::new(),
            calls: &mut calls,
        };
        for instruction in function.instructions() {
            visitor.visit(instruction);
            if with_loads {
                visitor.visit_loads(instruction);
            }
        }
        let (accesses, loads) = (visitor.accesses, visitor.loads);
        let mut by_position: HashMap<Position, Vec<usize>> = HashMap::new();
        for (index, access) in accesses.iter().enumerate() {
            by_position.entry(access.position).or_default().push(index);
        }
        functions.insert(
            name.to_owned(),
            Function {
                file,
                accesses,
                by_position,
                loads,
            },
        );
    }
    types.link_pointers();
    FrontEnd {
        functions,
        types: types.shapes.composites,
        calls,
        exported: RefCell::new(Exported::default()),
    }
}

/// As debug info has it, and so the line tables of the linked program.
pub(crate) fn linkage_name(subprogram: Node<'_>) -> &str {
    match subprogram.string(3) {
        "" => subprogram.string(2),
        name => name,
    }
}

pub(crate) fn source_file(scope: Node) -> String {
    let Some(file) = scope.operand(0) else {
        return String::new();
    };
    let (name, directory) = (file.string(0), file.string(1));
    if name.starts_with('/') || directory.is_empty() {
        name.to_owned()
    } else {
        format!("{directory}/{name}")
    }
}

struct Visitor<'a, 'm> {
    walker: Walker<'a, 'm>,
    name: &'m str,
    file: &'a str,
    objects: HashMap<Value<'m>, Object>,
    accesses: Vec<Access>,
    loads: HashMap<(Position, u32), Vec<Access>>,
    calls: &'a mut Vec<Call>,
}

impl<'m> Visitor<'_, 'm> {
    fn visit(&mut self, instruction: Value<'m>) {
        match instruction.opcode() {
            Some(Opcode::LLVMStore) => {
                let size = instruction
                    .operand(0)
                    .map(|value| self.walker.layout.store_size_of(value.ty()));
                self.access(instruction, 1, size);
            }
            Some(Opcode::LLVMAtomicRMW | Opcode::LLVMAtomicCmpXchg) => {
                let size = instruction
                    .operand(1)
                    .map(|value| self.walker.layout.store_size_of(value.ty()));
                self.access(instruction, 0, size);
            }
            Some(Opcode::LLVMCall | Opcode::LLVMInvoke) => self.call(instruction),
            _ => {}
        }
    }

    fn visit_loads(&mut self, instruction: Value<'m>) {
        let size_of = |visitor: &Self, value: Value<'m>| visitor.walker.layout.store_size_of(value.ty());
        match instruction.opcode() {
            Some(Opcode::LLVMLoad) => {
                let size = size_of(self, instruction);
                self.load(instruction, 0, Some(size));
            }
            Some(Opcode::LLVMAtomicRMW | Opcode::LLVMAtomicCmpXchg) => {
                let size = instruction.operand(1).map(|value| size_of(self, value));
                self.load(instruction, 0, size);
            }
            Some(Opcode::LLVMCall | Opcode::LLVMInvoke) => {
                let size = (0..instruction.argument_count())
                    .filter_map(|index| instruction.operand(index).filter(|value| !value.is_pointer()))
                    .find_map(Value::signed)
                    .and_then(|size| size.try_into().ok());
                for index in 0..instruction.argument_count() {
                    if instruction.operand(index).is_some_and(Value::is_pointer) {
                        self.load(instruction, index, size);
                    }
                }
            }
            _ => {}
        }
    }

    fn load(&mut self, instruction: Value<'m>, operand: u32, size: Option<u64>) {
        if let Some(access) = self.access_to(instruction, operand, size) {
            self.loads.entry((access.position, operand)).or_default().push(access);
        }
    }

    /// The operand `address` points to what is written.
    fn access(&mut self, instruction: Value<'m>, address: u32, size: Option<u64>) {
        let access = self.access_to(instruction, address, size);
        self.accesses.extend(access);
    }

    fn access_to(&mut self, instruction: Value<'m>, address: u32, size: Option<u64>) -> Option<Access> {
        let (position, address) = (instruction.debug_location()?, instruction.operand(address)?);
        let base = base(address);
        // The stack is no persistent memory, and temporaries share the positions of what they are for.
        if base.opcode() == Some(Opcode::LLVMAlloca) {
            return None;
        }
        let pointer = self.walker.follow(address);
        let target = pointer.target(size, self.name, &self.walker.types.shapes);
        let object = self.object(base);
        Some(Access {
            position: (position.line(), position.column()),
            size,
            target,
            object,
        })
    }

    /// The pointer, or the variable that it was loaded from.
    fn object(&mut self, mut base: Value<'m>) -> Object {
        if base.opcode() == Some(Opcode::LLVMLoad)
            && let Some(variable) = base.operand(0)
        {
            base = variable;
        }
        let next = self.objects.len();
        *self.objects.entry(base).or_insert(next)
    }

    fn call(&mut self, call: Value<'m>) {
        let callee = call.called_value();
        let name = callee.filter(|callee| callee.is_function()).map(Value::name);
        if callee.is_some_and(Value::is_intrinsic) {
            // What is left of them after optimisation becomes a call of the function.
            if let Some(function) = name.and_then(crashproof_library::intrinsic) {
                let size = call.operand(2).and_then(Value::signed);
                self.access(call, 0, size.and_then(|size| size.try_into().ok()));
                self.note_call(call, Some(function));
            }
            return;
        }
        if let Some(index) = name.and_then(crashproof_library::destination)
            && index < call.argument_count()
        {
            let size = (index + 2 < call.argument_count())
                .then(|| call.operand(index + 2))
                .flatten()
                .filter(|value| !value.is_pointer())
                .and_then(Value::signed);
            self.access(call, index, size.and_then(|size| size.try_into().ok()));
        }
        self.note_call(call, name);
    }

    fn note_call(&mut self, call: Value<'m>, callee: Option<&str>) {
        let Some(position) = call.debug_location() else { return };
        let arguments: Vec<(u32, Target)> = (0..call.argument_count())
            .filter_map(|index| {
                let argument = call.operand(index).filter(|value| value.is_pointer())?;
                let pointer: Pointer = self.walker.follow(argument);
                let target = pointer.target(None, self.name, &self.walker.types.shapes);
                (!matches!(target, Target::Unknown | Target::NoStruct)).then_some((index, target))
            })
            .collect();
        if arguments.is_empty() {
            return;
        }
        self.calls.push(Call {
            at: Location {
                function: self.name.to_owned(),
                file: self.file.to_owned(),
                line: position.line(),
                column: position.column(),
            },
            callee: callee.map(|name| name.trim_start_matches('\u{1}').to_owned()),
            arguments,
        });
    }
}

/// The pointer that an address was computed from.
fn base(mut address: Value) -> Value {
    while let Some(Opcode::LLVMGetElementPtr | Opcode::LLVMBitCast) = address.opcode()
        && let Some(from) = address.operand(0)
    {
        address = from;
    }
    address
}
