//! What the driver prints if nothing has crashed: runs on snapshots of the pool, which the trace has at the boundary of every
//! operation (everything that was executed until then has persisted). Each is made when it is first asked for. Of what was
//! printed a digest is kept, since a probe of a large structure is long; a report has it printed once more.

use std::collections::hash_map::Entry;
use std::ffi::OsString;

use crashproof_trace::{Boundaries, Item, Operations, TraceFile};
use rustc_hash::FxHashMap;

use super::driver::Recorded;
use super::{OracleOptions, PROBE};
use crate::campaign::CampaignOptions;
use crate::error::CrashError;
use crate::executor::Executor;
use crate::explain::{Laboratory, Reach};
use crate::hash::Fold;

/// Changes that are kept before the snapshot at hand: workers, and explanations, are a little apart.
const MARGIN: usize = 1 << 17;
/// Operations after each of which one run probes.
const BLOCK: u64 = 32;

pub(super) type Digest = u128;

pub(super) fn digest(stdout: &[u8]) -> Digest {
    let mut fold = Fold::default();
    fold.bytes(stdout);
    fold.0
}

pub(super) struct Reference {
    lab: Laboratory,
    options: OracleOptions,
    /// By how many operations have ended: the next event.
    boundaries: Vec<u64>,
    /// By how many operations were done.
    probes: FxHashMap<u64, Digest>,
    /// The same, printed on the way of a run that went on.
    on_the_way: FxHashMap<u64, Digest>,
    /// The driver can probe after each operation.
    probes_each: bool,
    /// By the snapshot and the operations done on it. None: the driver fails there.
    printed: FxHashMap<(u64, u64, u64), Option<Digest>>,
    /// How often the driver was run.
    pub runs: u64,
}

impl Reference {
    pub(super) fn new(
        trace: &TraceFile,
        campaign: &CampaignOptions,
        executor: Box<dyn Executor>,
        options: &OracleOptions,
    ) -> Result<Reference, CrashError> {
        let campaign = CampaignOptions {
            from: None,
            until: None,
            oracle: None,
            ..campaign.clone()
        };
        let mut lab = Laboratory::new(trace, &campaign, executor)?;
        lab.reach = Reach {
            margin: MARGIN,
            ..lab.reach
        };
        Ok(Reference {
            lab,
            options: options.clone(),
            boundaries: boundaries(trace)?,
            probes: FxHashMap::default(),
            on_the_way: FxHashMap::default(),
            probes_each: true,
            printed: FxHashMap::default(),
            runs: 0,
        })
    }

    /// Of what the probe prints after so many operations, with the line that announces it.
    pub(super) fn probe(&mut self, done: u64) -> Result<Digest, CrashError> {
        if let Some(&known) = self.probes.get(&done) {
            return Ok(known);
        }
        let digest = digest(&self.probe_text(done)?);
        self.probes.insert(done, digest);
        Ok(digest)
    }

    /// The same, from a run that probes after each of some operations, which is one run for all of them. None: the driver does not do that, or
    /// a run that begins there prints something else than the recorded one.
    pub(super) fn probe_on_the_way(&mut self, done: u64, recorded: &Recorded) -> Result<Option<Digest>, CrashError> {
        let known = self.on_the_way.get(&done).copied();
        if known.is_some() || !self.probes_each || done == 0 {
            return Ok(known);
        }
        let from = (done - 1) / BLOCK * BLOCK;
        let to = (from + BLOCK).min(self.options.count());
        let mut arguments = self.options.arguments(from, to, true);
        arguments.push("--probe".into());
        let stdout = self.run_with(from, &arguments)?.unwrap_or_default();
        let lines: Vec<&[u8]> = (from..to).map(|at| recorded.printed(at, at + 1)).collect();
        let Some(probes) = probes(&stdout, &lines) else {
            self.probes_each = false;
            return Ok(None);
        };
        self.on_the_way.extend((from + 1..).zip(probes.into_iter().map(digest)));
        Ok(self.on_the_way.get(&done).copied())
    }

    pub(super) fn probe_text(&mut self, done: u64) -> Result<Vec<u8>, CrashError> {
        if let Some(stdout) = self.run(done, done, done)? {
            return Ok(stdout);
        }
        // The pool cannot be opened there although everything has persisted. That is for the crash states to show.
        let stdout = self.run(0, 0, done)?.unwrap_or_default();
        let probe = stdout.windows(PROBE.len()).position(|bytes| bytes == PROBE);
        Ok(probe.map_or_else(Vec::new, |at| stdout[at..].to_vec()))
    }

    /// What the probe prints, known from elsewhere.
    pub(super) fn know_probe(&mut self, done: u64, stdout: &[u8]) {
        self.probes.insert(done, digest(stdout));
    }

    /// Of what is printed for some operations on the pool after the first `done`.
    pub(super) fn on_snapshot(&mut self, done: u64, from: u64, to: u64) -> Result<Option<Digest>, CrashError> {
        if let Entry::Occupied(known) = self.printed.entry((done, from, to)) {
            return Ok(*known.get());
        }
        let digest = self.text_on_snapshot(done, from, to)?.map(|stdout| digest(&stdout));
        self.printed.insert((done, from, to), digest);
        Ok(digest)
    }

    pub(super) fn text_on_snapshot(&mut self, done: u64, from: u64, to: u64) -> Result<Option<Vec<u8>>, CrashError> {
        self.run(done, from, to)
    }

    /// None: the driver fails.
    pub(super) fn run(&mut self, done: u64, from: u64, to: u64) -> Result<Option<Vec<u8>>, CrashError> {
        self.run_with(done, &self.options.arguments(from, to, true))
    }

    fn run_with(&mut self, done: u64, arguments: &[OsString]) -> Result<Option<Vec<u8>>, CrashError> {
        let last = self.boundaries.len() - 1;
        let event = self.boundaries[(done as usize).min(last)];
        let point = self.lab.open(event, event)?;
        self.runs += 1;
        let run = self.lab.run_with(&self.lab.prefix(point), arguments)?;
        Ok(run.recovery.succeeded().then_some(run.recovery.stdout))
    }
}

/// The probes, each with the line that announces it, that were printed after each of these lines. None: something else was printed.
fn probes<'a>(stdout: &'a [u8], lines: &[&[u8]]) -> Option<Vec<&'a [u8]>> {
    let mut rest = stdout.strip_prefix(*lines.first()?)?;
    let mut probes = Vec::new();
    for next in lines[1..].iter().copied().chain([&b""[..]]) {
        // A probe lasts until the next line before the next one, or at the end until the last one, which repeats it.
        rest.strip_prefix(PROBE)?;
        let after = &rest[PROBE.len() - 1..];
        let end = PROBE.len() + after.windows(PROBE.len() + 1).position(|bytes| bytes == b"\nprobe\n")?;
        probes.push(rest[..end].strip_suffix(next)?);
        rest = &rest[end..];
    }
    (probes.last() == Some(&rest)).then_some(probes)
}

/// The event after the end of each operation; the first is the beginning, before anything.
fn boundaries(trace: &TraceFile) -> Result<Vec<u64>, CrashError> {
    let mut reader = trace.files()?;
    let mut operations = Operations::new(Boundaries::Lines);
    let mut boundaries = vec![0];
    while let Some(item) = reader.next()? {
        let Item::Event(event) = item else { continue };
        operations.of(&event);
        while (boundaries.len() as u64) <= operations.count() {
            boundaries.push(event.seq + 1);
        }
    }
    Ok(boundaries)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_on_the_way() {
        let lines: [&[u8]; 3] = [b"ok\n", b"7\n", b"7\n"];
        let printed = |text: &'static str| probes(text.as_bytes(), &lines);
        let found = printed("ok\nprobe\n1: 7\n7\nprobe\n7\n7\nprobe\n1: 8\nprobe\n1: 8\n");
        assert_eq!(
            found,
            Some(vec![&b"probe\n1: 7\n"[..], b"probe\n7\n", b"probe\n1: 8\n"])
        );
        // An empty structure.
        let empty = printed("ok\nprobe\n7\nprobe\n7\nprobe\nprobe\n");
        assert_eq!(empty, Some(vec![PROBE; 3]));
        for other in [
            "",
            "ok\n7\n7\nprobe\n1: 8\n",
            "ok\nprobe\n1: 7\n8\nprobe\n1: 7\n7\nprobe\n1: 8\nprobe\n1: 8\n",
            "ok\nprobe\n1: 7\n7\nprobe\n1: 7\n7\nprobe\n1: 8\nprobe\n1: 9\n",
            "ok\nprobe\nprobe\n7\nprobe\nprobe\n7\nprobe\nprobe\nprobe\nprobe\n",
        ] {
            assert_eq!(printed(other), None, "{other}");
        }
    }
}
