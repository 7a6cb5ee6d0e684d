//! The part of the long tests that `make test` has time for.

use crashproof_soak::random::Random;
use crashproof_soak::{mutate, targets};

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
