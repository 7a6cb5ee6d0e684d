//! Every rendering of hand-made findings.

mod ci;
mod common;
mod html;
mod machine;
mod terminal;
