//! `crashproof infer`.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;

use crashproof_infer::{Conditions, Listing};
use crashproof_trace::TraceFile;

use super::Result;
use crate::arguments::InferArguments;
use crate::exit::Exit;
use crate::terminal;

/// Conditions of a rule that are listed.
const LISTED: usize = 20;

#[derive(Debug, thiserror::Error)]
#[error("cannot write the conditions to {}: {source}", path.display())]
struct OutputError {
    path: PathBuf,
    source: std::io::Error,
}

pub(crate) fn run(arguments: &InferArguments) -> Result {
    let helpers = arguments.project.load()?.declared_helpers();
    let listing = Listing::new(&Conditions::infer(&TraceFile::open(&arguments.trace)?)?, helpers);
    for warning in &listing.warnings {
        terminal::warning(warning);
    }
    let to_stdout = arguments.json.as_ref().is_some_and(|path| path.as_os_str() == "-");
    if let Some(path) = &arguments.json {
        let mut json = serde_json::to_vec_pretty(&listing)?;
        json.push(b'\n');
        let written = match to_stdout {
            true => std::io::stdout().lock().write_all(&json),
            false => crashproof_trace::replace::write(path, &json),
        };
        written.map_err(|source| OutputError {
            path: path.clone(),
            source,
        })?;
    }
    if !to_stdout {
        let shown = if arguments.all { usize::MAX } else { LISTED };
        print!("{}", text(&listing, shown));
    }
    Ok(Exit::Clean)
}

fn text(listing: &Listing, shown: usize) -> String {
    let mut out = String::new();
    // Writing to a string does not fail.
    for rule in listing.rules.iter().filter(|rule| rule.conditions > 0) {
        let of = if rule.rule == "PA1" {
            "guardians"
        } else {
            "pairs of locations"
        };
        let _ = writeln!(
            out,
            "{}: {} {of}, {} lifted to types and fields",
            rule.rule, rule.conditions, rule.lifted
        );
        let listed = listing.conditions.iter().filter(|listed| listed.rule == rule.rule);
        for condition in listed.take(shown) {
            let times = if condition.count == 1 {
                "once".to_owned()
            } else {
                format!("{} times", condition.count)
            };
            let _ = writeln!(out, "  {} [{times}]", condition.text);
            for (role, side) in [("first", Some(&condition.before)), ("then", condition.after.as_ref())] {
                let frame = side
                    .and_then(|side| side.frame.as_ref())
                    .filter(|frame| frame.has_position());
                if let Some(frame) = frame {
                    let _ = writeln!(
                        out,
                        "      {role} stored by {} at {}:{}",
                        frame.function.as_deref().unwrap_or("?"),
                        frame.file.as_deref().unwrap_or("?"),
                        frame.line.unwrap_or(0)
                    );
                }
            }
        }
        let more = (rule.listed as usize).saturating_sub(shown);
        if more > 0 {
            let _ = writeln!(out, "  … {more} more (--all, --json FILE)");
        }
    }
    if !listing.busiest.is_empty() {
        out.push_str("most dependents:\n");
    }
    for busy in &listing.busiest {
        let side = &busy.side;
        let field = side.field.as_ref().map_or(String::new(), |field| format!(" `{field}`"));
        let _ = writeln!(
            out,
            "  {:>8}  {}+{:#x} ({} bytes){field}",
            busy.dependents, side.at.file, side.at.offset, side.at.length
        );
    }
    let _ = write!(out, "{} accesses, {} locations", listing.accesses, listing.locations);
    if listing.cuts > 0 {
        let _ = write!(
            out,
            "; {} labels had more loads than are kept: of those some conditions are missing",
            listing.cuts
        );
    }
    out.push('\n');
    out
}
