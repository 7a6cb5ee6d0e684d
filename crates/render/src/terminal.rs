//! Diagnostics for people, in the manner of rustc: what is wrong, where, why it matters, what to do.

use std::collections::HashSet;
use std::fmt::Write;
use std::path::PathBuf;

use annotate_snippets::renderer::DecorStyle;
use annotate_snippets::{AnnotationKind, Element, Group as Block, Level, Origin, Renderer, Snippet};
use crashproof_finding::group::{self, Group, Which, groups};
use crashproof_finding::stack::{blamed_position, describe, trimmed};
use crashproof_finding::words::{number, plural};
use crashproof_finding::{
    Behaviours, Crash, CrashStore, Finding, Frame, Inconclusive, Kind, Report, Severity, Stats, StrategyEnd,
    StrategyRun, files,
};

use crate::crash;
use crate::source::Sources;

/// Call paths shown for one place; the rest are counted.
const MAX_PATHS: usize = 3;
/// Frames shown for one call path.
const MAX_FRAMES: usize = 12;

#[derive(Clone, Debug)]
pub struct TerminalOptions {
    pub color: bool,
    /// Columns of the terminal; texts are wrapped to it.
    pub width: usize,
    /// Relative source paths count from here, and files below it are shown relative to it.
    pub root: PathBuf,
}

/// The whole report: one diagnostic per place, worst first, then a summary.
pub fn render_terminal(report: &Report, options: &TerminalOptions) -> String {
    let renderer = if options.color {
        Renderer::styled()
    } else {
        Renderer::plain()
    }
    .term_width(options.width)
    .decor_style(DecorStyle::Ascii);
    let mut terminal = Terminal {
        renderer,
        options,
        sources: Sources::new(&options.root),
        explained: HashSet::new(),
    };
    let mut text = String::new();
    let groups = groups(report, Which::New);
    for group in &groups {
        text += &terminal.diagnostic(group);
        text += "\n\n";
    }
    for warning in &report.warnings {
        text += &terminal.warning(warning);
        text += "\n\n";
    }
    if !report.trace.complete {
        text += &terminal.incomplete(report);
        text += "\n\n";
    }
    for doubt in &report.inconclusive {
        text += &terminal.inconclusive(doubt);
        text += "\n\n";
    }
    if !groups.is_empty() && !report.findings.iter().any(|finding| finding.file.is_some()) {
        text += &terminal.no_debug_info();
        text += "\n\n";
    }
    text += &terminal.summary(report, &groups);
    text
}

struct Terminal<'a> {
    renderer: Renderer,
    options: &'a TerminalOptions,
    sources: Sources,
    /// The kinds that were explained already; once is enough.
    explained: HashSet<Kind>,
}

/// A stack as it is shown.
struct CallPath {
    lines: Vec<String>,
    count: u64,
}

/// What is told of a finding, beside its title.
struct Told<'a> {
    marks: Vec<Mark<'a>>,
    notes: Vec<String>,
    help: Vec<String>,
}

/// A mark in a source file.
struct Mark<'a> {
    file: &'a str,
    line: u32,
    column: Option<u32>,
    kind: AnnotationKind,
    label: String,
}

impl Terminal<'_> {
    fn diagnostic(&mut self, group: &Group<'_>) -> String {
        let finding = group.first();
        let info = finding.kind.info();
        let Told { marks, mut notes, help } = match &finding.crash {
            Some(crash) => self.crash(finding, crash),
            None => self.places(finding),
        };
        if finding.approximate {
            notes.push(
                "the optimiser merged several source lines into this instruction; this is the nearest known one".into(),
            );
        }
        notes.extend(finding.notes.iter().cloned());
        let paths = match &finding.crash {
            Some(_) => Vec::new(),
            None => self.call_paths(group),
        };
        notes.extend(occurrences(&paths));
        let kind_is_known = finding.crash.as_ref().is_none_or(|crash| !crash.unreduced);
        if kind_is_known && self.explained.insert(finding.kind) {
            notes.push(info.why.to_owned());
        }
        notes.extend(path_notes(&paths));
        notes.extend(finding.crash.iter().flat_map(|crash| self.crash_paths(crash)));

        let message = match &finding.crash {
            Some(_) => self.wrap(&finding.message, &format!("error[{}]: ", info.name)),
            None => plain(&finding.message),
        };
        let title = level(finding.severity).primary_title(message).id(info.name);
        let mut block = self.excerpts(Block::with_title(title), &marks);
        if marks.is_empty() {
            block = block.element(unknown_origin(finding));
        }
        for note in notes {
            block = block.element(Level::NOTE.message(self.wrap(&note, "note: ")));
        }
        for help in help {
            block = block.element(Level::HELP.message(self.wrap(&help, "help: ")));
        }
        self.renderer.render(&[block])
    }

    /// The place of the finding, the event by which it had to be durable, and others that explain it.
    fn places<'a>(&self, finding: &'a Finding) -> Told<'a> {
        let info = finding.kind.info();
        let mut marks = Vec::new();
        let mut notes = Vec::new();
        if let (Some(file), Some(line)) = (&finding.file, finding.line) {
            let label = info.label.to_owned();
            marks.push(Mark {
                file,
                line,
                column: finding.column,
                kind: AnnotationKind::Primary,
                label,
            });
        }
        if let Some(durable_by) = &finding.durable_by {
            match blamed_position(&durable_by.stack).and_then(position) {
                Some((file, line, column)) if !marks.iter().any(|mark| mark.file == file && mark.line == line) => {
                    let label = durable_by.kind.label().to_owned();
                    marks.push(Mark {
                        file,
                        line,
                        column,
                        kind: AnnotationKind::Context,
                        label,
                    });
                }
                _ => notes.push(durable_by.kind.note().to_owned()),
            }
        }
        for related in &finding.related {
            match blamed_position(&related.stack).and_then(position) {
                Some((file, line, column)) => {
                    let label = related.message.clone();
                    marks.push(Mark {
                        file,
                        line,
                        column,
                        kind: AnnotationKind::Context,
                        label,
                    });
                }
                None => notes.push(match related.stack.first() {
                    Some(frame) => format!("{}: {}", related.message, self.describe(frame)),
                    None => related.message.clone(),
                }),
            }
        }
        let help = vec![finding.help.as_deref().unwrap_or(info.help).to_owned()];
        Told { marks, notes, help }
    }

    /// What had persisted and what had not, what recovery made of it, what would prevent it, how to see it again.
    fn crash<'a>(&mut self, finding: &'a Finding, crash: &'a Crash) -> Told<'a> {
        let marks = crash::marks(finding, crash);
        let marks = marks.into_iter().map(|mark| Mark {
            file: mark.file,
            line: mark.line,
            column: mark.column,
            kind: if mark.primary {
                AnnotationKind::Primary
            } else {
                AnnotationKind::Context
            },
            label: mark.label,
        });
        let mut notes = crash::placeless(crash, |file| self.sources.display(file).to_owned());
        match crash.output.as_ref().filter(|_| crash.recovery.unexpected_output) {
            Some(output) => notes.push(crash::outputs_note(crash, output)),
            None => notes.push(crash::recovery_note(crash)),
        }
        let states = match crash.states {
            states if crash.unreduced => format!("failing states that were left: {}", number(states)),
            1 => "1 tested state fails for this reason".to_owned(),
            states => format!("{} tested states fail for this reason", number(states)),
        };
        notes.push(match (crash.operations, crash.paths) {
            (0, _) => states,
            (operations, paths) => format!(
                "{states}, in {} on {}",
                plural(operations, "operation"),
                plural(paths, "execution path")
            ),
        });
        let prevents = self.order(finding, crash);
        let usual = || finding.help.as_deref().unwrap_or(finding.kind.info().help).to_owned();
        let mut help = Vec::new();
        if !crash.unreduced {
            help.push(prevents.unwrap_or_else(usual));
        }
        help.extend(
            crash
                .replay
                .as_ref()
                .map(|replay| format!("to run recovery on this state again:\n  {}", replay.command)),
        );
        Told {
            marks: marks.collect(),
            notes,
            help,
        }
    }

    /// "`event->id = id` (log.c:11) must persist before `log->count = n` (log.c:14): flush and fence it before that store".
    /// `None` if the finding's own words say more.
    fn order(&mut self, finding: &Finding, crash: &Crash) -> Option<String> {
        let order = finding.order.first().filter(|order| {
            let (before, after) = (position(&order.before), position(&order.after));
            finding.order.len() == 1 && before.is_some() && after.is_some() && before != after
        })?;
        let (first, then) = (&order.before, &order.after);
        let operation = |stores: &[CrashStore], frame: &Frame| {
            let store = stores.iter().find(|store| store.frame == *frame)?;
            let file = store.pm.file.rsplit('/').next().unwrap_or(&store.pm.file);
            Some(store.operation.as_ref()?.in_words(file))
        };
        let (of_first, of_then) = (operation(&crash.missing, first), operation(&crash.persisted, then));
        let that = if of_then.is_some() { "that" } else { "that store" };
        let how = match (crash.missing.iter().all(|store| store.executed), &of_first) {
            (true, _) => format!("flush and fence it before {that}"),
            (false, None) => "make that store first, flush and fence it".to_owned(),
            (false, Some(_)) => "do that first".to_owned(),
        };
        let must = if of_first.is_some() { "be durable" } else { "persist" };
        let comma = if of_first.is_some() { "," } else { "" };
        let (before, after) = (self.change(first, of_first), self.change(then, of_then));
        Some(format!("{before}{comma} must {must} before {after}: {how}"))
    }

    /// "`log->count = n` (log.c:14)", "the new size of pool (8192 bytes), by `ftruncate(fd, 8192)` (log.c:9)"; where the sentence goes
    /// on after the latter, there is a comma.
    fn change(&mut self, frame: &Frame, operation: Option<String>) -> String {
        let statement = self.statement(frame);
        operation.map_or(statement.clone(), |operation| format!("{operation}, by {statement}"))
    }

    /// The source text of a frame and its position, as far as they are known.
    fn statement(&mut self, frame: &Frame) -> String {
        let Some((file, line, column)) = position(frame) else {
            return self.describe(frame);
        };
        let place = format!("{}:{line}", self.sources.display(file));
        let text = self.sources.get(file).and_then(|source| {
            let range = source.statement(line, column)?;
            Some(source.text(range).to_owned())
        });
        match text {
            Some(text) => format!("`{text}` ({place})"),
            None => place,
        }
    }

    fn crash_paths(&self, crash: &Crash) -> Vec<String> {
        let path = |(whose, frames): (&str, &[Frame])| {
            let mut note = match whose {
                "" => "call path:".to_owned(),
                whose => format!("call path of {whose}:"),
            };
            for line in self.path_lines(frames) {
                let _ = write!(note, "\n  {line}");
            }
            note
        };
        let paths = crash::call_paths(crash).into_iter();
        paths.filter(|(_, frames)| !frames.is_empty()).map(path).collect()
    }

    /// One source excerpt per file, in the order of the marks; a position alone where the source cannot be read.
    fn excerpts<'a>(&mut self, mut block: Block<'a>, marks: &[Mark<'a>]) -> Block<'a> {
        let mut done: Vec<&str> = Vec::new();
        for mark in marks {
            if done.contains(&mark.file) {
                continue;
            }
            done.push(mark.file);
            let of_file = || marks.iter().filter(|other| other.file == mark.file);
            let shown = plain(self.sources.display(mark.file));
            let mut spans = Vec::new();
            let mut unread = Vec::new();
            let source = self.sources.get(mark.file);
            for mark in of_file() {
                match source.and_then(|source| source.statement(mark.line, mark.column)) {
                    Some(span) => spans.push((span, mark)),
                    None => unread.push(mark),
                }
            }
            let lines = spans.iter().map(|(_, mark)| mark.line);
            if let (Some(source), Some(first), Some(last)) = (source, lines.clone().min(), lines.max()) {
                let excerpt = source.excerpt(first, last);
                let annotations = spans.into_iter().map(|(span, mark)| {
                    let span = span.start - excerpt.offset..span.end - excerpt.offset;
                    mark.kind.span(span).label(plain(&mark.label))
                });
                let snippet = Snippet::source(excerpt.text.to_owned())
                    .line_start(excerpt.first_line as usize)
                    .path(shown.clone())
                    .annotations(annotations);
                block = block.element(snippet);
            }
            for mark in unread {
                let mut origin = Origin::path(shown.clone()).line(mark.line as usize);
                if let Some(column) = mark.column.filter(|&column| column > 0) {
                    origin = origin.char_column(column as usize);
                }
                block = block.element(origin);
                block = block.element(Level::NOTE.message(self.wrap(&mark.label, "note: ")));
            }
        }
        block
    }

    /// The stacks of a group as they are shown, each with how often it came up. Stacks that differ only in what is not
    /// shown, such as the instruction within a library function, are one.
    fn call_paths(&self, group: &Group<'_>) -> Vec<CallPath> {
        let mut paths: Vec<CallPath> = Vec::new();
        for finding in &group.findings {
            let lines = self.path_lines(trimmed(&finding.stack));
            match paths.iter_mut().find(|path| path.lines == lines) {
                Some(path) => path.count = path.count.saturating_add(finding.count),
                None => paths.push(CallPath {
                    lines,
                    count: finding.count,
                }),
            }
        }
        paths
    }

    fn path_lines(&self, frames: &[Frame]) -> Vec<String> {
        let mut lines: Vec<String> = frames
            .iter()
            .take(MAX_FRAMES)
            .map(|frame| self.describe(frame))
            .collect();
        if frames.len() > MAX_FRAMES {
            lines.push(format!("… and {} more frames", frames.len() - MAX_FRAMES));
        }
        lines
    }

    fn describe(&self, frame: &Frame) -> String {
        describe(frame, |file| self.sources.display(file).to_owned())
    }

    fn warning(&self, text: &str) -> String {
        let title = Level::WARNING.primary_title(self.wrap(text, "warning: "));
        self.renderer.render(&[Block::with_title(title)])
    }

    fn incomplete(&self, report: &Report) -> String {
        let mut block = Block::with_title(Level::WARNING.primary_title("the trace is incomplete"));
        for reason in &report.trace.incomplete {
            block = block.element(Level::NOTE.message(self.wrap(reason, "note: ")));
        }
        let meaning = "what is reported was seen; what was not recorded can hold more, or can explain a finding away";
        block = block.element(Level::NOTE.message(self.wrap(meaning, "note: ")));
        self.renderer.render(&[block])
    }

    fn inconclusive(&self, doubt: &Inconclusive) -> String {
        let mut block = Block::with_title(Level::ERROR.primary_title(self.wrap(&doubt.message, "error: ")));
        for note in &doubt.notes {
            block = block.element(Level::NOTE.message(self.wrap(note, "note: ")));
        }
        block = block.element(Level::HELP.message(self.wrap(&doubt.help, "help: ")));
        self.renderer.render(&[block])
    }

    fn no_debug_info(&self) -> String {
        let help = "compile with -g (and keep optimisation as it is) to get source lines instead of addresses";
        self.renderer
            .render(&[Block::with_title(Level::HELP.primary_title(help))])
    }

    fn summary(&self, report: &Report, groups: &[Group<'_>]) -> String {
        let count = |severity| groups.iter().filter(|group| group.first().severity == severity).count() as u64;
        let parts: Vec<String> = [
            (Severity::Error, "error"),
            (Severity::Warning, "warning"),
            (Severity::Note, "note"),
        ]
        .into_iter()
        .filter_map(|(severity, name)| Some(count(severity)).filter(|&n| n > 0).map(|n| plural(n, name)))
        .collect();
        let none = match report.known.is_empty() {
            true => "no findings",
            false => "no new findings",
        };
        let (level, mut found) = match (groups.first(), report.is_conclusive()) {
            (Some(group), _) => (level(group.first().severity), parts.join(", ")),
            (None, true) => (Level::INFO, none.to_owned()),
            (None, false) => (
                Level::WARNING,
                format!("{none}, but not clean: {}", report.doubts_in_words()),
            ),
        };
        match group::groups(report, Which::Known).len() as u64 {
            0 => {}
            known => {
                let _ = write!(found, " ({} in the baseline, not shown)", number(known));
            }
        }
        let trace = &report.trace;
        let recorded = [
            plural(trace.stores, "store"),
            match trace.flushes {
                1 => "1 flush".to_owned(),
                flushes => format!("{} flushes", number(flushes)),
            },
            plural(trace.fences, "fence"),
        ]
        .join(", ");
        let complete = if trace.complete { "complete" } else { "incomplete" };
        let mut title = format!(
            "{found}; {}\n{recorded}; trace {complete}",
            report.program.end_in_words()
        );
        for line in files::lines(report, groups) {
            let _ = write!(title, "\n{line}");
        }
        if let Some(stats) = &report.stats {
            let _ = write!(title, "\n{}", tested(stats, &causes(groups)));
            if stats.strategies.len() > 1 {
                let runs: Vec<String> = stats.strategies.iter().map(ran).collect();
                let _ = write!(title, "\n{}", runs.join("; "));
            }
            if let Some(behaviours) = &stats.behaviours {
                let _ = write!(title, "\n{}", represented(behaviours));
            }
        }
        self.renderer.render(&[Block::with_title(
            level.with_name("crashproof").primary_title(plain(&title)),
        )]) + "\n"
    }

    /// Breaks a text into lines that fit beside the gutter; lines that are broken already stay as they are.
    fn wrap(&self, text: &str, prefix: &str) -> String {
        const GUTTER: usize = 8;
        let width = self.options.width.saturating_sub(GUTTER + prefix.len()).max(24);
        let mut lines = Vec::new();
        for line in plain(text).lines() {
            if line.starts_with(' ') {
                lines.push(line.to_owned());
                continue;
            }
            let mut current = String::new();
            for word in line.split_whitespace() {
                if !current.is_empty() && current.chars().count() + 1 + word.chars().count() > width {
                    lines.push(std::mem::take(&mut current));
                }
                if !current.is_empty() {
                    current.push(' ');
                }
                current += word;
            }
            lines.push(current);
        }
        lines.join("\n")
    }
}

/// Names come from files that nobody vouches for: control characters in them do not reach the terminal.
fn plain(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() && c != '\n' { '\u{fffd}' } else { c })
        .collect()
}

fn level(severity: Severity) -> Level<'static> {
    match severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
        Severity::Note => Level::NOTE,
    }
}

fn position(frame: &Frame) -> Option<(&str, u32, Option<u32>)> {
    Some((frame.file.as_deref()?, frame.line?, frame.column))
}

/// Where it happened as far as that can be said without debug info.
fn unknown_origin(finding: &Finding) -> Element<'static> {
    let place = match (&finding.file, finding.stack.first()) {
        (Some(file), _) => file.clone(),
        (None, Some(frame)) => describe(frame, str::to_owned),
        (None, None) => "unknown place".to_owned(),
    };
    Origin::path(plain(&place)).into()
}

/// "12 times", "from 3 call paths".
fn occurrences(paths: &[CallPath]) -> Option<String> {
    let count = paths.iter().map(|path| path.count).fold(0, u64::saturating_add);
    match paths.len() {
        0 | 1 if count <= 1 => None,
        0 | 1 => Some(times(count)),
        paths => Some(format!("{}, from {paths} call paths", times(count))),
    }
}

/// One note per call path; beyond a few they are only counted.
fn path_notes(paths: &[CallPath]) -> Vec<String> {
    let mut notes = Vec::new();
    for (index, path) in paths
        .iter()
        .take(MAX_PATHS)
        .enumerate()
        .filter(|(_, path)| !path.lines.is_empty())
    {
        let mut note = match paths.len() {
            1 => "call path:".to_owned(),
            _ => format!("call path {} ({}):", index + 1, times(path.count)),
        };
        for line in &path.lines {
            let _ = write!(note, "\n  {line}");
        }
        notes.push(note);
    }
    if paths.len() > MAX_PATHS {
        notes.push(format!("and {} more call paths", paths.len() - MAX_PATHS));
    }
    notes
}

fn times(count: u64) -> String {
    if count == 1 {
        "once".to_owned()
    } else {
        format!("{} times", number(count))
    }
}

/// Why crash states failed.
struct Causes {
    count: u64,
    /// How many states they explain.
    states: u64,
}

fn causes(groups: &[Group<'_>]) -> Causes {
    let crashes = || groups.iter().filter_map(|group| group.first().crash.as_ref());
    Causes {
        count: crashes().count() as u64,
        states: crashes().map(|crash| crash.states).sum(),
    }
}

/// "12,345 states tested in 3.2 s (3,858 a second) by 12,401 recoveries, 1,000 pruned, 2 causes"
fn tested(stats: &Stats, causes: &Causes) -> String {
    let mut text = format!(
        "{} tested in {:.1} s",
        plural(stats.states_tested, "state"),
        stats.seconds
    );
    let rate = stats.states_tested as f64 / stats.seconds;
    if rate.is_finite() && rate >= 1.0 {
        let _ = write!(text, " ({} a second)", number(rate.round() as u64));
    }
    // More, because a failure is confirmed; fewer, because of what was tested before.
    if stats.recoveries > 0 && stats.recoveries != stats.states_tested {
        let recoveries = match stats.recoveries {
            1 => "1 recovery".to_owned(),
            many => format!("{} recoveries", number(many)),
        };
        let _ = write!(text, " by {recoveries}");
    }
    if stats.states_pruned > 0 {
        let _ = write!(text, ", {} pruned", number(stats.states_pruned));
    }
    let count = plural(causes.count, "cause");
    let _ = match stats.states_failed {
        0 => write!(text, ", none failed"),
        // The test ended before the others were explained.
        failed if causes.states < failed => write!(
            text,
            ", {} failed, {} of them with {count}",
            number(failed),
            number(causes.states)
        ),
        failed => write!(text, ", {} failed with {count}", number(failed)),
    };
    if stats.cut_short {
        text += "; stopped before all were tested";
        if stats.points_reached < stats.points_total {
            let (reached, total) = (number(stats.points_reached), plural(stats.points_total, "crash point"));
            let _ = write!(text, ", at {reached} of {total}");
        }
        let total = match (stats.strategy.as_str(), stats.behaviours) {
            // They do not test all that is allowed, and plan as they go.
            ("conditions" | "auto", _) => u64::MAX,
            (_, Some(behaviours)) => behaviours.states_planned,
            (_, None) => stats.states_total,
        };
        let left = total.saturating_sub(stats.states_tested.saturating_add(stats.states_pruned));
        // The total saturates: then nobody wants to read it.
        if left > 0 && total < u64::MAX {
            let _ = write!(text, ", {} left", number(left));
        }
    }
    text
}

/// "prefix: 12 states, done"
fn ran(run: &StrategyRun) -> String {
    let ended = match run.ended {
        StrategyEnd::NotBegun => return format!("{}: not begun", run.name),
        StrategyEnd::Done => "done",
        StrategyEnd::Budget => "ended by the budget",
        StrategyEnd::Stopped => "stopped",
    };
    format!("{}: {}, {ended}", run.name, plural(run.states_tested, "state"))
}

/// "12 of 3,456 update behaviours (1,000 of two objects) stand for all; ..."
fn represented(behaviours: &Behaviours) -> String {
    let mut text = format!(
        "{} of {}",
        number(behaviours.single_groups + behaviours.joint_groups),
        plural(behaviours.single + behaviours.joint, "update behaviour"),
    );
    if behaviours.joint > 0 {
        let _ = write!(text, " ({} of two objects)", number(behaviours.joint));
    }
    text += " stand for all";
    if behaviours.too_large > 0 {
        let _ = write!(
            text,
            ", {} are too large to be tested as one",
            number(behaviours.too_large)
        );
    }
    if behaviours.points_in_part > 0 {
        let points = plural(behaviours.points_in_part, "crash point");
        let _ = write!(text, ", at {points} in part");
    }
    text + "; not covered: bugs between objects that are neither unordered nor linked (--strategy dpor)"
}
