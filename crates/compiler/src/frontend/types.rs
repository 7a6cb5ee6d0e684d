//! The types of a module as its debug info has them: structs, classes and unions with their fields, and what lies between
//! them (arrays, pointers). A type is read when something asks for it, because a C++ module refers to thousands.

use std::collections::HashMap;

use crashproof_llvm::{Module, Node, NodeKind};
use crashproof_sites::pointer::{Shapes, Type, TypeId};
use crashproof_sites::{Field, TypeIndex, TypeInfo};

use super::dwarf;

pub(super) struct Types<'m> {
    pub shapes: Shapes,
    ids: HashMap<Node<'m>, TypeId>,
    pointees: HashMap<TypeId, Option<Node<'m>>>,
    /// Of each composite type without qualification, as LLVM's own struct types are named.
    plain_names: Vec<String>,
    /// All composite types of the module by their names, found when first asked for.
    by_name: Option<HashMap<&'m str, Vec<Node<'m>>>>,
    /// Where debug info is reached from: compile units, functions, variables.
    roots: Vec<Node<'m>>,
    opaque: TypeId,
    /// Types are named without `struct`.
    pub is_cplusplus: bool,
}

impl<'m> Types<'m> {
    pub(super) fn new(module: &'m Module) -> Types<'m> {
        Types {
            shapes: Shapes {
                types: vec![Type::Opaque],
                ..Shapes::default()
            },
            ids: HashMap::new(),
            pointees: HashMap::new(),
            plain_names: Vec::new(),
            by_name: None,
            roots: module.compile_units(),
            opaque: 0,
            is_cplusplus: false,
        }
    }

    pub(super) fn add_root(&mut self, root: Node<'m>) {
        self.roots.push(root);
    }

    pub(super) fn get(&self, id: TypeId) -> Type {
        self.shapes.get(id)
    }

    pub(super) fn plain_name(&self, composite: TypeIndex) -> &str {
        &self.plain_names[composite as usize]
    }

    /// The type of what a pointer or reference points to.
    pub(super) fn pointee(&mut self, pointer: TypeId) -> Option<TypeId> {
        let node = self.pointees.get(&pointer).copied()?;
        Some(self.of(node))
    }

    /// `None` is `void`.
    pub(super) fn of(&mut self, node: Option<Node<'m>>) -> TypeId {
        let Some(node) = node else { return self.opaque };
        if let Some(&id) = self.ids.get(&node) {
            return id;
        }
        match node.tag() {
            dwarf::TYPEDEF => {
                let id = self.of(node.operand(3));
                self.ids.insert(node, id);
                self.name_by_typedef(id, node);
                id
            }
            dwarf::CONST
            | dwarf::VOLATILE
            | dwarf::RESTRICT
            | dwarf::ATOMIC
            | dwarf::TEMPLATE_ALIAS
            | dwarf::MEMBER => {
                let id = self.of(node.operand(3));
                self.ids.insert(node, id);
                id
            }
            dwarf::POINTER | dwarf::REFERENCE | dwarf::RVALUE_REFERENCE => {
                let id = self.add(node, Type::Pointer);
                self.pointees.insert(id, node.operand(3));
                id
            }
            dwarf::ARRAY => self.array(node),
            dwarf::STRUCTURE | dwarf::CLASS | dwarf::UNION => self.composite(node),
            dwarf::BASE | dwarf::ENUMERATION => self.add(node, Type::Scalar),
            _ => self.add(node, Type::Opaque),
        }
    }

    fn add(&mut self, node: Node<'m>, ty: Type) -> TypeId {
        self.shapes.types.push(ty);
        self.ids.insert(node, self.shapes.types.len() - 1);
        self.shapes.types.len() - 1
    }

    /// An array of arrays is an array whose elements are arrays.
    fn array(&mut self, node: Node<'m>) -> TypeId {
        let mut id = self.of(node.operand(3));
        let mut size = node.operand(3).map_or(0, byte_size);
        let dimensions = node.operand(4).map_or_else(Vec::new, Node::nodes);
        for dimension in dimensions.iter().rev() {
            // An open end is a count of -1, a length only known at run time has no constant.
            let count = dimension
                .constant(0)
                .and_then(|count| u64::try_from(count).ok())
                .unwrap_or(0);
            let stride = size;
            size = size.saturating_mul(count);
            self.shapes.types.push(Type::Array {
                element: id,
                size,
                stride,
            });
            id = self.shapes.types.len() - 1;
        }
        self.ids.insert(node, id);
        id
    }

    fn composite(&mut self, node: Node<'m>) -> TypeId {
        if node.flags() & dwarf::FLAG_FORWARD != 0 {
            let definition = self.definition(node);
            let id = match definition {
                Some(definition) => self.of(Some(definition)),
                None => self.opaque,
            };
            self.ids.insert(node, id);
            return id;
        }
        let index = self.shapes.composites.len() as TypeIndex;
        let id = self.add(node, Type::Composite(index));
        self.shapes.composites.push(TypeInfo {
            name: qualified_name(node, self.is_cplusplus),
            size: byte_size(node),
            is_union: node.tag() == dwarf::UNION,
            fields: Vec::new(),
        });
        self.plain_names.push(node.string(2).to_owned());
        self.shapes.field_types.push(Vec::new());
        // The fields come after the type is known: they may point to it.
        let mut fields = Vec::new();
        let mut field_types = Vec::new();
        for element in node.operand(4).map_or_else(Vec::new, Node::nodes) {
            let is_base = element.tag() == dwarf::INHERITANCE;
            let skipped = if is_base {
                dwarf::FLAG_VIRTUAL
            } else {
                dwarf::FLAG_STATIC
            };
            if !(is_base || element.tag() == dwarf::MEMBER) || element.flags() & skipped != 0 {
                continue;
            }
            let ty = self.of(element.operand(3));
            fields.push(self.field(element, ty));
            field_types.push(ty);
        }
        self.shapes.composites[index as usize].fields = fields;
        self.shapes.field_types[index as usize] = field_types;
        id
    }

    fn field(&mut self, element: Node<'m>, ty: TypeId) -> Field {
        let (bits, size_in_bits) = (element.offset_in_bits(), element.size_in_bits());
        let size = match element.tag() {
            dwarf::INHERITANCE => self.shapes.size(ty).unwrap_or(0),
            _ => (bits + size_in_bits).div_ceil(8) - bits / 8,
        };
        let name = match element.string(2) {
            "" if element.tag() == dwarf::INHERITANCE => match self.shapes.types[ty] {
                Type::Composite(base) => self.shapes.composites[base as usize].name.clone(),
                _ => String::new(),
            },
            name => name.to_owned(),
        };
        let mut innermost = ty;
        let mut is_array = false;
        while let Type::Array { element, .. } = self.shapes.types[innermost] {
            innermost = element;
            is_array = true;
        }
        let composite = match self.shapes.types[innermost] {
            Type::Composite(index) => Some(index),
            _ => None,
        };
        let element_size = match composite {
            Some(index) => self.shapes.composites[index as usize].size,
            None => self.scalar_stride(ty).unwrap_or(0),
        };
        Field {
            name,
            offset: bits / 8,
            size,
            ty: composite,
            elements: is_array.then(|| size.checked_div(element_size).unwrap_or(0)),
            points_to: None,
        }
    }

    /// Bytes of the innermost element of an array.
    fn scalar_stride(&self, mut ty: TypeId) -> Option<u64> {
        let mut found = None;
        while let Type::Array { element, stride, .. } = self.shapes.types[ty] {
            (ty, found) = (element, Some(stride));
        }
        found
    }

    /// Fills in what pointer fields point to, of the types that are known by now: the others concern nobody.
    pub(super) fn link_pointers(&mut self) {
        for index in 0..self.shapes.composites.len() {
            for field in 0..self.shapes.composites[index].fields.len() {
                let Some(&Some(node)) = self.pointees.get(&self.shapes.field_types[index][field]) else {
                    continue;
                };
                if let Some(&id) = self.ids.get(&strip(node))
                    && let Type::Composite(pointee) = self.shapes.types[id]
                {
                    self.shapes.composites[index].fields[field].points_to = Some(pointee);
                }
            }
        }
    }

    /// `typedef struct { … } node;`
    fn name_by_typedef(&mut self, id: TypeId, typedef: Node<'m>) {
        if let Type::Composite(index) = self.shapes.types[id]
            && self.plain_names[index as usize].is_empty()
        {
            let plain = typedef.string(2);
            self.plain_names[index as usize] = plain.to_owned();
            self.shapes.composites[index as usize].name = qualify(typedef, plain);
        }
    }

    fn definition(&mut self, declaration: Node<'m>) -> Option<Node<'m>> {
        let identifier = declaration.string(7);
        let name = declaration.string(2);
        let same = |node: &&Node<'m>| node.string(2) == name && node.string(7) == identifier;
        self.named(name).iter().find(same).copied()
    }

    /// The composite types that LLVM's struct type `name`, of `size` bytes, may stand for.
    pub(super) fn named_composites(&mut self, name: &str, size: u64) -> Vec<TypeId> {
        let nodes: Vec<Node<'m>> = self.named(name).to_vec();
        nodes
            .into_iter()
            .filter(|&node| byte_size(node) == size)
            .map(|node| self.of(Some(node)))
            .collect()
    }

    /// Definitions of composite types with this name, without qualification and template arguments.
    fn named(&mut self, name: &str) -> &[Node<'m>] {
        let by_name = self.by_name.get_or_insert_with(|| all_composites(&self.roots));
        by_name.get(without_arguments(name)).map_or(&[], Vec::as_slice)
    }
}

/// Walks everything that the compile units and their types refer to.
fn all_composites<'m>(roots: &[Node<'m>]) -> HashMap<&'m str, Vec<Node<'m>>> {
    let mut found: HashMap<&'m str, Vec<Node<'m>>> = HashMap::new();
    let mut seen: HashMap<Node<'m>, ()> = roots.iter().map(|&node| (node, ())).collect();
    let mut pending = roots.to_vec();
    while let Some(node) = pending.pop() {
        let is_composite = matches!(node.tag(), dwarf::STRUCTURE | dwarf::CLASS | dwarf::UNION);
        if is_composite && node.flags() & dwarf::FLAG_FORWARD == 0 {
            found.entry(without_arguments(node.string(2))).or_default().push(node);
        }
        if node.tag() == dwarf::TYPEDEF
            && let Some(base) = node.operand(3)
            && matches!(base.tag(), dwarf::STRUCTURE | dwarf::CLASS | dwarf::UNION)
            && base.string(2).is_empty()
        {
            found.entry(node.string(2)).or_default().push(base);
        }
        for next in node.nodes() {
            if seen.insert(next, ()).is_none() {
                pending.push(next);
            }
        }
    }
    found
}

fn without_arguments(name: &str) -> &str {
    name.split('<').next().unwrap_or(name)
}

fn byte_size(node: Node) -> u64 {
    let node = strip(node);
    match node.size_in_bits() {
        0 => 0,
        bits => bits.div_ceil(8),
    }
}

/// Without typedefs and qualifiers, which have no size of their own.
fn strip(mut node: Node) -> Node {
    while matches!(
        node.tag(),
        dwarf::TYPEDEF | dwarf::CONST | dwarf::VOLATILE | dwarf::RESTRICT | dwarf::ATOMIC | dwarf::TEMPLATE_ALIAS
    ) && let Some(base) = node.operand(3)
    {
        node = base;
    }
    node
}

fn qualified_name(node: Node, is_cplusplus: bool) -> String {
    let plain = node.string(2);
    if plain.is_empty() {
        let file = node.operand(0).map_or("", |file| file.string(0));
        let file = file.rsplit('/').next().unwrap_or(file);
        return qualify(node, &format!("(unnamed {}:{})", file, node.line()));
    }
    let name = qualify(node, plain);
    match node.tag() {
        _ if is_cplusplus => name,
        dwarf::UNION => format!("union {name}"),
        _ => format!("struct {name}"),
    }
}

/// With the namespaces and classes around it.
fn qualify(node: Node, plain: &str) -> String {
    let mut name = plain.to_owned();
    let mut scope = node.operand(1);
    while let Some(outer) = scope {
        if matches!(
            outer.tag(),
            dwarf::NAMESPACE | dwarf::STRUCTURE | dwarf::CLASS | dwarf::UNION
        ) {
            let outer_name = outer.string(2);
            if !outer_name.is_empty() {
                name = format!("{outer_name}::{name}");
            } else if outer.tag() == dwarf::NAMESPACE {
                name = format!("(anonymous)::{name}");
            }
        }
        scope = match outer.kind() {
            // Functions and files name no type.
            NodeKind::LLVMDIFileMetadataKind | NodeKind::LLVMDICompileUnitMetadataKind => None,
            _ => outer.operand(1),
        };
    }
    name
}
