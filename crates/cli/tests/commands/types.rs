//! What each store of a program writes, from its source to the recorded trace: `tests/types/stores.c`, built by `crashproof cc` without
//! and with optimisation, has on each line that stores the type and field, innermost first; `*`: any. Built by gcc and clang, debug info says these or
//! nothing.

use crate::support;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use crashproof_sites::{Store, Typing};
use crashproof_stacks::Stacks;
use crashproof_trace::{EventKind, Item, TraceReader};

/// The compiler, and whether it must be known of each store what it writes.
fn check(mut compile: Command, level: &str, is_complete: bool) {
    let folder = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/types/stores.c");
    let (program, trace) = (folder.path().join("program"), folder.path().join("trace"));
    compile.args(["-g", level, "-o"]).arg(&program).arg(&source);
    support::run(&mut compile, 0);
    let mut record: Command = support::crashproof();
    record
        .arg("record")
        .arg("-o")
        .arg(&trace)
        .arg("--")
        .arg(&program)
        .arg(folder.path().join("pm"));
    support::run(&mut record, 0);

    let mut reader = TraceReader::open(&trace).unwrap();
    let mut stores = Vec::new();
    while let Some(item) = reader.next().unwrap() {
        if let Item::Event(event) = item
            && let EventKind::Store { at, data, .. } = event.kind
        {
            let (thread, stack, len) = (event.thread, event.stack, data.len());
            stores.push(Store { thread, stack, at, len });
        }
    }
    let mut typing = Typing::new();
    let types = typing.all(reader.tables(), &stores);
    assert!(typing.warnings().is_empty(), "{:?}", typing.warnings());
    let mut stacks = Stacks::default();
    let mut found: BTreeMap<u32, Vec<String>> = BTreeMap::new();
    for (index, store) in stores.iter().enumerate() {
        let frames = stacks.symbolize(store.stack, reader.tables()).frames;
        let is_ours = |file: &String| file.ends_with("stores.c");
        let line = frames
            .iter()
            .find(|frame| frame.file.as_ref().is_some_and(is_ours))
            .and_then(|frame| frame.line);
        let levels = types.of(index).iter().map(|typed| {
            // The instance is where an object of the type is: the root at the start, nodes at their places in it.
            let offset = typed.instance.offset;
            match typing.type_name(typed.ty) {
                "struct root" => assert_eq!(offset, 0),
                "struct node" => assert_eq!((offset - 8) % 120, 0, "{store:?}"),
                "struct inner" => assert_eq!((offset - 8) % 120, 16, "{store:?}"),
                other => panic!("{other}"),
            }
            format!("{}.{}", typing.type_name(typed.ty), typing.field_name(typed.field))
        });
        found
            .entry(line.unwrap_or(0))
            .or_default()
            .push(levels.collect::<Vec<_>>().join(" in "));
    }
    let typed = found.values().flatten().filter(|levels| !levels.is_empty()).count();
    // More than half, however it is built.
    assert!(2 * typed > stores.len(), "{level}: {typed} of {}", stores.len());
    let text = std::fs::read_to_string(&source).unwrap();
    for (line, wanted) in text
        .lines()
        .zip(1..)
        .filter_map(|(text, line)| Some((line, text.split_once("//~ ")?.1)))
    {
        let found = found.remove(&line).unwrap_or_default();
        // Optimised code may have left the line for the one that calls its function.
        if found.is_empty() && !is_complete {
            continue;
        }
        let is_wanted = |what: &String| match is_complete {
            true => what == wanted || (wanted == "*" && !what.is_empty()),
            false => {
                what.is_empty()
                    || wanted == "*"
                    || what
                        .split(" in ")
                        .all(|what| wanted.split(" in ").any(|wanted| what == wanted))
            }
        };
        assert!(
            !found.is_empty() && found.iter().all(is_wanted),
            "{level} line {line}: {wanted}, but found {found:?}"
        );
    }
    found.retain(|_, levels| is_complete || levels.iter().any(|levels| !levels.is_empty()));
    assert!(found.is_empty(), "{level}: stores at lines that say nothing: {found:?}");
}

fn crashproof_cc() -> Command {
    let mut cc = support::crashproof();
    cc.arg("cc");
    cc
}

#[test]
fn unoptimised() {
    check(crashproof_cc(), "-O0", true);
}

#[test]
fn optimised() {
    check(crashproof_cc(), "-O2", true);
}

#[test]
fn by_debug_info() {
    for (compiler, level) in [("gcc", "-O0"), ("gcc", "-O2"), ("clang-19", "-O2")] {
        check(Command::new(compiler), level, false);
    }
}

/// A finding at a store that `crashproof cc` merged says that its line is one of several.
#[test]
fn merged_stores_are_approximate() {
    let folder = tempfile::tempdir().unwrap();
    let (program, json) = (folder.path().join("program"), folder.path().join("findings.json"));
    let mut compile = support::crashproof();
    compile.args(["cc", "-O2", "-g", "-mavx2", "-o"]).arg(&program);
    support::run(compile.arg(support::source("types/merged.c")), 0);
    let mut check = support::crashproof();
    check.arg("check").arg("--json").arg(&json);
    support::run(check.arg("--").arg(&program).arg(folder.path().join("pm")), 1);
    let report: serde_json::Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    let findings: Vec<(bool, bool)> = report["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|finding| (finding["function"] == "clear", finding["approximate"] == true))
        .collect();
    assert_eq!(findings, [(true, true), (false, false)]);
}
