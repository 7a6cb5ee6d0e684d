//! Judging by output, in states a second: on structures in plainly mapped files, with one worker and with one for each processor, and on
//! libpmemobj pools a run beside what the driver needs by itself (`driver_alone.c`: open, recovery, 64 operations, probe).
//!
//! A rate is that between a short test and a longer one, so that recording, inferring and the first looks at the driver are not in it.

use std::path::Path;
use std::process::{Command, Stdio};

use crashproof_finding::{Report, Stats};

use crate::drivers::{OPERATIONS, build, drivers, generate};
use crate::listing;
use crate::structure::Structure;
use crate::tested::{read_json, run};

const STATES: [&str; 2] = ["500", "3000"];
const RUNS: &str = "300";
/// Operations after the crash, as is the default.
const SUFFIX: u32 = 64;

/// Only structures whose name contains `only`.
pub(crate) fn measure(root: &Path, tool: &Path, folder: &Path, only: &str) {
    println!("\njudged by output: {OPERATIONS} operations, {SUFFIX} after each crash (milliseconds a state)");
    println!(
        "{:<16}{:>10}{:>12}{:>16}{:>8}{:>12}{:>10}",
        "structure", "a state", "states/s", "all processors", "runs", "by itself", "ratio"
    );
    for structure in &drivers(only) {
        generate(tool, folder, structure, OPERATIONS);
        build(tool, folder, structure, None);
        let Some((one, runs)) = state(tool, folder, "1") else {
            println!("{:<16}has too few states", structure.name);
            continue;
        };
        let processors = std::thread::available_parallelism().map_or(1, usize::from).to_string();
        let all = state(tool, folder, &processors).map_or(0.0, |(state, _)| 1e3 / state);
        print!(
            "{:<16}{one:>10.3}{:>12.0}{all:>16.0}{runs:>8.2}",
            structure.name,
            1e3 / one
        );
        if listing::needs_pmemobj(structure).expect("a readable source") {
            let own = alone(root, tool, folder, structure);
            print!("{own:>12.3}{:>9.2}x", one / runs / own);
        }
        println!();
    }
}

/// What a state takes, in milliseconds, and how often the driver runs for it: once on the state, and now and then to know what to expect.
fn state(tool: &Path, folder: &Path, jobs: &str) -> Option<(f64, f64)> {
    let [short, long] = STATES.map(|states| crash(tool, folder, jobs, states));
    let more = long.states_tested.checked_sub(short.states_tested);
    let more = more.filter(|&more| more > 0)? as f64;
    let runs = |stats: &Stats| (stats.recoveries + stats.oracle_runs) as f64;
    let milliseconds = (long.seconds - short.seconds) * 1e3;
    Some((milliseconds / more, (runs(&long) - runs(&short)) / more))
}

fn crash(tool: &Path, folder: &Path, jobs: &str, states: &str) -> Stats {
    let _ = std::fs::remove_file(folder.join("pool"));
    let mut words = vec![
        "crash",
        "--oracle",
        "output",
        "--ops",
        "ops",
        "--strategy",
        "conditions",
    ];
    words.extend(["--jobs", jobs, "--max-states", states, "--json", "report.json"]);
    words.extend(["--", "./program", "pool"]);
    run(tool, folder, &words);
    let report: Report = read_json(&folder.join("report.json"));
    report.stats.expect("a crash test has figures")
}

/// What the driver takes by itself for what it does after a crash in the middle of the operations.
fn alone(root: &Path, tool: &Path, folder: &Path, structure: &Structure) -> f64 {
    // In memory, as the pools of the test are.
    let memory = tempfile::Builder::new()
        .prefix("crashproof-bench")
        .tempdir_in("/dev/shm");
    let memory = memory.expect("a folder in memory");
    let middle = (OPERATIONS / 2).to_string();
    let end = (OPERATIONS / 2 + SUFFIX).to_string();
    let snapshot = memory.path().join("snapshot");
    let mut create = Command::new("./program");
    create
        .arg(&snapshot)
        .args(["--ops", "ops", "--from", "0", "--to", &middle]);
    let created = create.env("PMEM_IS_PMEM_FORCE", "1").current_dir(folder).output();
    assert!(created.is_ok_and(|output| output.status.success()), "{create:?} failed");
    let mut compile = Command::new(tool);
    compile.args(["cc", "-g", "-O2", "-DDRIVER", "-std=gnu11", "-Dmain=driver_main", "-c"]);
    crate::compile(compile.arg(&structure.source), &folder.join("driver.o"));
    let mut link = Command::new(tool);
    link.args(["cc", "-O2"])
        .arg(root.join("bench/driver_alone.c"))
        .arg(folder.join("driver.o"));
    crate::compile(link.arg("-lpmemobj"), &folder.join("alone"));
    let printed = std::fs::File::create(memory.path().join("printed")).expect("a file in memory");
    let output = Command::new("./alone")
        .args([
            RUNS.as_ref(),
            snapshot.as_os_str(),
            memory.path().join("pool").as_os_str(),
        ])
        .args(["--ops", "ops", "--from", &middle, "--to", &end, "--probe"])
        .env("PMEM_IS_PMEM_FORCE", "1")
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(printed)
        .output()
        .expect("the driver runs");
    let text = String::from_utf8_lossy(&output.stderr);
    let own = text.split_whitespace().next().and_then(|own| own.parse().ok());
    own.unwrap_or_else(|| panic!("{} by itself: {text}", structure.name))
}
