//! The syntax tree of one function definition, from libclang, with parents and with ranges as offsets in its file.
//!
//! Code from a macro lies where the macro is used; what was written in the arguments of the use, where it was written.

use std::ops::Range;
use std::path::Path;
use std::rc::Rc;

use clang::source::{Location, SourceLocation};
use clang::{Entity, EntityKind, EntityVisitResult, Type};

use super::refusal::Refusal;
use super::text::SourceFile;
use super::units::{Unit, Units};
use crate::plan::Position;

pub(crate) type NodeId = usize;

pub(crate) struct Node<'a> {
    pub entity: Entity<'a>,
    pub kind: EntityKind,
    pub range: Range<usize>,
    /// Written in the file as it is, not in the definition of a macro.
    pub is_spelled: bool,
    pub parent: Option<NodeId>,
    pub children: Vec<NodeId>,
}

pub(crate) struct FunctionTree<'a> {
    pub unit: Unit<'a>,
    pub file: Rc<SourceFile>,
    /// The first is the definition itself; children follow their parents.
    pub nodes: Vec<Node<'a>>,
    /// Uses of macros in the file: outermost only, in order, with the name.
    pub macros: Vec<(Range<usize>, String)>,
}

pub(crate) fn is_function(kind: EntityKind) -> bool {
    use EntityKind::*;
    matches!(
        kind,
        FunctionDecl | Method | Constructor | Destructor | ConversionFunction | FunctionTemplate
    )
}

impl<'a> FunctionTree<'a> {
    /// The definition around a position.
    pub(crate) fn around(units: &'a Units<'_>, position: &Position) -> Result<FunctionTree<'a>, Refusal> {
        let file = units.file(&position.file)?;
        let nothing = || Refusal::NoStatement {
            path: file.path.clone(),
            line: position.line,
        };
        let offset = file.offset(position.line, position.column).ok_or_else(nothing)?;
        let mut is_included = false;
        for unit in units.including(&file.path) {
            is_included = true;
            if let Some(definition) = definition_around(&unit, &file.path, offset) {
                return Ok(FunctionTree::of(unit, file, definition));
            }
        }
        match is_included {
            true => Err(nothing()),
            false => Err(Refusal::NoCommand {
                path: file.path.clone(),
            }),
        }
    }

    pub(crate) fn of(unit: Unit<'a>, file: Rc<SourceFile>, definition: Entity<'a>) -> FunctionTree<'a> {
        let mut tree = FunctionTree {
            unit,
            macros: macro_uses(&unit, &file),
            file,
            nodes: Vec::new(),
        };
        tree.add(definition, None);
        tree
    }

    fn add(&mut self, entity: Entity<'a>, parent: Option<NodeId>) {
        let id = self.nodes.len();
        // Of another file only if a body is included; what has no range is implicit.
        let (range, is_spelled) = range_in(&self.unit, &entity, &self.file.path).unwrap_or((0..0, false));
        self.nodes.push(Node {
            entity,
            kind: entity.get_kind(),
            range,
            is_spelled,
            parent,
            children: Vec::new(),
        });
        if let Some(parent) = parent {
            self.nodes[parent].children.push(id);
        }
        for child in entity.get_children() {
            self.add(child, Some(id));
        }
    }

    pub(crate) fn kind(&self, id: NodeId) -> EntityKind {
        self.nodes[id].kind
    }

    pub(crate) fn range(&self, id: NodeId) -> Range<usize> {
        self.nodes[id].range.clone()
    }

    pub(crate) fn text(&self, id: NodeId) -> &str {
        &self.file.text[self.range(id)]
    }

    pub(crate) fn child(&self, id: NodeId, index: usize) -> Option<NodeId> {
        self.nodes[id].children.get(index).copied()
    }

    pub(crate) fn ty(&self, id: NodeId) -> Option<Type<'a>> {
        self.nodes[id].entity.get_type()
    }

    pub(crate) fn name(&self, id: NodeId) -> String {
        self.nodes[id].entity.get_name().unwrap_or_default()
    }

    /// The node and everything in it.
    pub(crate) fn descendants(&self, id: NodeId) -> Range<NodeId> {
        // Children are added right after their parents, depth first.
        let mut end = id + 1;
        while end < self.nodes.len() && self.nodes[end].parent.is_some_and(|parent| parent >= id) {
            end += 1;
        }
        id..end
    }

    pub(crate) fn ancestors(&self, id: NodeId) -> impl Iterator<Item = NodeId> {
        std::iter::successors(self.nodes[id].parent, |id| self.nodes[*id].parent)
    }

    /// Through parentheses and what libclang does not expose: implicit casts, mostly.
    pub(crate) fn strip(&self, mut id: NodeId) -> NodeId {
        while matches!(self.kind(id), EntityKind::ParenExpr | EntityKind::UnexposedExpr)
            && let [child] = self.nodes[id].children[..]
        {
            id = child;
        }
        id
    }

    /// The use of a macro that the range begins or ends in.
    pub(crate) fn macro_around(&self, range: &Range<usize>) -> Option<&(Range<usize>, String)> {
        self.macros.iter().find(|(used, _)| {
            let holds = |offset: usize| used.start < offset && offset < used.end;
            holds(range.start) || holds(range.end) || (used.start <= range.start && range.end <= used.end)
        })
    }

    /// Code of a unary operator, `++`, `*`, `&`, …; and whether it comes after its operand.
    pub(crate) fn unary_operator(&self, id: NodeId) -> Option<(String, bool)> {
        if self.kind(id) != EntityKind::UnaryOperator {
            return None;
        }
        let operand = self.range(self.child(id, 0)?);
        if !self.nodes[id].is_spelled {
            return self.unary_operator_in_macro(id);
        }
        let range = self.range(id);
        let (between, is_postfix) = match operand.start > range.start {
            true => (range.start..operand.start, false),
            false => (operand.end..range.end, true),
        };
        let token = self.file.tokens(between).into_iter().next()?;
        Some((self.file.token_text(token).into(), is_postfix))
    }

    /// In the text of the macro's definition, which may lie in another file.
    fn unary_operator_in_macro(&self, id: NodeId) -> Option<(String, bool)> {
        let spelled = self.nodes[id].entity.get_range()?.get_start().get_spelling_location();
        let contents = spelled.file?.get_contents()?;
        let rest = contents.get(spelled.offset as usize..)?;
        let operator = ["++", "--", "*", "&", "-", "+", "!", "~"]
            .iter()
            .find(|operator| rest.starts_with(**operator))?;
        Some(((*operator).into(), false))
    }

    /// Where the debug information places an operator: at its token.
    pub(crate) fn operator_offset(&self, id: NodeId) -> Option<usize> {
        let node = &self.nodes[id];
        let left = self.range(*node.children.first()?);
        if let Some((_, is_postfix)) = self.unary_operator(id) {
            return match is_postfix {
                true => Some(self.file.next_token(left.end)?.start),
                false => Some(node.range.start),
            };
        }
        Some(self.file.next_token(left.end)?.start)
    }
}

fn in_file(unit: &Unit, location: &Location, path: &Path) -> bool {
    location.file.is_some_and(|file| unit.path(file) == path)
}

/// The range of an entity in the file, and whether it is written there as it is.
pub(crate) fn range_in(unit: &Unit, entity: &Entity, path: &Path) -> Option<(Range<usize>, bool)> {
    let range = entity.get_range()?;
    let (start, end) = (range.get_start(), range.get_end());
    let (from, to) = (start.get_file_location(), end.get_file_location());
    if !in_file(unit, &from, path) || to.file != from.file || to.offset < from.offset {
        return None;
    }
    let is_spelled = |location: SourceLocation| {
        let (spelled, file) = (location.get_spelling_location(), location.get_file_location());
        spelled.file == file.file && spelled.offset == file.offset
    };
    Some((
        from.offset as usize..to.offset as usize,
        is_spelled(start) && is_spelled(end),
    ))
}

fn definition_around<'a>(unit: &Unit<'a>, path: &Path, offset: usize) -> Option<Entity<'a>> {
    let mut found = None;
    unit.root().visit_children(|entity, _| {
        let kind = entity.get_kind();
        let holds = || {
            // The file first: most of a unit is headers.
            range_in(unit, &entity, path).is_some_and(|(range, _)| range.contains(&offset))
        };
        let is_scope = matches!(
            kind,
            EntityKind::Namespace
                | EntityKind::LinkageSpec
                | EntityKind::UnexposedDecl
                | EntityKind::ClassDecl
                | EntityKind::StructDecl
                | EntityKind::UnionDecl
                | EntityKind::ClassTemplate
                | EntityKind::ClassTemplatePartialSpecialization
        );
        if is_function(kind) && entity.is_definition() && holds() {
            found = Some(entity);
            return EntityVisitResult::Break;
        }
        match is_scope && holds() {
            true => EntityVisitResult::Recurse,
            false => EntityVisitResult::Continue,
        }
    });
    found
}

fn macro_uses(unit: &Unit, file: &SourceFile) -> Vec<(Range<usize>, String)> {
    let mut uses: Vec<(Range<usize>, String)> = Vec::new();
    for entity in unit.root().get_children() {
        if entity.get_kind() == EntityKind::MacroExpansion
            && let Some((range, true)) = range_in(unit, &entity, &file.path)
        {
            uses.push((range, entity.get_name().unwrap_or_default()));
        }
    }
    uses.sort_by_key(|(range, _)| (range.start, std::cmp::Reverse(range.end)));
    let mut end = 0;
    uses.retain(|(range, _)| {
        let is_outermost = range.start >= end;
        end = end.max(range.end);
        is_outermost
    });
    uses
}
