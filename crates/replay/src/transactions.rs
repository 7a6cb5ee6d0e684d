//! PMDK transactions as they go on: which thread is in one, what it covers.
//!
//! Two sources, used side by side: pmemcheck's client requests, which libpmemobj makes for every transaction, snapshot and
//! new object, and the program's calls of `pmemobj_tx_*`, which say what the program asked for. libpmemobj makes no
//! request for a snapshot that it has already, so asking twice shows in the calls only; it says of a new object only in a
//! request. Own undo logs, and a libpmemobj that is linked statically, make requests alone.
//!
//! Every thread has a transaction of its own. Requests can also give a number: such a transaction is another one, and several threads
//! can take part in it.

use crashproof_trace::{CallReturn, Event, EventKind, PmAddress, ProcessId, Request, StackId};

use crate::mappings::Mappings;
use crate::ranges::RangeSet;

/// More that have a number are not kept at once.
const MAX_NUMBERED: usize = 1024;

/// Which transaction it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionId {
    /// The thread's own.
    Thread(u32),
    /// The one to which the program has given a number.
    Numbered(ProcessId, u64),
}

impl TransactionId {
    /// As requests say it: without a number it is that of the thread that makes the request.
    fn of_request(thread: u32, process: ProcessId, number: u64) -> Self {
        match number {
            0 => TransactionId::Thread(thread),
            _ => TransactionId::Numbered(process, number),
        }
    }
}

/// A transaction with all that are nested in it: libpmemobj keeps one set of ranges for them.
#[derive(Default)]
pub struct Transaction {
    /// For each nesting level whether it is still at work: after its commit or abort the program is in its `TX_ONCOMMIT`,
    /// `TX_ONABORT` or `TX_FINALLY` part.
    levels: Vec<bool>,
    begin: Option<StackId>,
    /// Snapshots and new objects.
    pub covered: RangeSet,
    /// What the program asked to snapshot.
    pub asked: RangeSet,
    /// From the start of an object to the end of what of it was asked for.
    pub objects: RangeSet,
    /// The pool, where it is mapped, as given to `pmemobj_tx_begin`.
    pool: u64,
    /// The file that the pool begins in.
    pool_file: Option<u32>,
    /// The program has called `pmemobj_tx_begin`, and no request has followed yet.
    called: bool,
    /// The program began it by a call, so `asked` is what the program wanted a snapshot of.
    by_call: bool,
    /// Files in which it has work to do: of its pool, and of everything that it covers.
    files: Vec<u32>,
    /// What the thread allocated in it without the transaction.
    allocated: RangeSet,
    /// What the thread has reserved and not published, in any transaction or in none.
    reserved: RangeSet,
    /// Objects that it has called for, of which the trace does not say which they are.
    unknown_objects: u32,
    /// The transaction publishes what was reserved when it ends.
    publishes: bool,
    /// Its process has ended, and it was reported as unfinished.
    unfinished: bool,
}

impl Transaction {
    /// Whether it has begun and not ended.
    pub fn is_active(&self) -> bool {
        !self.levels.is_empty()
    }

    /// Whether stores made now belong to the transaction's work.
    pub fn is_working(&self) -> bool {
        self.levels.last() == Some(&true)
    }

    /// Where the outermost one began.
    pub fn begin(&self) -> Option<StackId> {
        self.begin.filter(|_| self.is_active())
    }

    /// What was snapshotted in it, as far as that is known: with requests alone this includes new objects.
    pub fn snapshots(&self) -> &RangeSet {
        if self.by_call { &self.asked } else { &self.covered }
    }

    /// Whether the file is one of its pool's. `None`: nothing is known of the pool.
    pub fn is_in_pool(&self, file: u32) -> Option<bool> {
        (!self.files.is_empty()).then(|| self.files.contains(&file))
    }

    /// Whether the program began it by a call, so that [`asked`](Transaction::asked) is what it wanted a snapshot of.
    pub fn is_by_call(&self) -> bool {
        self.by_call
    }

    /// Whether it can roll the range back: a snapshot, or a new object.
    fn covers(&self, file: u32, start: u64, end: u64) -> bool {
        [&self.asked, &self.covered]
            .iter()
            .any(|set| set.covers(file, start, end))
    }

    fn begin_level(&mut self, stack: StackId) {
        if self.levels.is_empty() {
            self.begin = Some(stack);
            self.covered.clear();
            self.asked.clear();
            self.objects.clear();
            self.allocated.clear();
            self.unknown_objects = 0;
            self.by_call = std::mem::take(&mut self.called);
            self.files.clear();
            self.files.extend(self.pool_file.filter(|_| self.by_call));
            self.unfinished = false;
        }
        self.levels.push(true);
    }

    /// Whether that was the outermost one.
    fn end_level(&mut self) -> bool {
        let outermost = self.levels.pop().is_some() && self.levels.is_empty();
        if outermost && std::mem::take(&mut self.publishes) {
            self.reserved.clear();
        }
        outermost
    }

    fn leave_work(&mut self) {
        if let Some(level) = self.levels.last_mut() {
            *level = false;
        }
    }
}

/// What an event did to a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionChange {
    /// The transaction ended with all that were nested in it; it began here.
    Ended {
        /// Which one it was.
        id: TransactionId,
        /// Where it began.
        begin: Option<StackId>,
    },
    /// The process ended, or the trace did, in the transaction.
    Unfinished {
        /// Which one it is.
        id: TransactionId,
        /// Where it began.
        begin: Option<StackId>,
        /// A signal ended its process.
        killed: bool,
    },
    /// The program asked to snapshot a range.
    Asked {
        /// Its first byte.
        at: PmAddress,
        /// Its length.
        len: u64,
        /// The program had asked for all of it before.
        already_asked: bool,
    },
    /// libpmemobj announced a snapshot or a new object.
    Added {
        /// Its first byte.
        at: PmAddress,
        /// Its length.
        len: u64,
        /// The transaction covered all of it before.
        already_covered: bool,
        /// Another transaction that is at work covers some of it; it began here.
        other: Option<StackId>,
    },
    /// Something else.
    None,
}

/// All transactions of a run.
#[derive(Default)]
pub struct Transactions {
    /// The threads' own.
    threads: Vec<Transaction>,
    numbered: Vec<(ProcessId, u64, Transaction)>,
    /// Those that are active.
    active: Vec<TransactionId>,
    /// Which of them each thread is in, the innermost last.
    joined: Vec<Vec<TransactionId>>,
    /// Ranges to which stores are right outside transactions.
    pub ignored: RangeSet,
    /// The trace has client requests of transactions, so calls do not open and close them.
    pub requests: bool,
}

impl Transactions {
    /// The thread's innermost transaction.
    pub fn of(&self, thread: u32) -> Option<&Transaction> {
        self.all_of(thread).next()
    }

    /// The id of the thread's innermost transaction.
    pub fn id_of(&self, thread: u32) -> Option<TransactionId> {
        self.joined.get(thread as usize)?.last().copied()
    }

    /// All that the thread is in, the innermost first.
    pub fn all_of(&self, thread: u32) -> impl Iterator<Item = &Transaction> {
        let joined = self.joined.get(thread as usize).map_or(&[][..], Vec::as_slice);
        joined.iter().rev().filter_map(|&id| self.get(id))
    }

    /// Where the transaction began that a store of the thread belongs to: the innermost that covers it, else the innermost.
    pub fn begin_for(&self, thread: u32, file: u32, start: u64, end: u64) -> Option<StackId> {
        self.all_of(thread)
            .find(|t| t.covers(file, start, end))
            .or_else(|| self.of(thread))?
            .begin()
    }

    /// Whether the file is one of the pools of the thread's transactions. `None`: nothing is known of them.
    pub fn is_in_pool(&self, thread: u32, file: u32) -> Option<bool> {
        self.all_of(thread)
            .filter_map(|t| t.is_in_pool(file))
            .reduce(|a, b| a || b)
    }

    /// Whether a transaction of the thread began there that, if its process ended now, the next opening of the pool would roll back.
    pub fn is_uncommitted(&self, thread: u32, begin: StackId) -> bool {
        let own = self.threads.get(thread as usize);
        let numbered = self.numbered.iter().map(|(.., t)| t);
        own.into_iter()
            .chain(numbered)
            .any(|t| t.levels.first() == Some(&true) && t.begin == Some(begin))
    }

    /// Whether the thread is at work in a transaction, and none of those that it is in covers the range, although it is neither memory that
    /// the program makes durable itself (reserved, or allocated without the transaction) nor excluded by a request.
    /// Where nobody says which objects are new, neither a client request nor the return of the call that made them, the answer is no.
    pub fn lacks_snapshot(&self, thread: u32, file: u32, start: u64, end: u64) -> bool {
        let knows = |t: &Transaction| t.is_working() && (self.requests || t.unknown_objects == 0);
        if !self.of(thread).is_some_and(knows) {
            return false;
        }
        let known = self.all_of(thread).any(|t| t.covers(file, start, end));
        let own = self.threads.get(thread as usize);
        let exempt = own.map(|t| [&t.allocated, &t.reserved]).into_iter().flatten();
        !known && !exempt.chain([&self.ignored]).any(|set| set.touches(file, start, end))
    }

    /// Whether a store of the thread ought to be covered by its transaction and is not. What a constructor does, which libpmemobj calls, is
    /// for the program to persist; so `is_by_program` is asked whether the store is the program's own and not in a callback.
    pub fn should_cover(&self, thread: u32, at: PmAddress, len: u64, is_by_program: impl FnOnce() -> bool) -> bool {
        self.is_in_pool(thread, at.file.0) == Some(true)
            && self.lacks_snapshot(thread, at.file.0, at.offset, at.offset.saturating_add(len))
            && is_by_program()
    }

    /// The transactions of a process (of every process, if not given) that have not committed, a thread of it, and where they began:
    /// once for each.
    pub fn take_unfinished(
        &mut self,
        is_of_process: impl Fn(ProcessId) -> bool,
        process_of: impl Fn(u32) -> ProcessId,
    ) -> Vec<(TransactionId, ProcessId, Option<StackId>)> {
        let mut unfinished = Vec::new();
        for index in 0..self.active.len() {
            let id = self.active[index];
            let process = match id {
                TransactionId::Thread(thread) => process_of(thread),
                TransactionId::Numbered(process, _) => process,
            };
            let Some(t) = self.get_mut(id) else { continue };
            if t.levels.first() == Some(&true) && !t.unfinished && is_of_process(process) {
                t.unfinished = true;
                unfinished.push((id, process, t.begin));
            }
        }
        unfinished
    }

    fn get(&self, id: TransactionId) -> Option<&Transaction> {
        match id {
            TransactionId::Thread(thread) => self.threads.get(thread as usize),
            TransactionId::Numbered(process, number) => {
                let is_it = |t: &&(ProcessId, u64, Transaction)| (t.0, t.1) == (process, number);
                self.numbered.iter().find(is_it).map(|(.., t)| t)
            }
        }
        .filter(|t| t.is_active())
    }

    fn get_mut(&mut self, id: TransactionId) -> Option<&mut Transaction> {
        match id {
            TransactionId::Thread(thread) => self.threads.get_mut(thread as usize),
            TransactionId::Numbered(process, number) => {
                let is_it = |t: &&mut (ProcessId, u64, Transaction)| (t.0, t.1) == (process, number);
                self.numbered.iter_mut().find(is_it).map(|(.., t)| t)
            }
        }
        .filter(|t| t.is_active())
    }

    fn thread(&mut self, thread: u32) -> &mut Transaction {
        let index = thread as usize;
        if index >= self.threads.len() {
            self.threads.resize_with(index + 1, Transaction::default);
        }
        &mut self.threads[index]
    }

    /// The thread takes part in the transaction from now on.
    fn join(&mut self, id: TransactionId, thread: u32) {
        let index = thread as usize;
        if index >= self.joined.len() {
            self.joined.resize_with(index + 1, Vec::new);
        }
        if !self.joined[index].contains(&id) {
            self.joined[index].push(id);
        }
    }

    fn begin(&mut self, id: TransactionId, thread: u32, stack: StackId) {
        if self.get(id).is_none() {
            if let TransactionId::Numbered(process, number) = id {
                if self.numbered.len() == MAX_NUMBERED {
                    return;
                }
                self.numbered.push((process, number, Transaction::default()));
            }
            self.active.push(id);
        }
        match id {
            TransactionId::Thread(thread) => self.thread(thread).begin_level(stack),
            TransactionId::Numbered(..) => {
                if let Some((.., t)) = self
                    .numbered
                    .iter_mut()
                    .find(|t| TransactionId::Numbered(t.0, t.1) == id)
                {
                    t.begin_level(stack);
                }
            }
        }
        self.join(id, thread);
    }

    fn end(&mut self, id: TransactionId) -> TransactionChange {
        let Some(t) = self.get_mut(id) else {
            return TransactionChange::None;
        };
        let begin = t.begin;
        if !t.end_level() {
            return TransactionChange::None;
        }
        self.forget(id);
        TransactionChange::Ended { id, begin }
    }

    /// The transaction is not active any more.
    fn forget(&mut self, id: TransactionId) {
        self.active.retain(|&active| active != id);
        self.numbered.retain(|t| TransactionId::Numbered(t.0, t.1) != id);
        match id {
            TransactionId::Thread(thread) => {
                if let Some(joined) = self.joined.get_mut(thread as usize) {
                    joined.retain(|&joined| joined != id);
                }
            }
            TransactionId::Numbered(..) => {
                for joined in &mut self.joined {
                    joined.retain(|&joined| joined != id);
                }
            }
        }
    }

    /// Takes in the next event of the trace. `mappings` are those at the event; `is_by_program` is asked whether its call is the program's
    /// own, since libpmemobj calls itself by the same names.
    pub fn event(
        &mut self,
        event: &Event<'_>,
        process: ProcessId,
        mappings: &Mappings,
        mut is_by_program: impl FnMut() -> bool,
    ) -> TransactionChange {
        let (thread, stack) = (event.thread.0, event.stack);
        match event.kind {
            EventKind::Request {
                request,
                transaction,
                range,
            } => {
                let id = TransactionId::of_request(thread, process, transaction);
                self.request(id, thread, stack, request, range)
            }
            EventKind::Call { name, ref arguments } if is_by_program() => {
                self.call(thread, process, stack, name, arguments, mappings)
            }
            EventKind::Return(ref returned) if is_by_program() => {
                self.returned(thread, process, returned, mappings);
                TransactionChange::None
            }
            _ => TransactionChange::None,
        }
    }

    fn request(
        &mut self,
        id: TransactionId,
        thread: u32,
        stack: StackId,
        request: Request,
        range: Option<(PmAddress, u64)>,
    ) -> TransactionChange {
        match (request, range) {
            (Request::TxBegin, _) => {
                if !self.requests {
                    // What the calls opened so far is announced by requests from now on.
                    self.requests = true;
                    for t in &mut self.threads {
                        t.called |= t.by_call && t.is_active();
                        t.levels.clear();
                    }
                    self.active.clear();
                    self.joined.clear();
                }
                self.begin(id, thread, stack);
            }
            (Request::TxEnd, _) => return self.end(id),
            (Request::TxJoin, _) if self.get(id).is_some() => self.join(id, thread),
            (Request::TxLeave, _) => {
                if let Some(joined) = self.joined.get_mut(thread as usize) {
                    joined.retain(|&joined| joined != id);
                }
            }
            (Request::TxAdd, Some((at, len))) => {
                let (file, end) = (at.file.0, at.offset.saturating_add(len));
                let is_other = |t: &&Transaction| t.is_working() && t.covered.touches(file, at.offset, end);
                let mut others = self.active.iter().filter(|&&active| active != id);
                let other = others
                    .find_map(|&active| self.get(active).filter(is_other))
                    .and_then(Transaction::begin);
                if let Some(t) = self.get_mut(id) {
                    let already_covered = t.covered.covers(file, at.offset, end);
                    t.covered.insert(file, at.offset, end);
                    if !t.files.contains(&file) {
                        t.files.push(file);
                    }
                    return TransactionChange::Added {
                        at,
                        len,
                        already_covered,
                        other,
                    };
                }
            }
            (Request::TxRemove, Some((at, len))) => {
                if let Some(t) = self.get_mut(id) {
                    t.covered.remove(at.file.0, at.offset, at.offset.saturating_add(len));
                }
            }
            (Request::TxIgnore, Some((at, len))) => {
                self.ignored.insert(at.file.0, at.offset, at.offset.saturating_add(len));
            }
            _ => {}
        }
        TransactionChange::None
    }

    /// A function of libpmemobj that the program called has returned.
    fn returned(&mut self, thread: u32, process: ProcessId, returned: &CallReturn<'_>, mappings: &Mappings) {
        let [first, second, third, ..] = returned.arguments;
        let t = self.thread(thread);
        let in_transaction = returned.name.starts_with("pmemobj_tx_");
        if in_transaction && returned.name.ends_with("alloc") {
            t.unknown_objects = t.unknown_objects.saturating_sub(1);
        }
        let Some(object) = returned.object else { return };
        // The functions of transactions do not take the pool.
        let pool = if in_transaction { t.pool } else { first };
        let Some(at) = mappings.resolve(process, pool.wrapping_add(object.offset)) else {
            return;
        };
        let size = match returned.name {
            "pmemobj_tx_alloc" | "pmemobj_tx_xalloc" | "pmemobj_tx_zalloc" => first,
            _ => third,
        };
        let end = at.offset.saturating_add(size);
        match returned.name {
            "pmemobj_tx_alloc" | "pmemobj_tx_xalloc" | "pmemobj_tx_zalloc" => {
                t.covered.insert(at.file.0, at.offset, end)
            }
            // What is large enough already stays where it is, and is not new.
            "pmemobj_tx_realloc" | "pmemobj_tx_zrealloc" if second != object.offset => {
                t.covered.insert(at.file.0, at.offset, end)
            }
            "pmemobj_reserve" | "pmemobj_xreserve" => t.reserved.insert(at.file.0, at.offset, end),
            "pmemobj_alloc" | "pmemobj_xalloc" | "pmemobj_zalloc" if t.is_active() => {
                t.allocated.insert(at.file.0, at.offset, end)
            }
            _ => {}
        }
    }

    /// A call of libpmemobj by the program.
    fn call(
        &mut self,
        thread: u32,
        process: ProcessId,
        stack: StackId,
        name: &str,
        arguments: &[u64; 6],
        mappings: &Mappings,
    ) -> TransactionChange {
        let requests = self.requests;
        let t = self.thread(thread);
        let [first, second, third, fourth, ..] = *arguments;
        match name {
            "pmemobj_tx_begin" => {
                t.pool = first;
                t.pool_file = mappings.resolve(process, first).map(|at| at.file.0);
                t.called = !t.is_active();
                if !requests {
                    self.begin(TransactionId::Thread(thread), thread, stack);
                }
            }
            "pmemobj_tx_end" if !requests => return self.end(TransactionId::Thread(thread)),
            "pmemobj_tx_commit" | "pmemobj_tx_abort" | "pmemobj_tx_process" => t.leave_work(),
            "pmemobj_tx_add_range_direct" | "pmemobj_tx_xadd_range_direct" => {
                return t.ask(mappings.resolve(process, first), 0, second);
            }
            // PMEMoid is passed in two registers: the pool's id and the offset in it.
            "pmemobj_tx_add_range" | "pmemobj_tx_xadd_range" => {
                let object = mappings.resolve(process, t.pool.wrapping_add(second));
                return t.ask(object, third, fourth);
            }
            // Which of the reservations these are about is in memory that the trace does not have.
            "pmemobj_publish" | "pmemobj_cancel" => t.reserved.clear(),
            "pmemobj_tx_publish" | "pmemobj_tx_xpublish" => t.publishes = true,
            // A copy of a text is as long as the text, which the trace does not have.
            _ if name.starts_with("pmemobj_tx_") && (name.ends_with("alloc") || name.ends_with("dup")) => {
                t.unknown_objects += 1;
            }
            _ => {}
        }
        TransactionChange::None
    }
}

impl Transaction {
    fn ask(&mut self, object: Option<PmAddress>, offset: u64, len: u64) -> TransactionChange {
        let Some(object) = object.filter(|_| self.is_active() && len > 0) else {
            return TransactionChange::None;
        };
        let file = object.file.0;
        let at = PmAddress {
            offset: object.offset.saturating_add(offset),
            ..object
        };
        let end = at.offset.saturating_add(len);
        let already_asked = self.asked.covers(file, at.offset, end);
        self.asked.insert(file, at.offset, end);
        self.objects.insert(file, object.offset, end);
        TransactionChange::Asked { at, len, already_asked }
    }
}

#[cfg(test)]
mod tests {
    use crashproof_trace::{FileId, PmemObject, ThreadId};

    use super::*;

    const POOL: u64 = 0x1000_0000;
    const FILE: FileId = FileId(0);

    /// A thread that has begun a transaction by a call; libpmemobj makes no requests.
    struct Thread {
        transactions: Transactions,
        mappings: Mappings,
    }

    impl Thread {
        fn new() -> Thread {
            let mut mappings = Mappings::default();
            mappings.map(ProcessId(0), FILE, 0, 1 << 20, POOL);
            let mut thread = Thread {
                transactions: Transactions::default(),
                mappings,
            };
            thread.call("pmemobj_tx_begin", [POOL, 0, 0]);
            thread
        }

        fn event(&mut self, kind: EventKind<'_>) {
            let event = Event {
                seq: 0,
                beginning: &crashproof_trace::AT_ONCE,
                thread: ThreadId(0),
                stack: StackId(0),
                kind,
            };
            self.transactions.event(&event, ProcessId(0), &self.mappings, || true);
        }

        fn call(&mut self, name: &str, [a, b, c]: [u64; 3]) {
            let arguments = [a, b, c, 0, 0, 0];
            self.event(EventKind::Call { name, arguments });
        }

        fn returns(&mut self, name: &str, [a, b, c]: [u64; 3], offset: Option<u64>) {
            let object = offset.map(|offset| PmemObject {
                pool: 7,
                offset,
                usable: 0,
            });
            self.event(EventKind::Return(CallReturn {
                name,
                arguments: [a, b, c, 0, 0, 0],
                result: 0,
                object,
            }));
        }

        fn lacks(&self, offset: u64, len: u64) -> bool {
            let at = PmAddress { file: FILE, offset };
            self.transactions.should_cover(0, at, len, || true)
        }
    }

    #[test]
    fn snapshots_are_known_by_calls() {
        let mut thread = Thread::new();
        assert!(thread.lacks(0x100, 8));
        thread.call("pmemobj_tx_add_range_direct", [POOL + 0x100, 8, 0]);
        assert!(!thread.lacks(0x100, 8));
        assert!(thread.lacks(0x100, 16));
        thread.call("pmemobj_tx_process", [0; 3]);
        assert!(!thread.lacks(0x200, 8), "after the commit");
    }

    #[test]
    fn new_objects_are_known_by_what_calls_return() {
        let mut thread = Thread::new();
        thread.call("pmemobj_tx_zalloc", [64, 1, 0]);
        assert!(!thread.lacks(0x100, 8), "which object is new is not known yet");
        thread.returns("pmemobj_tx_zalloc", [64, 1, 0], Some(0x400));
        assert!(!thread.lacks(0x400, 64));
        assert!(thread.lacks(0x440, 8) && thread.lacks(0x100, 8));
    }

    #[test]
    fn an_object_that_stays_where_it_is_is_not_new() {
        for (moved_to, lacks) in [(0x400, true), (0x800, false)] {
            let mut thread = Thread::new();
            thread.call("pmemobj_tx_realloc", [7, 0x400, 64]);
            thread.returns("pmemobj_tx_realloc", [7, 0x400, 64], Some(moved_to));
            assert_eq!(thread.lacks(moved_to, 64), lacks);
        }
    }

    #[test]
    fn nothing_is_said_after_the_copy_of_a_text_or_a_return_that_is_not_logged() {
        for name in ["pmemobj_tx_strdup", "pmemobj_tx_alloc"] {
            let mut thread = Thread::new();
            assert!(thread.lacks(0x100, 8));
            thread.call(name, [64, 1, 0]);
            assert!(!thread.lacks(0x100, 8), "{name}");
            // A copy returns an object of a length that nobody knows.
            thread.returns("pmemobj_tx_strdup", [64, 1, 0], Some(0x400));
            assert!(!thread.lacks(0x100, 8), "{name}");
        }
    }
}
