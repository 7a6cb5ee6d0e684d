//! Traces of other tools, read and written. One binary: linking one for each file takes longer than the tests.

mod perfetto;
mod pmemcheck;
mod pmtest;
