//! Records a program and prints what was counted: `record RUNTIME TRACE PROGRAM ARGUMENTS…`.

use std::path::PathBuf;
use std::process::ExitCode;

use crashproof_record::{RecordOptions, record};

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let (Some(runtime), Some(output)) = (arguments.next(), arguments.next()) else {
        eprintln!("usage: record RUNTIME TRACE PROGRAM ARGUMENTS…");
        return ExitCode::from(2);
    };
    let options = RecordOptions {
        remedy: "free some space",
        command: arguments.collect(),
        output: PathBuf::from(output),
        pm: Vec::new(),
        client_requests: true,
        locked_rmw: false,
        runtime: PathBuf::from(runtime),
        dependences: false,
        kept: false,
        quiet: false,
    };
    match record(&options) {
        Ok(recorded) => {
            eprintln!("{recorded:#?}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}
