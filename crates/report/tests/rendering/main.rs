//! Every rendering of hand-made findings.

mod common;
mod machine;
mod terminal;
