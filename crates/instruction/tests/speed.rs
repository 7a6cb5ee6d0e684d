//! What it costs to perform an instruction. Run with `cargo test --release -- --ignored --nocapture`.

use crashproof_instruction::{Context, Step, decode, init, step};
use iced_x86::code_asm::*;

#[repr(align(64))]
struct Area([u8; 4096]);

#[test]
#[ignore = "a measurement"]
fn nanoseconds_per_instruction() {
    init();
    let mut area = Box::new(Area([0; 4096]));
    area.0[464..468].copy_from_slice(&0x4650_5853u32.to_le_bytes());
    area.0[472] = 7;
    area.0[512] = 7;
    area.0[24..28].copy_from_slice(&0x1f80u32.to_le_bytes());
    area.0[0..2].copy_from_slice(&0x37fu16.to_le_bytes());
    let mut memory = Box::new(Area([0; 4096]));
    // SAFETY: a context whose only pointer is set below.
    let mut uc: libc::ucontext_t = unsafe { std::mem::zeroed() };
    uc.uc_mcontext.fpregs = (&raw mut area.0).cast();
    // SAFETY: the area is a valid XSAVE area.
    let mut context = unsafe { Context::new(&mut uc) };
    let base = memory.0.as_mut_ptr() as u64;
    type Build = fn(&mut CodeAssembler) -> Result<(), iced_x86::IcedError>;
    let cases: [(&str, Build); 9] = [
        ("mov [rbx+8], rax", |a| a.mov(qword_ptr(rbx + 8), rax)),
        ("movups [rbx], xmm0", |a| a.movups(ptr(rbx), xmm0)),
        ("vmovdqu [rbx], ymm0", |a| a.vmovdqu(ptr(rbx), ymm0)),
        ("add [rbx], rax", |a| a.add(qword_ptr(rbx), rax)),
        ("lock xadd [rbx], rax", |a| a.lock().xadd(qword_ptr(rbx), rax)),
        ("fstp [rbx]", |a| a.fstp(qword_ptr(rbx))),
        ("step: mov rax, [rbx]", |a| a.mov(rax, qword_ptr(rbx))),
        ("step: add rcx, 8", |a| a.add(rcx, 8)),
        ("step: pxor xmm0, xmm1", |a| a.pxor(xmm0, xmm1)),
    ];
    for (name, build) in cases {
        let mut assembler = CodeAssembler::new(64).unwrap();
        build(&mut assembler).unwrap();
        let mut code = assembler.assemble(0x1000).unwrap();
        code.resize(15, 0x90);
        const ROUNDS: u32 = 1_000_000;
        let start = processor_time();
        for _ in 0..ROUNDS {
            context.set_general(3, base);
            context.set_rip(0x1000);
            if name.starts_with("step") {
                assert!(matches!(step(&code, &mut context), Step::Done));
            } else {
                let plan = decode(&code, 0x1000).unwrap();
                std::hint::black_box(plan.writes(&context));
                // SAFETY: writes into `memory`.
                unsafe { plan.perform(&mut context, 0) }.unwrap();
            }
        }
        println!("{name}: {:.1} ns", (processor_time() - start) / f64::from(ROUNDS));
    }
}

/// Nanoseconds that this thread ran: other work on the machine does not count.
fn processor_time() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: fills in the time.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}
