//! The plan of a repair: data, made from findings and bitcode, read by what applies it.
//!
//! Made in the three phases of section 4.1: [`needs`] computes intraprocedural fixes, [`reduce`] makes one of those that would flush or fence the
//! same, [`hoist`] turns those into persistent subprograms that the heuristic says are better there. Every fix says which theorem makes it safe.
//!
//! Architecture invariant: knows the bitcode and not the source; the data names places and has nothing of LLVM.

mod aliases;
pub mod explain;
mod fences;
pub mod heuristic;
mod hoist;
pub mod known;
mod needs;
pub(crate) mod object;
mod reduce;
mod redundant;
mod subprogram;
#[cfg(test)]
mod tests;

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::path::PathBuf;

use crashproof_finding::Finding;
use crashproof_llvm::Value;
use crashproof_program::Program;
use crashproof_program::pointers::PointsTo;
use rustc_hash::FxHashSet;
use serde::Serialize;

use crate::locate::{Locator, Wanted};
use crate::observed::{Observed, ObservedStore};
use aliases::{Aliases, NoAliases};
use fences::Fences;
use heuristic::{Heuristic, Mode, PmWrite};
use needs::{Need, What};
use redundant::Redundant;
use subprogram::Subprograms;

#[derive(Clone, Debug, Default)]
pub struct PlanOptions {
    /// No persistent subprograms.
    pub intra_only: bool,
    /// The heuristic uses only the aliases that the trace shows.
    pub trace_aliases: bool,
    /// Remove flushes and fences that do nothing.
    pub performance: bool,
    /// Section 7: the program's fences stay as they are, and everything that one of them passed by gets its flush.
    pub inject_flushes: bool,
    /// One flush for several fields of an object.
    pub coalesce: bool,
    /// A store that callers flush themselves is flushed for those alone that do not; persistent subprograms flush nothing else.
    pub spare_flushed: bool,
    /// Calls that cannot be candidates, for reasons that the plan knows nothing of: no patch of the source is possible there.
    pub excluded: BTreeMap<Place, String>,
}

/// Plans the repair of those findings that are missing flushes or fences, and of redundant ones if that is asked for; others are no business of it.
/// `points_to` is of the program, worked out when it is first needed.
pub fn plan<'m>(
    program: &'m Program,
    points_to: &OnceCell<PointsTo<'m>>,
    findings: &[Finding],
    observed: &Observed,
    options: &PlanOptions,
) -> Plan {
    let planner = Planner::new(program, observed, options);
    let mut plan = Plan::default();
    let needs = planner.needs(findings, &mut plan.left);
    let may_hoist = !options.intra_only && needs.iter().any(|need| need.calls > 0);
    let may_remove = options.performance && findings.iter().any(redundant::concerns);
    if !may_hoist && !may_remove {
        planner.phases(needs, &NoAliases, &mut plan);
        return plan;
    }
    let points_to = points_to.get_or_init(|| PointsTo::of(&program.module));
    let mode = if options.trace_aliases {
        Mode::Trace
    } else {
        Mode::Program
    };
    let functions = program.module.functions();
    let heuristic = Heuristic::new(functions, points_to, &planner.writes(&needs), mode);
    planner.phases(needs, &heuristic, &mut plan);
    if may_remove {
        let redundant = Redundant {
            locator: &planner.locator,
            points_to,
        };
        redundant.remove(findings, &mut plan);
    }
    plan
}

/// What all phases use.
struct Planner<'m, 'o> {
    locator: Locator<'m>,
    fences: Fences<'m>,
    /// Of the stores that the trace has.
    paths: Vec<StorePath<'m>>,
    observed: &'o Observed,
    options: &'o PlanOptions,
}

/// A store that the trace has, and the calls that led there, innermost first.
struct StorePath<'m> {
    at: Vec<Value<'m>>,
    calls: Vec<Value<'m>>,
    /// The program flushed it itself, once at least.
    flushed: bool,
}

impl<'m, 'o> Planner<'m, 'o> {
    fn new(program: &'m Program, observed: &'o Observed, options: &'o PlanOptions) -> Planner<'m, 'o> {
        let locator = Locator::new(&program.module);
        let path = |store: &ObservedStore| {
            let stack = locator.stack(&store.seen.stack, Wanted::Store).ok()?;
            Some(StorePath {
                at: stack.at,
                calls: stack.calls.into_iter().map_while(Result::ok).collect(),
                flushed: store.flushed,
            })
        };
        Planner {
            paths: observed.stores.iter().filter_map(path).collect(),
            locator,
            fences: Fences::default(),
            observed,
            options,
        }
    }

    /// From what is needed to the fixes.
    fn phases(&self, needs: Vec<Need<'m>>, aliases: &dyn Aliases<'m>, plan: &mut Plan) {
        let marked = self.marked(&needs);
        let mut subprograms = Subprograms::new(aliases, &marked, self.options.spare_flushed);
        let intra = self.hoist(needs, aliases, &mut subprograms, plan);
        self.reduce(intra, plan);
        let fenced = plan.fences();
        plan.clones = subprograms.finish(|stores| self.group(stores), &fenced);
    }

    /// What findings and trace show to write PM, with the calls that led there.
    fn writes(&self, needs: &[Need<'m>]) -> Vec<PmWrite<'m>> {
        let mut writes: FxHashSet<PmWrite> = FxHashSet::default();
        for need in needs {
            if let What::Flush { stores, .. } = &need.what {
                let calls = &need.stack_calls;
                writes.extend(stores.iter().map(|&at| PmWrite {
                    at,
                    calls: calls.clone(),
                }));
            }
        }
        for path in &self.paths {
            writes.extend(path.at.iter().map(|&at| PmWrite {
                at,
                calls: path.calls.clone(),
            }));
        }
        writes.into_iter().collect()
    }

    /// The stores that findings and trace show to write PM; with `spare_flushed` only those that need a flush.
    fn marked(&self, needs: &[Need<'m>]) -> FxHashSet<Value<'m>> {
        let reported = needs.iter().flat_map(|need| match &need.what {
            What::Flush { stores, .. } => stores.as_slice(),
            What::Fence { .. } => &[],
        });
        let paths = self.paths.iter().filter(|_| !self.options.spare_flushed);
        let seen = paths.flat_map(|path| &path.at);
        reported.chain(seen).copied().collect()
    }
}

/// An instruction of the program's bitcode (the front end's, all modules linked).
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct Place {
    /// Linkage name in the linked module.
    pub function: String,
    /// Which instruction of the function it is, counted from its first.
    pub instruction: u32,
    /// Where its debug location lies; `None` if the compiler gave it none.
    pub position: Option<Position>,
}

/// A position in the source, as the debug information has it: for a store the assignment operator, for a call its begin.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct Position {
    /// Absolute.
    pub file: PathBuf,
    pub line: u32,
    pub column: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Plan {
    pub fixes: Vec<Fix>,
    /// The functions that fixes call instead of the originals; each is made once.
    pub clones: Vec<PersistentFunction>,
    pub left: Vec<Left>,
}

impl Plan {
    /// The places after which fixes fence.
    fn fences(&self) -> Vec<Place> {
        let fenced = self.fixes.iter().filter_map(|fix| match &fix.edit {
            Edit::Flush { stores, fence: true } => stores.last(),
            Edit::Fence { after } => Some(after),
            Edit::Subprogram { call, fence: true, .. } => Some(call),
            _ => None,
        });
        fenced.cloned().collect()
    }

    /// Visits every place.
    pub(crate) fn for_each_place_mut(&mut self, visit: &mut dyn FnMut(&mut Place)) {
        for fix in &mut self.fixes {
            fix.edit.places_mut().iter_mut().for_each(&mut *visit);
            let candidates = fix.candidates.iter_mut().map(|candidate| &mut candidate.place);
            candidates.for_each(&mut *visit);
        }
        for clone in &mut self.clones {
            let calls = clone.calls.iter_mut().map(|(call, _)| call);
            let flushes = clone.flushes.iter_mut().flatten();
            flushes.chain(&mut clone.fences).chain(calls).for_each(&mut *visit);
        }
    }

    /// Visits every reason.
    pub(crate) fn for_each_reason_mut(&mut self, visit: &mut dyn FnMut(&mut String)) {
        let candidates = self.fixes.iter_mut().flat_map(|fix| &mut fix.candidates);
        let reasons = candidates.filter_map(|candidate| candidate.reason.as_mut());
        let left = self.left.iter_mut().map(|left| &mut left.reason);
        reasons.chain(left).for_each(visit);
    }
}

/// One edit, and the findings that it repairs (or helps to).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fix {
    /// Indices into the findings that were given. None with `--inject-flushes`, if the cause is a store of the trace that is
    /// in no finding and that a fence passed by.
    pub findings: Vec<usize>,
    pub edit: Edit,
    pub safe_by: SafeBy,
    /// What the heuristic compared, innermost first; empty if there was nothing to choose.
    pub candidates: Vec<Candidate>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Edit {
    /// Flush what these stores wrote, right after the last of them, and fence if so said. Several only if they write parts of one object, the last comes on
    /// every path from the others, and nothing in between may fence or changes the pointer to the object.
    Flush {
        stores: Vec<Place>,
        fence: bool,
    },
    /// A fence right after this instruction (a flush, or a call that flushes).
    Fence {
        after: Place,
    },
    /// Let this call be one of the persistent function `clone` (by name) instead, and fence after it if so said. If it is a call through a pointer, then
    /// only where the pointer is to the clone's original.
    Subprogram {
        call: Place,
        clone: String,
        fence: bool,
    },
    /// `--performance`: an instruction that does nothing.
    RemoveFlush {
        flush: Place,
    },
    RemoveFence {
        fence: Place,
    },
}

impl Edit {
    /// The instructions that it is about.
    pub fn places(&self) -> &[Place] {
        match self {
            Edit::Flush { stores, .. } => stores,
            Edit::Fence { after: place }
            | Edit::Subprogram { call: place, .. }
            | Edit::RemoveFlush { flush: place }
            | Edit::RemoveFence { fence: place } => std::slice::from_ref(place),
        }
    }

    fn places_mut(&mut self) -> &mut [Place] {
        match self {
            Edit::Flush { stores, .. } => stores,
            Edit::Fence { after: place }
            | Edit::Subprogram { call: place, .. }
            | Edit::RemoveFlush { flush: place }
            | Edit::RemoveFence { fence: place } => std::slice::from_mut(place),
        }
    }
}

/// A copy of a function that flushes what it stores.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PersistentFunction {
    /// Linkage names.
    pub original: String,
    pub name: String,
    /// Stores of the original that the copy flushes; calls of known memory functions among them, flushed by range. Each group is flushed together, right
    /// after its last, on the same conditions as the stores of [`Edit::Flush`].
    pub flushes: Vec<Vec<Place>>,
    /// Instructions of the original after which the copy fences, because the original does, too, from now on.
    pub fences: Vec<Place>,
    /// Calls of the original that call a persistent function in the copy, by its name. A call through a pointer is there once for each function that
    /// it may call and that has a persistent copy; it calls the copy if the pointer is to the original, else what the pointer is to.
    pub calls: Vec<(Place, String)>,
}

/// What makes a fix safe, in the paper's words (section 4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SafeBy {
    /// A fence was missing: theorem 1, by lemma 1.
    FenceInsertion,
    /// A flush was missing: theorem 2, by lemma 2.
    FlushInsertion,
    /// Both: theorem 3.
    FlushAndFenceInsertion,
    /// A persistent subprogram: theorem 4.
    PersistentSubprogram,
    /// A flush or fence that an earlier one of the same basic block makes void (section 7).
    VoidInBasicBlock,
}

/// A place where a fix could go: the store itself, or a call on its stack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Candidate {
    pub place: Place,
    /// PM aliases less other aliases of all pointer arguments; `None`: out, for `reason`.
    pub score: Option<i64>,
    pub reason: Option<String>,
}

/// A finding that no safe fix was found for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Left {
    pub finding: usize,
    pub reason: String,
}
