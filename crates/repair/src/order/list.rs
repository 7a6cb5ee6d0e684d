//! The statement list that an order is about: in the innermost function that both stacks pass, the smallest block in which the two stores belong to different
//! statements. An `if`, loop, block or call in it is one unit.

use std::ops::Range;

use clang::EntityKind;
use crashproof_trace::StackId;
use rustc_hash::FxHashMap;

use super::trace::{CallPath, CallSite, Trace};
use crate::source::refusal::Refusal;
use crate::source::tree::{FunctionTree, NodeId};
use crate::source::units::Units;

/// The paths of two stores (what has to persist first, and the other), cut off at the function that both pass and part in: what leads to each store from there.
pub(super) struct Parting {
    pub before: CallPath,
    pub after: CallPath,
}

/// Why two stores have no list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NoList {
    /// No function of the tree called both.
    Apart,
    /// One statement makes both.
    Same,
}

/// Where the ways to two stores part.
pub(super) fn parting(before: &[CallSite], after: &[CallSite]) -> Result<Parting, NoList> {
    let (mut ours, mut theirs) = (before.len(), after.len());
    while ours > 0 && theirs > 0 && before[ours - 1].is_at(&after[theirs - 1]) {
        (ours, theirs) = (ours - 1, theirs - 1);
    }
    if ours == 0 || theirs == 0 {
        return Err(NoList::Same);
    }
    let (last, other) = (&before[ours - 1], &after[theirs - 1]);
    if last.function != other.function || last.position.file != other.position.file {
        return Err(NoList::Apart);
    }
    Ok(Parting {
        before: before[..ours].to_vec(),
        after: after[..theirs].to_vec(),
    })
}

pub(super) struct List<'a> {
    pub tree: FunctionTree<'a>,
    pub node: NodeId,
    pub units: Vec<Unit>,
}

/// A statement of the list.
#[derive(Clone, Debug)]
pub(super) struct Unit {
    pub node: NodeId,
    /// With its `;`.
    pub range: Range<usize>,
}

impl<'a> List<'a> {
    /// Of the places at which two ways part.
    pub(super) fn around(units: &'a Units<'_>, before: &CallSite, after: &CallSite) -> Result<List<'a>, ListError> {
        let tree = FunctionTree::around(units, &before.position)?;
        let nothing = |site: &CallSite| Refusal::NoStatement {
            path: tree.file.path.clone(),
            line: site.position.line,
        };
        let offset = |site: &CallSite| {
            let position = &site.position;
            tree.file
                .offset(position.line, position.column)
                .ok_or_else(|| nothing(site))
        };
        let (from, to) = (offset(before)?, offset(after)?);
        // The last is the innermost, as children follow their parents.
        let blocks: Vec<NodeId> = (0..tree.nodes.len())
            .filter(|node| {
                let range = tree.range(*node);
                tree.kind(*node) == EntityKind::CompoundStmt && range.contains(&from) && range.contains(&to)
            })
            .collect();
        for node in blocks.into_iter().rev() {
            let units = units_of(&tree, node)?;
            let at = |offset: usize| units.iter().position(|unit| unit.range.contains(&offset));
            match (at(from), at(to)) {
                (Some(ours), Some(theirs)) if ours != theirs => return Ok(List { tree, node, units }),
                (Some(_), Some(_)) => return Err(ListError::Same),
                _ => {}
            }
        }
        Err(ListError::Refused(nothing(before)))
    }

    /// The innermost block around a place.
    pub(super) fn holding(units: &'a Units<'_>, site: &CallSite) -> Result<List<'a>, Refusal> {
        let tree = FunctionTree::around(units, &site.position)?;
        let offset = tree.file.offset(site.position.line, site.position.column);
        let mut blocks = (0..tree.nodes.len()).filter(|node| {
            tree.kind(*node) == EntityKind::CompoundStmt
                && offset.is_some_and(|offset| tree.range(*node).contains(&offset))
        });
        let Some(node) = blocks.next_back() else {
            return Err(Refusal::NoStatement {
                path: tree.file.path.clone(),
                line: site.position.line,
            });
        };
        let units = units_of(&tree, node)?;
        Ok(List { tree, node, units })
    }

    pub(super) fn unit_of(&self, site: &CallSite) -> Option<usize> {
        self.unit_at(self.tree.file.offset(site.position.line, site.position.column)?)
    }

    pub(super) fn range(&self) -> Range<usize> {
        self.tree.range(self.node)
    }

    pub(super) fn unit_at(&self, offset: usize) -> Option<usize> {
        self.units.iter().position(|unit| unit.range.contains(&offset))
    }

    /// Counted from 1.
    pub(super) fn line(&self, unit: usize) -> usize {
        self.tree.file.line(self.units[unit].range.start)
    }

    /// `log.c: in append`: where the list is, for people to read.
    pub(super) fn heading(&self) -> String {
        format!("{}: in {}", self.tree.file.name(), self.tree.name(0))
    }

    /// A unit in a few words: its line and the beginning of its text.
    pub(super) fn describe(&self, unit: usize) -> String {
        let text = &self.tree.file.text[self.units[unit].range.clone()];
        let text = text.lines().next().unwrap_or_default().trim_end().trim_end_matches(';');
        let shown: String = text.chars().take(60).collect();
        let more = if shown.len() < text.len() { "…" } else { "" };
        format!("line {} (`{shown}{more}`)", self.line(unit))
    }

    /// Where the events with each stack belong.
    pub(super) fn place(&self, trace: &Trace) -> FxHashMap<StackId, Place> {
        let mut places = FxHashMap::default();
        for (id, stack) in trace.stacks() {
            let inner = stack.path.iter().enumerate().find_map(|(at, site)| {
                let is_here = site.position.file == self.tree.file.path;
                let unit = is_here.then(|| self.unit_of(site))??;
                Some((at, site.depth, unit))
            });
            if let Some((at, depth, unit)) = inner {
                places.insert(
                    id,
                    Place {
                        unit,
                        path: stack.path[..=at].to_vec(),
                        outer: stack.frames[depth + 1..].iter().map(|frame| frame.address).collect(),
                    },
                );
            }
        }
        places
    }
}

/// Where in the list an event is.
pub(super) struct Place {
    pub unit: usize,
    /// From the event to the list.
    pub path: CallPath,
    /// From where the function was called.
    pub outer: Vec<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ListError {
    Same,
    Refused(Refusal),
}

impl From<Refusal> for ListError {
    fn from(refusal: Refusal) -> ListError {
        ListError::Refused(refusal)
    }
}

/// The statements of a block.
fn units_of(tree: &FunctionTree, block: NodeId) -> Result<Vec<Unit>, Refusal> {
    let mut units: Vec<Unit> = Vec::new();
    for &node in &tree.nodes[block].children {
        let range = tree.statement_range(node)?;
        let end = tree.statement_end(node, &range).unwrap_or(range.end);
        let range = range.start..end;
        if units.last().is_some_and(|last| range.start < last.range.end) {
            // Several statements of one use of a macro.
            let name = tree
                .macro_around(&range)
                .map_or_else(String::new, |(_, name)| name.clone());
            return Err(Refusal::Macro { name });
        }
        units.push(Unit { node, range });
    }
    Ok(units)
}
