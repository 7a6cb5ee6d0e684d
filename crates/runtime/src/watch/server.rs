//! The fork server: the recovery program, parked where it would enter `main`, forks a copy of itself for each crash state.
//! What a copy inherits is what every process would have done up to `main`: loading, relocation, constructors. (AFL's idea:
//! Zalewski, "Fuzzing random programs without execve()", 2014.) Parking would be wrong where that depends on the crash state,
//! or cannot be copied: a constructor has opened a PM file, or something that runs would share, or started a thread. Then the server says so, and a process is
//! started for each state instead.

use super::{calls, descriptors, maps, opens, prepare, recovery};
use crate::real::Next;
use crate::{pm, signals, sys};
use crashproof_wire::recovery::{BIND_NOW, Recovery, SERVER_ENV, TRACK_READS, server};
use libc::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

/// The descriptor on which the server speaks; -1 in a process that is none.
static SOCKET: AtomicI32 = AtomicI32::new(-1);
static MAIN: AtomicUsize = AtomicUsize::new(0);

/// The server's socket, in the server.
pub(crate) fn parked() -> Option<c_int> {
    Some(SOCKET.load(Ordering::Relaxed)).filter(|&socket| socket >= 0)
}

/// This process is to be a server. The socket gets out of the way of the program's descriptors.
pub(crate) fn prepare(descriptor: &[u8]) {
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
    descriptors::remember_inherited();
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
extern "C-unwind" fn park(mut count: c_int, mut arguments: *mut *mut c_char, environment: *mut *mut c_char) -> c_int {
    if let (Some(recovery), Some(socket)) = (recovery(), parked()) {
        let mut name = [0u8; SERVER_ENV.len() + 1];
        name[..SERVER_ENV.len()].copy_from_slice(SERVER_ENV.as_bytes());
        // SAFETY: NUL-terminated names, and a NUL-terminated value. The array that `environment` points to is changed in place.
        unsafe {
            libc::unsetenv(name.as_ptr().cast());
            let bound = libc::getenv(c"LD_BIND_NOW".as_ptr());
            if !bound.is_null() && std::ffi::CStr::from_ptr(bound).to_bytes() == BIND_NOW.as_bytes() {
                libc::unsetenv(c"LD_BIND_NOW".as_ptr());
            }
        }
        match hindrance(recovery, socket) {
            Some(reason) => {
                send(socket, server::CANNOT, reason);
                while receive(socket).is_some() {}
                end();
            }
            None => serve(recovery, socket, (count, arguments)),
        }
        (count, arguments) = with_given(recovery, count, arguments);
        super::begin();
    }
    // SAFETY: the program's `main`.
    let main = unsafe { std::mem::transmute::<usize, Main>(MAIN.load(Ordering::Relaxed)) };
    main(count, arguments, environment)
}

/// The program's arguments, and those that the worker gives it for this run. What the kernel shows of the process (`/proc/self/cmdline`)
/// stays what it was.
fn with_given(recovery: &Recovery, count: c_int, arguments: *mut *mut c_char) -> (c_int, *mut *mut c_char) {
    let given = recovery.arguments();
    if given.is_empty() {
        return (count, arguments);
    }
    // SAFETY: `main` is called with so many pointers.
    let own = unsafe { std::slice::from_raw_parts(arguments, count as usize) };
    let mut all = own.to_vec();
    // The program may change its arguments, and they live as long as the process.
    let texts = given.to_vec().leak();
    for text in texts.split_inclusive_mut(|&byte| byte == 0) {
        all.push(text.as_mut_ptr().cast());
    }
    let count = all.len() as c_int;
    all.push(std::ptr::null_mut());
    (count, all.leak().as_mut_ptr())
}

/// Returns in each copy; the server ends here.
fn serve(recovery: &Recovery, socket: c_int, (count, arguments): (c_int, *mut *mut c_char)) {
    let mut prepare = prepare::find();
    // A program that ignores its children's ends would keep them from the server too.
    let default = signals::KernelAction::DEFAULT;
    let theirs = signals::kernel_action(libc::SIGCHLD, Some(&default));
    let is_open = is_open_to_others();
    calls::share_ranges();
    send(socket, server::READY, 0);
    while let Some((server::RUN, _)) = receive(socket) {
        if recovery.track == TRACK_READS {
            // Needed for each touch. It takes a millisecond the first time, which no copy has to spend then.
            sys::without_signals(crashproof_instruction::init);
        }
        if let Some(prepare) = prepare.take() {
            let (count, arguments) = with_given(recovery, count, arguments);
            prepare(count, arguments);
        }
        sys::without_signals(calls::adopt_ranges);
        descriptors::put_back_positions();
        // A copy must not look into this process, nor change what later copies are made of.
        open_to_others(false);
        // SAFETY: libc's own fork, so that the program's fork handlers run.
        match unsafe { libc::fork() } {
            0 => {
                if let Ok(theirs) = &theirs {
                    let _ = signals::kernel_action(libc::SIGCHLD, Some(theirs));
                }
                open_to_others(is_open);
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
                recovery.child.store(child as u32, Ordering::Release);
                send(socket, server::ENDED, wait(child) as u64);
            }
        }
    }
    end();
}

/// Whether processes of the same user may trace this one, and see its memory and descriptors.
fn is_open_to_others() -> bool {
    let arguments = [libc::PR_GET_DUMPABLE as u64, 0, 0, 0, 0, 0];
    // SAFETY: no pointers.
    let answer = unsafe { sys::syscall(libc::SYS_prctl, arguments) };
    answer == Ok(1)
}

fn open_to_others(open: bool) {
    let arguments = [libc::PR_SET_DUMPABLE as u64, open as u64, 0, 0, 0, 0];
    // SAFETY: no pointers.
    let _ = unsafe { sys::syscall(libc::SYS_prctl, arguments) };
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
fn hindrance(recovery: &Recovery, socket: c_int) -> Option<u64> {
    let mut pm_open = opens::pm_opened();
    pm::for_each(|_| pm_open = true);
    sys::for_each_descriptor(|fd| pm_open |= maps::file_of(recovery, fd).is_some());
    if pm_open {
        Some(server::CANNOT_PM_OPEN)
    } else if sys::threads() > 1 {
        Some(server::CANNOT_THREADS)
    } else {
        (!descriptors::can_be_shared(socket)).then_some(server::CANNOT_DESCRIPTORS)
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

/// Looks up libc's function.
pub(crate) fn resolve() {
    crate::real::Resolve::resolve(&NEXT_START_MAIN);
}
