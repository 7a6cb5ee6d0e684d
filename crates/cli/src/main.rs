//! The `crashproof` command: parses arguments, calls the libraries, chooses the exit code.
//!
//! Exit codes of `check`, `crash` and `test`: 0 clean, 1 findings, 2 it could not be done. `record` exits as the program did.

mod arguments;
mod commands;
mod exit;
mod interrupt;
mod progress;
mod project;
mod runtime;
mod shell;
mod terminal;
mod units;

use clap::Parser;

use arguments::{Arguments, Command};
use exit::Exit;

fn main() {
    // Before anything else: the supervisor of a sandbox is this program, too.
    if std::env::args_os()
        .nth(1)
        .is_some_and(|argument| argument == "sandbox-supervisor")
    {
        crashproof_sandbox::supervise();
    }
    let arguments = Arguments::parse();
    terminal::set_color(arguments.color);
    let result = match &arguments.command {
        Command::Record(arguments) => commands::record::run(arguments),
        Command::Check(arguments) => commands::check::run(arguments),
        Command::Crash(arguments) => commands::crash::run(arguments),
        Command::Test(arguments) => commands::test::run(arguments),
        Command::Init(arguments) => commands::init::run(arguments),
        Command::Dump(arguments) => commands::dump::run(arguments),
        Command::Doctor => commands::doctor::run(),
        Command::Completions(arguments) => commands::generate::completions(arguments),
        Command::Man(arguments) => commands::generate::man(arguments),
        Command::SelfTest(arguments) => commands::self_test::run(arguments),
    };
    result
        .unwrap_or_else(|error| {
            terminal::error(&error);
            Exit::Failed
        })
        .now()
}
