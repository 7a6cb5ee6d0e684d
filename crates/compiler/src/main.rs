//! `crashproof cc` and `crashproof c++`: see `crashproof_compiler::driver`. And `--crashproof-program BINARY`, which shows what
//! they have embedded: see `crashproof_program`.

#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;

use crashproof_llvm::Context;
use crashproof_program::{Overview, Program};

fn main() {
    let words: Vec<OsString> = std::env::args_os().collect();
    std::process::exit(match &words[..] {
        [_, option, binary] if option == "--crashproof-program" => show_program(binary.as_ref(), false),
        [_, option, totals, binary] if option == "--crashproof-program" && totals == "--totals" => {
            show_program(binary.as_ref(), true)
        }
        _ => crashproof_compiler::driver::main(words),
    })
}

fn show_program(binary: &Path, only_totals: bool) -> i32 {
    let context = Context::create();
    match Program::load(binary, &context) {
        Ok(program) => {
            let overview = Overview(&program);
            let text = if only_totals {
                format!("{overview:#}")
            } else {
                overview.to_string()
            };
            // A reader that has seen enough is no error.
            let _ = std::io::stdout().lock().write_all(text.as_bytes());
            0
        }
        Err(error) => {
            eprintln!("crashproof-cc: error: {error}");
            1
        }
    }
}
