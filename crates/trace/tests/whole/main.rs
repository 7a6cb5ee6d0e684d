//! Traces written and read. One binary: linking one for each file takes longer than the tests.

#[path = "../common/mod.rs"]
mod common;

mod dump;
mod files;
mod fuzz;
mod round_trip;
mod symbols;
