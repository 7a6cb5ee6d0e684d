//! The part of the long tests that `make test` has time for.

use std::path::PathBuf;

use crashproof_soak::random::Random;
use crashproof_soak::{commands, kills, mutate, targets};

/// Inputs for each parser.
const INPUTS: u64 = 20_000;

#[test]
fn malformed_inputs_are_refused_or_read() {
    targets::seeds_are_good().unwrap();
    for target in targets::ALL {
        let seeds = (target.seeds)();
        let mut random = Random(20_261_116);
        for _ in 0..INPUTS {
            (target.run)(&mutate::mutate(&seeds, &mut random));
        }
    }
}

/// Command lines that are compared here: those about exit statuses and signals, which come first.
const LINES: usize = 34;
const KILLS: u32 = 4;

fn crashproof() -> PathBuf {
    crashproof_testing::programs().join("crashproof")
}

#[test]
fn command_lines_do_the_same_under_the_recorder() {
    let wrong = commands::compare(&crashproof(), LINES).unwrap();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn killed_recordings_leave_nothing_behind() {
    let wrong = kills::kill_recordings(&crashproof(), KILLS, &mut Random(20_261_118)).unwrap();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
