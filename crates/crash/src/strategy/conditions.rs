//! Witcher's strategy: the states that violate a condition which the program's own code says it relies on ([`crate::conditions`]).
//!
//! First those in which a store that is new at the point is persisted or missing, at points whose call path is new; then at all points; then
//! the others: two stores that were uncertain before are so again with more persisted around them. A program that leaves hundreds of lines
//! unflushed has very many of those, and of them the ones at the ends of operations come first.

use std::path::Path;

use rustc_hash::FxHashMap;

use super::{PassEnd, Step, Strategy, Work};
use crate::campaign::CampaignOptions;
use crate::conditions::{Variant, Violations, maximal, minimal};
use crate::cursor::{Contents, Cursor, Stops};
use crate::error::CrashError;
use crate::image::SparseImage;
use crate::state::{CrashPoint, PointHead, PointKind};

/// Phases: new stores at new call paths, new stores elsewhere, the others where something was output or a file changed, the others elsewhere.
const NEW_PATHS: u32 = 0;
const NEW_STORES: u32 = 1;
const BOUNDARIES: u32 = 2;
const OTHERS: u32 = 3;
/// States in a part.
const PART: usize = 32;

/// States of a point: of new stores, and of others.
#[derive(Clone, Copy, Default)]
struct Planned {
    new: usize,
    others: usize,
    /// Something was output or a file changed since the point before.
    boundary: bool,
}

pub(crate) struct Violating {
    violations: Violations,
    /// Points at which a condition can be violated.
    points: FxHashMap<(u64, u16), Planned>,
}

impl Violating {
    pub fn open(trace: &Path, contents: &Contents, options: &CampaignOptions) -> Result<Violating, CrashError> {
        let conditions = options.conditions.as_ref().ok_or(CrashError::NoConditions)?;
        let mut strategy = Violating {
            violations: Violations::new(trace, contents, conditions)?,
            points: FxHashMap::default(),
        };
        let mut image = SparseImage::default();
        let mut cursor = Cursor::open(trace, contents, options, Stops::CrashPoints, &mut image)?;
        while let Some(head) = cursor.next(&mut image)? {
            // Also a point whose states the one before had, too: there other ones were minimal and maximal.
            let at = (head.seq, head.within);
            let Some(point) = cursor.point() else { continue };
            let [new, others] = strategy.states(&point).map(|states| states.len());
            if new + others > 0 {
                let boundary = point.all_fresh;
                strategy.points.insert(at, Planned { new, others, boundary });
            }
        }
        Ok(strategy)
    }

    /// Of new stores, and of others.
    fn states(&self, point: &CrashPoint) -> [Vec<Variant>; 2] {
        let violated = self.violations.at(point);
        let minimal = violated.persisted.iter().filter_map(|&p| minimal(point, p));
        let maximal = violated.missing.iter().filter_map(|&u| maximal(point, u));
        let mut states: Vec<Variant> = minimal.chain(maximal).collect();
        states.sort_unstable();
        states.dedup();
        let all_new = point.head.what == PointKind::End;
        let mut is_new = vec![all_new; point.lines.len()];
        point.fresh.iter().for_each(|&line| is_new[line] = true);
        let (new, others) = states.into_iter().partition(|state| is_new[state.line]);
        [new, others]
    }
}

impl Strategy for Violating {
    fn has_pass(&self, pass: u32, _last: PassEnd) -> bool {
        let phase = Step::of(pass).phase;
        phase < BOUNDARIES || phase <= OTHERS && self.points.values().any(|planned| planned.others > 0)
    }

    fn round(&self, pass: u32) -> u32 {
        Step::of(pass).phase
    }

    fn parts(&self, pass: u32, head: &PointHead) -> u64 {
        let step = Step::of(pass);
        if !step.includes(head) {
            return 0;
        }
        let Some(planned) = self.points.get(&(head.seq, head.within)) else {
            return 0;
        };
        let states = match step.phase {
            NEW_PATHS if head.new_stack => planned.new,
            NEW_STORES if !head.new_stack => planned.new,
            BOUNDARIES if planned.boundary => planned.others,
            OTHERS if !planned.boundary => planned.others,
            _ => 0,
        };
        states.div_ceil(PART) as u64
    }

    fn work<'p>(&self, pass: u32, point: &'p CrashPoint, part: u64) -> Work<'p> {
        let [new, others] = self.states(point);
        let states = if Step::of(pass).phase < BOUNDARIES { new } else { others };
        let states = states.into_iter().skip(part as usize * PART).take(PART);
        Work::States(Box::new(states.map(|state| state.state(point))))
    }

    fn planned(&self) -> Option<u128> {
        let states = self
            .points
            .values()
            .map(|planned| (planned.new + planned.others) as u128);
        Some(states.sum())
    }

    fn points(&self) -> Option<u64> {
        Some(self.points.len() as u64)
    }

    fn warnings(&self) -> &[String] {
        &self.violations.warnings
    }
}
