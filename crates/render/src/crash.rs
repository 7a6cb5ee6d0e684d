//! The story of a crash, for people: what had persisted, what had not, where power failed, and what recovery made of it.

use crashproof_finding::stack::{blamed_position, describe, trimmed};
use crashproof_finding::{Crash, CrashStore, Finding, Frame, OutputDifference};

/// Of a missing store that the program had not made yet.
pub(crate) const STILL_TO_COME: &str = "still to be stored when power failed";
/// Lines of the recovery's output that are shown.
const MAX_LINES: usize = 6;
/// Characters of such a line.
const MAX_WIDTH: usize = 200;

/// Something to mark in the source.
pub(crate) struct CrashMark<'a> {
    pub file: &'a str,
    pub line: u32,
    pub column: Option<u32>,
    /// It has a store that is missing; where the finding is at another line, it is that one.
    pub primary: bool,
    pub told: Vec<Told>,
    pub label: String,
}

/// One mark for each source line, the missing stores first.
pub(crate) fn marks<'a>(finding: &Finding, crash: &'a Crash) -> Vec<CrashMark<'a>> {
    let missing = crash.missing.iter().map(|store| match store.executed {
        true => (&store.frame, Told::Missing),
        false => (&store.frame, Told::StillToCome),
    });
    let persisted = crash.persisted.iter().map(|store| (&store.frame, Told::Persisted));
    let last = [(&crash.after, Told::Last)];
    let mut places: Vec<(&Frame, Vec<Told>)> = Vec::new();
    for (frame, told) in missing
        .chain(persisted)
        .chain(last)
        .filter(|(frame, _)| frame.has_position())
    {
        let same = |(other, _): &&mut (&Frame, Vec<Told>)| other.file == frame.file && other.line == frame.line;
        match places.iter_mut().find(same) {
            Some((_, all)) if all.contains(&told) => {}
            Some((_, all)) => all.push(told),
            None => places.push((frame, vec![told])),
        }
    }
    let is_missing = |told: &[Told]| {
        told.iter()
            .any(|told| matches!(told, Told::Missing | Told::StillToCome))
    };
    let is_own = |frame: &Frame| frame.line == finding.line && frame.file == finding.file;
    let at_persisted = places
        .iter()
        .any(|(frame, told)| is_own(frame) && told.contains(&Told::Persisted) && !is_missing(told));
    let mark = |(frame, told): (&'a Frame, Vec<Told>)| {
        Some(CrashMark {
            file: frame.file.as_deref()?,
            line: frame.line?,
            column: frame.column,
            primary: match at_persisted {
                true => is_own(frame),
                false => is_missing(&told),
            },
            label: label(finding, &told),
            told,
        })
    };
    places.into_iter().filter_map(mark).collect()
}

/// What there is to say of a line.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    Missing,
    StillToCome,
    Persisted,
    Last,
}

fn label(finding: &Finding, told: &[Told]) -> String {
    let has = |what| told.contains(&what);
    let stores = match (has(Told::Missing), has(Told::StillToCome), has(Told::Persisted)) {
        (true, _, true) => Some("one store here had persisted, another had not"),
        (_, true, true) => Some("one store here had persisted, another was still to come"),
        (true, _, false) => Some(finding.kind.info().label),
        (_, true, false) => Some(STILL_TO_COME),
        (false, false, true) => Some("had persisted"),
        (false, false, false) => None,
    };
    let last = has(Told::Last).then_some("power failed after this");
    stores.into_iter().chain(last).collect::<Vec<_>>().join("; ")
}

/// What recovery said, as lines to be shown as they are.
pub(crate) fn recovery_note(crash: &Crash) -> String {
    let recovery = &crash.recovery;
    let (name, text) = match recovery.stderr.trim().is_empty() && !recovery.unexpected_output {
        true => ("stdout", recovery.stdout.trim()),
        false if recovery.unexpected_output => ("stdout", recovery.stdout.trim()),
        false => ("stderr", recovery.stderr.trim()),
    };
    let ended = recovery.in_words(&format!("`{}`", recovery.command));
    let lines: Vec<&str> = text.lines().collect();
    if lines.is_empty() {
        return format!("{ended}; it printed nothing");
    }
    let mut note = match lines.len().checked_sub(MAX_LINES) {
        None | Some(0) => format!("{ended}; {name}:"),
        Some(_) => format!("{ended}; the end of its {name}:"),
    };
    for line in &lines[lines.len().saturating_sub(MAX_LINES)..] {
        note += "\n  ";
        note.extend(line.chars().take(MAX_WIDTH));
    }
    note
}

/// Lines of the outputs that are shown, from the first that differs on, and characters of one of them.
const MAX_ROWS: usize = 5;
const MAX_CELL: usize = 28;

/// What was printed beside what would have been right, line by line.
pub(crate) fn outputs_note(crash: &Crash, output: &OutputDifference) -> String {
    let interrupted = match output.interrupted() {
        Some(operation) => format!("in {operation}"),
        None => "after the last operation".to_owned(),
    };
    let first = (output.first_line - output.lines_from) as usize;
    let columns: Vec<&[String]> = output.expected.iter().map(|expected| &expected.output[..]).collect();
    let columns: Vec<&[String]> = columns.into_iter().chain([&output.got[..]]).collect();
    let longest = columns.iter().map(|lines| lines.len()).max().unwrap_or(0);
    let alike = |&row: &usize| columns.iter().all(|lines| lines.get(row) == columns[0].get(row));
    let rows: Vec<usize> = (first..longest).filter(|row| !alike(row)).take(MAX_ROWS).collect();
    let heads = output.expected.iter().map(|expected| expected.outcome.clone());
    let mut table = vec![
        [String::new()]
            .into_iter()
            .chain(heads)
            .chain(["printed".to_owned()])
            .collect::<Vec<_>>(),
    ];
    for &row in &rows {
        let line = output.lines_from + row as u64;
        let label = match line.checked_sub(output.operations_after) {
            Some(of_probe) => format!("probe {of_probe}"),
            None => (output.operation + 1 + line).to_string(),
        };
        let cell = |lines: &&[String]| {
            lines
                .get(row)
                .map_or_else(|| "(nothing)".to_owned(), |line| short(line))
        };
        table.push([label].into_iter().chain(columns.iter().map(cell)).collect());
    }
    let width = |column: usize| table.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..table[0].len()).map(width).collect();
    let mut note = format!(
        "a crash {interrupted}; then `{}` printed, where it differs:",
        crash.recovery.command
    );
    for row in &table {
        note += "\n ";
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            line += &format!(" {cell:width$} ");
        }
        note += line.trim_end();
    }
    note
}

fn short(line: &str) -> String {
    match line.char_indices().nth(MAX_CELL) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line.to_owned(),
    }
}

/// Where stores without a source position went.
pub(crate) fn placeless(crash: &Crash, display: impl Fn(&str) -> String) -> Vec<String> {
    let missing = crash.missing.iter().map(|store| match store.executed {
        true => ("not persisted", store),
        false => ("still to be stored", store),
    });
    let persisted = crash.persisted.iter().map(|store| ("had persisted", store));
    missing
        .chain(persisted)
        .filter(|(_, store)| !store.frame.has_position())
        .map(|(what, store)| {
            let place = match store.stack.is_empty() {
                true => String::new(),
                false => format!(", stored by {}", describe(&store.frame, &display)),
            };
            format!("{what}: {}{place}", bytes(store))
        })
        .collect()
}

fn bytes(store: &CrashStore) -> String {
    let pm = &store.pm;
    let file = pm.file.rsplit('/').next().unwrap_or(&pm.file);
    match pm.length {
        _ if let Some(operation) = &store.operation => operation.in_words(file),
        0 => format!("size or name of {file}"),
        1 => format!("1 byte at offset {:#x} of {file}", pm.offset),
        length => format!("{length} bytes at offset {:#x} of {file}", pm.offset),
    }
}

/// The call paths that are worth telling apart: that of the first missing store, and that of the first persisted one if it
/// is another.
pub(crate) fn call_paths(crash: &Crash) -> Vec<(&'static str, &[Frame])> {
    let missing = crash.missing.first().map(|store| trimmed(&store.stack));
    let persisted = crash.persisted.first().map(|store| trimmed(&store.stack));
    match (missing, persisted) {
        (Some(missing), Some(persisted)) if callers(missing) != callers(persisted) => {
            vec![("the missing store", missing), ("the persisted store", persisted)]
        }
        (Some(stack), _) | (None, Some(stack)) => vec![("", stack)],
        (None, None) => vec![("", trimmed(&crash.after_stack))],
    }
}

/// The function that made the store, and from where it was called: what differs in nothing else is one call path.
fn callers(stack: &[Frame]) -> Vec<String> {
    let at = blamed_position(stack).and_then(|at| stack.iter().position(|frame| std::ptr::eq(frame, at)));
    let at = at.unwrap_or(0);
    let function = stack.get(at).and_then(|frame| frame.function.clone());
    let outer = stack.iter().skip(at + 1).map(|frame| describe(frame, str::to_owned));
    function.into_iter().chain(outer).collect()
}
