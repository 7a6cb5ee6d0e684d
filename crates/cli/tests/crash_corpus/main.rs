//! The crash corpus: every program in `corpus/crash` is built and crash-tested, and what is found must be what its annotations
//! say, no more and no less. Strategies must agree, and all of them with a brute-force simulator.
//!
//! Each program in each variant (compiler and optimisation) is a test of its own, named after it:
//! `cargo test --test crash_corpus -- list/` runs those of an area. docs/corpus.md says how to write a program.

use std::path::Path;

use libtest_mimic::{Arguments, Conclusion, Failed, Trial};

mod brute;
mod build;
mod case;
mod crash;
mod judge;
#[path = "../support/mod.rs"]
mod support;

use build::Variant;
use case::Case;

fn main() -> std::process::ExitCode {
    let arguments = Arguments::from_args();
    let cases = case::all();
    let mut trials: Vec<Trial> = cases
        .iter()
        .flat_map(|case| Variant::ALL.map(|variant| trial(case, variant)))
        .collect();
    trials.push(Trial::test("the corpus is sound", move || the_corpus_is_sound(&cases)));
    let Conclusion { num_failed, .. } = libtest_mimic::run(&arguments, trials);
    std::process::ExitCode::from(if num_failed == 0 { 0 } else { 101 })
}

fn trial(case: &Case, variant: Variant) -> Trial {
    let case = case.clone();
    Trial::test(format!("{} {variant}", case.name), move || {
        test(&case, variant).map_err(Failed::from)
    })
}

fn test(case: &Case, variant: Variant) -> Result<(), String> {
    let program = build::build(case, variant)?;
    if variant == Variant::Crashproof {
        // With the other compilers' code the strategies have been compared already.
        let strategy = case
            .directives
            .strategies
            .first()
            .map_or("representative", String::as_str);
        let crashed = crash::crash(case, &program, strategy)?;
        return judge::judge(case, &crashed).map_err(|error| format!("{strategy}: {error}"));
    }
    if !case.directives.strategies.is_empty() {
        for strategy in &case.directives.strategies {
            let crashed = crash::crash(case, &program, strategy)?;
            judge::judge(case, &crashed).map_err(|error| format!("{strategy}: {error}"))?;
        }
        return Ok(());
    }
    let exhaustive = crash::crash(case, &program, "exhaustive")?;
    judge::judge(case, &exhaustive).map_err(|error| format!("exhaustive: {error}"))?;
    let dpor = crash::crash(case, &program, "dpor")?;
    judge::judge(case, &dpor).map_err(|error| format!("dpor: {error}"))?;
    let (all, pruned) = (judge::verdicts(case, &exhaustive), judge::verdicts(case, &dpor));
    if all != pruned {
        return Err(format!("exhaustive finds {all:?}\nand dpor {pruned:?}"));
    }
    let representative = crash::crash(case, &program, "representative")?;
    judge::judge(case, &representative).map_err(|error| format!("representative: {error}"))?;
    let represented = judge::verdicts(case, &representative);
    if represented != pruned {
        return Err(format!("dpor finds {pruned:?}\nand representative {represented:?}"));
    }
    if case.is_fixed() {
        let prefix = crash::crash(case, &program, "prefix")?;
        judge::judge(case, &prefix).map_err(|error| format!("prefix: {error}"))?;
    }
    // Once: what the compiler did to the program makes no difference to the simulator.
    if variant == Variant::Gcc && case.directives.no_brute_force.is_none() {
        compare_with_brute_force(case, &program, &exhaustive)?;
    }
    Ok(())
}

fn compare_with_brute_force(case: &Case, program: &Path, exhaustive: &crash::Crashed) -> Result<(), String> {
    let brute = brute::test(case, program)?;
    let findings = exhaustive.report.findings.len();
    if (brute.failed > 0) != (findings > 0) {
        return Err(format!(
            "of {} images {} fail by brute force ({}), and there are {findings} findings",
            brute.images, brute.failed, brute.message
        ));
    }
    let tested = exhaustive.report.stats.as_ref().map_or(0, |stats| stats.states_tested);
    // An image is tested again when the program has output more, and a recovery that is crashed adds states of its own.
    let comparable = !brute.has_output && case.directives.depth() == 1;
    if comparable && tested != brute.images as u64 {
        return Err(format!(
            "exhaustive tests {tested} states, by brute force there are {} images",
            brute.images
        ));
    }
    Ok(())
}

/// Every program with findings has a fixed one beside it, which has none; most are small enough for brute force.
fn the_corpus_is_sound(cases: &[Case]) -> Result<(), Failed> {
    let fixed: Vec<&str> = cases.iter().filter(|c| c.is_fixed()).map(|c| c.name.as_str()).collect();
    for case in cases {
        let annotated = !case.findings.is_empty() || !case.persisted.is_empty();
        if case.is_fixed() && annotated {
            return Err(format!("{} is to be silent and has annotations", case.name).into());
        }
        if !case.is_fixed() && (case.findings.is_empty() || !fixed.contains(&case.twin().as_str())) {
            return Err(format!("{} needs an annotation and a twin {}", case.name, case.twin()).into());
        }
    }
    let brute = cases
        .iter()
        .filter(|case| case.directives.no_brute_force.is_none())
        .count();
    if brute * 10 < cases.len() * 9 {
        return Err(format!("only {brute} of {} programs are tested by brute force", cases.len()).into());
    }
    Ok(())
}
