//! Types that debug info gives to the stores of a structure, against those that `crashproof cc` noted when it built the same source.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::process::{Command, Stdio};

use crashproof_sites::{Store, TypeId, Typing};
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

/// What a program wrote.
struct Recorded {
    stores: Vec<Written>,
    typing: Typing,
}

/// The source line, the bytes of the file, and the objects that they are in, innermost first.
struct Written {
    place: (String, u32),
    bytes: Range<u64>,
    levels: Vec<Level>,
}

struct Level {
    ty: TypeId,
    /// Of the type.
    name: String,
    size: u64,
    /// Where the object begins in the file.
    start: u64,
    is_guessed: bool,
    field: String,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let guessed = if self.is_guessed { "?" } else { "" };
        write!(
            f,
            "{} ({}) at {}{guessed}: {}",
            self.name, self.size, self.start, self.field
        )
    }
}

/// What `crashproof cc` noted.
struct Noted<'w> {
    recorded: &'w Recorded,
    /// Stores by file, line and block.
    places: BTreeMap<(&'w str, u32, u64), Vec<usize>>,
}

/// Bytes.
const BLOCK: u64 = 64;

fn blocks(bytes: &Range<u64>) -> impl Iterator<Item = u64> {
    bytes.start / BLOCK..=(bytes.end - 1) / BLOCK
}

impl<'w> Noted<'w> {
    fn new(recorded: &'w Recorded) -> Noted<'w> {
        let mut places: BTreeMap<(&str, u32, u64), Vec<usize>> = BTreeMap::new();
        for (index, store) in recorded.stores.iter().enumerate() {
            let (file, line) = &store.place;
            for block in blocks(&store.bytes) {
                places.entry((file, *line, block)).or_default().push(index);
            }
        }
        Noted { recorded, places }
    }

    /// Stores that write some of the same bytes, on the same line or one beside it: optimised code credits a store to the line before or after.
    fn near(&self, store: &Written) -> Vec<&'w Written> {
        let (file, line) = &store.place;
        let lines = line.saturating_sub(1)..=line + 1;
        let places = lines.flat_map(|line| blocks(&store.bytes).map(move |block| (file.as_str(), line, block)));
        let indices = places.filter_map(|place| self.places.get(&place)).flatten();
        let stores = indices.map(|&index| &self.recorded.stores[index]);
        stores
            .filter(|noted| noted.bytes.start < store.bytes.end && store.bytes.start < noted.bytes.end)
            .collect()
    }

    /// Whether a store that was noted is to the same object, and the same field where both write the same bytes.
    fn says(&self, noted: &Written, store: &Written, found: &Level) -> bool {
        let is_type = |name: &str, size: u64| (name, size) == (found.name.as_str(), found.size);
        let same_field = |level: &Level| store.bytes != noted.bytes || level.field == found.field;
        noted.levels.iter().any(|level| {
            let distance = found.start.checked_sub(level.start);
            let is_it = distance == Some(0) || level.is_guessed || found.is_guessed;
            // A store that covers several elements of an array is known by the first.
            let is_further = distance.is_some_and(|distance| distance.is_multiple_of(found.size.max(1)))
                && noted.bytes.end > level.start + level.size
                && noted.bytes.end > found.start;
            if is_type(&level.name, level.size) && ((is_it && same_field(level)) || is_further) {
                return true;
            }
            // A smaller piece of it may lie in a member.
            let Some(offset) = store.bytes.start.checked_sub(level.start).filter(|_| !level.is_guessed) else {
                return false;
            };
            let typing = &self.recorded.typing;
            let within = typing.nested(level.ty, offset, store.bytes.end - store.bytes.start);
            within
                .iter()
                .skip(1)
                .any(|&(name, size, at)| is_type(name, size) && distance == Some(at))
        })
    }
}

/// Wherever debug info says that a store is to an object, so does `crashproof cc` for those bytes, written by that line: every level of types, each where the
/// object begins. Programs are deterministic, but for `clht.c`, whose threads take turns: what is written at another place there is not compared.
pub(crate) fn compare(structure: &Structure, operations: u32) -> Result<(), String> {
    let recorded_by_cc = recorded(&build(structure, None, Compiler::Crashproof)?, operations)?;
    let noted = Noted::new(&recorded_by_cc);
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
        let mut compared = 0;
        let found = recorded(&program, operations)?.stores;
        for store in found.iter().filter(|store| !store.levels.is_empty()) {
            let near = noted.near(store);
            for found in store.levels.iter().filter(|_| !near.is_empty()) {
                compared += 1;
                if !near.iter().any(|near| noted.says(near, store, found)) {
                    let ((file, line), bytes) = (&store.place, &store.bytes);
                    let near: BTreeSet<String> = near
                        .iter()
                        .flat_map(|near| &near.levels)
                        .map(Level::to_string)
                        .collect();
                    return Err(format!(
                        "{compiler} {level}, {file}:{line}, {bytes:?}: {found}, but crashproof cc has {near:#?}"
                    ));
                }
            }
        }
        if compared == 0 {
            return Err(format!("{compiler} {level}: no store has a type"));
        }
    }
    Ok(())
}

fn recorded(program: &Path, operations: u32) -> Result<Recorded, String> {
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
    let mut written = Vec::new();
    for (index, store) in stores.iter().enumerate() {
        let symbolized = stacks.symbolize(store.stack, reader.tables());
        let place = symbolized
            .frames
            .iter()
            .find_map(|frame| Some((file_name(frame.file.as_ref()?).to_owned(), frame.line?)));
        let levels = types.of(index).iter().map(|typed| Level {
            ty: typed.ty,
            name: typing.type_name(typed.ty).to_owned(),
            size: typing.type_size(typed.ty),
            start: typed.instance.offset,
            is_guessed: typed.is_guessed,
            field: typing.field_name(typed.field).to_owned(),
        });
        if let Some(place) = place {
            written.push(Written {
                place,
                bytes: store.at.offset..store.at.offset + store.len as u64,
                levels: levels.collect(),
            });
        }
    }
    Ok(Recorded {
        stores: written,
        typing,
    })
}
