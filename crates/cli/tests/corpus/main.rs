//! The corpus: every program in `corpus/` is built, run natively and run under `crashproof check`. Output, exit status and
//! PM file must be the same in both, and the findings those that the program's annotations say, no more and no fewer.
//!
//! Each program in each of its variants (compiler and optimisation) is a test of its own, named after it:
//! `cargo test --test corpus -- flush/` runs those of an area. docs/corpus.md says how to write a program.

use libtest_mimic::{Arguments, Conclusion, Trial};

mod annotation;
mod build;
mod case;
mod judge;
mod run;
#[path = "../support/mod.rs"]
mod support;

fn main() -> std::process::ExitCode {
    let arguments = Arguments::from_args();
    let cases = case::all();
    let mut trials: Vec<Trial> = cases
        .iter()
        .flat_map(|case| case.variants().map(|variant| trial(case, variant)))
        .collect();
    trials.push(Trial::test("every program has its twin", move || {
        every_program_has_its_twin(&cases)
    }));
    let Conclusion { num_failed, .. } = libtest_mimic::run(&arguments, trials);
    std::process::ExitCode::from(if num_failed == 0 { 0 } else { 101 })
}

fn trial(case: &case::Case, variant: build::Variant) -> Trial {
    let ignored = !case.runs_here();
    let case = case.clone();
    Trial::test(format!("{} {variant}", case.name), move || {
        let built = build::build(&case, variant)?;
        let native = run::native(&case, &built)?;
        let recorded = run::recorded(&case, &built)?;
        judge::judge(&case, &native, &recorded)?;
        Ok(())
    })
    .with_ignored_flag(ignored)
}

/// Every program with findings has a fixed one beside it, which has none.
fn every_program_has_its_twin(cases: &[case::Case]) -> Result<(), libtest_mimic::Failed> {
    let fixed: Vec<&str> = cases.iter().filter(|c| c.is_fixed()).map(|c| c.name.as_str()).collect();
    for case in cases {
        if case.is_fixed() && !case.expectations.is_empty() {
            return Err(format!("{} is to be silent and has annotations", case.name).into());
        }
        if !case.is_fixed() && (case.expectations.is_empty() || !fixed.contains(&case.twin().as_str())) {
            return Err(format!("{} needs an annotation and a twin {}", case.name, case.twin()).into());
        }
    }
    Ok(())
}
