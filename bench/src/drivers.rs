//! Crash testing without a verifier, on the drivers of the corpus at 2,000 operations (Witcher, SOSP '21, §7): which strategy finds which
//! seeded bug by the output alone, after how many states and how long; and how conditions, states and time grow with the operations.
//!
//! Structures with tests of their own would be the paper's; these are our own, each bug one of the kinds of the paper's table 4.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use serde_json::Value;

use crate::plot::{self, Curve};
use crate::strategies::{Structure, structures};

const OPERATIONS: u32 = 2000;
/// What a strategy may take for a bug, if the command line does not say.
const BUDGET: &str = "1m";
const PICTURE: &str = "driver-bugs-over-time.svg";
/// By name, as `--strategy` has it; a strategy that is added here is in all tables.
const STRATEGIES: [&str; 4] = ["conditions", "representative", "random", "auto"];

/// A test to its end, or to the first state that fails.
struct Tested {
    states: u64,
    seconds: f64,
    cut_short: bool,
    found: Option<(u64, f64)>,
    findings: usize,
}

/// `budget` as `--time` has it; only structures whose name contains `only`.
pub fn measure(root: &Path, tool: &Path, folder: &Path, budget: Option<&str>, only: &str) {
    let budget = budget.unwrap_or(BUDGET);
    println!(
        "\ndrivers: {OPERATIONS} operations, one worker, at most {budget} each, judged by output. States until the bug is found, and seconds"
    );
    println!("(- (N): not in N states); without a bug, the states and seconds to the end (cut: the time ended it)");
    print!("{:<14}{:<22}", "structure", "bug");
    for strategy in STRATEGIES {
        print!("{strategy:>20}");
    }
    println!();
    let mut times: [Vec<f64>; STRATEGIES.len()] = Default::default();
    let (mut bugs, mut by_none) = (0, 0);
    for structure in &drivers(root, only) {
        generate(tool, folder, structure, OPERATIONS);
        build(tool, folder, structure, None);
        print!("{:<14}{:<22}", structure.name, "-");
        for strategy in STRATEGIES {
            let tested = crash(tool, folder, strategy, &["--time", budget]);
            let cut = if tested.cut_short { " cut" } else { "" };
            let wrong = if tested.findings > 0 { " FAILS" } else { "" };
            print!(
                "{:>20}",
                format!("{} ({:.0} s{cut}){wrong}", tested.states, tested.seconds)
            );
        }
        println!();
        for bug in &structure.bugs {
            bugs += 1;
            build(tool, folder, structure, Some(bug));
            print!("{:<14}{bug:<22}", structure.name);
            let mut found = false;
            for (times, strategy) in times.iter_mut().zip(STRATEGIES) {
                let tested = crash(tool, folder, strategy, &["--fail-fast", "--time", budget]);
                let text = match tested.found {
                    Some((states, seconds)) => format!("{states} ({seconds:.2} s)"),
                    None => format!("- ({})", tested.states),
                };
                print!("{text:>20}");
                found |= tested.found.is_some();
                times.extend(tested.found.map(|(_, seconds)| seconds));
            }
            println!();
            by_none += usize::from(!found);
        }
        // After each structure: a run that is stopped leaves what it has.
        draw(root, &times, bugs);
    }
    for (name, times) in STRATEGIES.iter().zip(&times) {
        println!("{name}: {} of {bugs} bugs", times.len());
    }
    println!("by none: {by_none}\nbugs over time: bench/{PICTURE}");
}

/// Conditions, states and time from 500 operations to 10,000, for the fixed structures.
pub fn growth(root: &Path, tool: &Path, folder: &Path, only: &str) {
    println!("\ngrowth: seconds to record dependences, to infer, and to test what violates a condition (one worker)");
    println!(
        "{:<14}{:>12}{:>12}{:>12}{:>12}{:>12}{:>12}",
        "structure", "operations", "conditions", "record s", "infer s", "states", "test s"
    );
    for structure in &drivers(root, only) {
        build(tool, folder, structure, None);
        for operations in [500, 1000, 2000, 5000, 10_000] {
            generate(tool, folder, structure, operations);
            let _ = std::fs::remove_file(folder.join("pool"));
            let start = Instant::now();
            let mut record = Command::new(tool);
            record.args(["record", "-o", "trace", "--", "./program", "pool", "--ops", "ops"]);
            quiet(record.current_dir(folder), &[0]);
            let recorded = start.elapsed().as_secs_f64();
            let start = Instant::now();
            let mut infer = Command::new(tool);
            infer.args(["infer", "--json", "conditions.json", "trace"]);
            quiet(infer.current_dir(folder), &[0]);
            let inferred = start.elapsed().as_secs_f64();
            let inferred_json = read_json(&folder.join("conditions.json"));
            let rules = inferred_json["rules"].as_array().map(Vec::as_slice).unwrap_or_default();
            let conditions: u64 = rules.iter().filter_map(|rule| rule["conditions"].as_u64()).sum();
            let tested = crash(tool, folder, "conditions", &["--time", "10m"]);
            println!(
                "{:<14}{operations:>12}{conditions:>12}{recorded:>12.2}{inferred:>12.2}{:>12}{:>12.1}{}",
                structure.name,
                tested.states,
                tested.seconds,
                if tested.cut_short { " cut" } else { "" }
            );
        }
    }
}

fn draw(root: &Path, times: &[Vec<f64>], bugs: usize) {
    let curves: Vec<Curve<'_>> = STRATEGIES
        .iter()
        .zip(times)
        .map(|(name, seconds)| Curve {
            name,
            seconds: seconds.clone(),
        })
        .collect();
    let picture = plot::svg(&curves, bugs);
    std::fs::write(root.join("bench").join(PICTURE), picture).expect("the picture can be written");
}

/// The programs of `corpus/drivers`, and those of `corpus/structures` that `-DDRIVER` makes one.
fn drivers(root: &Path, only: &str) -> Vec<Structure> {
    let mut drivers = structures(&root.join("corpus/drivers"), only);
    let others = structures(&root.join("corpus/structures"), only).into_iter();
    drivers.extend(others.filter(|structure| {
        let text = source(structure);
        text.contains("kv.h\"") || text.contains("#ifdef DRIVER")
    }));
    for driver in &mut drivers {
        // Bugs that only a verifier sees.
        let text = source(driver);
        let unseen: String = text
            .lines()
            .filter(|line| line.contains("Output does not show "))
            .collect();
        driver.bugs.retain(|bug| !unseen.contains(bug.as_str()));
    }
    drivers
}

fn source(structure: &Structure) -> String {
    std::fs::read_to_string(&structure.source).expect("a readable source")
}

fn generate(tool: &Path, folder: &Path, structure: &Structure, count: u32) {
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
    let mut command = Command::new(tool);
    command.args([
        "ops",
        "generate",
        "--keys",
        "1..200",
        "-o",
        "ops",
        "--count",
        &count.to_string(),
    ]);
    for template in templates {
        command.args(["--op", template]);
    }
    quiet(command.current_dir(folder), &[0]);
}

fn build(tool: &Path, folder: &Path, structure: &Structure, bug: Option<&str>) {
    let (driver, standard) = match structure.name.ends_with(".cpp") {
        true => ("c++", "-std=gnu++17"),
        false => ("cc", "-std=gnu11"),
    };
    let mut command = Command::new(tool);
    command.args([driver, "--deps", "-g", "-O2", "-DDRIVER", standard]);
    command.args(bug.map(|bug| format!("-D{bug}")));
    command.arg(&structure.source);
    command.args(source(structure).contains("libpmemobj.h").then_some("-lpmemobj"));
    crate::compile(&mut command, &folder.join("program"));
}

fn crash(tool: &Path, folder: &Path, strategy: &str, limits: &[&str]) -> Tested {
    let json = folder.join("report.json");
    let _ = std::fs::remove_file(folder.join("pool"));
    let _ = std::fs::remove_file(&json);
    let mut command = Command::new(tool);
    command.args([
        "crash",
        "--oracle",
        "output",
        "--ops",
        "ops",
        "--jobs",
        "1",
        "--json",
        "report.json",
    ]);
    command.args(["--strategy", strategy]).args(limits);
    command.args(["--", "./program", "pool"]);
    quiet(command.current_dir(folder), &[0, 1]);
    let report = read_json(&json);
    let stats = &report["stats"];
    let first = &stats["first_failure"];
    Tested {
        states: stats["states_tested"].as_u64().expect("a number"),
        seconds: stats["seconds"].as_f64().expect("a number"),
        cut_short: stats["cut_short"].as_bool().expect("a truth value"),
        found: first["states"].as_u64().zip(first["seconds"].as_f64()),
        findings: report["findings"].as_array().map_or(0, Vec::len),
    }
}

fn quiet(command: &mut Command, allowed: &[i32]) {
    let output = command.stdin(Stdio::null()).output().expect("crashproof runs");
    assert!(
        output.status.code().is_some_and(|code| allowed.contains(&code)),
        "{command:?} ended with {}:\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
}

fn read_json(path: &PathBuf) -> Value {
    let text = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_slice(&text).expect("JSON")
}
