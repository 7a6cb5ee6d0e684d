//! What single parts of the runtime cost: performing an instruction, sweeping a library, unwinding a stack.

use std::arch::asm;
use std::ffi::CString;
use std::hint::black_box;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crashproof_code::modules::Loader;
use crashproof_code::sweep::{SweepOptions, sweep_module};
use crashproof_code::unwind::{Cache, Registers, Unwinder, stack_hash};
use crashproof_instruction::{Context, Step, decode, init, step};

const ROUNDS: u32 = 1_000_000;

pub(crate) fn measure(root: &Path, folder: &Path) {
    println!("performing an instruction (nanoseconds)");
    instructions();
    println!("\nsweeping a library (fastest of 20)");
    sweeps();
    println!("\nunwinding a stack");
    for flags in [
        &["-O2"][..],
        &["-O2", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables"],
    ] {
        unwinding(root, folder, flags);
    }
}

#[repr(align(64))]
struct Area([u8; 4096]);

fn instructions() {
    use iced_x86::code_asm::*;
    init();
    // A valid XSAVE area: its magic number, the components that it holds, and the control words.
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
        let mut assembler = CodeAssembler::new(64).expect("64 bits");
        build(&mut assembler).expect("a valid instruction");
        let mut code = assembler.assemble(0x1000).expect("it can be encoded");
        code.resize(15, 0x90);
        let start = processor_time();
        for _ in 0..ROUNDS {
            context.set_general(3, base);
            context.set_rip(0x1000);
            if name.starts_with("step") {
                assert!(matches!(step(&code, &mut context), Step::Done));
            } else {
                let plan = decode(&code, 0x1000).expect("it stores");
                black_box(plan.writes(&context));
                // SAFETY: writes into `memory`.
                unsafe { plan.perform(&mut context, 0) }.expect("the memory is there");
            }
        }
        println!("{name:<34}{:>9.1}", (processor_time() - start) / f64::from(ROUNDS));
    }
}

/// Nanoseconds that this thread ran: other work on the machine does not count.
fn processor_time() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: fills in the time.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// Loads a library, which stays.
fn load(path: &Path) -> *mut libc::c_void {
    let name = CString::new(path.to_str().expect("a plain path")).expect("no zero byte in it");
    // SAFETY: a library of the bench or of the system.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY) };
    assert!(!handle.is_null(), "cannot load {}", path.display());
    handle
}

fn sweeps() {
    for name in ["libpmem.so.1", "libpmemobj.so.1", "libc.so.6", "libstdc++.so.6"] {
        load(Path::new(name));
        let modules = Loader::find().expect("a dynamic program").modules(&[]);
        let of_name = |path: &Path| {
            path.file_name()
                .is_some_and(|file| file.to_string_lossy().starts_with(name))
        };
        let module = modules
            .iter()
            .find(|module| module.path.as_deref().is_some_and(of_name));
        let module = module.expect("it was loaded");
        for locked in [false, true] {
            let options = SweepOptions {
                locked,
                ..SweepOptions::default()
            };
            let took = |_| {
                let start = Instant::now();
                // SAFETY: loaded, and never unloaded.
                let sweep = unsafe { sweep_module(module, &options) };
                (start.elapsed(), sweep.sites.len())
            };
            let (time, sites) = (0..20).map(took).min().expect("20 of them");
            let locked = if locked { ", locked too" } else { "" };
            println!("{:<34}{:>9} sites{time:>12.1?}", format!("{name}{locked}"), sites);
        }
    }
}

extern "C" fn unwind_here() {
    let (rip, rsp, rbp): (u64, u64, u64);
    // SAFETY: reads registers.
    unsafe { asm!("lea {}, [rip]", "mov {}, rsp", "mov {}, rbp", out(reg) rip, out(reg) rsp, out(reg) rbp) };
    let registers = Registers::new(rip, rsp, rbp);
    let modules = Loader::find().expect("a dynamic program").modules(&[]);
    // SAFETY: nothing is unloaded.
    let unwinder = unsafe { Unwinder::new(&modules, &[]) };
    let mut cache = Box::new(Cache::new());
    let mut frames = [0; 16];
    let start = Instant::now();
    let count = unwinder.unwind(&mut cache, &registers, 0, &mut frames);
    let first = start.elapsed();
    let cached = shortest(|| {
        black_box(unwinder.unwind(&mut cache, black_box(&registers), 0, black_box(&mut frames)));
    });
    let hash = shortest(|| {
        black_box(stack_hash(black_box(&frames[..count])));
    });
    println!("  {count} frames: {first:?}, from the cache {cached:?}, their hash {hash:?}");
}

/// The shortest of several measurements: what the code takes when nobody else wants the processor.
fn shortest(mut work: impl FnMut()) -> Duration {
    const EACH: u32 = 1000;
    let measure = |_| {
        let start = Instant::now();
        (0..EACH).for_each(|_| work());
        start.elapsed() / EACH
    };
    (0..200).map(measure).min().expect("200 of them")
}

fn unwinding(root: &Path, folder: &Path, flags: &[&str]) {
    println!("{}", flags.join(" "));
    let library = folder.join(format!("calls{}.so", flags.len()));
    let built = Command::new("gcc")
        .args(["-shared", "-fPIC", "-g", "-o"])
        .arg(&library)
        .args(flags)
        .arg(root.join("crates/code/tests/c/calls.c"))
        .status();
    assert!(built.is_ok_and(|status| status.success()), "gcc failed");
    // SAFETY: the library is loaded; `enter` calls what it is given after so many calls of its own.
    unsafe {
        let enter = libc::dlsym(load(&library), c"enter".as_ptr());
        assert!(!enter.is_null(), "calls.c has `enter`");
        let enter = std::mem::transmute::<*mut libc::c_void, extern "C" fn(extern "C" fn(), i32) -> i32>(enter);
        for depth in [0, 10] {
            black_box(enter(unwind_here, depth));
        }
    }
}
