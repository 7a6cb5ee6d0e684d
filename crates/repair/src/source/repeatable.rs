//! Whether an expression means the same place when it is evaluated again behind its statement.
//!
//! It does if the statement changes nothing that the expression reads. What it reads in memory may be what the statement wrote: `p->next->next = q`
//! in a ring of one. Fields are kept apart by their declaration, everything else by its type, as the language does for aliasing.

use clang::{Entity, EntityKind, StorageClass, Type, TypeKind};

use super::refusal::Refusal;
use super::spelling::Substitutions;
use super::tree::{FunctionTree, NodeId};
use super::written::{Target, Write};

impl<'a> FunctionTree<'a> {
    /// How to write the target of `write` again behind the code of `region` (the statement, or all of them up to the insertion).
    pub(crate) fn repeat(&self, write: &Write, region: &[NodeId]) -> Result<Substitutions, Refusal> {
        let mut substitutions = Substitutions::new();
        for root in self.address_expressions(write) {
            self.check(root, write, region, &mut substitutions)?;
        }
        Ok(substitutions)
    }

    /// The same for one expression of it, behind the write.
    pub(crate) fn repeat_expression(&self, root: NodeId, write: &Write) -> Result<Substitutions, Refusal> {
        let mut substitutions = Substitutions::new();
        self.check(root, write, &[write.node], &mut substitutions)?;
        Ok(substitutions)
    }

    /// What is evaluated again: `sizeof` evaluates nothing.
    fn address_expressions(&self, write: &Write) -> Vec<NodeId> {
        use super::written::Size;
        match write.target {
            Target::Lvalue(node) | Target::Pointee(node) => vec![node],
            Target::Member(_) => Vec::new(),
            Target::Range { address, size } => match size {
                Size::Bytes(size) | Size::Wide(size) => vec![address, size],
                Size::Elements(size, count) => vec![address, size, count],
                Size::String => vec![address],
            },
        }
    }

    fn check(
        &self,
        root: NodeId,
        write: &Write,
        region: &[NodeId],
        substitutions: &mut Substitutions,
    ) -> Result<(), Refusal> {
        let refuse = |why: String| {
            Err(Refusal::NotRepeatable {
                expression: self.text(root).to_owned(),
                why,
            })
        };
        let outermost = match write.target {
            Target::Lvalue(node) if node == root => Some(self.strip(root)),
            _ => None,
        };
        let mut unevaluated = 0..0;
        for node in self.descendants(root) {
            if unevaluated.contains(&node) {
                continue;
            }
            match self.kind(node) {
                // `sizeof` and its like.
                EntityKind::UnaryExpr => unevaluated = self.descendants(node),
                EntityKind::CallExpr if !self.is_accessor(node) => {
                    return refuse(format!("it calls {}", self.name(node)));
                }
                EntityKind::BinaryOperator if self.name(node) == "=" => return refuse("it assigns".into()),
                EntityKind::CompoundAssignOperator => return refuse("it assigns".into()),
                EntityKind::StmtExpr | EntityKind::LambdaExpr | EntityKind::NewExpr => {
                    return refuse("it has statements of its own".into());
                }
                EntityKind::UnaryOperator => {
                    if let Some((operator @ ("++" | "--"), is_postfix)) = self
                        .unary_operator(node)
                        .as_ref()
                        .map(|(operator, is_postfix)| (operator.as_str(), *is_postfix))
                    {
                        let Some(name) = self.stepped_variable(node, region) else {
                            return refuse(format!("`{}` changes what it names", self.text(node)));
                        };
                        let text = match (operator, is_postfix) {
                            ("++", true) => format!("{name} - 1"),
                            ("--", true) => format!("{name} + 1"),
                            _ => name,
                        };
                        substitutions.insert(node, text);
                        continue;
                    }
                }
                _ => {}
            }
            // An expression that only names an array or takes an address reads nothing.
            if Some(node) == outermost || !self.reads(node) {
                continue;
            }
            if self.kind(node) == EntityKind::DeclRefExpr
                && self.nodes[node]
                    .parent
                    .is_some_and(|parent| substitutions.contains_key(&parent))
            {
                continue;
            }
            if let Some(why) = self.may_change(node, write, region) {
                return refuse(why);
            }
        }
        Ok(())
    }

    /// The plain local variable that `x++` steps, if nothing else in the region changes it.
    fn stepped_variable(&self, step: NodeId, region: &[NodeId]) -> Option<String> {
        let operand = self.strip(self.child(step, 0)?);
        let variable = self
            .local_variable(operand)
            .filter(|_| self.kind(operand) == EntityKind::DeclRefExpr)?;
        let once = self.changes(&variable, region) == 1;
        (once && !self.has_address_taken(&variable)).then(|| self.name(operand))
    }

    /// Whether the expression reads an object: a variable, or memory.
    fn reads(&self, node: NodeId) -> bool {
        let is_lvalue = match self.kind(node) {
            EntityKind::DeclRefExpr => self.nodes[node]
                .entity
                .get_reference()
                .is_some_and(|entity| matches!(entity.get_kind(), EntityKind::VarDecl | EntityKind::ParmDecl)),
            EntityKind::MemberRefExpr | EntityKind::ArraySubscriptExpr => true,
            EntityKind::UnaryOperator => self.unary_operator(node).is_some_and(|(operator, _)| operator == "*"),
            _ => false,
        };
        // `a.b` reads `a.b`, not `a`; `&x` reads nothing, and neither does an array that becomes a pointer.
        is_lvalue && !self.is_only_a_place(node)
    }

    fn is_only_a_place(&self, node: NodeId) -> bool {
        if self.is_array(node) {
            return true;
        }
        let Some(mut parent) = self.nodes[node].parent else {
            return false;
        };
        while self.kind(parent) == EntityKind::ParenExpr
            && let Some(outer) = self.nodes[parent].parent
        {
            parent = outer;
        }
        let is_struct = self
            .ty(node)
            .is_some_and(|ty| ty.get_canonical_type().get_kind() == TypeKind::Record);
        match self.kind(parent) {
            EntityKind::MemberRefExpr => is_struct,
            EntityKind::UnaryOperator => self.unary_operator(parent).is_some_and(|(operator, _)| operator == "&"),
            _ => false,
        }
    }

    fn is_array(&self, node: NodeId) -> bool {
        let kind = self.ty(node).map(|ty| ty.get_canonical_type().get_kind());
        matches!(
            kind,
            Some(TypeKind::ConstantArray | TypeKind::IncompleteArray | TypeKind::VariableArray)
        )
    }

    /// Why what the expression reads may have changed.
    fn may_change(&self, read: NodeId, write: &Write, region: &[NodeId]) -> Option<String> {
        let text = || self.text(read).to_owned();
        if self.ty(read).is_some_and(|ty| ty.is_volatile_qualified()) {
            return Some(format!("`{}` is volatile", text()));
        }
        if self.kind(read) == EntityKind::DeclRefExpr {
            let variable = self.nodes[read].entity.get_reference()?;
            let is_local = self.local_variable(read).is_some();
            if self.changes(&variable, region) > 0 {
                return Some(format!("`{}` is changed in between", text()));
            }
            if is_local && !self.has_address_taken(&variable) {
                return None;
            }
            if is_reference(&variable) || variable.get_storage_class() == Some(StorageClass::Register) {
                return None;
            }
        }
        // Calls that come after the store may change any memory.
        let after = |call: &NodeId| {
            self.kind(*call) == EntityKind::CallExpr
                && (self.range(*call).start > self.range(write.node).end
                    || self.ancestors(write.node).any(|outer| outer == *call))
        };
        let calls = region.iter().flat_map(|node| self.descendants(*node)).find(after);
        if let Some(call) = calls {
            return Some(format!("{} is called in between", self.name(call)));
        }
        if self.is_written_by_name_alone(read) {
            return None;
        }
        let mut writes = region
            .iter()
            .flat_map(|node| self.descendants(*node))
            .filter_map(|node| self.write(node));
        let clash = writes.find(|other| self.may_alias(read, other));
        clash.map(|other| match other.node == write.node {
            true => format!("the store may change `{}`", text()),
            false => format!("`{}` may change `{}`", self.text(other.node), text()),
        })
    }

    /// How often a variable is assigned or stepped by name.
    fn changes(&self, variable: &Entity<'a>, region: &[NodeId]) -> usize {
        let writes = region
            .iter()
            .flat_map(|node| self.descendants(*node))
            .filter_map(|node| self.write(node));
        writes
            .filter(|write| match write.target {
                Target::Lvalue(left) => self.refers_to(self.strip(left), variable),
                _ => false,
            })
            .count()
    }

    fn refers_to(&self, node: NodeId, variable: &Entity<'a>) -> bool {
        self.kind(node) == EntityKind::DeclRefExpr && self.nodes[node].entity.get_reference() == Some(*variable)
    }

    fn has_address_taken(&self, variable: &Entity<'a>) -> bool {
        (0..self.nodes.len()).any(|node| {
            self.refers_to(node, variable)
                && self
                    .ancestors(node)
                    .take_while(|outer| self.kind(*outer) != EntityKind::CompoundStmt)
                    .any(|outer| {
                        self.kind(outer) == EntityKind::LambdaExpr
                        || (self.unary_operator(outer).is_some_and(|(operator, _)| operator == "&")
                            && self.child(outer, 0).is_some_and(|operand| self.strip(operand) == node))
                        // Passed by reference, which libclang shows as the bare name.
                        || (self.unit.is_cxx()
                            && self.kind(outer) == EntityKind::CallExpr
                            && self.nodes[node].parent == Some(outer)
                            && self.ty(node).is_some_and(|ty| ty.get_canonical_type().get_kind() != TypeKind::Record))
                    })
        })
    }

    /// Of a variable of this file whose address the file never takes: no store through a pointer is to it. C++ takes addresses without saying so.
    fn is_written_by_name_alone(&self, read: NodeId) -> bool {
        let variable = self.nodes[read]
            .entity
            .get_reference()
            .filter(|variable| variable.get_kind() == EntityKind::VarDecl)
            .filter(|variable| variable.get_storage_class() == Some(StorageClass::Static));
        let at = variable.and_then(|variable| variable.get_location());
        let is_here = at.is_some_and(|at| {
            let file = at.get_file_location().file;
            file.is_some_and(|file| self.unit.path(file) == self.file.path)
        });
        is_here
            && self.kind(read) == EntityKind::DeclRefExpr
            && !self.unit.is_cxx()
            && self.file.path == self.unit.main_file()
            && !self.is_array(read)
            && !self.file.may_take_address(&self.name(read))
    }

    fn may_alias(&self, read: NodeId, write: &Write) -> bool {
        let left = match write.target {
            Target::Lvalue(node) => self.strip(node),
            Target::Pointee(node) => {
                let node = self.strip(node);
                match self.unary_operator(node).is_some_and(|(operator, _)| operator == "&") {
                    true => self.child(node, 0).map_or(node, |child| self.strip(child)),
                    false => return true,
                }
            }
            // Bytes.
            Target::Range { .. } => return true,
            Target::Member(_) => return false,
        };
        // A variable is written by name, and found by name.
        if self.kind(left) == EntityKind::DeclRefExpr && self.local_variable(left).is_some() {
            return self.kind(read) != EntityKind::DeclRefExpr
                && self.nodes[left]
                    .entity
                    .get_reference()
                    .is_some_and(|variable| self.has_address_taken(&variable))
                && self.same_type(read, left);
        }
        // An element of an array that is a member is a part of the member.
        let field = |mut node: NodeId| {
            while self.kind(node) == EntityKind::ArraySubscriptExpr
                && let Some(array) = self.child(node, 0).map(|array| self.strip(array))
                && self.is_array(array)
            {
                node = array;
            }
            match self.kind(node) {
                EntityKind::MemberRefExpr => self.nodes[node].entity.get_reference(),
                _ => None,
            }
        };
        let in_union = |field: &Entity<'a>| {
            field
                .get_semantic_parent()
                .is_none_or(|record| record.get_kind() == EntityKind::UnionDecl)
        };
        match (field(read), field(left)) {
            (Some(read_field), Some(left_field)) => {
                read_field == left_field
                    || in_union(&read_field)
                    || in_union(&left_field)
                    || self.ty(left).is_none_or(|ty| holds_field(&ty, &read_field, 8))
            }
            (Some(read_field), None) => self.ty(left).is_none_or(|ty| match ty.get_canonical_type().get_kind() {
                TypeKind::Record => holds_field(&ty, &read_field, 8),
                _ => self.same_type(read, left),
            }),
            _ => {
                self.ty(left)
                    .is_none_or(|ty| ty.get_canonical_type().get_kind() == TypeKind::Record)
                    || self.same_type(read, left)
            }
        }
    }

    /// By the rules of strict aliasing.
    fn same_type(&self, a: NodeId, b: NodeId) -> bool {
        let (Some(a), Some(b)) = (self.ty(a), self.ty(b)) else {
            return true;
        };
        let (a, b) = (a.get_canonical_type(), b.get_canonical_type());
        let is_char = |ty: &Type| {
            matches!(
                ty.get_kind(),
                TypeKind::CharS | TypeKind::CharU | TypeKind::SChar | TypeKind::UChar
            )
        };
        let is_pointer = |ty: &Type| ty.get_kind() == TypeKind::Pointer;
        let rank = |ty: &Type| ty.get_sizeof().unwrap_or(0);
        // Signed and unsigned may alias; of pointers, which programs convert at will, any two. Only a pointer to pointers is none to objects.
        is_char(&a)
            || is_char(&b)
            || (is_pointer(&a) && is_pointer(&b) && levels(&a).zip(levels(&b)).is_none_or(|(a, b)| a == b))
            || (a.is_integer() && b.is_integer() && rank(&a) == rank(&b))
            || a.get_display_name() == b.get_display_name()
            || matches!(
                (a.get_kind(), b.get_kind()),
                (TypeKind::Unexposed, _) | (_, TypeKind::Unexposed)
            )
    }

    /// Operators and accessors of the standard library that give the same place again.
    pub(crate) fn is_accessor(&self, node: NodeId) -> bool {
        let name = self.name(node);
        let is_known = matches!(
            name.as_str(),
            "operator[]"
                | "operator->"
                | "operator*"
                | "get"
                | "data"
                | "front"
                | "back"
                | "begin"
                | "at"
                | "size"
                | "load"
        );
        let in_library = self.nodes[node]
            .entity
            .get_reference()
            .is_some_and(|function| function.is_in_system_header());
        is_known && in_library
    }
}

/// How many pointers lie on the way to what is none; `None` if that is void or characters, which stand for anything.
fn levels(ty: &Type) -> Option<usize> {
    let mut levels = 0;
    let mut ty = ty.get_canonical_type();
    while let Some(pointee) = ty.get_pointee_type().filter(|_| ty.get_kind() == TypeKind::Pointer) {
        levels += 1;
        ty = pointee.get_canonical_type();
    }
    let stands_for_anything = matches!(
        ty.get_kind(),
        TypeKind::Void | TypeKind::CharS | TypeKind::CharU | TypeKind::SChar | TypeKind::UChar
    );
    (!stands_for_anything).then_some(levels)
}

fn is_reference(variable: &Entity) -> bool {
    let kind = variable.get_type().map(|ty| ty.get_canonical_type().get_kind());
    matches!(kind, Some(TypeKind::LValueReference | TypeKind::RValueReference))
}

/// Whether an object of the type has the field in it.
fn holds_field(ty: &Type, field: &Entity, depth: usize) -> bool {
    let ty = ty.get_canonical_type();
    match ty.get_kind() {
        TypeKind::ConstantArray => ty
            .get_element_type()
            .is_none_or(|element| depth == 0 || holds_field(&element, field, depth - 1)),
        TypeKind::Record => ty.get_fields().unwrap_or_default().iter().any(|own| {
            own == field
                || depth == 0
                || own.get_type().is_none_or(|inner| {
                    matches!(
                        inner.get_canonical_type().get_kind(),
                        TypeKind::Record | TypeKind::ConstantArray
                    ) && holds_field(&inner, field, depth - 1)
                })
        }),
        _ => false,
    }
}
