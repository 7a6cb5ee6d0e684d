//! From findings to a patch: plan, and write the plan as a change of the source.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crashproof_program::Program;
use crashproof_report::Finding;

use crate::observed::Observed;
use crate::plan::{self, Plan, PlanOptions};

/// A file that the patch changes, or makes.
pub struct Change {
    /// Relative to the tree.
    pub path: PathBuf,
    /// `None`: it is new.
    pub old: Option<String>,
    pub new: String,
}

/// A patch, and the plan that it comes from.
#[derive(Default)]
pub struct Design {
    /// Its findings are those that the designer was given.
    pub plan: Plan,
    pub changes: Vec<Change>,
    pub diff: String,
    /// With which functions it flushes and fences.
    pub idiom: Option<String>,
    /// Fixes that the source does not have, by their index, and why.
    pub impossible: BTreeMap<usize, String>,
}

impl Design {
    /// The findings that the patch repairs.
    pub fn fixed(&self) -> impl Iterator<Item = usize> + '_ {
        let fixes = self.plan.fixes.iter().enumerate();
        let refused: BTreeSet<usize> = fixes
            .clone()
            .filter(|(index, _)| self.impossible.contains_key(index))
            .flat_map(|(_, fix)| fix.findings.iter().copied())
            .collect();
        let fixed: BTreeSet<usize> = fixes.flat_map(|(_, fix)| fix.findings.iter().copied()).collect();
        fixed.into_iter().filter(move |finding| !refused.contains(finding))
    }
}

pub struct Designer<'a, 'context> {
    pub program: &'a Program<'context>,
    pub findings: &'a [Finding],
    pub observed: &'a Observed,
    /// The copy that the program was built in.
    pub tree: &'a Path,
}

impl Designer<'_, '_> {
    /// `without`: findings that are not to be repaired.
    pub fn design(&self, options: &PlanOptions, without: &BTreeSet<usize>) -> Design {
        let chosen: Vec<usize> = (0..self.findings.len())
            .filter(|index| !without.contains(index))
            .collect();
        let findings: Vec<Finding> = chosen.iter().map(|&index| self.findings[index].clone()).collect();
        let mut plan = plan::plan(self.program, &findings, self.observed, options);
        let indices = plan.fixes.iter_mut().flat_map(|fix| &mut fix.findings);
        for finding in indices.chain(plan.left.iter_mut().map(|left| &mut left.finding)) {
            *finding = chosen[*finding];
        }
        let _ = self.tree;
        Design {
            impossible: (0..plan.fixes.len())
                .map(|index| (index, "patches are not made yet".to_owned()))
                .collect(),
            plan,
            ..Design::default()
        }
    }
}
