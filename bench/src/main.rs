//! Prints the ratios that the README quotes, each measured side by side in this one run:
//! recording against native (and against pmemcheck, if `PMEMCHECK` names a valgrind that has it), checking in events per
//! second, the memory of checking a long trace, crash testing in states per second, and the strategies of crash testing side by
//! side. Run it with `make bench`; with the argument `crash`, `cc` or
//! `repair [ROUNDS]` or `strategies [TIME [STRUCTURE]]` or `drivers [TIME [STRUCTURE[/BUG] [STRATEGY,…]]]` or `growth [TIME [STRUCTURE]]` or `oracle [STRUCTURE]` it does this part only (`table` prints
//! what those two have left), with `parts` it measures single parts of the runtime, with
//! `plan BINARY` the planning of a repair, with `litmus [SECONDS [ROW]…]` the repair of PMBugAssist's table 3 and, for so long a row, its own encoding.
#![warn(clippy::undocumented_unsafe_blocks)]

mod cc;
mod crash;
mod drivers;
#[path = "../../crates/cli/tests/drivers/listing.rs"]
mod listing;
mod litmus;
mod measure;
mod oracle;
mod parts;
mod plan;
mod plot;
mod repair;
mod results;
mod strategies;
#[path = "../../crates/cli/tests/structures/structure.rs"]
mod structure;
mod synthetic;
mod tested;

use measure::{Measured, fastest};
use std::path::{Path, PathBuf};
use std::process::Command;

const EXAMPLES: &str = "/usr/share/doc/libpmemobj-dev/examples";
const REPEATS: usize = 5;
/// What checking may take, whatever the trace's length.
const MOST_MEMORY: u64 = 200_000_000;

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    // Beside this program, wherever cargo puts its builds.
    let here = std::env::current_exe().expect("a program knows where it is");
    let tool = here.with_file_name("crashproof");
    let folder = tempfile::Builder::new()
        .prefix("crashproof-bench")
        .tempdir()
        .expect("a temporary folder");
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let argument = |at: usize| arguments.get(at).map(String::as_str);
    if argument(0) == Some("litmus") {
        let seconds = argument(1).map(|seconds| seconds.parse().expect("litmus [SECONDS [ROW]…]"));
        return litmus::measure(seconds.unwrap_or(600), arguments.get(2..).unwrap_or_default());
    }
    if argument(0) == Some("table") {
        return results::print(&root);
    }
    assert!(tool.exists(), "{} is missing: run `make bench`", tool.display());
    match argument(0) {
        Some("cc") => return cc::measure(&root, &tool, folder.path()),
        Some("crash") => return crash::measure(&root, &tool, folder.path()),
        Some("oracle") => return oracle::measure(&root, &tool, folder.path(), argument(1).unwrap_or("")),
        Some("plan") => {
            let binary = argument(1).expect("plan BINARY [FINDINGS]: a program built by crashproof cc");
            return plan::measure(Path::new(binary), argument(2));
        }
        Some("parts") => return parts::measure(&root, folder.path()),
        Some("repair") => return repair::measure(&root, &tool, folder.path(), argument(1)),
        Some("drivers") => {
            let only = argument(2).unwrap_or("");
            return drivers::measure(&root, &tool, folder.path(), argument(1), only, argument(3));
        }
        Some("growth") => {
            return drivers::growth(&root, &tool, folder.path(), argument(1), argument(2).unwrap_or(""));
        }
        Some("strategies") => {
            return strategies::measure(&root, &tool, folder.path(), argument(1), argument(2).unwrap_or(""));
        }
        _ => {}
    }
    println!("recording (seconds, fastest of {REPEATS})");
    println!(
        "{:<34}{:>9}{:>10}{:>9}{:>11}{:>9}",
        "", "native", "recorded", "ratio", "pmemcheck", "ratio"
    );
    let raw = build_raw(&root, folder.path());
    // pmemcheck sees PM only where a program tells it, which this one does not.
    recording(
        &tool,
        "512 Ki raw stores, 8 per fence",
        &raw,
        &["POOL", "8"],
        folder.path(),
        None,
    );
    let maps = build_maps(&root, folder.path());
    for map in ["btree", "hashmap_tx", "rbtree"] {
        let name = format!("{map}, 2,000 operations");
        recording(
            &tool,
            &name,
            &maps,
            &[map, "POOL", "2000"],
            folder.path(),
            std::env::var_os("PMEMCHECK"),
        );
    }
    cc::measure(&root, &tool, folder.path());
    checking(&tool, folder.path());
    crash::measure(&root, &tool, folder.path());
    strategies::measure(&root, &tool, folder.path(), None, "");
}

fn build_raw(root: &Path, folder: &Path) -> PathBuf {
    let program = folder.join("raw_stores");
    compile(
        Command::new("gcc")
            .args(["-O2", "-g", "-mclwb"])
            .arg(root.join("bench/raw_stores.c")),
        &program,
    );
    program
}

fn build_maps(root: &Path, folder: &Path) -> PathBuf {
    let program = folder.join("map_driver");
    let here = root.join("crates/cli/tests/pmdk");
    let mut gcc = Command::new("gcc");
    gcc.args(["-O2", "-g", "-w"])
        .arg("-I")
        .arg(&here)
        .arg(here.join("map_driver.c"));
    for sources in ["map", "tree_map", "hashmap", "list_map"] {
        let path = Path::new(EXAMPLES).join(sources);
        gcc.arg("-I").arg(&path);
        let entries = std::fs::read_dir(&path).expect("libpmemobj-dev is installed");
        let names = entries.map(|e| e.expect("a readable folder").path());
        let programs = ["mapcli.c", "data_store.c", "kv_server.c"];
        gcc.args(names.filter(|p| {
            p.extension().is_some_and(|e| e == "c") && !programs.iter().any(|program| p.ends_with(program))
        }));
    }
    compile(gcc.arg("-lpmemobj"), &program);
    program
}

fn compile(command: &mut Command, output: &Path) {
    let done = command.arg("-o").arg(output).status().expect("gcc is installed");
    assert!(done.success(), "{command:?} failed");
}

fn recording(
    tool: &Path,
    name: &str,
    program: &Path,
    arguments: &[&str],
    folder: &Path,
    pmemcheck: Option<std::ffi::OsString>,
) {
    let pool = folder.join("pool");
    let run = |before: &[&std::ffi::OsStr], flags: &[&str]| -> Measured {
        fastest(REPEATS, || {
            let _ = std::fs::remove_file(&pool);
            let mut words = before
                .iter()
                .map(|w| w.to_os_string())
                .chain(flags.iter().map(|f| (*f).into()));
            let mut command = match words.next() {
                Some(first) => Command::new(first),
                None => Command::new(program),
            };
            command.args(words).env("PMEM_IS_PMEM_FORCE", "1");
            if !before.is_empty() {
                command.arg(program);
            }
            for argument in arguments {
                command.arg(if *argument == "POOL" {
                    pool.as_os_str()
                } else {
                    argument.as_ref()
                });
            }
            command
        })
    };
    let native = run(&[], &[]);
    let trace = folder.join("trace");
    let recorded = run(
        &[
            tool.as_os_str(),
            "record".as_ref(),
            "-o".as_ref(),
            trace.as_os_str(),
            "--".as_ref(),
        ],
        &[],
    );
    let ratio = recorded.seconds / native.seconds;
    print!(
        "{name:<34}{:>9.3}{:>10.3}{ratio:>8.1}x",
        native.seconds, recorded.seconds
    );
    match pmemcheck {
        None => println!("{:>11}", "-"),
        Some(valgrind) => {
            let log = format!("--log-file={}", folder.join("pmemcheck.log").display());
            let flags = [
                "--tool=pmemcheck",
                "--log-stores=yes",
                "--log-stores-stacktraces=yes",
                "-q",
                &log,
            ];
            let checked = run(&[valgrind.as_os_str()], &flags);
            println!("{:>11.3}{:>8.1}x", checked.seconds, checked.seconds / recorded.seconds);
        }
    }
}

fn checking(tool: &Path, folder: &Path) {
    println!("\nchecking");
    println!(
        "{:<34}{:>12}{:>10}{:>12}{:>12}",
        "", "events", "GB", "events/s", "memory MB"
    );
    for (name, events, random) in [
        ("short", 1_000_000, false),
        ("log-like stores", 50_000_000, false),
        ("random places", 50_000_000, true),
        ("long, random places", 200_000_000, true),
    ] {
        let trace = folder.join("synthetic.trace");
        synthetic::write(&trace, events, random);
        let bytes = std::fs::metadata(&trace).map_or(0, |m| m.len());
        let is_long = events >= 200_000_000;
        assert!(
            !is_long || bytes >= 1_000_000_000,
            "the long trace has only {bytes} bytes"
        );
        let checked = fastest(1, || {
            let mut command = Command::new(tool);
            command.arg("check").arg(&trace).stderr(std::process::Stdio::null());
            command
        });
        assert!(
            checked.peak_bytes < MOST_MEMORY,
            "checking took {} bytes",
            checked.peak_bytes
        );
        println!(
            "{name:<34}{events:>12}{:>10.2}{:>12.0}{:>12.0}",
            bytes as f64 / 1e9,
            events as f64 / checked.seconds,
            checked.peak_bytes as f64 / 1e6
        );
    }
}
