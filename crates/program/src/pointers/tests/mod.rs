//! Tests of the pointer analysis: the solver against the naive one, facts about small C programs, and what random ones do.

mod executed;
mod programs;
mod random;

/// Of a property test: as many as it is worth to run each time, or as many as `PROPTEST_CASES` says.
fn cases(usual: u32) -> proptest::test_runner::Config {
    let wanted = std::env::var("PROPTEST_CASES")
        .ok()
        .and_then(|cases| cases.parse().ok());
    proptest::test_runner::Config::with_cases(wanted.unwrap_or(usual))
}
