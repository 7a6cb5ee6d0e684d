//! Every rendering of hand-made findings.

mod ci;
mod common;
mod machine;
mod terminal;
