//! Runs a recovery program on crash images, thousands of times a second, and puts everything back afterwards.
//!
//! A [`Worker`] is one sandbox: namespaces of its own (mount, process, network, IPC, host name; a user namespace where the caller is
//! not root) in which every file system that can be written is covered by an overlay in memory, so nothing that the
//! recovery does reaches the user's files, and a supervisor, process 1 of the sandbox, whose end takes everything with it.
//! The PM files lie in the overlay under their own paths; the worker has them mapped too, writes the next crash state into
//! them, and restores what the recovery changed: pages that the runtime saw written, and, if anything else was touched,
//! the whole file (`tracking`: which of the two is the faster way).
//!
//! In the crashproof process: `worker` over `image` (the bytes), `cgroup` (the bound on memory), `session` (the supervisor process) and `recovery` (the memory shared
//! with the runtime). In the supervisor process: `supervisor`. Between them: `protocol`.
//!
//! Architecture invariant: knows neither traces nor the persistency model: an image is bytes, a run is an exit status.
#![warn(clippy::undocumented_unsafe_blocks)]

mod cgroup;
mod error;
mod image;
mod options;
mod protocol;
mod recovery;
mod run;
mod session;
mod supervisor;
mod tracking;
mod unopened;
mod worker;

pub use cgroup::is_available as bounds_memory;
pub use crashproof_wire::recovery::parse_unit;
pub use error::{BuildError, SandboxError};
pub use options::{Command, DEFAULT_CAPTURE, Limits, Mapping, Options, PmFile, Track};
pub use run::{Ended, How, Run};
pub use supervisor::supervise;
pub use worker::{Worker, available};
