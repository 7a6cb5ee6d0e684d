//! Goes through the plan and collects the changes of each file.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use inkwell::module::Module;

use super::anchor::Anchor;
use super::diff::{Changed, Patch};
use super::edits::{After, Edits};
use super::hint::Hint;
use super::idiom::{HEADER, HEADER_NAME, Idiom, Include};
use super::includes;
use super::refusal::Refusal;
use super::tree::{FunctionTree, NodeId};
use super::units::Units;
use super::written::{Flushed, Write};
use crate::plan::{Edit, Place, Plan, Position};

pub struct Patcher<'a, 'c, 'u> {
    plan: &'a Plan,
    module: &'a Module<'c>,
    units: &'a Units<'u>,
    changes: Changes,
}

/// Of one fix, or of all.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    pub files: BTreeMap<PathBuf, Edits>,
    pub includes: BTreeMap<PathBuf, BTreeSet<Include>>,
}

impl Changes {
    fn merge(&mut self, other: &Changes) -> Result<(), Refusal> {
        let mut files = self.files.clone();
        for (path, edits) in &other.files {
            files.entry(path.clone()).or_default().merge(edits)?;
        }
        self.files = files;
        for (path, includes) in &other.includes {
            self.includes
                .entry(path.clone())
                .or_default()
                .extend(includes.iter().cloned());
        }
        Ok(())
    }
}

impl<'a, 'c, 'u> Patcher<'a, 'c, 'u> {
    pub fn new(plan: &'a Plan, module: &'a Module<'c>, units: &'a Units<'u>) -> Patcher<'a, 'c, 'u> {
        Patcher {
            plan,
            module,
            units,
            changes: Changes::default(),
        }
    }

    pub fn patch(mut self) -> Patch {
        let mut impossible = Vec::new();
        for (index, fix) in self.plan.fixes.iter().enumerate() {
            let result = self.edit(&fix.edit).and_then(|changes| self.changes.merge(&changes));
            if let Err(refusal) = result {
                impossible.push((index, refusal));
            }
        }
        let files = self.render();
        Patch {
            files,
            idiom: String::new(),
            impossible,
        }
    }

    fn edit(&self, edit: &Edit) -> Result<Changes, Refusal> {
        let mut changes = Changes::default();
        match edit {
            Edit::Flush { stores, fence } => self.flush(stores, *fence, &mut changes)?,
            Edit::Fence { after } => self.fence(after, &mut changes)?,
            Edit::Subprogram { .. } => {
                return Err(Refusal::NoRedirection {
                    why: "persistent subprograms have no source form yet".into(),
                });
            }
            Edit::RemoveFlush { flush: place } | Edit::RemoveFence { fence: place } => {
                self.remove(place, &mut changes)?
            }
        }
        Ok(changes)
    }

    fn position(place: &Place) -> Result<&Position, Refusal> {
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
        let idiom = self.flush_in(&tree, stores, fence, &mut edits)?;
        self.add(&tree, edits, &idiom, changes);
        Ok(())
    }

    fn add(&self, tree: &FunctionTree, edits: Edits, idiom: &Idiom, changes: &mut Changes) {
        let path = tree.file.path.clone();
        changes.files.insert(path.clone(), edits);
        changes
            .includes
            .entry(path)
            .or_default()
            .extend(idiom.includes.iter().cloned());
    }

    fn idiom(&self, _tree: &FunctionTree, _anchor: &Anchor) -> Rc<Idiom> {
        Rc::new(match self.module.get_function("pmem_map_file").is_some() {
            true => Idiom::libpmem(),
            false => Idiom::header(),
        })
    }

    /// Flushes what the stores wrote behind the last of them; behind each if its place cannot be named there.
    fn flush_in(
        &self,
        tree: &FunctionTree,
        stores: &[Place],
        fence: bool,
        edits: &mut Edits,
    ) -> Result<Rc<Idiom>, Refusal> {
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
        let mut behind_last: Vec<Flushed> = Vec::new();
        for (write, anchor) in &writes {
            let region = statements_between(tree, anchor, &last);
            let repeated = region.and_then(|region| tree.repeat(write, &region).ok());
            match repeated {
                Some(substitutions) => behind_last.push(tree.flushed(write, &substitutions)?),
                None => {
                    let substitutions = tree.repeat(write, &[anchor.node])?;
                    let after = After {
                        flushes: vec![tree.flushed(write, &substitutions)?],
                        fence: false,
                    };
                    edits.insert_after(anchor, after, &idiom, &tree.free_name());
                }
            }
        }
        let after = After {
            flushes: coalesced(behind_last),
            fence,
        };
        edits.insert_after(&last, after, &idiom, &tree.free_name());
        Ok(idiom)
    }

    fn fence(&self, place: &Place, changes: &mut Changes) -> Result<(), Refusal> {
        let position = Self::position(place)?;
        let tree = FunctionTree::around(self.units, position)?;
        let node = tree.call_at(position, &Hint::of(self.module, place))?;
        let anchor = tree.anchor(node)?;
        let idiom = self.idiom(&tree, &anchor);
        let mut edits = Edits::default();
        let after = After {
            flushes: Vec::new(),
            fence: true,
        };
        edits.insert_after(&anchor, after, &idiom, &tree.free_name());
        self.add(&tree, edits, &idiom, changes);
        Ok(())
    }

    /// Deletes a statement that is nothing but the flush or fence.
    fn remove(&self, place: &Place, changes: &mut Changes) -> Result<(), Refusal> {
        use super::anchor::Context;
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
        changes.files.insert(file.path.clone(), edits);
        Ok(())
    }

    fn render(&self) -> Vec<Changed> {
        let mut files = Vec::new();
        let header_users = |path: &&PathBuf| {
            self.changes
                .includes
                .get(*path)
                .is_some_and(|includes| includes.contains(&Include::Header))
        };
        let header =
            common_folder(self.changes.files.keys().filter(header_users)).map(|folder| folder.join(HEADER_NAME));
        for (path, edits) in &self.changes.files {
            let Ok(file) = self.units.file(path) else {
                continue;
            };
            let includes: Vec<String> = self
                .changes
                .includes
                .get(path)
                .into_iter()
                .flatten()
                .map(|include| match include {
                    Include::Spelled(name) => name.clone(),
                    Include::Header => {
                        let header = header.as_deref().unwrap_or(Path::new(HEADER_NAME));
                        format!("\"{}\"", includes::relative(path, header).display())
                    }
                })
                .collect();
            let start = edits.start().unwrap_or(0);
            let (at, lines) = includes::insertion(&file, start, &includes).unwrap_or_default();
            let mut new = file.text[..at].to_owned();
            new.push_str(&lines);
            new.push_str(&edits.apply(&file, at..file.text.len()));
            files.push(Changed {
                path: path.strip_prefix(self.units.tree()).unwrap_or(path).to_path_buf(),
                old: Some(file.text.clone()),
                new,
            });
        }
        if let Some(header) = header.filter(|header| !header.exists()) {
            files.push(Changed {
                path: header.strip_prefix(self.units.tree()).unwrap_or(&header).to_path_buf(),
                old: None,
                new: HEADER.into(),
            });
        }
        files
    }
}

/// The statements of a block from one to another; `None` if they are not in one block.
fn statements_between(tree: &FunctionTree, from: &Anchor, to: &Anchor) -> Option<Vec<NodeId>> {
    if from == to {
        return Some(vec![from.node]);
    }
    let block = tree.nodes[from.node]
        .parent
        .filter(|block| tree.nodes[to.node].parent == Some(*block))?;
    let children = &tree.nodes[block].children;
    let index = |node| children.iter().position(|child| *child == node);
    let range = index(from.node)?..=index(to.node)?;
    (!range.is_empty()).then(|| children[range].to_vec())
}

/// Up to this many bytes, an object is flushed as a whole if several members were written.
const SMALL: u64 = 128;

/// One flush of an object instead of one for each of its members, where that costs no more than a line.
fn coalesced(flushes: Vec<Flushed>) -> Vec<Flushed> {
    let Some(object) = flushes.first().and_then(|first| first.member_of.clone()) else {
        return flushes;
    };
    let members: Vec<_> = flushes.iter().filter_map(|flush| flush.member_of.as_ref()).collect();
    let is_one = members.len() == flushes.len()
        && flushes.len() > 1
        && members.iter().all(|member| member.address == object.address);
    let start = members.iter().map(|member| member.offset).min().unwrap_or(0);
    let end = members
        .iter()
        .map(|member| member.offset + member.length)
        .max()
        .unwrap_or(0);
    if !is_one || (object.bytes > SMALL && object.bytes > 2 * (end - start)) {
        return flushes;
    }
    let mut flush = flushes[0].clone();
    flush.address = object.address;
    flush.size = object.size;
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

impl FunctionTree<'_> {
    /// For a variable, of the names that maintainers use one that the function does not.
    pub fn free_name(&self) -> String {
        let range = self.range(0);
        let names = ["ret", "result", "rc", "value"].map(String::from).into_iter();
        let numbered = (2..).map(|number| format!("ret{number}"));
        names
            .chain(numbered)
            .find(|name| !self.file.mentions(range.clone(), name))
            .unwrap_or_default()
    }
}
