//! Findings of one kind at one place are one thing to repair, however many call paths lead there: they are shown together.
//! Not so crashes: their findings are grouped by cause already, and each has a story of its own.

use crashproof_finding::{Finding, Report};

/// Which findings: those that a baseline has, or the others.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Which {
    New,
    Known,
}

/// Findings with the same kind and place; never empty.
pub(crate) struct Group<'a> {
    pub findings: Vec<&'a Finding>,
}

impl<'a> Group<'a> {
    pub fn first(&self) -> &'a Finding {
        self.findings[0]
    }
}

/// The groups: errors, then warnings, then notes; within these in the order of the report.
pub(crate) fn groups(report: &Report, which: Which) -> Vec<Group<'_>> {
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
