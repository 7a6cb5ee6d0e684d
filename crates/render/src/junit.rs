//! JUnit XML, which CI services show beside other tests.
//!
//! There is no standard; this is what Jenkins, GitLab and GitHub's readers of it have in common, and
//! `tests/data/junit.xsd` is its schema. A command is a suite and a place with a finding is a test: failed, or passed if its severity is not one
//! to fail on, or skipped if the baseline has it. A suite without findings has one test, which passed. The output of a suite names
//! the files that it is about.

use std::fmt::Write;
use std::path::Path;

use crashproof_finding::group::{Group, Which, all_groups, groups};
use crashproof_finding::{Report, Severity, files};

use crate::gnu;
use crate::source::Sources;

/// What one command came to.
#[derive(Clone, Debug)]
pub struct Suite {
    pub name: String,
    /// Or why there is none.
    pub report: Result<Report, String>,
}

enum State {
    Passed {
        output: String,
    },
    Failed {
        kind: &'static str,
        message: String,
        text: String,
    },
    Error {
        kind: &'static str,
        message: String,
        text: String,
    },
    Skipped {
        message: String,
    },
}

struct Case {
    class: &'static str,
    name: String,
    file: Option<String>,
    line: Option<u32>,
    state: State,
}

/// Findings of `fail_on` and worse are failures. Source files below `root` are named relative to it.
pub fn to_junit(suites: &[Suite], fail_on: Severity, root: &Path) -> String {
    let sources = Sources::new(root);
    let mut all = Counts::default();
    let mut body = String::new();
    for suite in suites {
        let (cases, seconds) = match &suite.report {
            Ok(report) => (
                cases(report, fail_on, &sources),
                report.stats.as_ref().map_or(0.0, |stats| stats.seconds),
            ),
            Err(reason) => {
                let state = State::Error {
                    kind: "could-not-be-done",
                    message: reason.lines().next().unwrap_or_default().to_owned(),
                    text: reason.clone(),
                };
                (vec![plain_case("could be done", state)], 0.0)
            }
        };
        let counts = Counts::of(&cases, seconds);
        all.add(&counts);
        let _ = writeln!(body, "  <testsuite name=\"{}\"{counts}>", escaped(&suite.name));
        for case in &cases {
            case.write(&mut body);
        }
        let files = suite
            .report
            .as_ref()
            .map_or_else(|_| Vec::new(), |report| files::all_lines(report, &all_groups(report)));
        if !files.is_empty() {
            let _ = writeln!(body, "    <system-out>{}</system-out>", escaped(&files.join("\n")));
        }
        body += "  </testsuite>\n";
    }
    format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"crashproof\"{all}>\n{body}</testsuites>\n")
}

fn cases(report: &Report, fail_on: Severity, sources: &Sources) -> Vec<Case> {
    let mut cases = Vec::new();
    for group in groups(report, Which::New) {
        let finding = group.first();
        let state = match finding.severity <= fail_on {
            true => State::Failed {
                kind: finding.kind.name(),
                message: finding.message.clone(),
                text: text(&group, sources),
            },
            false => State::Passed {
                output: text(&group, sources),
            },
        };
        cases.push(case(&group, state, sources));
    }
    for group in groups(report, Which::Known) {
        let state = State::Skipped {
            message: format!("in the baseline: {}", group.first().message),
        };
        cases.push(case(&group, state, sources));
    }
    if !report.trace.complete {
        let state = State::Error {
            kind: "incomplete-trace",
            message: "the trace is incomplete, so what is missing may hold more".to_owned(),
            text: report.trace.incomplete.join("\n"),
        };
        cases.push(plain_case("the trace is complete", state));
    }
    for doubt in &report.inconclusive {
        let state = State::Error {
            kind: doubt.reason.name(),
            message: doubt.message.clone(),
            text: doubt.text(),
        };
        cases.push(plain_case(doubt.reason.expectation(), state));
    }
    if cases.is_empty() {
        let state = State::Passed { output: String::new() };
        cases.push(plain_case("no findings", state));
    }
    cases
}

fn plain_case(name: &str, state: State) -> Case {
    Case {
        class: "crashproof",
        name: name.to_owned(),
        file: None,
        line: None,
        state,
    }
}

fn case(group: &Group<'_>, state: State, sources: &Sources) -> Case {
    let finding = group.first();
    let file = finding.file.as_deref().map(|file| sources.display(file).to_owned());
    let line = finding.line.filter(|&line| line > 0);
    let function = finding.function.as_deref().unwrap_or("unknown function");
    let place = match (&file, line) {
        (Some(file), Some(line)) => format!(" at {file}:{line}"),
        (Some(file), None) => format!(" at {file}"),
        (None, _) => match finding.stack.first() {
            Some(frame) => format!(" in {}+0x{:x}", frame.module_name().unwrap_or("?"), frame.address),
            None => String::new(),
        },
    };
    Case {
        class: finding.kind.name(),
        name: format!("{function}{place}"),
        file,
        line,
        state,
    }
}

/// All that a reader of the CI's page needs to know.
fn text(group: &Group<'_>, sources: &Sources) -> String {
    let finding = group.first();
    let info = finding.kind.info();
    let mut text = gnu::lines(group, sources);
    let path = gnu::call_path(&finding.stack, sources);
    if !path.is_empty() {
        let _ = write!(text, "call path:\n{path}");
    }
    for note in &finding.notes {
        let _ = writeln!(text, "note: {note}");
    }
    let help = finding.help.as_deref().unwrap_or(info.help);
    let _ = writeln!(text, "why: {}\nto do: {help}", info.why);
    if let Some(replay) = finding.crash.as_ref().and_then(|crash| crash.replay.as_ref()) {
        let _ = writeln!(text, "to see it again: {}", replay.command);
    }
    text
}

impl Case {
    fn write(&self, xml: &mut String) {
        let _ = write!(
            xml,
            "    <testcase classname=\"{}\" name=\"{}\"",
            escaped(self.class),
            escaped(&self.name)
        );
        if let Some(file) = &self.file {
            let _ = write!(xml, " file=\"{}\"", escaped(file));
        }
        if let Some(line) = self.line {
            let _ = write!(xml, " line=\"{line}\"");
        }
        xml.push_str(" time=\"0\"");
        let told = |xml: &mut String, element: &str, kind: &str, message: &str, text: &str| {
            let _ = writeln!(
                xml,
                ">\n      <{element} type=\"{kind}\" message=\"{}\">{}</{element}>\n    </testcase>",
                escaped(message),
                escaped(text)
            );
        };
        match &self.state {
            State::Passed { output } if output.is_empty() => xml.push_str("/>\n"),
            State::Passed { output } => {
                let _ = writeln!(
                    xml,
                    ">\n      <system-out>{}</system-out>\n    </testcase>",
                    escaped(output)
                );
            }
            State::Failed { kind, message, text } => told(xml, "failure", kind, message, text),
            State::Error { kind, message, text } => told(xml, "error", kind, message, text),
            State::Skipped { message } => {
                let _ = writeln!(
                    xml,
                    ">\n      <skipped message=\"{}\"/>\n    </testcase>",
                    escaped(message)
                );
            }
        }
    }
}

#[derive(Default)]
struct Counts {
    tests: usize,
    failures: usize,
    errors: usize,
    skipped: usize,
    seconds: f64,
}

impl Counts {
    fn of(cases: &[Case], seconds: f64) -> Counts {
        let count = |is: fn(&State) -> bool| cases.iter().filter(|case| is(&case.state)).count();
        Counts {
            tests: cases.len(),
            failures: count(|state| matches!(state, State::Failed { .. })),
            errors: count(|state| matches!(state, State::Error { .. })),
            skipped: count(|state| matches!(state, State::Skipped { .. })),
            seconds,
        }
    }

    fn add(&mut self, other: &Counts) {
        self.tests += other.tests;
        self.failures += other.failures;
        self.errors += other.errors;
        self.skipped += other.skipped;
        self.seconds += other.seconds;
    }
}

/// As attributes.
impl std::fmt::Display for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            " tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\" time=\"{:.3}\"",
            self.tests, self.failures, self.errors, self.skipped, self.seconds
        )
    }
}

/// For text and for attributes. What XML may not hold at all becomes a replacement character.
fn escaped(text: &str) -> String {
    let mut xml = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => xml += "&amp;",
            '<' => xml += "&lt;",
            '>' => xml += "&gt;",
            '"' => xml += "&quot;",
            '\n' | '\t' => xml.push(c),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => xml.push('\u{fffd}'),
            c => xml.push(c),
        }
    }
    xml
}
