//! The buggy programs of `corpus/crash`, repaired by `crashproof repair` from the crash finding to a diff that is verified (built, recorded, checked and
//! crashed again) and that `git apply` takes. `corpus/order/expected.txt` says what has to come of each; `corpus/order/figure2` is the example of PMBugAssist.
//!
//! Each program is a test of its own, named after it: `cargo test --test repair_order -- list/` runs those of an area.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use libtest_mimic::{Arguments, Conclusion, Failed, Trial};
use serde_json::Value;

#[allow(dead_code, reason = "the crash test needs more of it")]
#[path = "../crash_corpus/case.rs"]
mod case;
#[path = "../support/mod.rs"]
mod support;

use case::Case;

/// So many programs with a `crash-order` finding are repaired.
const REPAIRED: usize = 25;

/// What has to come of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Expected {
    Repaired,
    /// The patched program is its fixed twin.
    Twin,
    /// With these words in the report.
    Left(String),
}

impl Expected {
    fn is_repaired(&self) -> bool {
        matches!(self, Expected::Repaired | Expected::Twin)
    }
}

fn main() -> std::process::ExitCode {
    let arguments = Arguments::from_args();
    let expected = match expected() {
        Ok(expected) => expected,
        Err(error) => panic!("{error}"),
    };
    let cases: Vec<Case> = case::all().into_iter().filter(|case| !case.is_fixed()).collect();
    let mut trials = vec![
        Trial::test("every program is in expected.txt", {
            let (cases, expected) = (cases.clone(), expected.clone());
            move || is_complete(&cases, &expected).map_err(Failed::from)
        }),
        Trial::test("figure2", || figure_2().map_err(Failed::from)),
    ];
    trials.extend(cases.into_iter().map(|case| {
        let expected = expected.get(&case.name).cloned();
        Trial::test(case.name.clone(), move || {
            test(&case, expected.as_ref()).map_err(Failed::from)
        })
    }));
    let Conclusion { num_failed, .. } = libtest_mimic::run(&arguments, trials);
    std::process::ExitCode::from(if num_failed == 0 { 0 } else { 101 })
}

fn corpus() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../corpus"))
}

/// `NAME: repaired`, `NAME: repaired, as its twin` or `NAME: left, WORDS`, a line each.
fn expected() -> Result<BTreeMap<String, Expected>, String> {
    let path = corpus().join("order/expected.txt");
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut expected = BTreeMap::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (name, what) = line.split_once(": ").ok_or_else(|| format!("no `: ` in {line:?}"))?;
        let what = match what.split_once(", ") {
            None if what == "repaired" => Expected::Repaired,
            Some(("repaired", "as its twin")) => Expected::Twin,
            Some(("left", words)) => Expected::Left(words.to_owned()),
            _ => {
                return Err(format!(
                    "neither `repaired`, `repaired, as its twin` nor `left, WORDS`: {line:?}"
                ));
            }
        };
        expected.insert(name.to_owned(), what);
    }
    Ok(expected)
}

fn is_complete(cases: &[Case], expected: &BTreeMap<String, Expected>) -> Result<(), String> {
    if let Some(name) = expected
        .keys()
        .find(|name| cases.iter().all(|case| case.name != **name))
    {
        return Err(format!("there is no program {name}"));
    }
    let of_order = |case: &&Case| {
        let order = |finding: &case::Expectation<_>| finding.what == crashproof_finding::Kind::CrashOrder;
        case.findings.iter().any(order) && expected.get(&case.name).is_some_and(Expected::is_repaired)
    };
    let repaired = cases.iter().filter(of_order).count();
    match repaired >= REPAIRED {
        true => Ok(()),
        false => Err(format!("only {repaired} programs with a crash-order are repaired")),
    }
}

/// What a repair wrote.
struct Repaired {
    status: Option<i32>,
    outcome: Value,
    report: String,
    diff: PathBuf,
}

/// A folder of its own, empty.
fn place(name: &str) -> Result<PathBuf, String> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("repair-order").join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(folder.join("source")).map_err(|error| format!("{}: {error}", folder.display()))?;
    Ok(folder)
}

/// In `folder/source`, with the options and the program of `arguments`.
fn repair(folder: &Path, arguments: &[&str]) -> Result<Repaired, String> {
    let (diff, json) = (folder.join("patch.diff"), folder.join("outcome.json"));
    let mut command = support::crashproof();
    command.current_dir(folder.join("source")).arg("repair");
    command.arg("--out").arg(&diff).arg("--json").arg(&json).args(arguments);
    // Not what the user of this machine has chosen.
    command.env_remove("CC").env_remove("CXX");
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    let report = support::text(&output.stderr);
    let outcome =
        serde_json::from_str(&read(&json)).map_err(|error| format!("{}: {error}\n{report}", json.display()))?;
    Ok(Repaired {
        status: output.status.code(),
        outcome,
        report,
        diff,
    })
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

fn copy(from: &Path, to: &Path) -> Result<(), String> {
    let parent = to.parent().unwrap_or(to);
    let text = std::fs::read_to_string(from).map_err(|error| format!("{}: {error}", from.display()))?;
    // Without annotations: they would go where the lines go.
    let text: String = text
        .split_inclusive('\n')
        .map(|line| match line.find("//~") {
            Some(at) => line[..at].trim_end().to_owned() + "\n",
            None => line.to_owned(),
        })
        .collect();
    let written = std::fs::create_dir_all(parent).and_then(|()| std::fs::write(to, text));
    written.map_err(|error| format!("{}: {error}", to.display()))
}

fn test(case: &Case, expected: Option<&Expected>) -> Result<(), String> {
    let folder = place(&case.name)?;
    let (corpus, source) = (corpus(), folder.join("source"));
    // As in the corpus, for the paths of the headers.
    copy(&corpus.join("pm.h"), &source.join("pm.h"))?;
    copy(&corpus.join("crash/app.h"), &source.join("crash/app.h"))?;
    copy(&case.source, &source.join("crash").join(&case.name))?;
    let (compiler, standard) = match case.is_cxx() {
        true => ("$CXX", "gnu++17"),
        false => ("$CC", "gnu11"),
    };
    let pie = if case.directives.no_pie {
        "-fno-pie -no-pie"
    } else {
        "-fpie -pie"
    };
    let build = format!(
        "{compiler} -g -O2 -std={standard} {pie} -o app crash/{} -lpthread {}",
        case.name,
        case.directives.link.join(" ")
    );
    let setup = match case.directives.setup {
        true => "rm -f pool pool.*; ./app setup pool",
        false => "rm -f pool pool.*",
    };
    let mut arguments = vec!["--build", &build, "--setup", setup, "--recover", "./app recover pool"];
    arguments.extend(["--max-states", "2000"]);
    if case.directives.check {
        arguments.extend(["--check", "./app check pool"]);
    }
    if case.directives.hangs {
        arguments.extend(["--timeout", "300ms"]);
    }
    let crash: Vec<String> = case
        .directives
        .crash
        .iter()
        .map(|word| word.replace("{folder}/", &format!("{}/", case.source.with_file_name("").display())))
        .collect();
    arguments.extend(crash.iter().map(String::as_str));
    // The programs are repaired beside each other.
    if !crash.iter().any(|word| word == "--jobs") {
        arguments.extend(["--jobs", "1"]);
    }
    arguments.extend(["--", "./app", "run", "pool"]);
    let repaired = repair(&folder, &arguments)?;
    let told = || format!("{}\n{}", repaired.report, read(&repaired.diff));
    judge(&repaired, expected).map_err(|error| format!("{error}\n{}", told()))?;
    apply(&folder, &repaired.diff).map_err(|error| format!("{error}\n{}", told()))?;
    let patched = || code(&read(&source.join("crash").join(&case.name)));
    match expected {
        Some(Expected::Twin) if patched() != code(&read(&corpus.join("crash").join(case.twin()))) => {
            Err(format!("it is not its twin\n{}", told()))
        }
        _ => Ok(()),
    }
}

/// A program without the comment that it begins with.
fn code(text: &str) -> String {
    let lines = text.lines().skip_while(|line| line.starts_with("//"));
    lines.collect::<Vec<_>>().join("\n")
}

fn judge(repaired: &Repaired, expected: Option<&Expected>) -> Result<(), String> {
    let Repaired { outcome, report, .. } = repaired;
    if outcome["diff"] != "" && outcome["verification"]["verified"] != true {
        return Err(format!("not verified: {}", outcome["verification"]));
    }
    let findings = outcome["findings"].as_array().cloned().unwrap_or_default();
    for finding in findings.iter().filter(|finding| finding["kind"] == "crash-atomicity") {
        let patched = !finding["orders"].is_null() && !expected.is_some_and(Expected::is_repaired);
        if patched || finding["state"] == "left" && finding["advice"].is_null() {
            return Err(format!("no advice, or a patch, for {finding}"));
        }
    }
    let of_crash = |finding: &&Value| finding["kind"].as_str().is_some_and(|kind| kind.starts_with("crash-"));
    if findings.iter().filter(of_crash).count() == 0 {
        return Err("nothing was found by the crash test".to_owned());
    }
    match expected {
        None => Err("it is not in expected.txt".to_owned()),
        Some(Expected::Repaired | Expected::Twin) if repaired.status != Some(0) || outcome["diff"] == "" => {
            Err(format!("status {:?} and not repaired", repaired.status))
        }
        Some(Expected::Left(words)) if repaired.status != Some(1) => {
            Err(format!("status {:?} and not left ({words})", repaired.status))
        }
        Some(Expected::Left(words)) if !report.contains(words.as_str()) => Err(format!("it does not say {words:?}")),
        Some(_) => Ok(()),
    }
}

fn apply(folder: &Path, diff: &Path) -> Result<(), String> {
    if read(diff).is_empty() {
        return Ok(());
    }
    let mut git = Command::new("git");
    // A folder that is no repository of its own must not be taken for a part of the one around it.
    git.current_dir(folder.join("source"))
        .env("GIT_CEILING_DIRECTORIES", folder);
    let applied = git.arg("apply").arg(diff).output();
    let applied = applied.map_err(|error| format!("git: {error}"))?;
    match applied.status.success() {
        true => Ok(()),
        false => Err(format!("git apply: {}", support::text(&applied.stderr))),
    }
}

/// PMBugAssist's example: all of it is in its `crashproof.toml`.
fn figure_2() -> Result<(), String> {
    let folder = place("figure2")?;
    let example = corpus().join("order/figure2");
    for name in ["records.c", "crashproof.toml"] {
        copy(&example.join(name), &folder.join("source").join(name))?;
    }
    let repaired = repair(&folder, &[])?;
    judge(&repaired, Some(&Expected::Repaired)).map_err(|error| format!("{error}\n{}", repaired.report))?;
    apply(&folder, &repaired.diff)?;
    let (patched, expected) = (
        read(&folder.join("source/records.c")),
        read(&example.join("records.expected.c")),
    );
    match patched == expected {
        true => Ok(()),
        false => Err(format!("the patched program is\n{patched}")),
    }
}
