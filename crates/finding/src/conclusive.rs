//! Whether a report means what it says: a run without findings is clean only if there was something to find them in.
//!
//! This is the one place that decides it; every rendering shows [`Report::inconclusive`], and the exit status is [`Report::verdict`].

use serde::{Deserialize, Serialize};

use crate::files::LeftOutLine;
use crate::words::signal_name;
use crate::{Program, Report, Severity};

/// Files that were left out, in the notes of a run without stores.
const MOST_LEFT_OUT: usize = 5;

/// A reason why no finding does not mean clean.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inconclusive {
    /// The reason.
    pub reason: InconclusiveReason,
    /// "./app exited with status 2".
    pub message: String,
    /// What explains it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// What to do.
    pub help: String,
}

/// Why a report without findings does not mean that the program is clean.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InconclusiveReason {
    /// The program exited with a status other than 0, or a signal ended it.
    ProgramFailed,
    /// No store to a file under test was recorded.
    NoStores,
    /// The program deleted every file that it stored to, so that findings in them are not shown.
    OnlyDeletedFiles,
    /// Neither the recovery nor the checker, in any run, opened a file under test.
    RecoveryLookedAtNothing,
}

impl InconclusiveReason {
    /// As JSON has it.
    pub fn name(self) -> &'static str {
        match self {
            InconclusiveReason::ProgramFailed => "program-failed",
            InconclusiveReason::NoStores => "no-stores",
            InconclusiveReason::OnlyDeletedFiles => "only-deleted-files",
            InconclusiveReason::RecoveryLookedAtNothing => "recovery-looked-at-nothing",
        }
    }

    /// As it follows "not clean: ".
    pub fn in_words(self) -> &'static str {
        match self {
            InconclusiveReason::ProgramFailed => "the program failed",
            InconclusiveReason::NoStores => "nothing was stored",
            InconclusiveReason::OnlyDeletedFiles => "the program deleted its files",
            InconclusiveReason::RecoveryLookedAtNothing => "the recovery did not look at the files",
        }
    }

    /// In two words.
    pub fn label(self) -> &'static str {
        match self {
            InconclusiveReason::ProgramFailed => "program failed",
            InconclusiveReason::NoStores => "nothing stored",
            InconclusiveReason::OnlyDeletedFiles => "files deleted",
            InconclusiveReason::RecoveryLookedAtNothing => "files not opened",
        }
    }

    /// The same as a statement that should have been true: the name of a test.
    pub fn expectation(self) -> &'static str {
        match self {
            InconclusiveReason::ProgramFailed => "the program succeeds",
            InconclusiveReason::NoStores => "the program stores to persistent memory",
            InconclusiveReason::OnlyDeletedFiles => "the program keeps a file that it stores to",
            InconclusiveReason::RecoveryLookedAtNothing => "the recovery looks at the files",
        }
    }
}

impl Inconclusive {
    /// All of it, a line each.
    pub fn text(&self) -> String {
        let notes = self.notes.iter().map(|note| format!("note: {note}"));
        let lines = std::iter::once(self.message.clone()).chain(notes);
        lines
            .chain([format!("to do: {}", self.help)])
            .collect::<Vec<_>>()
            .join("\n")
    }
}

/// What the user says is as it should be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allowed {
    /// The program may fail.
    pub failure: bool,
    /// It may store nothing to persistent memory.
    pub no_stores: bool,
}

/// What a report comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// There are none, and the program is clean.
    Clean,
    /// There are findings that count.
    Findings,
    /// There are none, and that means nothing.
    Inconclusive,
}

impl Report {
    /// Notes what makes it inconclusive, as far as program and trace tell.
    pub fn look_for_doubts(&mut self, allowed: Allowed) {
        if self.program.failed() && !allowed.failure {
            self.inconclusive.push(Inconclusive {
                reason: InconclusiveReason::ProgramFailed,
                message: self.program.end_in_words(),
                notes: vec!["a failed run does not show what the program does when it works".to_owned()],
                help: "see what the program printed, and run it without crashproof; if it is meant to end like this, pass \
                       --allow-failure (`allow-failure = true` in a [[test]])"
                    .to_owned(),
            });
        }
        if self.trace.stores == 0 && !allowed.no_stores {
            self.inconclusive.push(Inconclusive {
                reason: InconclusiveReason::NoStores,
                message: match self.trace.complete {
                    true => "the program stored nothing to persistent memory",
                    false => "no store to persistent memory was recorded, and the trace is incomplete",
                }
                .to_owned(),
                notes: LeftOutLine::of(self.left_out.iter())
                    .iter()
                    .take(MOST_LEFT_OUT)
                    .map(LeftOutLine::as_note)
                    .collect(),
                help: "see whether --pm matches the file, and whether the program maps it shared and writable; if it is meant to \
                       store nothing, pass --allow-no-stores (`allow-no-stores = true` in a [[test]])"
                    .to_owned(),
            });
        }
        let kept = (self.files.iter()).any(|file| file.stores > 0 && !file.deleted);
        let not_shown: Vec<_> = (self.files.iter()).filter(|file| file.not_shown > 0).collect();
        if !kept && !not_shown.is_empty() && !allowed.no_stores {
            self.inconclusive.push(Inconclusive {
                reason: InconclusiveReason::OnlyDeletedFiles,
                message: "the program deleted every file that it stored to, and findings in them are not shown".to_owned(),
                notes: (not_shown.iter().take(MOST_LEFT_OUT))
                    .map(|file| format!("{}: {}", file.path, file.in_words(&[])))
                    .collect(),
                help: "name the files with --pm to see the findings, or let the program keep them; if it is meant to keep \
                       none, pass --allow-no-stores (`allow-no-stores = true` in a [[test]])"
                    .to_owned(),
            });
        }
    }

    /// `fail_on`: findings of this severity and worse count.
    pub fn verdict(&self, fail_on: Severity) -> Verdict {
        match self.fails(fail_on) {
            true => Verdict::Findings,
            false if self.is_conclusive() => Verdict::Clean,
            false => Verdict::Inconclusive,
        }
    }

    /// What was not recorded may hold anything, and so may what was not run.
    pub fn is_conclusive(&self) -> bool {
        self.trace.complete && self.inconclusive.is_empty()
    }

    /// "the program failed, the trace is incomplete"; nothing if it is conclusive.
    pub fn doubts_in_words(&self) -> String {
        let incomplete = (!self.trace.complete).then_some("the trace is incomplete");
        let reasons = self.inconclusive.iter().map(|doubt| doubt.reason.in_words());
        reasons.chain(incomplete).collect::<Vec<_>>().join(", ")
    }
}

/// Added to the number of a signal to give the status that a shell reports.
const SIGNAL_STATUS: i32 = 128;

/// Signals by which a program ends on its own account, whatever it was asked.
const OWN_FAULT: [i32; 7] = [4, 5, 6, 7, 8, 11, 31];

impl Program {
    /// The status as a shell gives it: the program's own, or 128 and the number of the signal that ended it.
    pub fn shell_status(&self) -> Option<i32> {
        self.status.or(self.signal.map(|signal| SIGNAL_STATUS + signal))
    }

    /// It exited with a status other than 0, or a signal ended it, and it was not the user who ended it.
    pub fn failed(&self) -> bool {
        match (self.signal, self.status) {
            (Some(signal), _) => !self.asked_to_end || OWN_FAULT.contains(&signal),
            (None, Some(status)) => status != 0 && !self.asked_to_end,
            (None, None) => false,
        }
    }

    /// Its name in JSON.
    pub fn name(&self) -> &str {
        self.command.first().map_or("the program", String::as_str)
    }

    /// "./app exited with status 2".
    pub fn end_in_words(&self) -> String {
        let name = self.name();
        match (self.signal, self.status) {
            (Some(signal), _) => format!("{name} was ended by signal {signal}{}", signal_name(signal)),
            (None, Some(status)) => format!("{name} exited with status {status}"),
            (None, None) => format!("how {name} ended is not known"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FileLookedAt;

    fn report(status: Option<i32>, signal: Option<i32>, asked_to_end: bool) -> Report {
        let mut report = Report::default();
        report.trace.complete = true;
        report.trace.stores = 1;
        report.program = Program {
            status,
            signal,
            asked_to_end,
            ..Program::default()
        };
        report
    }

    #[test]
    fn a_failed_program_is_inconclusive_unless_the_user_ended_it() {
        for (status, signal, asked, verdict) in [
            (Some(0), None, false, Verdict::Clean),
            (Some(2), None, false, Verdict::Inconclusive),
            (None, Some(9), false, Verdict::Inconclusive),
            (None, Some(15), false, Verdict::Inconclusive),
            (None, Some(15), true, Verdict::Clean),
            (Some(130), None, true, Verdict::Clean),
            (None, Some(11), true, Verdict::Inconclusive),
            // A trace of another tool.
            (None, None, false, Verdict::Clean),
        ] {
            let mut judged = report(status, signal, asked);
            judged.look_for_doubts(Allowed::default());
            assert_eq!(judged.verdict(Severity::Note), verdict, "{status:?} {signal:?} {asked}");
            let mut allowed = report(status, signal, asked);
            allowed.look_for_doubts(Allowed {
                failure: true,
                ..Allowed::default()
            });
            assert_eq!(allowed.verdict(Severity::Note), Verdict::Clean);
        }
    }

    #[test]
    fn findings_in_deleted_files_alone_are_not_clean() {
        let file = |deleted, not_shown| FileLookedAt {
            path: "/pm/pool".into(),
            stores: 1,
            deleted,
            not_shown,
            ..FileLookedAt::default()
        };
        for (files, no_stores, verdict) in [
            (vec![file(true, 1)], false, Verdict::Inconclusive),
            (vec![file(true, 1)], true, Verdict::Clean),
            // Nothing is wrong in it.
            (vec![file(true, 0)], false, Verdict::Clean),
            (vec![file(true, 1), file(false, 0)], false, Verdict::Clean),
        ] {
            let mut judged = report(Some(0), None, false);
            judged.files = files;
            judged.look_for_doubts(Allowed {
                no_stores,
                ..Allowed::default()
            });
            assert_eq!(judged.verdict(Severity::Note), verdict, "{judged:?}");
        }
    }

    #[test]
    fn without_a_store_nothing_is_shown() {
        let mut silent = report(Some(0), None, false);
        silent.trace.stores = 0;
        let mut allowed = silent.clone();
        silent.look_for_doubts(Allowed::default());
        assert_eq!(silent.verdict(Severity::Note), Verdict::Inconclusive);
        assert_eq!(silent.doubts_in_words(), "nothing was stored");
        allowed.look_for_doubts(Allowed {
            no_stores: true,
            ..Allowed::default()
        });
        assert_eq!(allowed.verdict(Severity::Note), Verdict::Clean);
        allowed.trace.complete = false;
        assert_eq!(allowed.verdict(Severity::Note), Verdict::Inconclusive);
    }
}
