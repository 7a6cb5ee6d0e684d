//! Whether a program is a driver, and its output one that can be judged.

use std::path::PathBuf;

use crashproof_trace::{Boundaries, EventKind, Item, Operations, TraceFile};

use super::{OracleError, OracleOptions, OutputOracle, PROBE};
use crate::campaign::CampaignOptions;
use crate::error::CrashError;
use crate::executor::Executor;
use crate::explain::Laboratory;

const STDOUT: u32 = 1;
/// Operations that an error names.
const MAX_NAMED: usize = 3;

/// Each says what the driver did, and what it has to do.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    #[error(
        "the driver printed nothing to its standard output for {operations} operations, so there is nothing to judge by: it has to print one line \
         for each operation, with write(2) or with stdout unbuffered, and to follow `--ops FILE --from N --to M [--probe]` (docs/output-oracle.md)"
    )]
    Silent { operations: u64 },
    #[error(
        "the driver printed {lines} lines for {operations} operations ({}), the first is {first:?}: it has to print exactly one line for each operation from \
         --from up to --to, and nothing else to its standard output; what its recovery has to say belongs on stderr", file.display()
    )]
    Lines {
        lines: u64,
        operations: u64,
        file: PathBuf,
        first: String,
    },
    #[error(
        "the recovery of the driver prints {line:?} to its standard output after some crashes; only the lines of operations and the probe belong there, because what \
         is printed is compared. Print that on stderr, or build the driver with this version's crashproof_driver.h (`crashproof header --driver`), which keeps what \
         else is printed apart"
    )]
    RecoveryPrints { line: String },
    #[error(
        "the driver printed the lines of operations {operation} and {} with one write, so nothing says where one ends and the next begins: \
         print each line as soon as its operation is done (setvbuf(stdout, NULL, _IOLBF, 0), or write(2))", operation + 1
    )]
    Buffered { operation: u64 },
    #[error(
        "the driver stores to persistent memory with {threads} threads: outputs are compared for one order of the operations, and with \
         several threads there would be one for each interleaving; do the operations in one thread, or judge with --recover"
    )]
    Threads { threads: usize },
    #[error(
        "the driver starts other processes: operations of several processes have no order by which they could be numbered; do them in one process, or judge with --recover"
    )]
    Forks,
    #[error(
        "the driver {ended} when it was run once more, on the pool as the set-up left it, with `{arguments}`: it has to exit with 0{output}"
    )]
    Fails {
        ended: String,
        arguments: String,
        output: String,
    },
    #[error(
        "after {operations} operations the driver printed {line:?} where `--probe` has to print the line \"probe\", and then what every key reads, or the \
         structure in sorted order; without that, what a crash destroyed and no later operation reads would go unseen"
    )]
    NoProbe { operations: u64, line: String },
    #[error(
        "with `--from {from} --to {to} --probe` the driver printed {lines} lines before the line \"probe\", where one for each operation, {}, are due; the first is {first:?}: it has to do exactly \
         the operations that it is asked for, and to print nothing else (what its recovery has to say belongs on stderr)",
        to - from
    )]
    Range {
        from: u64,
        to: u64,
        lines: u64,
        first: String,
    },
    #[error(
        "the output of the driver is not the same each time, so nothing can be judged by it:\n{operations}\nMake these operations deterministic (no time, random numbers, process ids), or leave them out"
    )]
    Random { operations: String },
    #[error(
        "the output of the driver depends on where its pool is mapped, or on what else is allocated in it:\n{operations}\nPrint no addresses, and let no order depend on them; or leave these operations out"
    )]
    Addresses { operations: String },
    #[error(
        "opened once more after the last operation, undisturbed, the pool is not what it was: the driver {how}.\nThat is no crash; mend this first, or see whether the probe prints something that is not in the pool{output}"
    )]
    Reopened { how: String, output: String },
}

/// What the recorded run printed.
pub(super) struct Recorded {
    stdout: Vec<u8>,
    /// By how many operations had ended: where stdout, and all that was output, had come to.
    ends: Vec<(usize, u64)>,
}

impl Recorded {
    pub(super) fn read(trace: &TraceFile, options: &OracleOptions) -> Result<Recorded, OracleError> {
        let mut reader = trace.files()?;
        let mut operations = Operations::new(Boundaries::Lines);
        let mut recorded = Recorded {
            stdout: Vec::new(),
            ends: vec![(0, 0)],
        };
        let mut output = 0;
        let (mut processes, mut threads) = (0, Vec::new());
        let mut buffered = None;
        while let Some(item) = reader.next()? {
            let Item::Event(event) = item else { continue };
            let before = operations.count();
            operations.of(&event);
            match event.kind {
                EventKind::Output { fd, data } => {
                    output += data.len() as u64;
                    if fd == STDOUT {
                        recorded.stdout.extend_from_slice(data);
                    }
                    if operations.count() > before + 1 {
                        buffered.get_or_insert(before);
                    }
                    if operations.count() > before {
                        recorded.ends.push((recorded.stdout.len(), output));
                    }
                }
                EventKind::ProcessStart { .. } => processes += 1,
                EventKind::Store { .. } if !threads.contains(&event.thread) => threads.push(event.thread),
                _ => {}
            }
        }
        let lines = operations.count();
        let file = || options.file.clone();
        let operations = options.count();
        if processes > 1 {
            return Err(DriverError::Forks.into());
        }
        if threads.len() > 1 {
            let threads = threads.len();
            return Err(DriverError::Threads { threads }.into());
        }
        if lines == 0 && operations > 0 {
            return Err(DriverError::Silent { operations }.into());
        }
        if lines != operations {
            let file = file();
            let first = first_line(&recorded.stdout);
            return Err(DriverError::Lines {
                lines,
                operations,
                file,
                first,
            }
            .into());
        }
        match buffered {
            Some(operation) => Err(DriverError::Buffered { operation }.into()),
            None => Ok(recorded),
        }
    }

    /// Operations that had ended when so many bytes had been output.
    pub(super) fn ended(&self, output: u64) -> u64 {
        self.ends.partition_point(|&(_, at)| at <= output) as u64 - 1
    }

    /// What these operations printed.
    pub(super) fn printed(&self, from: u64, to: u64) -> &[u8] {
        let at = |operation: u64| self.ends[operation as usize].0;
        &self.stdout[at(from)..at(to)]
    }
}

/// What a run of all operations printed, in its parts.
struct Whole<'a> {
    lines: Vec<&'a [u8]>,
    /// With the line that announces it.
    probe: &'a [u8],
}

/// Runs the driver once more where the pool is mapped elsewhere, and once on what the recorded run left.
pub(super) fn check(
    oracle: &OutputOracle,
    trace: &TraceFile,
    campaign: &CampaignOptions,
    elsewhere: Box<dyn Executor>,
) -> Result<(), OracleError> {
    let count = oracle.options.count();
    let campaign = CampaignOptions {
        oracle: None,
        ..campaign.clone()
    };
    let mut lab = Laboratory::new(trace, &campaign, elsewhere)?;
    let stdout = run(&mut lab, &oracle.options, 0, count)?;
    let whole = parts(&stdout, 0, count)?;
    let recorded = recorded_lines(oracle);
    let other = different(&oracle.options, &recorded, &whole.lines);
    if let Some(operations) = other {
        // Is it the addresses, or does it differ each time?
        let again = oracle.reference().run(0, 0, count)?.unwrap_or_default();
        let again = parts(&again, 0, count)?;
        return Err(match different(&oracle.options, &recorded, &again.lines) {
            None => DriverError::Addresses { operations },
            Some(operations) => DriverError::Random { operations },
        }
        .into());
    }
    let again = oracle.reference().run(0, 0, count)?.unwrap_or_default();
    let again = parts(&again, 0, count)?;
    if again.probe != whole.probe {
        let operations = "  the probe".to_owned();
        let once_more = run(&mut lab, &oracle.options, 0, count)?;
        let once_more = parts(&once_more, 0, count)?;
        return Err(match once_more.probe == whole.probe {
            true => DriverError::Addresses { operations },
            false => DriverError::Random { operations },
        }
        .into());
    }
    reopen(oracle, whole.probe)
}

/// The pool as the run left it, opened and probed.
fn reopen(oracle: &OutputOracle, probe: &[u8]) -> Result<(), OracleError> {
    let count = oracle.options.count();
    let mut reference = oracle.reference();
    reference.know_probe(count, probe);
    let Some(stdout) = reference.run(count, count, count)? else {
        let how = "fails on it".to_owned();
        let output = String::new();
        return Err(DriverError::Reopened { how, output }.into());
    };
    let reopened = parts(&stdout, count, count)?;
    if reopened.probe != probe {
        let how = "prints another probe".to_owned();
        let output = differing_lines(probe, reopened.probe);
        return Err(DriverError::Reopened { how, output }.into());
    }
    Ok(())
}

fn run(lab: &mut Laboratory, options: &OracleOptions, from: u64, to: u64) -> Result<Vec<u8>, OracleError> {
    let arguments = options.arguments(from, to, true);
    let run = lab.run_with(&lab.prefix(0), &arguments).map_err(CrashError::from)?;
    let ended = run.recovery;
    if ended.succeeded() {
        return Ok(ended.stdout);
    }
    let how = match (ended.timed_out, ended.signal, ended.status) {
        (true, ..) => "did not end within the time limit".to_owned(),
        (_, Some(signal), _) => format!("was ended by signal {signal}"),
        (_, None, status) => format!("exited with status {}", status.unwrap_or_default()),
    };
    let said = String::from_utf8_lossy(&ended.stderr);
    let output = match said.trim() {
        "" => String::new(),
        said => format!("\nIts stderr:\n  {}", said.replace('\n', "\n  ")),
    };
    let words: Vec<_> = arguments.iter().map(|word| word.to_string_lossy()).collect();
    Err(DriverError::Fails {
        ended: how,
        arguments: words.join(" "),
        output,
    }
    .into())
}

/// The lines of the operations, and the probe.
fn parts(stdout: &[u8], from: u64, to: u64) -> Result<Whole<'_>, DriverError> {
    let mut lines = Vec::new();
    let mut rest = stdout;
    while !rest.starts_with(PROBE) {
        let Some(end) = rest.iter().position(|&byte| byte == b'\n') else {
            let line = rest;
            let lines = lines.len() as u64;
            return Err(match lines == to - from {
                true => DriverError::NoProbe {
                    operations: to - from,
                    line: String::from_utf8_lossy(line).into_owned(),
                },
                false => DriverError::Range {
                    from,
                    to,
                    lines,
                    first: first_line(stdout),
                },
            });
        };
        lines.push(&rest[..end]);
        rest = &rest[end + 1..];
    }
    if lines.len() as u64 != to - from {
        let lines = lines.len() as u64;
        let first = first_line(stdout);
        return Err(DriverError::Range { from, to, lines, first });
    }
    Ok(Whole { lines, probe: rest })
}

fn first_line(stdout: &[u8]) -> String {
    String::from_utf8_lossy(stdout)
        .lines()
        .next()
        .unwrap_or_default()
        .to_owned()
}

/// What was printed before the last `due` lines before the probe, and the rest; none if there was nothing.
pub(super) fn without_extra_lines(stdout: &[u8], due: u64) -> Option<(&[u8], &[u8])> {
    let mut starts = Vec::new();
    let mut at = 0;
    while !stdout[at..].starts_with(PROBE) {
        starts.push(at);
        at += stdout[at..].iter().position(|&byte| byte == b'\n')? + 1;
    }
    starts.push(at);
    let extra = starts.len().checked_sub(1 + due as usize).filter(|&extra| extra > 0)?;
    Some(stdout.split_at(starts[extra]))
}

fn recorded_lines(oracle: &OutputOracle) -> Vec<&[u8]> {
    let line = |operation| {
        let line = oracle.recorded.printed(operation, operation + 1);
        line.strip_suffix(b"\n").unwrap_or(line)
    };
    (0..oracle.options.count()).map(line).collect()
}

/// The operations that printed something else, by name; one of each kind.
fn different(options: &OracleOptions, recorded: &[&[u8]], other: &[&[u8]]) -> Option<String> {
    let mut kinds = Vec::new();
    let mut named = Vec::new();
    for (number, (one, other)) in recorded
        .iter()
        .zip(other)
        .enumerate()
        .filter(|(_, (one, other))| one != other)
    {
        let text = &options.operations[number];
        let kind = text.split_whitespace().next().unwrap_or_default();
        if kinds.contains(&kind) {
            continue;
        }
        kinds.push(kind);
        let (one, other) = (String::from_utf8_lossy(one), String::from_utf8_lossy(other));
        named.push(format!(
            "  operation {number} ({text}) printed {one:?}, and then {other:?}"
        ));
    }
    let beyond = named.len().saturating_sub(MAX_NAMED);
    named.truncate(MAX_NAMED);
    if beyond > 0 {
        named.push(format!("  and operations of {beyond} more kinds"));
    }
    (!named.is_empty()).then(|| named.join("\n"))
}

/// The first line in which they differ.
fn differing_lines(expected: &[u8], got: &[u8]) -> String {
    let lines = |text: &[u8]| {
        String::from_utf8_lossy(text)
            .lines()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let (expected, got) = (lines(expected), lines(got));
    let at = expected
        .iter()
        .zip(&got)
        .take_while(|(one, other)| one == other)
        .count();
    let line = |lines: &[String]| {
        lines
            .get(at)
            .map_or_else(|| "nothing more".to_owned(), |line| format!("{line:?}"))
    };
    format!("\nWhere it printed {} it prints {}", line(&expected), line(&got))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_before_those_that_are_due() {
        let split = |text: &'static str, due| {
            let (extra, rest) = without_extra_lines(text.as_bytes(), due)?;
            Some((String::from_utf8_lossy(extra), String::from_utf8_lossy(rest)))
        };
        let parts = |extra: &'static str, rest: &'static str| Some((extra.into(), rest.into()));
        assert_eq!(
            split("redo 3\nok\n7\nprobe\n1: 7\n", 2),
            parts("redo 3\n", "ok\n7\nprobe\n1: 7\n")
        );
        assert_eq!(split("a\nb\nprobe\n", 0), parts("a\nb\n", "probe\n"));
        for (text, due) in [
            ("ok\n7\nprobe\n1: 7\n", 2),
            ("ok\nprobe\n", 2),
            ("a\nb\nc", 1),
            ("", 0),
            ("probe\n", 0),
        ] {
            assert_eq!(split(text, due), None, "{text}");
        }
    }
}
