//! Failing states for which there is no time any more.

use crate::executor::Failure;

/// Kept to be told of; the others are counted.
const MAX_KEPT: usize = 256;

#[derive(Default)]
pub(super) struct Left {
    failures: Vec<Failure>,
    beyond: u64,
}

impl Left {
    pub(super) fn add(&mut self, failure: Failure) {
        if self.failures.len() < MAX_KEPT {
            self.failures.push(failure);
        } else {
            self.beyond += 1;
        }
    }

    pub(super) fn failures(&self) -> &[Failure] {
        &self.failures
    }

    pub(super) fn beyond(&self) -> u64 {
        self.beyond
    }
}
