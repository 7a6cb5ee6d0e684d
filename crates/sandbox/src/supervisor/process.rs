//! Processes of the sandbox: starting them, waiting for them, and leaving none behind.

use std::ffi::{CStr, CString, OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

use crashproof_wire::recovery::{BIND_NOW, RECOVERY_ENV, SERVER_ENV};

use super::sys::{self, c_string};
use super::{rights, root};
use crate::cgroup;
use crate::error::{BuildError, errno};
use crate::protocol::{CONTROL, CommandLine, Control};

pub(super) type Pid = libc::pid_t;

/// Where the fork server finds its socket: a number that programs do not use.
const SERVER_DESCRIPTOR: libc::c_int = 199;
/// Tells a user's command what the crashed program had output.
const OUTPUT_ENV: &str = "CRASHPROOF_OUTPUT";

/// A command, ready to be executed.
pub(super) struct Program {
    arguments: Vec<CString>,
    environment: Vec<CString>,
    memory: Option<u64>,
}

impl Program {
    /// A command that is watched by the runtime.
    pub(super) fn watched(command: &CommandLine, memory: u64) -> Result<Self, BuildError> {
        let mut preload = root::runtime().into_os_string();
        if let Some(existing) = std::env::var_os("LD_PRELOAD").filter(|existing| !existing.is_empty()) {
            preload.push(":");
            preload.push(existing);
        }
        let control = |control: Control| Path::new(CONTROL).join(control.name()).into_os_string();
        let mut additions = vec![
            ("LD_PRELOAD", preload),
            (RECOVERY_ENV, control(Control::Recovery)),
            (OUTPUT_ENV, control(Control::Output)),
        ];
        // libpmem and libpmem2 then flush, as on PM, instead of calling msync.
        for (variable, value) in [("PMEM_IS_PMEM_FORCE", "1"), ("PMEM2_FORCE_GRANULARITY", "CACHE_LINE")] {
            if std::env::var_os(variable).is_none() {
                additions.push((variable, value.into()));
            }
        }
        Program::new(command, &additions, Some(memory))
    }

    /// A command that is not.
    pub(super) fn plain(command: &CommandLine) -> Result<Self, BuildError> {
        Program::new(command, &[], None)
    }

    fn new(command: &CommandLine, additions: &[(&str, OsString)], memory: Option<u64>) -> Result<Self, BuildError> {
        let failed = |_| BuildError::Start {
            command: describe(command),
            errno: libc::EINVAL,
        };
        let arguments = match command {
            CommandLine::Direct(arguments) => arguments.iter().map(c_string).collect::<io::Result<Vec<_>>>(),
            CommandLine::Shell(text) => [OsStr::new("/bin/sh"), OsStr::new("-c"), text]
                .iter()
                .map(c_string)
                .collect(),
        };
        let arguments = arguments.map_err(failed)?;
        if arguments.is_empty() {
            return Err(failed(io::ErrorKind::InvalidInput.into()));
        }
        let mut environment = Vec::new();
        for (name, value) in std::env::vars_os() {
            if !additions.iter().any(|(added, _)| name == OsStr::new(added)) {
                environment.push(assignment(&name, &value).map_err(failed)?);
            }
        }
        for (name, value) in additions {
            environment.push(assignment(OsStr::new(name), value).map_err(failed)?);
        }
        Ok(Program {
            arguments,
            environment,
            memory,
        })
    }

    /// The same with more arguments, each of which ends with a zero byte.
    pub(super) fn with(&self, given: &[u8]) -> Program {
        let mut arguments = self.arguments.clone();
        let texts = given.split_inclusive(|&byte| byte == 0);
        arguments.extend(texts.filter_map(|text| Some(CStr::from_bytes_with_nul(text).ok()?.to_owned())));
        Program {
            arguments,
            environment: self.environment.clone(),
            memory: self.memory,
        }
    }

    /// The same as a fork server.
    pub(super) fn as_server(&self) -> Program {
        let mut environment = self.environment.clone();
        let variable = format!("{SERVER_ENV}={SERVER_DESCRIPTOR}");
        environment.push(CString::new(variable).expect("no zero byte in it"));
        if !environment
            .iter()
            .any(|assigned| assigned.to_bytes().starts_with(b"LD_BIND_NOW="))
        {
            let variable = format!("LD_BIND_NOW={BIND_NOW}");
            environment.push(CString::new(variable).expect("no zero byte in it"));
        }
        Program {
            arguments: self.arguments.clone(),
            environment,
            memory: self.memory,
        }
    }

    pub(super) fn describe(&self) -> String {
        let words: Vec<_> = self.arguments.iter().map(|word| word.to_string_lossy()).collect();
        words.join(" ")
    }
}

fn assignment(name: &OsStr, value: &OsStr) -> io::Result<CString> {
    let mut text = name.to_owned();
    text.push("=");
    text.push(value);
    c_string(text)
}

fn describe(command: &CommandLine) -> String {
    match command {
        CommandLine::Direct(words) => words.join(OsStr::new(" ")).to_string_lossy().into_owned(),
        CommandLine::Shell(text) => text.to_string_lossy().into_owned(),
    }
}

/// Where a command writes to.
#[derive(Clone, Copy)]
pub(super) struct Capture<'a> {
    pub stdout: BorrowedFd<'a>,
    pub stderr: BorrowedFd<'a>,
}

/// Starts programs; there is one.
pub(super) struct Launcher {
    root: CString,
    cwd: CString,
    null: OwnedFd,
    report: Report,
    /// The commands run with the priority of the caller's.
    priority: libc::c_int,
}

/// A page that children write to before they execute.
struct Report(*mut ReportPage);

struct ReportPage {
    /// Why the program could not be executed, or 0.
    failure: AtomicI32,
    /// A fork server's process.
    server: AtomicI32,
}

impl Report {
    fn new() -> io::Result<Self> {
        // SAFETY: a new mapping, zeroed, which is a valid page, and larger than it.
        unsafe {
            let page = libc::mmap(
                std::ptr::null_mut(),
                4096,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            if page == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            Ok(Report(page.cast()))
        }
    }

    fn page(&self) -> &ReportPage {
        // SAFETY: mapped by `new` and never unmapped.
        unsafe { &*self.0 }
    }
}

impl Launcher {
    pub(super) fn new(cwd: &OsStr) -> Result<Self, BuildError> {
        let path = Path::new(cwd);
        let failed = |error: io::Error| BuildError::Cwd {
            path: path.into(),
            errno: errno(&error),
        };
        let new = std::fs::File::open(root::NEW).map_err(failed)?;
        sys::open_in_root(new.as_fd(), path, libc::O_PATH | libc::O_DIRECTORY).map_err(failed)?;
        let null = std::fs::File::open(root::inside("/dev/null")).map_err(|error| BuildError::Control {
            path: "/dev/null".into(),
            errno: errno(&error),
        })?;
        let report = Report::new().map_err(|error| BuildError::Process { errno: errno(&error) })?;
        Ok(Launcher {
            root: c_string(root::NEW).map_err(failed)?,
            cwd: c_string(cwd).map_err(failed)?,
            null: null.into(),
            report,
            priority: raise_priority(),
        })
    }

    /// Starts a program as a child of this process.
    pub(super) fn start(
        &self,
        program: &Program,
        capture: Capture<'_>,
        group: Option<BorrowedFd<'_>>,
    ) -> Result<Pid, BuildError> {
        self.report.page().failure.store(0, Ordering::Relaxed);
        let execution = Execution::new(program);
        // SAFETY: this process has one thread, so the child may do what it likes.
        match unsafe { libc::fork() } {
            -1 => Err(BuildError::Process {
                errno: errno(&io::Error::last_os_error()),
            }),
            0 => self.execute(program, &execution, capture, None, group),
            child => Ok(child),
        }
    }

    /// Starts a fork server: as the child of a nurse, a process that wait(2) passes over unless asked for it. So whatever wait(2)
    /// finds was left behind by a run. Gives the nurse.
    pub(super) fn start_server(
        &self,
        program: &Program,
        capture: Capture<'_>,
        socket: BorrowedFd<'_>,
        group: Option<BorrowedFd<'_>>,
    ) -> Result<Pid, BuildError> {
        self.report.page().failure.store(0, Ordering::Relaxed);
        self.report.page().server.store(0, Ordering::Relaxed);
        let execution = Execution::new(program);
        // SAFETY: as fork(2), without a signal to the parent at the end; this process has one thread.
        match unsafe { libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0) } {
            -1 => Err(BuildError::Process {
                errno: errno(&io::Error::last_os_error()),
            }),
            0 => {
                sys::die_with_parent();
                // SAFETY: as in `start`; the nurse only waits for its child and ends.
                unsafe {
                    match libc::fork() {
                        0 => self.execute(program, &execution, capture, Some(socket), group),
                        server => {
                            self.report.page().server.store(server, Ordering::Release);
                            // The socket must end with the server.
                            libc::close_range(0, u32::MAX, 0);
                            while libc::waitpid(server, std::ptr::null_mut(), 0) == -1
                                && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
                            {
                            }
                            libc::_exit(0)
                        }
                    }
                }
            }
            nurse => Ok(nurse as Pid),
        }
    }

    /// The process of the fork server that was started last; 0: not yet.
    pub(super) fn server(&self) -> Pid {
        self.report.page().server.load(Ordering::Acquire)
    }

    /// Why the program that was started last could not be executed.
    pub(super) fn failure(&self, program: &Program) -> Option<BuildError> {
        match self.report.page().failure.load(Ordering::Acquire) {
            0 => None,
            errno => Some(BuildError::Start {
                command: program.describe(),
                errno,
            }),
        }
    }

    /// Becomes the program.
    fn execute(
        &self,
        program: &Program,
        execution: &Execution,
        capture: Capture<'_>,
        socket: Option<BorrowedFd<'_>>,
        group: Option<BorrowedFd<'_>>,
    ) -> ! {
        // SAFETY: after a fork in a process with one thread; all strings and arrays were made before it and end with a zero byte
        // or a null pointer.
        unsafe {
            // Not a session: that would be a scheduling group of its own, too (autogroup), at a cost.
            libc::setpgid(0, 0);
            libc::dup2(self.null.as_raw_fd(), 0);
            libc::dup2(capture.stdout.as_raw_fd(), 1);
            libc::dup2(capture.stderr.as_raw_fd(), 2);
            if let Some(socket) = socket {
                libc::dup2(socket.as_raw_fd(), SERVER_DESCRIPTOR);
            }
            libc::setpriority(libc::PRIO_PROCESS, 0, self.priority);
            libc::signal(libc::SIGPIPE, libc::SIG_DFL);
            let mut none = std::mem::zeroed();
            libc::sigemptyset(&mut none);
            libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
            limit(libc::RLIMIT_CORE, 0);
            if let Some(memory) = program.memory {
                limit(libc::RLIMIT_DATA, memory);
            }
            if group.is_none_or(cgroup::join)
                && libc::chroot(self.root.as_ptr()) == 0
                && libc::chdir(self.cwd.as_ptr()) == 0
                && rights::drop_rights()
            {
                libc::execvpe(
                    execution.arguments[0],
                    execution.arguments.as_ptr(),
                    execution.environment.as_ptr(),
                );
            }
            let error = errno(&io::Error::last_os_error());
            self.report.page().failure.store(error, Ordering::Release);
            libc::_exit(127)
        }
    }
}

/// The arrays of pointers for execve(2).
struct Execution {
    arguments: Vec<*const libc::c_char>,
    environment: Vec<*const libc::c_char>,
}

impl Execution {
    fn new(program: &Program) -> Self {
        let pointers = |strings: &[CString]| {
            strings
                .iter()
                .map(|string| string.as_ptr())
                .chain([std::ptr::null()])
                .collect()
        };
        Execution {
            arguments: pointers(&program.arguments),
            environment: pointers(&program.environment),
        }
    }
}

fn limit(what: libc::__rlimit_resource_t, most: u64) {
    // SAFETY: reads and writes one limit of this process.
    unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        libc::getrlimit(what, &mut limit);
        limit.rlim_max = limit.rlim_max.min(most);
        limit.rlim_cur = limit.rlim_cur.min(limit.rlim_max);
        libc::setrlimit(what, &limit);
    }
}

/// So that a fork bomb can be ended, where root may do so. Gives the priority as it was.
fn raise_priority() -> libc::c_int {
    // SAFETY: reads and changes a number of this process.
    unsafe {
        let before = libc::getpriority(libc::PRIO_PROCESS, 0);
        libc::setpriority(libc::PRIO_PROCESS, 0, -20);
        before
    }
}

/// A descriptor that can be polled for the end of the process.
pub(super) fn descriptor(process: Pid) -> io::Result<OwnedFd> {
    // SAFETY: the result is a new descriptor.
    unsafe {
        let number = libc::syscall(libc::SYS_pidfd_open, process, 0);
        match number {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(OwnedFd::from_raw_fd(number as libc::c_int)),
        }
    }
}

pub(super) fn kill(process: Pid) {
    // SAFETY: sends a signal; at worst there is no such process.
    unsafe { libc::kill(process, libc::SIGKILL) };
}

/// Whether the process is there and has not ended.
pub(super) fn is_running(process: Pid) -> bool {
    let stat = std::fs::read_to_string(root::inside(format!("/proc/{process}/stat"))).unwrap_or_default();
    // `12 (name) R …`, and the name may hold anything.
    stat.rsplit_once(") ")
        .is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

/// Waits for the end of a child.
pub(super) fn wait(child: Pid) -> i32 {
    let mut status = 0;
    // SAFETY: writes the status. A nurse is only found with __WALL.
    while unsafe { libc::waitpid(child, &mut status, libc::__WALL) } == -1
        && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
    {}
    status
}

/// What the sandbox holds that wait(2) finds.
enum Children {
    None,
    Running,
}

fn reap() -> Children {
    loop {
        // SAFETY: asks for no status.
        match unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG) } {
            0 => return Children::Running,
            -1 => return Children::None,
            _ => {}
        }
    }
}

/// Ends what a run left behind: all processes but those to keep. False: those had to go too.
pub(super) fn sweep(keep: &[Pid]) -> bool {
    const PATIENCE: Duration = Duration::from_secs(2);
    /// More is a fork bomb: it must be ended at once, before it takes all of the processor.
    const MANY: usize = 64;
    let begin = Instant::now();
    while let Children::Running = reap() {
        let processes = processes();
        if processes.len() > MANY || begin.elapsed() > PATIENCE {
            sweep_all();
            return false;
        }
        for process in processes {
            if process != 1 && !keep.contains(&process) {
                kill(process);
            }
        }
        std::thread::sleep(Duration::from_micros(100));
    }
    true
}

/// Ends everything, servers and nurses too.
pub(super) fn sweep_all() {
    // SAFETY: as process 1 of its namespace this reaches all of it but itself.
    unsafe { libc::kill(-1, libc::SIGKILL) };
    let mut status = 0;
    // SAFETY: writes the status; ends when there is no child left.
    while unsafe { libc::waitpid(-1, &mut status, libc::__WALL) } != -1
        || io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
    {}
}

/// All of the sandbox, the supervisor included.
pub(super) fn processes() -> Vec<Pid> {
    let Ok(entries) = std::fs::read_dir(root::inside("/proc")) else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// Removes System V shared memory, semaphores and queues that a run left behind.
pub(super) fn sweep_ipc() {
    // Numbers of <sys/shm.h>, <sys/sem.h> and <sys/msg.h>: the call, its INFO and STAT, and which word of the INFO says how
    // many there are.
    let kinds = [
        (libc::SYS_shmctl, 14, 13, 0),
        (libc::SYS_semctl, 19, 18, 7),
        (libc::SYS_msgctl, 12, 11, 0),
    ];
    for (call, info, stat, count) in kinds {
        let (highest, words) = ipc_control(call, 0, info);
        if highest < 0 || words[count] == 0 {
            continue;
        }
        for index in 0..=highest {
            let (id, _) = ipc_control(call, index, stat);
            if id >= 0 {
                ipc_control(call, id, libc::IPC_RMID);
            }
        }
    }
}

fn ipc_control(call: libc::c_long, id: libc::c_long, what: libc::c_int) -> (libc::c_long, [u32; 64]) {
    // Larger than each of the structures that the kernel writes.
    let mut words = [0; 64];
    let buffer = words.as_mut_ptr();
    // SAFETY: the kernel writes one of its structures to the buffer, or nothing.
    let result = unsafe {
        if call == libc::SYS_semctl {
            libc::syscall(call, id, 0, what, buffer)
        } else {
            libc::syscall(call, id, what, buffer)
        }
    };
    (result, words)
}
