//! Witcher's strategy: the states that violate a condition which the program's own code says it relies on ([`crate::conditions`]).
//!
//! A pair of stores violates a condition at every point from the later of the two to when one is persistent, and the same two statements
//! do it in every operation that runs them. All of these states are tested, if there is time; in this order:
//! 1. Pairs of which a store is new, at points whose call path is new.
//! 2. Pairs of which a store is new, whose two statements (call paths and fields) came up a few times at most; over the whole of the run.
//! 3. The same, by statements and the set of basic blocks that the operation executes: another path is another behaviour. Pairs that come up seldom
//!    are all tested here.
//! 4. All that a new store violates.
//! 5. What older stores violate, with more persisted around them: where an operation ends, then everywhere.
//!
//! Nothing is planned ahead: a program that leaves its lines unflushed has thousands of pairs at every point, and to look at them
//! all would take longer than most tests may.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use crashproof_trace::TraceFile;
use rustc_hash::FxHashMap;

use super::{PassEnd, Step, Strategy, Work};
use crate::campaign::CampaignOptions;
use crate::conditions::{NOTHING, Pair, Site, Unfinished, Variant, Violations, maximal, minimal};
use crate::error::CrashError;
use crate::state::{CrashPoint, PointHead, PointKind};

const NEW_PATHS: u32 = 0;
const STATEMENTS: u32 = 1;
const BEHAVIOURS: u32 = 2;
const NEW_STORES: u32 = 3;
const BOUNDARIES: u32 = 4;
const OTHERS: u32 = 5;
/// States of two statements that the first phases test, each.
const FEW: u32 = 3;
/// Two statements that come up so seldom in all of the run (a table grows, a node is split) are tested each time before those that come up often.
const SELDOM: u32 = 32;

/// Which state of a pair.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    Minimal,
    Maximal,
    Nothing,
}

/// What makes pairs alike: the two statements, and a phase's own.
type Alike = (Kind, [Site; 2], u64);

pub(crate) struct Violating {
    violations: Violations,
    /// How often it came up, by phase.
    known: Mutex<FxHashMap<(u32, Alike), u32>>,
    /// Older stores violate something at some point.
    others: AtomicBool,
    /// Phases that are done.
    done: AtomicU32,
}

impl Violating {
    pub(crate) fn open(trace: &TraceFile, options: &CampaignOptions) -> Result<Violating, CrashError> {
        let conditions = options.conditions.as_ref().ok_or(CrashError::NoConditions)?;
        Ok(Violating {
            violations: Violations::new(trace, conditions)?,
            known: Mutex::default(),
            others: AtomicBool::new(false),
            done: AtomicU32::new(0),
        })
    }

    /// Of pairs that came up a few times at most.
    fn rare(&self, phase: u32, point: &CrashPoint) -> Vec<Variant> {
        let own = match phase {
            NEW_PATHS => point.head.seq,
            STATEMENTS => 0,
            _ => self.violations.path(point.head.seq).unwrap_or(0),
        };
        let pairs = self.violations.pairs(point, since(&point.head));
        let unfinished = self.violations.unfinished(point);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let mut variants: Vec<Variant> = Vec::new();
        let mut again: FxHashMap<(Kind, [Site; 2]), u32> = FxHashMap::default();
        let mut add = |kind: Kind, sites: [Site; 2], times: u32, variant: &dyn Fn() -> Option<Variant>| {
            let seldom = phase == BEHAVIOURS
                && known
                    .get(&(STATEMENTS, (kind, sites, 0)))
                    .is_some_and(|&count| count <= SELDOM);
            let alike = (phase, (kind, sites, own));
            // Beyond that nobody asks how often.
            if !seldom && known.get(&alike).is_some_and(|&count| count > SELDOM) {
                return;
            }
            let Some(variant) = variant() else { return };
            let count = known.entry(alike).or_default();
            *count += 1;
            if *count <= FEW || seldom {
                variants.push(variant);
            }
            if times > 1 {
                *again.entry((kind, sites)).or_default() += times - 1;
            }
        };
        for Pair { p, u, sites } in pairs {
            add(Kind::Minimal, sites, 1, &|| minimal(point, p));
            add(Kind::Maximal, sites, 1, &|| maximal(point, u));
        }
        for Unfinished { sites, pending, times } in unfinished {
            add(Kind::Nothing, sites, times, &|| Some(NOTHING));
            add(Kind::Maximal, sites, times, &|| pending.and_then(|u| maximal(point, u)));
        }
        for ((kind, sites), times) in again {
            *known.entry((phase, (kind, sites, own))).or_default() += times;
        }
        variants.sort_unstable();
        variants.dedup();
        variants
    }

    /// Of new stores, and of others.
    fn all(&self, point: &CrashPoint) -> [Vec<Variant>; 2] {
        let violated = self.violations.at(point);
        let since = since(&point.head);
        let is_new = |&(line, store): &(usize, usize)| point.lines[line].line().stores()[store].tag.id.seq >= since;
        let mut states = [Vec::new(), Vec::new()];
        for p in &violated.persisted {
            states[usize::from(!is_new(p))].extend(minimal(point, *p));
        }
        for u in &violated.missing {
            states[usize::from(!is_new(u))].extend(maximal(point, *u));
        }
        if violated.nothing {
            states[0].push(NOTHING);
        }
        for states in &mut states {
            states.sort_unstable();
            states.dedup();
        }
        if !states[1].is_empty() {
            self.others.store(true, Ordering::Relaxed);
        }
        states
    }
}

/// At the end everything is looked at once more.
fn since(head: &PointHead) -> u64 {
    if head.what == PointKind::End { 0 } else { head.since }
}

impl Strategy for Violating {
    fn has_pass(&self, pass: u32, _last: PassEnd) -> bool {
        let phase = Step::of(pass).phase;
        self.done.store(phase, Ordering::Relaxed);
        phase <= NEW_STORES || phase <= OTHERS && self.others.load(Ordering::Relaxed)
    }

    fn round(&self, pass: u32) -> u32 {
        Step::of(pass).phase
    }

    /// Also at a point whose states the one before had, too: there other ones were minimal and maximal.
    fn parts(&self, pass: u32, head: &PointHead) -> u64 {
        let step = Step::of(pass);
        let has_states = match step.phase {
            NEW_PATHS => head.new_stack,
            BOUNDARIES => head.boundary,
            OTHERS => !head.boundary,
            _ => true,
        };
        u64::from(has_states && step.includes(head))
    }

    fn work<'p>(&self, pass: u32, point: &'p CrashPoint, _part: u64) -> Work<'p> {
        let phase = Step::of(pass).phase;
        let states = match phase {
            NEW_PATHS | STATEMENTS | BEHAVIOURS => self.rare(phase, point),
            _ => {
                let [new, others] = self.all(point);
                if phase == NEW_STORES { new } else { others }
            }
        };
        Work::States(Box::new(states.into_iter().map(|state| state.state(point))))
    }

    /// Nobody knows: more than anyone wants to wait for.
    fn planned(&self) -> Option<u128> {
        Some(u128::MAX)
    }

    fn left(&self) -> Option<String> {
        let left = match self.done.load(Ordering::Relaxed) {
            NEW_PATHS | STATEMENTS => "some pairs of statements that violate a condition were not tested at all",
            BEHAVIOURS => {
                "all pairs of statements that violate a condition were tested, not all on every execution path"
            }
            NEW_STORES => {
                "all pairs of statements that violate a condition were tested on every execution path, not all of their instances"
            }
            BOUNDARIES | OTHERS if self.others.load(Ordering::Relaxed) => {
                "what a new store violates was tested, not all of it again with more persisted around it"
            }
            _ => return None,
        };
        Some(format!("conditions: {left}"))
    }

    fn warnings(&self) -> Vec<String> {
        self.violations.warnings.clone()
    }
}
