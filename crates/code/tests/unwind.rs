//! Unwinds real stacks and compares with what glibc's `backtrace` sees, or, for code without unwind tables, with what is seen
//! in the same code built with them.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::arch::asm;
use std::cell::{Cell, RefCell};
use std::ffi::CStr;
use std::hint::black_box;
use std::path::Path;

use common::{Library, alone, build, modules};
use crashproof_code::unwind::{Cache, Registers, Unwinder};

/// Counts the allocations of each thread.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: the system's allocator does the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

type Callback = Option<extern "C" fn()>;

unsafe extern "C" {
    fn backtrace(buffer: *mut u64, size: i32) -> i32;
}

const MOST: usize = 256;

/// What a callback or a handler saw, and what it is to be compared with.
#[derive(Default)]
struct Seen {
    ours: Vec<u64>,
    theirs: Vec<u64>,
}

thread_local! {
    static UNWINDER: RefCell<Option<(Unwinder, Box<Cache>)>> = const { RefCell::new(None) };
    static SEEN: RefCell<Seen> = RefCell::default();
    /// Tell the unwinder nothing about the stack.
    static GUARDED: RefCell<bool> = const { RefCell::new(false) };
}

fn their_stack() -> Vec<u64> {
    let mut frames = vec![0; MOST];
    // SAFETY: the buffer is as large as said.
    let count = unsafe { backtrace(frames.as_mut_ptr(), MOST as i32) };
    frames.truncate(count as usize);
    frames
}

/// The end of this thread's stack.
fn stack_limit() -> u64 {
    if GUARDED.with_borrow(|guarded| *guarded) {
        return 0;
    }
    // SAFETY: asks about the own thread.
    unsafe {
        let mut attributes: libc::pthread_attr_t = std::mem::zeroed();
        assert_eq!(libc::pthread_getattr_np(libc::pthread_self(), &mut attributes), 0);
        let (mut start, mut size) = (std::ptr::null_mut(), 0);
        libc::pthread_attr_getstack(&attributes, &mut start, &mut size);
        libc::pthread_attr_destroy(&mut attributes);
        start as u64 + size as u64
    }
}

fn our_stack(registers: &Registers) -> Vec<u64> {
    UNWINDER.with_borrow_mut(|state| {
        let (unwinder, cache) = state.as_mut().unwrap();
        let (mut frames, mut again) = (vec![0; MOST], vec![0; MOST]);
        let limit = stack_limit();
        let allocations = ALLOCATIONS.get();
        let count = unwinder.unwind(cache, registers, limit, &mut frames);
        // The second time from the cache.
        let count_again = unwinder.unwind(cache, registers, limit, &mut again);
        assert_eq!(ALLOCATIONS.get(), allocations, "unwinding allocated");
        assert_eq!(frames[..count], again[..count_again]);
        frames.truncate(count);
        frames
    })
}

macro_rules! registers_here {
    () => {{
        let (rip, rsp, rbp): (u64, u64, u64);
        // SAFETY: reads registers.
        unsafe { asm!("lea {}, [rip]", "mov {}, rsp", "mov {}, rbp", out(reg) rip, out(reg) rsp, out(reg) rbp) };
        Registers::new(rip, rsp, rbp)
    }};
}

#[inline(never)]
extern "C" fn on_call() {
    let ours = our_stack(&registers_here!());
    let theirs = their_stack();
    // The innermost addresses are two of this function's.
    SEEN.set(Seen {
        ours: ours[1..].to_vec(),
        theirs: theirs[1..].to_vec(),
    });
}

/// Both stacks of the interrupted code.
extern "C" fn on_trap(_: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel's context of this signal.
    let registers = Registers::from_context(unsafe { &*context.cast::<libc::ucontext_t>() });
    let theirs = their_stack();
    let interrupted = theirs
        .iter()
        .position(|address| *address == registers.rip())
        .unwrap_or(0);
    SEEN.set(Seen {
        ours: our_stack(&registers),
        theirs: theirs[interrupted..].to_vec(),
    });
}

/// Both stacks of the handler, which lead through the signal frame.
extern "C" fn on_trap_from_handler(_: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: as above.
    let interrupted = Registers::from_context(unsafe { &*context.cast::<libc::ucontext_t>() }).rip();
    let ours = our_stack(&registers_here!());
    let mut theirs = their_stack();
    // Ours can be treated as a return address too.
    theirs
        .iter_mut()
        .filter(|address| **address == interrupted)
        .for_each(|address| *address += 1);
    SEEN.set(Seen {
        ours: ours[1..].to_vec(),
        theirs: theirs[1..].to_vec(),
    });
}

type Handler = extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void);

fn on_signal(handler: Handler, flags: i32) {
    // SAFETY: the breakpoints of tests/c/calls.c.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | flags;
        assert_eq!(libc::sigaction(libc::SIGTRAP, &action, std::ptr::null_mut()), 0);
    }
}

/// An unwinder for what is loaded now, for this thread.
fn prepare() {
    // SAFETY: no test unloads anything.
    let unwinder = unsafe { Unwinder::new(&modules(), &[]) };
    UNWINDER.set(Some((unwinder, Box::new(Cache::new()))));
}

fn enter(library: &Library, call: Callback, depth: i32) {
    // SAFETY: a function of tests/c/calls.c.
    let enter = unsafe { std::mem::transmute::<usize, extern "C" fn(Callback, i32) -> i32>(library.symbol(c"enter")) };
    black_box(enter(call, depth));
}

fn enter_with(library: &Library, name: &CStr, call: Callback) {
    // SAFETY: functions of tests/c with this type.
    let enter = unsafe { std::mem::transmute::<usize, extern "C" fn(Callback) -> i32>(library.symbol(name)) };
    black_box(enter(call));
}

fn assert_same(least: usize, what: &dyn std::fmt::Debug) {
    let seen = SEEN.take();
    let hex = |frames: &[u64]| frames.iter().map(|frame| format!("{frame:#x}")).collect::<Vec<_>>();
    assert_eq!(hex(&seen.ours), hex(&seen.theirs), "{what:?}");
    assert!(seen.ours.len() >= least, "{what:?}: only {} frames", seen.ours.len());
}

const WITH_TABLES: [&[&str]; 5] = [
    &["-O0"],
    &["-O2"],
    &["-O2", "-fomit-frame-pointer"],
    &["-O2", "-fno-omit-frame-pointer"],
    &["-O3", "-mavx2"],
];

#[test]
fn stacks_are_those_of_glibc() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    for compiler in ["gcc", "clang-19"] {
        for flags in WITH_TABLES {
            let library = Library::load(&build(directory.path(), compiler, flags, "calls.c"));
            prepare();
            for depth in [0, 1, 40] {
                enter(&library, Some(on_call), depth);
                assert_same(8 + depth as usize, &(compiler, flags, "callback"));
                on_signal(on_trap, 0);
                enter(&library, None, depth);
                assert_same(8 + depth as usize, &(compiler, flags, "breakpoint"));
                on_signal(on_trap_from_handler, 0);
                enter(&library, None, depth);
                assert_same(10 + depth as usize, &(compiler, flags, "handler"));
            }
            enter_with(&library, c"enter_sorting", Some(on_call));
            assert_same(12, &(compiler, flags, "qsort"));
        }
    }
}

#[test]
fn the_trampoline_of_lazy_binding_is_unwound() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let flags = ["-O2", "-DLAZY", "-Wl,-z,lazy"];
    let library = Library::load(&build(directory.path(), "gcc", &flags, "calls.c"));
    prepare();
    enter_with(&library, c"enter_lazily", Some(on_call));
    assert_same(12, &"lazy binding");
}

#[test]
fn generated_code_is_unwound() {
    let _alone = alone();
    // sub $24,%rsp; call *%rdi; add $24,%rsp; ret
    let code: [u8; 11] = [0x48, 0x83, 0xec, 24, 0xff, 0xd7, 0x48, 0x83, 0xc4, 24, 0xc3];
    // SAFETY: new pages, filled with a function.
    let (range, generated) = unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let protection = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
        let pages = libc::mmap(std::ptr::null_mut(), 4096, protection, flags, -1, 0);
        std::ptr::copy_nonoverlapping(code.as_ptr(), pages.cast(), code.len());
        let function = std::mem::transmute::<*mut libc::c_void, extern "C" fn(extern "C" fn())>(pages);
        (pages as usize..pages as usize + 4096, function)
    };
    // SAFETY: nothing is unmapped.
    let unwinder = unsafe { Unwinder::new(&modules(), std::slice::from_ref(&range)) };
    UNWINDER.set(Some((unwinder, Box::new(Cache::new()))));
    generated(on_call);
    let outer = their_stack();
    let ours = SEEN.take().ours;
    assert_eq!(ours[0], range.start as u64 + 6);
    assert_eq!(ours[2..], outer[1..]);
}

#[test]
fn a_handler_on_its_own_stack_is_left_for_the_interrupted_one() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let library = Library::load(&build(directory.path(), "gcc", &["-O2", "-DOWN_STACK"], "calls.c"));
    prepare();
    let mut stack = vec![0u8; 256 * 1024];
    // SAFETY: the stack outlives its use.
    unsafe {
        let own = libc::stack_t {
            ss_sp: stack.as_mut_ptr().cast(),
            ss_flags: 0,
            ss_size: stack.len(),
        };
        assert_eq!(libc::sigaltstack(&own, std::ptr::null_mut()), 0);
    }
    GUARDED.set(true);
    on_signal(on_trap_from_handler, libc::SA_ONSTACK);
    enter(&library, None, 3);
    assert_same(13, &"alternate stack");
    // SAFETY: nothing runs on it any more.
    unsafe {
        let none = libc::stack_t {
            ss_sp: std::ptr::null_mut(),
            ss_flags: libc::SS_DISABLE,
            ss_size: 0,
        };
        assert_eq!(libc::sigaltstack(&none, std::ptr::null_mut()), 0);
    }
}

#[test]
fn exceptions_in_flight_and_closures_are_unwound() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    for (compiler, flags) in [("g++", "-O0"), ("g++", "-O2"), ("clang++-19", "-O2")] {
        if compiler == "clang++-19" && !Path::new("/usr/bin/clang++-19").exists() {
            continue;
        }
        let library = Library::load(&build(directory.path(), compiler, &[flags], "exceptions.cpp"));
        prepare();
        enter_with(&library, c"enter_with_exception", Some(on_call));
        assert_same(5, &(compiler, flags, "exception"));
        enter_with(&library, c"enter_with_lambda", Some(on_call));
        assert_same(5, &(compiler, flags, "closure"));
    }
}

#[test]
fn threads_are_unwound_to_their_start() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let library = Library::load(&build(directory.path(), "gcc", &["-O2", "-DTHREAD"], "calls.c"));
    let entry = library.symbol(c"enter");
    extern "C" fn start(entry: *mut libc::c_void) -> *mut libc::c_void {
        prepare();
        // SAFETY: a function of tests/c/calls.c.
        let enter = unsafe { std::mem::transmute::<*mut libc::c_void, extern "C" fn(Callback, i32) -> i32>(entry) };
        enter(Some(on_call), 5);
        let outermost = SEEN.with_borrow(|seen| *seen.ours.last().unwrap());
        assert_same(13, &"thread");
        outermost as *mut libc::c_void
    }
    // SAFETY: a thread that is joined.
    let outermost = unsafe {
        let mut thread = 0;
        assert_eq!(
            libc::pthread_create(&mut thread, std::ptr::null(), start, entry as *mut _),
            0
        );
        let mut result = std::ptr::null_mut();
        libc::pthread_join(thread, &mut result);
        result as usize
    };
    assert!(common::module_of(outermost).is_language_runtime(), "not in clone");
}

#[test]
fn nothing_need_be_known_about_the_stack() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let library = Library::load(&build(directory.path(), "gcc", &["-O2", "-DGUARDED"], "calls.c"));
    prepare();
    GUARDED.set(true);
    enter(&library, Some(on_call), 40);
    assert_same(48, &"guarded");
}

/// Frames as offsets from `enter`, from the innermost to `enter` itself; then the rest.
fn relative(library: &Library) -> (Vec<i64>, Vec<u64>) {
    let frames = SEEN.take().ours;
    let module = common::module_of(library.symbol(c"enter"));
    let inside = frames
        .iter()
        .take_while(|frame| module.range.contains(&(**frame as usize)))
        .count();
    let enter = library.symbol(c"enter") as i64;
    (
        frames[..inside].iter().map(|frame| *frame as i64 - enter).collect(),
        frames[inside..].to_vec(),
    )
}

#[test]
fn code_without_tables_is_unwound_too() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let without = ["-fno-asynchronous-unwind-tables", "-fno-unwind-tables"];
    let variants: [&[&str]; 4] = [&["-O0"], &["-O2"], &["-O2", "-fno-omit-frame-pointer"], &["-O1"]];
    for compiler in ["gcc", "clang-19"] {
        for flags in variants {
            let with = [flags, &["-fasynchronous-unwind-tables", "-DTWIN"]].concat();
            let with = Library::load(&build(directory.path(), compiler, &with, "calls.c"));
            let stripped = [flags, &without].concat();
            let stripped = Library::load(&build(directory.path(), compiler, &stripped, "calls.c"));
            prepare();
            for call in [Some(on_call as extern "C" fn()), None] {
                on_signal(on_trap, 0);
                let libraries = [&with, &stripped];
                let mut stacks = libraries.map(|library| {
                    enter(library, call, 3);
                    relative(library)
                });
                // The caller's two calls are two addresses; further out all is the same.
                stacks.iter_mut().for_each(|(_, rest)| {
                    rest.remove(0);
                });
                let expected = std::mem::take(&mut stacks[0]);
                assert!(expected.0.len() >= 8 && !expected.1.is_empty());
                assert_eq!(stacks[1], expected, "{compiler} {flags:?} {}", call.is_some());
            }
        }
    }
}

#[test]
fn garbage_does_not_fault() {
    let _alone = alone();
    prepare();
    let here = garbage_does_not_fault as *const () as u64;
    let mut state = 1u64;
    let own_stack = &raw const state as u64;
    let mut random = || {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        state >> 16
    };
    for _ in 0..20_000 {
        let mut pick = |real: u64| match random() % 4 {
            0 => random(),
            1 => random() % 4096,
            2 => u64::MAX - random() % 64,
            _ => real.wrapping_add(random() % 512),
        };
        let registers = Registers::new(pick(here), pick(own_stack), pick(own_stack));
        UNWINDER.with_borrow_mut(|unwinder| {
            let (unwinder, cache) = unwinder.as_mut().unwrap();
            let mut frames = [0; 32];
            let count = unwinder.unwind(cache, &registers, 0, &mut frames);
            assert!((1..=32).contains(&count));
        });
    }
}
