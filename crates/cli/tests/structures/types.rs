//! Types that debug info gives to the stores of a structure, against those that `crashproof cc` noted when it built the same source.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Stdio};

use crashproof_sites::{Store, Typing};
use crashproof_stacks::{Stacks, file_name};
use crashproof_trace::{EventKind, Item, TraceReader};

use crate::crash::{Compiler, SEED, build};
use crate::structure::Structure;
use crate::support;

/// Compilers of unmodified binaries: for C, for C++, and the optimisation.
const UNMODIFIED: [(&str, &str, &str); 3] = [
    ("gcc", "g++", "-O0"),
    ("gcc", "g++", "-O2"),
    ("clang-19", "clang++-19", "-O2"),
];

/// A type, its size, and a field.
type Field = (String, u64, String);

/// What the stores of each line write: for each store, the fields from the innermost object outwards.
type Lines = BTreeMap<(String, u32), BTreeSet<Vec<Field>>>;

/// Wherever debug info says a type and field, so does `crashproof cc` for a store of that line.
pub fn compare(structure: &Structure, operations: u32) -> Result<(), String> {
    let noted = recorded(&build(structure, None, Compiler::Crashproof)?, operations)?;
    for (c, cxx, level) in UNMODIFIED {
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let program = folder.path().join("program");
        let compiler = if structure.is_cxx() { cxx } else { c };
        let mut command = Command::new(compiler);
        command
            .args(["-g", level])
            .arg(&structure.source)
            .arg("-o")
            .arg(&program);
        let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
        if !output.status.success() {
            return Err(format!("{command:?}\n{}", support::text(&output.stderr)));
        }
        let found = recorded(&program, operations)?;
        if found.values().flatten().all(Vec::is_empty) {
            return Err(format!("{compiler} {level}: no store has a type"));
        }
        for ((file, line), stores) in &found {
            // Optimised code credits a store to the line before or after, where both store.
            let near: BTreeSet<&Field> = (line.saturating_sub(1)..=line + 1)
                .filter_map(|line| noted.get(&(file.clone(), line)))
                .flatten()
                .flatten()
                .collect();
            for fields in stores {
                if !near.is_empty() && !fields.is_empty() && !agrees(fields, &near) {
                    return Err(format!(
                        "{compiler} {level}, {file}:{line}: {fields:?}, but crashproof cc has {near:?}"
                    ));
                }
            }
        }
    }
    Ok(())
}

/// Some type is one that was noted there, with the same field. (Not each: a copy is made in other pieces, of which each is in other members.)
fn agrees(fields: &[Field], noted: &BTreeSet<&Field>) -> bool {
    let same_type = |field: &Field, noted: &Field| (&field.0, field.1) == (&noted.0, noted.1);
    fields.iter().any(|field| {
        let mut of_type = noted.iter().filter(|noted| same_type(field, noted));
        of_type.any(|noted| share_a_member(&field.2, &noted.2))
    })
}

/// Instructions of different widths write a different number of the same fields.
fn share_a_member(a: &str, b: &str) -> bool {
    let members = |name: &str| -> BTreeSet<String> {
        name.split(['+', '|'])
            .map(|path| path.split(['.', '[']).next().unwrap_or(path).to_owned())
            .collect()
    };
    a.starts_with("bytes ") || b.starts_with("bytes ") || !members(a).is_disjoint(&members(b))
}

fn recorded(program: &Path, operations: u32) -> Result<Lines, String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let trace = folder.path().join("trace");
    let mut command = support::crashproof();
    command.arg("record").arg("-o").arg(&trace).arg("--").arg(program);
    command.args(["load", "pm", &operations.to_string(), SEED]);
    command.current_dir(folder.path()).stdin(Stdio::null());
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{command:?}\n{}", support::text(&output.stderr)));
    }
    let mut reader = TraceReader::open(&trace).map_err(|error| error.to_string())?;
    let mut stores = Vec::new();
    while let Some(item) = reader.next().map_err(|error| error.to_string())? {
        if let Item::Event(event) = item
            && let EventKind::Store { at, data, .. } = event.kind
        {
            let (thread, stack, len) = (event.thread, event.stack, data.len());
            stores.push(Store { thread, stack, at, len });
        }
    }
    let mut typing = Typing::new();
    let types = typing.all(reader.tables(), &stores);
    let mut stacks = Stacks::default();
    let mut lines = Lines::new();
    for (index, store) in stores.iter().enumerate() {
        let symbolized = stacks.symbolize(store.stack, reader.tables());
        let place = symbolized
            .frames
            .iter()
            .find_map(|frame| Some((file_name(frame.file.as_ref()?).to_owned(), frame.line?)));
        let fields = types.of(index).iter().map(|typed| {
            let (name, field) = (typing.type_name(typed.ty), typing.field_name(typed.field));
            (name.to_owned(), typing.type_size(typed.ty), field.to_owned())
        });
        if let Some(place) = place {
            lines.entry(place).or_default().insert(fields.collect());
        }
    }
    Ok(lines)
}
