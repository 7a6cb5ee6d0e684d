//! Compiles a snippet, makes its trace from the annotations, and puts it in order.

use std::path::Path;
use std::process::Command;

use crashproof_finding::{Address, Crash, CrashStore, Finding, Frame, Kind, Order, RecoveryOutcome, Severity};
use crashproof_litmus::StoreKind;
use crashproof_llvm::Context;

use crate::observed::Observed;
use crate::order::trace::{Event, SourceTree, Trace, What};
use crate::order::{OrderPatch, Sources, patch_sources};
use crate::source::CompileCommand;

/// The text after the repair, which has to be one.
pub(super) fn ordered(text: &str) -> String {
    repaired(text, Kind::CrashOrder)
}

/// The same of a finding that the two stores have to be one.
pub(super) fn made_one(text: &str) -> String {
    repaired(text, Kind::CrashAtomicity)
}

/// Why the two stores are not made one, and what would help.
pub(super) fn left_apart(text: &str) -> (String, String) {
    let (patch, _) = patched(text, Kind::CrashAtomicity);
    assert!(patch.files.is_empty(), "{}", patch.files[0].new);
    let left = &patch.left[0];
    (left.reason.clone(), left.advice.clone().unwrap_or_default())
}

fn repaired(text: &str, kind: Kind) -> String {
    let (patch, plain) = patched(text, kind);
    assert!(patch.left.is_empty(), "{:?}", patch.left);
    let changed = patch.files.iter().find(|changed| changed.path.ends_with("a.c"));
    changed.map_or(plain, |changed| changed.new.clone())
}

/// Why nothing is done.
pub(super) fn left(text: &str) -> String {
    let (patch, _) = patched(text, Kind::CrashOrder);
    assert!(patch.files.is_empty(), "{}", patch.files[0].new);
    patch.left[0].reason.clone()
}

fn patched(text: &str, kind: Kind) -> (OrderPatch, String) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let tree = folder.path().canonicalize().expect("a path");
    let source = tree.join("a.c");
    let mut plain = String::new();
    let (mut before, mut after) = (None, None);
    let mut frames = Vec::new();
    let mut events = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let (code, annotation) = line.split_once(" //~ ").unwrap_or((line, ""));
        plain.push_str(&format!("{code}\n"));
        let frame = Frame {
            function: Some("f".into()),
            file: Some(source.to_string_lossy().into_owned()),
            line: Some(index as u32 + 1),
            column: Some(column(code)),
            ..Frame::default()
        };
        for word in annotation.split(';').map(str::trim).filter(|word| !word.is_empty()) {
            match word {
                "before" => before = Some(frame.clone()),
                "after" => after = Some(frame.clone()),
                event => {
                    events.push((frames.len() as u32, what(event)));
                    frames.push(frame.clone());
                }
            }
        }
    }
    std::fs::write(&source, &plain).expect("a file");
    let command: Vec<String> = ["crashproof-cc", "-g", "-O0", "-c", "a.c"].map(String::from).to_vec();
    let bitcode = tree.join("a.bc");
    let compiled = Command::new("clang-19")
        // As `crashproof cc` does for code that is to be optimised.
        .args(["-g", "-O1", "-Xclang", "-disable-llvm-passes", "-emit-llvm", "-c", "-o"])
        .args([&bitcode, &source])
        .output()
        .expect("clang-19");
    assert!(
        compiled.status.success(),
        "{}",
        String::from_utf8_lossy(&compiled.stderr)
    );
    let context = Context::create();
    let module = context.read_bitcode(&bitcode).expect("a module");
    std::fs::remove_file(bitcode).expect("removed");

    let mut source_tree = SourceTree::new(&tree);
    let trace = Trace::of(
        events.into_iter().map(|(stack, what)| Event {
            // A stack for each event.
            seq: u64::from(stack),
            thread: 0,
            stack: crashproof_trace::StackId(stack),
            what,
        }),
        &frames,
        &mut source_tree,
    );
    let (before, after) = (before.expect("`before`"), after.expect("`after`"));
    let observed = Observed::default();
    let sources = || Sources {
        module: &module,
        commands: vec![CompileCommand {
            source: "a.c".into(),
            directory: tree.clone(),
            command: command.clone(),
        }],
        observed: &observed,
        tree: &tree,
    };
    let by_position = finding(kind, before, after);
    let mut by_event = by_position.clone();
    let event = |frame: &Frame| frames.iter().position(|other| other == frame).map(|event| event as u64);
    for order in &mut by_event.order {
        (order.before_event, order.after_event) = (event(&order.before), event(&order.after));
    }
    if let Some(crash) = &mut by_event.crash {
        let stores = crash.missing.iter_mut().chain(&mut crash.persisted);
        stores.for_each(|store| store.event = event(&store.frame));
    }
    let patched = |finding: Finding| {
        let tree = SourceTree::new(&tree);
        patch_sources(&[finding], sources(), &trace, tree).expect("libclang")
    };
    let patch = patched(by_event);
    assert_eq!(
        patch,
        patched(by_position),
        "numbers of events and positions say the same"
    );
    check_compiles(&tree, &patch);
    (patch, plain)
}

/// Where the debug information has a line's store or call.
fn column(code: &str) -> u32 {
    let at = match code.find(" = ") {
        Some(at) if !code.trim_start().starts_with("uint64_t slot") => at + 1,
        _ => code.len() - code.trim_start().len(),
    };
    at as u32 + 1
}

fn what(event: &str) -> What {
    let mut words = event.split_whitespace();
    let name = words.next().unwrap_or_default();
    let mut number = || words.next().and_then(|word| word.parse().ok()).expect("a number");
    match name {
        "store" | "ntstore" => What::Store {
            at: number(),
            len: number(),
            kind: match name {
                "store" => StoreKind::Plain,
                _ => StoreKind::Nontemporal,
            },
        },
        "flush" => What::Flush {
            at: number(),
            at_once: false,
        },
        "fence" => What::Fence { full: false },
        other => panic!("{other}"),
    }
}

fn finding(kind: Kind, before: Frame, after: Frame) -> Finding {
    let store = |frame: &Frame, offset: u64| CrashStore {
        frame: frame.clone(),
        stack: vec![frame.clone()],
        pm: Address {
            file: "pm".into(),
            offset,
            length: 8,
        },
        data: String::new(),
        executed: true,
        operation: None,
        event: None,
    };
    Finding {
        kind,
        severity: Severity::Error,
        file: None,
        line: None,
        column: None,
        function: None,
        count: 1,
        message: String::new(),
        address: None,
        stack: vec![before.clone()],
        durable_by: None,
        approximate: false,
        related: Vec::new(),
        notes: Vec::new(),
        help: None,
        crash: Some(Crash {
            after: after.clone(),
            after_stack: vec![after.clone()],
            persisted: vec![store(&after, 8)],
            missing: vec![store(&before, 0)],
            recovery: RecoveryOutcome::default(),
            states: 1,
            replay: None,
            depth: 1,
            unreduced: false,
            ..Crash::default()
        }),
        order: vec![Order {
            before,
            after,
            before_event: None,
            after_event: None,
        }],
    }
}

fn check_compiles(tree: &Path, patch: &OrderPatch) {
    for changed in &patch.files {
        let path = tree.join(&changed.path);
        std::fs::write(&path, &changed.new).expect("a file");
        let compiled = Command::new("clang-19")
            .args(["-fsyntax-only", "-Wall", "-Werror"])
            .arg(&path)
            .output()
            .expect("clang-19");
        assert!(
            compiled.status.success(),
            "{}\n{}",
            String::from_utf8_lossy(&compiled.stderr),
            changed.new
        );
    }
}
