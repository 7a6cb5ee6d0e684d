//! The options of `crashproof repair`.
//!
//! `crashproof` includes this file as well, for its help, completions and man pages: nothing but clap may be needed here.
#![allow(
    rustdoc::broken_intra_doc_links,
    reason = "these comments are the text of --help, where [repair] is a table"
)]

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

/// Repair what a power failure would lose, by a patch of the source that is tested before you see it
///
/// The source is copied and built in the copy with `crashproof cc`; the program is run and checked there. For every missing-flush
/// and missing-fence a fix is planned that can do no harm: it only adds flushes and fences, in place or in a `_persist` variant of the
/// function that stores. Then the patch is verified in another copy: applied, built by your command with your compiler, tested,
/// recorded and checked again. The diff goes to stdout, and `git apply` takes it.
///
/// With a recovery (--recover, or `recover` of the [[test]]) the program is crashed, too: what has to persist before something else is put in that
/// order, and every patch is crash-tested.
///
/// What is not given is taken from [repair] and [[test]] of crashproof.toml.
///
/// Exit status: 0 everything is repaired, 1 something is left (the report says what and why), 2 it could not be done.
#[derive(Debug, Args)]
#[command(
    override_usage = "crashproof repair --build COMMAND [OPTIONS] -- PROGRAM [ARGS]...\n       \
                      crashproof repair --build COMMAND [OPTIONS] TRACE [-- PROGRAM [ARGS]...]\n       \
                      crashproof repair --build COMMAND [OPTIONS] --findings FILE [-- PROGRAM [ARGS]...]",
    after_help = "Examples:\n  crashproof repair --build make -- ./app args…             show the patch\n  \
                  crashproof repair --build make --test 'make check' --apply -- ./app args…\n                                                            \
                  and write it to the source, if all is well\n  \
                  crashproof repair --build '$CC -g -O2 -o app app.c' --explain -- ./app\n                                                            \
                  say why each fix is safe\n  \
                  crashproof repair --build make --setup './app --create pool' --recover './app --verify pool' -- ./app --load pool\n                                                            \
                  crash it, and repair the order of what it stores\n  \
                  crashproof check --json f.json -- ./app; crashproof repair --build make --findings f.json -- ./app"
)]
pub struct RepairArguments {
    /// Builds the program; run by the shell, with $CC and $CXX set [default: `build` of [repair] in crashproof.toml]
    ///
    /// It must use the compiler that CC (and CXX) names, or one that it finds in PATH as cc, gcc, clang, c++, g++ or clang++.
    #[arg(long, value_name = "COMMAND")]
    pub build: Option<String>,

    /// The tests of the program itself, which must still pass [default: `test` of [repair]]
    #[arg(long, value_name = "COMMAND")]
    pub test: Option<String>,

    /// Run before each run of the program, in its folder: makes what the program starts with
    #[arg(long, value_name = "COMMAND")]
    pub setup: Option<String>,

    /// The recovery: the program is crashed, as by `crashproof crash` [default: `recover` of the [[test]]]
    #[arg(long, value_name = "COMMAND", help_heading = CRASHING)]
    pub recover: Option<String>,

    /// Run after each recovery that succeeded, on what it left; must exit with 0
    #[arg(long, value_name = "COMMAND", help_heading = CRASHING)]
    pub check: Option<String>,

    /// What the recovery must print to stdout, exactly
    #[arg(long, value_name = "FILE", help_heading = CRASHING)]
    pub expect_output: Option<PathBuf>,

    /// Which crash states are tested: representative (the default), auto, prefix, dpor, exhaustive, random
    #[arg(long, value_name = "STRATEGY", help_heading = CRASHING)]
    pub strategy: Option<String>,

    /// Crash only from the first event on that has this function in its call path
    #[arg(long, value_name = "FUNCTION", help_heading = CRASHING)]
    pub from: Option<String>,

    /// Crash only up to the first event, after --from, that has this function in its call path
    #[arg(long, value_name = "FUNCTION", help_heading = CRASHING)]
    pub until: Option<String>,

    /// 2: crash the recovery, too
    #[arg(long, value_name = "N", help_heading = CRASHING)]
    pub depth: Option<String>,

    /// What the hardware promises, for checking and crashing: px86 or eadr
    #[arg(long, value_name = "MODEL", help_heading = CRASHING)]
    pub model: Option<String>,

    /// Stores wider than 8 bytes persist as one
    #[arg(long, help_heading = CRASHING)]
    pub no_tear: bool,

    /// Stores within a cache line persist in any order
    #[arg(long, help_heading = CRASHING)]
    pub reorder_in_line: bool,

    /// Each crash test stops after this time, or never: `none` [default: as for crashproof crash]
    #[arg(long, value_name = "TIME", help_heading = CRASHING)]
    pub time: Option<String>,

    /// Each crash test stops after so many states
    #[arg(long, value_name = "N", help_heading = CRASHING)]
    pub max_states: Option<String>,

    /// Recoveries at a time [default: one for each processor]
    #[arg(long, value_name = "N", help_heading = CRASHING)]
    pub jobs: Option<String>,

    /// A recovery that takes longer hangs [default: 20 times what it takes undisturbed, at least 2s]
    #[arg(long, value_name = "TIME", help_heading = CRASHING)]
    pub timeout: Option<String>,

    /// The source tree, which is copied; the build needs nothing outside of it that is relative to it [default: the current folder]
    #[arg(long, value_name = "FOLDER")]
    pub source: Option<PathBuf>,

    /// Write the diff to this file instead of stdout
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,

    /// Write the patch to the source tree once it is verified
    #[arg(long, conflicts_with = "no_verify")]
    pub apply: bool,

    /// Say of each fix where it could go, why it goes where it does and what makes it safe
    #[arg(long)]
    pub explain: bool,

    /// Only fixes at the stores themselves: no persistent variants of functions
    #[arg(long)]
    pub intra_only: bool,

    /// Decide what is persistent memory by the recorded run alone, not by pointer analysis
    #[arg(long)]
    pub trace_aliases: bool,

    /// Remove flushes and fences that an earlier one of the same basic block makes void, too
    #[arg(long)]
    pub performance: bool,

    /// The program has its fences and no flushes: add every flush
    #[arg(long)]
    pub inject_flushes: bool,

    /// Do not build and run the patched program
    #[arg(long)]
    pub no_verify: bool,

    /// Write the repaired program as LLVM bitcode
    #[arg(long, value_name = "FILE")]
    pub out_bitcode: Option<PathBuf>,

    /// Write the repaired program as an executable, made from the bitcode
    #[arg(long, value_name = "FILE")]
    pub out_binary: Option<PathBuf>,

    /// Write what was found, planned and verified as JSON (`-`: to stdout)
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Write the findings as SARIF 2.1.0, with the patch as the fix of those that it repairs
    #[arg(long, value_name = "FILE")]
    pub sarif: Option<PathBuf>,

    /// Keep the copies, traces and logs in this folder, which must not exist or be empty
    #[arg(long, value_name = "FOLDER")]
    pub keep: Option<PathBuf>,

    /// Files whose path matches are persistent memory (repeatable), as for `crashproof check`
    #[arg(long, value_name = "GLOB")]
    pub pm: Vec<String>,

    /// [default: crashproof.toml in the source tree, if there is one]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Repair these findings, which `crashproof check --json`, `crashproof crash --json` or another tool wrote, instead of those of a run
    #[arg(long, value_name = "FILE", conflicts_with = "trace")]
    pub findings: Option<PathBuf>,

    /// Repair what `crashproof check` finds in this trace
    #[arg(value_name = "TRACE")]
    pub trace: Option<PathBuf>,

    /// The program and its arguments
    #[arg(last = true, value_name = "PROGRAM")]
    pub command: Vec<OsString>,
}

const CRASHING: &str = "Crashing";
