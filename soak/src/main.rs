//! `crashproof-soak [inputs N [TARGET] | input TARGET FILE | targets | seeds TARGET DIRECTORY | commands CRASHPROOF | kills CRASHPROOF N] [--seed S]`
#![warn(clippy::undocumented_unsafe_blocks)]

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use crashproof_soak::random::Random;
use crashproof_soak::{commands, guard, kills, mutate, targets};

#[global_allocator]
static ALLOCATOR: guard::Counting = guard::Counting;

const USAGE: &str = "usage: crashproof-soak inputs N [TARGET] [--seed S]\n\
    \x20      crashproof-soak input TARGET FILE\n\
    \x20      crashproof-soak targets\n\
    \x20      crashproof-soak seeds TARGET DIRECTORY\n\
    \x20      crashproof-soak commands CRASHPROOF\n\
    \x20      crashproof-soak kills CRASHPROOF N [--seed S]\n\
    inputs: N malformed inputs for each parser (or for one); none may panic, hang or take more than 1 GiB\n\
    input: one of them again, from the file in which it was kept\n\
    commands: command lines must do the same under `crashproof record` as without it\n\
    kills: `crashproof record` killed N times at random moments must leave nothing behind";

fn main() -> ExitCode {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let mut seed = 1;
    if let Some(at) = words.iter().position(|word| word == "--seed") {
        match words.get(at + 1).and_then(|word| word.parse().ok()) {
            Some(number) => seed = number,
            None => return usage("--seed takes a number"),
        }
        words.drain(at..at + 2);
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let wrong = match words[..] {
        ["inputs", count] => inputs(count, None, seed),
        ["inputs", count, target] => inputs(count, Some(target), seed),
        ["targets"] => {
            targets::ALL.iter().for_each(|target| println!("{}", target.name));
            return ExitCode::SUCCESS;
        }
        ["input", target, path] => one_input(target, Path::new(path)),
        ["seeds", target, folder] => write_seeds(target, Path::new(folder)),
        ["commands", crashproof] => commands::compare(Path::new(crashproof), usize::MAX),
        ["kills", crashproof, count] => match count.parse() {
            Ok(count) => kills::kill_recordings(Path::new(crashproof), count, &mut Random(seed)),
            Err(_) => return usage(&format!("`{count}` is not a number")),
        },
        _ => return usage("what to do?"),
    };
    match wrong {
        Err(message) => usage(&message),
        Ok(wrong) if wrong.is_empty() => ExitCode::SUCCESS,
        Ok(wrong) => {
            for line in &wrong {
                eprintln!("soak: {line}");
            }
            ExitCode::from(1)
        }
    }
}

fn usage(message: &str) -> ExitCode {
    eprintln!("crashproof-soak: {message}\n{USAGE}");
    ExitCode::from(2)
}

/// For a fuzzer to begin with.
fn write_seeds(name: &str, folder: &Path) -> Result<Vec<String>, String> {
    let target = targets::find(name)?;
    for (number, seed) in (target.seeds)().iter().enumerate() {
        let path = folder.join(format!("seed-{number}"));
        std::fs::write(&path, seed).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    }
    Ok(Vec::new())
}

fn one_input(name: &str, path: &Path) -> Result<Vec<String>, String> {
    let target = targets::find(name)?;
    let input = std::fs::read(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    guard::start(std::env::temp_dir());
    let accepted = guard::run(target.name, &input, || (target.run)(&input));
    Ok(accepted.err().into_iter().collect())
}

fn inputs(count: &str, only: Option<&str>, seed: u64) -> Result<Vec<String>, String> {
    let count: u64 = count.parse().map_err(|_| format!("`{count}` is not a number"))?;
    targets::seeds_are_good()?;
    let chosen = match only {
        Some(name) => vec![targets::find(name)?],
        None => targets::ALL.iter().collect(),
    };
    guard::start(std::env::current_dir().unwrap_or_default());
    let mut wrong = Vec::new();
    for target in chosen {
        let (seeds, begin) = ((target.seeds)(), Instant::now());
        let mut random = Random(seed);
        for _ in 0..count {
            let input = mutate::mutate(&seeds, &mut random);
            if let Err(message) = guard::run(target.name, &input, || (target.run)(&input)) {
                wrong.push(message);
                break;
            }
        }
        eprintln!(
            "{:<14} {count} inputs in {:.1} s",
            target.name,
            begin.elapsed().as_secs_f64()
        );
    }
    Ok(wrong)
}
