//! Which files a report is about: those of the trace, with how much was done to them, and those that were left out.

use crashproof_finding::{FileLeftOut, FileLookedAt, LeftOutReason};
use crashproof_trace::{FileId, FileUses, Outline};
use rustc_hash::FxHashMap;

/// The files looked at and those left out, of a trace that was read to its end. `not_shown`: findings in files that the program
/// deleted.
pub fn files(
    outline: &Outline,
    uses: &FileUses,
    not_shown: &FxHashMap<FileId, u64>,
) -> (Vec<FileLookedAt>, Vec<FileLeftOut>) {
    let of_trace = outline
        .left_out
        .iter()
        .map(|left_out| FileLeftOut::new(left_out.path.clone(), left_out.reason, left_out.errno));
    let mut left_out: Vec<FileLeftOut> = of_trace.collect();
    let mut looked_at = Vec::new();
    let selected = !outline.header.options.pm.is_empty();
    for (file, id) in outline.tables.files.iter().zip((0..).map(FileId)) {
        let file_use = uses.of(id);
        let path = uses.late_name(id).unwrap_or(&file.path).to_owned();
        if file_use.unlinked_first && !selected {
            left_out.push(FileLeftOut::new(path, LeftOutReason::Unlinked, None));
        } else if file_use.stores > 0 || file_use.mapped && !file.is_registered_memory() {
            // libpmemobj registers a word of its own for a moment, to see whether pmemcheck is there.
            looked_at.push(FileLookedAt {
                path,
                stores: file_use.stores,
                flushes: file_use.flushes,
                syncs: file_use.syncs,
                findings: 0,
                deleted: file_use.unlinked,
                not_shown: not_shown.get(&id).copied().unwrap_or(0),
            });
        }
    }
    (looked_at, left_out)
}
