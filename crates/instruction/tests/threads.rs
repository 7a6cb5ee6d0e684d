//! Several threads at once, copies beyond what the pool keeps, and instructions at a breakpoint.

use crashproof_instruction::{Context, decode, flush_address, init, run_in_place};
use iced_x86::code_asm::*;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

const RIP: u64 = 0x40_0000;
const RAX: usize = 0;
const RBX: usize = 3;

fn assemble(build: impl FnOnce(&mut CodeAssembler) -> Result<(), iced_x86::IcedError>) -> Vec<u8> {
    let mut assembler = CodeAssembler::new(64).unwrap();
    build(&mut assembler).unwrap();
    assembler.assemble(RIP).unwrap()
}

/// Calls with a context that has only general registers.
fn with_context<T>(use_it: impl FnOnce(&mut Context) -> T) -> T {
    // SAFETY: all zero is a context without an XSAVE area.
    let mut uc: libc::ucontext_t = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    use_it(&mut unsafe { Context::new(&mut uc) })
}

#[test]
fn locked_instructions_are_atomic() {
    const THREADS: u64 = 4;
    const ROUNDS: u64 = 20_000;
    init();
    let counter = AtomicU64::new(0);
    let code = assemble(|a| a.lock().xadd(qword_ptr(rbx + 64), rax));
    let sum: u64 = std::thread::scope(|scope| {
        let add = || {
            with_context(|context| {
                let mut sum = 0u64;
                for _ in 0..ROUNDS {
                    // The program's address is 4096 below the real one.
                    context.set_general(RBX, counter.as_ptr() as u64 - 64 - 4096);
                    context.set_general(RAX, 3);
                    context.set_rip(RIP);
                    let plan = decode(&code, RIP).unwrap();
                    assert!(plan.locked() && !plan.nontemporal());
                    // SAFETY: writes the counter.
                    assert!(unsafe { plan.perform(context, 4096) }.unwrap().wrote());
                    assert_eq!(context.rip(), RIP + code.len() as u64);
                    sum += context.general(RAX);
                }
                sum
            })
        };
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(add)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    let count = THREADS * ROUNDS;
    assert_eq!(counter.into_inner(), 3 * count);
    // Every value was seen by exactly one.
    assert_eq!(sum, 3 * (count * (count - 1) / 2));
}

#[test]
fn more_copies_than_the_pool_keeps() {
    const THREADS: u32 = 4;
    const DISTINCT: u32 = 10_000;
    init();
    let total = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let total = &total;
            scope.spawn(move || {
                with_context(|context| {
                    for immediate in 0..DISTINCT {
                        // Threads share some of the copies and differ in others.
                        let value = 1000 + immediate + if immediate % 2 == 0 { 0 } else { thread * DISTINCT };
                        let code = assemble(|a| a.lock().add(dword_ptr(rbx), value));
                        context.set_general(RBX, total.as_ptr() as u64);
                        context.set_rip(RIP);
                        // SAFETY: writes the total.
                        unsafe { decode(&code, RIP).unwrap().perform(context, 0) }.unwrap();
                    }
                })
            });
        }
    });
    let expected = (0..THREADS).fold(0u32, |sum, thread| {
        (0..DISTINCT).fold(sum, |sum, immediate| {
            sum.wrapping_add(1000 + immediate + if immediate % 2 == 0 { 0 } else { thread * DISTINCT })
        })
    });
    assert_eq!(total.into_inner(), expected);
}

#[test]
fn at_a_breakpoint() {
    init();
    let word = AtomicU64::new(7);
    with_context(|context| {
        let code = assemble(|a| a.lock().cmpxchg(qword_ptr(rbx), rcx));
        context.set_general(RBX, word.as_ptr() as u64);
        context.set_general(1, 9);
        context.set_general(RAX, 7);
        // Behind the int3.
        context.set_rip(RIP + 1);
        // SAFETY: writes the word.
        assert!(unsafe { run_in_place(&code, RIP, context) }.unwrap().unwrap().wrote());
        assert_eq!(
            (word.load(Ordering::Relaxed), context.rip()),
            (9, RIP + code.len() as u64)
        );
        assert_ne!(context.flags() & 0x40, 0);
        // SAFETY: as above.
        assert!(!unsafe { run_in_place(&code, RIP, context) }.unwrap().unwrap().wrote());
        assert_eq!(context.general(RAX), 9);

        context.set_general(RBX, 0x1000);
        context.set_general(1, 0x10);
        for code in [
            assemble(|a| a.clwb(byte_ptr(rbx + rcx * 4 + 5))),
            assemble(|a| a.clflushopt(byte_ptr(rbx + rcx * 4 + 5))),
            assemble(|a| a.clflush(byte_ptr(rbx + rcx * 4 + 5))),
        ] {
            assert_eq!(flush_address(&code, RIP, context), Some(0x1045));
        }
        assert_eq!(flush_address(&assemble(|a| a.sfence()), RIP, context), None);
        assert_eq!(
            flush_address(&assemble(|a| a.mov(rax, qword_ptr(rbx))), RIP, context),
            None
        );
        let relative = assemble(|a| a.clwb(byte_ptr(RIP + 0x100)));
        assert_eq!(flush_address(&relative, RIP, context), Some(RIP + 0x100));
    });
}
