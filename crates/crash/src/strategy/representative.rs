//! Squint's strategy, extended: the crash states of the representatives of all groups of update behaviours; then, of each group
//! whose representative failed, those of behaviours from source positions not tested yet ([`crate::representative`]).
//!
//! The first pass makes the few states at each point that most bugs show in. The next ones walk over all combinations of
//! the behaviour's stores, less those that the recovery cannot tell apart, and end when that is done or after
//! [`RUNS`] at a point: a behaviour that leaves dozens of lines uncertain at once has more combinations than anyone can test.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use crashproof_report as report;
use rustc_hash::{FxHashMap, FxHashSet};

use super::{PassEnd, Strategy, Walk, Work};
use crate::campaign::CampaignOptions;
use crate::cursor::{Contents, Cursor, Stops};
use crate::error::CrashError;
use crate::image::SparseImage;
use crate::representative::choices::{Others, Tested};
use crate::representative::situation::Situations;
use crate::representative::{At, Behaviours, behaviours};
use crate::state::{CrashPoint, PointHead, PointKind};

/// Runs at a point for one behaviour, pass by pass.
const RUNS: [u64; 2] = [4, 16];
const VARIANTS: [Others; 2] = [Others::Persisted, Others::AsMust];

/// A behaviour that is to be tested.
struct Item {
    group: usize,
    tested: Tested,
}

/// What a pass is about.
#[derive(Default)]
struct Current {
    items: Vec<Item>,
    at: FxHashMap<At, Vec<usize>>,
    /// 0 is the first look, then walks.
    step: usize,
    /// The representatives are done.
    members: bool,
}

pub(crate) struct Representative {
    behaviours: Behaviours,
    /// Crash states of the representatives.
    planned: u128,
    /// By group.
    failed: Vec<AtomicBool>,
    current: RwLock<Current>,
}

impl Representative {
    pub fn open(trace: &Path, contents: &Contents, options: &CampaignOptions) -> Result<Representative, CrashError> {
        let mut strategy = Representative::new(behaviours(trace, options)?);
        let mut image = SparseImage::default();
        let mut cursor = Cursor::open(trace, contents, options, Stops::CrashPoints, &mut image)?;
        while let Some(head) = cursor.next(&mut image)? {
            let current = strategy.current();
            let items: Vec<usize> = Representative::items_at(head, &current).collect();
            let Some(point) = (!items.is_empty()).then(|| cursor.point()).flatten() else {
                continue;
            };
            let of = |item: usize, others| current.items[item].tested.choices(&point, others).count();
            let states = items.iter().flat_map(|&item| VARIANTS.map(|others| of(item, others)));
            let states = states.fold(0, u128::saturating_add);
            drop(current);
            strategy.planned = strategy.planned.saturating_add(states);
        }
        Ok(strategy)
    }

    fn new(behaviours: Behaviours) -> Representative {
        let failed = behaviours.groups.iter().map(|_| AtomicBool::new(false)).collect();
        let mut strategy = Representative {
            behaviours,
            planned: 0,
            failed,
            current: RwLock::default(),
        };
        let representatives = (0..strategy.behaviours.groups.len()).map(|group| (group, 0)).collect();
        *strategy.current.get_mut().unwrap_or_else(PoisonError::into_inner) = strategy.plan(representatives);
        strategy
    }

    fn current(&self) -> RwLockReadGuard<'_, Current> {
        self.current.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// For members (group, number in it).
    fn plan(&self, members: Vec<(usize, usize)>) -> Current {
        let mut current = Current::default();
        let mut situations = Situations::default();
        for (group, number) in members {
            let Some(member) = self.behaviours.members(&self.behaviours.groups[group]).nth(number) else {
                continue;
            };
            for (point, later) in self.behaviours.points(member) {
                if situations.add(&self.behaviours, member, point, later) {
                    current.at.entry(point).or_default().push(current.items.len());
                }
            }
            current.items.push(Item {
                group,
                tested: self.behaviours.tested(member),
            });
        }
        current
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

    fn items_at(head: &PointHead, current: &Current) -> impl Iterator<Item = usize> {
        let end = (head.what == PointKind::End).then_some(At::End);
        let at = [Some(At::Event(head.seq)), end];
        let lists = at.into_iter().flatten().filter_map(|at| current.at.get(&at));
        lists.flatten().copied().collect::<Vec<_>>().into_iter()
    }
}

impl Strategy for Representative {
    fn has_pass(&self, pass: u32, last: PassEnd) -> bool {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        if pass == 0 {
            return true;
        }
        if current.step == 0 || last.unfinished > 0 && current.step < RUNS.len() {
            current.step += 1;
            return true;
        }
        if current.members {
            return false;
        }
        let further = self.further();
        if further.is_empty() {
            return false;
        }
        *current = self.plan(further);
        current.members = true;
        true
    }

    fn parts(&self, _pass: u32, head: &PointHead) -> u64 {
        let current = self.current();
        let variants = if current.step == 0 { 1 } else { VARIANTS.len() as u64 };
        Representative::items_at(head, &current).count() as u64 * variants
    }

    fn work<'p>(&self, _pass: u32, point: &'p CrashPoint, part: u64) -> Work<'p> {
        let current = self.current();
        let variants = if current.step == 0 { 1 } else { VARIANTS.len() };
        let item = Representative::items_at(&point.head, &current).nth(part as usize / variants);
        let Some(item) = item.map(|item| &current.items[item]) else {
            return Work::States(Box::new(std::iter::empty()));
        };
        if current.step == 0 {
            let states = VARIANTS.map(|others| item.tested.choices(point, others).early());
            return Work::States(Box::new(states.into_iter().flatten()));
        }
        let choices = item.tested.choices(point, VARIANTS[part as usize % variants]);
        let walk = Walk {
            runs: RUNS[current.step - 1],
            way: 0,
            ways: 1,
        };
        Work::Among(walk, choices.options)
    }

    fn planned(&self) -> Option<u128> {
        Some(self.planned)
    }

    fn behaviours(&self) -> Option<report::Behaviours> {
        Some(report::Behaviours {
            states_planned: self.planned.try_into().unwrap_or(u64::MAX),
            ..self.behaviours.report()
        })
    }

    fn warnings(&self) -> &[String] {
        &self.behaviours.warnings
    }

    fn failed(&self, head: &PointHead, part: u64) {
        let current = self.current();
        let variants = if current.step == 0 { 1 } else { VARIANTS.len() };
        if let Some(item) = Representative::items_at(head, &current).nth(part as usize / variants) {
            self.failed[current.items[item].group].store(true, Ordering::Relaxed);
        }
    }
}
