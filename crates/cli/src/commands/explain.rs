//! `crashproof explain`: the update behaviours of a trace, as text, JSON, and pictures.

use std::fmt::Write as _;
use std::io::{ErrorKind, Write as _};
use std::path::Path;

use crashproof_crash::{Behaviour, BehaviourList, CampaignOptions, behaviour_list};
use crashproof_trace::{TraceFile, replace};

use super::Result;
use crate::arguments::ExplainArguments;
use crate::exit::Exit;
use crate::terminal;

/// Fields shown of one behaviour in the list.
const MAX_FIELDS: usize = 6;

#[derive(Debug, thiserror::Error)]
enum ExplainError {
    #[error("there is no behaviour {number}: the trace has {behaviours}; `crashproof explain TRACE` lists them")]
    NoSuchBehaviour { number: u64, behaviours: usize },
    #[error("cannot write {}: {source}", path.display())]
    Write {
        path: std::path::PathBuf,
        source: std::io::Error,
    },
}

pub(crate) fn run(arguments: &ExplainArguments) -> Result {
    let options = CampaignOptions {
        model: arguments.model.into(),
        reorder_in_line: arguments.reorder_in_line,
        joint: !arguments.no_joint,
        from: arguments.from.clone(),
        until: arguments.until.clone(),
        ..CampaignOptions::default()
    };
    let list = behaviour_list(&TraceFile::open(&arguments.trace)?, &options)?;
    for warning in &list.warnings {
        terminal::warning(warning);
    }
    let chosen = |number: u64| {
        let behaviours = list.behaviours.len();
        let index = usize::try_from(number - 1).unwrap_or(usize::MAX);
        list.behaviours
            .get(index)
            .ok_or(ExplainError::NoSuchBehaviour { number, behaviours })
    };
    let mut quiet = false;
    for (path, picture) in [
        (&arguments.dot, Behaviour::to_dot as fn(&Behaviour) -> String),
        (&arguments.svg, Behaviour::to_svg),
    ] {
        if let Some(path) = path {
            quiet |= write(path, &picture(chosen(arguments.behaviour.unwrap_or(1))?))?;
        }
    }
    if let Some(path) = &arguments.json {
        quiet |= write(path, &(serde_json::to_string_pretty(&list)? + "\n"))?;
    }
    if !quiet {
        let text = match arguments.behaviour {
            Some(number) => details(chosen(number)?),
            None => overview(&list),
        };
        print(&text)?;
    }
    Ok(Exit::Clean)
}

/// Whether that was stdout, which is then not for people.
fn write(path: &Path, text: &str) -> std::result::Result<bool, Box<dyn std::error::Error>> {
    if path == Path::new("-") {
        print(text)?;
        return Ok(true);
    }
    replace::write(path, text.as_bytes()).map_err(|source| ExplainError::Write {
        path: path.to_owned(),
        source,
    })?;
    Ok(false)
}

/// Whoever closes the pipe has read enough.
fn print(text: &str) -> std::io::Result<()> {
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

fn overview(list: &BehaviourList) -> String {
    let counts = &list.counts;
    let mut text = format!(
        "{} update behaviours of one object, {} of two objects; {} of them stand for all\n",
        counts.single,
        counts.joint,
        list.behaviours.len(),
    );
    if counts.too_large > 0 {
        let _ = writeln!(
            text,
            "{} more have too many stores to be looked at as one",
            counts.too_large
        );
    }
    text += "\n  No. stands for  stores  points  what is updated\n";
    for (index, behaviour) in list.behaviours.iter().enumerate() {
        let _ = writeln!(
            text,
            "{:5} {:10}  {:6}  {:6}  {}",
            index + 1,
            behaviour.represents,
            behaviour.updates.len(),
            behaviour.points,
            fields(behaviour)
        );
    }
    text
}

/// `struct node: key, value; struct list: head (list.c:14, 15, 17)`
fn fields(behaviour: &Behaviour) -> String {
    let mut parts = Vec::new();
    for (of, ty) in behaviour.types.iter().enumerate() {
        let mut names: Vec<&str> = Vec::new();
        for update in behaviour.updates.iter().filter(|update| update.of == of) {
            if !names.contains(&update.field.as_str()) {
                names.push(&update.field);
            }
        }
        let more = names.len().saturating_sub(MAX_FIELDS);
        names.truncate(MAX_FIELDS);
        let more = if more > 0 {
            format!(" and {more} more")
        } else {
            String::new()
        };
        parts.push(format!("{ty}: {}{more}", names.join(", ")));
    }
    let mut lines: Vec<(&str, u32)> = behaviour
        .updates
        .iter()
        .filter_map(|update| Some((file_name(update.file.as_deref()?), update.line?)))
        .collect();
    lines.sort_unstable();
    lines.dedup();
    let more = lines.len() > MAX_FIELDS;
    lines.truncate(MAX_FIELDS);
    let mut places = Vec::new();
    let mut last = "";
    for (file, line) in lines {
        places.push(if file == last {
            line.to_string()
        } else {
            format!("{file}:{line}")
        });
        last = file;
    }
    let more = if more { ", …" } else { "" };
    format!("{} ({}{more})", parts.join("; "), places.join(", "))
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn details(behaviour: &Behaviour) -> String {
    let mut text = format!(
        "{}\nstands for {} behaviours of {} different shapes; tested at {} crash points\n\n",
        behaviour.types.join(" + "),
        behaviour.represents,
        behaviour.shapes,
        behaviour.points,
    );
    for (number, update) in behaviour.updates.iter().enumerate() {
        let before = behaviour.edges.iter().filter(|(_, to)| *to == number);
        let before: Vec<String> = before.map(|(from, _)| (from + 1).to_string()).collect();
        let place = match (&update.file, update.line) {
            (Some(file), Some(line)) => format!("{}:{line}", file_name(file)),
            _ => String::new(),
        };
        let persistent = update
            .persistent_at
            .map_or("never persistent".to_owned(), |event| format!("persistent at {event}"));
        let _ = writeln!(
            text,
            "{:4}  {}{}  {} {}  {}+{}  event {}, {persistent}{}",
            number + 1,
            if behaviour.types.len() > 1 {
                format!("{}: ", behaviour.types[update.of])
            } else {
                String::new()
            },
            update.field,
            update.function.as_deref().unwrap_or("?"),
            place,
            format_args!("{:#x}", update.offset),
            update.length,
            update.event,
            if before.is_empty() {
                String::new()
            } else {
                format!(", after {}", before.join(", "))
            },
        );
    }
    text
}
