//! Failing states by what the program was doing (Witcher, SOSP 2021, section 4.4): the operation that the crash interrupted, and the set of basic blocks
//! that it executed. One bug in an insertion shows in every insertion that takes the same path; of those with the same source lines missing and
//! persisted one is looked into, and the others are counted with it.
//!
//! Deviation: the paper leaves a cluster's cause to the reader. Here a cluster's first state is reduced as any other is, and causes that clusters have in
//! common are one finding.

use crashproof_infer::Conditions;
use crashproof_trace::{OperationIndex, TraceFile};
use rustc_hash::FxHashMap;

use super::known::Spots;

/// What the program was doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Doing {
    pub operation: u64,
    /// Of the set of basic blocks that it executes.
    pub path: u64,
}

#[derive(Default)]
pub(crate) struct Clusters {
    begins: OperationIndex,
    /// By operation.
    paths: FxHashMap<u64, u64>,
    /// By path and source lines: the causes.
    explained: FxHashMap<(u64, Spots), Vec<usize>>,
}

impl Clusters {
    pub(crate) fn new(trace: &TraceFile, conditions: Option<&Conditions>) -> Clusters {
        let operations = conditions.into_iter().flat_map(|conditions| &conditions.operations);
        let paths: FxHashMap<u64, u64> = operations
            .filter_map(|(number, operation)| Some(((*number)?, operation.blocks?)))
            .collect();
        Clusters {
            begins: trace.operations().clone(),
            paths,
            explained: FxHashMap::default(),
        }
    }

    /// At a crash just before an event. `None` where the program was not built to say.
    pub(crate) fn doing(&self, event: u64) -> Option<Doing> {
        let operation = self.begins.of(event)?;
        let path = *self.paths.get(&operation)?;
        Some(Doing { operation, path })
    }

    pub(crate) fn causes(&self, doing: Doing, spots: &Spots) -> Option<&[usize]> {
        self.explained.get(&(doing.path, spots.clone())).map(Vec::as_slice)
    }

    pub(crate) fn explain(&mut self, doing: Doing, spots: Spots, causes: &[usize]) {
        self.explained.insert((doing.path, spots), causes.to_vec());
    }
}

#[cfg(test)]
mod tests {
    use crashproof_infer::Operation;
    use crashproof_trace::{EventKind, FenceKind, Header, ProcessId, ProgramEnd, StackId, ThreadId, TraceWriter};

    use super::*;

    #[test]
    fn operations_on_one_path_are_one_cluster() {
        let folder = tempfile::tempdir().unwrap();
        let trace = folder.path().join("trace");
        let mut writer = TraceWriter::create(&trace, &Header::default()).unwrap();
        let process = ProcessId(0);
        let start = EventKind::ProcessStart {
            process,
            pid: 1,
            parent: None,
            executable: "driver",
        };
        let thread = EventKind::ThreadStart { process, os_id: 1 };
        let kind = FenceKind::Sfence;
        let (fence, line) = (EventKind::Fence { kind }, EventKind::Output { fd: 1, data: b"ok\n" });
        for event in [&start, &thread, &fence, &line, &fence, &line, &fence] {
            writer.event(ThreadId(0), StackId(0), event).unwrap();
        }
        writer.finish(ProgramEnd::default()).unwrap();
        let trace = TraceFile::open(&trace).unwrap();
        let mut conditions = Conditions::default();
        for number in 0..2 {
            let blocks = Some(77);
            conditions.operations.insert(
                Some(number),
                Operation {
                    blocks,
                    ..Operation::default()
                },
            );
        }
        let mut clusters = Clusters::new(&trace, Some(&conditions));
        let first = clusters.doing(2).unwrap();
        assert_eq!(first, Doing { operation: 0, path: 77 });
        clusters.explain(first, Spots::default(), &[3]);
        let second = clusters.doing(4).unwrap();
        assert_eq!(second.operation, 1);
        assert_eq!(clusters.causes(second, &Spots::default()), Some(&[3][..]));
        assert_eq!(clusters.doing(6), None, "nothing is known of what comes after");
        assert_eq!(Clusters::new(&trace, None).doing(2), None);
    }
}
