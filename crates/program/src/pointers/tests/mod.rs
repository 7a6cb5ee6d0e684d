//! Tests of the pointer analysis: the solver against the naive one, and facts about small C programs.

mod programs;
mod random;
