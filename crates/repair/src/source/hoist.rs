//! Gives a name to what cannot be evaluated twice: a variable in front of the statement.
//!
//! `*next(p) = v;` becomes `T *slot = next(p); *slot = v;`, and `memcpy(d, s, strlen(s) + 1);` gets a variable for its length. The order in which the language
//! evaluates operands must not matter for that: nothing else in the statement may have effects.

use std::ops::Range;

use clang::EntityKind;

use super::anchor::{Anchor, Context, declaration, spelled_type};
use super::patcher::Patcher;
use super::refusal::Refusal;
use super::spelling::Substitutions;
use super::tree::{FunctionTree, NodeId};
use super::written::{Flushed, Pointer, Size, Target, Write};

/// A flush, and what has to be done to the statement so that it can be said.
pub(super) struct Hoisted {
    pub flushed: Flushed,
    /// Declarations in front of the statement.
    pub before: Vec<String>,
    pub replacements: Vec<(Range<usize>, String)>,
}

impl Patcher<'_, '_, '_> {
    /// For a write whose target cannot be named again, for the reason given.
    pub(super) fn hoisted(
        &self,
        tree: &FunctionTree,
        write: &Write,
        anchor: &Anchor,
        reason: Refusal,
    ) -> Result<Hoisted, Refusal> {
        let is_statement = matches!(anchor.context, Context::Block { .. } | Context::Body { .. })
            && tree.strip(anchor.node) == write.node
            && tree.nodes[write.node].is_spelled;
        let can_declare = match anchor.context {
            Context::Body { body, .. } => body == anchor.statement.start,
            _ => tree.can_declare(anchor.node),
        };
        if !is_statement || !can_declare {
            return Err(reason);
        }
        match write.target {
            Target::Lvalue(left) => self.hoisted_lvalue(tree, write, left, reason),
            Target::Range { address, size } => self.hoisted_range(tree, write, address, size, reason),
            Target::Pointee(_) | Target::Member(_) => Err(reason),
        }
    }

    fn hoisted_lvalue(
        &self,
        tree: &FunctionTree,
        write: &Write,
        left: NodeId,
        reason: Refusal,
    ) -> Result<Hoisted, Refusal> {
        let others = tree.nodes[write.node].children.iter().filter(|child| **child != left);
        let is_bit_field = tree.nodes[tree.strip(left)]
            .entity
            .get_reference()
            .is_some_and(|field| field.is_bit_field());
        let ty = tree.ty(left).and_then(|ty| spelled_type(&ty, tree.unit.is_cxx()));
        let Some(ty) = ty.filter(|_| {
            !is_bit_field && tree.nodes[left].is_spelled && others.clone().all(|child| !tree.has_effects(*child))
        }) else {
            return Err(reason);
        };
        let name = self.free_name(tree, &["slot", "place", "target"]);
        let pointer = match tree.unit.is_cxx() {
            true => "auto *".to_owned(),
            false => format!("{} *", ty.trim_end_matches(' ')).replace("* *", "**"),
        };
        let text = tree.spell(left, &Substitutions::new())?;
        let address = match tree.unary_operator(tree.strip(left)) {
            Some((operator, _)) if operator == "*" => text.trim_start_matches('*').to_owned(),
            _ => format!("&{text}"),
        };
        let replaced = match tree.kind(write.node) {
            EntityKind::UnaryOperator => format!("(*{name})"),
            _ => format!("*{name}"),
        };
        Ok(Hoisted {
            flushed: Flushed {
                address: name.clone(),
                size: tree.sizeof(&format!("*{name}")),
                pointer: tree.lvalue_pointer(left),
                member_of: None,
                is_in_one_line: tree.is_scalar(left),
            },
            before: vec![format!("{} = {address};", declaration(&pointer, &name))],
            replacements: vec![(tree.range(left), replaced)],
        })
    }

    fn hoisted_range(
        &self,
        tree: &FunctionTree,
        write: &Write,
        address: NodeId,
        size: Size,
        reason: Refusal,
    ) -> Result<Hoisted, Refusal> {
        let arguments = &tree.nodes[write.node].children[1..];
        let with_effects = arguments.iter().filter(|argument| tree.has_effects(**argument));
        // The first of several effects cannot be told.
        let effects: Vec<NodeId> = with_effects.copied().collect();
        let size_node = match size {
            Size::Bytes(node) => Some(node),
            Size::String => None,
            Size::Elements(..) | Size::Wide(_) => return Err(reason),
        };
        let only = |node: NodeId| effects.iter().all(|effect| *effect == node);
        let mut hoisted = Hoisted {
            flushed: Flushed {
                address: String::new(),
                size: String::new(),
                pointer: Pointer::default(),
                member_of: None,
                is_in_one_line: false,
            },
            before: Vec::new(),
            replacements: Vec::new(),
        };
        let mut name_it = |node: NodeId, names: &[&str], ty: &str| {
            if !only(node) || !tree.nodes[node].is_spelled {
                return None;
            }
            let name = self.free_name(tree, names);
            hoisted
                .before
                .push(format!("{} = {};", declaration(ty, &name), tree.text(node)));
            hoisted.replacements.push((tree.range(node), name.clone()));
            Some(name)
        };
        let repeats = |node: NodeId| tree.repeat_expression(node, write).ok();
        let address_text = match repeats(address) {
            Some(substitutions) => tree.spell(address, &substitutions)?,
            None => {
                let ty = if tree.unit.is_cxx() { "auto *" } else { "void *" };
                name_it(address, &["dst", "dest", "target"], ty).ok_or_else(|| reason.clone())?
            }
        };
        let size_text = match size_node {
            None => tree.string_size(&address_text),
            Some(node) => match repeats(node) {
                Some(substitutions) => tree.spell(node, &substitutions)?,
                None => name_it(node, &["size", "len", "length", "bytes"], "size_t").ok_or(reason)?,
            },
        };
        hoisted.flushed.address = address_text;
        hoisted.flushed.size = size_text;
        Ok(hoisted)
    }
}

impl FunctionTree<'_> {
    /// Whether a variable can be declared in front of a statement: in C not behind a label, in C++ not where a jump may pass it.
    pub(crate) fn can_declare(&self, statement: NodeId) -> bool {
        let Some(block) = self.nodes[statement].parent else {
            return false;
        };
        let in_switch = || {
            self.nodes[block]
                .parent
                .is_some_and(|outer| self.kind(outer) == EntityKind::SwitchStmt)
        };
        let has_labels = || (0..self.nodes.len()).any(|node| self.kind(node) == EntityKind::LabelStmt);
        self.kind(block) == EntityKind::CompoundStmt && !(self.unit.is_cxx() && (in_switch() || has_labels()))
    }

    /// Whether evaluating the expression does something, or may.
    pub(crate) fn has_effects(&self, node: NodeId) -> bool {
        const PURE: [&str; 4] = ["strlen", "strnlen", "wcslen", "__builtin_strlen"];
        self.descendants(node).any(|inner| match self.kind(inner) {
            EntityKind::CallExpr => !PURE.contains(&self.name(inner).as_str()) && !self.is_accessor(inner),
            EntityKind::StmtExpr | EntityKind::LambdaExpr | EntityKind::NewExpr | EntityKind::DeleteExpr => true,
            _ => self.write(inner).is_some(),
        })
    }
}
