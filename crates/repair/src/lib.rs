//! `crashproof repair`: from durability findings to a source patch that is safe by construction and verified on the rebuilt program.
//!
//! Follows Hippocrates (ASPLOS 2021, sections 4 and 5), in steps that do not mix:
//!
//! - [`locate`]: from the frames of a finding to instructions of the front end's bitcode;
//! - [`plan`]: what to insert, and the lemma that makes it safe. Knows the bitcode, not the source;
//! - *apply*, twice: to the bitcode ([`bitcode`]), and to the source ([`source`]) as a unified diff;
//! - *verify* (`trial`, [`verify`], `ladder`): rebuild in a copy, test, record and check again.
//!
//! [`flow`] is the whole, in copies of the user's tree (`workspace`; `paths` translates between them).
//!
//! The paper stops at bitcode; the plan here is data that names places, so that both can be made from it.

#![deny(unsafe_code)]

pub mod arguments;
pub mod bitcode;
mod commands;
#[expect(unsafe_code, reason = "lseek(2) tells holes from data")]
mod copy;
mod design;
pub mod flow;
mod input;
#[expect(unsafe_code, reason = "signal handlers and kill(2)")]
pub mod interrupt;
pub mod ir;
mod judge;
mod ladder;
mod lines;
mod loaded;
mod locate;
pub mod observed;
mod order;
mod outcome;
mod paths;
pub mod plan;
mod recovery;
mod rounds;
mod sarif;
pub mod source;
pub mod terminal;
#[cfg(test)]
mod testing;
mod trial;
mod verify;
mod workspace;

pub use outcome::Verdict;
