//! PMDK transactions as they go on: which thread is in one, what it covers.
//!
//! Two sources, used side by side: pmemcheck's client requests, which libpmemobj makes for every transaction, snapshot and
//! new object, and the program's calls of `pmemobj_tx_*`, which say what the program asked for. libpmemobj makes no
//! request for a snapshot that it has already, so asking twice shows in the calls only; it says of a new object only in a
//! request. Own undo logs, and a libpmemobj that is linked statically, make requests alone.

use crashproof_trace::{PmAddress, ProcessId, Request, StackId};

use crate::mappings::Mappings;
use crate::ranges::RangeSet;

/// The transaction of a thread, with all that are nested in it: libpmemobj keeps one set of ranges for them.
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
    /// The transaction publishes what was reserved when it ends.
    publishes: bool,
    /// Its process has ended, and it was reported as unfinished.
    unfinished: bool,
}

impl Transaction {
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

    pub fn is_by_call(&self) -> bool {
        self.by_call
    }

    fn begin_level(&mut self, stack: StackId) {
        if self.levels.is_empty() {
            self.begin = Some(stack);
            self.covered.clear();
            self.asked.clear();
            self.objects.clear();
            self.allocated.clear();
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

/// What a request or call did, for the oracles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The thread's outermost transaction ended; it began here.
    Ended { begin: Option<StackId> },
    /// The process of the thread ended, or the trace did, in the thread's transaction.
    Unfinished { begin: Option<StackId> },
    /// The program asked to snapshot a range.
    Asked {
        at: PmAddress,
        len: u64,
        already_asked: bool,
    },
    /// libpmemobj announced a snapshot or a new object.
    Added {
        at: PmAddress,
        len: u64,
        already_covered: bool,
    },
    /// Something else.
    None,
}

#[derive(Default)]
pub struct Transactions {
    threads: Vec<Transaction>,
    /// Ranges to which stores are right outside transactions.
    pub ignored: RangeSet,
    /// The trace has client requests of transactions, so calls do not open and close them.
    pub requests: bool,
}

impl Transactions {
    pub fn of(&self, thread: u32) -> Option<&Transaction> {
        self.threads.get(thread as usize).filter(|t| t.is_active())
    }

    /// Where the thread's transaction began that, if its process ended now, the next opening of the pool would roll back.
    pub fn uncommitted(&self, thread: u32) -> Option<StackId> {
        self.of(thread).filter(|t| t.levels.first() == Some(&true))?.begin()
    }

    /// Whether the thread is at work in a transaction that does not cover the range, although it is neither memory that the
    /// program makes durable itself (reserved, or allocated without the transaction) nor excluded by a request.
    /// Without client requests nobody says which objects are new, and the answer is no.
    pub fn lacks_snapshot(&self, thread: u32, file: u32, start: u64, end: u64) -> bool {
        let Some(t) = self.of(thread).filter(|t| self.requests && t.is_working()) else {
            return false;
        };
        let known = [&t.asked, &t.covered].iter().any(|set| set.covers(file, start, end));
        let exempt = [&t.allocated, &t.reserved, &self.ignored];
        !known && !exempt.iter().any(|set| set.touches(file, start, end))
    }

    /// The threads of a process (of every process, if not given) that are in a transaction which has not committed, and where it
    /// began: once for each.
    pub fn take_unfinished(&mut self, is_of_process: impl Fn(u32) -> bool) -> Vec<(u32, Option<StackId>)> {
        let mut unfinished = Vec::new();
        for (thread, t) in (0..).zip(&mut self.threads) {
            if t.levels.first() == Some(&true) && !t.unfinished && is_of_process(thread) {
                t.unfinished = true;
                unfinished.push((thread, t.begin));
            }
        }
        unfinished
    }

    fn thread(&mut self, thread: u32) -> &mut Transaction {
        let index = thread as usize;
        if index >= self.threads.len() {
            self.threads.resize_with(index + 1, Transaction::default);
        }
        &mut self.threads[index]
    }

    pub fn request(
        &mut self,
        thread: u32,
        stack: StackId,
        request: Request,
        range: Option<(PmAddress, u64)>,
    ) -> Change {
        match (request, range) {
            (Request::TxBegin, _) => {
                if !self.requests {
                    // What the calls opened so far is announced by requests from now on.
                    self.requests = true;
                    for t in &mut self.threads {
                        t.called |= t.by_call && t.is_active();
                        t.levels.clear();
                    }
                }
                self.thread(thread).begin_level(stack);
            }
            (Request::TxEnd, _) => return self.end(thread),
            (Request::TxAdd, Some((at, len))) => {
                let t = self.thread(thread);
                if t.is_active() {
                    let (file, end) = (at.file.0, at.offset.saturating_add(len));
                    let already_covered = t.covered.covers(file, at.offset, end);
                    t.covered.insert(file, at.offset, end);
                    if !t.files.contains(&file) {
                        t.files.push(file);
                    }
                    return Change::Added {
                        at,
                        len,
                        already_covered,
                    };
                }
            }
            (Request::TxRemove, Some((at, len))) => {
                self.thread(thread)
                    .covered
                    .remove(at.file.0, at.offset, at.offset.saturating_add(len));
            }
            (Request::TxIgnore, Some((at, len))) => {
                self.ignored.insert(at.file.0, at.offset, at.offset.saturating_add(len));
            }
            _ => {}
        }
        Change::None
    }

    /// A call of libpmemobj by the program.
    pub fn call(
        &mut self,
        thread: u32,
        process: ProcessId,
        stack: StackId,
        name: &str,
        arguments: &[u64; 6],
        mappings: &Mappings,
    ) -> Change {
        let requests = self.requests;
        let t = self.thread(thread);
        let [first, second, third, fourth, _, sixth] = *arguments;
        match name {
            "pmemobj_tx_begin" => {
                t.pool = first;
                t.pool_file = mappings.resolve(process, first).map(|at| at.file.0);
                t.called = !t.is_active();
                if !requests {
                    t.begin_level(stack);
                }
            }
            "pmemobj_tx_end" if !requests => return self.end(thread),
            "pmemobj_tx_commit" | "pmemobj_tx_abort" | "pmemobj_tx_process" => t.leave_work(),
            "pmemobj_tx_add_range_direct" | "pmemobj_tx_xadd_range_direct" => {
                return t.ask(mappings.resolve(process, first), 0, second);
            }
            // PMEMoid is passed in two registers: the pool's id and the offset in it.
            "pmemobj_tx_add_range" | "pmemobj_tx_xadd_range" => {
                let object = mappings.resolve(process, t.pool.wrapping_add(second));
                return t.ask(object, third, fourth);
            }
            // Of these the runtime notes where in the pool the object lies, as the sixth argument.
            "pmemobj_reserve" | "pmemobj_xreserve" => {
                if let Some(at) = mappings.resolve(process, first.wrapping_add(sixth)) {
                    t.reserved.insert(at.file.0, at.offset, at.offset.saturating_add(third));
                }
            }
            "pmemobj_alloc" | "pmemobj_xalloc" | "pmemobj_zalloc" if t.is_active() => {
                if let Some(at) = mappings.resolve(process, first.wrapping_add(sixth)) {
                    t.allocated
                        .insert(at.file.0, at.offset, at.offset.saturating_add(third));
                }
            }
            // Which of the reservations these are about is in memory that the trace does not have.
            "pmemobj_publish" | "pmemobj_cancel" => t.reserved.clear(),
            "pmemobj_tx_publish" | "pmemobj_tx_xpublish" => t.publishes = true,
            _ => {}
        }
        Change::None
    }

    fn end(&mut self, thread: u32) -> Change {
        let t = self.thread(thread);
        let begin = t.begin;
        if t.end_level() {
            Change::Ended { begin }
        } else {
            Change::None
        }
    }
}

impl Transaction {
    fn ask(&mut self, object: Option<PmAddress>, offset: u64, len: u64) -> Change {
        let Some(object) = object.filter(|_| self.is_active() && len > 0) else {
            return Change::None;
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
        Change::Asked { at, len, already_asked }
    }
}
