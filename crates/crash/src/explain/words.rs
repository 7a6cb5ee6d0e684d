//! A cause put into words: the finding.

use std::ffi::OsString;
use std::fmt::Write;

use crashproof_finding::{
    Address, Crash, CrashStore, FileOperation, Finding, Frame, Kind, Order, OutputDifference, RecoveryOutcome,
    ViolatedCondition,
};
use crashproof_sandbox::Run;
use crashproof_stacks::{Symbolized, file_name, is_language_runtime, is_pmdk};
use crashproof_trace::StackId;

use super::Words;
use super::cause::{Cause, Form};
use super::history::{Index, Laboratory, What};
use super::places::{Places, blamed};
use super::save::quoted;
use super::snapshots::LackingSnapshot;

/// Bytes of a command's output that a finding holds: its end, where the reason is.
const MAX_OUTPUT: usize = 4096;
/// Bytes of a store's data that a finding holds.
const MAX_DATA: usize = 256;
/// Stores that a message names; the rest are counted.
const MAX_NAMED: usize = 2;

pub(super) struct Context<'a> {
    pub lab: &'a Laboratory,
    pub words: &'a Words,
}

pub(super) fn finding(cause: &Cause, run: &Run, context: &Context, places: &mut Places) -> Finding {
    let missing = stores(&cause.missing, cause, context, places);
    let persisted = stores(&cause.persisted, cause, context, places);
    let (after, after_stack) = last_executed(cause, context, places);
    let recovery = outcome(run, cause, context);
    // Without it the finding stands: the oracle could not be run once more.
    let output = context.lab.difference(&cause.state, run).ok().flatten();
    let is_uncovered = |store: &&CrashStore| cause.snapshot.is_some() && library_call(store).is_none();
    let uncovered = persisted.iter().chain(&missing).find(is_uncovered);
    let position = uncovered.or(missing.first()).or(persisted.first());
    let frame = position.map_or_else(|| after.clone(), |store| store.frame.clone());
    // libpmemobj's own order is not for the user to change.
    let of_library = !missing.is_empty()
        && missing
            .iter()
            .chain(&persisted)
            .all(|store| library_call(store).is_some());
    let kind = match cause.kind {
        Kind::CrashOrder if of_library => Kind::CrashAtomicity,
        kind => kind,
    };
    let order = match kind {
        Kind::CrashOrder => order(&missing, &persisted),
        _ => Vec::new(),
    };
    let mut notes = notes(cause, context, places);
    if let Some(snapshot) = &cause.snapshot {
        notes.insert(0, snapshot_note(snapshot, context, places));
    } else if of_library {
        notes.push(OF_LIBRARY.to_owned());
    }
    Finding {
        kind,
        severity: kind.severity(),
        message: message(
            cause,
            &missing,
            &persisted,
            &after,
            &failed(&recovery, run, output.as_ref()),
            context,
        ),
        help: match &cause.snapshot {
            Some(snapshot) => Some(snapshot_help(snapshot, &missing, &persisted, context, places)),
            None => help(kind, &cause.form, &missing, &persisted),
        },
        notes,
        file: frame.file.clone(),
        line: frame.line,
        column: frame.column,
        function: frame.function.clone(),
        count: 1,
        address: position.map(|store| store.pm.clone()),
        stack: position.map_or_else(|| after_stack.clone(), |store| store.stack.clone()),
        durable_by: None,
        approximate: approximate(cause, context, places),
        related: Vec::new(),
        crash: Some(Crash {
            after,
            after_stack,
            persisted,
            missing,
            recovery,
            states: 1,
            replay: None,
            depth: context.words.depth,
            unreduced: false,
            event: crash_event(cause, context),
            output,
            ..Crash::default()
        }),
        order,
    }
}

/// Says which condition it violates, if any.
pub(super) fn violates(finding: &mut Finding, condition: Option<ViolatedCondition>) {
    let Some(condition) = condition else { return };
    finding.notes.insert(0, format!("violates: {}", condition.text));
    if let Some(crash) = &mut finding.crash {
        crash.violates = Some(condition);
    }
}

/// Says of a finding that nothing in it was reduced to what matters.
pub(super) fn unreduced(finding: &mut Finding) {
    finding.help = None;
    finding.notes.insert(
        0,
        "the test ended before this could be reduced to the stores that matter: all that were uncertain at the crash are named, \
         and the kind is a guess; give more time, or resume"
            .to_owned(),
    );
    if let Some(crash) = &mut finding.crash {
        crash.unreduced = true;
    }
}

/// The stores with their positions; pieces of one store are put together again.
fn stores(indices: &[Index], cause: &Cause, context: &Context, places: &mut Places) -> Vec<CrashStore> {
    let mut stores: Vec<(u64, CrashStore)> = Vec::new();
    for &index in indices {
        let change = context.lab.change(index);
        let (offset, data) = change.data().unwrap_or((0, &[]));
        let length = data.len() as u64;
        let mut digits = String::new();
        for byte in &data[..data.len().min(MAX_DATA)] {
            let _ = write!(digits, "{byte:02x}");
        }
        if let Some((seq, last)) = stores.last_mut()
            && *seq == change.id.seq
            && last.pm.offset + last.pm.length == offset
        {
            last.pm.length += length;
            last.data += &digits;
            continue;
        }
        let stack = places.symbolize(change.stack, context.lab.tables()).frames;
        let store = CrashStore {
            frame: blamed(&stack).cloned().unwrap_or_default(),
            stack,
            pm: Address {
                file: context.lab.file_name(change.file).to_owned(),
                offset,
                length,
            },
            data: digits,
            executed: index < cause.state.point,
            operation: operation(&change.what),
            event: Some(change.id.seq),
        };
        stores.push((change.id.seq, store));
    }
    stores.into_iter().map(|(_, store)| store).collect()
}

fn operation(what: &What) -> Option<FileOperation> {
    match what {
        What::Store { .. } | What::Output { .. } => None,
        What::Write { .. } => Some(FileOperation::Written),
        What::Resize { size } => Some(FileOperation::Resized { size: *size }),
        What::Place {
            path: Some(_),
            made: true,
        } => Some(FileOperation::Made),
        What::Place { path: Some(path), .. } => Some(FileOperation::Renamed { path: path.clone() }),
        What::Place { path: None, .. } => Some(FileOperation::Removed),
    }
}

/// The last change before the crash that has a place in the program.
/// Number of the event before which power fails.
fn crash_event(cause: &Cause, context: &Context) -> Option<u64> {
    let last = cause.state.point.checked_sub(1)?;
    (last >= context.lab.window().0).then(|| context.lab.change(last).id.seq + 1)
}

fn last_executed(cause: &Cause, context: &Context, places: &mut Places) -> (Frame, Vec<Frame>) {
    let (first, _) = context.lab.window();
    for index in (first..cause.state.point).rev() {
        let change = context.lab.change(index);
        let stack = places.symbolize(change.stack, context.lab.tables()).frames;
        if let Some(frame) = blamed(&stack) {
            return (frame.clone(), stack);
        }
    }
    (Frame::default(), Vec::new())
}

fn approximate(cause: &Cause, context: &Context, places: &mut Places) -> bool {
    let Some(&first) = cause.missing.first().or(cause.persisted.first()) else {
        return false;
    };
    let stack = context.lab.change(first).stack;
    let Symbolized { frames, approximate } = places.symbolize(stack, context.lab.tables());
    let index = blamed(&frames).and_then(|at| frames.iter().position(|frame| std::ptr::eq(frame, at)));
    index.is_some_and(|index| approximate[index]) || places.is_merged(stack, context.lab.tables())
}

/// Each source line of M before each of A. That a line has to persist before itself says nothing, unless it is all there is.
fn order(missing: &[CrashStore], persisted: &[CrashStore]) -> Vec<Order> {
    let mut order: Vec<Order> = Vec::new();
    for before in missing {
        for after in persisted {
            let pair = Order {
                before: before.frame.clone(),
                after: after.frame.clone(),
                before_event: before.event,
                after_event: after.event,
            };
            let known = |other: &Order| same_line(&other.before, &pair.before) && same_line(&other.after, &pair.after);
            if !order.iter().any(known) {
                order.push(pair);
            }
        }
    }
    if !order.iter().all(|pair| same_line(&pair.before, &pair.after)) {
        order.retain(|pair| !same_line(&pair.before, &pair.after));
    }
    order
}

fn same_line(a: &Frame, b: &Frame) -> bool {
    match (&a.file, &b.file) {
        (Some(file), Some(other)) => file == other && a.line == b.line,
        (None, None) => a.module == b.module && a.address == b.address,
        _ => false,
    }
}

fn outcome(run: &Run, cause: &Cause, context: &Context) -> RecoveryOutcome {
    let check = run.check.as_ref().filter(|check| !check.succeeded());
    let (command, ended) = match (check, &context.words.check) {
        (Some(check), Some(command)) => (command, check),
        _ => (&context.words.recover, &run.recovery),
    };
    let unexpected_output = context.lab.judges_output() && run.recovery.succeeded() && check.is_none();
    RecoveryOutcome {
        command: match check {
            None => with_arguments(command, &context.lab.arguments(&cause.state)),
            Some(_) => command.clone(),
        },
        status: ended.status,
        signal: ended.signal,
        timeout: ended.timed_out,
        stdout: tail(&ended.stdout),
        stderr: tail(&ended.stderr),
        unexpected_output,
    }
}

/// The end of an output as text, from the start of a line.
fn tail(output: &[u8]) -> String {
    let mut start = output.len().saturating_sub(MAX_OUTPUT);
    if start > 0 {
        start += output[start..]
            .iter()
            .position(|&byte| byte == b'\n')
            .map_or(0, |end| end + 1);
    }
    String::from_utf8_lossy(&output[start..]).into_owned()
}

/// "crash after line 15 of `append` (log.c): the store of line 15 had persisted, that of line 14 had not; recovery exited
/// with status 1"
fn message(
    cause: &Cause,
    missing: &[CrashStore],
    persisted: &[CrashStore],
    after: &Frame,
    failed: &str,
    context: &Context,
) -> String {
    let in_recovery = if context.words.depth > 1 {
        " of the recovery"
    } else {
        ""
    };
    let of_other_file = |store: &CrashStore| store.frame.file != after.file;
    let name = |store: &CrashStore| place(store, of_other_file(store));
    let missing_places = list(missing.iter().map(name));
    let persisted_places = list(persisted.iter().map(name));
    let crash = match after_words(after) {
        Some(after) => format!("crash{in_recovery} after {after}"),
        None => format!("crash{in_recovery}"),
    };
    let one = missing.iter().all(|store| same_line(&store.frame, &missing[0].frame));
    let were = if one { "was" } else { "were" };
    let lost = match (&cause.form, cause.kind) {
        (Form::Lost, Kind::CrashDurability) => {
            format!("{missing_places} had not persisted, and the program had output what depends on it")
        }
        (Form::Between(..), Kind::CrashDurability) => {
            format!("the program had output what it only stores later, at {missing_places}")
        }
        _ if is_torn(cause, context) => {
            format!("a part of what {missing_places} stores had persisted, the rest had not")
        }
        (Form::Lost, _) if missing_places == persisted_places => {
            format!("one store of {missing_places} had persisted, another had not")
        }
        (Form::Between(..), _) if missing_places == persisted_places => {
            format!("one store of {missing_places} had persisted, another was still to come")
        }
        (Form::Lost, _) if persisted.is_empty() => format!("{missing_places} had not persisted"),
        (Form::Lost, _) => format!("{persisted_places} had persisted, {missing_places} had not"),
        (Form::Between(..), _) if missing.is_empty() => format!("{persisted_places} had persisted"),
        (Form::Between(..), _) if persisted.is_empty() => format!("{missing_places} {were} still to come"),
        (Form::Between(..), _) => format!("{persisted_places} had persisted, {missing_places} {were} still to come"),
    };
    format!("{crash}: {lost}; {failed}")
}

/// "recovery exited with status 1", "operation 13 (get 5) then printed …"
fn failed(recovery: &RecoveryOutcome, run: &Run, output: Option<&OutputDifference>) -> String {
    let named = |number: u64, text: Option<&String>| match text {
        Some(text) => format!("operation {number} ({text})"),
        None => format!("operation {number}"),
    };
    let Some(output) = output.filter(|_| recovery.unexpected_output) else {
        let checker = run.check.as_ref().is_some_and(|check| !check.succeeded());
        let failed = recovery.in_words(if checker { "the checker" } else { "recovery" });
        return match output {
            Some(output) => {
                let interrupted = output.interrupted();
                let interrupted = interrupted.unwrap_or_else(|| named(output.operation, None));
                format!("{failed}; the crash was in {interrupted}")
            }
            None => failed,
        };
    };
    let who = match output.differs_at {
        Some(number) => named(number, output.differs_text.as_ref()),
        None => "the probe".to_owned(),
    };
    let line = output.got.get((output.first_line - output.lines_from) as usize);
    let printed = line.map_or_else(|| "nothing".to_owned(), |line| format!("{line:?}"));
    if output.text.is_none() {
        return format!("{who} then printed {printed}, and all operations had ended");
    }
    let interrupted = named(output.operation, output.text.as_ref());
    if output.creation {
        return format!("{who} then printed {printed}, which fits neither an empty structure nor {interrupted} done");
    }
    format!("{who} then printed {printed}, which fits {interrupted} neither done nor left out")
}

/// As the user can give it to a shell.
pub(super) fn with_arguments(command: &str, arguments: &[OsString]) -> String {
    let mut words = command.to_owned();
    for argument in arguments {
        words.push(' ');
        words += &quoted(&argument.to_string_lossy());
    }
    words
}

/// "line 15 of `append`"
fn after_words(frame: &Frame) -> Option<String> {
    match (frame.line.filter(|_| frame.has_position()), &frame.function) {
        (Some(line), Some(function)) => Some(format!("line {line} of `{function}`")),
        (Some(line), None) => Some(format!("line {line} of {}", file_name(frame.file.as_deref()?))),
        (None, Some(function)) => Some(format!("`{function}`+{:#x}", frame.address)),
        (None, None) if frame.address != 0 => Some(format!(
            "{:#x} in {}",
            frame.address,
            file_name(frame.module.as_deref().unwrap_or("?"))
        )),
        (None, None) => None,
    }
}

/// "line 14", "pool.c:14", "8 bytes at offset 0x40 of log.pm", "the new size of log.pm (8192 bytes, line 9)"
fn place(store: &CrashStore, other_file: bool) -> String {
    let CrashStore { frame, pm, .. } = store;
    let line = match (frame.file.as_deref().filter(|_| frame.has_position()), frame.line) {
        (Some(file), Some(line)) if other_file => Some(format!("{}:{line}", file_name(file))),
        (Some(_), Some(line)) => Some(format!("line {line}")),
        _ => None,
    };
    match (&store.operation, line) {
        (Some(operation), Some(line)) => format!("{} by {line}", operation.in_words(file_name(&pm.file))),
        (Some(operation), None) => operation.in_words(file_name(&pm.file)),
        (None, Some(line)) => line,
        (None, None) => bytes(pm),
    }
}

fn bytes(pm: &Address) -> String {
    let file = file_name(&pm.file);
    match pm.length {
        0 => format!("the size or name of {file}"),
        1 => format!("1 byte at offset {:#x} of {file}", pm.offset),
        length => format!("{length} bytes at offset {:#x} of {file}", pm.offset),
    }
}

/// "a", "a and b", "a, b and 3 more"; nothing twice.
fn list(names: impl Iterator<Item = String>) -> String {
    let mut distinct: Vec<String> = Vec::new();
    for name in names {
        if !distinct.contains(&name) {
            distinct.push(name);
        }
    }
    match distinct.as_slice() {
        [] => "nothing".to_owned(),
        [one] => one.clone(),
        [one, two] => format!("{one} and {two}"),
        more => format!("{} and {} more", more[..MAX_NAMED].join(", "), more.len() - MAX_NAMED),
    }
}

/// Said where all stores are libpmemobj's.
const OF_LIBRARY: &str = "libpmemobj made all of these stores, and repairs what a crash leaves of them when the pool is opened: see whether \
                          the recovery reads the pool before `pmemobj_open`, and which flags (`POBJ_XADD_NO_SNAPSHOT`, \
                          `POBJ_XADD_NO_FLUSH`, `POBJ_XALLOC_NO_FLUSH`) the program passes";

/// The function of PMDK that made the store on its own account.
fn library_call(store: &CrashStore) -> Option<String> {
    let of_library = |frame: &&Frame| frame.module.as_deref().is_some_and(|module| is_pmdk(file_name(module)));
    let of_runtime = |frame: &&Frame| {
        frame
            .module
            .as_deref()
            .is_some_and(|m| is_language_runtime(file_name(m)))
    };
    let inner = store.stack.iter().skip_while(of_runtime);
    let function = inner.take_while(of_library).last()?.function.clone();
    function.filter(|function| crashproof_library::destination(function).is_none())
}

/// "snapshot `count` …"
fn snapshot_help(
    snapshot: &LackingSnapshot,
    missing: &[CrashStore],
    persisted: &[CrashStore],
    context: &Context,
    places: &mut Places,
) -> String {
    let uncovered = persisted
        .iter()
        .chain(missing)
        .filter(|store| library_call(store).is_none());
    let at = list(uncovered.map(|store| place(store, true)));
    let late = snapshot.late.map(|stack| position_of(stack, context, places));
    match late {
        Some(late) => format!(
            "take the snapshot before the store: the one at {late} comes after {at}, and holds what was stored there already"
        ),
        None => format!(
            "snapshot the range before the store at {at}: `TX_ADD`, `TX_ADD_FIELD` or `pmemobj_tx_add_range`, in the transaction"
        ),
    }
}

fn snapshot_note(snapshot: &LackingSnapshot, context: &Context, places: &mut Places) -> String {
    let began = match snapshot.began {
        Some(stack) => format!("the transaction that began at {}", position_of(stack, context, places)),
        None => "the transaction".to_owned(),
    };
    match snapshot.late {
        Some(_) => {
            format!("{began} snapshotted what is stored there after the store: a rollback brings the store back")
        }
        None => format!(
            "{began} neither snapshotted nor allocated what is stored there: a rollback leaves the store as it is, and the commit \
             does not flush it"
        ),
    }
}

/// "pool.c:14"
fn position_of(stack: StackId, context: &Context, places: &mut Places) -> String {
    let frames = places.symbolize(stack, context.lab.tables()).frames;
    match blamed(&frames) {
        Some(Frame {
            file: Some(file),
            line: Some(line),
            ..
        }) => format!("{}:{line}", file_name(file)),
        Some(Frame {
            function: Some(function),
            ..
        }) => format!("`{function}`"),
        _ => "an unknown place".to_owned(),
    }
}

fn help(kind: Kind, form: &Form, missing: &[CrashStore], persisted: &[CrashStore]) -> Option<String> {
    let calls = |stores: &[CrashStore]| {
        let calls: Option<Vec<String>> = stores.iter().map(library_call).collect();
        let calls = calls.filter(|calls| !calls.is_empty())?;
        let function = list(calls.iter().map(|function| format!("`{function}`")));
        Some(format!(
            "{function} ({})",
            list(stores.iter().map(|store| place(store, true)))
        ))
    };
    let at = |stores: &[CrashStore]| {
        let places = list(stores.iter().map(|store| place(store, true)));
        if stores.iter().any(|store| store.operation.is_some()) {
            return places;
        }
        match stores.iter().all(|store| same_line(&store.frame, &stores[0].frame)) {
            true => format!("the store at {places}"),
            false => format!("the stores at {places}"),
        }
    };
    if missing.is_empty() {
        return None;
    }
    let (first, then) = (at(missing), at(persisted));
    match (kind, form, calls(missing), calls(persisted)) {
        (Kind::CrashOrder, _, Some(call), _) => {
            return Some(format!("make {then} only when the call of {call} has returned"));
        }
        (Kind::CrashOrder, Form::Lost, None, Some(call)) => {
            return Some(format!("flush and fence {first} before the call of {call}"));
        }
        (Kind::CrashOrder, Form::Between(..), None, Some(call)) => {
            return Some(format!("make {first}, flush and fence it before the call of {call}"));
        }
        _ => {}
    }
    match (kind, form) {
        (Kind::CrashOrder, _) if first == then => Some(format!(
            "flush and fence the first of the two before the other is made: both are {first}"
        )),
        (Kind::CrashOrder, Form::Lost) => Some(format!("flush and fence {first} before making {then}")),
        (Kind::CrashOrder, Form::Between(..)) => {
            Some(format!("make {first} before {then}, and flush and fence in between"))
        }
        (Kind::CrashDurability, Form::Lost) => Some(format!(
            "flush and fence {first} before the program says that it is done"
        )),
        (Kind::CrashDurability, Form::Between(..)) => Some(format!(
            "make {first}, flush and fence before the program says that it is done"
        )),
        _ => None,
    }
}

/// Whether what had persisted and what had not are of one store.
fn is_torn(cause: &Cause, context: &Context) -> bool {
    let store = |&index: &Index| {
        Some(context.lab.change(index))
            .filter(|change| change.is_store())
            .map(|c| c.id.seq)
    };
    cause
        .missing
        .iter()
        .filter_map(store)
        .any(|seq| cause.persisted.iter().any(|index| store(index) == Some(seq)))
}

fn notes(cause: &Cause, context: &Context, places: &mut Places) -> Vec<String> {
    let mut notes = Vec::new();
    let change = |&index: &Index| context.lab.change(index);
    if is_torn(cause, context) {
        notes.push(
            if context.lab.tears() {
                "the persisted and the missing bytes are of one store: only eight aligned bytes persist at once, a wider store \
                 can tear"
            } else {
                "the persisted and the missing bytes are of one store that crosses a cache line: with --no-tear, too, lines persist \
                 one by one"
            }
            .to_owned(),
        );
    }
    let mut threads: Vec<_> = cause
        .missing
        .iter()
        .chain(&cause.persisted)
        .map(|i| change(i).thread)
        .collect();
    threads.sort_unstable();
    threads.dedup();
    if threads.len() > 1 {
        notes.push(
            "the stores are of different threads: a fence waits for the flushes of its own thread only".to_owned(),
        );
    }
    if !cause.aside.is_empty() {
        let stores = stores(&cause.aside, cause, context, places);
        let at = list(stores.iter().map(|store| place(store, true)));
        notes.push(format!(
            "the program is between two updates at this crash, which fails by itself (see the finding that has {at} as \
             persisted): this one remains when that is mended"
        ));
    }
    let written = cause
        .persisted
        .iter()
        .map(change)
        .find_map(|change| match &change.what {
            What::Write { .. } => {
                Some("what had persisted was written by a system call, which counts as durable at once".to_owned())
            }
            _ => None,
        });
    notes.extend(written);
    notes
}
