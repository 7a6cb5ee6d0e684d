//! From reports to the data of a page.

use std::collections::BTreeMap;

use crashproof_finding::files::LeftOutLine;
use crashproof_finding::group::all_groups;
use crashproof_finding::picture::{self, TimelineKind};
use crashproof_finding::stack::blamed_position;
use crashproof_finding::words::signal_name;
use crashproof_finding::{Address, Crash, CrashStore, DurableByKind, Finding, Frame, Kind, Program, Report};

use super::HtmlOptions;
use super::data::{self, Mark, Page, Role, Run};
use super::excerpts::Excerpts;
use super::tables::{Tables, name};
use crate::Suite;
use crate::crash::{Told, marks, placeless};

/// Of the recovery's output, at its end.
const MAX_OUTPUT: usize = 4096;
/// Digits of what is stored.
const MAX_DIGITS: usize = 128;
/// Functions that flush and fence, marked in the source of a crash.
const MAX_FLUSH_MARKS: usize = 8;
/// Events of all timelines and nodes of all graphs on one page: with these, a page of a thousand findings stays below 2 MB.
const MAX_EVENTS: usize = 2000;
const MAX_NODES: usize = 1200;

const NO_ROOM_FOR_TIMELINE: &str = "there is no room on this page for the timelines of so many findings";
const NO_ROOM_FOR_GRAPH: &str = "there is no room on this page for the graphs of so many findings";

pub(super) fn page(suites: &[Suite], options: &HtmlOptions) -> Page {
    let mut builder = Builder {
        tables: Tables::new(Excerpts::new(&options.root)),
        events: 0,
        nodes: 0,
    };
    let mut page = Page {
        version: data::VERSION,
        title: options.command.clone(),
        command: options.command.clone(),
        generated_by: concat!("crashproof ", env!("CARGO_PKG_VERSION")).to_owned(),
        kinds: kinds(suites),
        ..Page::default()
    };
    page.runs = suites
        .iter()
        .map(|suite| match &suite.report {
            Ok(report) => Run {
                compared: options.compared,
                ..builder.run(&suite.name, report)
            },
            Err(error) => Run {
                name: suite.name.clone(),
                error: Some(error.clone()),
                ..Run::default()
            },
        })
        .collect();
    builder.tables.finish(&mut page);
    page
}

fn kinds(suites: &[Suite]) -> BTreeMap<&'static str, data::Kind> {
    let reports = suites.iter().filter_map(|suite| suite.report.as_ref().ok());
    let kinds = reports.flat_map(|report| report.findings.iter().map(|finding| finding.kind));
    let words = |kind: Kind| {
        let info = kind.info();
        let words = data::Kind {
            severity: info.severity,
            summary: info.summary,
            why: info.why,
            help: info.help,
        };
        (info.name, words)
    };
    kinds.map(words).collect()
}

fn file_line(path: &str, words: String) -> data::FileLine {
    data::FileLine {
        path: path.to_owned(),
        words,
    }
}

struct Builder {
    tables: Tables,
    /// Used so far, of [`MAX_EVENTS`] and [`MAX_NODES`].
    events: usize,
    nodes: usize,
}

impl Builder {
    fn run(&mut self, name: &str, report: &Report) -> Run {
        let groups = all_groups(report);
        let findings = report.findings.iter().enumerate();
        let findings = findings.map(|(index, finding)| data::Finding {
            known: report.is_known(index),
            repaired: report
                .patch
                .as_ref()
                .is_some_and(|patch| patch.findings.contains(&index)),
            ..self.finding(finding)
        });
        Run {
            name: name.to_owned(),
            findings: findings.collect(),
            error: None,
            program: data::Program {
                command: report.program.command.clone(),
                ended: ended(&report.program),
            },
            trace: report.trace.clone(),
            inconclusive: report.inconclusive.clone(),
            warnings: report.warnings.clone(),
            files: report
                .files
                .iter()
                .map(|file| file_line(&file.path, file.in_words(&groups)))
                .collect(),
            left_out: LeftOutLine::of(report.left_out.iter())
                .iter()
                .map(|line| file_line(&line.subject(str::to_owned), line.in_words()))
                .collect(),
            stats: report.stats.clone(),
            compared: false,
            patch: report.patch.as_ref().map(|patch| data::Patch {
                diff: patch.diff.clone(),
                verified: patch.verified,
                findings: patch.findings.clone(),
            }),
            progress: report.progress.clone(),
            traffic: report.traffic.iter().map(|traffic| self.traffic(traffic)).collect(),
        }
    }

    fn finding(&mut self, finding: &Finding) -> data::Finding {
        let marks = self.marks(finding);
        let tables = &mut self.tables;
        let mut notes = Vec::new();
        if finding.approximate {
            notes.push(tables.text(
                "the optimiser merged several source lines into this instruction; this is the nearest known one",
            ));
        }
        let placeless = finding.crash.iter().flat_map(|crash| placeless(crash, str::to_owned));
        notes.extend(
            finding
                .notes
                .iter()
                .cloned()
                .chain(placeless)
                .map(|note| tables.text(&note)),
        );
        let frame = blamed_position(&finding.stack);
        let module = frame.and_then(|frame| frame.module.as_deref());
        data::Finding {
            kind: finding.kind.name(),
            severity: finding.severity,
            message: finding.message.clone(),
            count: finding.count,
            file: finding.file.as_deref().map(|file| tables.excerpts.file(file, module)),
            line: finding.line,
            function: finding.function.as_deref().map(name),
            stack: tables.stack(&finding.stack),
            pm: finding.address.as_ref().map(|at| range(tables, at)),
            durable_by: finding.durable_by.as_ref().map(|by| data::DurableBy {
                kind: by.kind,
                label: tables.text(by.kind.label()),
                stack: tables.stack(&by.stack),
            }),
            related: finding
                .related
                .iter()
                .map(|related| data::Related {
                    message: tables.text(&related.message),
                    stack: tables.stack(&related.stack),
                })
                .collect(),
            notes,
            help: finding.help.as_deref().map(|help| tables.text(help)),
            known: false,
            repaired: false,
            order: finding
                .order
                .iter()
                .map(|order| (tables.frame(&order.before), tables.frame(&order.after)))
                .collect(),
            crash: finding.crash.as_ref().map(|crash| self.crash(crash)),
            marks,
        }
    }

    fn marks(&mut self, finding: &Finding) -> Vec<Mark> {
        let mut marks = Marks {
            tables: &mut self.tables,
            marks: Vec::new(),
        };
        let Some(crash) = &finding.crash else {
            if let (Some(file), Some(line)) = (&finding.file, finding.line) {
                let module = finding.stack.first().and_then(|frame| frame.module.as_deref());
                let label = finding.kind.info().label;
                marks.add(file, line, finding.column, module, &[role(finding.kind)], label);
            }
            if let Some(by) = &finding.durable_by {
                let role = match by.kind {
                    DurableByKind::Fence => Role::Fence,
                    DurableByKind::TxEnd | DurableByKind::Unmap | DurableByKind::Exit => Role::End,
                };
                marks.add_stack(&by.stack, role, by.kind.label());
            }
            for related in &finding.related {
                marks.add_stack(&related.stack, Role::Related, &related.message);
            }
            return marks.finish();
        };
        for mark in self::marks(finding, crash) {
            let roles: Vec<Role> = mark.told.iter().map(|&told| Role::from(told)).collect();
            marks.add(mark.file, mark.line, mark.column, None, &roles, &mark.label);
        }
        let mut flushes = 0;
        for event in crash.timeline.iter().flat_map(|timeline| &timeline.events) {
            let (role, label) = match event.kind {
                TimelineKind::Flush | TimelineKind::FlushNow => (Role::Flush, "flushes one of these lines"),
                TimelineKind::Fence => (Role::Fence, "fences"),
                TimelineKind::Crash => break,
                _ => continue,
            };
            if flushes == MAX_FLUSH_MARKS {
                break;
            }
            flushes += usize::from(marks.add_stack(std::slice::from_ref(&event.frame), role, label));
        }
        marks.finish()
    }

    fn crash(&mut self, crash: &Crash) -> data::Crash {
        let mut left_out = Vec::new();
        let timeline = crash.timeline.as_ref().filter(|timeline| {
            let fits = self.events + timeline.events.len() <= MAX_EVENTS;
            match fits {
                true => self.events += timeline.events.len(),
                false => left_out.push(NO_ROOM_FOR_TIMELINE),
            }
            fits
        });
        let graph = crash.graph.as_ref().filter(|graph| {
            let fits = self.nodes + graph.nodes.len() <= MAX_NODES;
            match fits {
                true => self.nodes += graph.nodes.len(),
                false => left_out.push(NO_ROOM_FOR_GRAPH),
            }
            fits
        });
        let tables = &mut self.tables;
        let recovery = &crash.recovery;
        let mut stores = |stores: &[CrashStore]| stores.iter().map(|one| store(tables, one, timeline)).collect();
        data::Crash {
            persisted: stores(&crash.persisted),
            missing: stores(&crash.missing),
            after: tables.frame(&crash.after),
            after_stack: tables.stack(&crash.after_stack),
            recovery: data::Recovery {
                command: recovery.command.clone(),
                ended: recovery.in_words(&format!("`{}`", recovery.command)),
                stdout: end_of(&recovery.stdout),
                stderr: end_of(&recovery.stderr),
            },
            states: crash.states,
            replay: crash.replay.as_ref().map(|replay| replay.command.clone()),
            depth: crash.depth,
            unreduced: crash.unreduced,
            timeline: timeline.map(|timeline| self::timeline(tables, timeline)),
            graph: graph.map(|graph| self::graph(tables, graph)),
            left_out,
        }
    }

    fn traffic(&mut self, traffic: &picture::Traffic) -> data::Traffic {
        let file = traffic.file.as_deref();
        data::Traffic {
            function: traffic.function.as_deref().map(name),
            file: file.map(|file| self.tables.excerpts.file(file, None)),
            stores: traffic.stores,
            bytes: traffic.bytes,
            flushes: traffic.flushes,
            fences: traffic.fences,
            redundant_flushes: traffic.redundant_flushes,
            redundant_fences: traffic.redundant_fences,
            functions: traffic.functions,
            callers: traffic
                .callers
                .iter()
                .map(|caller| data::Caller {
                    frame: self.tables.frame(&caller.frame),
                    stores: caller.stores,
                    flushes: caller.flushes,
                    fences: caller.fences,
                    redundant_flushes: caller.redundant_flushes,
                    redundant_fences: caller.redundant_fences,
                })
                .collect(),
        }
    }
}

/// The marks of one finding, one for each line.
struct Marks<'a> {
    tables: &'a mut Tables,
    marks: Vec<(Mark, Vec<String>)>,
}

impl Marks<'_> {
    fn add(
        &mut self,
        file: &str,
        line: u32,
        column: Option<u32>,
        module: Option<&str>,
        roles: &[Role],
        label: &str,
    ) -> bool {
        let file = self.tables.excerpts.file(file, module);
        let same = |(mark, _): &&mut (Mark, Vec<String>)| (mark.file, mark.line) == (file, line);
        if let Some((mark, labels)) = self.marks.iter_mut().find(same) {
            let new: Vec<Role> = roles
                .iter()
                .copied()
                .filter(|role| !mark.roles.contains(role))
                .collect();
            mark.roles.extend(&new);
            if !labels.iter().any(|known| known == label) {
                labels.push(label.to_owned());
            }
            return !new.is_empty();
        }
        let mark = Mark {
            file,
            line,
            range: self.tables.excerpts.around_mark(file, line, column),
            roles: roles.to_vec(),
            label: 0,
        };
        self.marks.push((mark, vec![label.to_owned()]));
        true
    }

    /// At the place that stands for the stack, if there is one; whether that is new.
    fn add_stack(&mut self, stack: &[Frame], role: Role, label: &str) -> bool {
        let Some(frame) = blamed_position(stack) else {
            return false;
        };
        match (&frame.file, frame.line) {
            (Some(file), Some(line)) => self.add(file, line, frame.column, frame.module.as_deref(), &[role], label),
            _ => false,
        }
    }

    fn finish(self) -> Vec<Mark> {
        let tables = self.tables;
        let finish = |(mark, labels): (Mark, Vec<String>)| Mark {
            label: tables.text(&labels.join("; ")),
            ..mark
        };
        self.marks.into_iter().map(finish).collect()
    }
}

impl From<Told> for Role {
    fn from(told: Told) -> Role {
        match told {
            Told::Missing => Role::Missing,
            Told::StillToCome => Role::Later,
            Told::Persisted => Role::Persisted,
            Told::Last => Role::Crash,
        }
    }
}

/// What is at the place of a finding that is not of a crash.
fn role(kind: Kind) -> Role {
    match kind {
        Kind::RedundantFlush | Kind::FlushUnmodified => Role::Flush,
        Kind::RedundantFence => Role::Fence,
        Kind::TxSnapshotTwice | Kind::TxSnapshotOverlap => Role::Related,
        Kind::ExpectDurable => Role::End,
        _ => Role::Store,
    }
}

fn range(tables: &mut Tables, at: &Address) -> data::Range {
    data::Range {
        file: tables.pm_file(&at.file),
        offset: at.offset,
        length: at.length,
    }
}

fn store(tables: &mut Tables, store: &CrashStore, timeline: Option<&picture::Timeline>) -> data::CrashStore {
    let event = |timeline: &picture::Timeline| {
        let number = store.event?;
        let is_store = |event: &picture::TimelineEvent| event.event == number && event.stored.is_some();
        timeline.events.iter().position(is_store)
    };
    let name = store.pm.file.rsplit('/').next().unwrap_or(&store.pm.file);
    data::CrashStore {
        frame: tables.frame(&store.frame),
        stack: tables.stack(&store.stack),
        pm: range(tables, &store.pm),
        data: store.data.chars().take(MAX_DIGITS).collect(),
        executed: store.executed,
        operation: store.operation.as_ref().map(|operation| operation.in_words(name)),
        event: timeline.and_then(event),
    }
}

fn timeline(tables: &mut Tables, timeline: &picture::Timeline) -> data::Timeline {
    let lines = timeline.lines.iter().map(|line| data::TimelineLine {
        file: tables.pm_file(&line.file),
        offset: line.offset,
        state: line.state,
    });
    let lines = lines.collect();
    let event = |event: &picture::TimelineEvent| {
        let stored = event.stored.as_ref();
        let pieces = stored.map(|stored| stored.pieces.clone()).unwrap_or_default();
        let outcome = pieces.first().map(|&(_, _, outcome)| outcome);
        let whole = outcome.is_some() && pieces.iter().all(|&(_, _, other)| Some(other) == outcome);
        data::TimelineEvent {
            seq: event.event,
            kind: event.kind,
            thread: event.thread,
            frame: tables.frame(&event.frame),
            lines: event.lines.clone(),
            offset: stored.map(|stored| stored.offset),
            length: stored.map(|stored| stored.length),
            data: stored.map(|stored| stored.data.clone()).or(event.text.clone()),
            omitted: event.omitted,
            outcome: outcome.filter(|_| whole),
            pieces: if whole { Vec::new() } else { pieces },
            states: event.states.clone(),
        }
    };
    data::Timeline {
        lines,
        events: timeline.events.iter().map(event).collect(),
        omitted: timeline.omitted,
        more_lines: timeline.more_lines,
    }
}

fn graph(tables: &mut Tables, graph: &picture::Graph) -> data::Graph {
    let node = |node: &picture::GraphNode| data::GraphNode {
        of: node.of,
        field: node.field.clone(),
        frame: tables.frame(&node.frame),
        pm: data::Range {
            file: tables.pm_file(&node.pm_file),
            offset: node.offset,
            length: node.length,
        },
        seq: node.event,
        outcome: node.outcome,
    };
    data::Graph {
        types: graph.types.clone(),
        represents: graph.represents,
        nodes: graph.nodes.iter().map(node).collect(),
        edges: graph.edges.clone(),
    }
}

fn ended(program: &Program) -> String {
    match (program.signal, program.status) {
        (Some(signal), _) => format!("was ended by signal {signal}{}", signal_name(signal)),
        (None, Some(status)) => format!("exited with status {status}"),
        (None, None) => "ended in a way that the trace does not tell".to_owned(),
    }
}

/// The last part of a text, from the beginning of a line if it has lines.
fn end_of(text: &str) -> String {
    let text = text.trim_end();
    let Some(from) = text.len().checked_sub(MAX_OUTPUT) else {
        return text.to_owned();
    };
    let mut from = from;
    while !text.is_char_boundary(from) {
        from += 1;
    }
    let rest = &text[from..];
    format!("…\n{}", rest.split_once('\n').map_or(rest, |(_, lines)| lines))
}
