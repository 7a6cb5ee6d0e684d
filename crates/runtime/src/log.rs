//! What the runtime says to the recorder: one function per record, and the call stack that goes with it.
//!
//! Everything here runs with all signals blocked (in a handler, or under `signals::block_all`), allocates nothing and
//! takes no lock of libc's.

use crate::ahead::Prospects;
use crate::code_map::{self, Registers};
use crate::{calls, hooks, labels, raw, sys, threads};
use crashproof_wire::{self as wire, Session, record::*};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

static SESSION: AtomicPtr<Session> = AtomicPtr::new(std::ptr::null_mut());
/// The same in a process that is not recorded.
static UNRECORDED: AtomicPtr<Session> = AtomicPtr::new(std::ptr::null_mut());
static PROCESS: AtomicU32 = AtomicU32::new(NONE);
/// Stacks that this address space has announced: a set of hashes, open addressing, never emptied.
static ANNOUNCED: AtomicPtr<AtomicU64> = AtomicPtr::new(std::ptr::null_mut());
const ANNOUNCED_SLOTS: usize = 1 << 20;
const MAX_FRAMES: usize = 96;

/// What each thread keeps for logging; made at its first event.
pub(crate) struct Logger {
    pub thread: u32,
    pub os_id: u32,
    process: u32,
    unwind_cache: code_map::Cache,
    stack: StackRange,
    frames: [u64; MAX_FRAMES],
    pub hooks: hooks::Memory,
    /// Whether the thread has flushed, or stored past the cache, since it last fenced.
    pending: bool,
    /// Whether running ahead pays, for the handler.
    pub prospects: Prospects,
}

/// Where the thread's stack lies, so that unwinding need not ask the kernel for every word.
#[derive(Default)]
struct StackRange {
    low: u64,
    high: u64,
    lookups: u32,
}

impl StackRange {
    /// A program that switches between many stacks of its own is not looked up for ever.
    const MOST_LOOKUPS: u32 = 64;

    /// [rsp, limit) is readable; 0 if nothing is known.
    fn limit(&mut self, rsp: u64) -> u64 {
        if (self.low..self.high).contains(&rsp) {
            return self.high;
        }
        if self.lookups == Self::MOST_LOOKUPS {
            return 0;
        }
        self.lookups += 1;
        match sys::mapping_around(rsp) {
            Some((low, high)) => {
                // The first thread's stack grows downwards, into a gap that nothing else is mapped in.
                const GAP: u64 = 64 << 20;
                let grows = rsp >> 40 == 0x7f && high > 0x7ff0_0000_0000;
                (self.low, self.high) = (if grows { low.saturating_sub(GAP) } else { low }, high);
                high
            }
            None => 0,
        }
    }
}

pub(crate) fn session() -> Option<&'static Session> {
    // SAFETY: set once to a mapping of that size which is never unmapped.
    unsafe { SESSION.load(Ordering::Acquire).as_ref() }
}

/// The session of a process that is not recorded, which only says what the trace will not hold.
pub(crate) fn unrecorded() -> Option<&'static Session> {
    // SAFETY: as above.
    unsafe { UNRECORDED.load(Ordering::Acquire).as_ref() }
}

fn session_at(path: &[u8]) -> Option<*mut Session> {
    let session = sys::map_file(path, size_of::<Session>() as u64)?.cast::<Session>();
    // SAFETY: a mapping of that size which is never unmapped.
    let fits = unsafe { (*session).magic == wire::MAGIC && (*session).version == wire::VERSION };
    fits.then_some(session)
}

/// Opens the session in a process that is not to be recorded.
pub(crate) fn open_unrecorded(path: &[u8]) {
    if let Some(session) = session_at(path) {
        UNRECORDED.store(session, Ordering::Release);
    }
}

/// Opens the session that the recorder prepared. False: there is none, the program runs as without us.
pub(crate) fn open(path: &[u8]) -> bool {
    let Some(session) = session_at(path) else {
        return false;
    };
    let Some(set) = sys::map_anonymous((ANNOUNCED_SLOTS * 8) as u64) else {
        return false;
    };
    ANNOUNCED.store(set.cast(), Ordering::Release);
    SESSION.store(session, Ordering::Release);
    true
}

/// Makes this process known: at start, after exec, and in a forked child (whose parent is the process it was).
pub(crate) fn start_process(executable: &[u8], address_space: u32) {
    let Some(session) = session() else { return };
    let pid = sys::getpid();
    let mut parent = PROCESS.load(Ordering::Relaxed);
    let process = session.next_process.fetch_add(1, Ordering::Relaxed);
    // Of the threads that another process has.
    hooks::HOOKS.pending.store(0, Ordering::Relaxed);
    PROCESS.store(process, Ordering::Relaxed);
    let mine = session.processes.iter().find(|s| s.pid.load(Ordering::Acquire) == pid);
    if let Some(slot) = mine {
        // The pid is known: an exec replaced the program, and with it every mapping.
        parent = slot.process.swap(process, Ordering::AcqRel);
        publish(PROCESS_END, &[&parent.to_le_bytes()]);
        slot.state.store(1, Ordering::Release);
    } else {
        let free = session.processes.iter().find(|s| {
            s.pid
                .compare_exchange(0, pid, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
        });
        match free {
            Some(slot) => {
                slot.process.store(process, Ordering::Release);
                slot.state.store(1, Ordering::Release);
            }
            None => incomplete(INCOMPLETE_LIMIT, b"more processes than the recorder can follow"),
        }
    }
    let fields = Fields::<4200>::default()
        .u32(process)
        .u32(pid)
        .u32(parent)
        .u32(address_space)
        .bytes(executable);
    publish(PROCESS_START, &[fields.as_bytes()]);
}

/// The id of this process in the records.
pub(crate) fn process() -> u32 {
    PROCESS.load(Ordering::Relaxed)
}

pub(crate) fn end_process() {
    let Some(session) = session() else { return };
    publish(PROCESS_END, &[&PROCESS.load(Ordering::Relaxed).to_le_bytes()]);
    let pid = sys::getpid();
    if let Some(slot) = session.processes.iter().find(|s| s.pid.load(Ordering::Acquire) == pid) {
        slot.state.store(2, Ordering::Release);
    }
}

/// The calling thread's logger. A thread that is another process's now (fork), or has the state of one that ended, is
/// announced anew.
pub(crate) fn logger() -> &'static mut Logger {
    let state = threads::current();
    if state.user.is_null() {
        let memory = sys::map_anonymous(size_of::<Logger>() as u64).map(|m| m.cast::<Logger>());
        let Some(memory) = memory else {
            sys::fail(b"no memory for a thread's log")
        };
        // SAFETY: fresh memory of that size; only this thread uses it.
        unsafe {
            memory.write(Logger {
                thread: NONE,
                os_id: 0,
                process: NONE,
                unwind_cache: code_map::Cache::default(),
                stack: StackRange::default(),
                frames: [0; MAX_FRAMES],
                hooks: hooks::Memory::default(),
                pending: false,
                prospects: Prospects::default(),
            });
        }
        state.user = memory.cast();
    }
    // SAFETY: made above, or by an earlier call in this thread; handlers do not nest with all signals blocked.
    let logger = unsafe { &mut *state.user.cast::<Logger>() };
    let process = PROCESS.load(Ordering::Relaxed);
    if (logger.process != process || logger.os_id != state.os_id)
        && let Some(session) = session()
    {
        if logger.process == process {
            logger.set_pending(false);
        }
        logger.pending = false;
        logger.process = process;
        logger.os_id = state.os_id;
        logger.thread = session.next_thread.fetch_add(1, Ordering::Relaxed);
        let fields = Fields::<16>::default()
            .u32(logger.thread)
            .u32(process)
            .u32(logger.os_id);
        publish(THREAD_START, &[fields.as_bytes()]);
    }
    logger
}

/// Writes a record. Waits while the ring is full, unless the recorder is gone.
pub(crate) fn publish(kind: u8, parts: &[&[u8]]) {
    publish_at(kind, parts);
}

/// The same; the record's place in the order of all. `None`: nobody reads.
pub(crate) fn publish_at(kind: u8, parts: &[&[u8]]) -> Option<u64> {
    let session = session().or_else(unrecorded)?;
    let mut waits = 0u32;
    session.publish(kind, parts, || wait_for_room(session, &mut waits))
}

/// Bytes of data that fit a slot with their [`Access`].
pub(crate) const SLOT_DATA: usize = wire::SLOT_PAYLOAD - Access::SIZE;

/// As [`publish`], for a flush, a fence, or a store of at most [`SLOT_DATA`] bytes, which lie in `data`.
#[inline]
pub(crate) fn publish_access(
    session: &Session,
    logger: &mut Logger,
    kind: u8,
    access: &Access,
    data: [u64; SLOT_DATA / 8],
) {
    // SAFETY: both are three words without padding.
    let head = unsafe { std::mem::transmute::<Access, [u64; Access::SIZE / 8]>(*access) };
    let mut payload = [0u64; wire::SLOT_PAYLOAD / 8];
    payload[..head.len()].copy_from_slice(&head);
    payload[head.len()..].copy_from_slice(&data);
    let (length, head) = (Access::SIZE + access.length(), &mut logger.hooks.ring_head);
    session.publish_slot(kind, &payload, length, head, || {
        wait_for_room(session, &mut logger.hooks.waits)
    });
}

#[cold]
fn wait_for_room(session: &Session, waits: &mut u32) -> bool {
    *waits += 1;
    if waits.is_multiple_of(1000) && !sys::alive(session.recorder_pid) {
        session.closed.store(1, Ordering::Relaxed);
        return false;
    }
    sys::nap(100_000);
    true
}

impl Logger {
    /// Keeps account of what the next fence of the thread is for.
    #[inline]
    pub(crate) fn note(&mut self, kind: u8, flags: u8) {
        match kind {
            FLUSH => self.set_pending(true),
            STORE if flags & STORE_NONTEMPORAL != 0 => self.set_pending(true),
            STORE if flags & STORE_LOCKED != 0 => self.set_pending(false),
            FENCE => self.set_pending(false),
            _ => {}
        }
    }

    #[inline]
    fn set_pending(&mut self, pending: bool) {
        if self.pending != pending {
            self.pending = pending;
            let by = if pending { 1 } else { u32::MAX };
            hooks::HOOKS.pending.fetch_add(by, Ordering::Relaxed);
        }
    }

    pub(crate) fn has_pending(&self) -> bool {
        self.pending
    }

    /// The stack of a call, whose return address lies at `slot`: its hash, announced.
    #[inline]
    pub(crate) fn stack_of_call(&mut self, slot: *const u64, rbp: u64) -> u64 {
        // SAFETY: where the processor has put it.
        let pc = unsafe { *slot } - 1;
        let rsp = slot as u64 + 8;
        let registers = Registers::new(pc, rsp, rbp);
        match self.hooks.stacks.get(&registers) {
            Some(stack) => stack,
            None => self.unwind_call(&registers),
        }
    }

    #[cold]
    fn unwind_call(&mut self, registers: &Registers) -> u64 {
        let limit = self.stack.limit(registers.rsp());
        let evidence = self.hooks.stacks.evidence();
        let n = code_map::unwind_noting(&mut self.unwind_cache, registers, limit, &mut self.frames, evidence);
        let stack = announce(self.without_runtime(n));
        self.hooks.stacks.insert(registers, stack);
        stack
    }

    fn unwind(&mut self, registers: &Registers) -> &[u64] {
        let limit = self.stack.limit(registers.rsp());
        let n = code_map::unwind(&mut self.unwind_cache, registers, limit, &mut self.frames);
        self.without_runtime(n)
    }

    fn without_runtime(&mut self, n: usize) -> &[u64] {
        // The runtime's own functions, where they stand between the program and libc, are nobody's business. Those that call a
        // function of PMDK stand for it, unless it has a frame of its own.
        let mut kept = 0usize;
        for i in 0..n {
            let mut frame = self.frames[i];
            if code_map::is_runtime(frame) {
                let Some(inner) = kept.checked_sub(1).map(|inner| self.frames[inner]) else {
                    continue;
                };
                let Some(function) = calls::stands_for(frame).filter(|function| !function.contains(&inner)) else {
                    continue;
                };
                // As a return address: it belongs to the instruction before it.
                frame = function.start + 1;
            }
            self.frames[kept] = frame;
            kept += 1;
        }
        &self.frames[..kept]
    }
}

/// The stack of the interrupted code: its hash, announced.
pub(crate) fn stack_of(uc: &libc::ucontext_t) -> u64 {
    announce(logger().unwind(&Registers::from_context(uc)))
}

/// The stack of a system call, whose instruction lies behind rip already.
pub(crate) fn stack_of_syscall(uc: &libc::ucontext_t) -> u64 {
    const SYSCALL: u64 = 2;
    announce(logger().unwind(&Registers::from_context(uc).before(SYSCALL)))
}

/// The stack of the program's call into an interposed function: ours, less the runtime's own frames.
pub(crate) fn stack_here() -> u64 {
    if let Some(stack) = raw::stack() {
        return stack;
    }
    let registers = threads::left_at().unwrap_or_else(Registers::here);
    let frames = logger().unwind(&registers);
    // They start with a return address, and a stack starts with an instruction: the call that returns there.
    let mut own = [0u64; MAX_FRAMES];
    let own = &mut own[..frames.len()];
    own.copy_from_slice(frames);
    if let Some(address) = own.first_mut() {
        *address -= 1;
    }
    announce(own)
}

fn announce(frames: &[u64]) -> u64 {
    let address_space = code_map::address_space();
    let hash = code_map::stack_hash(frames) ^ (address_space as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let set = ANNOUNCED.load(Ordering::Acquire);
    if set.is_null() {
        return hash;
    }
    for probe in 0..16 {
        // SAFETY: the set has ANNOUNCED_SLOTS words.
        let slot = unsafe { &*set.add((hash as usize).wrapping_add(probe) % ANNOUNCED_SLOTS) };
        match slot.load(Ordering::Acquire) {
            known if known == hash => return hash,
            0 => {
                // Announced before it is marked: a thread that finds the mark may use the stack at once.
                announce_frames(address_space, hash, frames);
                slot.store(hash, Ordering::Release);
                return hash;
            }
            _ => {}
        }
    }
    announce_frames(address_space, hash, frames);
    hash
}

fn announce_frames(address_space: u32, hash: u64, frames: &[u64]) {
    let head = Fields::<12>::default().u32(address_space).u64(hash);
    // SAFETY: u64s as bytes; x86-64 is little-endian.
    let bytes = unsafe { std::slice::from_raw_parts(frames.as_ptr().cast::<u8>(), size_of_val(frames)) };
    publish(STACK, &[head.as_bytes(), bytes]);
}

pub(crate) fn store(stack: u64, place: Place, flags: u8, data: &[u8]) {
    let logger = logger();
    logger.note(STORE, flags);
    let access = Access::new(stack, place, logger.thread, flags, data.len());
    publish(STORE, &[access.as_bytes(), data]);
}

pub(crate) fn flush(stack: u64, place: Place, kind: u8) {
    let logger = logger();
    logger.note(FLUSH, kind);
    let access = Access::new(stack, place, logger.thread, kind, 0);
    publish(FLUSH, &[access.as_bytes()]);
}

pub(crate) fn fence(stack: u64, kind: u8) {
    let logger = logger();
    logger.note(FENCE, kind);
    let access = Access::new(stack, Place::NONE, logger.thread, kind, 0);
    publish(FENCE, &[access.as_bytes()]);
}

pub(crate) fn file(file: u32, size: u64, dev: u64, ino: u64, flags: u32, path: &[u8]) {
    publish(
        FILE,
        &[Fields::<4200>::default()
            .u32(file)
            .u64(size)
            .u64(dev)
            .u64(ino)
            .u32(flags)
            .bytes(path)
            .as_bytes()],
    );
}

pub(crate) fn initial(file: u32, offset: u64, data: &[u8]) {
    publish(
        INITIAL,
        &[Fields::<12>::default().u32(file).u64(offset).as_bytes(), data],
    );
}

pub(crate) fn verify(file: u32, offset: u64, data: &[u8]) {
    publish(
        VERIFY,
        &[Fields::<12>::default().u32(file).u64(offset).as_bytes(), data],
    );
}

/// How every record about a file begins.
fn about<const N: usize>(stack: u64, file: u32) -> Fields<N> {
    Fields::default().u32(logger().thread).u64(stack).u32(file)
}

pub(crate) fn map(stack: u64, file: u32, address: u64, offset: u64, len: u64, protection: i32) {
    let fields = about::<48>(stack, file).u64(address).u64(offset).u64(len);
    publish(MAP, &[fields.u32(protection as u32).as_bytes()]);
}

pub(crate) fn unmap(stack: u64, file: u32, offset: u64, len: u64) {
    publish(UNMAP, &[about::<32>(stack, file).u64(offset).u64(len).as_bytes()]);
}

/// Where an operation began, for the records of what it did.
#[derive(Clone, Copy)]
pub(crate) struct Begun(u64);

impl Begun {
    /// Nobody noted it.
    pub(crate) const NOT: Begun = Begun(NOT_BEGUN);
}

/// A sync or an operation on a PM file begins.
pub(crate) fn begin() -> Begun {
    let position = publish_at(BEGIN, &[&logger().thread.to_le_bytes()]);
    position.map_or(Begun::NOT, Begun)
}

pub(crate) fn resize(stack: u64, begun: Begun, file: u32, size: u64) {
    publish(RESIZE, &[about::<32>(stack, file).u64(begun.0).u64(size).as_bytes()]);
}

/// Cut into pieces that fit a record.
pub(crate) fn file_write(stack: u64, begun: Begun, file: u32, offset: u64, data: &[u8]) {
    for (i, piece) in data.chunks(4096).enumerate() {
        let head = about::<32>(stack, file).u64(begun.0).u64(offset + i as u64 * 4096);
        publish(FILE_WRITE, &[head.as_bytes(), piece]);
    }
}

/// An empty path: unlinked.
pub(crate) fn rename(stack: u64, begun: Begun, file: u32, path: &[u8]) {
    publish(
        RENAME,
        &[about::<4200>(stack, file).u64(begun.0).bytes(path).as_bytes()],
    );
}

pub(crate) fn sync(stack: u64, begun: Begun, file: u32, offset: u64, len: u64) {
    let fields = about::<40>(stack, file).u64(begun.0);
    publish(SYNC, &[fields.u64(offset).u64(len).as_bytes()]);
}

pub(crate) fn output(fd: u32, data: &[u8]) {
    // An operation of a driver ends with its line.
    if fd == 1 && data.contains(&b'\n') {
        labels::line_written();
    }
    let thread = logger().thread;
    for piece in data.chunks(4096) {
        publish(OUTPUT, &[Fields::<8>::default().u32(thread).u32(fd).as_bytes(), piece]);
    }
}

pub(crate) fn call(stack: u64, name: &[u8], arguments: &[u64; 6]) {
    let head = Fields::<12>::default().u32(logger().thread).u64(stack);
    let fields = arguments
        .iter()
        .fold(Fields::<128>::default(), |f, &a| f.u64(a))
        .bytes(name);
    publish(CALL, &[head.as_bytes(), fields.as_bytes()]);
}

/// The object: its pool, its offset and its usable size.
pub(crate) fn returned(stack: u64, name: &[u8], arguments: &[u64; 6], result: u64, object: Option<[u64; 3]>) {
    let head = Fields::<12>::default().u32(logger().thread).u64(stack);
    let fields = arguments.iter().fold(Fields::<160>::default(), |f, &a| f.u64(a));
    let fields = fields.u64(result).u32(object.is_some().into());
    let fields = object.unwrap_or_default().iter().fold(fields, |f, &word| f.u64(word));
    publish(RETURN, &[head.as_bytes(), fields.bytes(name).as_bytes()]);
}

/// `name` is cut to what fits.
pub(crate) fn annotation(stack: u64, annotation: u32, words: &[u64; 4], name: &[u8]) {
    match annotation {
        ANNOTATION_OPERATION_BEGIN => labels::operation_begins(),
        ANNOTATION_OPERATION_END => labels::operation_ends(),
        _ => {}
    }
    let head = Fields::<16>::default().u32(logger().thread).u64(stack).u32(annotation);
    let fields = words
        .iter()
        .fold(Fields::<128>::default(), |f, &w| f.u64(w))
        .bytes(name);
    publish(ANNOTATION, &[head.as_bytes(), fields.as_bytes()]);
}

pub(crate) fn request(stack: u64, request: u32, argument: u64, range: Option<(u32, u64, u64)>) {
    let (file, offset, len) = range.unwrap_or((NONE, 0, 0));
    let fields = Fields::<48>::default()
        .u32(logger().thread)
        .u64(stack)
        .u32(request)
        .u64(argument);
    publish(REQUEST, &[fields.u32(file).u64(offset).u64(len).as_bytes()]);
}

pub(crate) fn module(address_space: u32, bias: u64, start: u64, end: u64, locked: u32, build_id: &[u8], path: &[u8]) {
    let fields = Fields::<4400>::default()
        .u32(address_space)
        .u64(bias)
        .u64(start)
        .u64(end)
        .u32(locked);
    publish(MODULE, &[fields.bytes(build_id).bytes(path).as_bytes()]);
}

/// Something that the trace will not hold. Said once per text.
pub(crate) fn incomplete(reason: u32, text: &[u8]) {
    static SAID: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];
    if is_new(&SAID, reason, text) != Some(false) {
        publish(
            INCOMPLETE,
            &[Fields::<1024>::default().u32(reason).bytes(text).as_bytes()],
        );
    }
}

/// The files that this process has left out, by [`hash`].
static FILES_LEFT_OUT: [AtomicU64; 256] = [const { AtomicU64::new(0) }; 256];

/// A file whose stores are not recorded. Said once, and of so many files only.
pub(crate) fn left_out(reason: u32, errno: i32, path: &[u8]) {
    if is_new(&FILES_LEFT_OUT, reason, path) == Some(true) {
        let fields = Fields::<4200>::default().u32(reason).u32(errno as u32).bytes(path);
        publish(LEFT_OUT, &[fields.as_bytes()]);
    }
}

/// Whether the process has left out the file of this path.
pub(crate) fn is_left_out(path: &[u8]) -> bool {
    (LEFT_OUT_SHARED_MEMORY..LEFT_OUT_OPEN_FAILED).any(|reason| {
        let wanted = hash(reason, path);
        FILES_LEFT_OUT.iter().any(|slot| slot.load(Ordering::Relaxed) == wanted)
    })
}

fn hash(reason: u32, text: &[u8]) -> u64 {
    let start = 0xcbf2_9ce4_8422_2325u64 ^ (reason as u64) << 32;
    text.iter()
        .fold(start, |h, &b| (h ^ b as u64).wrapping_mul(0x100_0000_01b3))
        | 1
}

/// Whether the text was not said before with this reason; `None`: nobody knows, because too much was said.
fn is_new(said: &[AtomicU64], reason: u32, text: &[u8]) -> Option<bool> {
    let hash = hash(reason, text);
    for slot in said {
        match slot.compare_exchange(0, hash, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return Some(true),
            Err(earlier) if earlier == hash => return Some(false),
            Err(_) => {}
        }
    }
    None
}
