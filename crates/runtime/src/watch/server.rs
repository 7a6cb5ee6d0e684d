//! The fork server: the recovery program, parked where it would enter `main`, forks a copy of itself for each crash state.
//! What a copy inherits is what every process would have done up to `main`: loading, relocation, constructors. (AFL's idea:
//! Zalewski, "Fuzzing random programs without execve()", 2014.) Parking would be wrong where that depends on the crash state,
//! or cannot be copied: a constructor has opened a PM file or started a thread. Then the server says so, and a process is
//! started for each state instead.

use super::{calls, maps, recovery};
use crate::real::Next;
use crate::{pm, signals, sys};
use crashproof_wire::recovery::{Recovery, SERVER_ENV, TRACK_READS, server};
use libc::{FILE, c_char, c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};

/// The descriptor on which the server speaks; -1 in a process that is none.
static SOCKET: AtomicI32 = AtomicI32::new(-1);
static MAIN: AtomicUsize = AtomicUsize::new(0);
/// A PM file was opened before `main`.
static PM_OPENED: AtomicBool = AtomicBool::new(false);

/// The server's socket, in the server.
pub fn parked() -> Option<c_int> {
    Some(SOCKET.load(Ordering::Relaxed)).filter(|&socket| socket >= 0)
}

/// This process is to be a server. The socket gets out of the way of the program's descriptors.
pub fn prepare(descriptor: &[u8]) {
    let number = std::str::from_utf8(descriptor)
        .ok()
        .and_then(|d| d.parse::<c_int>().ok());
    let Some(given) = number.filter(|&fd| fd >= 0) else {
        return;
    };
    let duplicate = |from: u64| {
        // SAFETY: makes a descriptor, no pointers.
        unsafe {
            sys::syscall(
                libc::SYS_fcntl,
                [given as u64, libc::F_DUPFD_CLOEXEC as u64, from, 0, 0, 0],
            )
        }
    };
    let Some(socket) = [900, 200, 50].into_iter().find_map(|from| duplicate(from).ok()) else {
        return;
    };
    close(given);
    SOCKET.store(socket as c_int, Ordering::Relaxed);
}

fn close(fd: c_int) {
    // SAFETY: a descriptor of ours.
    let _ = unsafe { sys::syscall(libc::SYS_close, [fd as u64, 0, 0, 0, 0, 0]) };
}

type Main = extern "C-unwind" fn(c_int, *mut *mut c_char, *mut *mut c_char) -> c_int;
type StartMain = unsafe extern "C-unwind" fn(usize, c_int, *mut *mut c_char, usize, usize, usize, *mut c_void) -> c_int;

// SAFETY: with the type that libc's start code calls it by.
static NEXT_START_MAIN: Next<StartMain> = unsafe { Next::new(c"__libc_start_main") };

/// The program's entry calls this with its `main`; the constructors of the program itself run inside it.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __libc_start_main(
    main: usize,
    count: c_int,
    arguments: *mut *mut c_char,
    init: usize,
    fini: usize,
    loader_fini: usize,
    stack_end: *mut c_void,
) -> c_int {
    MAIN.store(main, Ordering::Relaxed);
    let entry = if parked().is_some() {
        park as Main as usize
    } else {
        main
    };
    // SAFETY: the program's call, but for `main`.
    unsafe { NEXT_START_MAIN.get()(entry, count, arguments, init, fini, loader_fini, stack_end) }
}

/// In place of `main`: returns, in each copy, what `main` returns. The server itself never returns.
extern "C-unwind" fn park(count: c_int, arguments: *mut *mut c_char, environment: *mut *mut c_char) -> c_int {
    if let (Some(recovery), Some(socket)) = (recovery(), parked()) {
        let mut name = [0u8; SERVER_ENV.len() + 1];
        name[..SERVER_ENV.len()].copy_from_slice(SERVER_ENV.as_bytes());
        // SAFETY: a NUL-terminated name. The array that `environment` points to is changed in place.
        unsafe { libc::unsetenv(name.as_ptr().cast()) };
        match hindrance(recovery) {
            Some(reason) => {
                send(socket, server::CANNOT, reason);
                while receive(socket).is_some() {}
                end();
            }
            None => serve(recovery, socket),
        }
        super::begin();
    }
    // SAFETY: the program's `main`.
    let main = unsafe { std::mem::transmute::<usize, Main>(MAIN.load(Ordering::Relaxed)) };
    main(count, arguments, environment)
}

/// Returns in each copy; the server ends here.
fn serve(recovery: &Recovery, socket: c_int) {
    // A program that ignores its children's ends would keep them from the server too.
    let default = signals::KernelAction::DEFAULT;
    let theirs = signals::kernel_action(libc::SIGCHLD, Some(&default));
    calls::share_ranges();
    send(socket, server::READY, 0);
    while let Some((server::RUN, _)) = receive(socket) {
        if recovery.track == TRACK_READS {
            // Needed for each touch. It takes a millisecond the first time, which no copy has to spend then.
            sys::without_signals(crashproof_instruction::init);
        }
        sys::without_signals(calls::adopt_ranges);
        // SAFETY: libc's own fork, so that the program's fork handlers run.
        match unsafe { libc::fork() } {
            0 => {
                if let Ok(theirs) = &theirs {
                    let _ = signals::kernel_action(libc::SIGCHLD, Some(theirs));
                }
                SOCKET.store(-1, Ordering::Relaxed);
                close(socket);
                // A process group of its own. A session would be a scheduling group of its own, too (autogroup), which costs
                // more than the fork where the processors are busy.
                // SAFETY: no pointers.
                let _ = unsafe { sys::syscall(libc::SYS_setpgid, [0; 6]) };
                return;
            }
            -1 => sys::fail(b"the fork server cannot fork"),
            child => {
                send(socket, server::STARTED, child as u64);
                send(socket, server::ENDED, wait(child) as u64);
            }
        }
    }
    end();
}

fn wait(child: libc::pid_t) -> u32 {
    let mut status = 0u32;
    let arguments = [child as u64, &raw mut status as u64, 0, 0, 0, 0];
    // SAFETY: the kernel writes the status.
    while unsafe { sys::syscall(libc::SYS_wait4, arguments) } == Err(libc::EINTR) {}
    status
}

fn end() -> ! {
    loop {
        // SAFETY: ends the process; nothing of the program's has to be done at its end, for it has not begun.
        let _ = unsafe { sys::syscall(libc::SYS_exit_group, [0; 6]) };
    }
}

/// Why the program cannot be parked here.
fn hindrance(recovery: &Recovery) -> Option<u64> {
    let mut pm_open = PM_OPENED.load(Ordering::Relaxed);
    pm::for_each(|_| pm_open = true);
    sys::for_each_descriptor(|fd| pm_open |= maps::file_of(recovery, fd).is_some());
    if pm_open {
        Some(server::CANNOT_PM_OPEN)
    } else {
        (sys::threads() > 1).then_some(server::CANNOT_THREADS)
    }
}

/// A word of the protocol; the peer's end is noticed when the next one is read.
fn send(socket: c_int, tag: u8, rest: u64) {
    let word = server::word(tag, rest).to_le_bytes();
    let arguments = [socket as u64, word.as_ptr() as u64, 8, libc::MSG_NOSIGNAL as u64, 0, 0];
    // SAFETY: reads the word. A word is never sent in parts: the socket has room for it.
    while unsafe { sys::syscall(libc::SYS_sendto, arguments) } == Err(libc::EINTR) {}
}

/// `None`: the peer has closed its end.
fn receive(socket: c_int) -> Option<(u8, u64)> {
    let mut word = [0u8; 8];
    let mut len = 0;
    while len < word.len() {
        let rest = &mut word[len..];
        let arguments = [socket as u64, rest.as_mut_ptr() as u64, rest.len() as u64, 0, 0, 0];
        // SAFETY: writes the rest of the word.
        match unsafe { sys::syscall(libc::SYS_recvfrom, arguments) } {
            Ok(0) => return None,
            Ok(n) => len += n as usize,
            Err(libc::EINTR) => {}
            Err(_) => return None,
        }
    }
    Some(server::parse(u64::from_le_bytes(word)))
}

// --- Interposed: what opens a file before `main` ------------------------------------------------------------------------

/// The program has opened a file.
fn opened(fd: c_int) -> c_int {
    if fd >= 0
        && parked().is_some()
        && let Some(recovery) = recovery()
        && maps::file_of(recovery, fd).is_some()
    {
        PM_OPENED.store(true, Ordering::Relaxed);
    }
    fd
}

type Open = unsafe extern "C-unwind" fn(*const c_char, c_int, libc::mode_t) -> c_int;
type Openat = unsafe extern "C-unwind" fn(c_int, *const c_char, c_int, libc::mode_t) -> c_int;
type Fopen = unsafe extern "C-unwind" fn(*const c_char, *const c_char) -> *mut FILE;

// SAFETY: each with the type that libc's headers declare; a variable argument is passed like another.
static NEXT_OPEN: Next<Open> = unsafe { Next::new(c"open") };
static NEXT_OPENAT: Next<Openat> = unsafe { Next::new(c"openat") };
static NEXT_FOPEN: Next<Fopen> = unsafe { Next::new(c"fopen") };

/// Looks up libc's functions.
pub fn resolve() {
    use crate::real::Resolve;
    let all: [&dyn Resolve; 4] = [&NEXT_START_MAIN, &NEXT_OPEN, &NEXT_OPENAT, &NEXT_FOPEN];
    all.iter().for_each(|next| next.resolve());
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn open(path: *const c_char, flags: c_int, mode: libc::mode_t) -> c_int {
    // SAFETY: the program's call.
    opened(unsafe { NEXT_OPEN.get()(path, flags, mode) })
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn open64(path: *const c_char, flags: c_int, mode: libc::mode_t) -> c_int {
    // SAFETY: the same function on a 64-bit system.
    unsafe { open(path, flags, mode) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn openat(directory: c_int, path: *const c_char, flags: c_int, mode: libc::mode_t) -> c_int {
    // SAFETY: the program's call.
    opened(unsafe { NEXT_OPENAT.get()(directory, path, flags, mode) })
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn openat64(directory: c_int, path: *const c_char, flags: c_int, mode: libc::mode_t) -> c_int {
    // SAFETY: the same function on a 64-bit system.
    unsafe { openat(directory, path, flags, mode) }
}

/// What `open` is in a program that was compiled with `_FORTIFY_SOURCE`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __open_2(path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: the program's call; no file is created, so that there is no mode.
    unsafe { open(path, flags, 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __open64_2(path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: as above.
    unsafe { open(path, flags, 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn fopen(path: *const c_char, mode: *const c_char) -> *mut FILE {
    // SAFETY: the program's call.
    unsafe {
        let file = NEXT_FOPEN.get()(path, mode);
        if !file.is_null() && parked().is_some() {
            opened(libc::fileno(file));
        }
        file
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn fopen64(path: *const c_char, mode: *const c_char) -> *mut FILE {
    // SAFETY: the same function on a 64-bit system.
    unsafe { fopen(path, mode) }
}
