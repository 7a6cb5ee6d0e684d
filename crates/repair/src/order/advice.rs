//! What would help where no order does, for a person to do.

use crashproof_finding::{CrashStore, Finding, Kind};

/// Bytes that become persistent at once.
const WORD: u64 = 8;

/// `names` are the places that are stored to, as the source has them, with their lines.
pub(super) fn advice(finding: &Finding, names: &[(String, u32)]) -> Option<String> {
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
            let here = names.iter().filter(|(_, at)| at == line);
            let here: Vec<String> = here.map(|(name, _)| format!("`{name}`")).collect();
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

/// The file's name, and the line.
fn place(store: &CrashStore) -> Option<(&str, u32)> {
    let file = store.frame.file.as_deref()?;
    Some((file.rsplit('/').next().unwrap_or(file), store.frame.line?))
}
