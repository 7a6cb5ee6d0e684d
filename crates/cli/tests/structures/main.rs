//! The structures of `corpus/structures`, each with its seeded bugs: `representative` must find each, unless `dpor` does not find
//! it within its budget either; without a bug, every strategy must be silent. What debug info says of its stores must be what
//! `crashproof cc` notes of them.
//!
//! Each structure and each bug is a test of its own: `cargo test --test structures -- level.c` runs those of one structure.
//! The runs are short (`make bench` has the long ones).

use libtest_mimic::{Arguments, Conclusion, Failed, Trial};

mod crash;
mod structure;
#[path = "../support/mod.rs"]
mod support;
mod types;

use crash::{Compiler, Crashed, build, crash};
use structure::{Expectation, Structure};

/// Enough for each structure to grow, split or compact several times.
const OPERATIONS: u32 = 100;
/// So few that most allowed states can be tested.
const FEW_OPERATIONS: u32 = 12;
/// Without a bug nothing ends a test early.
const BUDGET: [&str; 2] = ["--max-states", "1000"];
/// With one, `dpor` need not find more than the first finding either.
const SEARCH: [&str; 3] = ["--fail-fast", "--max-states", "4000"];

fn main() -> std::process::ExitCode {
    let arguments = Arguments::from_args();
    let structures = match structure::in_folder("structures") {
        Ok(structures) => structures,
        Err(error) => {
            eprintln!("{error}");
            return std::process::ExitCode::from(101);
        }
    };
    let mut trials = Vec::new();
    for structure in &structures {
        for compiler in Compiler::ALL {
            let of = structure.clone();
            trials.push(Trial::test(
                format!("{} fixed, {}", of.name, compiler.name()),
                move || fixed(&of, compiler).map_err(Failed::from),
            ));
        }
        let of = structure.clone();
        trials.push(Trial::test(format!("{} types", of.name), move || {
            types::compare(&of, OPERATIONS).map_err(Failed::from)
        }));
        for (bug, expectations) in &structure.bugs {
            let (of, bug, expectations) = (structure.clone(), bug.clone(), expectations.clone());
            trials.push(Trial::test(format!("{} {bug}", of.name), move || {
                seeded(&of, &bug, &expectations).map_err(Failed::from)
            }));
        }
    }
    trials.push(Trial::test("there are enough", move || there_are_enough(&structures)));
    let Conclusion { num_failed, .. } = libtest_mimic::run(&arguments, trials);
    std::process::ExitCode::from(if num_failed == 0 { 0 } else { 101 })
}

fn fixed(structure: &Structure, compiler: Compiler) -> Result<(), String> {
    let program = build(structure, None, compiler)?;
    silent(
        "representative",
        &crash(&program, OPERATIONS, "representative", &BUDGET)?,
    )?;
    // How it was built makes no difference to the others.
    if compiler == Compiler::Gcc {
        silent("prefix", &crash(&program, OPERATIONS, "prefix", &[])?)?;
        silent("dpor", &crash(&program, OPERATIONS, "dpor", &BUDGET)?)?;
        silent("exhaustive", &crash(&program, FEW_OPERATIONS, "exhaustive", &BUDGET)?)?;
    }
    Ok(())
}

fn silent(strategy: &str, crashed: &Crashed) -> Result<(), String> {
    if crashed.exit == Some(0) && crashed.report.findings.is_empty() && crashed.report.trace.complete {
        return Ok(());
    }
    Err(format!(
        "{strategy} is not silent (exit status {:?}):\n{}",
        crashed.exit, crashed.stderr
    ))
}

fn seeded(structure: &Structure, bug: &str, expectations: &[Expectation]) -> Result<(), String> {
    let program = build(structure, Some(bug), Compiler::Crashproof)?;
    let representative = crash(&program, OPERATIONS, "representative", &SEARCH)?;
    if representative.finds(structure, expectations) {
        return Ok(());
    }
    let dpor = crash(&program, OPERATIONS, "dpor", &SEARCH)?;
    if dpor.report.findings.is_empty() {
        // A bug that nobody finds is no bug, or needs more operations.
        return Err(format!("neither representative nor dpor finds it:\n{}", dpor.stderr));
    }
    Err(format!(
        "dpor finds it, representative does not, or elsewhere:\n{}\n--- dpor:\n{}",
        representative.stderr, dpor.stderr
    ))
}

fn there_are_enough(structures: &[Structure]) -> Result<(), Failed> {
    if structures.len() < 10 {
        return Err(format!("only {} structures", structures.len()).into());
    }
    match structures.iter().find(|structure| structure.bugs.len() < 3) {
        Some(structure) => Err(format!("{} has fewer than three bugs", structure.name).into()),
        None => Ok(()),
    }
}
