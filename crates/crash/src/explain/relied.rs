//! The condition that a cause violates: what the program relies on, by its own code ([`crate::conditions`]), and what the crash took
//! away. A state of any strategy may violate one; it is asked for when the state has been reduced to what matters.

use std::sync::Arc;

use crashproof_finding::{Kind, ViolatedCondition};
use crashproof_infer::{Conditions, Names};
use crashproof_stacks::DeclaredHelpers;

use super::cause::Cause;
use super::history::{Index, Laboratory};
use crate::conditions::{Condition, Stored, Violations};
use crate::error::CrashError;

/// Stores before a crash that are looked at, if those of the cause violate nothing by themselves.
const NEAR: usize = 1 << 12;

pub(super) struct Relied {
    conditions: Arc<Conditions>,
    violations: Violations,
    names: Names<Arc<Conditions>>,
}

impl Relied {
    pub(super) fn new(
        lab: &Laboratory,
        conditions: &Arc<Conditions>,
        helpers: DeclaredHelpers,
    ) -> Result<Relied, CrashError> {
        Ok(Relied {
            violations: Violations::new(lab.trace(), conditions)?,
            names: Names::new(Arc::clone(conditions), helpers),
            conditions: Arc::clone(conditions),
        })
    }

    /// Of the cause's own stores if there is one, else of one of them and another.
    pub(super) fn violated(&mut self, cause: &Cause, lab: &Laboratory) -> Option<ViolatedCondition> {
        let (first, _) = lab.window();
        let point = cause.state.point;
        let start = cause.missing.first().copied().unwrap_or(point);
        let near = first.max(point.saturating_sub(NEAR)).max(start)..point;
        let held: Vec<Index> = near.filter(|index| !cause.state.missing.contains(index)).collect();
        let lost: Vec<Index> = cause.state.missing.iter().copied().collect();
        let pairs = [
            (&cause.persisted, &cause.missing),
            (&held, &cause.missing),
            (&cause.persisted, &lost),
        ];
        let together = cause.kind == Kind::CrashAtomicity;
        let condition = pairs.into_iter().find_map(|(persisted, missing)| {
            let (persisted, missing) = (stored(persisted, lab), stored(missing, lab));
            self.violations
                .violated(&self.conditions, &persisted, &missing, together)
        })?;
        let listed = match condition {
            Condition::Order(number) => self.names.order(number),
            Condition::Together(missing, persisted) => self.names.together(missing, persisted),
        };
        Some(ViolatedCondition {
            rule: listed.rule.to_owned(),
            text: listed.text,
            because: listed.because.frame,
        })
    }
}

fn stored(indices: &[Index], lab: &Laboratory) -> Vec<Stored> {
    let stores = indices.iter().filter_map(|&index| {
        let change = lab.change(index);
        let (offset, data) = change.data().filter(|_| change.is_store())?;
        Some(Stored {
            event: change.id.seq,
            file: change.file as u32,
            offset,
            length: data.len() as u64,
        })
    });
    stores.collect()
}
