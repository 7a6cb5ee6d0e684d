//! One of the soak targets, named by `CRASHPROOF_FUZZ`, driven by libFuzzer.
#![no_main]

use std::sync::OnceLock;

use crashproof_soak::targets::{ALL, Target};

fn target() -> &'static Target {
    static TARGET: OnceLock<&Target> = OnceLock::new();
    TARGET.get_or_init(|| {
        let name = std::env::var("CRASHPROOF_FUZZ").unwrap_or_default();
        let names: Vec<_> = ALL.iter().map(|target| target.name).collect();
        ALL.iter().find(|target| target.name == name).unwrap_or_else(|| {
            eprintln!("set CRASHPROOF_FUZZ to one of {}", names.join(", "));
            std::process::exit(2)
        })
    })
}

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    (target().run)(input);
});
