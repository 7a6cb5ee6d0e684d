//! Squint's strategy, extended: the crash states of the representatives of all groups of update behaviours; then, of each group
//! whose representative failed, those of behaviours from source positions not tested yet ([`crate::representative`]).
//!
//! Behaviours that stand for most come first. A first pass over them makes the few states at each point that most bugs show
//! in. The next walks over all combinations of the behaviour's stores, less those that the recovery cannot tell apart, and ends
//! when that is done or after some [`RUNS`] at a point: a behaviour that leaves dozens of lines uncertain at once has more
//! combinations than anyone can test.

use std::cmp::Reverse;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard};

use crashproof_finding as report;
use crashproof_trace::TraceFile;
use rustc_hash::{FxHashMap, FxHashSet};

use super::{PassEnd, Strategy, Walk, Work};
use crate::campaign::CampaignOptions;
use crate::cursor::{Cursor, Stops};
use crate::error::CrashError;
use crate::image::SparseImage;
use crate::representative::choices::{Others, Tested};
use crate::representative::situation::{Candidate, Situations};
use crate::representative::{At, Behaviours, behaviours, show_all};
use crate::state::{CrashPoint, PointHead, PointKind};

/// What a pass does: each tier has the first two, one after the other; then each has the last.
const FIRST_LOOK: usize = 0;
const SHORT_WALK: usize = 1;
const LONG_WALK: usize = 2;
/// Runs at a point for one behaviour, by what the pass does.
const RUNS: [u64; 3] = [0, 4, 16];
/// (Behaviour, crash point) pairs in the first tier; each further one has four times as many.
const FIRST_TIER: usize = 32;
const VARIANTS: [Others; 2] = [Others::Persisted, Others::AsMust];

/// Lines of crash points that are looked at to count the states: a program that leaves thousands of lines unflushed has as many uncertain at
/// each point, and how many states that makes nobody wants to wait for.
const MOST_COUNTED: usize = 1 << 22;

/// A behaviour that is to be tested.
struct Item {
    group: usize,
    tested: Tested,
}

/// Behaviours by crash point.
type Tier = FxHashMap<At, Vec<usize>>;

/// Which behaviours are tested, and where.
#[derive(Default)]
struct Plan {
    items: Vec<Item>,
    /// What represents most is in the first; each is a pass over the trace.
    tiers: Vec<Tier>,
}

/// What a pass is about.
#[derive(Default)]
struct Current {
    plan: Arc<Plan>,
    /// Number of the first item among those of all plans.
    first: u64,
    tier: usize,
    step: usize,
    /// The representatives are done.
    members: bool,
    /// Of each pass so far.
    rounds: Vec<u32>,
}

impl Plan {
    fn items_at(&self, tier: usize, head: &PointHead) -> Vec<usize> {
        let Some(tier) = self.tiers.get(tier) else {
            return Vec::new();
        };
        let end = (head.what == PointKind::End).then_some(At::End);
        let at = [Some(At::Event(head.seq)), end];
        let lists = at.into_iter().flatten().filter_map(|at| tier.get(&at));
        lists.flatten().copied().collect()
    }
}

impl Current {
    fn items_at(&self, head: &PointHead) -> Vec<usize> {
        self.plan.items_at(self.tier, head)
    }

    fn variants(&self) -> usize {
        if self.step == FIRST_LOOK { 1 } else { VARIANTS.len() }
    }

    /// The number of the item that a part is about.
    fn item(&self, head: &PointHead, part: u64) -> Option<usize> {
        let items = self.items_at(head);
        items.get(part as usize / self.variants()).copied()
    }

    /// Notes that there is one more pass.
    fn pass(&mut self, new_round: bool) -> bool {
        let last = self.rounds.last().copied().unwrap_or(0);
        self.rounds.push(last + new_round as u32);
        true
    }
}

pub(crate) struct Representative {
    behaviours: Arc<Behaviours>,
    /// Of the representatives.
    plan: Arc<Plan>,
    /// Crash states of the representatives, once they have been counted.
    planned: OnceLock<u128>,
    /// Crash points of what is tested.
    points: Mutex<FxHashSet<(u64, u16)>>,
    /// By group.
    failed: Vec<AtomicBool>,
    current: RwLock<Current>,
}

impl Representative {
    /// Looks at the trace.
    pub(crate) fn open(trace: &TraceFile, options: &CampaignOptions) -> Result<Representative, CrashError> {
        let behaviours = behaviours(trace, options, |show| show_all(trace, show))?;
        Ok(Representative::new(Arc::new(behaviours)))
    }

    pub(crate) fn new(behaviours: Arc<Behaviours>) -> Representative {
        let failed = behaviours.groups.iter().map(|_| AtomicBool::new(false)).collect();
        let representatives = (0..behaviours.groups.len()).map(|group| (group, 0)).collect();
        let plan = Arc::new(plan(&behaviours, representatives));
        Representative {
            current: RwLock::new(Current {
                plan: Arc::clone(&plan),
                ..Current::default()
            }),
            behaviours,
            plan,
            planned: OnceLock::new(),
            points: Mutex::default(),
            failed,
        }
    }

    fn current(&self) -> RwLockReadGuard<'_, Current> {
        self.current.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn note_point(&self, seq: u64, within: u16) {
        let mut points = self.points.lock().unwrap_or_else(PoisonError::into_inner);
        points.insert((seq, within));
    }

    /// Of groups that failed: members with source positions that are not tested yet.
    fn further(&self) -> Vec<(usize, usize)> {
        let mut sites: FxHashSet<u64> = FxHashSet::default();
        for group in &self.behaviours.groups {
            sites.extend(self.behaviours.members(group).take(1).flat_map(|member| &member.sites));
        }
        let mut further = Vec::new();
        for (number, group) in self.behaviours.groups.iter().enumerate() {
            if !self.failed[number].load(Ordering::Relaxed) {
                continue;
            }
            for (index, member) in self.behaviours.members(group).enumerate().skip(1) {
                if member.sites.iter().any(|site| !sites.contains(site)) {
                    sites.extend(&member.sites);
                    further.push((number, index));
                }
            }
        }
        further
    }
}

/// For members (group, number in it).
fn plan(behaviours: &Behaviours, members: Vec<(usize, usize)>) -> Plan {
    let mut plan = Plan::default();
    let mut candidates = Vec::new();
    for (group, number) in members {
        let Some(member) = behaviours.members(&behaviours.groups[group]).nth(number) else {
            continue;
        };
        for (point, later) in behaviours.points(member) {
            if let Some(candidate) = Candidate::new(behaviours, member, point, later) {
                candidates.push((candidate, plan.items.len(), point));
            }
        }
        plan.items.push(Item {
            group,
            tested: behaviours.tested(member),
        });
    }
    candidates.sort_by_key(|(candidate, ..)| candidate.order());
    let mut situations = Situations::default();
    let mut planned: Vec<(usize, At)> = Vec::new();
    for (candidate, item, point) in candidates {
        if situations.add(candidate) {
            planned.push((item, point));
        }
    }
    let represents = |item: usize| behaviours.groups[plan.items[item].group].count;
    planned.sort_by_key(|&(item, _)| Reverse(represents(item)));
    let mut left = &planned[..];
    while !left.is_empty() || plan.tiers.is_empty() {
        let size = FIRST_TIER << (2 * plan.tiers.len()).min(32);
        let (some, rest) = left.split_at(left.len().min(size));
        let mut tier = Tier::default();
        for &(item, point) in some {
            tier.entry(point).or_default().push(item);
        }
        plan.tiers.push(tier);
        left = rest;
    }
    plan
}

impl Strategy for Representative {
    fn has_pass(&self, pass: u32, last: PassEnd) -> bool {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        if pass == 0 {
            return current.pass(true);
        }
        let is_last = current.tier + 1 >= current.plan.tiers.len();
        match current.step {
            FIRST_LOOK => {
                current.step = SHORT_WALK;
                return current.pass(false);
            }
            SHORT_WALK if !is_last => {
                (current.step, current.tier) = (FIRST_LOOK, current.tier + 1);
                return current.pass(false);
            }
            SHORT_WALK if last.unfinished > 0 => {
                (current.step, current.tier) = (LONG_WALK, 0);
                return current.pass(true);
            }
            LONG_WALK if !is_last => {
                current.tier += 1;
                return current.pass(false);
            }
            _ => {}
        }
        if current.members {
            return false;
        }
        let further = self.further();
        if further.is_empty() {
            return false;
        }
        *current = Current {
            plan: Arc::new(plan(&self.behaviours, further)),
            first: current.first + current.plan.items.len() as u64,
            members: true,
            rounds: std::mem::take(&mut current.rounds),
            ..Current::default()
        };
        current.pass(true)
    }

    fn round(&self, pass: u32) -> u32 {
        self.current().rounds.get(pass as usize).copied().unwrap_or(0)
    }

    fn parts(&self, _pass: u32, head: &PointHead) -> u64 {
        let current = self.current();
        let items = current.items_at(head).len();
        if current.members && items > 0 {
            self.note_point(head.seq, head.within);
        }
        (items * current.variants()) as u64
    }

    fn work<'p>(&self, _pass: u32, point: &'p CrashPoint, part: u64) -> Work<'p> {
        let current = self.current();
        let Some(number) = current.item(&point.head, part) else {
            return Work::States(Box::new(std::iter::empty()));
        };
        let item = &current.plan.items[number];
        if current.step == FIRST_LOOK {
            let states = VARIANTS.map(|others| item.tested.choices(point, others).early());
            let states = states.into_iter().flatten();
            return Work::States(Box::new(states.map(|state| point.raised(state))));
        }
        let variant = part as usize % VARIANTS.len();
        Work::Among {
            walk: Walk {
                runs: RUNS[current.step],
                way: 0,
                ways: 1,
            },
            id: (current.first + number as u64) * VARIANTS.len() as u64 + variant as u64,
            options: item.tested.choices(point, VARIANTS[variant]).options,
        }
    }

    fn count(&self, trace: &TraceFile, options: &CampaignOptions, ends: &dyn Fn() -> bool) -> Result<(), CrashError> {
        let mut image = SparseImage::default();
        let mut cursor = Cursor::open(trace, options, Stops::CrashPoints, &mut image)?;
        let (mut planned, mut looked_at) = (0u128, 0);
        while let Some(head) = cursor.next(&mut image)? {
            if ends() {
                return Ok(());
            }
            let (seq, within) = (head.seq, head.within);
            let tiers = 0..self.plan.tiers.len();
            let items: Vec<usize> = tiers.flat_map(|tier| self.plan.items_at(tier, head)).collect();
            if items.is_empty() {
                continue;
            }
            self.note_point(seq, within);
            if looked_at > MOST_COUNTED {
                planned = u128::MAX;
                continue;
            }
            let Some(point) = cursor.point() else { continue };
            looked_at += items.len() * point.lines.len();
            let of = |item: usize, others| self.plan.items[item].tested.choices(&point, others).count(&point);
            let states = items.iter().flat_map(|&item| VARIANTS.map(|others| of(item, others)));
            planned = states.fold(planned, u128::saturating_add);
        }
        let _ = self.planned.set(planned);
        Ok(())
    }

    fn planned(&self) -> Option<u128> {
        Some(self.planned.get().copied().unwrap_or(u128::MAX))
    }

    fn points(&self) -> Option<u64> {
        let noted = self.points.lock().unwrap_or_else(PoisonError::into_inner).len();
        // Until all of them have been counted.
        let planned = match self.planned.get() {
            Some(_) => 0,
            None => self
                .plan
                .tiers
                .iter()
                .flat_map(FxHashMap::keys)
                .collect::<FxHashSet<_>>()
                .len(),
        };
        Some(noted.max(planned) as u64)
    }

    fn behaviours(&self) -> Option<report::Behaviours> {
        Some(report::Behaviours {
            states_planned: self.planned().unwrap_or_default().try_into().unwrap_or(u64::MAX),
            ..self.behaviours.report()
        })
    }

    fn warnings(&self) -> Vec<String> {
        self.behaviours.warnings.clone()
    }

    fn failed(&self, head: &PointHead, part: u64) {
        let current = self.current();
        if let Some(item) = current.item(head, part) {
            self.failed[current.plan.items[item].group].store(true, Ordering::Relaxed);
        }
    }
}
