//! SARIF 2.1.0, for code-scanning services and editors. The tests validate it against the schema that OASIS publishes.
//!
//! A store and the event by which it had to be durable form a code flow, and so do the stores of a crash, what had persisted
//! and what had not, up to where power failed; the call stack is a SARIF stack. Fingerprints
//! hold the functions of the stack and the text of the line, not its number, so that a result is the same one after an
//! edit elsewhere in the file. The patch of a repair is a fix of each result that it repairs; it is one patch, verified as a whole.

use std::path::Path;

use crashproof_finding::group::ungrouped;
use crashproof_finding::stack::{blamed_position, trimmed};
use crashproof_finding::{Crash, CrashStore, Finding, Frame, Kind, Patch, Report, Severity, files};
use serde_json::{Map, Value, json};

use crate::crash;
use crate::source::Sources;

const SCHEMA: &str = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json";
/// The base that relative URIs count from, as code-scanning services expect it.
const SOURCE_ROOT: &str = "SRCROOT";

/// What one command came to.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// `check`, `crash/append`: services tell the runs of a log, and logs of different commands, apart by it.
    pub id: &'a str,
    pub report: &'a Report,
    /// The findings were compared with a baseline.
    pub compared: bool,
}

/// The reports as SARIF text with a line end. Source files below `root` get URIs relative to it.
pub fn to_sarif(runs: &[Run<'_>], root: &Path) -> Result<String, serde_json::Error> {
    let mut sarif = Sarif {
        root,
        sources: Sources::new(root),
    };
    let runs: Vec<Value> = runs.iter().map(|run| sarif.run(run)).collect();
    let log = json!({ "$schema": SCHEMA, "version": "2.1.0", "runs": runs });
    let mut text = serde_json::to_string_pretty(&log)?;
    text.push('\n');
    Ok(text)
}

struct Sarif<'a> {
    root: &'a Path,
    sources: Sources,
}

impl Sarif<'_> {
    fn run(&mut self, run: &Run<'_>) -> Value {
        let report = run.report;
        let fixes = report.patch.as_ref().and_then(|patch| Some((patch, self.fix(patch)?)));
        let mut results = Vec::new();
        for (index, finding) in report.findings.iter().enumerate() {
            let mut result = self.result(finding);
            if run.compared {
                let state = if report.is_known(index) { "unchanged" } else { "new" };
                result.insert("baselineState".into(), state.into());
            }
            if let Some((patch, fix)) = &fixes
                && patch.findings.contains(&index)
            {
                result.insert("fixes".into(), json!([fix]));
            }
            results.push(result);
        }
        json!({
            "tool": { "driver": {
                "name": "crashproof",
                "semanticVersion": env!("CARGO_PKG_VERSION"),
                "rules": Kind::ALL.map(rule),
            } },
            "automationDetails": { "id": format!("crashproof/{}/", run.id) },
            "originalUriBaseIds": { SOURCE_ROOT: { "uri": format!("{}/", file_uri(self.root)) } },
            "columnKind": "unicodeCodePoints",
            "invocations": [invocation(report)],
            "results": results,
            "properties": { "trace": report.trace },
        })
    }

    /// `None` if the patch changes nothing.
    fn fix(&self, patch: &Patch) -> Option<Value> {
        let changes: Vec<Value> = patch
            .files
            .iter()
            .filter(|file| !file.replacements.is_empty())
            .map(|file| {
                let replacements = file.replacements.iter().map(|replacement| {
                    // Whole lines: from the first column of one to the first column of another.
                    let end = replacement.line.saturating_add(replacement.deleted);
                    json!({
                        "deletedRegion": {
                            "startLine": replacement.line, "startColumn": 1, "endLine": end, "endColumn": 1,
                        },
                        "insertedContent": { "text": replacement.inserted },
                    })
                });
                json!({
                    "artifactLocation": self.artifact(&file.path),
                    "replacements": replacements.collect::<Vec<_>>(),
                })
            })
            .collect();
        let verified = match patch.verified {
            true => "verified: built, run and checked again",
            false => "not verified",
        };
        let text = format!("The patch of crashproof repair as a whole ({verified}).");
        (!changes.is_empty()).then(|| json!({ "description": { "text": text }, "artifactChanges": changes }))
    }

    fn result(&mut self, finding: &Finding) -> Map<String, Value> {
        let mut result = object(json!({
            "ruleId": finding.kind.name(),
            "ruleIndex": Kind::ALL.iter().position(|&kind| kind == finding.kind),
            "level": level(finding.severity),
            "message": { "text": message(finding) },
            "occurrenceCount": finding.count.max(1),
            "locations": [self.finding_location(finding)],
            "partialFingerprints": { "crashproof/v1": self.fingerprint(finding) },
        }));
        if !finding.stack.is_empty() {
            result.insert("stacks".into(), json!([self.stack("call path", &finding.stack)]));
        }
        if let Some(flow) = self.code_flow(finding) {
            result.insert("codeFlows".into(), json!([flow]));
        }
        let related: Vec<Value> = finding
            .related
            .iter()
            .filter_map(|related| Some(self.labelled(blamed_position(&related.stack)?, &related.message)))
            .collect();
        if !related.is_empty() {
            result.insert("relatedLocations".into(), related.into());
        }
        let mut properties = Map::new();
        if let Some(address) = &finding.address {
            properties.insert("address".into(), json!(address));
        }
        if finding.approximate {
            properties.insert("approximate".into(), true.into());
        }
        if let Some(crash) = &finding.crash {
            properties.insert("recovery".into(), json!(crash.recovery));
            properties.insert("states".into(), crash.states.into());
            if let Some(replay) = &crash.replay {
                properties.insert("replay".into(), replay.command.as_str().into());
            }
        }
        if !finding.order.is_empty() {
            properties.insert("order".into(), json!(finding.order));
        }
        if !properties.is_empty() {
            result.insert("properties".into(), properties.into());
        }
        result
    }

    /// The store, its flush if there is one, then the event by which it had to be durable; of a crash, what happened in the
    /// order of the program.
    fn code_flow(&self, finding: &Finding) -> Option<Value> {
        let locations = match (&finding.crash, &finding.durable_by) {
            (Some(crash), _) => self.crash_flow(finding, crash),
            (None, Some(durable_by)) => {
                let mut store = object(self.finding_location(finding));
                store.insert("message".into(), json!({ "text": finding.kind.info().label }));
                let mut flow = vec![(store.into(), &[][..])];
                for related in &finding.related {
                    flow.push((self.labelled_stack(&related.stack, &related.message), &related.stack));
                }
                let what = durable_by.kind.label();
                flow.push((self.labelled_stack(&durable_by.stack, what), &durable_by.stack));
                flow
            }
            (None, None) => return None,
        };
        let steps = locations.into_iter().enumerate().map(|(number, (location, stack))| {
            let mut step = object(json!({
                "location": location, "executionOrder": number, "importance": "essential"
            }));
            if !stack.is_empty() {
                step.insert("stack".into(), self.stack("call path", stack));
            }
            Value::from(step)
        });
        Some(json!({ "threadFlows": [{ "locations": steps.collect::<Vec<_>>() }] }))
    }

    fn crash_flow<'f>(&self, finding: &Finding, crash: &'f Crash) -> Vec<(Value, &'f [Frame])> {
        let mut flow: Vec<(Value, &[Frame])> = Vec::new();
        let mut add = |stores: &'f [CrashStore], executed: bool, text: &str| {
            for store in stores.iter().filter(|store| store.executed == executed) {
                flow.push((self.labelled(&store.frame, text), &store.stack));
            }
        };
        add(&crash.missing, true, finding.kind.info().label);
        add(&crash.persisted, true, "had persisted");
        let failed = format!("power failed after this; {}", crash.recovery.in_words("recovery"));
        flow.push((self.labelled(&crash.after, &failed), &crash.after_stack));
        for store in crash.missing.iter().filter(|store| !store.executed) {
            flow.push((self.labelled(&store.frame, crash::STILL_TO_COME), &store.stack));
        }
        flow
    }

    /// The place that stands for a stack, with a text.
    fn labelled_stack(&self, stack: &[Frame], text: &str) -> Value {
        match blamed_position(stack).or(stack.first()) {
            Some(frame) => self.labelled(frame, text),
            None => json!({ "message": { "text": text } }),
        }
    }

    fn finding_location(&self, finding: &Finding) -> Value {
        match &finding.file {
            Some(file) => {
                let mut location = self.source_location(file, finding.line, finding.column);
                if let Some(function) = &finding.function {
                    location.insert(
                        "logicalLocations".into(),
                        json!([logical(function, finding.stack.first())]),
                    );
                }
                location.into()
            }
            None => finding
                .stack
                .first()
                .map_or_else(|| json!({}), |frame| self.location(frame)),
        }
    }

    fn location(&self, frame: &Frame) -> Value {
        let mut location = match (&frame.file, &frame.module) {
            (Some(file), _) => self.source_location(file, frame.line, frame.column),
            (None, Some(module)) => object(json!({
                "physicalLocation": {
                    "artifactLocation": { "uri": file_uri(Path::new(module)) },
                    "address": { "relativeAddress": frame.address },
                },
            })),
            (None, None) => object(json!({ "physicalLocation": { "address": { "absoluteAddress": frame.address } } })),
        };
        if let Some(function) = &frame.function {
            location.insert("logicalLocations".into(), json!([logical(function, Some(frame))]));
        }
        location.into()
    }

    fn source_location(&self, file: &str, line: Option<u32>, column: Option<u32>) -> Map<String, Value> {
        let mut physical = object(json!({ "artifactLocation": self.artifact(file) }));
        if let Some(line) = line.filter(|&line| line > 0) {
            let mut region = object(json!({ "startLine": line }));
            if let Some(column) = column.filter(|&column| column > 0) {
                region.insert("startColumn".into(), column.into());
            }
            physical.insert("region".into(), region.into());
        }
        object(json!({ "physicalLocation": physical }))
    }

    fn artifact(&self, file: &str) -> Value {
        let shown = Path::new(self.sources.display(file));
        if shown.is_absolute() {
            json!({ "uri": file_uri(shown) })
        } else {
            json!({ "uri": encoded(&shown.to_string_lossy()), "uriBaseId": SOURCE_ROOT })
        }
    }

    fn labelled(&self, frame: &Frame, text: &str) -> Value {
        let mut location = object(self.location(frame));
        location.insert("message".into(), json!({ "text": text }));
        location.into()
    }

    fn stack(&self, text: &str, stack: &[Frame]) -> Value {
        let frames: Vec<Value> = trimmed(stack)
            .iter()
            .map(|frame| {
                let mut entry = object(json!({ "location": self.location(frame) }));
                if let Some(module) = &frame.module {
                    entry.insert("module".into(), module.as_str().into());
                }
                entry.into()
            })
            .collect();
        json!({ "message": { "text": text }, "frames": frames })
    }

    fn fingerprint(&mut self, finding: &Finding) -> String {
        let mut hash = Fnv::new();
        hash.add(finding.kind.name());
        for frame in trimmed(&finding.stack) {
            match &frame.function {
                Some(function) => hash.add(function),
                None => {
                    hash.add(frame.module_name().unwrap_or_default());
                    hash.add(&frame.address.to_string());
                }
            }
        }
        if let (Some(file), Some(line)) = (&finding.file, finding.line) {
            match self.sources.get(file).and_then(|source| source.line(line)) {
                Some(text) => hash.add(text),
                None => hash.add(&line.to_string()),
            }
        }
        // Crashes that miss the same store are different ones if something else had persisted.
        for store in finding.crash.iter().flat_map(|crash| &crash.persisted) {
            hash.add(store.frame.function.as_deref().unwrap_or_default());
            if let (Some(file), Some(line)) = (&store.frame.file, store.frame.line)
                && let Some(text) = self.sources.get(file).and_then(|source| source.line(line))
            {
                hash.add(text);
            }
        }
        format!("{:016x}", hash.0)
    }
}

fn rule(kind: Kind) -> Value {
    let info = kind.info();
    json!({
        "id": info.name,
        "name": pascal_case(info.name),
        "shortDescription": { "text": info.summary },
        "fullDescription": { "text": format!("{} {}.", info.summary, sentence(info.why)) },
        "help": { "text": format!("{}. See {}.", sentence(info.help), info.docs()) },
        "defaultConfiguration": { "level": level(info.severity) },
    })
}

/// The run of the program that was checked; `executionSuccessful`: no result means that there is none.
fn invocation(report: &Report) -> Value {
    let incomplete = report
        .trace
        .incomplete
        .iter()
        .map(|reason| format!("incomplete trace: {reason}"));
    let doubts = report.inconclusive.iter().map(|doubt| {
        let text = format!("{}: {}", doubt.reason.name(), doubt.text());
        json!({ "level": "error", "message": { "text": text } })
    });
    let warnings = incomplete
        .chain(report.warnings.iter().cloned())
        .map(|text| (text, "warning"))
        .chain(
            files::lines(report, &ungrouped(report))
                .into_iter()
                .map(|text| (text, "note")),
        )
        .map(|(text, level)| json!({ "level": level, "message": { "text": text } }));
    let notifications: Vec<Value> = doubts.chain(warnings).collect();
    let mut invocation = object(json!({
        "executionSuccessful": report.is_conclusive(),
        "toolExecutionNotifications": notifications,
    }));
    let program = &report.program;
    if !program.command.is_empty() {
        invocation.insert("commandLine".into(), program.command.join(" ").into());
        invocation.insert("arguments".into(), json!(program.command));
    }
    if let Some(status) = program.shell_status() {
        invocation.insert("exitCode".into(), status.into());
    }
    if let Some(signal) = program.signal {
        invocation.insert("exitSignalNumber".into(), signal.into());
    }
    invocation.into()
}

fn message(finding: &Finding) -> String {
    let info = finding.kind.info();
    let mut text = format!("{}: {}.", sentence(&finding.message), info.why);
    for note in &finding.notes {
        text += &format!(" {}.", sentence(note));
    }
    let help = finding.help.as_deref().unwrap_or(info.help);
    text + &format!(" To do: {help}.")
}

fn logical(function: &str, frame: Option<&Frame>) -> Value {
    let mut location = object(json!({ "name": function, "kind": "function" }));
    if let Some(module) = frame.and_then(Frame::module_name) {
        location.insert("fullyQualifiedName".into(), format!("{module}!{function}").into());
    }
    location.into()
}

fn level(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Note => "note",
    }
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

/// With a capital at its start.
fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    chars
        .next()
        .map(|first| first.to_uppercase().chain(chars).collect())
        .unwrap_or_default()
}

fn pascal_case(name: &str) -> String {
    name.split('-').map(sentence).collect()
}

fn file_uri(path: &Path) -> String {
    format!("file://{}", encoded(&path.to_string_lossy()))
}

/// Percent-encoding of what a URI path may not hold.
fn encoded(path: &str) -> String {
    let mut uri = String::with_capacity(path.len());
    for byte in path.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'.' | b'_' | b'~' | b'+' | b'@' => {
                uri.push(byte as char)
            }
            _ => uri += &format!("%{byte:02X}"),
        }
    }
    uri
}

/// FNV-1a: a fingerprint must not change from one version of a hash library to the next.
struct Fnv(u64);

impl Fnv {
    fn new() -> Self {
        Fnv(0xcbf2_9ce4_8422_2325)
    }

    /// Adds a text and a mark for its end.
    fn add(&mut self, text: &str) {
        for byte in text.bytes().chain([0]) {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
}
