//! Strategies of crash testing side by side, on the structures of `corpus/structures` at 2,000 operations: how many behaviours,
//! groups and states each has without a bug, and after how many states and how long each finds each seeded bug.
//! Writes bugs over time as a picture beside this crate.

use std::path::Path;

use crate::plot::{self, Curve};
use crate::structure::{self, Structure};
use crate::tested::{Tested, build, crash};

const OPERATIONS: &str = "2000";
const SEED: &str = "7";
/// What a strategy may take, if the command line does not say.
const BUDGET: &str = "2m";
const PICTURE: &str = "bugs-over-time.svg";

/// Name, and options of `crashproof crash`.
const STRATEGIES: [(&str, &[&str]); 3] = [
    ("dpor", &["--strategy", "dpor"]),
    ("Squint", &["--strategy", "representative", "--no-joint"]),
    ("ours", &["--strategy", "representative"]),
];

/// `budget` as `--time` has it; only structures whose name contains `only`.
pub(crate) fn measure(root: &Path, tool: &Path, folder: &Path, budget: Option<&str>, only: &str) {
    let budget = budget.unwrap_or(BUDGET);
    let mut structures = structure::in_folder("structures").expect("the corpus lies beside the bench");
    structures.retain(|structure| structure.name.contains(only));
    println!(
        "\nstrategies: {OPERATIONS} operations, one worker, at most {budget} each. For each structure behaviours, groups, and the states"
    );
    println!(
        "of each strategy without a bug (cut: the time ended it); then the states until it finds each seeded bug (- (N): not in N)"
    );
    println!(
        "{:<14}{:<22}{:>11}{:>8}{:>12}{:>18}{:>18}{:>18}",
        "structure", "bug", "behaviours", "groups", "exhaustive", "dpor", "Squint", "ours"
    );
    let mut times: [Vec<f64>; 3] = Default::default();
    let mut bugs = 0;
    for structure in &structures {
        build(tool, folder, structure, None, &[], &["-lpthread"]);
        let tested = STRATEGIES.map(|(_, options)| load(tool, folder, options, &["--time", budget]));
        print_fixed(structure, &tested);
        for (bug, _) in &structure.bugs {
            bugs += 1;
            build(tool, folder, structure, Some(bug), &[], &["-lpthread"]);
            print!("{:<14}{bug:<22}{:>31}", structure.name, "");
            for (times, (_, options)) in times.iter_mut().zip(STRATEGIES) {
                let tested = load(tool, folder, options, &["--fail-fast", "--time", budget]);
                print!("{:>18}", tested.to_the_bug());
                times.extend(tested.found().map(|(_, seconds)| seconds));
            }
            println!();
        }
        draw(root, &times, bugs);
    }
    for ((name, _), times) in STRATEGIES.iter().zip(&times) {
        println!("{name}: {} of {bugs} bugs", times.len());
    }
    println!("bugs over time: bench/{PICTURE}");
}

/// After each structure: a run that is stopped leaves what it has.
fn draw(root: &Path, times: &[Vec<f64>; 3], bugs: usize) {
    let curve = |((name, _), seconds): (&(&'static str, &[&str]), &Vec<f64>)| Curve {
        name,
        seconds: seconds.clone(),
    };
    let curves: Vec<Curve<'_>> = STRATEGIES.iter().zip(times).map(curve).collect();
    let picture = plot::svg(&curves, bugs);
    std::fs::write(root.join("bench").join(PICTURE), picture).expect("the picture can be written");
}

fn print_fixed(structure: &Structure, tested: &[Tested; 3]) {
    let [dpor, _, ours] = tested;
    let behaviours = ours.stats.behaviours.unwrap_or_default();
    let exhaustive = match dpor.stats.states_total {
        u64::MAX => "> 1.8e19".to_owned(),
        states if states >= 10_000_000 => format!("{:.1e}", states as f64),
        states => states.to_string(),
    };
    print!(
        "{:<14}{:<22}{:>11}{:>8}{exhaustive:>12}",
        structure.name,
        "-",
        behaviours.single + behaviours.joint,
        behaviours.single_groups + behaviours.joint_groups
    );
    for tested in tested {
        print!("{:>18}", tested.to_its_end());
        assert!(tested.found().is_none(), "{} without a bug fails", structure.name);
    }
    println!();
}

fn load(tool: &Path, folder: &Path, strategy: &[&str], limits: &[&str]) -> Tested {
    let _ = std::fs::remove_file(folder.join("pm"));
    let recovery = format!("./program verify pm {SEED}");
    let mut words = [strategy, limits].concat();
    words.extend([
        "--recover",
        &recovery,
        "--",
        "./program",
        "load",
        "pm",
        OPERATIONS,
        SEED,
    ]);
    crash(tool, folder, &words)
}
