//! Programs of `corpus/repair`, repaired as bitcode: the repaired binary prints the same, and `crashproof check` finds nothing in it.
//!
//! Runs `crashproof` and `crashproof-cc`, which `cargo build --release` puts beside `crashproof-repair`.

use std::cell::OnceCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crashproof_finding::{Finding, Kind};
use crashproof_llvm::Context;
use crashproof_program::Program;
use crashproof_repair::bitcode;
use crashproof_repair::observed::Observed;
use crashproof_repair::plan::explain::explain;
use crashproof_repair::plan::{PlanOptions, plan};
use crashproof_trace::TraceReader;

fn binary(name: &str) -> PathBuf {
    crashproof_testing::programs();
    crashproof_testing::file(name)
}

/// Findings of a run of `./app pool`, what the trace shows, and the program's output.
fn check(folder: &Path, app: &Path) -> (Vec<Finding>, Observed, String) {
    let pool = folder.join("pool");
    let trace = folder.join("trace");
    let _ = fs::remove_file(&pool);
    let run = Command::new(binary("crashproof"))
        .args(["record", "-o"])
        .arg(&trace)
        .arg("--")
        .arg(app)
        .arg(&pool)
        .current_dir(folder)
        .output()
        .unwrap();
    let report = Command::new(binary("crashproof"))
        .args(["check", "--json", "-"])
        .arg(&trace)
        .output()
        .unwrap();
    let report: serde_json::Value = serde_json::from_slice(&report.stdout).unwrap();
    let findings = serde_json::from_value(report["findings"].clone()).unwrap();
    let observed = Observed::read(&mut TraceReader::open(&trace).unwrap()).unwrap();
    (findings, observed, String::from_utf8_lossy(&run.stdout).into_owned())
}

fn repair(program: &str, options: &PlanOptions) -> Result<(), String> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../corpus/repair");
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path();
    for from in [corpus.join("common"), corpus.join(program)] {
        for file in fs::read_dir(from).unwrap() {
            let file = file.unwrap();
            fs::copy(file.path(), folder.join(file.file_name())).unwrap();
        }
    }
    let sources: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().file_name().to_string_lossy().into_owned())
        .filter(|name| (name.ends_with(".c") || name.ends_with(".cpp")) && !name.contains(".expected."))
        .collect();
    let is_cpp = sources.iter().any(|name| name.ends_with(".cpp"));
    let status = Command::new(binary("crashproof-cc"))
        .args(is_cpp.then_some("--driver-mode=g++"))
        .args(["-O0", "-Xclang", "-disable-O0-optnone", "-o", "app"])
        .args(sources)
        .current_dir(folder)
        .status()
        .unwrap();
    assert!(status.success(), "{program}");
    let app = folder.join("app");
    let (findings, observed, output) = check(folder, &app);

    let context = Context::create();
    let mut code = Program::load(&app, &context).unwrap();
    let plan = plan(&code, &OnceCell::new(), &findings, &observed, options);
    let words = explain(&plan, &findings, &[]);
    if plan.fixes.is_empty() || !plan.left.is_empty() {
        return Err(format!("not everything is repaired:\n{words}"));
    }
    bitcode::apply(&mut code, &plan).map_err(|error| format!("{error}\n{words}"))?;
    let repaired = folder.join("repaired");
    bitcode::build(&code, &repaired).map_err(|error| format!("{error}\n{words}"))?;
    let (after, _, output_after) = check(folder, &repaired);
    // An existing flush may have become redundant.
    let missing = |finding: &&Finding| matches!(finding.kind, Kind::MissingFlush | Kind::MissingFence);
    if let Some(finding) = after.iter().find(missing) {
        return Err(format!("{words}\n{finding:#?}"));
    }
    match output == output_after {
        true => Ok(()),
        false => Err(format!("it printed {output_after:?} instead of {output:?}")),
    }
}

/// Each kind of edit, and what the source can hardly express.
const PROGRAMS: [&str; 8] = [
    "cxx/virtual",
    "data/non-temporal",
    "data/struct-copy",
    "inter/function-pointer",
    "inter/two-frames-up",
    "intra/fence-missing",
    "intra/flush-missing",
    "macros/several-stores",
];

#[test]
fn repaired_bitcode_is_clean() {
    let options = PlanOptions {
        coalesce: true,
        ..PlanOptions::default()
    };
    let mut failed = Vec::new();
    for program in PROGRAMS {
        if let Err(reason) = repair(program, &options) {
            failed.push(format!("== {program}: {reason}"));
        }
    }
    assert!(
        failed.is_empty(),
        "{} of {}\n{}",
        failed.len(),
        PROGRAMS.len(),
        failed.join("\n")
    );
}
