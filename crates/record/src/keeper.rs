//! A program that ends when whoever started it ends, with all that it has started itself, also if that is killed.
//!
//! Between the two stands a keeper: a process that waits for the program and ends as it ended. If its own parent is gone, it ends
//! the program and whatever that left running (also if a signal ended the program): as a subreaper it becomes the parent of every orphan among them. (The kernel's
//! `PR_SET_PDEATHSIG` reaches the program alone, and a namespace of processes would show it other numbers.)

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicI32, Ordering};

/// The program, in its keeper.
static PROGRAM: AtomicI32 = AtomicI32::new(0);

extern "C" fn pass_on(signal: i32) {
    // SAFETY: kill is async-signal-safe; 0 and below are no program.
    unsafe {
        match PROGRAM.load(Ordering::Relaxed) {
            program @ 1.. => libc::kill(program, signal),
            _ => 0,
        };
    }
}

/// The command, once it is started, does not outlive this process. Signals that are sent to its process reach the program if
/// they are those that `crashproof` passes on.
pub fn keep(command: &mut Command) {
    let parent = std::process::id() as libc::pid_t;
    // SAFETY: between fork and exec, or in a process that never executes anything: only system calls, and nothing that
    // allocates or locks.
    unsafe {
        command.pre_exec(move || {
            // Not libc's fork: its handlers must not run in the copy of a process with threads.
            match libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) {
                -1 => Err(std::io::Error::last_os_error()),
                0 => Ok(()),
                program => watch(parent, program as libc::pid_t),
            }
        })
    };
}

/// In the keeper.
fn watch(parent: libc::pid_t, program: libc::pid_t) -> ! {
    PROGRAM.store(program, Ordering::Relaxed);
    // SAFETY: system calls; the arrays outlive them.
    unsafe {
        // Not the pipe on which the parent waits for the program to be executed, nor any of the program's.
        libc::syscall(libc::SYS_close_range, 0, u32::MAX, 0);
        libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1);
        for signal in [libc::SIGTERM, libc::SIGHUP] {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = pass_on as *const () as usize;
            libc::sigaction(signal, &action, std::ptr::null_mut());
        }
        // These come from the terminal, to the program as well.
        for signal in [libc::SIGINT, libc::SIGQUIT] {
            libc::signal(signal, libc::SIG_IGN);
        }
        let descriptor = |process: libc::pid_t| libc::syscall(libc::SYS_pidfd_open, process, 0) as libc::c_int;
        let entry = |fd| libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        };
        let mut ends = [entry(descriptor(program)), entry(descriptor(parent))];
        // Its number may be another's by now.
        let mut orphan = libc::getppid() != parent;
        while !orphan && ends[0].revents == 0 {
            libc::poll(ends.as_mut_ptr(), 2, -1);
            orphan = ends[1].revents != 0;
        }
        if orphan {
            libc::kill(program, libc::SIGKILL);
            end_all();
            libc::_exit(1);
        }
        let mut status = 0;
        while libc::waitpid(program, &mut status, 0) == -1 && *libc::__errno_location() == libc::EINTR {}
        if libc::WIFSIGNALED(status) {
            // Ctrl-C may have missed what a shell was just about to execute.
            end_all();
            end_by(libc::WTERMSIG(status));
        }
        libc::_exit(libc::WEXITSTATUS(status))
    }
}

/// Ends as the program did; the core was its own.
unsafe fn end_by(signal: libc::c_int) {
    // SAFETY: system calls on this process.
    unsafe {
        let none = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        libc::setrlimit(libc::RLIMIT_CORE, &none);
        libc::signal(signal, libc::SIG_DFL);
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut all);
        libc::sigprocmask(libc::SIG_SETMASK, &all, std::ptr::null_mut());
        libc::kill(libc::getpid(), signal);
        libc::_exit(128 + signal)
    }
}

/// Ends the children of this process, and those that it inherits from them, until there are none.
unsafe fn end_all() {
    // SAFETY: system calls; the buffer outlives them.
    unsafe {
        loop {
            let fd = libc::open(c"/proc/thread-self/children".as_ptr(), libc::O_RDONLY);
            let mut buffer = [0u8; 4096];
            let read = libc::read(fd, buffer.as_mut_ptr().cast(), buffer.len());
            libc::close(fd);
            let text = &buffer[..read.max(0) as usize];
            // A number that the buffer cuts off comes again.
            let whole = text.iter().rposition(|&byte| byte == b' ').map_or(0, |end| end + 1);
            for number in text[..whole]
                .split(|&byte| byte == b' ')
                .filter(|number| !number.is_empty())
            {
                let child = number.iter().fold(0, |n, digit| n * 10 + (digit - b'0') as libc::pid_t);
                libc::kill(child, libc::SIGKILL);
            }
            // Waits for one of them; another turn for what it leaves.
            if libc::waitpid(-1, std::ptr::null_mut(), 0) == -1 && *libc::__errno_location() != libc::EINTR {
                return;
            }
        }
    }
}
