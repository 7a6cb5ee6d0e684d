//! Findings put into words: symbolised, filtered, sorted.

use crashproof_finding::{Address, DurableBy, DurableByKind, Finding, Frame, Kind, Related, Severity, blamed};
use crashproof_model::Model;
use crashproof_trace::{FileId, FileUses, Header, ProgramEnd, StackId, Tables};
use rustc_hash::FxHashMap;
use std::borrow::Cow;

use crate::UNPERSISTED;
use crate::config::{Analysis, Config, Rule};
use crate::findings::{Detail, MAX_OTHERS, RawFinding, Relation};
use crate::pass::Outcome;
use crashproof_sites::Typing;
use crashproof_stacks::{Entry, Stacks, Symbolized, file_name, is_language_runtime};

pub(crate) struct Context<'a> {
    pub model: Model,
    pub config: &'a Config,
    pub header: &'a Header,
    pub tables: &'a Tables,
    pub uses: &'a FileUses,
    pub transient: &'a [Finding],
    /// `None`: the trace ends without saying how.
    pub end: Option<ProgramEnd>,
}

impl Context<'_> {
    fn path(&self, file: FileId) -> &str {
        let first = || self.tables.file(file).map_or("", |file| &file.path);
        self.uses.late_name(file).unwrap_or_else(first)
    }
}

/// What becomes of the findings.
pub(crate) struct Rendered {
    pub findings: Vec<Finding>,
    /// How many there are in each file that the program deleted; they are not among the findings.
    pub in_deleted: FxHashMap<FileId, u64>,
    /// About the check as a whole.
    pub warnings: Vec<String>,
}

/// The findings to report. `deleted` says which files the program deleted.
pub(crate) fn render(outcome: Outcome, deleted: impl Fn(FileId) -> bool, context: &Context) -> Rendered {
    let Outcome {
        findings: raw,
        mut stacks,
        threads,
        unfinished,
        ..
    } = outcome;
    let unseen_fences = unseen_fences(context, threads);
    let mut typing = Typing::new();
    let mut findings = Vec::new();
    let held_lock = |finding: &RawFinding| finding.detail == Detail::HeldLock && ended_early(context.end);
    let mut in_deleted: FxHashMap<FileId, Vec<Finding>> = FxHashMap::default();
    for finding in raw.iter() {
        // The program was ended while it held the lock, so that it could not put it back.
        let lock = held_lock(finding).then(|| finding.as_transient(Detail::Lock));
        let finding = lock.as_ref().unwrap_or(finding);
        let Some(finding) = without_volatile(finding, &mut stacks, context) else {
            continue;
        };
        let finding = finding.as_ref();
        // One mistake, one finding: the transaction's says more.
        let transactional = [Kind::TxStoreNotSnapshotted, Kind::TxStoreOutside];
        let explained =
            finding.kind == Kind::MissingFlush && transactional.iter().any(|&kind| raw.has(kind, finding.stack));
        let libc_fence = finding.kind == Kind::RedundantFence && stacks.is_in_c_runtime(finding.stack, context.tables);
        if explained || libc_fence || finding.in_flight && ended_early(context.end) {
            continue;
        }
        let entry = stacks.entry(finding.stack, context.tables);
        if is_library_internal(finding.kind, entry.as_ref(), context.header) {
            continue;
        }
        let file = finding.at.map(|(at, _)| at.file).filter(|&file| deleted(file));
        let list = file.map_or(&mut findings, |file| in_deleted.entry(file).or_default());
        let finding = put_into_words(
            finding,
            entry.as_ref(),
            unseen_fences,
            &mut stacks,
            &mut typing,
            context,
        );
        list.push(with_evidence(finding, context.transient));
    }
    let in_deleted = in_deleted.into_iter().map(|(file, mut findings)| {
        context.config.apply_ignores(&mut findings, Analysis::Check);
        (file, findings.len() as u64)
    });
    let in_deleted = in_deleted.collect();
    let mut warnings = context.config.apply_ignores(&mut findings, Analysis::Check);
    if !ended_early(context.end) {
        warnings.extend(
            unfinished
                .iter()
                .map(|&begin| unfinished_warning(begin, &mut stacks, context.tables)),
        );
    }
    findings.sort_by_cached_key(|f| {
        (
            f.severity,
            f.file.is_none(),
            f.file.clone(),
            f.line,
            f.column,
            f.kind,
            f.stack.iter().map(|f| f.address).collect::<Vec<_>>(),
        )
    });
    let warnings = warnings.into_iter().chain(stacks.warnings().iter().cloned()).collect();
    Rendered {
        findings,
        in_deleted,
        warnings,
    }
}

/// A transaction that had not committed when its process exited: on purpose in a crash test, by mistake after a `return` or `goto`
/// out of it. All that came after would be rolled back, too.
fn unfinished_warning(begin: StackId, stacks: &mut Stacks, tables: &Tables) -> String {
    let frames = stacks.symbolize(begin, tables).frames;
    let place = blamed(&frames).map_or_else(
        || "an unknown place".to_owned(),
        |frame| match (&frame.file, &frame.function) {
            (Some(file), _) => format!("{file}:{}", frame.line.unwrap_or(0)),
            (None, Some(function)) => format!("`{function}`"),
            (None, None) => format!("{:#x}", frame.address),
        },
    );
    format!(
        "the transaction that began at {place} had not ended when its process did: the next opening of the pool rolls back \
         everything since then that it has snapshotted"
    )
}

/// Killed, or nobody knows: what was under way then is no evidence of a mistake.
fn ended_early(end: Option<ProgramEnd>) -> bool {
    end.is_none_or(|end| end.signal.is_some() || end.interrupted)
}

/// Whether the program may have fenced with locked instructions that the trace does not have.
fn unseen_fences(context: &Context, threads: bool) -> bool {
    let own_locked = context.tables.modules.iter().any(|module| {
        let name = file_name(&module.path);
        // libpmem itself has some, none of them after a flush.
        module.locked_sites > 0 && !is_language_runtime(name) && !name.starts_with("libpmem.so")
    });
    !context.header.options.locked_rmw && (threads || own_locked)
}

/// What a library of PMDK does on its own account is not the program's to mend.
fn is_library_internal(kind: Kind, entry: Option<&Entry>, header: &Header) -> bool {
    let Some(entry) = entry else {
        return false;
    };
    match kind {
        Kind::RedundantFlush | Kind::FlushUnmodified | Kind::RedundantFence => !entry.is_persist_primitive(),
        // Without the client requests nobody says which fields of the pool it leaves unflushed by design.
        Kind::MissingFlush | Kind::MissingFence | Kind::TransientData => {
            !header.options.client_requests && entry.library.starts_with("libpmemobj") && !entry.is_copy()
        }
        _ => false,
    }
}

/// The end of an operation without the stores to what a crash test has shown to be volatile. `None`: the operation leaves no
/// others behind.
fn without_volatile<'a>(
    finding: &'a RawFinding,
    stacks: &mut Stacks,
    context: &Context,
) -> Option<Cow<'a, RawFinding>> {
    let of_operation = finding.kind == Kind::ExpectDurable && finding.detail == Detail::Operation;
    // If there were more places than are kept, one of those not kept may be another.
    if !of_operation || context.transient.is_empty() || finding.others.len() >= MAX_OTHERS {
        return Some(Cow::Borrowed(finding));
    }
    let mut others = finding.others.clone();
    others.retain(|&(_, stack)| {
        let frames = stacks.symbolize(stack, context.tables).frames;
        frames.is_empty() || context.transient.iter().all(|shown| shown.stack != frames)
    });
    others.first().copied().map(|first| {
        Cow::Owned(RawFinding {
            related: Some(first),
            others,
            ..finding.clone()
        })
    })
}

/// The finding as a crash test has shown it to be.
fn with_evidence(finding: Finding, transient: &[Finding]) -> Finding {
    let same = |shown: &&Finding| !shown.stack.is_empty() && shown.stack == finding.stack;
    let shown = transient.iter().find(same);
    let Some(shown) = shown.filter(|_| UNPERSISTED.contains(&finding.kind)) else {
        return finding;
    };
    Finding {
        kind: shown.kind,
        severity: shown.severity,
        message: shown.message.clone(),
        help: shown.help.clone(),
        durable_by: None,
        ..finding
    }
}

fn put_into_words(
    raw: &RawFinding,
    entry: Option<&Entry>,
    unseen_fences: bool,
    stacks: &mut Stacks,
    typing: &mut Typing,
    context: &Context,
) -> Finding {
    let Symbolized { frames, approximate } = stacks.symbolize(raw.stack, context.tables);
    let position = blamed(&frames).or(frames.first());
    let index = position.and_then(|p| frames.iter().position(|f| std::ptr::eq(f, p)));
    let position = position.cloned().unwrap_or_default();
    let mut symbolize = |stack: StackId| stacks.symbolize(stack, context.tables).frames;
    let related = related(raw, &position, &mut symbolize);
    let maybe_fenced = raw.kind == Kind::MissingFence && unseen_fences;
    let mut notes = Vec::new();
    if maybe_fenced {
        notes.push(
            "locked instructions on ordinary memory fence too and are not in the trace; record with `--locked-rmw` to see \
             whether one follows"
                .to_owned(),
        );
    }
    notes.extend(library_note(raw.kind, &frames, index));
    if let (Some(reason), Kind::MissingFlush | Kind::MissingFence) = (death(context.end), raw.kind)
        && raw.durable_by.is_some_and(|(kind, _)| kind == DurableByKind::Exit)
    {
        notes.push(reason);
    }
    Finding {
        kind: raw.kind,
        severity: if maybe_fenced {
            Severity::Warning
        } else {
            raw.kind.severity()
        },
        message: message(raw, entry, context),
        file: position.file.clone(),
        line: position.line,
        column: position.column,
        function: position.function.clone(),
        count: raw.count,
        address: raw.at.map(|(at, length)| Address {
            file: context.path(at.file).to_owned(),
            offset: at.offset,
            length,
        }),
        durable_by: raw.durable_by.map(|(kind, stack)| DurableBy {
            kind,
            stack: symbolize(stack),
        }),
        approximate: index.is_some_and(|index| approximate[index]) || typing.is_merged(context.tables, raw.stack),
        related,
        stack: frames,
        notes,
        help: (raw.detail == Detail::PerhapsVolatile).then(|| PERHAPS_VOLATILE_HELP.to_owned()),
        crash: None,
        order: Vec::new(),
    }
}

const PERHAPS_VOLATILE_HELP: &str = "if it has to survive a power failure, flush it after each change (`_mm_clwb`, `pmem_flush`) and fence \
    (`_mm_sfence`, `pmem_drain`); if it is volatile by design (a lock, a cache, statistics), say so: `CRASHPROOF_TRANSIENT(ptr, len)` of \
    crashproof.h, or `[[ignore]]` in crashproof.toml; or keep it in ordinary memory";

/// The other places of a finding, each line once.
fn related(raw: &RawFinding, position: &Frame, symbolize: &mut impl FnMut(StackId) -> Vec<Frame>) -> Vec<Related> {
    let line = |frame: &Frame| (frame.file.clone(), frame.line, frame.address);
    let standing = |stack: &[Frame]| blamed(stack).or(stack.first()).cloned().unwrap_or_default();
    let mut shown = Vec::new();
    let mut related = Vec::new();
    let others = raw.others.iter().filter(|&&other| Some(other) != raw.related);
    for &(relation, stack) in raw.related.iter().chain(others) {
        let stack = symbolize(stack);
        let mut place = line(&standing(&stack));
        let mut own = line(position);
        if place.1.is_some() {
            // Of a line of source, the instruction does not matter.
            (place.2, own.2) = (0, 0);
        }
        let known = shown.contains(&(relation, place.clone()));
        if known || relation == Relation::OverwrittenUnflushed && place == own {
            continue;
        }
        shown.push((relation, place));
        related.push(Related {
            message: relation.words().to_owned(),
            stack,
        });
    }
    related
}

impl Relation {
    fn words(self) -> &'static str {
        match self {
            Relation::FlushedHere => "flushed here",
            Relation::FlushedFirst => "flushed first here, and not fenced since",
            Relation::MustPersistFirst => "this store must be durable first, and is not",
            Relation::SnapshottedFirst => "snapshotted first here",
            Relation::OtherTransaction => "snapshotted already by the transaction that began here, which has not ended",
            Relation::NotFlushed => "stored here, and not flushed yet",
            Relation::NotFenced => "stored here, and its flush is not fenced yet",
            Relation::TransactionBegan => "in the transaction that began here",
            Relation::TransactionUnfinished => {
                "in the transaction that began here and had not ended when the process did"
            }
            Relation::OverwrittenUnflushed => "also stored here, not flushed by the next fence, and overwritten",
            Relation::StoredAfter => "what must be durable first is stored only here",
        }
    }
}

fn death(end: Option<ProgramEnd>) -> Option<String> {
    let signal = end?.signal?;
    Some(format!("the program was ended by signal {signal}"))
}

/// Names the library when the event is in one without debug info and the position is that of its caller.
fn library_note(kind: Kind, frames: &[Frame], index: Option<usize>) -> Option<String> {
    let inner = frames.first()?;
    if index == Some(0) || inner.has_position() {
        return None;
    }
    let what = match kind {
        Kind::RedundantFlush | Kind::FlushUnmodified => "flush",
        Kind::RedundantFence => "fence",
        Kind::TxSnapshotTwice | Kind::TxSnapshotOverlap => return None,
        _ => "store",
    };
    let library = inner.module_name()?;
    Some(match &inner.function {
        Some(function) => format!("the {what} itself is in `{function}` of {library}"),
        None => format!("the {what} itself is in {library}, at {:#x}", inner.address),
    })
}

fn message(raw: &RawFinding, entry: Option<&Entry>, context: &Context) -> String {
    let place = raw.at.map_or_else(String::new, |(at, length)| {
        let file = file_name(context.path(at.file));
        let bytes = if length == 1 { "byte" } else { "bytes" };
        format!("{length} {bytes} at offset {:#x} of {file}", at.offset)
    });
    let line = raw.at.map_or_else(String::new, |(at, _)| {
        format!("line {:#x} of {}", at.offset, file_name(context.path(at.file)))
    });
    let via = entry
        .and_then(|e| e.function.as_ref())
        .map_or_else(String::new, |f| format!(", called as `{f}`,"));
    let some_of = |what: &str| match raw.out_of {
        Some(all) if all > 1 => format!(" ({} of {all} {what} here)", raw.count),
        _ => String::new(),
    };
    match raw.kind {
        Kind::MissingFlush => format!("store of {place} is never flushed"),
        Kind::MissingFence if raw.detail == Detail::Nontemporal => {
            format!("non-temporal store of {place} is never fenced by its thread")
        }
        Kind::MissingFence => format!("store of {place} is flushed, and its flush is never fenced by the same thread"),
        Kind::RedundantFlush if context.model == Model::Eadr => {
            format!(
                "flush{via} of {line} is unnecessary: with eADR the cache is persistent{}",
                some_of("flushes")
            )
        }
        Kind::RedundantFlush if raw.detail == Detail::Pending => {
            format!(
                "flush{via} of {line}, which this thread flushed already{}",
                some_of("flushes")
            )
        }
        Kind::RedundantFlush => format!(
            "flush{via} of {line}, which is persistent already{}",
            some_of("flushes")
        ),
        Kind::FlushUnmodified => {
            format!(
                "flush{via} of {line}, which was not stored to since it was mapped{}",
                some_of("flushes")
            )
        }
        Kind::RedundantFence => {
            format!(
                "fence{via} with no flush and no non-temporal store before it to wait for{}",
                some_of("fences")
            )
        }
        Kind::TransientData => format!(
            "{place} are volatile data: {}",
            match raw.detail {
                Detail::StoredFirst => "every process stores there before it reads what is there",
                Detail::LockFunction => "a lock of the C library",
                _ => "a lock, taken by an exchange and put back",
            }
        ),
        Kind::TxStoreNotSnapshotted if raw.detail == Detail::NeverFlushed => {
            format!("store of {place} in a transaction that has not snapshotted it; nothing flushes it either")
        }
        Kind::TxStoreNotSnapshotted => format!("store of {place} in a transaction that has not snapshotted it"),
        Kind::TxSnapshotTwice => format!("{place} are snapshotted again in the same transaction"),
        Kind::TxSnapshotOverlap => format!("{place} are snapshotted by two transactions at once"),
        Kind::TxStoreOutside => {
            format!("store of {place} outside any transaction, though transactions change it under a snapshot")
        }
        Kind::RuleOrder | Kind::RuleTransaction => {
            let rule = match raw.detail {
                Detail::Rule(index) => context.config.rules.get(index).map(describe_rule),
                _ => None,
            };
            format!("store of {place} violates the rule that {}", rule.unwrap_or_default())
        }
        Kind::ExpectDurable if raw.detail == Detail::Operation => {
            "the operation ends, and what it stored is not durable".to_owned()
        }
        Kind::ExpectDurable => format!("{place} are said to be durable here, and are not"),
        Kind::ExpectOrder if raw.detail == Detail::Backwards => {
            format!("store of {place} comes before the store of what has to persist first")
        }
        Kind::ExpectOrder => format!("store of {place} comes before what has to persist first is durable"),
        // Not of a check: `crashproof-crash` has the words.
        Kind::CrashOrder | Kind::CrashAtomicity | Kind::CrashDurability => String::new(),
    }
}

fn describe_rule(rule: &Rule) -> String {
    match rule {
        Rule::MustPersistBefore { before, after, .. } => {
            format!("stores of `{before}` persist before stores of `{after}`")
        }
        Rule::MustBeInTransaction { stores } => format!("stores of `{stores}` are made in transactions"),
    }
}
