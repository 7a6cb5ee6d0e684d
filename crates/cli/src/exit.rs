//! How the process ends.

/// What to tell the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    Clean,
    Findings,
    /// It could not be done.
    Failed,
    /// As the recorded program did.
    Status(i32),
    /// As the recorded program did, by a signal.
    Signal(i32),
}

impl Exit {
    pub(crate) fn now(self) -> ! {
        let code = match self {
            Exit::Clean => 0,
            Exit::Findings => 1,
            Exit::Failed => 2,
            Exit::Status(status) => status,
            Exit::Signal(signal) => {
                die_by(signal);
                // The signal is blocked or does not end a process: say what a shell would say.
                128 + signal
            }
        };
        std::process::exit(code)
    }
}

/// Ends this process by a signal, so that the caller sees what it would have seen of the program.
fn die_by(signal: i32) {
    let no_core = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: plain system calls on this process. The program has dumped its core if it should; a core of crashproof
    // would take its place.
    unsafe {
        libc::setrlimit(libc::RLIMIT_CORE, &no_core);
        libc::signal(signal, libc::SIG_DFL);
        libc::raise(signal);
    }
}
