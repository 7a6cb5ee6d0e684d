//! The files that a report is about, and those that were left out: their words, for every rendering.

use std::fmt::Write;

use crate::group::Group;
use crate::words::{number, plural};
use crate::{FileLeftOut, FileLookedAt, LeftOutReason, Report};

/// Lines shown in a terminal, of the files looked at and of those left out.
const MAX_LINES: usize = 4;
/// Files named of those that could not be opened for the same reason.
const MAX_FAILED: usize = 3;

/// "a lock file".
fn summary(reason: LeftOutReason) -> &'static str {
    match reason {
        LeftOutReason::SharedMemory => "shared memory made by shm_open",
        LeftOutReason::Semaphore => "a semaphore made by sem_open",
        LeftOutReason::Memfd => "memory made by memfd_create",
        LeftOutReason::LockFile => "a lock file",
        LeftOutReason::JavaCounters => "counters of the Java virtual machine",
        LeftOutReason::SqliteIndex => "the index of SQLite's log, which SQLite makes anew",
        LeftOutReason::Unlinked => "without a name before its first store",
        LeftOutReason::NotSelected => "does not match --pm",
        LeftOutReason::ReadOnly => "opened for reading only",
        LeftOutReason::Private => "mapped privately: stores do not reach the file",
        LeftOutReason::OpenFailed => "cannot be opened for writing",
    }
}

/// A reason in a report: by its name.
pub(crate) mod reason {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    use crate::LeftOutReason;

    pub(crate) fn serialize<S: Serializer>(reason: &LeftOutReason, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(reason.name())
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<LeftOutReason, D::Error> {
        let name = std::borrow::Cow::<str>::deserialize(deserializer)?;
        let found = LeftOutReason::ALL.into_iter().find(|(_, known)| *known == name);
        let unknown = || D::Error::custom(format!("unknown reason `{name}` why a file was left out"));
        found.map(|(reason, _)| reason).ok_or_else(unknown)
    }
}

impl FileLeftOut {
    /// `errno` is of [`LeftOutReason::OpenFailed`] only.
    pub fn new(path: String, reason: LeftOutReason, errno: Option<i32>) -> FileLeftOut {
        let option = match reason {
            _ if reason.is_about_one_use() => None,
            // libc maps it unseen: nothing brings it back.
            LeftOutReason::Semaphore => None,
            // Its name is a process number.
            LeftOutReason::JavaCounters => Some("--pm '*/hsperfdata_*'".to_owned()),
            _ => Some(select(&path)),
        };
        FileLeftOut {
            path,
            reason,
            errno,
            option,
        }
    }

    /// "a lock file; --pm lock.mdb".
    pub fn in_words(&self) -> String {
        let mut words = summary(self.reason).to_owned();
        if let Some(errno) = self.errno {
            let error = std::io::Error::from_raw_os_error(errno).to_string();
            let text = error.split(" (os error").next().unwrap_or_default();
            let _ = write!(words, ": {text}");
        }
        if let Some(option) = &self.option {
            let _ = write!(words, "; {option}");
        }
        words
    }
}

impl FileLookedAt {
    /// How many of these are in the file.
    fn shown(&self, groups: &[Group<'_>]) -> u64 {
        groups.iter().filter(|group| group.is_in(&self.path)).count() as u64
    }

    /// "111 stores, 3 flushes, 2 findings"; `shown` is what the report shows, of all files.
    pub fn in_words(&self, shown: &[Group<'_>]) -> String {
        let mut parts = vec![plural(self.stores, "store")];
        match self.flushes {
            0 => {}
            1 => parts.push("1 flush".to_owned()),
            flushes => parts.push(format!("{} flushes", number(flushes))),
        }
        if self.syncs > 0 {
            parts.push(plural(self.syncs, "sync"));
        }
        let findings = self.shown(shown);
        if findings > 0 {
            parts.push(plural(findings, "finding"));
        }
        let mut words = parts.join(", ");
        if self.deleted {
            words += "; deleted by the program";
        }
        if self.not_shown > 0 {
            let findings = plural(self.not_shown, "finding");
            let _ = write!(words, ", {findings} not shown; {}", select(&self.path));
        }
        words
    }
}

/// How the names of memory begin that the program registered as persistent.
const REGISTERED: &str = "registered memory";

/// The option that makes a file PM whatever is known of it.
fn select(path: &str) -> String {
    if path.starts_with(REGISTERED) {
        return format!("--pm '{REGISTERED}*'");
    }
    let name = name(path);
    let plain = |c: char| c.is_alphanumeric() || "_-.:+,@%=#".contains(c);
    if name.chars().all(plain) {
        return format!("--pm {name}");
    }
    // A pattern in which every character stands for itself.
    let mut pattern = String::new();
    for c in name.chars() {
        if "*?[\\".contains(c) {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    format!("--pm '{}'", pattern.replace('\'', "'\\''"))
}

fn name(path: &str) -> &str {
    match path.rsplit('/').next() {
        Some(name) if !name.is_empty() => name,
        _ => path,
    }
}

/// Files left out that are told in one line: one file, or many that the program could not open for the same reason. A database tries
/// hundreds of names that are not there.
pub struct LeftOutLine<'a> {
    files: Vec<&'a FileLeftOut>,
}

impl<'a> LeftOutLine<'a> {
    /// In the order in which the first of each was left out.
    pub fn of(files: impl Iterator<Item = &'a FileLeftOut>) -> Vec<LeftOutLine<'a>> {
        let mut lines: Vec<LeftOutLine<'a>> = Vec::new();
        for file in files {
            let same = |line: &&mut LeftOutLine<'_>| {
                let first = line.files[0];
                file.reason == LeftOutReason::OpenFailed && (first.reason, first.errno) == (file.reason, file.errno)
            };
            match lines.iter_mut().find(same) {
                Some(line) => line.files.push(file),
                None => lines.push(LeftOutLine { files: vec![file] }),
            }
        }
        let few = |line: &LeftOutLine<'_>| line.files.len() <= MAX_FAILED;
        lines
            .into_iter()
            .flat_map(|line| match few(&line) {
                true => line
                    .files
                    .into_iter()
                    .map(|file| LeftOutLine { files: vec![file] })
                    .collect(),
                false => vec![line],
            })
            .collect()
    }

    /// "lock.mdb", or "342 files".
    pub fn subject(&self, shown: impl Fn(&str) -> String) -> String {
        match self.files[..] {
            [file] => shown(&file.path),
            _ => plural(self.files.len() as u64, "file"),
        }
    }

    /// "a lock file; --pm lock.mdb".
    pub fn in_words(&self) -> String {
        let mut words = self.files[0].in_words();
        if self.files.len() > MAX_FAILED {
            let first: Vec<&str> = self
                .files
                .iter()
                .take(MAX_FAILED)
                .map(|file| name(&file.path))
                .collect();
            let _ = write!(words, ": {}, ...; --json lists them", first.join(", "));
        }
        words
    }

    /// "lock.mdb was left out: a lock file; --pm lock.mdb".
    pub fn as_note(&self) -> String {
        let subject = self.subject(str::to_owned);
        match self.files[0].reason {
            LeftOutReason::OpenFailed => format!("{subject} {}", self.in_words()),
            _ => format!("{subject} was left out: {}", self.in_words()),
        }
    }
}

/// The files of a report as a terminal shows them: one line each, and how many more there are. `shown` is what stands beside them, so
/// that the counts agree.
pub fn lines(report: &Report, shown: &[Group<'_>]) -> Vec<String> {
    some_lines(report, shown, MAX_LINES)
}

/// The same, without an end.
pub fn all_lines(report: &Report, shown: &[Group<'_>]) -> Vec<String> {
    some_lines(report, shown, usize::MAX)
}

fn some_lines(report: &Report, groups: &[Group<'_>], most: usize) -> Vec<String> {
    let paths = report.files.iter().map(|file| file.path.as_str());
    let paths: Vec<&str> = paths
        .chain(report.left_out.iter().map(|file| file.path.as_str()))
        .collect();
    // Two files of one name are told apart by their paths.
    let shown = |path: &str| {
        let same = paths.iter().any(|other| name(other) == name(path) && *other != path);
        if same { path.to_owned() } else { name(path).to_owned() }
    };
    let mut lines = Vec::new();
    let mut add = |title: &str, files: Vec<(String, String)>| {
        for (subject, words) in files.iter().take(most) {
            lines.push(format!("{title}: {subject} ({words})"));
        }
        if files.len() > most {
            let more = files.len() - most;
            let files = if more == 1 { "file" } else { "files" };
            lines.push(format!(
                "{title}: {} more {files} (--json lists them)",
                number(more as u64)
            ));
        }
    };
    // Most findings first, then most stores: those are the ones to look at.
    let mut files: Vec<&FileLookedAt> = report.files.iter().collect();
    files.sort_by_cached_key(|file| std::cmp::Reverse((file.shown(groups), file.stores)));
    let looked_at = files.into_iter().map(|file| (shown(&file.path), file.in_words(groups)));
    add("persistent memory", looked_at.collect());
    let relevant = |file: &&FileLeftOut| report.trace.stores == 0 || !file.reason.is_about_one_use();
    let left_out = LeftOutLine::of(report.left_out.iter().filter(relevant)).into_iter();
    add(
        "left out",
        left_out.map(|line| (line.subject(shown), line.in_words())).collect(),
    );
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words() {
        let lock = FileLeftOut::new("/db/lock.mdb".into(), LeftOutReason::LockFile, None);
        assert_eq!(lock.in_words(), "a lock file; --pm lock.mdb");
        let odd = FileLeftOut::new("/db/it's a *".into(), LeftOutReason::NotSelected, None);
        assert_eq!(odd.in_words(), r"does not match --pm; --pm 'it'\''s a \*'");
        let denied = FileLeftOut::new("/db/pool".into(), LeftOutReason::OpenFailed, Some(13));
        assert_eq!(denied.in_words(), "cannot be opened for writing: Permission denied");
        let file = FileLookedAt {
            path: "/db/data.mdb".into(),
            stores: 1111,
            flushes: 1,
            syncs: 2,
            ..FileLookedAt::default()
        };
        assert_eq!(file.in_words(&[]), "1,111 stores, 1 flush, 2 syncs");
        let deleted = FileLookedAt {
            deleted: true,
            not_shown: 3,
            ..file
        };
        assert_eq!(
            deleted.in_words(&[]),
            "1,111 stores, 1 flush, 2 syncs; deleted by the program, 3 findings not shown; --pm data.mdb"
        );
    }

    #[test]
    fn failed_opens_are_counted() {
        let failed = |path: &str, errno| FileLeftOut::new(path.into(), LeftOutReason::OpenFailed, Some(errno));
        let lock = FileLeftOut::new("/db/lock.mdb".into(), LeftOutReason::LockFile, None);
        let mut report = Report {
            left_out: vec![failed("/db/0", 2), lock, failed("/db/denied", 13)],
            ..Report::default()
        };
        let missing = "left out: 0 (cannot be opened for writing: No such file or directory)";
        let rest = [
            "left out: lock.mdb (a lock file; --pm lock.mdb)",
            "left out: denied (cannot be opened for writing: Permission denied)",
        ];
        assert_eq!(lines(&report, &[]), [&[missing], &rest[..]].concat());
        report.left_out.extend((1..342).map(|i| failed(&format!("/db/{i}"), 2)));
        let many = "left out: 342 files (cannot be opened for writing: No such file or directory: 0, 1, 2, ...; --json lists them)";
        assert_eq!(lines(&report, &[]), [&[many], &rest[..]].concat());
        assert_eq!(all_lines(&report, &[]), lines(&report, &[]));
        let notes: Vec<String> = LeftOutLine::of(report.left_out.iter())
            .iter()
            .map(LeftOutLine::as_note)
            .collect();
        let many = "342 files cannot be opened for writing: No such file or directory: 0, 1, 2, ...; --json lists them";
        assert_eq!(
            notes[..2],
            [many, "/db/lock.mdb was left out: a lock file; --pm lock.mdb"]
        );
    }

    #[test]
    fn a_terminal_shows_few_lines_and_failed_opens_only_if_nothing_was_stored() {
        let file = |path: &str, stores| FileLookedAt {
            path: path.into(),
            stores,
            ..FileLookedAt::default()
        };
        let mut report = Report {
            files: (0..6).map(|i| file(&format!("/a/{i}"), i)).collect(),
            left_out: vec![FileLeftOut::new("/b/5".into(), LeftOutReason::OpenFailed, Some(2))],
            ..Report::default()
        };
        report.trace.stores = 15;
        let expected = [
            "persistent memory: /a/5 (5 stores)",
            "persistent memory: 4 (4 stores)",
            "persistent memory: 3 (3 stores)",
            "persistent memory: 2 (2 stores)",
            "persistent memory: 2 more files (--json lists them)",
        ];
        assert_eq!(lines(&report, &[]), expected);
        report.trace.stores = 0;
        assert_eq!(
            lines(&report, &[]).last().map(String::as_str),
            Some("left out: /b/5 (cannot be opened for writing: No such file or directory)")
        );
    }
}
