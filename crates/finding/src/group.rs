//! Findings of one kind at one place are one thing to repair, however many call paths lead there: they are shown together.
//! Not so crashes: their findings are grouped by cause already, and each has a story of its own.

use crate::{Finding, Report};

/// Which findings: those that a baseline has, or the others.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// Those that the baseline does not have.
    New,
    /// Those that it has.
    Known,
}

/// Findings with the same kind and place; never empty.
pub struct Group<'a> {
    /// In the order of the report.
    pub findings: Vec<&'a Finding>,
}

impl<'a> Group<'a> {
    /// The finding that stands for the group.
    pub fn first(&self) -> &'a Finding {
        self.findings[0]
    }

    /// Whether one of its addresses is in this PM file.
    pub fn is_in(&self, path: &str) -> bool {
        self.findings.iter().any(|finding| finding.is_in(path))
    }
}

/// What a report shows that has each finding for itself.
pub fn ungrouped(report: &Report) -> Vec<Group<'_>> {
    let findings = report.findings.iter();
    findings
        .map(|finding| Group {
            findings: vec![finding],
        })
        .collect()
}

/// The new ones, then those of the baseline.
pub fn all_groups(report: &Report) -> Vec<Group<'_>> {
    [Which::New, Which::Known]
        .map(|which| groups(report, which))
        .into_iter()
        .flatten()
        .collect()
}

/// The groups: errors, then warnings, then notes; within these in the order of the report.
pub fn groups(report: &Report, which: Which) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    let mut index = std::collections::HashMap::new();
    let chosen = |(number, _): &(usize, &Finding)| report.is_known(*number) == (which == Which::Known);
    for (number, finding) in report.findings.iter().enumerate().filter(chosen) {
        let place = match &finding.crash {
            Some(_) => Place::Crash(number),
            None => place(finding),
        };
        let at = *index.entry((finding.kind, finding.severity, place)).or_insert_with(|| {
            groups.push(Group { findings: Vec::new() });
            groups.len() - 1
        });
        groups[at].findings.push(finding);
    }
    groups.sort_by_key(|group| group.first().severity);
    groups
}

#[derive(PartialEq, Eq, Hash)]
enum Place<'a> {
    Source(&'a str, Option<u32>),
    Code(Option<&'a str>, u64),
    Crash(usize),
}

fn place(finding: &Finding) -> Place<'_> {
    match (&finding.file, finding.stack.first()) {
        (Some(file), _) => Place::Source(file, finding.line),
        (None, Some(frame)) => Place::Code(frame.module.as_deref(), frame.address),
        (None, None) => Place::Code(None, 0),
    }
}
