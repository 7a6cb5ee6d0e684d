//! `-MJ FILE`: the entries of a compilation database, which clang does not write when it is only asked what it would do.

use std::ffi::OsStr;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use serde_json::json;

use super::arguments::Arguments;
use super::jobs::Job;
use crate::CompileError;

/// Writes an entry for each source if the command asks for it: as clang's, one a line, each followed by a comma.
pub(super) fn write(arguments: &Arguments, jobs: &[Job], name: &str) -> Result<(), CompileError> {
    let Some(file) = arguments.value("-MJ") else {
        return Ok(());
    };
    let text = |word: &OsStr| word.to_string_lossy().into_owned();
    let folder = std::env::current_dir().unwrap_or_default();
    let mut words = vec![name.to_owned()];
    let mut given = arguments.all.iter();
    while let Some(word) = given.next() {
        if word == "-MJ" {
            given.next();
        } else {
            words.push(text(word));
        }
    }
    let mut entries = String::new();
    for job in jobs.iter().filter(|job| job.makes().is_some()) {
        let entry = json!({
            "directory": text(folder.as_os_str()),
            "file": job.input().map(|(_, input)| text(input)),
            "output": job.output().map(text),
            "arguments": words,
        });
        let _ = writeln!(entries, "{entry},");
    }
    fs::write(file, entries).map_err(|source| CompileError::File {
        what: "write the compilation database",
        path: Path::new(file).into(),
        source,
    })
}
