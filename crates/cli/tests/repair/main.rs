//! The programs of `corpus/repair`: each is repaired by `crashproof repair`, which verifies the patch (built by the same command, recorded and checked
//! again, same output). The fixes must be those that the program's comments say, and `git apply` must take the diff.
//!
//! Each program is a test of its own, named after it: `cargo test --test repair -- inter/` runs those of a group.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use libtest_mimic::{Arguments, Conclusion, Failed, Trial};
use serde_json::Value;

#[path = "../corpus/annotation.rs"]
mod annotation;
mod case;
#[path = "../support/mod.rs"]
mod support;

use annotation::{Need, kind_name};
use case::Case;

fn main() -> std::process::ExitCode {
    let arguments = Arguments::from_args();
    let cases = match case::all() {
        Ok(cases) => cases,
        Err(error) => panic!("{error}"),
    };
    let trials = cases.into_iter().map(trial).collect();
    let Conclusion { num_failed, .. } = libtest_mimic::run(&arguments, trials);
    std::process::ExitCode::from(if num_failed == 0 { 0 } else { 101 })
}

fn trial(case: Case) -> Trial {
    Trial::test(case.name.clone(), move || test(&case).map_err(Failed::from))
}

fn test(case: &Case) -> Result<(), String> {
    let base = Path::new(env!("CARGO_TARGET_TMPDIR")).join("repair").join(&case.name);
    let _ = std::fs::remove_dir_all(&base);
    let (source, diff, json) = (base.join("source"), base.join("patch.diff"), base.join("outcome.json"));
    case.copy_to(&source)?;
    let mut command = support::crashproof();
    command
        .current_dir(&source)
        .arg("repair")
        .arg("--build")
        .arg(&case.build);
    command
        .arg("--out")
        .arg(&diff)
        .arg("--json")
        .arg(&json)
        .args(&case.options);
    // Not what the user of this machine has chosen.
    command.args(["--", "./app", "pool"]).env_remove("CC").env_remove("CXX");
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    let told = format!("{}\n{}", support::text(&output.stderr), read(&diff));
    judge(case, &output, &json, &source).map_err(|error| format!("{error}\n{told}"))?;
    apply(case, &source, &diff).map_err(|error| format!("{error}\n{told}"))
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

fn judge(case: &Case, output: &Output, json: &Path, source: &Path) -> Result<(), String> {
    if output.status.code() != Some(case.exit) {
        return Err(format!("{} and not status {}", output.status, case.exit));
    }
    let outcome: Value = serde_json::from_str(&read(json)).map_err(|error| format!("{}: {error}", json.display()))?;
    annotated(case, &outcome, source)?;
    let fixes = fixes(&outcome);
    let expected: Vec<String> = case.fixes.iter().filter(|fix| *fix != "nothing").cloned().collect();
    if !same(&fixes, &expected) {
        return Err(format!("the fixes are {fixes:?} and not {expected:?}"));
    }
    if outcome["diff"] != "" && outcome["verification"]["verified"] != true {
        return Err(format!("not verified: {}", outcome["verification"]));
    }
    if outcome["diff"] != "" && outcome["verification"]["output"] != "same" {
        return Err(format!("its output is not the same: {}", outcome["verification"]));
    }
    match &case.refuses {
        Some(words) if !support::text(&output.stderr).contains(words.as_str()) => {
            Err(format!("it does not say {words:?}"))
        }
        _ => Ok(()),
    }
}

/// The findings are those of the annotations.
fn annotated(case: &Case, outcome: &Value, source: &Path) -> Result<(), String> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let source = source.canonicalize().unwrap_or_else(|_| source.to_owned());
    let found: Vec<(String, PathBuf, u64)> = list(&outcome["findings"])
        .iter()
        .map(|finding| {
            let file = Path::new(finding["file"].as_str().unwrap_or_default());
            let kind = finding["kind"].as_str().unwrap_or_default().to_owned();
            let file = file.strip_prefix(&source).unwrap_or(file).to_owned();
            (kind, file, finding["line"].as_u64().unwrap_or_default())
        })
        .collect();
    for expectation in case
        .expectations
        .iter()
        .filter(|expectation| expectation.need == Need::Must && !expectation.in_stack)
    {
        let key = (
            kind_name(expectation.kind),
            expectation.file.clone(),
            u64::from(expectation.line),
        );
        if !found.contains(&key) {
            return Err(format!(
                "the program has no {} at {}:{}, only {found:?}",
                key.0,
                key.1.display(),
                key.2
            ));
        }
    }
    Ok(())
}

/// What was done, in the words of the README.
fn fixes(outcome: &Value) -> Vec<String> {
    let empty = Vec::new();
    let list = |name: &str| outcome[name].as_array().unwrap_or(&empty).iter();
    let in_words = |fix: &Value| {
        let (kind, edit) = fix["edit"].as_object().and_then(|edit| edit.iter().next())?;
        // Only what is in the source is a fix of the source.
        (fix["in_source"] == true).then_some(())?;
        let fence = if edit["fence"] == true { "+fence" } else { "" };
        let original = |clone: &Value| {
            let clone = list("clones").find(|known| &known["name"] == clone);
            clone
                .and_then(|clone| clone["original"].as_str())
                .unwrap_or_default()
                .to_owned()
        };
        Some(match kind.as_str() {
            "subprogram" => format!("subprogram{fence} {}", original(&edit["clone"])),
            kind => format!("{kind}{fence}"),
        })
    };
    let left = list("findings")
        .filter(|finding| finding["state"] == "left")
        .map(|_| "left".to_owned());
    let mut fixes: Vec<String> = list("fixes").filter_map(in_words).chain(left).collect();
    fixes.sort();
    fixes
}

/// A function is given by its name, or a part of its linkage name.
fn same(fixes: &[String], expected: &[String]) -> bool {
    let matches = |(fix, expected): (&String, &String)| match (fix.split_once(' '), expected.split_once(' ')) {
        (Some((fix, function)), Some((expected, name))) => fix == expected && function.contains(name),
        _ => fix == expected,
    };
    fixes.len() == expected.len() && fixes.iter().zip(expected).all(matches)
}

fn apply(case: &Case, source: &Path, diff: &Path) -> Result<(), String> {
    if read(diff).is_empty() {
        return Ok(());
    }
    // A folder that is no repository of its own must not be taken for a part of the one around it.
    let mut git = Command::new("git");
    git.current_dir(source)
        .env("GIT_CEILING_DIRECTORIES", source.parent().unwrap_or(source));
    let applied = git
        .arg("apply")
        .arg(diff)
        .output()
        .map_err(|error| format!("git: {error}"))?;
    if !applied.status.success() {
        return Err(format!("git apply: {}", support::text(&applied.stderr)));
    }
    for (file, expected) in case.expected() {
        let patched = read(&source.join(&file));
        if patched != expected {
            return Err(format!(
                "the patched {} is\n{patched}\nand not\n{expected}",
                file.display()
            ));
        }
    }
    Ok(())
}
