//! Programs that the program executes are recorded too, whatever environment it gives them.
//!
//! The variables that brought the runtime here are added to an environment that lacks them; everything else in it stays.
//! Not covered: `system` or `popen` after the program has cleared its own. In a recovery program all of them tell the worker, since
//! what they execute may be a program that cannot be watched.
//!
//! What the program ignores and blocks of the signals that are ours is handed on, too ([`signals::executing`]).

use crate::real::{Next, Resolve};
use crate::{registered, signals, sys, watch};
use libc::{c_char, c_int, c_void, pid_t};
use std::arch::naked_asm;
use std::ffi::CStr;
use std::sync::atomic::{AtomicPtr, Ordering};

const PRELOAD: &[u8] = b"LD_PRELOAD=";
const KEPT: [&[u8]; 5] = [
    PRELOAD,
    b"CRASHPROOF_SESSION=",
    b"CRASHPROOF_RECOVERY=",
    b"PMEM_IS_PMEM_FORCE=",
    b"PMEM2_FORCE_GRANULARITY=",
];

/// Our own copies of the variables ("name=value"): a program may overwrite the block it was started with.
static VARIABLES: [AtomicPtr<c_char>; KEPT.len()] = [const { AtomicPtr::new(std::ptr::null_mut()) }; KEPT.len()];

type Environment = *const *const c_char;
type Arguments = *const *const c_char;

/// Keeps the variables of the environment that this program was started with.
///
/// # Safety
/// `environment` is the block that the loader passes.
pub(crate) unsafe fn init(environment: Environment) {
    for (prefix, variable) in KEPT.iter().zip(&VARIABLES) {
        // SAFETY: the caller's promise.
        if let Some(found) = unsafe { find(environment, prefix) } {
            variable.store(found.to_owned().into_raw(), Ordering::Relaxed);
        }
    }
    let all: [&dyn Resolve; 5] = [
        &NEXT_EXECVE,
        &NEXT_EXECVPE,
        &NEXT_FEXECVE,
        &NEXT_POSIX_SPAWN,
        &NEXT_POSIX_SPAWNP,
    ];
    all.iter().for_each(|next| next.resolve());
    EXECUTING.iter().for_each(|next| next.resolve());
}

/// # Safety
/// `environment` is a NULL-terminated array of strings.
unsafe fn entries<'a>(environment: Environment) -> impl Iterator<Item = &'a CStr> {
    // SAFETY: the caller's promise; nothing is read behind the NULL.
    (0..).map_while(move |i| unsafe {
        let entry = *environment.add(i);
        (!entry.is_null()).then(|| CStr::from_ptr(entry))
    })
}

unsafe fn find<'a>(environment: Environment, prefix: &[u8]) -> Option<&'a CStr> {
    // SAFETY: the caller's promise.
    unsafe { entries(environment) }.find(|entry| entry.to_bytes().starts_with(prefix))
}

/// Whether the environment lacks the variable, or preloads something else.
fn lacks(environment: Environment, prefix: &[u8], ours: &CStr) -> bool {
    // SAFETY: the program's environment.
    let theirs = unsafe { find(environment, prefix) };
    let ours = &ours.to_bytes()[prefix.len()..];
    match theirs {
        None => true,
        Some(theirs) if prefix == PRELOAD => !theirs.to_bytes().windows(ours.len()).any(|part| part == ours),
        Some(_) => false,
    }
}

/// Calls `f` with so much memory, for as long as that runs. A child of vfork has it on the stack, if it is little: what it maps stays in its
/// parent when it executes another program. `None`: there is no memory.
fn with_memory<R>(size: usize, f: impl FnOnce(*mut u8) -> R) -> Option<R> {
    /// As libc's own functions need for a path.
    const ON_STACK: usize = 4096;
    struct Call<F, R> {
        f: Option<F>,
        result: Option<R>,
    }

    extern "C" fn make<F: FnOnce(*mut u8) -> R, R>(call: *mut c_void, memory: *mut u8) {
        // SAFETY: the one below, which waits for us.
        let call = unsafe { &mut *call.cast::<Call<F, R>>() };
        call.result = call.f.take().map(|f| f(memory));
    }

    fn on_stack<F: FnOnce(*mut u8) -> R, R>(size: usize, f: F) -> Option<R> {
        let mut call = Call {
            f: Some(f),
            result: None,
        };
        // SAFETY: the function gets its argument, and the memory while it runs.
        unsafe { call_with_memory(size, make::<F, R>, (&raw mut call).cast()) };
        call.result
    }

    if size <= ON_STACK && signals::in_vfork_child() {
        return on_stack(size, f);
    }
    let memory = sys::map_anonymous(size as u64)?;
    let result = f(memory);
    // SAFETY: our own mapping; the call that used it has failed, or has started its child.
    let _ = unsafe { sys::syscall(libc::SYS_munmap, [memory as u64, size as u64, 0, 0, 0, 0]) };
    Some(result)
}

/// Calls `function(argument, memory)` with memory on the stack.
#[unsafe(naked)]
unsafe extern "C" fn call_with_memory(
    size: usize,
    function: extern "C" fn(*mut c_void, *mut u8),
    argument: *mut c_void,
) {
    naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "sub rsp, rdi",
        "and rsp, -16",
        "mov rax, rsi",
        "mov rdi, rdx",
        "mov rsi, rsp",
        "call rax",
        "leave",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_endproc",
    )
}

/// Calls `execute` with the environment and what it lacks.
fn with_ours<R>(environment: Environment, execute: impl FnOnce(Environment) -> R) -> R {
    watch::before_exec();
    // SAFETY: null, or made by `init`.
    let ours = VARIABLES
        .each_ref()
        .map(|v| unsafe { v.load(Ordering::Relaxed).cast_const().as_ref() });
    let mut missing = KEPT.iter().zip(ours).filter_map(|(prefix, ours)| {
        // SAFETY: as above.
        let ours = unsafe { CStr::from_ptr(ours?) };
        lacks(environment, prefix, ours).then_some((*prefix, ours))
    });
    if environment.is_null() || missing.clone().next().is_none() {
        return execute(environment);
    }
    // SAFETY: the program's environment.
    let (count, preload) = unsafe { (entries(environment).count(), find(environment, PRELOAD)) };
    let preload = preload.map_or(0, |v| v.count_bytes());
    let pointers = (count + KEPT.len() + 1) * size_of::<usize>();
    let longest = missing.clone().map(|(_, v)| v.count_bytes()).max().unwrap_or(0);
    let size = pointers + longest + preload + 2;
    let mut execute = Some(execute);
    let with_missing = |memory: *mut u8| {
        let array = memory.cast::<*const c_char>();
        let mut len = 0;
        // SAFETY: the memory has room for the pointers and, behind them, for one joined string.
        unsafe {
            let joined = memory.add(pointers);
            let mut replaced = None;
            for (prefix, ours) in &mut missing {
                let mut entry = ours.as_ptr();
                if let Some(theirs) = find(environment, prefix) {
                    let (ours, theirs_value) = (ours.to_bytes(), &theirs.to_bytes_with_nul()[prefix.len()..]);
                    std::ptr::copy_nonoverlapping(ours.as_ptr(), joined, ours.len());
                    joined.add(ours.len()).write(b':');
                    let rest = joined.add(ours.len() + 1);
                    std::ptr::copy_nonoverlapping(theirs_value.as_ptr(), rest, theirs_value.len());
                    entry = joined.cast();
                    replaced = Some(theirs.as_ptr());
                }
                array.add(len).write(entry);
                len += 1;
            }
            for entry in entries(environment).filter(|e| Some(e.as_ptr()) != replaced) {
                array.add(len).write(entry.as_ptr());
                len += 1;
            }
            array.add(len).write(std::ptr::null());
        }
        execute.take().map(|execute| execute(array))
    };
    let executed = with_memory(size, with_missing).flatten();
    match (executed, execute) {
        (Some(result), _) => result,
        (None, Some(execute)) => execute(environment),
        (None, None) => sys::fail(b"a program was not executed"),
    }
}

/// The same for a program that takes the place of this one.
fn replacing(environment: Environment, execute: impl Fn(Environment) -> c_int) -> c_int {
    registered::before_exec();
    with_ours(environment, |environment| signals::executing(|| execute(environment)))
}

unsafe extern "C" {
    static environ: Environment;
}

#[unsafe(no_mangle)]
unsafe extern "C" fn execve(path: *const c_char, arguments: Arguments, environment: Environment) -> c_int {
    // SAFETY: the program's call.
    replacing(environment, |environment| unsafe {
        NEXT_EXECVE.get()(path, arguments, environment)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn execv(path: *const c_char, arguments: Arguments) -> c_int {
    // SAFETY: the program's call.
    unsafe { execve(path, arguments, environ) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn execvpe(file: *const c_char, arguments: Arguments, environment: Environment) -> c_int {
    // SAFETY: the program's call.
    replacing(environment, |environment| unsafe {
        NEXT_EXECVPE.get()(file, arguments, environment)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn execvp(file: *const c_char, arguments: Arguments) -> c_int {
    // SAFETY: the program's call.
    unsafe { execvpe(file, arguments, environ) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fexecve(fd: c_int, arguments: Arguments, environment: Environment) -> c_int {
    // SAFETY: the program's call.
    replacing(environment, |environment| unsafe {
        NEXT_FEXECVE.get()(fd, arguments, environment)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn posix_spawn(
    child: *mut pid_t,
    path: *const c_char,
    actions: *const libc::posix_spawn_file_actions_t,
    attributes: *const libc::posix_spawnattr_t,
    arguments: Arguments,
    environment: Environment,
) -> c_int {
    with_ours(environment, |environment| {
        // SAFETY: the program's call.
        let spawn =
            |attributes| unsafe { NEXT_POSIX_SPAWN.get()(child, path, actions, attributes, arguments, environment) };
        // SAFETY: the program's attributes.
        unsafe { signals::spawning(attributes, spawn) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn posix_spawnp(
    child: *mut pid_t,
    file: *const c_char,
    actions: *const libc::posix_spawn_file_actions_t,
    attributes: *const libc::posix_spawnattr_t,
    arguments: Arguments,
    environment: Environment,
) -> c_int {
    with_ours(environment, |environment| {
        // SAFETY: the program's call.
        let spawn =
            |attributes| unsafe { NEXT_POSIX_SPAWNP.get()(child, file, actions, attributes, arguments, environment) };
        // SAFETY: the program's attributes.
        unsafe { signals::spawning(attributes, spawn) }
    })
}

// --- Interposed: arguments one by one -----------------------------------------------------------------------------------

/// The arguments of a function that takes any number of them: those in registers, and those on the stack.
struct Listed {
    registers: *const [u64; 6],
    stack: *const u64,
}

impl Listed {
    unsafe fn get(&self, index: usize) -> u64 {
        // SAFETY: the caller knows that there are so many.
        unsafe {
            match index {
                0..6 => (*self.registers)[index],
                _ => *self.stack.add(index - 6),
            }
        }
    }
}

macro_rules! listing {
    ($($function:ident $listed:ident)*) => {
        $(
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            extern "C" fn $function() {
                naked_asm!(
                    ".cfi_startproc",
                    "sub rsp, 8",
                    "push r9",
                    "push r8",
                    "push rcx",
                    "push rdx",
                    "push rsi",
                    "push rdi",
                    ".cfi_adjust_cfa_offset 56",
                    "mov rdi, rsp",
                    "lea rsi, [rsp + 64]",
                    "call {listed}",
                    "add rsp, 56",
                    ".cfi_adjust_cfa_offset -56",
                    "ret",
                    ".cfi_endproc",
                    listed = sym $listed,
                )
            }
        )*
    };
}

listing! {
    execl listed_execl
    execle listed_execle
    execlp listed_execlp
}

/// Calls `execute` with the arguments behind the first, up to the null pointer, as an array, and with what is behind that.
unsafe fn with_array(listed: Listed, execute: impl FnOnce(*const c_char, Arguments, Environment) -> c_int) -> c_int {
    // SAFETY: the program's list ends with a null pointer; for `execle` one more argument follows.
    unsafe {
        let count = (1..).take_while(|&i| listed.get(i) != 0).count();
        let executed = with_memory((count + 1) * size_of::<usize>(), |memory| {
            let array = memory.cast::<*const c_char>();
            for i in 0..count {
                array.add(i).write(listed.get(i + 1) as *const c_char);
            }
            array.add(count).write(std::ptr::null());
            let behind = listed.get(count + 2) as Environment;
            execute(listed.get(0) as *const c_char, array, behind)
        });
        executed.unwrap_or_else(|| sys::to_libc(Err(libc::ENOMEM)) as c_int)
    }
}

unsafe extern "C" fn listed_execl(registers: *const [u64; 6], stack: *const u64) -> c_int {
    let listed = Listed { registers, stack };
    // SAFETY: the program's call.
    unsafe { with_array(listed, |path, arguments, _| execve(path, arguments, environ)) }
}

unsafe extern "C" fn listed_execle(registers: *const [u64; 6], stack: *const u64) -> c_int {
    let listed = Listed { registers, stack };
    // SAFETY: the program's call.
    unsafe {
        with_array(listed, |path, arguments, environment| {
            execve(path, arguments, environment)
        })
    }
}

unsafe extern "C" fn listed_execlp(registers: *const [u64; 6], stack: *const u64) -> c_int {
    let listed = Listed { registers, stack };
    // SAFETY: the program's call.
    unsafe { with_array(listed, |file, arguments, _| execvpe(file, arguments, environ)) }
}

// --- Interposed: what executes a program by itself, inside libc --------------------------------------------------------

macro_rules! executing {
    ($($index:literal $function:ident $next:ident $name:literal)*) => {
        $(
            // SAFETY: only jumped to, with the arguments that the program passed.
            static $next: Next<unsafe extern "C" fn()> = unsafe { Next::new($name) };

            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            extern "C" fn $function() {
                naked_asm!("mov r11d, {index}", "jmp {go}", index = const $index, go = sym go)
            }
        )*

        static EXECUTING: &[&Next<unsafe extern "C" fn()>] = &[$(&$next),*];
    };
}

executing! {
    0 system NEXT_SYSTEM c"system"
    1 popen NEXT_POPEN c"popen"
    2 wordexp NEXT_WORDEXP c"wordexp"
}

/// Common tail of the trampolines; `r11` is the function's index.
#[unsafe(naked)]
extern "C" fn go() {
    naked_asm!(
        ".cfi_startproc",
        "push rdi",
        "push rsi",
        "push rdx",
        "push rcx",
        "push r8",
        "push r9",
        "push rax",
        ".cfi_adjust_cfa_offset 56",
        "mov edi, r11d",
        "call {noted}",
        "mov r11, rax",
        "pop rax",
        "pop r9",
        "pop r8",
        "pop rcx",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        ".cfi_adjust_cfa_offset -56",
        "jmp r11",
        ".cfi_endproc",
        noted = sym noted,
    )
}

/// Tells the worker, and returns libc's function.
extern "C" fn noted(index: usize) -> usize {
    watch::before_exec();
    EXECUTING[index].get() as *const () as usize
}

type Exec = unsafe extern "C" fn(*const c_char, Arguments, Environment) -> c_int;
type Fexecve = unsafe extern "C" fn(c_int, Arguments, Environment) -> c_int;
type Spawn = unsafe extern "C" fn(
    *mut pid_t,
    *const c_char,
    *const libc::posix_spawn_file_actions_t,
    *const libc::posix_spawnattr_t,
    Arguments,
    Environment,
) -> c_int;

// SAFETY: each with the type that libc's headers declare.
static NEXT_EXECVE: Next<Exec> = unsafe { Next::new(c"execve") };
// SAFETY: as above.
static NEXT_EXECVPE: Next<Exec> = unsafe { Next::new(c"execvpe") };
// SAFETY: as above.
static NEXT_FEXECVE: Next<Fexecve> = unsafe { Next::new(c"fexecve") };
// SAFETY: as above.
static NEXT_POSIX_SPAWN: Next<Spawn> = unsafe { Next::new(c"posix_spawn") };
// SAFETY: as above.
static NEXT_POSIX_SPAWNP: Next<Spawn> = unsafe { Next::new(c"posix_spawnp") };
