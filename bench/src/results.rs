//! What `drivers` and `growth` have measured, kept as lines of JSON beside this crate: a run that is cut leaves what it has, a later one replaces what it
//! measures again, and the tables and the picture come from all of it.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use crashproof_finding::Finding;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::drivers::STRATEGIES;
use crate::listing;
use crate::plot::{self, Curve};
use crate::structure::{Expectation, Structure};
use crate::tested::Tested;

const PICTURE: &str = "driver-bugs-over-time.svg";

/// A kind of result.
pub(crate) trait Kept: Serialize + DeserializeOwned {
    const FILE: &'static str;
    /// Whichever was measured last with the same key counts.
    fn key(&self) -> (String, String, u32);
}

/// A structure, with a bug or as it stands, under a strategy.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Crashed {
    pub structure: String,
    /// None: as it stands.
    pub bug: Option<String>,
    pub strategy: String,
    pub states: u64,
    pub seconds: f64,
    pub cut_short: bool,
    /// States and seconds until the first failed.
    pub found: Option<(u64, f64)>,
    pub findings: usize,
    /// Findings that are not those of the bug.
    pub elsewhere: usize,
}

impl Crashed {
    pub(crate) fn of(
        structure: &Structure,
        bug: Option<(&String, &Vec<Expectation>)>,
        strategy: &str,
        tested: &Tested,
    ) -> Self {
        let expectations = bug.map(|(_, expectations)| expectations.as_slice()).unwrap_or_default();
        let findings = &tested.report.findings;
        // What was left when the first state had failed names everything that was uncertain.
        let reduced = |finding: &&Finding| finding.crash.as_ref().is_none_or(|crash| !crash.unreduced);
        let elsewhere = findings.iter().filter(reduced);
        let elsewhere = elsewhere.filter(|finding| !structure.is_expected(finding, expectations));
        Crashed {
            structure: structure.name.clone(),
            bug: bug.map(|(bug, _)| bug.clone()),
            strategy: strategy.to_owned(),
            states: tested.stats.states_tested,
            seconds: tested.stats.seconds,
            cut_short: tested.stats.cut_short,
            found: tested.found().filter(|_| structure.names(&tested.report, expectations)),
            findings: findings.len(),
            elsewhere: elsewhere.count(),
        }
    }

    pub(crate) fn note(&self) -> &'static str {
        match (&self.bug, self.elsewhere) {
            (_, 0) => "",
            (None, _) => " FAILS",
            (Some(_), _) => " ELSEWHERE",
        }
    }
}

impl Kept for Crashed {
    const FILE: &'static str = "driver-bugs.jsonl";

    fn key(&self) -> (String, String, u32) {
        let at = STRATEGIES
            .iter()
            .position(|name| *name == self.strategy)
            .unwrap_or(STRATEGIES.len());
        (self.structure.clone(), self.bug.clone().unwrap_or_default(), at as u32)
    }
}

/// A structure as it stands with so many operations, under `conditions`.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Grown {
    pub structure: String,
    pub operations: u32,
    pub conditions: u64,
    /// Of processor.
    pub record_seconds: f64,
    pub infer_seconds: f64,
    pub states: u64,
    pub seconds: f64,
    pub cut_short: bool,
}

impl Kept for Grown {
    const FILE: &'static str = "driver-growth.jsonl";

    fn key(&self) -> (String, String, u32) {
        (self.structure.clone(), String::new(), self.operations)
    }
}

/// In one write: another run may do the same.
pub(crate) fn keep<T: Kept>(root: &Path, result: &T) {
    let path = root.join("bench").join(T::FILE);
    let mut options = std::fs::OpenOptions::new();
    let mut file = options
        .create(true)
        .append(true)
        .open(path)
        .expect("results can be written");
    let line = serde_json::to_string(result).expect("numbers and names") + "\n";
    file.write_all(line.as_bytes()).expect("results can be written");
}

fn kept<T: Kept>(root: &Path) -> Vec<T> {
    let text = std::fs::read_to_string(root.join("bench").join(T::FILE)).unwrap_or_default();
    let results = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("a line of results"));
    let last: BTreeMap<_, T> = results.map(|result: T| (result.key(), result)).collect();
    last.into_values().collect()
}

/// The tables in Markdown, and the picture; what was measured twice is in the files only once then.
pub(crate) fn print(root: &Path) {
    let crashed: Vec<Crashed> = kept(root);
    let grown: Vec<Grown> = kept(root);
    rewrite(root, &crashed);
    rewrite(root, &grown);
    print_found(&crashed);
    print_fixed(&crashed, &grown);
    print_bugs(&crashed);
    print_growth(&grown);
    let curves = STRATEGIES.map(|name| Curve {
        name,
        seconds: seeded(&crashed)
            .filter(|row| row.strategy == name)
            .filter_map(|row| Some(row.found?.1))
            .collect(),
    });
    let picture = plot::svg(&curves, bugs(&crashed).len());
    std::fs::write(root.join("bench").join(PICTURE), picture).expect("the picture can be written");
}

fn rewrite<T: Kept>(root: &Path, results: &[T]) {
    let lines = results
        .iter()
        .map(|result| serde_json::to_string(result).expect("numbers and names") + "\n");
    std::fs::write(root.join("bench").join(T::FILE), lines.collect::<String>()).expect("results can be written");
}

fn seeded(crashed: &[Crashed]) -> impl Iterator<Item = &Crashed> {
    crashed.iter().filter(|row| row.bug.is_some())
}

/// Structure and bug, each once.
fn bugs(crashed: &[Crashed]) -> Vec<(&str, &str)> {
    let mut bugs: Vec<_> = seeded(crashed)
        .map(|row| (row.structure.as_str(), row.bug.as_deref().unwrap_or_default()))
        .collect();
    bugs.dedup();
    bugs
}

fn cell<'a>(crashed: &'a [Crashed], structure: &str, bug: Option<&str>, strategy: &str) -> Option<&'a Crashed> {
    let mut rows = crashed.iter();
    rows.find(|row| row.structure == structure && row.bug.as_deref() == bug && row.strategy == strategy)
}

fn print_header(columns: &[&str]) {
    println!("\n| {} |\n|{}", columns.join(" | "), "---|".repeat(columns.len()));
}

/// How many bugs of each kind each strategy finds.
fn print_found(crashed: &[Crashed]) {
    let kinds = listing::kinds().expect("corpus/drivers/kinds.txt");
    print_header(&[&["kind", "bugs"], &STRATEGIES[..], &["none"]].concat());
    let all = bugs(crashed);
    for kind in listing::KINDS.into_iter().map(Some).chain([None]) {
        let of_kind = |structure: &str, bug: &str| {
            kind.is_none_or(|kind| kinds.iter().any(|[s, b, k]| s == structure && b == bug && k == kind))
        };
        let of: Vec<_> = all.iter().filter(|(structure, bug)| of_kind(structure, bug)).collect();
        let finds = |(structure, bug): &(&str, &str), strategy: &str| {
            cell(crashed, structure, Some(bug), strategy).is_some_and(|row| row.found.is_some())
        };
        print!("| {} | {} |", kind.unwrap_or("all"), of.len());
        for strategy in STRATEGIES {
            print!(" {} |", of.iter().filter(|bug| finds(bug, strategy)).count());
        }
        let by_none = of
            .iter()
            .filter(|bug| !STRATEGIES.iter().any(|strategy| finds(bug, strategy)));
        println!(" {} |", by_none.count());
    }
}

/// Without a bug; and what inference cost.
fn print_fixed(crashed: &[Crashed], grown: &[Grown]) {
    print_header(&[&["structure"], &STRATEGIES[..], &["conditions", "record", "infer"]].concat());
    for fixed in crashed
        .iter()
        .filter(|row| row.bug.is_none() && row.strategy == STRATEGIES[0])
    {
        print!("| `{}` |", fixed.structure);
        for strategy in STRATEGIES {
            match cell(crashed, &fixed.structure, None, strategy) {
                Some(row) => {
                    let cut = if row.cut_short { ", cut" } else { "" };
                    print!(" {} ({:.0} s{cut}){} |", row.states, row.seconds, row.note());
                }
                None => print!(" |"),
            }
        }
        match grown
            .iter()
            .find(|row| row.structure == fixed.structure && row.operations == 2000)
        {
            Some(row) => println!(
                " {} | {:.1} s | {:.1} s |",
                row.conditions, row.record_seconds, row.infer_seconds
            ),
            None => println!(" | | |"),
        }
    }
}

fn print_bugs(crashed: &[Crashed]) {
    let kinds = listing::kinds().expect("corpus/drivers/kinds.txt");
    print_header(&[&["structure", "bug", "kind"], &STRATEGIES[..]].concat());
    for (structure, bug) in bugs(crashed) {
        let kind = kinds.iter().find(|[s, b, _]| s == structure && b == bug);
        print!(
            "| `{structure}` | `{bug}` | {} |",
            kind.map_or("", |[_, _, kind]| kind.as_str())
        );
        for strategy in STRATEGIES {
            match cell(crashed, structure, Some(bug), strategy) {
                Some(row) => match row.found {
                    Some((states, seconds)) => print!(" {states} ({seconds:.2} s){} |", row.note()),
                    None => print!(
                        " not in {} ({:.0} s{}){} |",
                        row.states,
                        row.seconds,
                        if row.cut_short { ", cut" } else { "" },
                        row.note()
                    ),
                },
                None => print!(" |"),
            }
        }
        println!();
    }
}

fn print_growth(grown: &[Grown]) {
    print_header(&[
        "structure",
        "operations",
        "conditions",
        "record",
        "infer",
        "states",
        "test",
    ]);
    for row in grown {
        println!(
            "| `{}` | {} | {} | {:.2} s | {:.2} s | {} | {:.1} s{} |",
            row.structure,
            row.operations,
            row.conditions,
            row.record_seconds,
            row.infer_seconds,
            row.states,
            row.seconds,
            if row.cut_short { ", cut" } else { "" }
        );
    }
}
