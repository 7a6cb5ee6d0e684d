//! `--explain`: why each fix is safe, and why it is there.

use std::fmt::Write;

use crashproof_finding::Finding;

use super::{Candidate, Edit, Fix, Place, Plan, SafeBy};
use crate::source::{Cause, Changed};

impl SafeBy {
    /// The theorem of section 4.2, in words.
    pub fn in_words(self) -> &'static str {
        match self {
            SafeBy::FenceInsertion => {
                "theorem 1 (a fence after the flush: it only makes certain what could have happened without it, by lemma 1)"
            }
            SafeBy::FlushInsertion => {
                "theorem 2 (a flush after the store, before a fence that is there: it only writes back what the cache could \
                 have written back by itself, by lemma 2)"
            }
            SafeBy::FlushAndFenceInsertion => {
                "theorem 3 (a flush after the store and a fence after the flush: both only make certain what could have \
                 happened without them, by lemmas 1 and 2)"
            }
            SafeBy::PersistentSubprogram => {
                "theorem 4 (a copy of the function that flushes what it stores, called here instead of the original, which \
                 nobody else sees: a copy computes the same, flushes are safe by lemma 2 and a fence by lemma 1)"
            }
            SafeBy::VoidInBasicBlock => {
                "section 7 (an earlier instruction of the same basic block has done this already, and nothing in between \
                 stores, calls or synchronises)"
            }
        }
    }
}

/// The plan in words, fix by fix, then what is left. All name the files of one tree; `changes` are the patch.
pub fn explain(plan: &Plan, findings: &[Finding], changes: &[Changed]) -> String {
    let mut text = String::new();
    for (index, fix) in plan.fixes.iter().enumerate() {
        explain_fix(fix, findings, &mut text);
        explain_changes(changes, Cause::Fix(index), &mut text);
    }
    for clone in &plan.clones {
        let flushes = clone.flushes.iter().map(Vec::len).sum();
        let calls = clone.calls.len();
        let _ = writeln!(
            text,
            "`{}`: a copy of `{}` that flushes after {} and has {} of persistent functions",
            clone.name,
            clone.original,
            counted(flushes, "store"),
            counted(calls, "call"),
        );
    }
    for left in &plan.left {
        let finding = findings.get(left.finding).map_or_else(String::new, name);
        let _ = writeln!(text, "left: {finding}: {}", left.reason);
    }
    text
}

fn explain_changes(changes: &[Changed], cause: Cause, text: &mut String) {
    for changed in changes {
        for line in changed.of(cause) {
            let sign = if line.is_added { '+' } else { '-' };
            let place = format_args!("{}:{}", changed.path.display(), line.line);
            let _ = writeln!(text, "  changes: {place}: {sign} {}", line.text.trim());
        }
    }
}

fn explain_fix(fix: &Fix, findings: &[Finding], text: &mut String) {
    let _ = writeln!(text, "{}", edit(&fix.edit));
    let repaired: Vec<String> = fix
        .findings
        .iter()
        .filter_map(|&index| findings.get(index))
        .map(name)
        .collect();
    if repaired.is_empty() {
        let _ = writeln!(text, "  repairs: a store of the trace that a fence passed by");
    }
    for finding in repaired {
        let _ = writeln!(text, "  repairs: {finding}");
    }
    let _ = writeln!(text, "  safe by: {}", fix.safe_by.in_words());
    if fix.candidates.is_empty() {
        return;
    }
    let _ = writeln!(
        text,
        "  places compared, innermost first (PM aliases less other aliases of the pointers):"
    );
    for candidate in &fix.candidates {
        let _ = writeln!(text, "    {}", words(candidate));
    }
    let chosen = match &fix.edit {
        Edit::Subprogram { call, .. } => place(call),
        Edit::Flush { stores, .. } => stores.last().map_or_else(String::new, place),
        _ => return,
    };
    let _ = writeln!(text, "  chosen: {chosen}: the highest score, the innermost of equals");
}

fn words(candidate: &Candidate) -> String {
    let at = place(&candidate.place);
    match (candidate.score, &candidate.reason) {
        (Some(score), None) => format!("{at}: {score}"),
        (Some(score), Some(reason)) => format!("{at}: {score}, but out: {reason}"),
        (None, Some(reason)) => format!("{at}: out: {reason}"),
        (None, None) => format!("{at}: out"),
    }
}

fn edit(edit: &Edit) -> String {
    let fenced = |fence: bool| if fence { ", and fence" } else { "" };
    match edit {
        Edit::Flush { stores, fence } => {
            let places: Vec<String> = stores.iter().map(place).collect();
            format!("flush after {}{}", places.join(", "), fenced(*fence))
        }
        Edit::Fence { after } => format!("fence after {}", place(after)),
        Edit::Subprogram { call, clone, fence } => {
            format!("call `{clone}` at {}{}", place(call), fenced(*fence))
        }
        Edit::RemoveFlush { flush } => format!("remove the flush at {}", place(flush)),
        Edit::RemoveFence { fence } => format!("remove the fence at {}", place(fence)),
    }
}

fn place(place: &Place) -> String {
    match &place.position {
        Some(at) => format!("{}:{}:{} (`{}`)", at.file.display(), at.line, at.column, place.function),
        None => format!("instruction {} of `{}`", place.instruction, place.function),
    }
}

fn name(finding: &Finding) -> String {
    let at = match (&finding.file, finding.line) {
        (Some(file), Some(line)) => format!(" at {file}:{line}"),
        _ => String::new(),
    };
    format!("{}{at}: {}", finding.kind.name(), finding.message)
}

fn counted(number: usize, what: &str) -> String {
    match number {
        1 => format!("1 {what}"),
        _ => format!("{number} {what}s"),
    }
}
