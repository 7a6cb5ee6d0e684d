//! The command line, as clap knows it. The texts here are also the man pages and the completions.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ColorChoice, Parser, Subcommand};
use crashproof_campaign::options::{Model, RecordingOptions, RunAllowances};
use crashproof_campaign::project;
use crashproof_check::{Config, ConfigError};

use crate::commands::dump::{EventClass, OffsetRange};

mod crash;
mod exchange;
mod explain;
mod infer;
mod litmus;
mod ops;
mod results;
// The program that repairs is another one; its options are in its crate, and known here for help, completions and man pages.
#[expect(unreachable_pub, reason = "the file is a public module of crashproof-repair")]
#[path = "../../repair/src/arguments.rs"]
mod repair;

pub(crate) use crash::CrashArguments;
pub(crate) use exchange::{ExportArguments, ExportFormat, ImportArguments, Tool};
pub(crate) use explain::ExplainArguments;
pub(crate) use infer::InferArguments;
pub(crate) use litmus::LitmusArguments;
pub(crate) use ops::{GenerateArguments, OpsArguments, OpsCommand, ShrinkArguments};
use repair::RepairArguments;
pub(crate) use results::{Format, ResultOptions};

#[derive(Debug, Parser)]
#[command(
    name = "crashproof",
    version,
    about,
    long_about = "Finds the bugs that lose data when power fails under a program that keeps its data in persistent memory.\n\n\
                  The program is an ordinary x86-64 Linux binary: no annotations, no special build, no persistent-memory hardware. \
                  Compile it with -g to get source lines.",
    after_help = "Examples:\n  crashproof check -- ./app args…     run ./app and say what is wrong\n  \
                  crashproof crash --recover './app --verify pool' -- ./app --load pool\n                                      \
                  crash ./app everywhere, and say from where it does not recover\n  \
                  crashproof repair --build make -- ./app args…\n                                      \
                  patch its source, tested\n  \
                  crashproof test                     do what crashproof.toml says\n  \
                  crashproof doctor                   say what this machine lacks\n\n\
                  `crashproof help COMMAND` says more.",
    max_term_width = 100
)]
pub(crate) struct Arguments {
    /// When to use colours
    #[arg(long, global = true, value_name = "WHEN", default_value_t = ColorChoice::Auto)]
    pub color: ColorChoice,

    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Check(CheckArguments),
    // Boxed: it has many options.
    Crash(Box<CrashArguments>),
    Repair(Box<RepairArguments>),
    Test(TestArguments),
    Init(InitArguments),
    Record(RecordArguments),
    Dump(DumpArguments),
    Explain(ExplainArguments),
    Infer(InferArguments),
    Litmus(LitmusArguments),
    Ops(OpsArguments),
    /// Compile C as clang-19 does, for faster recording and with the types of what is stored
    #[command(after_help = CC_EXAMPLES)]
    Cc(CompilerArguments),
    /// Compile C++ as clang-19 does, for faster recording and with the types of what is stored
    #[command(name = "c++", after_help = CC_EXAMPLES)]
    Cpp(CompilerArguments),
    Import(ImportArguments),
    Export(ExportArguments),
    Header(HeaderArguments),
    /// Say what this machine has and lacks for recording and for crash testing
    Doctor,
    Completions(CompletionsArguments),
    Man(ManArguments),
    /// What `doctor` records to see that recording works.
    #[command(hide = true)]
    SelfTest(SelfTestArguments),
}

/// Run a program and write what it does to persistent memory into a trace
///
/// The program keeps its stdin, stdout and stderr; crashproof exits as the program did. Static and setuid programs cannot
/// be recorded.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  crashproof record -o app.trace -- ./app args…\n  \
                        crashproof record -o app.trace --pm '/mnt/pmem/*' -- ./app args…\n  \
                        crashproof check app.trace")]
pub(crate) struct RecordArguments {
    /// The trace to write
    #[arg(short, long, value_name = "TRACE")]
    pub output: PathBuf,

    #[command(flatten)]
    pub recording: RecordingOptions,

    /// Record the optimised program, also if it was built with `crashproof cc --deps`
    ///
    /// Without it, the version that follows dependences is recorded, as `crashproof infer` needs it.
    #[arg(long)]
    pub no_deps: bool,

    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    pub command: Vec<OsString>,
}

/// Where what is said of the project is read from.
#[derive(Debug, Args)]
pub(crate) struct ProjectOption {
    /// Rules, ignore lists and helpers [default: crashproof.toml in the current folder, if there is one]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

impl ProjectOption {
    pub(crate) fn load(&self) -> Result<Config, ConfigError> {
        Ok(project::load(self.config.as_deref())?.without_tests())
    }
}

/// Say what is wrong with a program, or with a trace of one
///
/// Runs the program, then reports on stderr: stores that are never flushed or fenced, flushes and fences that do nothing,
/// volatile data in persistent memory, and misuse of PMDK transactions. Rules and ignore lists are read from
/// crashproof.toml.
///
/// Exit status: 0 clean, 1 findings that count (--baseline, --fail-on), 2 it could not be done. Also 2, with the reason, when nothing
/// was found and that does not mean clean: the trace is incomplete, the program failed, or it stored nothing to persistent memory. The
/// program's own status is in the report and in the JSON.
#[derive(Debug, Args)]
#[command(
    override_usage = "crashproof check [OPTIONS] -- PROGRAM [ARGS]...\n       crashproof check [OPTIONS] TRACE",
    after_help = "Examples:\n  crashproof check -- ./app args…\n  \
                  crashproof check --pm '/mnt/pmem/*' --json findings.json -- ./app args…\n  \
                  crashproof check --baseline findings.json --fail-on error -- ./app args…\n  \
                  crashproof check --model eadr app.trace"
)]
pub(crate) struct CheckArguments {
    /// What the hardware promises
    #[arg(long, value_name = "MODEL", default_value = "px86")]
    pub model: Model,

    #[command(flatten)]
    pub project: ProjectOption,

    /// Keep the trace of the program in this file
    #[arg(long, value_name = "FILE")]
    pub keep_trace: Option<PathBuf>,

    #[command(flatten)]
    pub recording: RecordingOptions,

    #[command(flatten)]
    pub allowances: RunAllowances,

    #[command(flatten)]
    pub results: ResultOptions,

    /// A trace that `crashproof record` wrote
    #[arg(value_name = "TRACE", conflicts_with_all = ["pm", "client_requests", "locked_rmw", "keep_trace", "command"])]
    pub trace: Option<PathBuf>,

    /// The program and its arguments
    #[arg(last = true, required_unless_present = "trace", value_name = "PROGRAM")]
    pub command: Vec<OsString>,
}

/// Check and crash-test a project, as its crashproof.toml says
///
/// For each [[test]] of the file: `crashproof check`, then, if the test has a recovery, `crashproof crash`. The commands are
/// shown as one would type them. The exit status is the worst of them: 2 something could not be done, else 1 findings, else
/// 0.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  crashproof init            write a crashproof.toml to fill in\n  \
                        crashproof test            all tests of it\n  \
                        crashproof test append     the test named append\n  \
                        crashproof test --baseline known.json --junit tests.xml --sarif findings.sarif\n                             \
                        in CI: fail on what is new"
)]
pub(crate) struct TestArguments {
    /// Only the tests with these names
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,

    /// The file with the tests
    #[arg(long, value_name = "FILE", default_value = "crashproof.toml")]
    pub config: PathBuf,

    #[command(flatten)]
    pub results: ResultOptions,
}

/// Write a commented crashproof.toml into the current folder
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  crashproof init && $EDITOR crashproof.toml && crashproof test")]
pub(crate) struct InitArguments {
    /// Replace the file if it is there
    #[arg(long)]
    pub force: bool,

    /// The file to write
    #[arg(value_name = "FILE", default_value = "crashproof.toml")]
    pub file: PathBuf,
}

const CC_EXAMPLES: &str = "Examples:\n  crashproof cc -g -O2 -o app app.c\n  \
                           ./configure CC=crashproof-cc CXX=crashproof-c++ && make\n  \
                           crashproof check -- ./app";

/// What `crashproof cc` and `crashproof c++` take; for help and completions, as the arguments are handed on unseen.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct CompilerArguments {
    /// Options of clang, and files
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
    pub arguments: Vec<OsString>,
}

/// Show the events of a trace, one per line
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  crashproof dump app.trace | less\n  \
                        crashproof dump --kind store,flush --range 0x40..0x80 --stacks app.trace\n  \
                        crashproof dump --function append --from 1000 --to 2000 app.trace")]
pub(crate) struct DumpArguments {
    /// Only events of these kinds (repeatable, or separated by commas)
    #[arg(long, value_name = "KIND", value_delimiter = ',')]
    pub kind: Vec<EventClass>,

    /// Only events of this thread (the number after T)
    #[arg(long, value_name = "N")]
    pub thread: Option<u32>,

    /// Only events on persistent-memory files whose path contains this
    #[arg(long, value_name = "TEXT")]
    pub file: Option<String>,

    /// Only events that touch these offsets of a file: FROM..TO or FROM+LENGTH, decimal or 0x…
    #[arg(long, value_name = "RANGE")]
    pub range: Option<OffsetRange>,

    /// Only events with this function in their call path
    #[arg(long, value_name = "NAME")]
    pub function: Option<String>,

    /// Only events from this number on
    #[arg(long, value_name = "N")]
    pub from: Option<u64>,

    /// Only events up to this number
    #[arg(long, value_name = "N")]
    pub to: Option<u64>,

    /// Show the call path of each event
    #[arg(long)]
    pub stacks: bool,

    #[command(flatten)]
    pub project: ProjectOption,

    /// The trace
    pub trace: PathBuf,
}

/// Write crashproof.h, the header with the annotations for those who want them
///
/// They say what only the author of a program knows: volatile data in persistent memory, what has to be durable where, what
/// has to persist before what. Natively they do nothing. docs/annotations.md has them.
///
/// With --driver it is crashproof_driver.h, which needs crashproof.h beside it: most of a driver for `crash --oracle output`
/// (docs/drivers.md).
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  crashproof header src/crashproof.h\n  crashproof header --driver src/crashproof_driver.h"
)]
pub(crate) struct HeaderArguments {
    /// crashproof_driver.h, for drivers of operations
    #[arg(long)]
    pub driver: bool,

    /// The file to write [default: stdout]
    pub file: Option<PathBuf>,
}

/// Print a completion script for a shell
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  crashproof completions bash > ~/.local/share/bash-completion/completions/crashproof"
)]
pub(crate) struct CompletionsArguments {
    pub shell: clap_complete::Shell,
}

/// Print the man page, or write one per command into a folder
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  crashproof man ~/.local/share/man/man1")]
pub(crate) struct ManArguments {
    pub folder: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct SelfTestArguments {
    pub file: PathBuf,
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use clap::CommandFactory;
    use crashproof_campaign::options::{Strategy, Switch};
    use crashproof_campaign::units::Size;

    fn parse(line: &str) -> Result<Arguments, clap::Error> {
        Arguments::try_parse_from(line.split_whitespace())
    }

    #[test]
    fn the_definition_is_sound() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn check_takes_a_trace_or_a_program() {
        assert!(parse("crashproof check").is_err());
        assert!(parse("crashproof check a.trace -- ./app").is_err());
        assert!(parse("crashproof check --pm x a.trace").is_err());
        assert!(parse("crashproof check --client-requests off a.trace").is_err());
        assert!(parse("crashproof check a.trace").is_ok());
        let Command::Check(check) = parse("crashproof check --pm a --pm b -- ./app --json x -- y")
            .unwrap()
            .command
        else {
            panic!("not check");
        };
        assert_eq!(check.command, ["./app", "--json", "x", "--", "y"]);
        assert_eq!(check.recording.pm, ["a", "b"]);
        assert_eq!(check.results.json, None);
        assert_eq!(check.results.fail_on, results::FailOn::Note);
        assert_eq!(check.recording.client_requests, Switch::On);
    }

    #[test]
    fn crash_takes_a_trace_or_a_program_or_a_saved_crash() {
        assert!(parse("crashproof crash -- ./app").is_err(), "no recovery");
        assert!(parse("crashproof crash --recover ./r").is_err(), "no program");
        assert!(parse("crashproof crash --recover ./r a.trace -- ./app").is_err());
        assert!(parse("crashproof crash --recover ./r --setup ./s a.trace").is_err());
        assert!(parse("crashproof crash --recover ./r a.trace").is_ok());
        assert!(parse("crashproof crash --replay d").is_ok());
        assert!(parse("crashproof crash --replay d --recover ./r").is_err());
        assert!(parse("crashproof crash --replay d a.trace").is_err());
        for (options, expected) in [
            ("", Some(120)),
            ("--time 10s", Some(10)),
            ("--time none", None),
            ("--max-states 9", None),
            ("--max-states 9 --time 5s", Some(5)),
            ("--strategy dpor", None),
            ("--strategy exhaustive", None),
            ("--strategy exhaustive --time 7s", Some(7)),
            ("--strategy representative", Some(120)),
        ] {
            let Command::Crash(crash) = parse(&format!("crashproof crash --recover ./r {options} a.trace"))
                .unwrap()
                .command
            else {
                panic!("not crash");
            };
            let expected = expected.map(Duration::from_secs);
            assert_eq!(crash.options.time_limit(), expected, "{options}");
        }
        for wrong in [
            "--depth 3",
            "--jobs 0",
            "--max-states 0",
            "--time 10",
            "--memory x",
            "--strategy x",
        ] {
            assert!(
                parse(&format!("crashproof crash --recover ./r {wrong} a.trace")).is_err(),
                "{wrong}"
            );
        }
        let Command::Crash(crash) = parse("crashproof crash --recover ./r --time 1h30m --disk 5M -- ./app x")
            .unwrap()
            .command
        else {
            panic!("not crash");
        };
        let crash = crash.options;
        assert_eq!(crash.command, ["./app", "x"]);
        assert_eq!(crash.strategy, Strategy::Auto);
        assert_eq!(crash.recording.client_requests, Switch::Off);
        assert_eq!(crash.time_limit(), Some(Duration::from_secs(5400)));
        assert_eq!((crash.disk, crash.memory), (Some(Size(5 << 20)), None));
    }

    #[test]
    fn record_needs_an_output_and_a_program() {
        assert!(parse("crashproof record -- ./app").is_err());
        assert!(parse("crashproof record -o t").is_err());
        assert!(parse("crashproof record -o t -- ./app").is_ok());
    }

    #[test]
    fn wrong_use_exits_with_2() {
        assert_eq!(parse("crashproof check").unwrap_err().exit_code(), 2);
        assert_eq!(parse("crashproof --help").unwrap_err().exit_code(), 0);
    }
}
