//! One line for each place, `file:line:column: kind: message`, as editors read it from compilers.

use std::fmt::Write;
use std::path::Path;

use crashproof_finding::group::{Group, Which, groups};
use crashproof_finding::stack::{blamed_position, describe, trimmed};
use crashproof_finding::{Finding, Frame, Inconclusive, Report, files};

use crate::crash;
use crate::source::Sources;

/// The findings that are not in the baseline, worst first, each followed by the other places that explain it; then why the report is
/// inconclusive, and the files that it is about. Lines of the latter two have no place, so that editors pass over them.
pub fn render_gnu(report: &Report, root: &Path) -> String {
    let sources = Sources::new(root);
    let groups = groups(report, Which::New);
    let findings = groups.iter().map(|group| lines(group, &sources));
    let doubts = report.inconclusive.iter().map(doubt_lines);
    let files = files::lines(report, &groups).into_iter();
    let files = files.map(|line| format!("crashproof: note: {}\n", one_line(&line)));
    findings.chain(doubts).chain(files).collect()
}

fn doubt_lines(doubt: &Inconclusive) -> String {
    let mut text = format!("crashproof: {}: {}\n", doubt.reason.name(), one_line(&doubt.message));
    for note in doubt.notes.iter().chain([&doubt.help]) {
        let _ = writeln!(text, "crashproof: note: {}", one_line(note));
    }
    text
}

/// A finding with its other places, as lines.
pub(crate) fn lines(group: &Group<'_>, sources: &Sources) -> String {
    let finding = group.first();
    let place = |file: Option<&str>, line: Option<u32>, column: Option<u32>| {
        let mut text = file.map_or_else(|| "crashproof".to_owned(), |file| sources.display(file).to_owned());
        if let (Some(_), Some(line)) = (file, line.filter(|&line| line > 0)) {
            let _ = write!(text, ":{line}");
            if let Some(column) = column.filter(|&column| column > 0) {
                let _ = write!(text, ":{column}");
            }
        }
        text
    };
    let mut text = String::new();
    let at = place(finding.file.as_deref(), finding.line, finding.column);
    let _ = write!(text, "{at}: {}: {}", finding.kind, one_line(&finding.message));
    if finding.file.is_none()
        && let Some(frame) = finding.stack.first()
    {
        let _ = write!(text, " ({})", describe(frame, str::to_owned));
    }
    text.push('\n');
    for (frame, label) in other_places(finding) {
        let at = place(frame.file.as_deref(), frame.line, frame.column);
        let _ = writeln!(text, "{at}: note: {}", one_line(&label));
    }
    text
}

/// Where else something is to be seen.
fn other_places(finding: &Finding) -> Vec<(Frame, String)> {
    let mut places = Vec::new();
    let mut add = |stack: &[Frame], label: &str| {
        if let Some(frame) = blamed_position(stack) {
            places.push((frame.clone(), label.to_owned()));
        }
    };
    for related in &finding.related {
        add(&related.stack, &related.message);
    }
    if let Some(durable_by) = &finding.durable_by {
        add(&durable_by.stack, durable_by.kind.label());
    }
    for mark in finding.crash.iter().flat_map(|crash| crash::marks(finding, crash)) {
        let frame = Frame {
            file: Some(mark.file.to_owned()),
            line: Some(mark.line),
            column: mark.column,
            ..Frame::default()
        };
        places.push((frame, mark.label));
    }
    places
}

/// The call path, one frame a line.
pub(crate) fn call_path(stack: &[Frame], sources: &Sources) -> String {
    let frames = trimmed(stack).iter();
    frames
        .map(|frame| format!("  {}\n", describe(frame, |file| sources.display(file).to_owned())))
        .collect()
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
