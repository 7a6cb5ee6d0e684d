//! What would help where no order does, for a person to do.

use std::path::Path;

use crashproof_finding::{CrashStore, Finding, Kind};

use super::atomic::WrittenName;
use crate::source::units::canonical;

/// Bytes that become persistent at once.
const WORD: u64 = 8;

/// `names` are what is stored to, as the source has it.
pub(super) fn advice(finding: &Finding, names: &[WrittenName]) -> Option<String> {
    if finding.kind != Kind::CrashAtomicity {
        return None;
    }
    let crash = finding.crash.as_ref()?;
    let mut stores: Vec<&CrashStore> = crash.persisted.iter().chain(&crash.missing).collect();
    stores.sort_by_key(|store| (&store.pm.file, store.pm.offset, store.frame.line));
    stores.dedup_by_key(|store| (&store.pm.file, store.pm.offset, store.frame.line));
    let mut places: Vec<(&str, u32)> = Vec::new();
    for place in stores.iter().filter_map(|store| place(store)) {
        if !places.contains(&place) {
            places.push(place);
        }
    }
    let first = stores.iter().map(|store| store.pm.offset).min()?;
    let end = stores.iter().map(|store| store.pm.offset + store.pm.length).max()?;
    let is_one_file = stores.iter().all(|store| store.pm.file == stores[0].pm.file);
    let named: Vec<String> = places
        .iter()
        .map(|(file, line)| {
            let path = canonical(Path::new(file));
            let here = names.iter().filter(|name| (&name.file, name.line) == (&path, *line));
            let here: Vec<String> = here.map(|name| format!("`{}`", name.name)).collect();
            // Of the file, its name.
            let file = file.rsplit('/').next().unwrap_or(file);
            match here.is_empty() {
                true => format!("{file}:{line}"),
                false => format!("{} ({file}:{line})", here.join(" and ")),
            }
        })
        .collect();
    let lines = named.join(" and ");
    if is_one_file && end - first <= WORD {
        return Some(match first / WORD == (end - 1) / WORD {
            true => format!(
                "{lines} lie in one aligned word of {WORD} bytes (offset {first:#x}): keep it in one 8-byte field and write that with a single store"
            ),
            false => format!(
                "{lines} are {} bytes that cross an 8-byte boundary (offset {first:#x}): align it to {WORD} bytes and write it with a single store",
                end - first
            ),
        });
    }
    Some(format!(
        "make the updates of {lines} one: keep them in a single 8-byte word if they fit; else write them to a log first (an undo or redo log whose commit mark is \
         one 8-byte store, persistent after its entries), write a copy and switch to it by one 8-byte pointer or index, or use a transaction (libpmemobj: \
         pmemobj_tx_add_range for each of them in one TX_BEGIN block)"
    ))
}

/// The file and the line.
fn place(store: &CrashStore) -> Option<(&str, u32)> {
    Some((store.frame.file.as_deref()?, store.frame.line?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_belongs_to_a_file_and_a_line() {
        let store = |file: &str, offset: u64| {
            format!(
                r#"{{"file": "/t/{file}", "line": 5, "address": 0, "stack": [], "pm": {{"file": "p", "offset": {offset}, "length": 8}}, "data": ""}}"#
            )
        };
        let text = format!(
            r#"{{"kind": "crash-atomicity", "severity": "error", "file": "/t/a.c", "line": 5, "count": 1, "message": "", "stack": [],
                "crash": {{"after": {{"address": 0}}, "after_stack": [], "persisted": [{}], "missing": [{}],
                           "recovery": {{"command": "", "timeout": false, "stdout": "", "stderr": ""}}, "states": 1, "depth": 1}}}}"#,
            store("a.c", 0),
            store("b.c", 64),
        );
        let finding: Finding = serde_json::from_str(&text).expect("a finding");
        let name = |name: &str, file: &str| WrittenName {
            name: name.into(),
            file: file.into(),
            line: 5,
        };
        let names = [name("head", "/t/a.c"), name("tail", "/t/b.c"), name("other", "/t/c.c")];
        let advice = advice(&finding, &names).expect("advice");
        assert!(
            advice.starts_with("make the updates of `head` (a.c:5) and `tail` (b.c:5) one"),
            "{advice}"
        );
    }
}
