//! The compiler driver: from a command line to objects and programs, as clang would make them, instrumented.
//!
//! Clang itself says what is to be done (`jobs`); each compilation that makes code for this machine is done in the steps (a) to
//! (d) of `pipeline`; all else is executed as clang would. A command that compiles nothing is handed to clang as it is.

mod arguments;
mod clang;
mod database;
mod dependences;
mod help;
mod jobs;
mod pipeline;
mod steps;

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crashproof_interrupt as interrupt;

use crate::CompileError;
use arguments::Arguments;
use clang::{Clang, Language};
use dependences::Tracking;
use jobs::{Job, Makes, Plan};
use pipeline::Compilation;

/// The name under which the program was called decides between C and C++, as it does for clang.
fn language(called_as: &OsStr) -> Language {
    let name = Path::new(called_as).file_name().unwrap_or_default();
    if name.as_bytes().ends_with(b"++") {
        Language::Cpp
    } else {
        Language::C
    }
}

/// Does what the command line asks for; the first word is the name under which the program was called. Returns the exit status.
pub fn main(words: impl IntoIterator<Item = OsString>) -> i32 {
    let mut words = words.into_iter();
    let called_as = words.next().unwrap_or_default();
    let given: Vec<OsString> = words.collect();
    if let [only] = given.as_slice()
        && only == "--help"
    {
        print!("{}", help::TEXT);
        return 0;
    }
    let mut arguments = Arguments::parse(given);
    if std::env::var_os(arguments::REPAIR_VARIABLE).is_some_and(|value| value == "1") {
        arguments.for_repair();
    }
    let status = drive(language(&called_as), arguments).unwrap_or_else(|error| {
        say("error", &error.to_string());
        1
    });
    // Here, where every temporary file is gone.
    if let Some(signal) = interrupt::received() {
        interrupt::die_by(signal);
    }
    status
}

fn drive(language: Language, arguments: Arguments) -> Result<i32, CompileError> {
    let clang = Clang::find(language)?;
    if arguments.lto_dropped {
        say(
            "note",
            "link-time optimisation (-flto) is left out: what is instrumented must not be optimised afterwards",
        );
    }
    if !arguments.may_compile() && !arguments.links_with_dependences() {
        return Err(clang.replace(&arguments.all));
    }
    interrupt::listen();
    let scratch = tempfile::Builder::new()
        .prefix("crashproof-cc-")
        .tempdir()
        .map_err(|source| CompileError::File {
            what: "make a temporary folder in",
            path: std::env::temp_dir(),
            source,
        })?;
    let color = std::io::stderr().is_terminal() && !arguments.choose_color();
    let options: &[&str] = if color { &["-fcolor-diagnostics"] } else { &[] };
    let output = clang.plan(options, &arguments.all, scratch.path())?;
    let plan = Plan::parse(&output.stderr);
    let tracked = |job: &Job| arguments.dependences && dependences::links_program(job);
    if !output.status.success() || !plan.jobs.iter().any(|job| job.makes().is_some() || tracked(job)) {
        drop(scratch);
        if output.status.success() {
            other_targets(&plan);
        }
        // What is wrong with the command, clang says again, and more of it.
        return Err(clang.replace(&arguments.all));
    }
    let _ = std::io::stderr().write_all(&plan.diagnostics);
    let verbose = arguments.has("-v");
    if verbose {
        let _ = std::io::stderr().write_all(&plan.banner);
    }
    let name = match language {
        Language::C => "crashproof-cc",
        Language::Cpp => "crashproof-c++",
    };
    database::write(&arguments, &plan.jobs, name)?;
    let execution = Execution {
        name,
        arguments: &arguments,
        clang: &clang.path,
        scratch: scratch.path(),
        verbose,
    };
    Ok(execution.run(&plan.jobs))
}

/// Code for another machine is not instrumented; nothing there could be recorded.
fn other_targets(plan: &Plan) {
    let triple = plan
        .jobs
        .iter()
        .filter(|job| job.has("-emit-obj"))
        .find_map(|job| job.value("-triple"));
    if let Some(triple) = triple {
        say(
            "note",
            &format!(
                "code for {} is not instrumented, only for x86-64 Linux",
                triple.display()
            ),
        );
    }
}

/// All jobs of one command.
struct Execution<'a> {
    /// The program that compiles so, for the command that is embedded.
    name: &'static str,
    arguments: &'a Arguments,
    clang: &'a Path,
    scratch: &'a Path,
    verbose: bool,
}

impl Execution<'_> {
    /// As clang does: a job that fails does not stop the others, only those that need its result; its status is that of the
    /// command.
    fn run(&self, jobs: &[Job]) -> i32 {
        let mut status = 0;
        let mut failed: HashSet<&OsStr> = HashSet::new();
        for (number, job) in jobs.iter().enumerate() {
            if interrupt::received().is_some() {
                return 1;
            }
            let needs_failed = job
                .arguments
                .iter()
                .any(|argument| failed.contains(argument.as_os_str()));
            let result = if needs_failed { Some(1) } else { self.job(number, job) };
            if let Some(code) = result {
                failed.extend(job.output());
                if status == 0 {
                    status = code;
                }
            }
        }
        status
    }

    /// Executes one; the status if it failed.
    fn job(&self, number: usize, job: &Job) -> Option<i32> {
        if self.verbose {
            let _ = std::io::stderr().write_all(&job.shown());
        }
        let result = match job.makes() {
            Some(Makes::Object | Makes::Assembly) => self.compile(number, job),
            Some(Makes::Bitcode) => self.plain(job, &steps::with_debug_info(job)),
            None => self.plain(job, &job.arguments).and_then(|()| self.track(number, job)),
        };
        let error = result.err()?;
        if let Some(output) = job.output() {
            remove(Path::new(output));
        }
        match error {
            CompileError::Clang { status } => {
                if (!job.is_clang() || status != 1) && interrupt::received().is_none() {
                    let tool = if job.program.as_bytes().ends_with(b"as") {
                        "assembler"
                    } else {
                        "linker"
                    };
                    let tool = if job.is_clang() { "clang frontend" } else { tool };
                    say(
                        "error",
                        &format!("{tool} command failed with exit code {status} (use -v to see invocation)"),
                    );
                }
                Some(status)
            }
            other => {
                say("error", &other.to_string());
                Some(1)
            }
        }
    }

    fn plain(&self, job: &Job, arguments: &[OsString]) -> Result<(), CompileError> {
        let status = clang::run(&job.program, arguments, self.scratch)?;
        if status.success() {
            return Ok(());
        }
        Err(CompileError::Clang {
            status: clang::code(status),
        })
    }

    /// After a link: the program that follows dependences, if it was asked for.
    fn track(&self, number: usize, job: &Job) -> Result<(), CompileError> {
        if !self.arguments.dependences || !dependences::links_program(job) {
            return Ok(());
        }
        Tracking {
            link: job,
            clang: self.clang,
            scratch: self.scratch.join(format!("crashproof-deps-{number}")),
        }
        .run()
    }

    fn compile(&self, number: usize, job: &Job) -> Result<(), CompileError> {
        let words = self
            .arguments
            .all
            .iter()
            .map(|word| word.to_string_lossy().into_owned());
        Compilation {
            job,
            command: std::iter::once(self.name.to_owned()).chain(words).collect(),
            repair: self.arguments.repair,
            scratch: self.scratch.join(format!("crashproof-{number}")),
        }
        .run()
    }
}

/// A result that failed must not be taken for one that succeeded earlier. Devices and pipes stay.
fn remove(path: &Path) {
    if fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_file()) {
        let _ = fs::remove_file(path);
    }
}

fn say(severity: &str, text: &str) {
    eprintln!("crashproof-cc: {severity}: {text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_decides_the_language() {
        for (name, expected) in [
            ("crashproof-cc", Language::C),
            ("/opt/bin/crashproof-c++", Language::Cpp),
            ("c++", Language::Cpp),
            ("/opt/c++/crashproof-cc", Language::C),
            ("", Language::C),
        ] {
            assert_eq!(language(OsStr::new(name)), expected, "{name}");
        }
    }
}
