//! `crashproof litmus`: verdict and least repair of a litmus file, or one cut out of a trace.

mod cut;

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crashproof_litmus::{Action, Least, Line, Litmus, Repair, StoreKind, Violation, repair, violations};
use serde::Serialize;

use super::{Result, outcome};
use crate::arguments::LitmusArguments;
use crate::exit::Exit;
use crate::terminal;

/// Numbers of events, as `N..M`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Window(pub Range<u64>);

impl FromStr for Window {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, Self::Err> {
        let range = text
            .split_once("..")
            .and_then(|(from, to)| Some(from.parse().ok()?..to.parse().ok()?));
        match range {
            Some(range) if !Range::is_empty(&range) => Ok(Window(range)),
            _ => Err("not a range of events; write it as 120..160".to_owned()),
        }
    }
}

#[derive(Debug, thiserror::Error)]
enum LitmusError {
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{}:{error}", path.display())]
    Parse {
        path: PathBuf,
        error: crashproof_litmus::ParseError,
    },
}

pub(crate) fn run(arguments: &LitmusArguments) -> Result {
    if let Some(trace) = &arguments.from {
        print!("{}", cut::cut(trace, arguments.window.as_ref())?);
        return Ok(Exit::Clean);
    }
    let Some(path) = &arguments.file else {
        return Err("give a litmus file, or --from TRACE".into());
    };
    let litmus = read(path)?;
    let broken = violations(&litmus);
    let holds = broken.is_empty();
    let mut found = None;
    let exit = if arguments.repair {
        match repair(&litmus, arguments.time.0) {
            Ok(least) => {
                print!("{}{}", summary(&least), litmus.repaired(&least));
                found = Some(least);
                Exit::Clean
            }
            Err(error) => {
                terminal::print(&format!("no repair: {error}\n"));
                Exit::Findings
            }
        }
    } else {
        print_verdicts(&litmus, &broken);
        if holds { Exit::Clean } else { Exit::Findings }
    };
    if let Some(path) = &arguments.json {
        let document = Document {
            holds,
            violations: broken
                .iter()
                .map(|violation| JsonViolation::of(&litmus, violation))
                .collect(),
            repair: found.as_ref().map(|found| JsonRepair::of(&litmus, found)),
        };
        outcome::write("JSON", path, &(serde_json::to_string_pretty(&document)? + "\n"))?;
    }
    Ok(exit)
}

fn read(path: &Path) -> std::result::Result<Litmus, LitmusError> {
    let text = std::fs::read_to_string(path).map_err(|source| LitmusError::Read {
        path: path.into(),
        source,
    })?;
    Litmus::parse(&text).map_err(|error| LitmusError::Parse {
        path: path.into(),
        error,
    })
}

fn print_verdicts(litmus: &Litmus, broken: &[Violation]) {
    for (index, &property) in litmus.properties.iter().enumerate() {
        let text = litmus.property(property);
        let text = text.trim_start_matches("require ");
        match broken.iter().find(|violation| violation.property == index) {
            None => println!("holds:    {text}"),
            Some(violation) => println!("violated: {text}\n          {}", in_words(litmus, violation)),
        }
    }
    if litmus.properties.is_empty() {
        println!("nothing is required: add `require durable NAME` or `require NAME before NAME`");
    }
}

fn in_words(litmus: &Litmus, violation: &Violation) -> String {
    let crash = &violation.crash;
    let names = |stores: &[usize]| {
        let names: Vec<&str> = stores.iter().map(|&store| litmus.stores[store].name.as_str()).collect();
        names.join(", ")
    };
    let after = match crash.after {
        Some(at) if at + 1 == litmus.ops.len() => "a crash at the end".to_owned(),
        Some(at) => format!("a crash after `{}`", Line(litmus, &litmus.ops[at])),
        None => "a crash".to_owned(),
    };
    match crash.persisted.is_empty() {
        true => format!("{after} may lose {}", names(&crash.missing)),
        false => format!(
            "{after} may leave {} persisted, and {} lost",
            names(&crash.persisted),
            names(&crash.missing)
        ),
    }
}

fn summary(repair: &Repair) -> String {
    let changes = [
        (repair.stores_moved, "store moved", "stores moved"),
        (repair.added_fences, "fence added", "fences added"),
        (repair.added_flushes, "flush added", "flushes added"),
        (repair.moved, "flush or fence moved", "flushes and fences moved"),
    ];
    let changes: Vec<String> = changes
        .into_iter()
        .filter(|&(count, ..)| count > 0)
        .map(|(count, one, many)| format!("{count} {}", if count == 1 { one } else { many }))
        .collect();
    let why = match repair.least {
        Least::NothingToDo => return "# all properties hold\n".to_owned(),
        Least::Disjoint => {
            "the least change: as many spans between stores are disjoint, and each needs one of its own".to_owned()
        }
        Least::Exact => "the least change: a search through all that would change less found nothing".to_owned(),
        Least::Additions => {
            "nothing less can be added, and no fewer stores moved; whether fewer flushes and fences could \
            move was not found out in time"
                .to_owned()
        }
        Least::InParts { parts, shapes } => {
            let alike = match shapes {
                1 => "all alike".to_owned(),
                shapes => format!("{shapes} of them different"),
            };
            format!(
                "the least change in each of {parts} iterations, {alike}, if each is to be persistent by its end; \
                 a change across them may be smaller"
            )
        }
    };
    format!("# {}\n# {why}\n", changes.join(", "))
}

#[derive(Serialize)]
struct Document {
    holds: bool,
    violations: Vec<JsonViolation>,
    #[serde(skip_serializing_if = "Option::is_none")]
    repair: Option<JsonRepair>,
}

#[derive(Serialize)]
struct JsonViolation {
    property: String,
    /// The last operation before the crash.
    after: Option<String>,
    persisted: Vec<String>,
    missing: Vec<String>,
}

impl JsonViolation {
    fn of(litmus: &Litmus, violation: &Violation) -> JsonViolation {
        let names = |stores: &[usize]| stores.iter().map(|&store| litmus.stores[store].name.clone()).collect();
        JsonViolation {
            property: litmus.property(litmus.properties[violation.property]),
            after: violation
                .crash
                .after
                .map(|at| Line(litmus, &litmus.ops[at]).to_string()),
            persisted: names(&violation.crash.persisted),
            missing: names(&violation.crash.missing),
        }
    }
}

#[derive(Serialize)]
struct JsonRepair {
    lines: Vec<JsonLine>,
    added_flushes: usize,
    added_fences: usize,
    moved: usize,
    stores_moved: usize,
}

#[derive(Serialize)]
struct JsonLine {
    op: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    addr: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    len: Option<u64>,
    #[serde(skip_serializing_if = "String::is_empty")]
    thread: String,
    added: bool,
    moved: bool,
}

impl JsonRepair {
    fn of(litmus: &Litmus, repair: &Repair) -> JsonRepair {
        let line = |line: &crashproof_litmus::RepairedLine| {
            let (op, store, at) = match &line.op.action {
                Action::Store(store) => {
                    let at = litmus.stores[*store].at;
                    match litmus.stores[*store].kind {
                        StoreKind::Plain => ("store", Some(*store), Some(at)),
                        StoreKind::Nontemporal => ("ntstore", Some(*store), Some(at)),
                        StoreKind::Locked => ("rmw", Some(*store), Some(at)),
                    }
                }
                Action::Flush(flush) if flush.at_once => ("clflush", flush.names, Some(flush.at)),
                Action::Flush(flush) => ("flush", flush.names, Some(flush.at)),
                Action::Fence { full: true } => ("mfence", None, None),
                Action::Fence { full: false } => ("fence", None, None),
            };
            JsonLine {
                op,
                name: store.map(|store| litmus.stores[store].name.clone()),
                addr: at.map(|at| at.start),
                len: at.map(|at| at.len),
                thread: litmus.threads[line.op.thread as usize].clone(),
                added: line.added,
                moved: line.moved,
            }
        };
        JsonRepair {
            lines: repair.lines.iter().map(line).collect(),
            added_flushes: repair.added_flushes,
            added_fences: repair.added_fences,
            moved: repair.moved,
            stores_moved: repair.stores_moved,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows() {
        assert_eq!("3..9".parse(), Ok(Window(3..9)));
        for bad in ["", "3", "9..3", "3..3", "a..b", "3..9..12"] {
            assert!(bad.parse::<Window>().is_err(), "{bad}");
        }
    }
}
