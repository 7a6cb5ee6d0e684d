//! `crashproof-cc` as a compiler, and what it leaves in programs. One binary: linking one for each file takes longer than the tests.

#[path = "../support/mod.rs"]
mod support;

mod driver;
mod embedding;
mod frontend;
mod helpers;
mod like_clang;
mod program;
