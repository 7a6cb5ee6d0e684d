//! The `crashproof` command: parses arguments, calls the libraries, chooses the exit code.
//!
//! Exit codes of `check`: 0 clean, 1 findings, 2 it could not be done. `record` exits as the program did.

mod arguments;
mod commands;
mod exit;
mod progress;
mod runtime;
mod terminal;

use clap::Parser;

use arguments::{Arguments, Command};
use exit::Exit;

fn main() {
    let arguments = Arguments::parse();
    terminal::set_color(arguments.color);
    let result = match &arguments.command {
        Command::Record(arguments) => commands::record::run(arguments),
        Command::Check(arguments) => commands::check::run(arguments),
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
