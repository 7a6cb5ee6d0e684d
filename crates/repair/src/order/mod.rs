//! From the orders of crash findings to changes of the source: what has to persist before what, and which statements have to move, or which flushes and
//! fences have to come in between, for that.
//!
//! The repair problem is PMBugAssist's (ICSE 2024, sections 3 to 6); the paper ends at a repaired trace, and this module at a patch that is right for every
//! path through the source.

mod acknowledged;
mod across;
mod advice;
mod atomic;
mod calls;
mod effects;
mod fences;
mod instance;
mod library;
mod list;
mod meets;
mod moves;
mod search;
mod slice;
#[cfg(test)]
mod tests;
mod trace;
mod unpersisted;
mod words;
mod write;

use std::ops::Range;
use std::path::{Path, PathBuf};

use clang::Index;
use crashproof_finding::{Crash, CrashStore, Finding, Frame, Kind};
use crashproof_llvm::Module;
use crashproof_program::Program;
use crashproof_trace::StackId;
use rustc_hash::FxHashSet;

use crate::ir::Code;
use crate::locate::{self, Locator};
use crate::observed::Observed;
use crate::plan::{Place, Plan};
use crate::source::changes::Changes;
use crate::source::patcher::Patcher;
use crate::source::units::{Libclang, Units};
use crate::source::{self, Cause, Changed, CompileCommand, SourceError};
use effects::Analysis;
use instance::{Instance, Strictness};
use list::{List, ListError, NoList, Parting};
use moves::Movable;
use search::Possible;
use trace::{CallPath, SourceTree, Trace, What};
use write::Writer;

/// Orders of one list that are looked at together: as many as [`instance::Roles`] has bits.
const MOST_ORDERS: usize = 32;

/// What is to be put in order.
pub(crate) struct OrderRequest<'a, 'context> {
    /// Of `crashproof crash`, with the paths of `tree`.
    pub findings: &'a [Finding],
    pub program: &'a Program<'context>,
    /// Of the repair build, the one that was crashed.
    pub trace: &'a Path,
    pub observed: &'a Observed,
    /// The copy that the program was built in.
    pub tree: &'a Path,
}

/// The changes, and what became of each finding.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct OrderPatch {
    pub files: Vec<Changed>,
    pub fixes: Vec<OrderFix>,
    pub left: Vec<OrderLeft>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OrderFix {
    /// Their indices.
    pub findings: Vec<usize>,
    /// What is moved or inserted where, and why it is safe.
    pub words: Vec<String>,
    /// The slice of the trace, repaired, as a litmus file.
    pub litmus: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OrderLeft {
    pub finding: usize,
    pub reason: String,
    /// What would help, for a person to do.
    pub advice: Option<String>,
}

/// Puts in order what can be.
pub(crate) fn patch(request: &OrderRequest) -> Result<OrderPatch, SourceError> {
    let mut tree = SourceTree::new(request.tree);
    let trace = Trace::read(request.trace, &mut tree).map_err(|source| SourceError::Trace {
        path: request.trace.to_path_buf(),
        source,
    })?;
    let sources = Sources {
        module: &request.program.module,
        commands: source::commands(request.program),
        observed: request.observed,
        tree: request.tree,
    };
    patch_sources(request.findings, sources, &trace, tree)
}

/// The program, as bitcode and as text.
struct Sources<'a, 'c> {
    module: &'a Module<'c>,
    commands: Vec<CompileCommand>,
    observed: &'a Observed,
    tree: &'a Path,
}

fn patch_sources(
    findings: &[Finding],
    sources: Sources,
    trace: &Trace,
    tree: SourceTree,
) -> Result<OrderPatch, SourceError> {
    let libclang = Libclang::load()?;
    let index = Index::new(&libclang.clang, false, false);
    let units = Units::new(&index, sources.tree, sources.commands);
    let plan = Plan::default();
    let module = sources.module;
    let mut orderer = Orderer {
        module,
        units: &units,
        trace,
        locator: Locator::new(module),
        analysis: Analysis::new(module),
        patcher: Patcher::new(&plan, module, sources.observed, &units),
        tree,
        accepted: Vec::new(),
        solved: Vec::new(),
    };
    let mut patch = OrderPatch::default();
    for (index, finding) in findings.iter().enumerate() {
        match orderer.repair(finding) {
            Ok(fixes) => orderer.accept(index, fixes, &mut patch),
            Err(reason) => {
                let names = atomic::names(&mut orderer, finding);
                patch.left.push(OrderLeft {
                    finding: index,
                    reason,
                    advice: advice::advice(finding, &names),
                });
            }
        }
    }
    patch.files = orderer.patcher.render();
    Ok(patch)
}

/// What all findings share.
struct Orderer<'a, 'c, 'u> {
    module: &'a Module<'c>,
    units: &'a Units<'u>,
    trace: &'a Trace,
    locator: Locator<'a>,
    analysis: Analysis<'a, 'c>,
    patcher: Patcher<'a, 'c, 'u>,
    tree: SourceTree,
    /// Fixes so far, with their place in the patch.
    accepted: Vec<(usize, Fix)>,
    /// Orders with their fixes: another finding may ask for some of them again.
    solved: Vec<Solved>,
}

/// A change of one list, for one finding.
#[derive(Clone)]
struct Fix {
    /// The list and its new arrangement: fixes with the same one are one.
    key: String,
    /// Of what it moves: nothing else may change there.
    moved: Vec<(PathBuf, Range<usize>)>,
    /// Statements behind which it inserts.
    touched: Vec<(PathBuf, Range<usize>)>,
    changes: Changes,
    words: Vec<String>,
    litmus: String,
}

/// Orders of a finding, as what leads to the stores, and their fixes.
struct Solved {
    orders: Vec<(CallPath, CallPath)>,
    fixes: Vec<Fix>,
}

/// Orders that are about one list; `None` if they have none.
struct Group {
    list: Option<(PathBuf, usize)>,
    orders: Vec<(Side, Side)>,
}

/// A store (or what is like one) of an order.
#[derive(Clone)]
struct Side {
    frames: Vec<Frame>,
    path: CallPath,
    /// Those of the trace that are the same path.
    stacks: FxHashSet<StackId>,
}

impl<'a, 'c, 'u> Orderer<'a, 'c, 'u> {
    /// The changes that a finding needs, or why there are none.
    fn repair(&mut self, finding: &Finding) -> Result<Vec<Fix>, String> {
        let orders = match finding.kind {
            Kind::CrashOrder => self.orders(finding)?,
            Kind::CrashDurability => self.acknowledged(finding)?,
            Kind::CrashAtomicity => {
                let none = || "no order of these updates helps: they have to become persistent as one".to_owned();
                return atomic::make_one(self, finding).map(|fix| vec![fix]).ok_or_else(none);
            }
            _ => return Err("it is no finding of a crash test".into()),
        };
        let paths: Vec<(CallPath, CallPath)> = orders
            .iter()
            .map(|(before, after)| (before.path.clone(), after.path.clone()))
            .collect();
        let covers = |solved: &&Solved| paths.iter().all(|order| solved.orders.contains(order));
        if let Some(solved) = self.solved.iter().find(covers) {
            return Ok(solved.fixes.clone());
        }
        let mut fixes = Vec::new();
        for group in self.by_list(orders) {
            fixes.push(self.put_in_order(&group.orders)?);
        }
        self.solved.push(Solved {
            orders: paths,
            fixes: fixes.clone(),
        });
        Ok(fixes)
    }

    /// The orders that a finding asks for.
    fn orders(&mut self, finding: &Finding) -> Result<Vec<(Side, Side)>, String> {
        let crash = finding
            .crash
            .as_ref()
            .ok_or("the finding does not say which crash it is about")?;
        if finding.order.is_empty() {
            return Err("the finding does not say what has to persist before what".into());
        }
        let mut orders = Vec::new();
        for order in &finding.order {
            let before = self.side_of(&order.before, order.before_event, &crash.missing, crash);
            let after = self.side_of(&order.after, order.after_event, &crash.persisted, crash);
            for (side, frame) in [(&before, &order.before), (&after, &order.after)] {
                if side.path.is_empty() {
                    let function = frame.function.as_deref().unwrap_or("an unknown function");
                    return Err(format!(
                        "{function} is not in the source tree, so nothing can be changed there"
                    ));
                }
            }
            orders.push((before, after));
        }
        Ok(orders)
    }

    /// One of the stores; without the event, the first at the frame.
    fn side_of(&mut self, frame: &Frame, event: Option<u64>, stores: &[CrashStore], crash: &Crash) -> Side {
        let is_it = |store: &&CrashStore| match event {
            Some(_) => store.event == event,
            None => store.frame == *frame,
        };
        match stores.iter().find(is_it) {
            Some(store) => self.side(store, crash),
            None => self.side_at(vec![frame.clone()]),
        }
    }

    /// A store of a crash: where the trace has its event, by that.
    fn side(&mut self, store: &CrashStore, crash: &Crash) -> Side {
        if let Some(stack) = self.event(store, crash).and_then(|index| {
            let event = &self.trace.events[index];
            self.trace.stack(event.stack)
        }) {
            return Side {
                frames: stack.frames.clone(),
                path: stack.path.clone(),
                stacks: self.trace.stacks_of(&stack.path),
            };
        }
        self.side_at(match store.stack.is_empty() {
            true => vec![store.frame.clone()],
            false => store.stack.clone(),
        })
    }

    /// The index of a store in the trace. A crash of the recovery is in another one.
    fn event(&self, store: &CrashStore, crash: &Crash) -> Option<usize> {
        self.trace.index(store.event.filter(|_| crash.depth < 2)?)
    }

    /// What another build, or another tool, says of a stack: found by its places in the source.
    fn side_at(&mut self, frames: Vec<Frame>) -> Side {
        let path = self.tree.path(&frames);
        Side {
            stacks: self.trace.stacks_of(&path),
            path,
            frames,
        }
    }

    /// Of what was acknowledged before it was durable: the store before the output that came next.
    fn acknowledged(&mut self, finding: &Finding) -> Result<Vec<(Side, Side)>, String> {
        let crash = finding
            .crash
            .as_ref()
            .ok_or("the finding does not say which crash it is about")?;
        let mut orders: Vec<(Side, Side)> = Vec::new();
        for store in crash.missing.iter().filter(|store| store.executed) {
            let before = self.side(store, crash);
            let mut events = self.trace.events.iter();
            let at = self
                .event(store, crash)
                .or_else(|| events.position(|event| before.stacks.contains(&event.stack)));
            let output = at.and_then(|at| {
                let thread = self.trace.events[at].thread;
                let mut later = self.trace.events[at + 1..].iter();
                later.find(|event| event.thread == thread && event.what == What::Output)
            });
            let output = output.ok_or("the recording has no output behind the store")?;
            let path = self.trace.path(output.stack).to_vec();
            let output = Side {
                frames: Vec::new(),
                stacks: self.trace.stacks_of(&path),
                path,
            };
            orders.push((before, output));
        }
        match orders.is_empty() {
            true => Err("the finding names no store that was lost".into()),
            false => Ok(orders),
        }
    }

    /// Orders that are about one list, together.
    fn by_list(&self, orders: Vec<(Side, Side)>) -> Vec<Group> {
        let mut groups: Vec<Group> = Vec::new();
        for order in orders {
            let found = self.list_of(&order).ok();
            let list = found.map(|(list, _)| (list.tree.file.path.clone(), list.range().start));
            match groups.iter_mut().find(|group| list.is_some() && group.list == list) {
                Some(group) => group.orders.push(order),
                None => groups.push(Group {
                    list,
                    orders: vec![order],
                }),
            }
        }
        groups
    }

    fn list_of(&self, (before, after): &(Side, Side)) -> Result<(List<'a>, Parting), String> {
        let same = || "one statement makes both stores, so their order is not the source's to say".to_owned();
        let parting = list::parting(&before.path, &after.path).map_err(|none| match none {
            NoList::Same => same(),
            NoList::Apart => "no function of the source tree calls both, directly or not".to_owned(),
        })?;
        let (Some(ours), Some(theirs)) = (parting.before.last(), parting.after.last()) else {
            return Err(same());
        };
        let list = List::around(self.units, ours, theirs).map_err(|error| match error {
            ListError::Same => same(),
            ListError::Refused(refusal) => refusal.to_string(),
        })?;
        Ok((list, parting))
    }

    /// Solves the orders of one list.
    fn put_in_order(&self, orders: &[(Side, Side)]) -> Result<Fix, String> {
        let mut wanted = Vec::new();
        let mut found = None;
        for order in orders.iter().take(MOST_ORDERS) {
            match self.list_of(order) {
                Ok((list, parting)) => {
                    wanted.push(parting);
                    found = Some(list);
                }
                Err(reason) => return self.across(orders).map_err(|_| reason),
            }
        }
        let list = found.ok_or("there is no order")?;
        let instances = instance::instances(self.trace, &list, &wanted);
        let units = list.units.len();
        let is_broken = |instance: &&Instance| !instance.in_order(units, Strictness::Durable);
        let Some(typical) = instances.iter().find(is_broken) else {
            let reason = "the recording of the repair build does not show the two stores in the wrong order";
            let fix = self.across(orders).or_else(|reason| match instances.is_empty() {
                true => across::unseen(self, orders, &list, &wanted),
                false => Err(reason),
            });
            return fix.map_err(|_| reason.into());
        };
        let movable = Movable::new(&list, self.module, &self.analysis, &instances);
        let stores = self.places(orders.iter().map(|(before, _)| before));
        let later = self.places(orders.iter().map(|(_, after)| after));
        let writer = Writer {
            later: &later,
            ..self.writer(&list, &stores)
        };
        let possible = Possible {
            flush_behind: writer.can_flush_behind(),
            flush_inside: writer.can_flush_inside(),
            flush_after: writer.can_flush_later(),
            in_line: writer.are_in_one_line(),
        };
        let best = search::best(&movable, &instances, wanted.len(), &possible, |arrangement| {
            writer.write(arrangement)
        });
        let (arrangement, changes) = best?;
        let mut words = words::words(&list, &arrangement, &instances);
        words.extend(typical.litmus(&typical.as_it_was(units), false).least());
        let slice = typical.litmus(&arrangement.pieces, arrangement.inside);
        let litmus = slice.shown(|stack| self.store_name(stack));
        let file = &list.tree.file.path;
        let place = |unit: usize| (file.clone(), list.units[unit].range.clone());
        Ok(Fix {
            key: format!("{}:{}: {arrangement:?}", file.display(), list.range().start),
            moved: arrangement.moves().map(place).collect(),
            touched: arrangement.touched().into_iter().map(place).collect(),
            changes,
            words,
            litmus,
        })
    }

    /// `stores` have to persist first.
    fn writer<'w>(&'w self, list: &'w List<'a>, stores: &'w [Place]) -> Writer<'w, 'a, 'c, 'u> {
        Writer {
            patcher: &self.patcher,
            units: self.units,
            list,
            stores,
            later: &[],
        }
    }

    /// The store of a stack, as `line7`.
    fn store_name(&self, stack: StackId) -> Option<String> {
        let site = self.trace.path(stack).first()?;
        Some(format!("line{}", site.position.line))
    }

    /// Stores in the bitcode; none if one of them is not in it.
    fn places<'s>(&self, sides: impl Iterator<Item = &'s Side>) -> Vec<Place> {
        let mut places = Vec::new();
        for side in sides {
            let Ok(stack) = self.locator.stack(&side.frames, locate::Wanted::Store) else {
                return Vec::new();
            };
            places.extend(stack.at.iter().filter_map(|at| at.place()));
        }
        places.sort();
        places.dedup();
        places
    }

    /// Stores of different threads, or of different calls: what has to persist first is made persistent where it is stored.
    fn across(&self, orders: &[(Side, Side)]) -> Result<Fix, String> {
        across::put_in_order(self, orders)
    }

    /// Takes the fixes of a finding into the patch, all or none.
    fn accept(&mut self, finding: usize, fixes: Vec<Fix>, patch: &mut OrderPatch) {
        let is_accepted = |fix: &Fix| self.accepted.iter().any(|(_, other)| other.key == fix.key);
        let clashes = |fix: &Fix| {
            let others = self.accepted.iter().filter(|(_, other)| other.key != fix.key);
            others
                .into_iter()
                .any(|(_, other)| meets(&other.moved, fix) || meets(&fix.moved, other))
        };
        if fixes.iter().all(is_accepted)
            && let Some(first) = fixes.first()
            && let Some((index, _)) = self.accepted.iter().find(|(_, other)| other.key == first.key)
        {
            patch.fixes[*index].findings.push(finding);
            return;
        }
        let mut together = Changes::default();
        let merged = fixes.iter().try_for_each(|fix| together.merge(&fix.changes));
        let cause = Cause::Order(patch.fixes.len());
        if !fixes.iter().any(clashes) && merged.is_ok() && self.patcher.add(together, cause).is_ok() {
            patch.fixes.push(OrderFix {
                findings: vec![finding],
                words: fixes.iter().flat_map(|fix| fix.words.clone()).collect(),
                litmus: fixes.iter().map(|fix| &*fix.litmus).collect::<Vec<_>>().join("\n"),
            });
            let index = patch.fixes.len() - 1;
            self.accepted.extend(fixes.into_iter().map(|fix| (index, fix)));
            return;
        }
        patch.left.push(OrderLeft {
            finding,
            reason: "another change of this patch concerns the same statements: repair it when that is applied".into(),
            advice: None,
        });
    }
}

fn meets(moved: &[(PathBuf, Range<usize>)], fix: &Fix) -> bool {
    let overlaps = |(path, range): &(PathBuf, Range<usize>), (other, others): &(PathBuf, Range<usize>)| {
        path == other && range.start < others.end && others.start < range.end
    };
    let places = || fix.moved.iter().chain(&fix.touched);
    moved.iter().any(|ours| places().any(|theirs| overlaps(ours, theirs)))
}
