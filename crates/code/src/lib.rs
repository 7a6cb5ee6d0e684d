//! The code of a running process.
