//! `crashproof ops`.

use std::ffi::OsString;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Subcommand, ValueEnum};
use crashproof_crash::oracle::generate::{Keys, Template};

use crashproof_campaign::units::Time;

/// Make operations for a driver, or reduce those with which it fails
///
/// For `crashproof crash --oracle output`. A file of operations has one operation a line, its name and its words between blanks
/// (`insert 3 14`); the first line is operation 0. See docs/ops.md.
#[derive(Debug, Args)]
pub(crate) struct OpsArguments {
    #[command(subcommand)]
    pub command: OpsCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum OpsCommand {
    Generate(GenerateArguments),
    Shrink(ShrinkArguments),
}

/// Draw random operations
///
/// A key to insert is mostly one that is not in use, any other mostly one that is. The same seed gives the same operations.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  crashproof ops generate -o 2000.ops\n  crashproof ops generate --kind queue --count 500 -o queue.ops\n  \
                        crashproof ops generate --op 'put {insert} {value}=5' --op 'del {remove}=2' --op 'scan {key} {1..9}=1'"
)]
pub(crate) struct GenerateArguments {
    /// How many operations
    #[arg(long, value_name = "N", default_value_t = 2000)]
    pub count: u64,

    /// The operations of this kind of structure, unless there are --op
    #[arg(long, value_name = "KIND", default_value = "map")]
    pub kind: StructureKind,

    /// An operation and its weight (repeatable): text with {insert}, {remove}, {used}, {key}, {value} or {A..B} in it, `=`, a number
    ///
    /// {insert} is a key that is in use from then on, {remove} one that is not any more, {used} any other key in use, {key} any key, {value} a value, {A..B}
    /// a number from A to B.
    #[arg(long = "op", value_name = "TEMPLATE=WEIGHT")]
    pub templates: Vec<Template>,

    /// Keys are from A to B; `dense` is 1..256, `sparse` as many over all 64 bits
    ///
    /// `sparse` keys share prefixes of every length with each other: for radix trees and tries, in which keys of a short range all take one path.
    /// `sparse=N` makes N of them. They follow from the seed.
    #[arg(long, value_name = "KEYS", default_value = "dense")]
    pub keys: KeyChoice,

    /// Values are from A to B
    #[arg(long, value_name = "A..B", default_value = "1..1000000")]
    pub values: Numbers,

    /// Of a hundred keys, how many are (not) in use as the operation likes them; the others are any
    #[arg(long, value_name = "PERCENT", default_value_t = 90, value_parser = clap::value_parser!(u64).range(0..=100))]
    pub bias: u64,

    /// Where the drawing starts
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// Where to write them [default: stdout]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// Reduce operations with which a driver fails to the fewest that still do
///
/// Leaves out operations as long as a crash test of the rest has a finding (delta debugging). A crash test of each try is a whole
/// one, up to its first finding; it is the finding that counts, not which. Exit status: 0 reduced, 1 the operations do not
/// fail, 2 it could not be done.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  crashproof ops shrink -o few.ops all.ops -- ./driver pool")]
pub(crate) struct ShrinkArguments {
    /// Where to write those that are left [default: stdout]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Stop after this time, with the fewest so far
    #[arg(long, value_name = "TIME", default_value = "10m")]
    pub time: Time,

    /// Of one crash test: it passes if it has found nothing by then
    #[arg(long, value_name = "TIME", default_value = "20s")]
    pub test_time: Time,

    /// An option for each crash test, such as --crash=--strategy=representative (repeatable)
    #[arg(long = "crash", value_name = "OPTION", allow_hyphen_values = true)]
    pub options: Vec<OsString>,

    /// The operations
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// The driver and its pool
    #[arg(last = true, required = true, value_name = "DRIVER")]
    pub command: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum StructureKind {
    /// insert, update, remove, get
    Map,
    /// put, take, print
    Queue,
    /// set, get, resize, print
    Array,
}

impl StructureKind {
    pub(crate) fn templates(self) -> Vec<Template> {
        let texts: &[&str] = match self {
            StructureKind::Map => &[
                "insert {insert} {value}=4",
                "update {used} {value}=2",
                "remove {remove}=2",
                "get {used}=2",
            ],
            StructureKind::Queue => &["put {value}=5", "take=4", "print=1"],
            StructureKind::Array => &["set {key} {value}=6", "get {key}=2", "resize {1..256}=1", "print=1"],
        };
        texts.iter().filter_map(|text| text.parse().ok()).collect()
    }
}

/// `1..256`, both included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Numbers(pub RangeInclusive<u64>);

impl FromStr for Numbers {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| text.trim().parse::<u64>().ok();
        let range = text
            .split_once("..")
            .and_then(|(first, last)| Some((number(first)?, number(last)?)));
        match range {
            Some((first, last)) if first <= last => Ok(Numbers(first..=last)),
            _ => Err("write two numbers, the smaller first, as in 1..256".to_owned()),
        }
    }
}

/// `dense`, `sparse`, `sparse=1000`, `1..64`
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyChoice(pub Keys);

/// Keys, if nobody says how many.
const KEYS: u64 = 256;
/// Each has a place in a table.
const MOST_SPARSE: u64 = 1 << 24;

impl FromStr for KeyChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let keys = match text.strip_prefix("sparse") {
            Some("") => Keys::Sparse(KEYS),
            Some(count) => {
                let count = count.strip_prefix('=').and_then(|count| count.parse().ok());
                let count = count.filter(|count| (1..=MOST_SPARSE).contains(count));
                Keys::Sparse(
                    count.ok_or_else(|| format!("write `sparse`, or `sparse=N` with N from 1 to {MOST_SPARSE}"))?,
                )
            }
            None if text == "dense" => Keys::Range(1..=KEYS),
            None => match text.parse::<Numbers>() {
                Ok(numbers) => Keys::Range(numbers.0),
                Err(_) => {
                    return Err("write `dense`, `sparse`, or two numbers, the smaller first, as in 1..256".to_owned());
                }
            },
        };
        Ok(KeyChoice(keys))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_operations() {
        let count = |kind: StructureKind| kind.templates().len();
        assert_eq!(
            [StructureKind::Map, StructureKind::Queue, StructureKind::Array].map(count),
            [4, 3, 4]
        );
        assert_eq!("1..9".parse(), Ok(Numbers(1..=9)));
        assert_eq!("dense".parse(), Ok(KeyChoice(Keys::Range(1..=256))));
        assert_eq!("3..9".parse(), Ok(KeyChoice(Keys::Range(3..=9))));
        assert_eq!("sparse".parse(), Ok(KeyChoice(Keys::Sparse(256))));
        assert_eq!("sparse=9".parse(), Ok(KeyChoice(Keys::Sparse(9))));
        for other in ["sparse=0", "sparse9", "9..3", "thin", "sparse=99999999"] {
            assert!(other.parse::<KeyChoice>().is_err(), "{other}");
        }
        assert!("9..1".parse::<Numbers>().is_err() && "x".parse::<Numbers>().is_err());
    }
}
