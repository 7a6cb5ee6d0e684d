//! The HTML page: that it is one, and what its data says.

use std::cell::RefCell;
use std::path::Path;

use html5ever::tendril::StrTendril;
use html5ever::tokenizer::states::RawKind;
use html5ever::tokenizer::{BufferQueue, TagKind, Token, TokenSink, TokenSinkResult, Tokenizer};
use serde_json::{Value, json};

use crate::common::*;
use crashproof_finding::picture::*;
use crashproof_finding::*;
use crashproof_render::html::{HtmlOptions, to_html};
use crashproof_render::*;

/// Reads a page as a browser does, and holds what it finds against the rules of HTML.
#[derive(Default)]
struct Checker {
    open: RefCell<Vec<String>>,
    errors: RefCell<Vec<String>>,
    /// Text of the element with the data.
    data: RefCell<String>,
    in_data: RefCell<bool>,
}

const VOID: [&str; 8] = ["meta", "link", "br", "hr", "img", "input", "col", "wbr"];

impl TokenSink for Checker {
    type Handle = ();

    fn process_token(&self, token: Token, line: u64) -> TokenSinkResult<()> {
        match token {
            Token::ParseError(error) => self.errors.borrow_mut().push(format!("line {line}: {error}")),
            Token::CharacterTokens(text) if *self.in_data.borrow() => self.data.borrow_mut().push_str(&text),
            Token::TagToken(tag) => {
                let name = tag.name.to_string();
                if tag.kind == TagKind::EndTag {
                    *self.in_data.borrow_mut() = false;
                    let opened = self.open.borrow_mut().pop();
                    if opened.as_deref() != Some(&name) {
                        self.errors
                            .borrow_mut()
                            .push(format!("line {line}: </{name}> closes {opened:?}"));
                    }
                    return TokenSinkResult::Continue;
                }
                for attribute in &tag.attrs {
                    let (name, value) = (attribute.name.local.to_string(), attribute.value.to_string());
                    *self.in_data.borrow_mut() |= name == "id" && value == "crashproof-data";
                    let asks = ["src", "href", "action"].contains(&name.as_str());
                    if asks && !value.starts_with('#') && !value.starts_with("data:") {
                        self.errors.borrow_mut().push(format!("line {line}: asks for {value}"));
                    }
                }
                if !tag.self_closing && !VOID.contains(&name.as_str()) {
                    self.open.borrow_mut().push(name.clone());
                }
                return match name.as_str() {
                    "script" => TokenSinkResult::RawData(RawKind::ScriptData),
                    "style" => TokenSinkResult::RawData(RawKind::Rawtext),
                    "title" | "textarea" => TokenSinkResult::RawData(RawKind::Rcdata),
                    _ => TokenSinkResult::Continue,
                };
            }
            _ => {}
        }
        TokenSinkResult::Continue
    }
}

/// The data of a page that is valid HTML.
fn data_of(html: &str) -> Value {
    assert!(html[..15].eq_ignore_ascii_case("<!doctype html>"), "{}", &html[..40]);
    let tokenizer = Tokenizer::new(Checker::default(), Default::default());
    let queue = BufferQueue::default();
    queue.push_back(StrTendril::from_slice(html));
    let _ = tokenizer.feed(&queue);
    tokenizer.end();
    let Checker { open, errors, data, .. } = tokenizer.sink;
    assert_eq!(errors.into_inner(), [] as [String; 0]);
    assert_eq!(open.into_inner(), [] as [String; 0], "left open");
    serde_json::from_str(&data.into_inner()).expect("the data is JSON")
}

fn page(suites: &[Suite], root: &Path) -> String {
    let options = HtmlOptions {
        command: "crashproof check --html <out> -- ./logger".to_owned(),
        root: root.to_owned(),
        compared: true,
    };
    to_html(suites, &options).expect("serialises")
}

fn suite(report: Report) -> Suite {
    Suite {
        name: "check".to_owned(),
        report: Ok(report),
    }
}

fn data(report: Report, root: &Path) -> Value {
    data_of(&page(&[suite(report)], root))
}

#[test]
fn a_page_of_every_kind_is_html() {
    let folder = sources();
    let mut report = every_kind();
    report.known = vec![1];
    report.stats = Some(stats());
    let failed = Suite {
        name: "crash b".to_owned(),
        report: Err("the recovery fails".to_owned()),
    };
    let data = data_of(&page(
        &[suite(report.clone()), failed, suite(Report::default())],
        folder.path(),
    ));
    assert_eq!(data["version"], 1);
    assert_eq!(data["command"], "crashproof check --html <out> -- ./logger");
    let run = &data["runs"][0];
    assert_eq!(run["findings"].as_array().map(Vec::len), Some(report.findings.len()));
    assert_eq!(
        (&run["findings"][1]["known"], &run["findings"][0]["known"]),
        (&json!(true), &Value::Null)
    );
    for (finding, shown) in report.findings.iter().zip(run["findings"].as_array().unwrap()) {
        assert_eq!(shown["kind"], finding.kind.name());
        assert_eq!(data["kinds"][finding.kind.name()]["why"], finding.kind.info().why);
    }
    assert_eq!(data["runs"][1]["error"], "the recovery fails");
    assert_eq!(data["runs"][2]["findings"], json!([]));
}

#[test]
fn nothing_in_a_report_becomes_markup() {
    let mut odd = missing_flush();
    let text = "</script><script>alert(1)</script><!-- {{style}} {{data}} \u{2028} \u{0} ]]> & \"ü\"";
    odd.message = text.to_owned();
    odd.function = Some("operator<<".to_owned());
    odd.notes = vec![text.to_owned()];
    let data = data(report(vec![odd]), Path::new("/nonexistent"));
    let shown = &data["runs"][0]["findings"][0];
    assert_eq!(shown["message"], text);
    assert_eq!(shown["function"], "operator<<");
    assert_eq!(data["texts"][shown["notes"][0].as_u64().unwrap() as usize], text);
}

#[test]
fn the_source_around_what_is_marked() {
    let folder = sources();
    let data = data(report(vec![missing_flush()]), folder.path());
    let finding = &data["runs"][0]["findings"][0];
    // The store at 14 and the fence at 15, both with four lines around; the callers at 21 and 22 with two.
    let file = &data["files"][0];
    assert_eq!(file["path"], "log.c");
    let excerpts = file["excerpts"].as_array().unwrap();
    let lines: Vec<(u64, usize)> = excerpts
        .iter()
        .map(|excerpt| {
            (
                excerpt["first"].as_u64().unwrap(),
                excerpt["lines"].as_array().unwrap().len(),
            )
        })
        .collect();
    assert_eq!(lines, [(10, 15)], "merged");
    let source: Vec<&str> = LOG_C.lines().collect();
    assert_eq!(excerpts[0]["lines"][4], source[13]);
    let text = |id: &Value| data["texts"][id.as_u64().unwrap() as usize].clone();
    let marks = &finding["marks"];
    assert_eq!((&marks[0]["line"], &marks[0]["roles"]), (&json!(14), &json!(["store"])));
    assert_eq!(text(&marks[0]["label"]), "stored here, never flushed");
    let range = &marks[0]["range"];
    let (from, to) = (range[0].as_u64().unwrap() as usize, range[1].as_u64().unwrap() as usize);
    assert_eq!(&source[13][from..to], "log->count = log->count + 1");
    assert_eq!((&marks[1]["line"], &marks[1]["roles"]), (&json!(15), &json!(["fence"])));
    assert_eq!(text(&marks[1]["label"]), "had to be durable by this fence");
    // The stack without the C library's frames.
    let stack = data["stacks"][finding["stack"].as_u64().unwrap() as usize]
        .as_array()
        .unwrap();
    let functions: Vec<&Value> = stack
        .iter()
        .map(|id| &data["frames"][id.as_u64().unwrap() as usize]["function"])
        .collect();
    assert_eq!(functions, ["append", "main"]);
}

#[test]
fn source_that_is_gone_or_changed() {
    let folder = sources();
    let at = |file: &str, line| finding(Kind::MissingFlush, "m", vec![frame("f", file, line, 1)]);
    let data = data(
        report(vec![at("gone.c", 3), at("log.c", 900), at("pm.h", 4)]),
        folder.path(),
    );
    let problem = |index: usize| data["files"][index]["problem"].as_str();
    assert_eq!(problem(0), Some("its source is not here"));
    assert_eq!(
        problem(1),
        Some("its source has changed since the program was built: lines may be off")
    );
    assert_eq!(problem(2), None);
    assert_eq!(data["runs"][0]["findings"][0]["marks"][0]["range"], Value::Null);

    // Newer than what was built from it.
    let program = folder.path().join("logger");
    std::fs::write(&program, "").unwrap();
    let old = std::time::SystemTime::now() - std::time::Duration::from_secs(100);
    std::fs::File::options()
        .write(true)
        .open(&program)
        .unwrap()
        .set_modified(old)
        .unwrap();
    let mut finding = at("pm.h", 4);
    finding.stack[0].module = Some(program.to_str().unwrap().to_owned());
    let data = self::data(report(vec![finding]), folder.path());
    assert_eq!(
        data["files"][0]["problem"],
        "its source has changed since the program was built: lines may be off"
    );
}

/// A timeline of two lines with so many stores.
fn timeline(events: u64) -> Timeline {
    let line = |offset| TimelineLine {
        file: "/mnt/pm/log.pm".into(),
        offset,
        state: LineState::Persistent,
    };
    let event = |number: u64| TimelineEvent {
        event: number,
        kind: TimelineKind::Store,
        thread: 0,
        frame: frame("append", "log.c", 11 + (number % 4) as u32, 2),
        lines: vec![(number % 2) as usize],
        stored: Some(Stored {
            offset: number % 2 * 64,
            length: 16,
            data: "0123456789abcdef0123456789abcdef".into(),
            pieces: vec![
                (number % 2 * 64, 8, StoreOutcome::Persisted),
                (
                    number % 2 * 64 + 8,
                    8,
                    if number == 1 {
                        StoreOutcome::Missing
                    } else {
                        StoreOutcome::Persisted
                    },
                ),
            ],
        }),
        text: None,
        omitted: None,
        states: vec![((number % 2) as usize, LineState::Dirty)],
    };
    Timeline {
        lines: vec![line(0), line(64)],
        events: (0..events).map(event).collect(),
        ..Timeline::default()
    }
}

fn with_timeline(mut finding: Finding, timeline: Timeline) -> Finding {
    let crash = finding.crash.as_mut().unwrap();
    crash.missing[0].event = Some(1);
    crash.timeline = Some(timeline);
    finding
}

#[test]
fn a_crash_with_its_timeline() {
    let folder = sources();
    let data = data(report(vec![with_timeline(crash_order(), timeline(3))]), folder.path());
    let crash = &data["runs"][0]["findings"][0]["crash"];
    let timeline = &crash["timeline"];
    assert_eq!(
        timeline["lines"][1],
        json!({"file": 0, "offset": 64, "state": "persistent"})
    );
    assert_eq!(data["pm_files"][0], "/mnt/pm/log.pm");
    // Whole, or torn.
    assert_eq!(timeline["events"][0]["outcome"], "persisted");
    assert_eq!(timeline["events"][0]["pieces"], Value::Null);
    assert_eq!(timeline["events"][1]["outcome"], Value::Null);
    assert_eq!(
        timeline["events"][1]["pieces"],
        json!([[64, 8, "persisted"], [72, 8, "missing"]])
    );
    assert_eq!(timeline["events"][1]["states"], json!([[1, "dirty"]]));
    assert_eq!(crash["missing"][0]["event"], 1);
    assert_eq!(crash["persisted"][0]["event"], Value::Null);
    assert_eq!(
        crash["recovery"]["ended"],
        "`./logger --verify log.pm` exited with status 1"
    );
    let roles: Vec<&Value> = data["runs"][0]["findings"][0]["marks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|mark| &mark["roles"])
        .collect();
    assert_eq!(roles, [&json!(["missing"]), &json!(["persisted", "crash"])]);
}

#[test]
fn a_thousand_findings_stay_below_two_megabytes() {
    let folder = tempfile::tempdir().unwrap();
    let source: String = (0..20_000)
        .map(|line| format!("\tobject->field_{line} = value_{line};\n"))
        .collect();
    std::fs::write(folder.path().join("large.c"), source).unwrap();
    let finding = |number: u32| {
        let call = |depth: u32| {
            let function = format!("module::Type::function_{}", (number * 31 + depth * 7) % 4000);
            frame(&function, "large.c", (number * 17 + depth * 401) % 20_000 + 1, 3)
        };
        let stack: Vec<Frame> = (0..24).map(call).collect();
        let mut finding = match number % 4 {
            0 => with_timeline(crash_order(), timeline(100)),
            _ => missing_flush(),
        };
        finding.message = format!(
            "store of 8 bytes at offset {:#x} of pool is never flushed, number {number}",
            number * 64
        );
        finding.notes = vec!["a note that many findings have, because it is about the program as a whole".repeat(3)];
        finding.help = Some("what to do, which is the same for all of these findings".repeat(2));
        finding.related = vec![Related {
            message: "flushed first here".into(),
            stack: stack[4..].to_vec(),
        }];
        let place = &stack[0];
        (finding.file, finding.line, finding.function) = (place.file.clone(), place.line, place.function.clone());
        finding.stack = stack;
        finding
    };
    let report = report((0..1000).map(finding).collect());
    let html = page(&[suite(report)], folder.path());
    assert!(html.len() < 2_000_000, "{} bytes", html.len());
    let data = data_of(&html);
    let findings = data["runs"][0]["findings"].as_array().unwrap();
    assert_eq!(findings.len(), 1000);
    // The pictures of the first ones are there, and where there is no room that is said.
    assert!(findings[0]["crash"]["timeline"].is_object());
    let last = &findings[996]["crash"];
    assert_eq!(last["timeline"], Value::Null);
    assert_eq!(
        last["left_out"],
        json!(["there is no room on this page for the timelines of so many findings"])
    );
}
