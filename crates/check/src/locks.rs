//! Which bytes of PM are locks. Locks are volatile, and nothing has to persist them.
//!
//! Objects of the C library (a mutex, a condition variable, a semaphore) are known by the calls of its functions, each of which has the object's address and
//! size. The bytes are a lock's until they are unmapped, or the program's own code stores to them and no such function is called for the object any more: it
//! may have initialised the object, or put data into its place.
//!
//! Words are known by the way they are used: taken by a compare-exchange, or an exchange whose result the code looks at, from
//! a free value that the same thread puts back, every time. What a lock holds while it is taken carries no data: a thread takes it with one value, 1 or a
//! number of its own. Some have a second value for a lock that others wait for; the code that stores it then does so, sooner or later, while another thread
//! has the lock.
//!
//! What is not evidence: an atomic addition (a counter, a ticket), a word that takes ever new values (a version), a word that one instruction
//! both takes and puts back (a switch between two copies), one that a thread takes with different values (the head of a list, a mailbox), and a word that was
//! taken and not put back. One lock word that was used at least twice is
//! evidence for itself; a word that was used once is a lock if the instruction that put it back does so with other words, and always puts the same value there.

use crashproof_model::{Bytes, LINE, LineAddress, pieces};
use crashproof_replay::RangeSet;
use crashproof_stacks::{Stacks, file_name, is_language_runtime};
use crashproof_trace::{Frame, PmAddress, StackId, StoreFlags, Tables};
use rustc_hash::{FxHashMap, FxHashSet};

/// More words are not followed; then the instruction that put a word back decides alone.
const MAX_WORDS: usize = 1 << 16;
/// So many uses of a word, or words of an instruction, are evidence.
const ENOUGH: u32 = 2;
/// Values up to this one are states of a lock, not references to something.
const LEVELS: u64 = 3;
/// So many threads of a word are remembered.
const MAX_TAKERS: usize = 64;
/// Bits of the filter before the table of words.
const FILTER: u64 = 1 << 12;

/// What is known of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    Other,
    /// It looks like a lock, and was not used often enough to tell.
    Perhaps,
    Lock,
    /// It is a lock, if the program was ended while it held it.
    HeldLock,
    /// It is a lock of the C library.
    Object,
}

/// A word that an exchange has stored to.
struct Word {
    bytes: Bytes,
    /// What it holds.
    value: u64,
    /// What it holds when nobody has it, once that is known.
    free: Option<u64>,
    /// The thread that has it.
    holder: Option<u32>,
    /// Who took it, the last to do so for the first time at the end.
    takers: Vec<Taker>,
    /// The two values that threads have taken it with, where one of them has used both.
    levels: Option<(u64, u64)>,
    /// The instructions that did.
    varied: Vec<Frame>,
    /// A thread has stored to it while another one had it.
    contended: bool,
    /// How often it was taken and put back.
    uses: u32,
    /// The instruction that put it back last.
    released_at: Option<Frame>,
    broken: bool,
}

/// A thread that took a word.
struct Taker {
    thread: u32,
    /// What it stored, and the instruction.
    value: u64,
    at: Frame,
}

/// An instruction that puts words back.
struct Release {
    /// How often it put one back that was known to be free with the value.
    times: u32,
    free: u64,
    /// Instructions that have taken such words with different values.
    varied: Vec<Frame>,
    /// It also does something else.
    broken: bool,
}

pub(crate) struct Locks {
    /// Locks of the C library.
    objects: RangeSet,
    lines: FxHashMap<LineAddress, Vec<Word>>,
    words: usize,
    /// Bit n: a line with this hash has a word.
    filter: [u64; (FILTER / 64) as usize],
    code: Code,
}

/// What is known of the instructions that use words.
#[derive(Default)]
struct Code {
    acquires: FxHashSet<Frame>,
    releases: FxHashMap<Frame, Release>,
    /// Those that store to a word while another thread has it.
    waits: FxHashSet<Frame>,
}

impl Default for Locks {
    fn default() -> Self {
        Locks {
            objects: RangeSet::default(),
            lines: FxHashMap::default(),
            words: 0,
            filter: [0; (FILTER / 64) as usize],
            code: Code::default(),
        }
    }
}

/// A store, as far as locks are concerned.
struct Change {
    thread: u32,
    flags: StoreFlags,
    at: Option<Frame>,
}

impl Locks {
    #[inline]
    pub(crate) fn store(
        &mut self,
        thread: u32,
        stack: StackId,
        at: PmAddress,
        data: &[u8],
        flags: StoreFlags,
        tables: &Tables,
    ) {
        if !self.objects.is_empty() {
            self.store_to_objects(stack, at, data.len() as u64, tables);
        }
        if self.words > 0 || flags.exchange {
            self.follow(thread, stack, at, data, flags, tables);
        }
    }

    fn follow(&mut self, thread: u32, stack: StackId, at: PmAddress, data: &[u8], flags: StoreFlags, tables: &Tables) {
        for piece in pieces(at.offset, data.len() as u64, LINE) {
            let line = LineAddress {
                file: at.file.0,
                line: piece.line,
            };
            if !flags.exchange && !self.may_have(line) {
                continue;
            }
            let change = Change {
                thread,
                flags,
                at: tables.frames(stack).first().copied(),
            };
            // The store's bytes as the line has them: byte n of the line is byte n - base of the data.
            let base = (piece.line * LINE).wrapping_sub(at.offset);
            let byte = |n: u64| data[n.wrapping_add(base) as usize];
            let mut known = false;
            for word in self.lines.get_mut(&line).into_iter().flatten() {
                known |= word.bytes == piece.bytes;
                let overwritten = word.bytes.intersection(piece.bytes);
                if overwritten.is_empty() {
                    continue;
                }
                let mut value = word.value;
                for n in (word.bytes.first()..LINE).filter(|n| overwritten.0 & 1 << n != 0) {
                    let shift = 8 * (n - word.bytes.first());
                    value = value & !(0xff << shift) | u64::from(byte(n)) << shift;
                }
                word.change(value, &change, &mut self.code);
            }
            let is_word = flags.exchange && data.len() <= 8 && piece.bytes.span() == data.len() as u64;
            if let (true, false, Some(taken_at)) = (is_word, known, change.at)
                && self.words < MAX_WORDS
            {
                let mut value = [0; 8];
                value[..data.len()].copy_from_slice(data);
                let value = u64::from_le_bytes(value);
                self.words += 1;
                let bit = hash(line);
                self.filter[(bit / 64) as usize] |= 1 << (bit % 64);
                self.code.acquires.insert(taken_at);
                let taker = Taker {
                    thread,
                    value,
                    at: taken_at,
                };
                self.lines.entry(line).or_default().push(Word {
                    bytes: piece.bytes,
                    value,
                    free: None,
                    holder: Some(thread),
                    takers: vec![taker],
                    levels: None,
                    varied: Vec::new(),
                    contended: false,
                    uses: 0,
                    released_at: None,
                    broken: false,
                });
            }
        }
    }

    /// A function of the C library that works on locks is called for the object.
    pub(crate) fn object(&mut self, at: PmAddress, len: u64) {
        self.objects.insert(at.file.0, at.offset, at.offset.saturating_add(len));
    }

    /// Nobody has the range mapped any more.
    pub(crate) fn unmapped(&mut self, file: u32, start: u64, end: u64) {
        self.objects.remove(file, start, end);
    }

    /// Those of the bytes that are of locks of the C library.
    pub(crate) fn of_objects(&self, line: LineAddress, bytes: Bytes) -> Bytes {
        if self.objects.is_empty() {
            return Bytes::default();
        }
        let start = line.line * LINE;
        let parts = self.objects.within(line.file, start, start.saturating_add(LINE));
        let objects = parts.map(|(from, to)| Bytes::range(from - start, to - from));
        objects.fold(Bytes::default(), Bytes::union).intersection(bytes)
    }

    fn store_to_objects(&mut self, stack: StackId, at: PmAddress, len: u64, tables: &Tables) {
        let (file, end) = (at.file.0, at.offset.saturating_add(len));
        if self.objects.touches(file, at.offset, end) {
            let innermost = tables.frames(stack).first();
            if !innermost.is_some_and(|frame| is_in_c_runtime(frame, tables)) {
                self.objects.remove(file, at.offset, end);
            }
        }
    }

    fn may_have(&self, line: LineAddress) -> bool {
        let bit = hash(line);
        self.filter[(bit / 64) as usize] & 1 << (bit % 64) != 0
    }

    /// What the bytes of the line are used for that a store at `stack` has stored last.
    pub(crate) fn use_of(&self, line: LineAddress, bytes: Bytes, stack: StackId, tables: &Tables) -> Use {
        if !bytes.is_empty() && self.of_objects(line, bytes) == bytes {
            return Use::Object;
        }
        if self.words == 0 {
            return Use::Other;
        }
        let words = self.lines.get(&line).map_or(&[][..], Vec::as_slice);
        let of_release = |at: Option<&Frame>, free: Option<u64>| {
            let release = at.and_then(|at| self.code.releases.get(at));
            release.is_some_and(|release| {
                !release.broken
                    && self.code.explains(&release.varied)
                    && release.times >= ENOUGH
                    && free.is_none_or(|free| free == release.free)
            })
        };
        let Some(word) = words.iter().find(|word| word.bytes.contains(bytes)) else {
            // It may be one that is not followed, because there are too many.
            let full = self.words == MAX_WORDS && words.is_empty();
            let is_lock = full && of_release(tables.frames(stack).first(), None);
            return if is_lock { Use::Lock } else { Use::Other };
        };
        let used = word.uses >= ENOUGH || word.uses > 0 && of_release(word.released_at.as_ref(), word.free);
        match word.holder {
            _ if word.broken || !word.contended && !self.code.explains(&word.varied) => Use::Other,
            _ if !used => Use::Perhaps,
            None => Use::Lock,
            Some(_) => Use::HeldLock,
        }
    }

    /// The threads that `is_gone` selects are gone: nobody has what they held.
    pub(crate) fn end(&mut self, is_gone: impl Fn(u32) -> bool) {
        let words = self.lines.values_mut().flatten();
        for word in words.filter(|word| word.holder.is_some_and(&is_gone)) {
            word.holder = None;
        }
    }
}

fn hash(line: LineAddress) -> u64 {
    (line.line ^ u64::from(line.file)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - FILTER.trailing_zeros())
}

impl Code {
    /// Whether that these take a word with different values is no reason to take them for data: one of them also waits for locks.
    fn explains(&self, varied: &[Frame]) -> bool {
        varied.is_empty() || varied.iter().any(|at| self.waits.contains(at))
    }
}

impl Word {
    fn change(&mut self, value: u64, change: &Change, code: &mut Code) {
        let old = std::mem::replace(&mut self.value, value);
        let Change { thread, flags, at } = *change;
        if self.broken || value == old {
            return;
        }
        let is_free = self.free == Some(value);
        let fits = match self.holder {
            // Another one waits for it: the word says so.
            Some(holder) if holder != thread => {
                self.contended = true;
                code.waits.extend(at.filter(|_| flags.exchange));
                flags.locked && !is_free
            }
            // A mutex that others wait for is put back by degrees.
            Some(_) if !is_free && self.free.is_some() => flags.locked && !flags.exchange,
            Some(_) => match at {
                Some(at) if !code.acquires.contains(&at) => {
                    self.put_back(value, at, &mut code.releases);
                    true
                }
                _ => false,
            },
            None if is_free => true,
            None => match at {
                Some(at) if flags.exchange && !code.releases.contains_key(&at) => {
                    code.acquires.insert(at);
                    self.take(Taker { thread, value, at })
                }
                _ => false,
            },
        };
        if !fits {
            self.broken = true;
            if let Some(release) = self.released_at.and_then(|at| code.releases.get_mut(&at)) {
                release.broken = true;
            }
        }
    }

    /// Whether what it is taken with may be a lock's.
    fn take(&mut self, taker: Taker) -> bool {
        self.holder = Some(taker.thread);
        let known = self.takers.iter_mut().rev().find(|known| known.thread == taker.thread);
        let Some(known) = known else {
            if self.takers.len() == MAX_TAKERS {
                self.takers.remove(0);
            }
            self.takers.push(taker);
            return true;
        };
        let before = std::mem::replace(known, taker);
        if before.value == known.value {
            return true;
        }
        let levels = (before.value.min(known.value), before.value.max(known.value));
        for at in [before.at, known.at] {
            if !self.varied.contains(&at) {
                self.varied.push(at);
            }
        }
        levels.1 <= LEVELS && *self.levels.get_or_insert(levels) == levels
    }

    fn put_back(&mut self, value: u64, at: Frame, releases: &mut FxHashMap<Frame, Release>) {
        let known = self.free.is_some();
        self.free = Some(value);
        self.holder = None;
        self.uses = self.uses.saturating_add(1);
        self.released_at = Some(at);
        let release = releases.entry(at).or_insert(Release {
            times: 0,
            free: value,
            varied: Vec::new(),
            broken: false,
        });
        release.times = release.times.saturating_add(u32::from(known));
        release.broken |= release.free != value;
        for &at in self.varied.iter().filter(|_| !self.contended) {
            if !release.varied.contains(&at) {
                release.varied.push(at);
            }
        }
    }
}

/// How the functions of the C library begin that work on locks; what the library puts before the names of its own is left out.
const LOCK_FUNCTIONS: [&str; 9] = [
    "pthread_mutex_",
    "pthread_rwlock_",
    "pthread_spin_",
    "pthread_cond_",
    "pthread_barrier_",
    "sem_",
    "mtx_",
    "cnd_",
    "lll_",
];

/// Which stores are made by functions of the C library that work on locks, by their names: in traces that do not have the calls.
#[derive(Default)]
pub(crate) struct LockFunctions {
    known: FxHashMap<StackId, bool>,
}

impl LockFunctions {
    pub(crate) fn made(&mut self, stack: StackId, stacks: &mut Stacks, tables: &Tables) -> bool {
        *self.known.entry(stack).or_insert_with(|| {
            let frames = tables.frames(stack).iter().enumerate();
            frames
                .take_while(|(_, frame)| is_in_c_runtime(frame, tables))
                .any(|(depth, &frame)| {
                    let names = stacks.symbols(frame, depth > 0, tables);
                    let mut names = names.iter().filter_map(|symbol| symbol.function.as_deref());
                    names.any(is_lock_function)
                })
        })
    }
}

fn is_in_c_runtime(frame: &Frame, tables: &Tables) -> bool {
    let module = frame.module.and_then(|id| tables.module(id));
    module.is_some_and(|module| is_language_runtime(file_name(&module.path)))
}

pub(crate) fn is_lock_function(name: &str) -> bool {
    let name = name.strip_prefix("__GI_").unwrap_or(name).trim_start_matches('_');
    LOCK_FUNCTIONS.iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_lock_functions() {
        for name in [
            "pthread_mutex_lock",
            "__GI___pthread_mutex_unlock_usercnt",
            "___pthread_cond_wait",
            "__lll_lock_wait",
        ] {
            assert!(is_lock_function(name), "{name}");
        }
        for name in ["memcpy", "__memcpy_avx_unaligned", "semctl", "pthread_create"] {
            assert!(!is_lock_function(name), "{name}");
        }
    }
}
