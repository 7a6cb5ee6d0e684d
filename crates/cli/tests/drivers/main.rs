//! The drivers of `corpus/drivers` and `corpus/structures`: each obeys the protocol of docs/drivers.md and does what a model does; crashed
//! and judged by its output alone, it is silent, and with a seeded bug it is not.
//!
//! `cargo test --test drivers -- wort` runs those of one structure. The runs are short, with one bug of each structure; `crashproof-bench drivers` has
//! the long ones with all of them.

use libtest_mimic::{Arguments, Conclusion, Failed, Trial};

mod driver;
mod listing;
mod operations;
mod output;
#[path = "../structures/structure.rs"]
mod structure;
#[path = "../support/mod.rs"]
mod support;

use driver::{Driver, Place};
use operations::generate;
use output::crash;
use structure::Expectation;

/// Enough for each structure to grow or split.
const OPERATIONS: usize = 100;
/// Without a bug nothing ends a test early.
const BUDGET: [&str; 2] = ["--max-states", "150"];
const SEARCH: [&str; 3] = ["--fail-fast", "--max-states", "1500"];

fn main() -> std::process::ExitCode {
    let arguments = Arguments::from_args();
    let drivers = match driver::all() {
        Ok(drivers) => drivers,
        Err(error) => {
            eprintln!("{error}");
            return std::process::ExitCode::from(101);
        }
    };
    let mut trials = Vec::new();
    for driver in &drivers {
        let name = &driver.structure.name;
        let of = driver.clone();
        trials.push(Trial::test(format!("{name} obeys the protocol"), move || {
            obeys(&of).map_err(Failed::from)
        }));
        let of = driver.clone();
        trials.push(Trial::test(format!("{name} with its bugs"), move || {
            bugs_show_only_after_a_crash(&of).map_err(Failed::from)
        }));
        let of = driver.clone();
        trials.push(Trial::test(format!("{name} crashed"), move || {
            silent(&of, &[]).map_err(Failed::from)
        }));
        // A wrong order shows within few operations; the bench has the others.
        let bugs = &driver.structure.bugs;
        let bug = bugs.iter().find(|(bug, _)| bug.ends_with("_ORDER")).or(bugs.first());
        if let Some((bug, expectations)) = bug.cloned() {
            let of = driver.clone();
            trials.push(Trial::test(format!("{name} crashed with {bug}"), move || {
                found(&of, "auto", &[&bug], &expectations).map_err(Failed::from)
            }));
        }
        if name == "figure1.c" {
            trials.extend(figure_1(driver));
        }
    }
    trials.push(Trial::test("there are enough", move || there_are_enough(&drivers)));
    let Conclusion { num_failed, .. } = libtest_mimic::run(&arguments, trials);
    std::process::ExitCode::from(if num_failed == 0 { 0 } else { 101 })
}

fn require(holds: bool, what: impl Fn() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what()) }
}

fn equal(what: &str, got: &[String], expected: &[String]) -> Result<(), String> {
    let differs = (0..got.len().max(expected.len())).find(|&i| got.get(i) != expected.get(i));
    match differs {
        None => Ok(()),
        Some(i) => Err(format!(
            "{what}: line {i} is {:?} instead of {:?}",
            got.get(i),
            expected.get(i)
        )),
    }
}

fn obeys(driver: &Driver) -> Result<(), String> {
    let place = driver.build(None, &[])?;
    let operations = generate(driver.shape, 1500, 1);
    place.write("ops", &operations.text())?;
    let mut expected = operations.output.clone();
    equal("at once", &place.lines("one", &["--ops", "ops"])?, &expected)?;
    expected.push("probe".to_owned());
    expected.extend(operations.probe.iter().cloned());
    // Opened again in between, as after a crash at a quiet moment.
    let mut lines = place.lines("pieces", &["--ops", "ops", "--to", "400"])?;
    lines.extend(place.lines("pieces", &["--ops", "ops", "--from", "400", "--to", "401"])?);
    lines.extend(place.lines("pieces", &["--ops", "ops", "--from", "401", "--probe"])?);
    equal("in three pieces", &lines, &expected)?;

    // One operation left out is the file without its line.
    let mut without = operations.lines.clone();
    without.remove(700);
    let without: String = without.iter().map(|line| format!("{line}\n")).collect();
    place.write("without", &without)?;
    let skipped = place.lines("skip", &["--ops", "ops", "--skip", "700"])?;
    equal(
        "with --skip",
        &skipped,
        &place.lines("pool without", &["--ops", "without"])?,
    )?;

    for (bad, line) in [("frobnicate 1\n", 2), ("\n", 2), ("print 1 2 3 4\n", 2)] {
        place.write("bad", &format!("{}\n{bad}", operations.lines[0]))?;
        let output = place.run("bad pool", &["--ops", "bad"])?;
        let said = support::text(&output.stderr);
        require(
            output.status.code() == Some(2) && said.starts_with(&format!("bad:{line}: ")),
            || format!("{bad:?} gives {}: {said}", output.status),
        )?;
        require(!place.path("bad pool").exists(), || {
            "it did something before it refused".to_owned()
        })?;
    }
    let output = place.run("pool", &["--ops", "ops", "--from", "x"])?;
    require(output.status.code() == Some(2), || {
        "a bad number is accepted".to_owned()
    })
}

/// A seeded bug is one of persistence: without a crash nothing is to be seen.
fn bugs_show_only_after_a_crash(driver: &Driver) -> Result<(), String> {
    let operations = generate(driver.shape, 400, 2);
    for (bug, _) in &driver.structure.bugs {
        let place = driver.build(None, &[bug])?;
        place.write("ops", &operations.text())?;
        let lines = place.lines("pool", &["--ops", "ops"])?;
        equal(bug, &lines, &operations.output)?;
    }
    Ok(())
}

/// The second shape of the paper's example, and all bugs of both.
fn figure_1(driver: &Driver) -> Vec<Trial> {
    const SECOND: &str = "VALUE_AFTER_RETURN";
    let of = driver.clone();
    let mut trials = vec![Trial::test("figure1.c crashed, second shape", move || {
        silent(&of, &[SECOND]).map_err(Failed::from)
    })];
    for shape in [None, Some(SECOND)] {
        let of = driver.clone();
        let name = format!("figure1.c inferred, {} shape", ordinal(shape));
        trials.push(Trial::test(name, move || {
            inferred(&of, shape.as_slice()).map_err(Failed::from)
        }));
    }
    for (bug, expectations) in &driver.structure.bugs {
        for shape in [None, Some(SECOND)] {
            let (of, bug, expectations) = (driver.clone(), bug.clone(), expectations.clone());
            let name = format!(
                "figure1.c {bug}, {} shape",
                if shape.is_some() { "second" } else { "first" }
            );
            trials.push(Trial::test(name, move || {
                let defines: Vec<&str> = shape.into_iter().chain([bug.as_str()]).collect();
                found(&of, "conditions", &defines, &expectations).map_err(Failed::from)
            }));
        }
    }
    trials
}

fn ordinal(shape: Option<&str>) -> &'static str {
    if shape.is_some() { "second" } else { "first" }
}

/// The conditions I1 to I3 of the paper: a key and a value persist before the token that guards them, a value before the key that it is read for.
fn inferred(driver: &Driver, defines: &[&str]) -> Result<(), String> {
    let place = crashable(driver, defines)?;
    let run = |arguments: &[&str]| {
        let mut command = support::crashproof();
        let output = command.current_dir(place.folder()).args(arguments).output();
        let output = output.map_err(|error| format!("{command:?}: {error}"))?;
        require(output.status.success(), || {
            format!(
                "{command:?} ends with {}: {}",
                output.status,
                support::text(&output.stderr)
            )
        })
    };
    run(&["record", "-o", "deps.trace", "--", "./program", "pool", "--ops", "ops"])?;
    run(&["infer", "deps.trace", "--json", "conditions.json"])?;
    let text = std::fs::read_to_string(place.path("conditions.json")).map_err(|error| error.to_string())?;
    let listing: serde_json::Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    let conditions = listing["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    for (before, after) in [("key", "token"), ("value", "token"), ("value", "key")] {
        let is = |place: &serde_json::Value, field: &str| {
            place["field"]
                .as_str()
                .is_some_and(|name| name.trim_end_matches("[]").ends_with(field))
        };
        let condition = conditions.iter().find(|condition| {
            condition["rule"] == "PO3" && is(&condition["before"], before) && is(&condition["after"], after)
        });
        let condition =
            condition.ok_or_else(|| format!("no condition that {before} persists before {after}:\n{listing:#}"))?;
        let because = &condition["because"];
        require(because["function"].is_string() && because["line"].is_u64(), || {
            format!("no reason for {condition:#}")
        })?;
    }
    Ok(())
}

fn crashable(driver: &Driver, defines: &[&str]) -> Result<Place, String> {
    let place = driver.build(Some(&["--deps"]), defines)?;
    place.write("ops", &generate(driver.shape, OPERATIONS, 3).text())?;
    Ok(place)
}

fn silent(driver: &Driver, defines: &[&str]) -> Result<(), String> {
    let crashed = crash(&crashable(driver, defines)?, "auto", &BUDGET)?;
    require(crashed.is_silent(), || {
        format!("exit status {:?}:\n{}", crashed.exit, crashed.stderr)
    })
}

fn found(driver: &Driver, strategy: &str, defines: &[&str], expectations: &[Expectation]) -> Result<(), String> {
    let crashed = crash(&crashable(driver, defines)?, strategy, &SEARCH)?;
    require(driver.structure.names(&crashed.report, expectations), || {
        format!(
            "not found, or elsewhere (exit status {:?}):\n{}",
            crashed.exit, crashed.stderr
        )
    })
}

/// Also of each kind of the paper's table 4, and every bug is of one.
fn there_are_enough(drivers: &[Driver]) -> Result<(), Failed> {
    let bugs: usize = drivers.iter().map(|driver| driver.structure.bugs.len()).sum();
    if drivers.len() < 14 || bugs < 40 {
        return Err(format!("{} drivers with {bugs} bugs", drivers.len()).into());
    }
    let kinds = listing::kinds()?;
    for Driver { structure, .. } in drivers {
        for (bug, _) in &structure.bugs {
            let of = kinds
                .iter()
                .filter(|[name, of, _]| *name == structure.name && of == bug);
            require(of.count() == 1, || {
                format!("{} {bug} is not once in kinds.txt", structure.name)
            })?;
        }
    }
    for kind in listing::KINDS {
        require(kinds.iter().any(|[_, _, of]| of == kind), || {
            format!("no bug is of kind {kind}")
        })?;
    }
    Ok(())
}
