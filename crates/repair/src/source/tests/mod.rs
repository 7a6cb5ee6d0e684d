//! Snippets of C and C++, with what is planned for a line in an annotation: plan, patch, compare, compile, apply with git.

mod harness;
mod idioms;
mod statements;
mod subprograms;
