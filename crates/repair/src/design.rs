//! From findings to a patch: plan, and write the plan as a change of the source.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crashproof_finding::Finding;
use crashproof_program::Program;
use crashproof_program::pointers::PointsTo;

use crate::observed::Observed;
use crate::plan::{self, Edit, Plan, PlanOptions};
use crate::source::{self, Changed, Patch, Refusal, SourceError};

/// Each refusal of a persistent function costs another plan; after this many the refused fixes are left out.
const PLANS: usize = 16;

/// A patch, and the plan that it comes from.
#[derive(Default)]
pub struct Design {
    /// Its findings are those that the designer was given.
    pub plan: Plan,
    pub changes: Vec<Changed>,
    /// With which functions it flushes and fences.
    pub idiom: Option<String>,
    /// Fixes that the source does not have, by their index, and why.
    pub impossible: BTreeMap<usize, Refusal>,
}

impl Design {
    /// The findings that the patch repairs.
    pub fn fixed(&self) -> impl Iterator<Item = usize> + '_ {
        let fixes = &self.plan.fixes;
        let refused: BTreeSet<usize> = self
            .impossible
            .keys()
            .filter_map(|&index| fixes.get(index))
            .flat_map(|fix| fix.findings.iter().copied())
            .collect();
        let fixed: BTreeSet<usize> = fixes.iter().flat_map(|fix| fix.findings.iter().copied()).collect();
        fixed.into_iter().filter(move |finding| !refused.contains(finding))
    }
}

pub(crate) struct Designer<'a> {
    pub program: &'a Program<'a>,
    /// Of the program, once it was needed.
    pub points_to: OnceCell<PointsTo<'a>>,
    pub findings: &'a [Finding],
    pub observed: &'a Observed,
    /// The copy that the program was built in.
    pub tree: &'a Path,
}

impl Designer<'_> {
    /// `without`: findings that are not to be repaired. A call that the source cannot redirect is no candidate in the next plan.
    pub(crate) fn design(&self, options: &PlanOptions, without: &BTreeSet<usize>) -> Result<Design, SourceError> {
        let mut options = options.clone();
        for _ in 1..PLANS {
            let (plan, patch) = self.plan_and_patch(&options, without)?;
            let refused = patch
                .impossible
                .iter()
                .filter_map(|(index, refusal)| match &plan.fixes.get(*index)?.edit {
                    Edit::Subprogram { call, .. } => Some((call.clone(), refusal.to_string())),
                    _ => None,
                });
            let before = options.excluded.len();
            options.excluded.extend(refused);
            if options.excluded.len() == before {
                return Ok(design(plan, patch));
            }
        }
        let (plan, patch) = self.plan_and_patch(&options, without)?;
        Ok(design(plan, patch))
    }

    fn plan_and_patch(&self, options: &PlanOptions, without: &BTreeSet<usize>) -> Result<(Plan, Patch), SourceError> {
        let plan = self.plan(options, without);
        let patch = source::patch(&plan, self.program, self.observed, self.tree)?;
        Ok((plan, patch))
    }

    /// The plan alone, as the bitcode can have it.
    pub(crate) fn plan(&self, options: &PlanOptions, without: &BTreeSet<usize>) -> Plan {
        let chosen: Vec<usize> = (0..self.findings.len())
            .filter(|index| !without.contains(index))
            .collect();
        let findings: Vec<Finding> = chosen.iter().map(|&index| self.findings[index].clone()).collect();
        let mut plan = plan::plan(self.program, &self.points_to, &findings, self.observed, options);
        let of_fixes = plan.fixes.iter_mut().flat_map(|fix| &mut fix.findings);
        for finding in of_fixes.chain(plan.left.iter_mut().map(|left| &mut left.finding)) {
            *finding = chosen[*finding];
        }
        plan
    }
}

fn design(plan: Plan, patch: Patch) -> Design {
    Design {
        idiom: Some(patch.idiom).filter(|idiom| !idiom.is_empty()),
        impossible: patch.impossible.into_iter().collect(),
        changes: patch.files,
        plan,
    }
}
