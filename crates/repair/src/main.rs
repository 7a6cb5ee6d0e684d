//! `crashproof repair`: see `crashproof_repair`.

fn main() {}
