//! What worker and supervisor say to each other: JSON messages on a stream socket, each preceded by its length,
//! descriptors beside it. Strictly one request, one reply; the worker speaks first.

use std::ffi::OsString;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::BuildError;

/// The only argument of the supervisor.
pub(crate) const SUPERVISOR_ARGUMENT: &str = "sandbox-supervisor";

/// In the sandbox: what crashproof itself needs there.
pub(crate) const CONTROL: &str = "/.crashproof";

/// Descriptors in one message; none has more.
const MAX_DESCRIPTORS: usize = 8;
/// A message longer than this is none.
const MAX_MESSAGE: usize = 64 << 20;

/// The first message: what the sandbox is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Config {
    /// The folder that the commands start in.
    pub cwd: OsString,
    /// Folders that the commands must be able to write to as far as the user may: in a user namespace the kernel does so only where
    /// a folder is the user's own, all the way up.
    pub folders: Vec<OsString>,
    /// What the commands may write to files, with the PM files; bytes.
    pub disk: u64,
    pub memory: u64,
    pub runtime: OsString,
    pub recover: Option<CommandLine>,
    pub check: Option<CommandLine>,
}

#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub(crate) enum CommandLine {
    Direct(Vec<OsString>),
    Shell(OsString),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    /// Puts the PM file under its path, or away. `Some`: the reply has a new, empty file's descriptor.
    Place { file: usize, path: Option<OsString> },
    /// Takes away a file of the user's, in the sandbox.
    Hide { path: OsString },
    /// So many bytes are now allowed for all files.
    Allow { disk: u64 },
    /// Starts the fork servers that are wanted and not there.
    Park { recover: bool, check: bool },
    /// Runs the recovery, and the checker.
    Run {
        /// Without the fork servers.
        alone: bool,
        time: Duration,
    },
    /// Runs another command, unwatched.
    RunOther {
        command: CommandLine,
        share: PathBuf,
        time: Duration,
    },
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Reply {
    Failed(BuildError),
    /// The sandbox is there. Descriptors: [`Control`].
    Built,
    /// For `Place`, `Hide`, `Allow`.
    Done,
    Parked {
        recover: Option<Parked>,
        check: Option<Parked>,
        /// What programs did that could not be parked, and ran instead.
        left: Ran,
    },
    Ran(Ran),
}

/// What became of a fork server.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub(crate) enum Parked {
    Ready,
    /// In words.
    Cannot(String),
}

/// How one command ended.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Status {
    /// As wait(2) says.
    pub wait: i32,
    pub timed_out: bool,
    /// Its processes took more memory than they may.
    pub over_memory: bool,
    /// The runtime was in at least one of its processes.
    pub watched: bool,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Ran {
    pub recovery: Option<Status>,
    pub check: Option<Status>,
    /// A fork server was lost on the way: the result is none.
    pub void: bool,
    /// The fork servers had to be ended.
    pub unparked: bool,
    /// PM files that are not under their paths any more; they must be placed again.
    pub lost_files: Vec<usize>,
    /// What was changed and cannot be put back, in words: the sandbox must be built anew.
    pub hopeless: Option<String>,
}

/// The descriptors that come with [`Reply::Built`], in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Control {
    Recovery,
    Output,
    Stdout,
    Stderr,
    CheckStdout,
    CheckStderr,
}

impl Control {
    pub(crate) const ALL: [Control; 6] = [
        Control::Recovery,
        Control::Output,
        Control::Stdout,
        Control::Stderr,
        Control::CheckStdout,
        Control::CheckStderr,
    ];

    /// In [`CONTROL`].
    pub(crate) fn name(self) -> &'static str {
        match self {
            Control::Recovery => "recovery",
            Control::Output => "output",
            Control::Stdout => "stdout",
            Control::Stderr => "stderr",
            Control::CheckStdout => "check-stdout",
            Control::CheckStderr => "check-stderr",
        }
    }
}

/// One end of the socket.
#[derive(Debug)]
pub(crate) struct Channel {
    stream: UnixStream,
    buffer: Vec<u8>,
}

impl Channel {
    pub(crate) fn new(stream: UnixStream) -> Self {
        Channel {
            stream,
            buffer: vec![0; 64 << 10],
        }
    }

    pub(crate) fn stream(&self) -> &UnixStream {
        &self.stream
    }

    pub(crate) fn send<M: Serialize>(&mut self, message: &M, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut bytes = vec![0; 8];
        serde_json::to_writer(&mut bytes, message)?;
        let len = (bytes.len() - 8) as u64;
        bytes[..8].copy_from_slice(&len.to_le_bytes());
        let numbers: Vec<RawFd> = descriptors.iter().map(|d| d.as_raw_fd()).collect();
        let mut sent = 0;
        while sent < bytes.len() {
            let first = if sent == 0 { &numbers[..] } else { &[] };
            sent += send_some(&self.stream, &bytes[sent..], first)?;
        }
        Ok(())
    }

    /// The next message and its descriptors. The other end is gone: `UnexpectedEof`.
    pub(crate) fn receive<M: DeserializeOwned>(&mut self) -> io::Result<(M, Vec<OwnedFd>)> {
        let mut descriptors = Vec::new();
        let mut have = 0;
        let mut need = 8;
        while have < need {
            if self.buffer.len() < need {
                self.buffer.resize(need, 0);
            }
            let received = receive_some(&self.stream, &mut self.buffer[have..], &mut descriptors)?;
            if received == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            have += received;
            if have >= 8 && need == 8 {
                let len = u64::from_le_bytes(self.buffer[..8].try_into().expect("8 bytes"));
                if len > MAX_MESSAGE as u64 {
                    return Err(io::ErrorKind::InvalidData.into());
                }
                need += len as usize;
            }
        }
        Ok((serde_json::from_slice(&self.buffer[8..need])?, descriptors))
    }
}

/// Room for the control message that carries the descriptors.
#[repr(C, align(8))]
struct Ancillary([u8; 128]);

fn send_some(stream: &UnixStream, bytes: &[u8], descriptors: &[RawFd]) -> io::Result<usize> {
    assert!(
        descriptors.len() <= MAX_DESCRIPTORS,
        "more descriptors than a message holds"
    );
    let mut part = libc::iovec {
        iov_base: bytes.as_ptr() as *mut _,
        iov_len: bytes.len(),
    };
    let mut room = Ancillary([0; 128]);
    let size = mem::size_of_val(descriptors) as u32;
    // SAFETY: an all-zero msghdr is valid; its pointers are set to `part` and `room`, which outlive the call. CMSG_SPACE of
    // MAX_DESCRIPTORS numbers is less than the room, so the header and the data written after it lie inside.
    let sent = unsafe {
        let mut message: libc::msghdr = mem::zeroed();
        message.msg_iov = &mut part;
        message.msg_iovlen = 1;
        if !descriptors.is_empty() {
            message.msg_control = room.0.as_mut_ptr().cast();
            message.msg_controllen = libc::CMSG_SPACE(size) as usize;
            let header = libc::CMSG_FIRSTHDR(&message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(size) as usize;
            std::ptr::copy_nonoverlapping(
                descriptors.as_ptr().cast::<u8>(),
                libc::CMSG_DATA(header),
                size as usize,
            );
        }
        retry(|| libc::sendmsg(stream.as_raw_fd(), &message, libc::MSG_NOSIGNAL))
    };
    Ok(sent? as usize)
}

fn receive_some(stream: &UnixStream, buffer: &mut [u8], descriptors: &mut Vec<OwnedFd>) -> io::Result<usize> {
    let mut part = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    let mut room = Ancillary([0; 128]);
    // SAFETY: as in `send_some`; the kernel writes no more than `msg_controllen` bytes of control messages, and the macros walk
    // only those. Each number received is a descriptor that is now this process's, and is owned once.
    unsafe {
        let mut message: libc::msghdr = mem::zeroed();
        message.msg_iov = &mut part;
        message.msg_iovlen = 1;
        message.msg_control = room.0.as_mut_ptr().cast();
        message.msg_controllen = room.0.len();
        let received = retry(|| libc::recvmsg(stream.as_raw_fd(), &mut message, libc::MSG_CMSG_CLOEXEC))?;
        let mut header = libc::CMSG_FIRSTHDR(&message);
        while !header.is_null() {
            if (*header).cmsg_level == libc::SOL_SOCKET && (*header).cmsg_type == libc::SCM_RIGHTS {
                let count = ((*header).cmsg_len - libc::CMSG_LEN(0) as usize) / mem::size_of::<RawFd>();
                let numbers = libc::CMSG_DATA(header).cast::<RawFd>();
                descriptors.extend((0..count).map(|i| OwnedFd::from_raw_fd(numbers.add(i).read_unaligned())));
            }
            header = libc::CMSG_NXTHDR(&message, header);
        }
        // There was no number left for one that the other side sent.
        if message.msg_flags & libc::MSG_CTRUNC != 0 {
            return Err(io::Error::from_raw_os_error(libc::EMFILE));
        }
        Ok(received as usize)
    }
}

/// A call that a signal may interrupt.
fn retry(mut call: impl FnMut() -> isize) -> io::Result<isize> {
    loop {
        match call() {
            -1 => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => {}
                error => return Err(error),
            },
            done => return Ok(done),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Seek, Write};
    use std::os::fd::AsFd;

    #[test]
    fn messages_and_descriptors_cross() {
        let (one, other) = UnixStream::pair().unwrap();
        let (mut one, mut other) = (Channel::new(one), Channel::new(other));
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"content").unwrap();
        // Longer than the buffer, so sent from another thread.
        let long = "x".repeat(3 << 20);
        let sent = long.clone();
        let sender = std::thread::spawn(move || {
            one.send(&sent, &[file.as_fd(), file.as_fd()]).unwrap();
            one.send(&1u8, &[]).unwrap();
        });
        let (received, descriptors): (String, _) = other.receive().unwrap();
        assert!(received == long);
        assert_eq!(descriptors.len(), 2);
        let (received, none): (u8, _) = other.receive().unwrap();
        assert_eq!((received, none.len()), (1, 0));
        sender.join().unwrap();
        let mut file = std::fs::File::from(descriptors.into_iter().next().unwrap());
        file.rewind().unwrap();
        let mut content = String::new();
        file.read_to_string(&mut content).unwrap();
        assert_eq!(content, "content");
        let gone = other.receive::<u8>().unwrap_err();
        assert_eq!(gone.kind(), io::ErrorKind::UnexpectedEof);
    }
}
