//! The code of a running process, seen from inside it: which modules are loaded ([`modules`]), where their flushes,
//! fences and client requests are ([`sweep`]), how to put breakpoints there ([`patch`]) and find them again from a signal
//! handler ([`sites`]), and which calls led to an instruction ([`unwind`]).
//!
//! It knows nothing about PM, traces or signal dispositions; the runtime puts the pieces together. System calls are made
//! directly (`sys`), never through libc, for two reasons: the runtime interposes libc's functions, and a signal handler must
//! leave `errno` alone.
//!
//! [`sites::SiteTable::find`] and [`unwind::Unwinder::unwind`] may be called in a signal handler: they take no lock and
//! do not allocate.
#![warn(clippy::undocumented_unsafe_blocks)]

mod file;
mod functions;
pub mod modules;
pub mod patch;
pub mod sites;
pub mod sweep;
mod sys;
pub mod unwind;

pub use sys::syscall;
