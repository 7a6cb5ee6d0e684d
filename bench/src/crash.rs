//! Crash testing: states per second on a recovery that opens an 8 MiB image and walks 100 entries, beside what copying the
//! file and starting a process for each state costs, and how states and time grow with the number of operations.

use crate::compile;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// Runs that a figure is taken over.
const RUNS: u32 = 200;

pub(crate) fn measure(root: &Path, tool: &Path, folder: &Path) {
    println!("\ncrash testing, one worker (milliseconds a state)");
    println!(
        "{:<28}{:>8}{:>10}{:>14}{:>12}{:>12}{:>14}",
        "recovery", "states", "a state", "states/s", "by itself", "ratio", "copy + start"
    );
    let walk = build(root, folder, "walk", &["-mclwb"]);
    let pool_walk = build(root, folder, "pool_walk", &["-w", "-lpmemobj"]);
    for (name, program, updates) in [("plain mmap", &walk, 1_000), ("libpmemobj pool", &pool_walk, 100)] {
        // A pool has more states than anybody can test.
        let tested = crash(tool, program, folder, updates, &["exhaustive", "--max-states", "2000"]);
        let image = folder.join("image");
        run(program, &["setup".as_ref(), image.as_os_str()]);
        let own = milliseconds(|| {
            run(
                program,
                &["repeat".as_ref(), image.as_os_str(), RUNS.to_string().as_ref()],
            )
        });
        let copied = milliseconds(|| {
            for _ in 0..RUNS {
                let copy = folder.join("copy");
                std::fs::copy(&image, &copy).expect("room for a copy");
                run(program, &["verify".as_ref(), copy.as_os_str()]);
            }
        });
        let state = tested.seconds * 1e3 / tested.states as f64;
        println!(
            "{name:<28}{:>8}{state:>10.3}{:>14.0}{own:>12.3}{:>11.2}x{copied:>14.3}",
            tested.states,
            1e3 / state,
            state / own,
        );
    }
    println!("\nstates and time as the program does more (plain mmap)");
    println!(
        "{:<12}{:>12}{:>12}{:>12}{:>12}{:>10}",
        "strategy", "operations", "states", "tested", "pruned", "seconds"
    );
    for strategy in ["prefix", "dpor", "exhaustive"] {
        for operations in [100, 1_000, 10_000] {
            let tested = crash(tool, &walk, folder, operations, &[strategy]);
            println!(
                "{strategy:<12}{operations:>12}{:>12}{:>12}{:>12}{:>10.2}",
                tested.total, tested.states, tested.pruned, tested.seconds
            );
        }
    }
}

struct Tested {
    states: u64,
    total: u64,
    pruned: u64,
    seconds: f64,
}

fn crash(tool: &Path, program: &Path, folder: &Path, updates: u32, strategy: &[&str]) -> Tested {
    let image = folder.join("crashed");
    let json = folder.join("crash.json");
    let name = |mode: &str| format!("'{}' {mode} '{}'", program.display(), image.display());
    let status = Command::new(tool)
        .args(["crash", "--jobs", "1", "--strategy"])
        .args(strategy)
        .args(["--setup", &name("setup"), "--recover", &name("verify")])
        .arg("--json")
        .arg(&json)
        .arg("--")
        .arg(program)
        .arg("run")
        .arg(&image)
        .arg(updates.to_string())
        .stderr(Stdio::null())
        .status()
        .expect("crashproof runs");
    assert!(
        status.success(),
        "crash test of {} ended with {status}",
        program.display()
    );
    let report: Value = serde_json::from_slice(&std::fs::read(&json).expect("a report")).expect("JSON");
    let stats = &report["stats"];
    let number = |field: &str| stats[field].as_u64().expect("a number");
    Tested {
        states: number("states_tested"),
        total: stats["states_total"].as_u64().unwrap_or(u64::MAX),
        pruned: number("states_pruned"),
        seconds: stats["seconds"].as_f64().expect("a number"),
    }
}

fn build(root: &Path, folder: &Path, name: &str, flags: &[&str]) -> PathBuf {
    let program = folder.join(name);
    let mut gcc = Command::new("gcc");
    gcc.args(["-O2", "-g"])
        .arg(root.join("bench").join(name).with_extension("c"))
        .args(flags);
    compile(&mut gcc, &program);
    program
}

fn run(program: &Path, arguments: &[&std::ffi::OsStr]) {
    let status = Command::new(program)
        .args(arguments)
        .env("PMEM_IS_PMEM_FORCE", "1")
        .status()
        .expect("the program runs");
    assert!(
        status.success(),
        "{} {arguments:?} ended with {status}",
        program.display()
    );
}

/// For each of `RUNS`.
fn milliseconds(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_secs_f64() * 1e3 / f64::from(RUNS)
}
