//! `redundant-flush` and `flush-unmodified` (Agamotto §4.2.1, the extra flush oracle): a flush that finds its line clean,
//! or that its own thread flushed already with nothing new.
//!
//! Deviations: a line that was never stored to is a kind of its own, as the cause is another (a wrong range); a line that
//! threads share is not reported when it is clean, because the thread that flushes its store cannot know that another's
//! flush covered it.

use crashproof_finding::Kind;
use crashproof_model::{Flush, LINE, Model};
use crashproof_trace::{PmAddress, StackId};

use super::{Oracle, Step, World};
use crate::findings::{Detail, RawFinding, Relation};

#[derive(Default)]
pub(crate) struct RedundantFlush {
    /// Flushes by stack, redundant or not.
    flushes: Vec<u64>,
}

impl Oracle for RedundantFlush {
    fn flush(&mut self, step: Step, at: PmAddress, outcome: Flush<u32>, world: &mut World) {
        let index = step.stack.index();
        if index >= self.flushes.len() {
            self.flushes.resize(index + 1, 0);
        }
        self.flushes[index] += 1;
        let line = PmAddress {
            offset: at.offset / LINE * LINE,
            ..at
        };
        let finding = |kind| RawFinding::new(kind, step.stack).at(line, LINE);
        match outcome {
            Flush::Useful => {}
            Flush::Covered if world.model == Model::Px86 => {}
            Flush::Covered | Flush::Clean => world.findings.add(finding(Kind::RedundantFlush)),
            Flush::AlreadyPending(first) => world.findings.add(RawFinding {
                related: Some((Relation::FlushedFirst, StackId(first))),
                detail: Detail::Pending,
                ..finding(Kind::RedundantFlush)
            }),
            Flush::Unmodified => world.findings.add(finding(Kind::FlushUnmodified)),
        }
    }

    fn finish(&mut self, world: &mut World) {
        for finding in world.findings.iter_mut() {
            if matches!(finding.kind, Kind::RedundantFlush | Kind::FlushUnmodified) {
                finding.out_of = self.flushes.get(finding.stack.index()).copied();
            }
        }
    }
}
