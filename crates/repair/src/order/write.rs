//! An arrangement as changes of the source: statements with their comments are moved by text, flushes and fences are written in the program's idiom.

use std::collections::BTreeMap;
use std::ops::Range;

use clang::EntityKind;

use super::instance::{Part, Piece};
use super::list::List;
use super::search::Arrangement;
use crate::plan::Place;
use crate::source::anchor::Context;
use crate::source::changes::Changes;
use crate::source::edits::{After, Edits, statements};
use crate::source::hint::Hint;
use crate::source::patcher::Patcher;
use crate::source::refusal::Refusal;
use crate::source::text::SourceFile;
use crate::source::tree::FunctionTree;
use crate::source::units::Units;
use crate::source::written::{Flushed, Target, Write};

/// Writes changes of one list.
pub(super) struct Writer<'w, 'a, 'c, 'u> {
    pub patcher: &'w Patcher<'a, 'c, 'u>,
    pub units: &'a Units<'u>,
    pub list: &'w List<'a>,
    /// The stores that have to persist first, in the bitcode.
    pub stores: &'w [Place],
    /// Those that come second.
    pub later: &'w [Place],
}

impl<'a> Writer<'_, 'a, '_, '_> {
    /// Whether a flush of what has to persist first can be written behind the statements of the list.
    pub(super) fn can_flush_behind(&self) -> bool {
        self.are_statements(self.stores) && self.flush_where_stored(true).is_ok()
    }

    /// The same for what comes second, in a list whose statements move.
    pub(super) fn can_flush_later(&self) -> bool {
        self.are_statements(self.later) && self.flushed(self.later).is_ok()
    }

    /// Whether all stores concerned are to members of one struct that lie in one line wherever the struct is.
    pub(super) fn are_in_one_line(&self) -> bool {
        const LINE: usize = 64;
        let tree = &self.list.tree;
        let range = |write: &Write| {
            let Target::Lvalue(target) = write.target else {
                return None;
            };
            let member = tree.strip(target);
            let field = tree.nodes[member].entity.get_reference()?;
            let is_member = tree.kind(member) == EntityKind::MemberRefExpr && field.get_kind() == EntityKind::FieldDecl;
            let record = field.get_semantic_parent().filter(|_| is_member)?;
            let block = record.get_type()?.get_alignof().ok()?.clamp(1, LINE);
            let start = field.get_offset_of_field().ok()? / 8;
            let end = start + tree.ty(member)?.get_sizeof().ok()?.max(1) - 1;
            let base = tree.child(member, 0).map(|base| tree.text(base));
            (start / block == end / block).then_some((record, base, start / block))
        };
        let places = [self.stores, self.later].concat();
        let ranges = self
            .writes(&places)
            .map(|writes| writes.iter().map(range).collect::<Option<Vec<_>>>());
        let is_one = |ranges: Vec<_>| !ranges.is_empty() && ranges.windows(2).all(|pair| pair[0] == pair[1]);
        ranges.is_ok_and(|ranges| ranges.is_some_and(is_one))
    }

    fn are_statements(&self, places: &[Place]) -> bool {
        let is_unit = |write: &Write| {
            let anchor = self.list.tree.anchor(write.node);
            anchor.is_ok_and(|anchor| self.list.units.iter().any(|unit| unit.node == anchor.node))
        };
        !places.is_empty() && self.writes(places).is_ok_and(|writes| writes.iter().all(is_unit))
    }

    /// Whether it can be written where the stores are made.
    pub(super) fn can_flush_inside(&self) -> bool {
        !self.stores.is_empty() && self.flush_where_stored(false).is_ok()
    }

    pub(super) fn writes(&self, places: &[Place]) -> Result<Vec<Write>, Refusal> {
        let mut writes = Vec::new();
        for place in places {
            let position = Patcher::position(place)?;
            let offset = self.list.tree.file.offset(position.line, position.column);
            if position.file != self.list.tree.file.path
                && crate::source::units::canonical(&position.file) != self.list.tree.file.path
                || !offset.is_some_and(|offset| self.list.range().contains(&offset))
            {
                return Err(Refusal::NoPosition);
            }
            writes.extend(
                self.list
                    .tree
                    .writes_at(position, &Hint::of(self.patcher.module(), place))?,
            );
        }
        Ok(writes)
    }

    /// Flushes behind each store, in whatever function that is.
    pub(super) fn flush_where_stored(&self, fence: bool) -> Result<Changes, Refusal> {
        let mut by_function: BTreeMap<&str, Vec<Place>> = BTreeMap::new();
        for place in self.stores {
            by_function.entry(&place.function).or_default().push(place.clone());
        }
        let mut changes = Changes::default();
        for places in by_function.values() {
            let first = places.first().ok_or(Refusal::NoPosition)?;
            let tree = FunctionTree::around(self.units, Patcher::position(first)?)?;
            let mut edits = Edits::default();
            self.patcher.flush_in(&tree, places, fence, &mut edits)?;
            changes.edit(&tree.file.path, &edits)?;
        }
        Ok(changes)
    }

    pub(super) fn write(&self, arrangement: &Arrangement) -> Result<Changes, Refusal> {
        let mut changes = match arrangement.inside {
            true => self.flush_where_stored(false)?,
            false => Changes::default(),
        };
        let edits = match arrangement.has_moves() {
            true => self.moved(arrangement)?,
            false => {
                if arrangement.has(Piece::Flush(Part::Before)) {
                    return self.flush_where_stored(arrangement.has(Piece::Fence));
                }
                self.inserted(arrangement)?
            }
        };
        changes.edit(&self.list.tree.file.path, &edits)?;
        Ok(changes)
    }

    /// Fences between statements that stay.
    fn inserted(&self, arrangement: &Arrangement) -> Result<Edits, Refusal> {
        let tree = &self.list.tree;
        let mut edits = Edits::default();
        let mut previous = None;
        for (index, piece) in arrangement.pieces.iter().enumerate() {
            match piece {
                Piece::Unit { unit, .. } => previous = Some(*unit),
                Piece::Fence => {
                    if let Some(Piece::Unit { unit: next, .. }) = arrangement.pieces.get(index + 1)
                        && is_label(tree.kind(self.list.units[*next].node))
                    {
                        return Err(Refusal::NoStatementAfter {
                            context: "code that a label leads past",
                        });
                    }
                    let unit = previous.ok_or(Refusal::NoStatementAfter {
                        context: "the beginning of a block",
                    })?;
                    let anchor = tree.anchor(self.list.units[unit].node)?;
                    if !matches!(anchor.context, Context::Block { .. }) {
                        return Err(Refusal::NoStatementAfter {
                            context: "another statement",
                        });
                    }
                    let idiom = self.patcher.idiom(tree, &anchor);
                    edits.insert_after(&anchor, fence(), &idiom, "");
                }
                Piece::Flush(_) => {}
            }
        }
        Ok(edits)
    }

    fn moved(&self, arrangement: &Arrangement) -> Result<Edits, Refusal> {
        let tree = &self.list.tree;
        let file = &tree.file;
        let mut edits = Edits::default();
        let newline = file.newline();
        // What comes between two statements that stay.
        let mut text = String::new();
        let mut behind: Option<usize> = None;
        let mut last_unit: Option<usize> = None;
        let is_kept = |piece: &Piece| matches!(piece, Piece::Unit { moved: false, .. });
        for (index, piece) in arrangement.pieces.iter().enumerate() {
            match *piece {
                Piece::Unit { unit, moved: false } => {
                    if !text.is_empty() {
                        self.insert(&mut edits, behind, unit, std::mem::take(&mut text))?;
                    }
                    behind = Some(unit);
                    last_unit = Some(unit);
                }
                Piece::Unit { unit, moved: true } => {
                    match self.list.split(unit) {
                        Some(split) => {
                            let indentation = file.indentation(self.list.units[unit].range.start);
                            text.push_str(&format!("{indentation}{}{newline}", split.step));
                            edits.replace(split.operator, String::new())?;
                        }
                        None => {
                            let lines = self.lines(unit)?;
                            text.push_str(&file.text[lines.clone()]);
                            if !text.ends_with('\n') {
                                text.push_str(newline);
                            }
                            edits.replace(lines, String::new())?;
                        }
                    }
                    last_unit = Some(unit);
                }
                Piece::Flush(_) | Piece::Fence => {
                    let is_pair = *piece != Piece::Fence && arrangement.pieces.get(index + 1) == Some(&Piece::Fence);
                    if *piece == Piece::Fence && index > 0 && matches!(arrangement.pieces[index - 1], Piece::Flush(_)) {
                        continue;
                    }
                    let unit = last_unit.ok_or(Refusal::NoStatementAfter {
                        context: "the beginning of a block",
                    })?;
                    let after = match *piece {
                        Piece::Flush(part) => After {
                            flushes: self.flushed(match part {
                                Part::Before => self.stores,
                                Part::After => self.later,
                            })?,
                            fence: is_pair,
                        },
                        _ => fence(),
                    };
                    let anchor = tree.anchor(self.list.units[unit].node)?;
                    let idiom = self.patcher.idiom(tree, &anchor);
                    let indentation = file.indentation(self.list.units[unit].range.start);
                    for line in statements(file, &idiom, &after) {
                        text.push_str(&format!("{indentation}{line}{newline}"));
                    }
                    edits.calls(&idiom, &after);
                }
            }
        }
        if !text.is_empty() {
            let last = arrangement.pieces.iter().rev().find(|piece| is_kept(piece));
            let Some(Piece::Unit { unit, .. }) = last else {
                return Err(Refusal::Overlap);
            };
            let lines = self.lines(*unit)?;
            edits.replace(lines.end..lines.end, text)?;
        }
        Ok(edits)
    }

    /// Between a statement and the next.
    fn insert(&self, edits: &mut Edits, behind: Option<usize>, next: usize, text: String) -> Result<(), Refusal> {
        let at = match behind {
            Some(behind) => self.lines(behind)?.end,
            None => self.lines(next)?.start,
        };
        edits.replace(at..at, text)
    }

    /// What the stores wrote, right behind their statement.
    fn flushed(&self, places: &[Place]) -> Result<Vec<Flushed>, Refusal> {
        let tree = &self.list.tree;
        let mut flushed = Vec::new();
        for write in self.writes(places)? {
            let anchor = tree.anchor(write.node)?;
            let substitutions = tree.repeat(&write, &[anchor.node])?;
            let flush = tree.flushed(&write, &substitutions)?;
            if !flushed.contains(&flush) {
                flushed.push(flush);
            }
        }
        Ok(flushed)
    }

    /// What a statement takes with it when it moves: whole lines, with the comments in front. It must have them for itself.
    pub(super) fn lines(&self, unit: usize) -> Result<Range<usize>, Refusal> {
        let file = &self.list.tree.file;
        let range = &self.list.units[unit].range;
        let start = file.line_start(range.start);
        let end = file.line_end(range.end);
        let rest = file.text[range.end..end].trim();
        let is_comment = rest.is_empty() || rest.starts_with("//") || (rest.starts_with("/*") && rest.ends_with("*/"));
        if !file.text[start..range.start].trim().is_empty() || !is_comment {
            return Err(Refusal::NotRemovable {
                why: format!("line {} has more than that statement", file.line(range.start)),
            });
        }
        if file.has_directive(range.clone()) {
            return Err(Refusal::Directive);
        }
        let next = file.text[end..].find('\n').map_or(file.text.len(), |at| end + at + 1);
        Ok(comments_before(file, start)..next)
    }
}

fn is_label(kind: EntityKind) -> bool {
    matches!(
        kind,
        EntityKind::LabelStmt | EntityKind::CaseStmt | EntityKind::DefaultStmt
    )
}

fn fence() -> After {
    After {
        flushes: Vec::new(),
        fence: true,
    }
}

/// Where the comment lines right in front of a line begin.
fn comments_before(file: &SourceFile, mut start: usize) -> usize {
    while start > 0 {
        let previous = file.line_start(start - 1);
        let line = file.text[previous..start].trim();
        if line.starts_with("//") || (line.starts_with("/*") && line.ends_with("*/")) {
            start = previous;
        } else if line.ends_with("*/") && !line.contains("/*") {
            // A comment of several lines, if nothing but it is in them.
            let Some(open) = file.text[..previous].rfind("/*") else {
                break;
            };
            let first = file.line_start(open);
            if !file.text[first..open].trim().is_empty() {
                break;
            }
            start = first;
        } else {
            break;
        }
    }
    start
}
