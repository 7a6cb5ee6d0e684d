//! Long tests of what `make test` can only touch on.
//!
//! [`targets`]: everything that reads what somebody else wrote, as functions of bytes; they must neither panic nor hang nor take
//! more than a gigabyte. [`mutate`] makes malformed inputs of good ones; `soak/fuzz` has the same targets for libFuzzer, guided by
//! coverage. [`commands`]: command lines that must do the same under crashproof as without it. [`kills`]: crashproof killed at random
//! moments must leave nothing behind.

pub mod commands;
pub mod guard;
pub mod kills;
pub mod mutate;
pub mod random;
pub mod targets;
