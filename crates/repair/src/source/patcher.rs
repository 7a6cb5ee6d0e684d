//! Goes through the plan and collects the changes of each file.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::anchor::{Anchor, Context};
use super::changed::{Cause, Changed, Patch, Splice};
use super::changes::Changes;
use super::edits::{After, Edits};
use super::hint::Hint;
use super::hoist::Hoisted;
use super::idiom::{HEADER, HEADER_NAME, Idiom, Idioms, Include};
use super::includes;
use super::refusal::Refusal;
use super::text::SourceFile;
use super::tree::{FunctionTree, NodeId};
use super::units::Units;
use super::variants::{self, Variant, VariantKey};
use super::written::{Flushed, Object, Write};
use crate::observed::Observed;
use crate::paths::SourcePath;
use crate::plan::{Edit, Place, Plan, Position};
use crashproof_llvm::Module;

pub(crate) struct Patcher<'a, 'c, 'u> {
    plan: &'a Plan,
    module: &'a Module<'c>,
    units: &'a Units<'u>,
    idioms: Idioms<'a, 'u>,
    changes: Changes,
    /// Names that were given to variables, by the function's file and offset.
    names: RefCell<BTreeSet<(PathBuf, usize, String)>>,
}

impl<'a, 'c, 'u> Patcher<'a, 'c, 'u> {
    pub(crate) fn new(
        plan: &'a Plan,
        module: &'a Module<'c>,
        observed: &Observed,
        units: &'a Units<'u>,
    ) -> Patcher<'a, 'c, 'u> {
        Patcher {
            plan,
            module,
            idioms: Idioms::new(module, observed, units),
            units,
            changes: Changes::default(),
            names: RefCell::default(),
        }
    }

    pub(crate) fn patch(mut self) -> Patch {
        let mut impossible = Vec::new();
        for (index, fix) in self.plan.fixes.iter().enumerate() {
            let changes = self.edit(&fix.edit);
            let result = changes.and_then(|changes| self.add(changes, Cause::Fix(index)));
            if let Err(refusal) = result {
                impossible.push((index, refusal));
            }
        }
        let files = self.render();
        Patch {
            files,
            idiom: self.changes.idiom(),
            impossible,
        }
    }

    fn edit(&self, edit: &Edit) -> Result<Changes, Refusal> {
        let mut changes = Changes::default();
        match edit {
            Edit::Flush { stores, fence } => self.flush(stores, *fence, &mut changes)?,
            Edit::Fence { after } => self.fence(after, &mut changes)?,
            Edit::Subprogram { call, clone, fence } => self.subprogram(call, clone, *fence, &mut changes)?,
            Edit::RemoveFlush { flush: place } | Edit::RemoveFence { fence: place } => {
                self.remove(place, &mut changes)?
            }
        }
        Ok(changes)
    }

    pub(super) fn plan(&self) -> &'a Plan {
        self.plan
    }

    pub(crate) fn module(&self) -> &'a Module<'c> {
        self.module
    }

    pub(super) fn units(&self) -> &'a Units<'u> {
        self.units
    }

    /// Of the fixes before.
    pub(super) fn made_variants(&self) -> &BTreeMap<VariantKey, Variant> {
        &self.changes.variants
    }

    /// For a variable, of the names that maintainers use one that the function does not.
    pub(super) fn free_name(&self, tree: &FunctionTree, names: &[&str]) -> String {
        let range = tree.range(0);
        let numbered = (2..).map(|number| format!("{}{number}", names[0]));
        let mut given = self.names.borrow_mut();
        let key = |name: &String| (tree.file.path.clone(), range.start, name.clone());
        let is_free = |name: &String| !tree.file.mentions(range.clone(), name) && !given.contains(&key(name));
        let plain = names.iter().map(|name| name.to_string());
        let name = plain.chain(numbered).find(is_free).unwrap_or_default();
        given.insert(key(&name));
        name
    }

    /// For the variable that keeps a value, where the context needs one.
    pub(crate) fn value_name(&self, tree: &FunctionTree, anchor: &Anchor) -> String {
        match anchor.context {
            Context::LoopCondition { .. } => self.free_name(tree, &["more", "again", "go_on"]),
            Context::Return { ty: Some(_), .. } | Context::Condition { .. } => {
                self.free_name(tree, &["ret", "result", "rc", "value"])
            }
            _ => String::new(),
        }
    }

    pub(crate) fn position(place: &Place) -> Result<&Position, Refusal> {
        place
            .position
            .as_ref()
            .filter(|position| position.line > 0)
            .ok_or(Refusal::NoPosition)
    }

    fn flush(&self, stores: &[Place], fence: bool, changes: &mut Changes) -> Result<(), Refusal> {
        let first = stores.first().ok_or(Refusal::NoPosition)?;
        let tree = FunctionTree::around(self.units, Self::position(first)?)?;
        let mut edits = Edits::default();
        self.flush_in(&tree, stores, fence, &mut edits)?;
        changes.edit(&tree.file.path, &edits)
    }

    pub(crate) fn idiom(&self, tree: &FunctionTree, anchor: &Anchor) -> Rc<Idiom> {
        Rc::new(self.idioms.at(tree, anchor))
    }

    /// Flushes what the stores wrote behind the last of them; behind each if its place cannot be named there.
    pub(crate) fn flush_in(
        &self,
        tree: &FunctionTree,
        stores: &[Place],
        fence: bool,
        edits: &mut Edits,
    ) -> Result<(), Refusal> {
        let mut writes: Vec<(Write, Anchor)> = Vec::new();
        for place in stores {
            for write in tree.writes_at(Self::position(place)?, &Hint::of(self.module, place))? {
                let anchor = tree.anchor(write.node)?;
                writes.push((write, anchor));
            }
        }
        writes.sort_by_key(|(write, anchor)| (anchor.statement.start, tree.range(write.node).start));
        let Some(last) = writes.last().map(|(_, anchor)| anchor.clone()) else {
            return Err(Refusal::NoPosition);
        };
        let idiom = self.idiom(tree, &last);
        let mut parts: Vec<Part> = Vec::new();
        for (write, anchor) in &writes {
            let region = statements_between(tree, anchor, &last);
            let repeated = region.and_then(|region| Some((tree.repeat(write, &region.nodes).ok()?, region)));
            match repeated {
                Some((substitutions, region)) => {
                    let flushed = tree.flushed(write, &substitutions)?;
                    if !region.is_conditional {
                        // Stored twice, flushed once.
                        let is_same =
                            |part: &Part| part.flushed.address == flushed.address && part.flushed.size == flushed.size;
                        parts.retain(|part| !is_same(part));
                    }
                    parts.push(Part { write, anchor, flushed });
                }
                None => self.flush_behind(tree, write, anchor, &idiom, edits)?,
            }
        }
        let mut flushes = coalesced(parts.iter().map(|part| part.flushed.clone()).collect());
        if flushes.len() > 1 {
            // They may lie in one line, which a second flush without a store in between would be wasted on.
            flushes.clear();
            for Part { write, anchor, flushed } in parts {
                match *anchor == last {
                    true => flushes.push(flushed),
                    false => self.flush_behind(tree, write, anchor, &idiom, edits)?,
                }
            }
        }
        let after = After { flushes, fence };
        edits.insert_after(&last, after, &idiom, &self.value_name(tree, &last));
        Ok(())
    }

    /// Flushes what a store wrote right behind it.
    fn flush_behind(
        &self,
        tree: &FunctionTree,
        write: &Write,
        anchor: &Anchor,
        idiom: &Rc<Idiom>,
        edits: &mut Edits,
    ) -> Result<(), Refusal> {
        let hoisted = match tree.repeat(write, &[anchor.node]) {
            Ok(substitutions) => Hoisted {
                flushed: tree.flushed(write, &substitutions)?,
                before: Vec::new(),
                replacements: Vec::new(),
            },
            Err(reason) => self.hoisted(tree, write, anchor, reason)?,
        };
        let after = After {
            flushes: vec![hoisted.flushed],
            fence: false,
        };
        edits.insert_after(anchor, after, idiom, &self.value_name(tree, anchor));
        for line in hoisted.before {
            edits.insert_before(anchor, line);
        }
        for (range, text) in hoisted.replacements {
            edits.replace(range, text)?;
        }
        Ok(())
    }

    fn fence(&self, place: &Place, changes: &mut Changes) -> Result<(), Refusal> {
        let tree = FunctionTree::around(self.units, Self::position(place)?)?;
        let mut edits = Edits::default();
        self.fence_in(&tree, place, &mut edits)?;
        changes.edit(&tree.file.path, &edits)
    }

    pub(super) fn fence_in(&self, tree: &FunctionTree, place: &Place, edits: &mut Edits) -> Result<(), Refusal> {
        let node = tree.call_at(Self::position(place)?, &Hint::of(self.module, place))?;
        let anchor = tree.anchor(node)?;
        let idiom = self.idiom(tree, &anchor);
        let after = After {
            flushes: Vec::new(),
            fence: true,
        };
        edits.insert_after(&anchor, after, &idiom, &self.value_name(tree, &anchor));
        Ok(())
    }

    /// Deletes a statement that is nothing but the flush or fence.
    fn remove(&self, place: &Place, changes: &mut Changes) -> Result<(), Refusal> {
        let position = Self::position(place)?;
        let tree = FunctionTree::around(self.units, position)?;
        let node = tree.call_at(position, &Hint::of(self.module, place))?;
        let anchor = tree.anchor(node)?;
        let refuse = |why: &str| Err(Refusal::NotRemovable { why: why.into() });
        let Context::Block { end } = anchor.context else {
            return refuse("it is part of another statement");
        };
        if tree.strip(anchor.node) != node {
            return refuse("it is part of another statement");
        }
        let file = &tree.file;
        let line_start = file.line_start(anchor.statement.start);
        let line_end = file.line_end(end);
        let is_alone = file.text[line_start..anchor.statement.start].trim().is_empty()
            && file.text[end..line_end].trim().is_empty();
        let range = match is_alone {
            true => line_start..(line_end + file.newline().len()).min(file.text.len()),
            false => anchor.statement.start..end,
        };
        let mut edits = Edits::default();
        edits.replace(range, String::new())?;
        changes.edit(&file.path, &edits)
    }

    /// All of the changes, or none.
    pub(crate) fn add(&mut self, changes: Changes, cause: Cause) -> Result<(), Refusal> {
        self.changes.merge(&changes.because(cause))
    }

    pub(crate) fn render(&self) -> Vec<Changed> {
        let mut files = Vec::new();
        let source = |path: &Path| SourcePath::of(self.units.tree(), path);
        let uses_header = |path: &&PathBuf| self.changes.includes(path).contains(&Include::Header);
        let paths = self.changes.paths();
        let folder = common_folder(paths.iter().copied().filter(uses_header));
        let header = folder.map(|folder| folder.join(HEADER_NAME));
        for path in paths {
            if let (Ok(file), Some(source)) = (self.units.file(path), source(path)) {
                let includes = self.includes(path, header.as_deref());
                files.push(Changed::new(source, &file, self.splices(&file, &includes)));
            }
        }
        if let Some(path) = header.filter(|header| !header.exists()).as_deref().and_then(source) {
            let users = self.changes.paths().into_iter().filter(uses_header);
            let causes = users.flat_map(|path| self.changes.causes(path)).collect();
            files.push(Changed::file(path, HEADER, &causes));
        }
        files.retain(|file| file.old.as_ref() != Some(&file.new));
        files
    }

    /// What the changes of a file need, as it is written behind `#include`.
    fn includes(&self, path: &Path, header: Option<&Path>) -> Vec<String> {
        let from = |target: &Path| format!("\"{}\"", includes::relative(path, target).display());
        let includes = self.changes.includes(path).into_iter();
        includes
            .map(|include| match include {
                Include::Spelled(name) => name,
                Include::Header => from(header.unwrap_or(Path::new(HEADER_NAME))),
                Include::Tree(target) => from(&target),
            })
            .collect()
    }

    fn splices(&self, file: &SourceFile, includes: &[String]) -> Vec<Splice> {
        let newline = file.newline();
        let edits = self.changes.files.get(&file.path);
        let mut splices = edits.map_or_else(Vec::new, |edits| edits.splices(file));
        for ((path, end), declaration) in &self.changes.declarations {
            if *path == file.path {
                let behind = file.next_token(*end).filter(|token| file.token_text(*token) == ";");
                let at = behind.map_or(*end, |token| token.end);
                splices.push(Splice {
                    range: at..at,
                    text: format!("{newline}{}{}", file.indentation(declaration.start), declaration.text),
                    causes: declaration.causes.clone(),
                });
            }
        }
        let mut start = edits.and_then(Edits::start).unwrap_or(file.text.len());
        for ((path, at), variant) in &self.changes.variants {
            if *path == file.path {
                splices.push(variants::rendered(file, variant));
                start = start.min(*at);
            }
        }
        splices.extend(includes::insertion(file, start, includes).map(|(at, text)| Splice {
            range: at..at,
            text,
            causes: self.changes.causes(&file.path),
        }));
        splices
    }
}

/// A store that is flushed with others.
struct Part<'w> {
    write: &'w Write,
    anchor: &'w Anchor,
    flushed: Flushed,
}

/// Code that lies between two statements.
struct Between {
    nodes: Vec<NodeId>,
    /// The first is part of a branch or loop that the second is behind.
    is_conditional: bool,
}

/// The statements of a block from the one that is or holds `from` to another; `None` if they are in no such block, or `from` names what is not known
/// behind it.
fn statements_between(tree: &FunctionTree, from: &Anchor, to: &Anchor) -> Option<Between> {
    if from == to {
        return Some(Between {
            nodes: vec![from.node],
            is_conditional: false,
        });
    }
    let block = tree.nodes[to.node].parent?;
    let outer = std::iter::once(from.node)
        .chain(tree.ancestors(from.node))
        .find(|outer| tree.nodes[*outer].parent == Some(block))?;
    let children = &tree.nodes[block].children;
    let index = |node| children.iter().position(|child| *child == node);
    let range = index(outer)?..=index(to.node)?;
    let is_conditional = outer != from.node;
    let names_inner = || {
        tree.descendants(from.node).any(|node| {
            let declared = tree.local_variable(node).and_then(|variable| variable.get_location());
            let at = declared.map(|location| location.get_file_location().offset as usize);
            at.is_some_and(|at| tree.range(outer).contains(&at))
        })
    };
    // In a loop, what stands before may come after.
    let is_repeated = || {
        use clang::EntityKind::{DoStmt, ForRangeStmt, ForStmt, WhileStmt};
        let within = tree.ancestors(from.node).take_while(|node| *node != block);
        within
            .map(|node| tree.kind(node))
            .any(|kind| matches!(kind, DoStmt | ForRangeStmt | ForStmt | WhileStmt))
    };
    let is_possible = !range.is_empty() && (!is_conditional || !(names_inner() || is_repeated()));
    is_possible.then(|| Between {
        nodes: children[range].to_vec(),
        is_conditional,
    })
}

/// Up to this many bytes, an object is flushed as a whole if several members were written.
const SMALL: u64 = 128;
const LINE: u64 = 64;

/// One flush of an object instead of one for each of its members, where that costs no more than a line.
fn coalesced(flushes: Vec<Flushed>) -> Vec<Flushed> {
    let Some(object) = flushes.first().and_then(|first| first.member_of.clone()) else {
        return flushes;
    };
    let members: Vec<_> = flushes.iter().filter_map(|flush| flush.member_of.as_ref()).collect();
    let is_one = members.len() == flushes.len()
        && flushes.len() > 1
        && members.iter().all(|member| member.address == object.address);
    let lines = |member: &&Object| member.offset / LINE..=(member.offset + member.length.max(1) - 1) / LINE;
    let touched: BTreeSet<u64> = members.iter().flat_map(lines).collect();
    if !is_one || (object.bytes > SMALL && object.bytes.div_ceil(LINE) > touched.len() as u64) {
        return flushes;
    }
    // Behind the object lies its flexible array: one range.
    let mut tails = members.iter().filter_map(|member| member.tail.as_ref());
    let size = match (tails.next(), tails.next()) {
        (None, _) => object.size,
        (Some(tail), None) => format!("{} + {tail}", object.size),
        _ => return flushes,
    };
    let mut flush = flushes[0].clone();
    flush.address = object.address;
    flush.size = size;
    flush.member_of = None;
    flush.is_in_one_line = false;
    vec![flush]
}

fn common_folder<'p>(paths: impl Iterator<Item = &'p PathBuf>) -> Option<PathBuf> {
    paths
        .filter_map(|path| path.parent().map(Path::to_path_buf))
        .reduce(|a, b| {
            a.ancestors()
                .find(|folder| b.starts_with(folder))
                .unwrap_or(Path::new("/"))
                .to_path_buf()
        })
}
