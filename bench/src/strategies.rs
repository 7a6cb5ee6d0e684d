//! Strategies of crash testing side by side, on the structures of `corpus/structures` at 2,000 operations: how many behaviours,
//! groups and states each has without a bug, and after how many states and how long each finds each seeded bug.
//! Writes bugs over time as a picture beside this crate.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::plot::{self, Curve};

const OPERATIONS: &str = "2000";
const SEED: &str = "7";
/// What a strategy may take, if the command line does not say.
const BUDGET: &str = "2m";
const PICTURE: &str = "bugs-over-time.svg";

/// Name, and options of `crashproof crash`.
const STRATEGIES: [(&str, &[&str]); 3] = [
    ("dpor", &["--strategy", "dpor"]),
    ("Squint", &["--strategy", "representative", "--no-joint"]),
    ("ours", &["--strategy", "representative"]),
];

/// A program of the corpus, and the macros that seed its bugs.
pub struct Structure {
    pub name: String,
    pub source: PathBuf,
    pub bugs: Vec<String>,
}

/// How long a strategy takes to the end, or to the first state that fails.
struct Tested {
    states: u64,
    seconds: f64,
    cut_short: bool,
    found: Option<(u64, f64)>,
    stats: Value,
}

/// `budget` as `--time` has it; only structures whose name contains `only`.
pub fn measure(root: &Path, tool: &Path, folder: &Path, budget: Option<&str>, only: &str) {
    let budget = budget.unwrap_or(BUDGET);
    let structures = structures(&root.join("corpus/structures"), only);
    println!(
        "\nstrategies: {OPERATIONS} operations, one worker, at most {budget} each. For each structure behaviours, groups, and the states"
    );
    println!(
        "of each strategy without a bug (cut: the time ended it); then the states until it finds each seeded bug (- (N): not in N)"
    );
    println!(
        "{:<14}{:<22}{:>11}{:>8}{:>12}{:>18}{:>18}{:>18}",
        "structure", "bug", "behaviours", "groups", "exhaustive", "dpor", "Squint", "ours"
    );
    let mut times: [Vec<f64>; 3] = Default::default();
    let mut bugs = 0;
    for structure in &structures {
        let program = build(tool, folder, structure, None);
        let tested = STRATEGIES.map(|(_, options)| crash(tool, &program, options, &["--time", budget]));
        print_fixed(structure, &tested);
        for bug in &structure.bugs {
            bugs += 1;
            let program = build(tool, folder, structure, Some(bug));
            print!("{:<14}{bug:<22}{:>31}", structure.name, "");
            for (times, (_, options)) in times.iter_mut().zip(STRATEGIES) {
                let tested = crash(tool, &program, options, &["--fail-fast", "--time", budget]);
                let text = match tested.found {
                    Some((states, seconds)) => format!("{states} ({seconds:.2} s)"),
                    None => format!("- ({})", tested.states),
                };
                print!("{text:>18}");
                times.extend(tested.found.map(|(_, seconds)| seconds));
            }
            println!();
        }
        draw(root, &times, bugs);
    }
    for ((name, _), times) in STRATEGIES.iter().zip(&times) {
        println!("{name}: {} of {bugs} bugs", times.len());
    }
    println!("bugs over time: bench/{PICTURE}");
}

/// After each structure: a run that is stopped leaves what it has.
fn draw(root: &Path, times: &[Vec<f64>; 3], bugs: usize) {
    let curve = |((name, _), seconds): (&(&'static str, &[&str]), &Vec<f64>)| Curve {
        name,
        seconds: seconds.clone(),
    };
    let curves: Vec<Curve<'_>> = STRATEGIES.iter().zip(times).map(curve).collect();
    let picture = plot::svg(&curves, bugs);
    std::fs::write(root.join("bench").join(PICTURE), picture).expect("the picture can be written");
}

fn print_fixed(structure: &Structure, tested: &[Tested; 3]) {
    let [dpor, _, ours] = tested;
    let behaviours = &ours.stats["behaviours"];
    let sum = |a: &str, b: &str| behaviours[a].as_u64().unwrap_or(0) + behaviours[b].as_u64().unwrap_or(0);
    let exhaustive = match dpor.stats["states_total"].as_u64() {
        Some(u64::MAX) | None => "> 1.8e19".to_owned(),
        Some(states) if states >= 10_000_000 => format!("{:.1e}", states as f64),
        Some(states) => states.to_string(),
    };
    print!(
        "{:<14}{:<22}{:>11}{:>8}{exhaustive:>12}",
        structure.name,
        "-",
        sum("single", "joint"),
        sum("single_groups", "joint_groups")
    );
    for tested in tested {
        let cut = if tested.cut_short { " cut" } else { "" };
        print!("{:>18}", format!("{} ({:.0} s{cut})", tested.states, tested.seconds));
        assert!(tested.found.is_none(), "{} without a bug fails", structure.name);
    }
    println!();
}

/// The programs of the folder whose name contains `only`.
pub fn structures(folder: &Path, only: &str) -> Vec<Structure> {
    let entries = std::fs::read_dir(folder).expect("the corpus lies beside the bench");
    let mut sources: Vec<PathBuf> = entries.map(|e| e.expect("a readable folder").path()).collect();
    sources.retain(|path| path.extension().is_some_and(|e| e == "c" || e == "cpp"));
    sources.sort();
    let read = |source: PathBuf| {
        let text = std::fs::read_to_string(&source).expect("a readable source");
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let mut bugs: Vec<String> = words.filter(|w| w.starts_with("BUG_")).map(str::to_owned).collect();
        bugs.sort();
        bugs.dedup();
        let name = source.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Structure { name, source, bugs }
    };
    let mut structures: Vec<_> = sources.into_iter().map(read).collect();
    structures.retain(|structure| structure.name.contains(only));
    structures
}

fn build(tool: &Path, folder: &Path, structure: &Structure, bug: Option<&str>) -> PathBuf {
    let program = folder.join("program");
    let (driver, standard) = match structure.name.ends_with(".cpp") {
        true => ("c++", "-std=gnu++17"),
        false => ("cc", "-std=gnu11"),
    };
    let mut command = Command::new(tool);
    command.args([driver, "-g", "-O2", standard]);
    command.args(bug.map(|bug| format!("-D{bug}")));
    command.arg(&structure.source).arg("-lpthread");
    crate::compile(&mut command, &program);
    program
}

fn crash(tool: &Path, program: &Path, strategy: &[&str], limits: &[&str]) -> Tested {
    let folder = program.with_file_name("");
    let json = folder.join("report.json");
    let _ = std::fs::remove_file(folder.join("pm"));
    let _ = std::fs::remove_file(&json);
    let mut command = Command::new(tool);
    command
        .args(["crash", "--jobs", "1", "--json", "report.json"])
        .args(strategy)
        .args(limits);
    command.args(["--recover", &format!("./program verify pm {SEED}"), "--"]);
    command.args(["./program", "load", "pm", OPERATIONS, SEED]);
    let done = command.current_dir(&folder).stdout(Stdio::null()).stderr(Stdio::null());
    let status = done.status().expect("crashproof runs");
    assert!(matches!(status.code(), Some(0 | 1)), "{command:?} ended with {status}");
    let report: Value = serde_json::from_slice(&std::fs::read(&json).expect("a report")).expect("JSON");
    let stats = report["stats"].clone();
    let first = &stats["first_failure"];
    Tested {
        states: stats["states_tested"].as_u64().expect("a number"),
        seconds: stats["seconds"].as_f64().expect("a number"),
        cut_short: stats["cut_short"].as_bool().expect("a truth value"),
        found: first["states"].as_u64().zip(first["seconds"].as_f64()),
        stats,
    }
}
