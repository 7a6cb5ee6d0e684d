//! The outputs of a failing state, for its finding.

use crashproof_finding::{ExpectedOutput, OutputDifference};

use super::OutputOracle;
use crate::error::CrashError;

/// Lines that a finding holds of an output.
const MAX_LINES: usize = 200;
/// Of these, before the first one that differs.
const BEFORE: usize = 20;
/// Characters of a line.
const MAX_WIDTH: usize = 200;

impl OutputOracle {
    /// What the driver printed after a crash before which so many bytes had been output, beside what it had to print.
    pub fn difference(&self, output: u64, stdout: &[u8]) -> Result<OutputDifference, CrashError> {
        let k = self.operation(output);
        let (from, to) = self.options.suffix(k);
        let expected = self.expected(output)?;
        let got = lines(stdout);
        let all: Vec<Vec<String>> = expected.iter().map(|expected| lines(&expected.stdout)).collect();
        // From the oracle that it agrees with longest.
        let first = all.iter().map(|oracle| common(oracle, &got)).max().unwrap_or(0);
        let cut = Cut::around(first);
        let of_suffix = (first as u64) < to - from;
        Ok(OutputDifference {
            operation: k,
            text: self.options.operations.get(k as usize).cloned(),
            creation: self.options.creation && k == 0,
            differs_at: of_suffix.then(|| from + first as u64),
            differs_text: of_suffix
                .then(|| self.options.operations.get(from as usize + first).cloned())
                .flatten(),
            operations_after: to - from,
            first_line: first as u64,
            lines_from: cut.start as u64,
            expected: expected
                .iter()
                .zip(&all)
                .map(|(expected, lines)| ExpectedOutput {
                    outcome: outcome(expected.done, k, from),
                    output: cut.of(lines),
                })
                .collect(),
            got: cut.of(&got),
        })
    }
}

fn outcome(done: u64, k: u64, from: u64) -> String {
    match () {
        () if done == from => "done".to_owned(),
        () if done == k => "left out".to_owned(),
        () => format!("left out from {done} on"),
    }
}

fn lines(stdout: &[u8]) -> Vec<String> {
    String::from_utf8_lossy(stdout).lines().map(str::to_owned).collect()
}

/// Lines that both begin with.
fn common(one: &[String], other: &[String]) -> usize {
    one.iter().zip(other).take_while(|(one, other)| one == other).count()
}

/// The lines that are kept.
struct Cut {
    start: usize,
}

impl Cut {
    fn around(first: usize) -> Cut {
        let start = if first < MAX_LINES - BEFORE { 0 } else { first - BEFORE };
        Cut { start }
    }

    fn of(&self, lines: &[String]) -> Vec<String> {
        let kept = lines.iter().skip(self.start).take(MAX_LINES);
        kept.map(|line| line.chars().take(MAX_WIDTH).collect()).collect()
    }
}
