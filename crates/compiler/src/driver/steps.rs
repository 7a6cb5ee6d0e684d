//! The arguments of each step, made from those of clang's own compilation (`clang -cc1`).
//!
//! At this level clang does not warn of options that a step has no use for, so each step gets all of them, less those by which
//! it would write a file that another step writes.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::jobs::{Job, Makes};

/// Options that say what a compilation makes.
const ACTIONS: &[&str] = &["-emit-obj", "-S", "-emit-llvm-bc", "-emit-llvm"];

/// By these the front end writes files or speaks about the source: step (a) does that. With a value in the next word.
const OF_FRONT_END: &[&str] = &[
    "-dependency-file",
    "-MT",
    "-MQ",
    "-header-include-file",
    "-dependency-dot",
    "-module-dependency-dir",
    "-serialize-diagnostic-file",
    "-diagnostic-log-file",
    "-stats-file",
];
const OF_FRONT_END_ALONE: &[&str] = &[
    "-v",
    "-H",
    "-sys-header-deps",
    "-MP",
    "-MG",
    "-ftime-report",
    "-print-stats",
];

/// By these the optimiser writes files: step (b) does that. With a value in the next word.
const OF_OPTIMISER: &[&str] = &["-opt-record-file", "-opt-record-passes", "-opt-record-format"];

/// Clang's own compilation, with what the instrumentation needs.
pub(super) fn with_debug_info(job: &Job) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = Vec::with_capacity(job.arguments.len() + 6);
    let mut dwarf_version = false;
    for argument in &job.arguments {
        let bytes = argument.as_bytes();
        dwarf_version |= bytes.starts_with(b"-dwarf-version=");
        if !bytes.starts_with(b"-debug-info-kind=") && !bytes.starts_with(b"-mframe-pointer=") {
            arguments.push(argument.clone());
        }
    }
    // Types and lines of every access. (`-g` leaves out classes whose constructor is elsewhere.) The user may have asked for more.
    let standalone = job.has("-debug-info-kind=standalone");
    let kind = if standalone {
        "-debug-info-kind=standalone"
    } else {
        "-debug-info-kind=limited"
    };
    let mut added = vec![kind, "-mframe-pointer=all"];
    if !dwarf_version {
        added.push("-dwarf-version=5");
    }
    // The first word is `-cc1`, the last three are the input.
    arguments.splice(1..1, added.into_iter().map(OsString::from));
    arguments
}

/// (a) From the source to bitcode as the front end makes it for this level of optimisation.
///
/// At `-O0` the front end leaves out the bodies of C's `inline` functions without an external definition, with which a program that is built with
/// optimisation links. Repair mode, which is `-O0` whatever the program is built with, has them made as at `-O1`, and nothing else.
pub(super) fn front_end(job: &Job, repair: bool, output: &Path) -> Vec<OsString> {
    let job = Job {
        program: job.program.clone(),
        arguments: without(job, OF_OPTIMISER, &[]),
    };
    let mut arguments = with_debug_info(&job);
    act(&mut arguments, "-emit-llvm-bc", output);
    arguments.insert(1, "-disable-llvm-passes".into());
    let is_c = job
        .input()
        .is_some_and(|(language, _)| language == "c" || language == "cpp-output");
    if repair && is_c {
        for level in arguments.iter_mut().filter(|argument| *argument == "-O0") {
            *level = "-O1".into();
        }
        let as_without = ["-disable-lifetime-markers", "-relaxed-aliasing", "-U", "__OPTIMIZE__"];
        arguments.splice(1..1, as_without.map(OsString::from));
    }
    arguments
}

/// (b) Optimises it.
pub(super) fn optimise(job: &Job, input: &Path, output: &Path) -> Vec<OsString> {
    let mut arguments = without(job, OF_FRONT_END, OF_FRONT_END_ALONE);
    act(&mut arguments, "-emit-llvm-bc", output);
    from_bitcode(&mut arguments, input);
    arguments
}

/// (d) Makes what was asked for of what (c) made.
pub(super) fn generate(job: &Job, makes: Makes, input: &Path, output: &OsStr) -> Vec<OsString> {
    let both: Vec<&str> = [OF_FRONT_END, OF_OPTIMISER].concat();
    let mut arguments = without(job, &both, OF_FRONT_END_ALONE);
    let action = match makes {
        Makes::Object => "-emit-obj",
        Makes::Assembly => "-S",
        Makes::Bitcode => "-emit-llvm-bc",
    };
    act(&mut arguments, action, Path::new(output));
    from_bitcode(&mut arguments, input);
    arguments.insert(1, "-disable-llvm-passes".into());
    arguments
}

fn without(job: &Job, with_value: &[&str], alone: &[&str]) -> Vec<OsString> {
    let is = |argument: &OsString, options: &[&str]| options.iter().any(|option| argument == option);
    let mut kept = Vec::with_capacity(job.arguments.len());
    let mut words = job.arguments.iter();
    while let Some(word) = words.next() {
        if is(word, with_value) {
            words.next();
        } else if !is(word, alone) && !word.as_bytes().starts_with(b"-ftime-trace") {
            kept.push(word.clone());
        }
    }
    kept
}

fn act(arguments: &mut Vec<OsString>, action: &str, output: &Path) {
    for argument in arguments.iter_mut() {
        if ACTIONS.iter().any(|other| argument == other) {
            *argument = action.into();
        }
    }
    match arguments.iter().position(|argument| argument == "-o") {
        Some(at) if at + 1 < arguments.len() => arguments[at + 1] = output.into(),
        _ => {
            arguments.splice(1..1, ["-o".into(), output.into()]);
        }
    }
}

fn from_bitcode(arguments: &mut Vec<OsString>, input: &Path) {
    arguments.truncate(arguments.len().saturating_sub(3));
    arguments.extend(["-x".into(), "ir".into(), input.into()]);
}
