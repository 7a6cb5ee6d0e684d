//! Tests of the pointer analysis: the solver against the naive one, facts about small C programs, and what random ones do.

mod executed;
mod programs;
mod random;
