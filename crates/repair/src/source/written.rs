//! What a statement wrote: the expression at a store's position, and how to name its address and size again.

use clang::EntityKind;
use crashproof_library::{Effect, Extent, written};

use super::hint::Hint;
use super::refusal::Refusal;
use super::tree::{FunctionTree, NodeId};
use super::variants::visit_declarations;
use crate::plan::Position;

/// An expression that writes memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Write {
    pub node: NodeId,
    pub target: Target,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// An expression that is written.
    Lvalue(NodeId),
    /// A pointer to what is written: of an atomic operation.
    Pointee(NodeId),
    /// A range, by a known function.
    Range { address: NodeId, size: Size },
    /// A member of `this`, by an initialiser of a constructor.
    Member(NodeId),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    Bytes(NodeId),
    /// So many elements of so many bytes.
    Elements(NodeId, NodeId),
    /// So many wide characters.
    Wide(NodeId),
    /// A string and its terminator.
    String,
}

/// What is to be flushed, as source text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Flushed {
    pub address: String,
    pub size: String,
    /// Type of the address expression, to know which casts it needs.
    pub pointer: Pointer,
    /// The object that it is a member of, if it is.
    pub member_of: Option<Object>,
    /// Known not to cross a line: a number or pointer at its natural alignment.
    pub is_in_one_line: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pointer {
    pub is_const_or_volatile: bool,
    pub is_char: bool,
}

/// A struct around a member, as source text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Object {
    pub address: String,
    pub size: String,
    pub bytes: u64,
    /// Of the member.
    pub offset: u64,
    pub length: u64,
    /// If the member is a flexible array: how much of it was written, as a summand.
    pub tail: Option<String>,
}

impl<'a> FunctionTree<'a> {
    /// The writes that an instruction at the position may be.
    pub(crate) fn writes_at(&self, position: &Position, hint: &Hint) -> Result<Vec<Write>, Refusal> {
        let nothing = || Refusal::NoStatement {
            path: self.file.path.clone(),
            line: position.line,
        };
        let offset = self.file.offset(position.line, position.column).ok_or_else(nothing)?;
        let all: Vec<Write> = (0..self.nodes.len()).filter_map(|node| self.write(node)).collect();
        let mut found: Vec<Write> = all
            .iter()
            .copied()
            .filter(|write| self.is_at(write.node, offset))
            .collect();
        if let Some(callee) = &hint.callee {
            let called: Vec<Write> = found
                .iter()
                .copied()
                .filter(|write| self.calls(write.node, callee))
                .collect();
            match called.is_empty() {
                false => found = called,
                // Not a call in the source: a struct that is copied as a whole.
                true => found
                    .retain(|write| self.kind(write.node) != EntityKind::CallExpr || self.is_operator_call(write.node)),
            }
        } else {
            // A store is no call of a function that stores.
            found.retain(|write| !matches!(write.target, Target::Range { .. }));
        }
        if let Some(bytes) = hint.bytes
            && found.len() > 1
        {
            let same_size = |write: &&Write| self.bytes(write).is_none_or(|size| size == bytes);
            found = found.iter().filter(same_size).copied().collect();
        }
        if found.len() > 1 {
            // Variables of the function are not what a finding is about.
            found.retain(|write| !self.is_local_variable(write));
        }
        if found.is_empty() {
            // The parts of a value that is built in place have positions within it.
            let holds = |write: &&Write| match write.target {
                Target::Lvalue(left) if self.is_built_in_place(left) => {
                    let range = self.range(write.node);
                    self.range(left).end <= offset && offset < range.end && self.nodes[write.node].is_spelled
                }
                _ => false,
            };
            found.extend(
                all.iter()
                    .filter(holds)
                    .min_by_key(|write| self.range(write.node).len()),
            );
        }
        match found.is_empty() {
            true => Err(nothing()),
            false => Ok(found),
        }
    }

    /// The call at a position.
    pub(crate) fn call_at(&self, position: &Position, hint: &Hint) -> Result<NodeId, Refusal> {
        let nothing = || Refusal::NoStatement {
            path: self.file.path.clone(),
            line: position.line,
        };
        let offset = self.file.offset(position.line, position.column).ok_or_else(nothing)?;
        let is_call = |node: &NodeId| {
            matches!(self.kind(*node), EntityKind::CallExpr | EntityKind::AsmStmt)
                || self.is_atomic_operation(*node).is_some()
        };
        let found: Vec<NodeId> = (0..self.nodes.len())
            .filter(|node| is_call(node) && self.is_at(*node, offset))
            .collect();
        let named = |node: &&NodeId| hint.callee.as_ref().is_some_and(|callee| self.calls(**node, callee));
        found.iter().find(named).or(found.first()).copied().ok_or_else(nothing)
    }

    /// Whether the debug information has the expression at the offset.
    fn is_at(&self, node: NodeId, offset: usize) -> bool {
        let range = self.range(node);
        if range.is_empty() {
            return false;
        }
        // An operator that is written in the file is where it is, whatever its operands come from.
        if let Some(operator) = self.spelled_operator(node) {
            return operator == offset;
        }
        // From the definition of a macro: at the use.
        if !self.nodes[node].is_spelled
            || self
                .macro_around(&range)
                .is_some_and(|(used, _)| used.start < range.start)
        {
            let used = self.macro_around(&range).map_or(range.start, |(used, _)| used.start);
            return used == offset;
        }
        let member = || {
            let location = self.nodes[node].entity.get_location()?;
            let callee = self.nodes[self.child(node, 0)?].entity.get_location()?;
            Some([location, callee].map(|at| at.get_file_location().offset as usize))
        };
        match self.kind(node) {
            EntityKind::CallExpr => range.start == offset || member().is_some_and(|at| at.contains(&offset)),
            _ => range.start == offset,
        }
    }

    /// Where the operator of an expression is, if it is one and not from a macro.
    fn spelled_operator(&self, node: NodeId) -> Option<usize> {
        let offset = match self.kind(node) {
            EntityKind::BinaryOperator | EntityKind::CompoundAssignOperator | EntityKind::UnaryOperator => {
                self.operator_offset(node)?
            }
            EntityKind::CallExpr if self.is_operator_call(node) => self.operator_offset(node)?,
            _ => return None,
        };
        let token = self.file.next_token(offset)?;
        let text = self.file.token_text(token);
        let operator = match self.unary_operator(node) {
            Some((operator, _)) => operator,
            None => self.name(node).trim_start_matches("operator").to_owned(),
        };
        (text == operator).then_some(offset)
    }

    fn calls(&self, node: NodeId, callee: &str) -> bool {
        if self.kind(node) != EntityKind::CallExpr {
            return false;
        }
        let entity = self.nodes[node].entity.get_reference();
        let mangled = entity.and_then(|entity| entity.get_mangled_name());
        let name = self.name(node);
        let plain = plain_name(&name);
        mangled.as_deref() == Some(callee) || name == callee || plain == plain_name(callee)
    }

    /// `a = b` of a class, which libclang has as a call.
    fn is_operator_call(&self, node: NodeId) -> bool {
        self.kind(node) == EntityKind::CallExpr
            && self.name(node).starts_with("operator")
            && self.child(node, 0).is_some_and(|left| {
                let call = self.range(node);
                let left = self.range(left);
                left.start == call.start
                    && self.file.next_token(left.end).is_some_and(|token| {
                        let text = self.file.token_text(token);
                        text != "(" && text != "." && text != "->" && self.name(node).ends_with(text)
                    })
            })
    }

    /// The pointer of an operation of the `__atomic` and `__c11_atomic` families, which libclang does not expose as calls.
    fn is_atomic_operation(&self, node: NodeId) -> Option<NodeId> {
        if self.kind(node) != EntityKind::UnexposedExpr || self.nodes[node].children.len() < 2 {
            return None;
        }
        let pointer = self.child(node, 0)?;
        (self.ty(self.strip(pointer))?.get_kind() == clang::TypeKind::Pointer
            || self.ty(pointer)?.get_kind() == clang::TypeKind::Pointer)
            .then_some(pointer)
    }

    pub(crate) fn write(&self, node: NodeId) -> Option<Write> {
        let target = match self.kind(node) {
            EntityKind::BinaryOperator if self.name(node) == "=" => Target::Lvalue(self.child(node, 0)?),
            EntityKind::CompoundAssignOperator => Target::Lvalue(self.child(node, 0)?),
            EntityKind::UnaryOperator => match self.unary_operator(node)?.0.as_str() {
                "++" | "--" => Target::Lvalue(self.child(node, 0)?),
                _ => return None,
            },
            EntityKind::UnexposedExpr => Target::Pointee(self.is_atomic_operation(node)?),
            EntityKind::CallExpr if self.is_operator_call(node) => Target::Lvalue(self.child(node, 0)?),
            EntityKind::CallExpr => self.known_function(node)?,
            EntityKind::MemberRef if self.nodes[node].parent == Some(0) => Target::Member(node),
            _ => return None,
        };
        Some(Write { node, target })
    }

    fn known_function(&self, node: NodeId) -> Option<Target> {
        let name = self.name(node);
        let argument = |index: usize| self.child(node, index + 1);
        let range = |address: usize, size: Size| {
            Some(Target::Range {
                address: argument(address)?,
                size,
            })
        };
        let bytes = |address: usize, size: u32| range(address, Size::Bytes(argument(size as usize)?));
        if name.strip_prefix("__").is_some_and(|name| name.starts_with("sync_")) {
            return Some(Target::Pointee(argument(0)?));
        }
        let effect = written(&name)?;
        let to = effect.destination()? as usize;
        match *effect {
            Effect::Copies { extent, .. } | Effect::Fills { extent, .. } | Effect::Writes(_, extent) => match extent {
                Extent::Argument(index) | Extent::AtMost(index) | Extent::Returned { most: index } => bytes(to, index),
                Extent::Wide(index) => range(to, Size::Wide(argument(index as usize)?)),
                Extent::Product(one, other) | Extent::AtMostProduct(one, other) => {
                    range(to, Size::Elements(argument(one as usize)?, argument(other as usize)?))
                }
                Extent::Unknown => None,
            },
            Effect::CopiesText {
                padded_to: Some(index), ..
            } => bytes(to, index),
            Effect::CopiesText { .. } | Effect::AppendsText { .. } => range(to, Size::String),
            Effect::WritesText(_, room) => bytes(to, room?),
            // It ends what it writes with a zero, unless there is room for nothing.
            Effect::Prints { room: Some(room), .. } => {
                match self.is_positive(argument(room as usize)?) && self.declares("strlen") {
                    true => range(to, Size::String),
                    false => bytes(to, room),
                }
            }
            Effect::Prints { room: None, .. } => range(to, Size::String),
            _ => None,
        }
    }

    /// A constant above zero, such as a `sizeof`.
    fn is_positive(&self, node: NodeId) -> bool {
        let node = self.strip(node);
        let evaluated = self.nodes[node].entity.evaluate();
        matches!(evaluated, Some(clang::EvaluationResult::SignedInteger(value)) if value > 0)
            || matches!(evaluated, Some(clang::EvaluationResult::UnsignedInteger(value)) if value > 0)
            || self.kind(node) == EntityKind::UnaryExpr
    }

    /// Whether the unit has a declaration of a library function.
    pub(crate) fn declares(&self, function: &str) -> bool {
        let mut found = false;
        visit_declarations(&self.unit.root(), &mut |entity| {
            found |= entity.get_kind() == EntityKind::FunctionDecl && entity.get_name().as_deref() == Some(function);
        });
        found
    }

    fn bytes(&self, write: &Write) -> Option<u64> {
        let size = match write.target {
            Target::Lvalue(node) | Target::Member(node) => self.ty(node)?.get_sizeof(),
            Target::Pointee(node) => self.ty(node)?.get_pointee_type()?.get_sizeof(),
            Target::Range { .. } => return None,
        };
        size.ok().map(|size| size as u64)
    }

    /// Structs and arrays, whose parts the compiler may store one by one.
    fn is_built_in_place(&self, node: NodeId) -> bool {
        let kind = self.ty(node).map(|ty| ty.get_canonical_type().get_kind());
        matches!(kind, Some(clang::TypeKind::Record | clang::TypeKind::ConstantArray))
    }

    fn is_local_variable(&self, write: &Write) -> bool {
        let Target::Lvalue(node) = write.target else {
            return false;
        };
        let mut node = self.strip(node);
        // A member of a variable is as local as the variable.
        while self.kind(node) == EntityKind::MemberRefExpr
            && let Some(base) = self.child(node, 0)
            && self
                .ty(base)
                .is_some_and(|ty| ty.get_canonical_type().get_kind() == clang::TypeKind::Record)
        {
            node = self.strip(base);
        }
        self.kind(node) == EntityKind::DeclRefExpr && self.local_variable(node).is_some()
    }

    /// The variable of this function, held by value, that a name refers to.
    pub(crate) fn local_variable(&self, node: NodeId) -> Option<clang::Entity<'a>> {
        let variable = self.nodes[node].entity.get_reference()?;
        let is_reference = || {
            let kind = variable.get_type().map(|ty| ty.get_canonical_type().get_kind());
            matches!(
                kind,
                Some(clang::TypeKind::LValueReference | clang::TypeKind::RValueReference)
            )
        };
        match variable.get_kind() {
            EntityKind::ParmDecl | EntityKind::VarDecl => {}
            _ => return None,
        }
        let is_static = matches!(
            variable.get_storage_class(),
            Some(clang::StorageClass::Static | clang::StorageClass::Extern)
        );
        let at = variable.get_location()?.get_file_location();
        let is_inside = self.nodes[0].range.contains(&(at.offset as usize))
            && at.file.is_some_and(|file| self.unit.path(file) == self.file.path);
        (is_inside && !is_static && !is_reference()).then_some(variable)
    }
}

/// Without what fortification, builtins and intrinsics add to a name.
pub(crate) fn plain_name(name: &str) -> &str {
    let name = name.strip_prefix("__builtin_").unwrap_or(name);
    let name = name.strip_prefix("___").unwrap_or(name);
    let name = name.strip_prefix("__").unwrap_or(name);
    name.strip_suffix("_chk").unwrap_or(name)
}
