//! pmemcheck's client requests. Stock libpmem and libpmemobj carry them; answering makes PMDK announce its transactions,
//! the ranges they cover, and the run-time fields that it keeps in the pool and never flushes by design.
//!
//! A request is Valgrind's preamble with `rax` pointing at six words (the request and its arguments) and `rdx` holding the
//! default answer, which the result replaces. What pmemcheck needs because it cannot see some instructions (explicit
//! flushes and fences) is ignored here: the instructions themselves are seen.

use crate::{log, pm};
use crashproof_wire::record::*;
use libc::ucontext_t;

const RUNNING_ON_VALGRIND: u64 = 0x1001;
/// The tool's requests are numbered from here ('P', 'C').
const PMEMCHECK: u64 = (b'P' as u64) << 24 | (b'C' as u64) << 16;

pub fn answer(uc: &mut ucontext_t) {
    let registers = &uc.uc_mcontext.gregs;
    let arguments = registers[libc::REG_RAX as usize] as *const [u64; 6];
    // SAFETY: the preamble stands only where a client request does; rax points at its six words.
    let [request, a, b, c, ..] = unsafe { *arguments };
    let mut result = registers[libc::REG_RDX as usize] as u64;
    if request == RUNNING_ON_VALGRIND {
        result = 1;
    } else if let Some(number @ 0..32) = request.checked_sub(PMEMCHECK) {
        result = match number {
            0 => say(uc, REQUEST_PERSISTENT, 0, Some((a, b))),
            2 => say(uc, REQUEST_VOLATILE, 0, Some((a, b))),
            3 => 1 + !pm::contains(a, b.max(1)) as u64,
            17 => say(uc, REQUEST_SET_CLEAN, 0, Some((a, b))),
            18 => say(uc, REQUEST_TX_BEGIN, 0, None),
            19 => say(uc, REQUEST_TX_BEGIN, a, None),
            20 => say(uc, REQUEST_TX_END, 0, None),
            21 => say(uc, REQUEST_TX_END, a, None),
            22 => say(uc, REQUEST_TX_ADD, 0, Some((a, b))),
            23 => say(uc, REQUEST_TX_ADD, a, Some((b, c))),
            24 => say(uc, REQUEST_TX_REMOVE, 0, Some((a, b))),
            25 => say(uc, REQUEST_TX_REMOVE, a, Some((b, c))),
            28 => say(uc, REQUEST_TX_IGNORE, 0, Some((a, b))),
            _ => 0,
        };
    }
    uc.uc_mcontext.gregs[libc::REG_RDX as usize] = result as i64;
}

/// Logs a request; one about memory that is not PM says nothing. Success is 0.
fn say(uc: &ucontext_t, request: u32, transaction: u64, range: Option<(u64, u64)>) -> u64 {
    let stack = log::stack_of(uc);
    match range {
        None => log::request(stack, request, transaction, None),
        Some((mut from, len)) => {
            let end = from.saturating_add(len);
            while from < end {
                let Some(region) = pm::find(from) else { break };
                let to = region.end.min(end);
                let place = region.place(from);
                log::request(
                    stack,
                    request,
                    transaction,
                    Some((place_file(place), place_offset(place), to - from)),
                );
                from = to;
            }
        }
    }
    0
}
