//! Crash testing as its users call it, against references. One binary: linking one for each file takes longer than the tests.

#[path = "../common/mod.rs"]
mod common;

mod campaign;
mod conditions;
mod representative;
mod states;
mod window;
