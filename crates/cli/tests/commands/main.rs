//! The commands, run on real programs. One binary: linking one for each file takes longer than the tests.

#[path = "../support/mod.rs"]
mod support;

mod bad_input;
mod book;
mod cc_recording;
mod command_line;
mod conclusive;
mod contract;
mod crash;
mod exchange;
mod files;
mod helpers;
mod infer;
mod interruptions;
mod kv;
mod lookups;
mod oracle;
mod pmdk;
mod pmdk_crash;
mod registered;
mod repair_crash;
mod repair_flow;
mod replay;
mod results;
mod sandbox;
mod sanitizers;
mod threads;
mod truncated;
mod types;
