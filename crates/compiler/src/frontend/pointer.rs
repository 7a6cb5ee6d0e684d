//! What a pointer points to, followed back through the front end's code.
//!
//! Two things tell a type. LLVM's pointers are opaque, but each GEP names the struct it steps into: this is what the source's
//! expression was cast to, whatever the pointer came from. And the variable that a pointer was loaded from, or the field, has a
//! declared type in the debug info. Before optimisation every local variable and parameter lives in memory (an `alloca`), so
//! pointers are loaded from there: they are followed to the one value that the function stores, else the declared type counts.

use std::collections::HashMap;
use std::rc::Rc;

use crashproof_sites::{Argument, Level, Place, Target, TypeIndex, layout};
use llvm_sys::{LLVMOpcode, LLVMTypeKind};

use super::ir::{IrType, Reading, Value};
use super::types::{Type, TypeId, Types};

/// Chains of pointers in real code are short; this bounds what a generated function can cost.
const MAX_DEPTH: usize = 24;
const MAX_STEPS: u32 = 1000;
const MAX_CALLS: usize = 4;

/// An address: some bytes into an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pointer {
    /// What the object is; `None`: not known.
    object: Option<TypeId>,
    /// From the object's start.
    offset: i64,
    /// Where the object itself lies.
    outer: Option<Rc<Outer>>,
    /// The parameter that the address comes from, and how far from it the address is.
    argument: Option<(u32, Option<i64>)>,
    /// The address is that of the value that is being followed, in a loop, and `offset` is the step.
    looped: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Outer {
    at: Pointer,
    /// If the object is an element of an array, at an index that is not a constant: the array's bytes (0: open-ended). `at` is where
    /// the array begins.
    array: Option<u64>,
}

impl Pointer {
    fn to(object: TypeId) -> Pointer {
        Pointer {
            object: Some(object),
            ..Pointer::default()
        }
    }

    fn loop_back() -> Pointer {
        Pointer {
            looped: true,
            ..Pointer::default()
        }
    }

    fn is_known(&self) -> bool {
        self.object.is_some() || self.argument.is_some() || self.outer.is_some()
    }

    /// As it is for those who do not know the function's arguments.
    fn without_arguments(&self) -> Pointer {
        let outer = self.outer.as_ref().map(|outer| {
            Rc::new(Outer {
                at: outer.at.without_arguments(),
                array: outer.array,
            })
        });
        Pointer {
            outer,
            argument: None,
            ..self.clone()
        }
    }

    fn advance(&mut self, bytes: i64) {
        self.offset = self.offset.wrapping_add(bytes);
        if let Some((_, Some(offset))) = &mut self.argument {
            *offset = offset.wrapping_add(bytes);
        }
    }

    /// Adds a number of steps that is not a constant.
    fn vary(self, step: u64, types: &Types) -> Pointer {
        if self.looped {
            return Pointer {
                offset: step as i64,
                ..self
            };
        }
        let argument = self.argument.map(|(index, _)| (index, None));
        let unknown = Pointer {
            argument,
            ..Pointer::default()
        };
        let Some((object, start)) = self.object.zip(u64::try_from(self.offset).ok()) else {
            return unknown;
        };
        // An array of such elements that the address is in, or an object that is one such element of an array unseen.
        let mut found = None;
        let mut at = Some((object, start, 0));
        while let Some((ty, within, base)) = at {
            match types.get(ty) {
                Type::Array { element, size, stride } if stride == step => {
                    found = Some((Some((base, size)), element, within))
                }
                Type::Composite(_) if types.size(ty) == Some(step) && found.is_none() => {
                    found = Some((None, ty, within))
                }
                _ => {}
            }
            at = part_at(types, ty, within).map(|(part, offset)| (part, within - offset, base + offset));
        }
        let Some((array, element, within)) = found else {
            return match types.get(object) {
                // p[i] of a pointer to numbers.
                Type::Scalar | Type::Pointer => Pointer {
                    object: Some(object),
                    ..unknown
                },
                // (char *)p + n: some byte of the object, if not of another behind it.
                Type::Composite(_) => {
                    let size = types.size(object);
                    let start = Pointer {
                        offset: 0,
                        argument: None,
                        ..self
                    };
                    Pointer {
                        outer: Some(Rc::new(Outer { at: start, array: size })),
                        ..unknown
                    }
                }
                _ => unknown,
            };
        };
        let within = if step == 0 { 0 } else { within % step };
        let mut pointer = Pointer::to(element);
        pointer.offset = within as i64;
        pointer.argument = argument;
        if let Some((base, size)) = array {
            let mut outer = self;
            // The argument leads to the array's owner, which is on the way out.
            outer.argument = outer
                .argument
                .map(|(index, offset)| (index, offset.map(|o| o - outer.offset + base as i64)));
            outer.offset = base as i64;
            pointer.argument = None;
            pointer.outer = Some(Rc::new(Outer {
                at: outer,
                array: Some(size),
            }));
        }
        pointer
    }

    /// What the source's cast, or its mere field access, says that the address is: the start of a struct.
    fn cast(self, structure: IrType, module: &Reading, types: &mut Types) -> Pointer {
        let Some(name) = structure.struct_name().map(plain_struct_name) else {
            return self;
        };
        if self.looped {
            return self;
        }
        let size = module.size_of(structure);
        if let Some(object) = self.object
            && let Ok(offset) = u64::try_from(self.offset)
        {
            let is_it = |types: &Types, composite: TypeIndex| {
                types.composites[composite as usize].size == size && same_name(types.plain_name(composite), name)
            };
            // Already seen as such, or a member of a union on the way.
            let mut at = Some((object, offset));
            while let Some((ty, within)) = at {
                if let Type::Composite(composite) = types.get(ty) {
                    if within == 0 && is_it(types, composite) {
                        return self;
                    }
                    if types.composites[composite as usize].is_union
                        && let Some((member, inside)) = union_member(types, composite, within, |c| is_it(types, c))
                    {
                        let mut pointer = Pointer::to(member);
                        pointer.offset = inside as i64;
                        pointer.outer = Some(Rc::new(Outer { at: self, array: None }));
                        return pointer;
                    }
                }
                at = part_at(types, ty, within).map(|(part, offset)| (part, within - offset));
            }
            // A base class without the tail padding that only whole objects have.
            if name.ends_with(".base") {
                return self;
            }
        }
        let candidates = types.named_composites(name.trim_end_matches(".base"), size);
        match candidates[..] {
            [object] => Pointer {
                argument: self.argument,
                ..Pointer::to(object)
            },
            // Template instances are hard to tell apart; what the pointer was before is not it.
            _ => Pointer {
                argument: self.argument,
                ..Pointer::default()
            },
        }
    }

    /// What the bytes are: `size` of them, or a mere pointer.
    pub fn target(&self, size: Option<u64>, function: &str, types: &Types) -> Target {
        let argument = |(index, offset): (u32, Option<i64>)| Argument {
            function: function.to_owned(),
            index,
            offset,
        };
        let mut levels = Vec::new();
        let outermost = self.levels(size, types, &mut levels);
        match outermost.argument {
            Some(found) if levels.is_empty() => Target::Argument(argument(found)),
            _ if levels.is_empty() => match outermost.object.map(|ty| types.get(ty)) {
                Some(Type::Scalar | Type::Pointer | Type::Array { .. }) => Target::NoStruct,
                _ => Target::Unknown,
            },
            found => Target::Place(Place {
                levels,
                size,
                argument: found.map(argument),
            }),
        }
    }

    /// Innermost first; returns the outermost pointer.
    fn levels(&self, size: Option<u64>, types: &Types, levels: &mut Vec<Level>) -> &Pointer {
        levels.extend(self.inside(size, types));
        let mut from = self;
        // Once an index is not constant, all that is further out is known up to the array.
        let mut displacement = Some(self.offset);
        let mut array = None;
        while let Some(outer) = &from.outer {
            match outer.array {
                Some(bytes) => (displacement, array) = (None, Some(bytes)),
                None => displacement = displacement.map(|d| d + outer.at.offset),
            }
            let mut place = outer.at.clone();
            let wanted = match (displacement, array) {
                (Some(exact), _) => {
                    place.offset = exact;
                    size
                }
                // More than one element, so as not to count the element itself again.
                (None, bytes) => {
                    bytes.map(|bytes| bytes.max(from.object.and_then(|ty| types.size(ty)).unwrap_or(0) + 1))
                }
            };
            let bytes = array;
            levels.extend(
                place
                    .inside(wanted, types)
                    .into_iter()
                    .map(|level| Level { array: bytes, ..level }),
            );
            from = &outer.at;
        }
        from
    }

    /// The structs around the address within the object, innermost first.
    fn inside(&self, size: Option<u64>, types: &Types) -> Vec<Level> {
        let Some((mut ty, mut offset)) = self.object.zip(u64::try_from(self.offset).ok()) else {
            return Vec::new();
        };
        while let Type::Array { element, stride, .. } = types.get(ty) {
            ty = element;
            offset = offset.checked_rem(stride).unwrap_or(0);
        }
        let Type::Composite(composite) = types.get(ty) else {
            return Vec::new();
        };
        let whole = types.composites[composite as usize].size;
        if offset >= whole {
            // The next element of an array unseen, or bytes behind a header: of a struct with an open end, the latter.
            let open_end = types.composites[composite as usize]
                .fields
                .last()
                .is_some_and(|field| field.offset >= whole || field.elements == Some(0));
            if !open_end {
                offset = offset.checked_rem(whole).unwrap_or(0);
            }
        }
        let nested = layout::nest(&types.composites, composite, offset, size);
        nested.into_iter().rev().map(Level::from).collect()
    }
}

/// The field of a struct, or the element of an array, that holds the byte, and its offset. Unions have no one such field.
fn part_at(types: &Types, ty: TypeId, offset: u64) -> Option<(TypeId, u64)> {
    match types.get(ty) {
        Type::Array { element, size, stride } if offset < size || size == 0 => {
            Some((element, offset - offset.checked_rem(stride)?))
        }
        Type::Composite(composite) => {
            let info = &types.composites[composite as usize];
            if info.is_union && info.fields.len() != 1 {
                return None;
            }
            let holds = |field: &crashproof_sites::Field| {
                let open_end = field.size == 0 && field.elements.is_some();
                field.offset <= offset && (offset - field.offset < field.size || open_end)
            };
            let index = info.fields.iter().position(holds)?;
            Some((types.field_type(composite, index), info.fields[index].offset))
        }
        _ => None,
    }
}

/// A struct that the members of a union have at the address.
fn union_member(
    types: &Types,
    union: TypeIndex,
    offset: u64,
    is_it: impl Fn(TypeIndex) -> bool,
) -> Option<(TypeId, u64)> {
    let fields = &types.composites[union as usize].fields;
    (0..fields.len()).find_map(|index| {
        let mut at = Some((
            types.field_type(union, index),
            offset.checked_sub(fields[index].offset)?,
        ));
        while let Some((ty, within)) = at {
            if let Type::Composite(composite) = types.get(ty)
                && within == 0
                && is_it(composite)
            {
                return Some((ty, 0));
            }
            at = part_at(types, ty, within).map(|(part, start)| (part, within - start));
        }
        None
    })
}

/// `struct.node.12` is `node`.
fn plain_struct_name(name: &str) -> &str {
    let name = ["struct.", "class.", "union."]
        .iter()
        .find_map(|prefix| name.strip_prefix(prefix))
        .unwrap_or(name);
    let name = match name.rsplit_once('.') {
        Some((front, number)) if !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()) => front,
        _ => name,
    };
    // Nested in namespaces and classes; the debug info's own name is the last part.
    name.rsplit("::").next().unwrap_or(name)
}

/// LLVM leaves out template arguments, and calls unnamed types `anon`.
fn same_name(declared: &str, llvm: &str) -> bool {
    let llvm = llvm.trim_end_matches(".base");
    declared == llvm || llvm == "anon" || declared.split('<').next() == Some(llvm)
}

/// Follows the pointers of one function.
pub struct Walker<'a, 'm> {
    pub module: &'a Reading<'m>,
    pub types: &'a mut Types<'m>,
    parameters: HashMap<Value<'m>, u32>,
    /// The types of variables, by where they are.
    declared: HashMap<Value<'m>, TypeId>,
    /// What the function stores into each of its local variables.
    stored: HashMap<Value<'m>, Vec<Value<'m>>>,
    known: HashMap<Value<'m>, Pointer>,
    /// Being followed: a loop.
    open: Vec<Value<'m>>,
    /// Steps that following one pointer may yet take.
    budget: u32,
    context: &'a mut Context<'m>,
    /// Calls between the function that is looked at and this one.
    depth: usize,
}

impl<'a, 'm> Walker<'a, 'm> {
    pub fn new(
        function: Value<'m>,
        module: &'a Reading<'m>,
        types: &'a mut Types<'m>,
        context: &'a mut Context<'m>,
    ) -> Walker<'a, 'm> {
        let mut declared = HashMap::new();
        let mut stored: HashMap<Value<'m>, Vec<Value<'m>>> = HashMap::new();
        for instruction in function.instructions() {
            match instruction.opcode() {
                Some(LLVMOpcode::LLVMStore) => {
                    if let Some((value, address)) = instruction.operand(0).zip(instruction.operand(1))
                        && address.opcode() == Some(LLVMOpcode::LLVMAlloca)
                    {
                        stored.entry(address).or_default().push(value);
                    }
                }
                Some(LLVMOpcode::LLVMCall) => {
                    if let Some((storage, variable)) = instruction.declares() {
                        types.add_root(variable);
                        let ty = types.of(variable.operand(3));
                        declared.entry(storage).or_insert(ty);
                    }
                }
                _ => {}
            }
        }
        Walker {
            module,
            types,
            parameters: function.parameters().zip(0..).collect(),
            declared,
            stored,
            known: HashMap::new(),
            open: Vec::new(),
            budget: 0,
            context,
            depth: 0,
        }
    }

    pub fn follow(&mut self, value: Value<'m>) -> Pointer {
        if let Some(known) = self.known.get(&value) {
            return known.clone();
        }
        if self.open.contains(&value) {
            return Pointer::loop_back();
        }
        if self.open.is_empty() {
            self.budget = MAX_STEPS;
        }
        if self.open.len() >= MAX_DEPTH || self.budget == 0 {
            return Pointer::default();
        }
        self.budget -= 1;
        self.open.push(value);
        let pointer = self.follow_new(value);
        self.open.pop();
        // What was found within a loop may be found more precisely from outside it.
        if self.open.is_empty() {
            self.known.insert(value, pointer.clone());
        }
        pointer
    }

    fn follow_new(&mut self, value: Value<'m>) -> Pointer {
        if let Some(&ty) = self.declared.get(&value) {
            return Pointer::to(ty);
        }
        if let Some(&index) = self.parameters.get(&value) {
            return Pointer {
                argument: Some((index, Some(0))),
                ..Pointer::default()
            };
        }
        if value.is_global() {
            return self.global(value).map_or_else(Pointer::default, Pointer::to);
        }
        match value.opcode() {
            Some(LLVMOpcode::LLVMGetElementPtr) => self.element(value),
            Some(LLVMOpcode::LLVMBitCast | LLVMOpcode::LLVMAddrSpaceCast | LLVMOpcode::LLVMFreeze) => {
                self.follow_operand(value, 0)
            }
            Some(LLVMOpcode::LLVMIntToPtr) => self.integer(value),
            Some(LLVMOpcode::LLVMLoad) => self.load(value),
            Some(LLVMOpcode::LLVMPHI) => self.meet(value.incoming().collect()),
            Some(LLVMOpcode::LLVMSelect) => self.meet([1, 2].into_iter().filter_map(|i| value.operand(i)).collect()),
            Some(LLVMOpcode::LLVMCall | LLVMOpcode::LLVMInvoke) => self.result(value),
            _ => Pointer::default(),
        }
    }

    fn follow_operand(&mut self, value: Value<'m>, index: u32) -> Pointer {
        value
            .operand(index)
            .map_or_else(Pointer::default, |operand| self.follow(operand))
    }

    fn global(&mut self, global: Value<'m>) -> Option<TypeId> {
        let types = &mut *self.types;
        *self.context.globals.entry(global).or_insert_with(|| {
            let variable = global.global_variable()?;
            Some(types.of(variable.operand(3)))
        })
    }

    fn element(&mut self, gep: Value<'m>) -> Pointer {
        let mut pointer = self.follow_operand(gep, 0);
        let mut ty = gep.source_element();
        pointer = pointer.cast(ty, self.module, self.types);
        for operand in 1..gep.operand_count() {
            let Some(index) = gep.operand(operand) else {
                return Pointer::default();
            };
            if operand > 1 {
                let member = index.constant().unwrap_or(0) as u32;
                let is_struct = ty.kind() == LLVMTypeKind::LLVMStructTypeKind;
                if is_struct {
                    pointer = pointer.cast(ty, self.module, self.types);
                    pointer.advance(self.module.offset_of(ty, member) as i64);
                }
                let Some(part) = ty.element(member) else { return pointer };
                ty = part;
                if is_struct {
                    continue;
                }
            }
            let step = self.module.size_of(ty);
            match index.constant() {
                Some(constant) => pointer.advance(constant.wrapping_mul(step as i64)),
                None => pointer = pointer.vary(step, self.types),
            }
        }
        pointer
    }

    /// (T *)((uintptr_t)p + n)
    fn integer(&mut self, cast: Value<'m>) -> Pointer {
        let mut offset = Some(0i64);
        let mut value = cast.operand(0);
        for _ in 0..MAX_DEPTH {
            let Some(current) = value else { break };
            let constant = |index| current.operand(index).and_then(Value::constant);
            value = match current.opcode() {
                Some(LLVMOpcode::LLVMPtrToInt) => {
                    let mut pointer = self.follow_operand(current, 0);
                    match offset {
                        Some(offset) => pointer.advance(offset),
                        None => pointer = pointer.vary(0, self.types),
                    }
                    return pointer;
                }
                Some(LLVMOpcode::LLVMAdd) => {
                    offset = offset
                        .zip(constant(1))
                        .map(|(offset, constant)| offset.wrapping_add(constant));
                    current.operand(0)
                }
                Some(LLVMOpcode::LLVMSub) => {
                    offset = offset
                        .zip(constant(1))
                        .map(|(offset, constant)| offset.wrapping_sub(constant));
                    current.operand(0)
                }
                // Aligning down, tagging and untagging.
                Some(LLVMOpcode::LLVMAnd | LLVMOpcode::LLVMOr | LLVMOpcode::LLVMXor) => current.operand(0),
                _ => None,
            };
        }
        Pointer::default()
    }

    fn load(&mut self, load: Value<'m>) -> Pointer {
        let Some(address) = load.operand(0) else {
            return Pointer::default();
        };
        let declared = match self.declared.get(&address) {
            Some(&variable) => self.types.pointee(variable),
            None => {
                let holder = self.follow(address);
                self.field_type(&holder).and_then(|ty| self.types.pointee(ty))
            }
        };
        let stored = match self.stored.get(&address) {
            // All loads of a variable are one in this: p++ loads it too.
            Some(_) if self.open.contains(&address) => Pointer::loop_back(),
            Some(values) => {
                let values = values.clone();
                self.open.push(address);
                let met = self.meet(values);
                self.open.pop();
                met
            }
            None => Pointer::default(),
        };
        let Some(declared) = declared.filter(|_| !stored.looped) else {
            return stored;
        };
        match self.types.get(declared) {
            // What flows there is as declared, and says more: where that object lies.
            Type::Composite(_) | Type::Array { .. } if self.is_at(&stored, declared) => stored,
            Type::Composite(_) | Type::Array { .. } => Pointer {
                argument: stored.argument,
                ..Pointer::to(declared)
            },
            _ if stored.is_known() => stored,
            _ => Pointer::to(declared),
        }
    }

    /// The declared type of what lies at the address.
    fn field_type(&self, pointer: &Pointer) -> Option<TypeId> {
        let (mut ty, mut offset) = pointer.object.zip(u64::try_from(pointer.offset).ok())?;
        while let Some((part, start)) = part_at(self.types, ty, offset) {
            (ty, offset) = (part, offset - start);
        }
        (offset == 0).then_some(ty)
    }

    /// Whether an object of this type begins where the pointer points to.
    fn is_at(&self, pointer: &Pointer, wanted: TypeId) -> bool {
        let Some((mut ty, mut offset)) = pointer.object.zip(u64::try_from(pointer.offset).ok()) else {
            return false;
        };
        loop {
            if ty == wanted && offset == 0 {
                return true;
            }
            match part_at(self.types, ty, offset) {
                Some((part, start)) => (ty, offset) = (part, offset - start),
                None => return false,
            }
        }
    }

    /// What all of the values that can be told point to.
    fn meet(&mut self, values: Vec<Value<'m>>) -> Pointer {
        let mut met: Option<Pointer> = None;
        let mut step = 0;
        for value in values {
            let pointer = self.follow(value);
            // In a loop, p++ or p += n.
            if pointer.looped && pointer.offset != 0 {
                step = pointer.offset.unsigned_abs();
            }
            if !pointer.is_known() {
                continue;
            }
            met = match met {
                None => Some(pointer),
                Some(other) if other == pointer => Some(other),
                // The same type in different places.
                Some(other)
                    if other.object.is_some() && (other.object, other.offset) == (pointer.object, pointer.offset) =>
                {
                    Some(Pointer {
                        object: other.object,
                        offset: other.offset,
                        ..Pointer::default()
                    })
                }
                Some(_) => return Pointer::default(),
            };
        }
        let met = met.unwrap_or_default();
        if step == 0 { met } else { met.vary(step, self.types) }
    }

    fn result(&mut self, call: Value<'m>) -> Pointer {
        let Some(callee) = call.callee().filter(|callee| callee.is_function()) else {
            return Pointer::default();
        };
        const RETURN_THEIR_ARGUMENT: [&str; 6] = [
            "llvm.launder.invariant.group",
            "llvm.strip.invariant.group",
            "llvm.ptr.annotation",
            "llvm.threadlocal.address",
            "llvm.ptrmask",
            "llvm.preserve.",
        ];
        let name = callee.name();
        if RETURN_THEIR_ARGUMENT.iter().any(|known| name.starts_with(known))
            || crashproof_sites::destination(name) == Some(0)
        {
            return self.follow_operand(call, 0);
        }
        let summary = self.returned(callee);
        if summary.looped {
            return summary;
        }
        if let Some((index, Some(offset))) = summary.argument
            && index < call.argument_count()
        {
            let mut passed = self.follow_operand(call, index);
            passed.advance(offset);
            if passed.object.is_some() || summary.object.is_none() {
                return passed;
            }
        }
        if summary
            .object
            .is_some_and(|ty| !matches!(self.types.get(ty), Type::Opaque))
            || summary.outer.is_some()
        {
            return summary.without_arguments();
        }
        let returned = callee
            .subprogram()
            .and_then(|subprogram| subprogram.operand(4)?.operand(3)?.operand(0));
        let Some(returned) = returned else {
            return Pointer::default();
        };
        let ty = self.types.of(Some(returned));
        self.types.pointee(ty).map_or_else(Pointer::default, Pointer::to)
    }

    /// What a function of this module returns, in terms of its own arguments.
    fn returned(&mut self, function: Value<'m>) -> Pointer {
        if let Some(known) = self.context.returned.get(&function) {
            return known.clone();
        }
        if self.depth >= MAX_CALLS {
            return Pointer::default();
        }
        // A recursion returns what its end returns.
        self.context.returned.insert(function, Pointer::loop_back());
        let returns: Vec<Value<'m>> = function
            .instructions()
            .filter(|instruction| instruction.opcode() == Some(LLVMOpcode::LLVMRet))
            .filter_map(|instruction| instruction.operand(0))
            .filter(|value| value.is_pointer())
            .collect();
        let mut pointer = Pointer::default();
        if !returns.is_empty() {
            let mut walker = Walker::new(function, self.module, self.types, self.context);
            walker.depth = self.depth + 1;
            walker.budget = MAX_STEPS;
            // Not as a start of its own: the steps are counted together.
            walker.open.push(function);
            pointer = walker.meet(returns);
            pointer.looped = false;
        }
        self.context.returned.insert(function, pointer.clone());
        pointer
    }
}

/// What the functions of a module have in common.
#[derive(Default)]
pub struct Context<'m> {
    /// The types of global variables.
    globals: HashMap<Value<'m>, Option<TypeId>>,
    returned: HashMap<Value<'m>, Pointer>,
}
