//! Crash testing without a verifier, on the drivers of the corpus at 2,000 operations (Witcher, SOSP '21, §7): which strategy finds which
//! seeded bug by the output alone, after how many states and how long; and how conditions, states and time grow with the operations.
//!
//! The paper has structures that others wrote; these are our own, each bug one of the kinds of the paper's table 4. Every result is kept as soon as
//! it is there (`results`), so that a run may be cut, or made in pieces.

use std::path::Path;

use serde_json::Value;

use crate::listing;
use crate::results::{self, Crashed, Grown};
use crate::structure::Structure;
use crate::tested::{self, Tested, read_json, run};

pub(crate) const OPERATIONS: u32 = 2000;
const GROWTH: [u32; 5] = [500, 1000, 2000, 5000, 10_000];
/// What a strategy may take for a bug, if the command line does not say; and for a structure as it grows.
const BUDGET: &str = "1m";
const GROWTH_BUDGET: &str = "10m";
/// By name, as `--strategy` has it; a strategy that is added here is in all tables. `random` is the paper's baseline (§7.5).
pub(crate) const STRATEGIES: [&str; 4] = ["conditions", "representative", "random", "auto"];

/// `budget` as `--time` has it; only structures whose name contains `only` (`wort.c/BUG_HEADER_PAIR`: only with this bug), and only these strategies.
pub(crate) fn measure(
    root: &Path,
    tool: &Path,
    folder: &Path,
    budget: Option<&str>,
    only: &str,
    strategies: Option<&str>,
) {
    let budget = budget.unwrap_or(BUDGET);
    let strategies: Vec<&str> = strategies.map_or(STRATEGIES.to_vec(), |names| names.split(',').collect());
    println!(
        "\ndrivers: {OPERATIONS} operations, one worker, at most {budget} each, judged by output. States until the bug is found, and seconds"
    );
    println!("(- (N): not in N states); without a bug, the states and seconds to the end (cut: the time ended it)");
    print!("{:<14}{:<22}", "structure", "bug");
    for strategy in &strategies {
        print!("{strategy:>26}");
    }
    println!();
    let (only, only_bug) = only
        .split_once('/')
        .map_or((only, None), |(only, bug)| (only, Some(bug)));
    for structure in &drivers(only) {
        generate(tool, folder, structure, OPERATIONS);
        if only_bug.is_none() {
            fixed(root, tool, folder, structure, &strategies, budget);
        }
        let bugs = structure.bugs.iter();
        for (bug, expectations) in bugs.filter(|(bug, _)| only_bug.is_none_or(|only| only == bug)) {
            build(tool, folder, structure, Some(bug));
            print!("{:<14}{bug:<22}", structure.name);
            for &strategy in &strategies {
                let tested = crash(tool, folder, strategy, &["--fail-fast", "--time", budget]);
                let crashed = Crashed::of(structure, Some((bug, expectations)), strategy, &tested);
                print!("{:>26}", tested.to_the_bug() + crashed.note());
                results::keep(root, &crashed);
            }
            println!();
        }
    }
    println!("kept; `crashproof-bench table` prints all that was");
}

/// Nothing may be found in the structure as it stands.
fn fixed(root: &Path, tool: &Path, folder: &Path, structure: &Structure, strategies: &[&str], budget: &str) {
    build(tool, folder, structure, None);
    print!("{:<14}{:<22}", structure.name, "-");
    for &strategy in strategies {
        let tested = crash(tool, folder, strategy, &["--time", budget]);
        let crashed = Crashed::of(structure, None, strategy, &tested);
        print!("{:>26}", tested.to_its_end() + crashed.note());
        results::keep(root, &crashed);
        if strategy == "conditions" {
            let grown = inferred(tool, folder, structure, OPERATIONS, &tested);
            results::keep(root, &grown);
        }
    }
    println!();
}

/// Conditions, states and time from 500 operations to 10,000, for the fixed structures.
pub(crate) fn growth(root: &Path, tool: &Path, folder: &Path, budget: Option<&str>, only: &str) {
    let budget = budget.unwrap_or(GROWTH_BUDGET);
    println!(
        "\ngrowth: processor seconds to record dependences and to infer, seconds to test what violates a condition (one worker, {budget})"
    );
    println!(
        "{:<14}{:>12}{:>12}{:>12}{:>12}{:>12}{:>12}",
        "structure", "operations", "conditions", "record s", "infer s", "states", "test s"
    );
    for structure in &drivers(only) {
        build(tool, folder, structure, None);
        for operations in GROWTH {
            generate(tool, folder, structure, operations);
            let tested = crash(tool, folder, "conditions", &["--time", budget]);
            let grown = inferred(tool, folder, structure, operations, &tested);
            println!(
                "{:<14}{operations:>12}{:>12}{:>12.2}{:>12.2}{:>12}{:>12.1}{}",
                structure.name,
                grown.conditions,
                grown.record_seconds,
                grown.infer_seconds,
                grown.states,
                grown.seconds,
                if grown.cut_short { " cut" } else { "" }
            );
            results::keep(root, &grown);
        }
    }
}

pub(crate) fn drivers(only: &str) -> Vec<Structure> {
    let mut drivers = listing::drivers().expect("the corpus lies beside the bench");
    drivers.retain(|driver| driver.name.contains(only));
    drivers
}

/// What recording and inferring cost, beside a test of the same operations.
fn inferred(tool: &Path, folder: &Path, structure: &Structure, operations: u32, tested: &Tested) -> Grown {
    let _ = std::fs::remove_file(folder.join("pool"));
    let recording = ["record", "-o", "trace", "--", "./program", "pool", "--ops", "ops"];
    let recorded = run(tool, folder, &recording);
    let inferred = run(tool, folder, &["infer", "--json", "conditions.json", "trace"]);
    let listing: Value = read_json(&folder.join("conditions.json"));
    let rules = listing["rules"].as_array().map(Vec::as_slice).unwrap_or_default();
    Grown {
        structure: structure.name.clone(),
        operations,
        conditions: rules.iter().filter_map(|rule| rule["conditions"].as_u64()).sum(),
        record_seconds: recorded.processor_seconds,
        infer_seconds: inferred.processor_seconds,
        states: tested.stats.states_tested,
        seconds: tested.stats.seconds,
        cut_short: tested.stats.cut_short,
    }
}

pub(crate) fn generate(tool: &Path, folder: &Path, structure: &Structure, count: u32) {
    let templates: &[&str] = match structure.name.as_str() {
        "array.c" => &["set {0..63} {value}=5", "resize {16..64}=1", "get {0..63}=2", "print=1"],
        "queue.c" => &["put=8", "take=7", "print=1"],
        _ => &[
            "insert {insert} {value}=8",
            "update {used} {value}=3",
            "remove {remove}=6",
            "get {used}=2",
        ],
    };
    let count = count.to_string();
    let mut words = vec!["ops", "generate", "--keys", "1..200", "-o", "ops", "--count", &count];
    for template in templates {
        words.extend(["--op", template]);
    }
    run(tool, folder, &words);
}

pub(crate) fn build(tool: &Path, folder: &Path, structure: &Structure, bug: Option<&str>) {
    let needs_pmemobj = listing::needs_pmemobj(structure).expect("a readable source");
    let libraries = if needs_pmemobj { &["-lpmemobj"][..] } else { &[] };
    tested::build(tool, folder, structure, bug, &["--deps", "-DDRIVER"], libraries);
}

fn crash(tool: &Path, folder: &Path, strategy: &str, limits: &[&str]) -> Tested {
    let _ = std::fs::remove_file(folder.join("pool"));
    let mut words = vec!["--oracle", "output", "--ops", "ops", "--strategy", strategy];
    words.extend(limits);
    words.extend(["--", "./program", "pool"]);
    tested::crash(tool, folder, &words)
}
