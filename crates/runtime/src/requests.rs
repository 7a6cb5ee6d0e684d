//! pmemcheck's client requests. Stock libpmem and libpmemobj carry them; answering makes PMDK announce its transactions,
//! the ranges they cover, and the run-time fields that it keeps in the pool and never flushes by design.
//!
//! A request is Valgrind's preamble with `rax` pointing at six words (the request and its arguments) and `rdx` holding the
//! default answer, which the result replaces. Flushes and fences that a program only announces count for memory that it
//! registered ([`registered`]); for PM files they are ignored, because the instructions themselves are seen.
//! Registrations count also where the user has turned the other requests off. docs/annotations.md lists all requests.
//!
//! The annotations of `include/crashproof.h` are requests of the same form with numbers of their own. They are logged whatever memory they
//! speak of; which PM that is, an analysis sees from the mappings.

use crate::pm::{self, LINE};
use crate::{handler, log, registered};
use crashproof_wire::record::*;
use libc::ucontext_t;

const RUNNING_ON_VALGRIND: u64 = 0x1001;
/// The tool's requests are numbered from here ('P', 'C').
const PMEMCHECK: u64 = (b'P' as u64) << 24 | (b'C' as u64) << 16;

/// The requests of `crashproof.h` are numbered from here ('C', 'P').
const CRASHPROOF: u64 = (b'C' as u64) << 24 | (b'P' as u64) << 16;
/// Of an operation's name, more is cut.
const MAX_NAME: u64 = 48;

const REGISTER_MAPPING: u64 = PMEMCHECK;
const REMOVE_MAPPING: u64 = PMEMCHECK + 2;

pub(crate) fn answer(uc: &mut ucontext_t) {
    let registers = &uc.uc_mcontext.gregs;
    let arguments = registers[libc::REG_RAX as usize] as *const [u64; 6];
    // SAFETY: the preamble stands only where a client request does; rax points at its six words.
    let [request, a, b, c, d, _] = unsafe { *arguments };
    let mut result = registers[libc::REG_RDX as usize] as u64;
    let wanted = log::session().is_some_and(|session| session.options.client_requests != 0);
    match request {
        REGISTER_MAPPING => registered::register(uc, a, b),
        REMOVE_MAPPING => registered::unregister(log::stack_of(uc), a, b),
        _ => {}
    }
    if !wanted {
        // As without us.
    } else if request == RUNNING_ON_VALGRIND {
        result = 1;
    } else if let Some(number @ 0..64) = request.checked_sub(PMEMCHECK) {
        result = match number {
            0 => say(uc, REQUEST_PERSISTENT, 0, Some((a, b))),
            2 => say(uc, REQUEST_VOLATILE, 0, Some((a, b))),
            3 => in_pm(a, b),
            5 => flush(uc, a, b),
            6 => fence(uc),
            17 => say(uc, REQUEST_SET_CLEAN, 0, Some((a, b))),
            18 => say(uc, REQUEST_TX_BEGIN, 0, None),
            19 => say(uc, REQUEST_TX_BEGIN, a, None),
            20 => say(uc, REQUEST_TX_END, 0, None),
            21 => say(uc, REQUEST_TX_END, a, None),
            22 => say(uc, REQUEST_TX_ADD, 0, Some((a, b))),
            23 => say(uc, REQUEST_TX_ADD, a, Some((b, c))),
            24 => say(uc, REQUEST_TX_REMOVE, 0, Some((a, b))),
            25 => say(uc, REQUEST_TX_REMOVE, a, Some((b, c))),
            26 => say(uc, REQUEST_TX_JOIN, a, None),
            27 => say(uc, REQUEST_TX_LEAVE, a, None),
            28 => say(uc, REQUEST_TX_IGNORE, 0, Some((a, b))),
            // PMDebugger's `ORDER_GUARANTEE`.
            35 => expect(uc, ANNOTATION_EXPECT_ORDER, [a, b, c, d]),
            _ => 0,
        };
    } else if let Some(number @ 0..32) = request.checked_sub(CRASHPROOF) {
        result = annotation(uc, number, [a, b, c, d]);
    }
    uc.uc_mcontext.gregs[libc::REG_RDX as usize] = result as i64;
}

fn annotation(uc: &ucontext_t, number: u64, arguments: [u64; 4]) -> u64 {
    let [a, b, ..] = arguments;
    match number {
        // What was stored there so far, and what will be.
        0 => say(uc, REQUEST_SET_CLEAN, 0, Some((a, b))) | say(uc, REQUEST_VOLATILE, 0, Some((a, b))),
        1 => operation(uc, ANNOTATION_OPERATION_BEGIN, a, b),
        2 => operation(uc, ANNOTATION_OPERATION_END, a, b),
        3 => expect(uc, ANNOTATION_EXPECT_DURABLE, arguments),
        4 => expect(uc, ANNOTATION_EXPECT_ORDER, arguments),
        _ => 0,
    }
}

/// Logs where an operation begins or ends; `name` is the address of its name.
fn operation(uc: &ucontext_t, annotation: u32, name: u64, len: u64) -> u64 {
    let len = len.min(MAX_NAME) as usize;
    let name = match len {
        0 => &[],
        // SAFETY: the macros give a string literal and its length.
        _ => unsafe { std::slice::from_raw_parts(name as *const u8, len) },
    };
    log::annotation(log::stack_of(uc), annotation, &[0; 4], name);
    0
}

/// Logs what the program expects of its memory.
fn expect(uc: &ucontext_t, annotation: u32, words: [u64; 4]) -> u64 {
    log::annotation(log::stack_of(uc), annotation, &words, b"");
    0
}

/// Whether a range is PM: not at all (0), all of it (1), or some of it (2).
fn in_pm(from: u64, len: u64) -> u64 {
    let len = len.max(1);
    let mut covered = 0;
    each_region(from, len, |_, part| covered += part);
    match covered {
        0 => 0,
        all if all == len => 1,
        _ => 2,
    }
}

/// The request stands for a flush, where the memory is the program's own idea of PM. Of a file, only instructions flush.
fn flush(uc: &ucontext_t, from: u64, len: u64) -> u64 {
    let Some(session) = log::session() else { return 0 };
    let end = from.saturating_add(len);
    let mut line = from / LINE * LINE;
    while let Some(next) = pm::first_after(line).filter(|r| line < end && r.start < end) {
        line = line.max(next.start / LINE * LINE);
        if next.registered {
            handler::flush(session, line.max(next.start), FLUSH_CLWB, || log::stack_of(uc));
            line += LINE;
        } else {
            line = next.end;
        }
    }
    0
}

/// The same for a fence. One that nothing waits for stands beside a fence of the program's.
fn fence(uc: &ucontext_t) -> u64 {
    if registered::any() && log::logger().has_pending() {
        log::fence(log::stack_of(uc), FENCE_SFENCE);
    }
    0
}

/// Shows each part of a range that is PM: its place and its length.
fn each_region(mut from: u64, len: u64, mut show: impl FnMut(Place, u64)) {
    let end = from.saturating_add(len);
    while let Some(region) = pm::first_after(from).filter(|r| from < end && r.start < end) {
        from = from.max(region.start);
        let to = region.end.min(end);
        show(region.place(from), to - from);
        from = to;
    }
}

/// Logs a request; one about memory that is not PM says nothing. Success is 0.
fn say(uc: &ucontext_t, request: u32, transaction: u64, range: Option<(u64, u64)>) -> u64 {
    let stack = log::stack_of(uc);
    match range {
        None => log::request(stack, request, transaction, None),
        Some((from, len)) => each_region(from, len, |place, len| {
            let range = Some((place.file, place.offset, len));
            log::request(stack, request, transaction, range);
        }),
    }
    0
}
