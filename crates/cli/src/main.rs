//! The `crashproof` command: parses arguments, calls the libraries, chooses the exit code.
//!
//! Exit codes of `check`, `crash` and `test`: 0 clean, 1 findings, 2 it could not be done. `record` exits as the program did.
#![warn(clippy::undocumented_unsafe_blocks)]

mod arguments;
mod commands;
mod exit;
mod progress;
mod terminal;

use clap::Parser;

use arguments::{Arguments, Command};
use exit::Exit;

fn main() {
    // Before anything else: the supervisor of a sandbox is this program, too.
    let first = std::env::args_os().nth(1).unwrap_or_default();
    if first == "sandbox-supervisor" {
        crashproof_sandbox::supervise();
    }
    // A compiler's arguments are not for clap.
    if let Some(name) = ["cc", "c++"].into_iter().find(|name| first == *name) {
        finish(commands::compiler::run(name, std::env::args_os().skip(2)));
    }
    let arguments = Arguments::parse();
    terminal::set_color(arguments.color);
    let result = match &arguments.command {
        Command::Record(arguments) => commands::record::run(arguments),
        Command::Check(arguments) => commands::check::run(arguments),
        Command::Crash(arguments) => commands::crash::run(arguments),
        Command::Repair(_) => commands::repair::run(std::env::args_os().skip(1)),
        Command::Test(arguments) => commands::test::run(arguments),
        Command::Init(arguments) => commands::init::run(arguments),
        Command::Dump(arguments) => commands::dump::run(arguments),
        Command::Explain(arguments) => commands::explain::run(arguments),
        Command::Infer(arguments) => commands::infer::run(arguments),
        Command::Litmus(arguments) => commands::litmus::run(arguments),
        Command::Ops(arguments) => commands::ops::run(arguments),
        Command::Cc(arguments) => commands::compiler::run("cc", arguments.arguments.clone()),
        Command::Cpp(arguments) => commands::compiler::run("c++", arguments.arguments.clone()),
        Command::Import(arguments) => commands::import::run(arguments),
        Command::Export(arguments) => commands::export::run(arguments),
        Command::Header(arguments) => commands::header::run(arguments),
        Command::Doctor => commands::doctor::run(),
        Command::Completions(arguments) => commands::generate::completions(arguments),
        Command::Man(arguments) => commands::generate::man(arguments),
        Command::SelfTest(arguments) => commands::self_test::run(arguments),
    };
    finish(result)
}

fn finish(result: commands::Result) -> ! {
    result
        .unwrap_or_else(|error| {
            terminal::error(&error);
            Exit::Failed
        })
        .now()
}
