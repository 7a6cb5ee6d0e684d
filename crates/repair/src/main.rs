//! `crashproof repair`: see `crashproof_repair`.
//!
//! Exit codes: 0 everything is repaired, 1 something is left, 2 it could not be done.

use clap::{ColorChoice, Parser};

use crashproof_repair::arguments::RepairArguments;
use crashproof_repair::{Verdict, flow, interrupt, source, terminal};

#[derive(Debug, Parser)]
#[command(name = "crashproof repair", version, max_term_width = 100)]
struct Arguments {
    /// When to use colours
    #[arg(long, value_name = "WHEN", default_value_t = ColorChoice::Auto)]
    color: ColorChoice,

    /// For `crashproof doctor`: say whether everything that a repair needs is there
    #[arg(long, hide = true)]
    doctor: bool,

    #[command(flatten)]
    repair: RepairArguments,
}

fn main() {
    let arguments = Arguments::parse();
    terminal::set_color(arguments.color);
    if arguments.doctor {
        doctor();
    }
    interrupt::listen();
    let code = match flow::run(&arguments.repair) {
        Ok(Verdict::Repaired) => 0,
        Ok(Verdict::Left) => 1,
        Err(error) => {
            terminal::error(&error);
            2
        }
    };
    // Here, where the copies are gone.
    if let Some(signal) = interrupt::received() {
        interrupt::die_by(signal);
    }
    std::process::exit(code)
}

fn doctor() -> ! {
    let code = match source::available() {
        Ok(()) => 0,
        Err(error) => {
            terminal::error(&error);
            2
        }
    };
    std::process::exit(code)
}
