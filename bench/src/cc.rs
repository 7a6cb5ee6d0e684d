//! What recording costs a program built by `crashproof cc`, against the same program built by clang and run alone.

use crate::measure::fastest;
use std::path::Path;
use std::process::Command;

/// The machine's other work falls on both sides alike, so runs alternate and the fastest of each counts.
const REPEATS: usize = 7;

/// (program, its size, what it is)
const PROGRAMS: [(&str, &str, &str); 2] = [
    ("pm_heavy", "2000000", "key-value store in PM, YCSB A"),
    ("pm_rare", "60", "sorting, a result in PM now and then"),
];

pub fn measure(root: &Path, tool: &Path, folder: &Path) {
    println!("\nprograms built by crashproof cc (seconds, fastest of {REPEATS})");
    println!(
        "{:<38}{:>8}{:>8}{:>8}{:>10}{:>8}{:>10}{:>8}",
        "", "native", "cc", "ratio", "recorded", "ratio", "by faults", "ratio"
    );
    for (name, size, what) in PROGRAMS {
        let source = root.join("bench").join(name).with_extension("c");
        let [native, instrumented] = ["native", "cc"].map(|kind| folder.join(format!("{name}.{kind}")));
        let flags = ["-O2", "-g", "-mclwb"];
        crate::compile(Command::new("clang-19").args(flags).arg(&source), &native);
        crate::compile(Command::new(tool).arg("cc").args(flags).arg(&source), &instrumented);
        let (pool, trace) = (folder.join("pool"), folder.join("trace"));
        let alone = |program: &Path| {
            let mut command = Command::new(program);
            command.arg(&pool).arg(size);
            command
        };
        let recorded = |program: &Path| {
            let mut command = Command::new(tool);
            command.args(["record", "-o"]).arg(&trace).arg("--");
            command.arg(program).arg(&pool).arg(size);
            command
        };
        let mut best = [f64::INFINITY; 4];
        for _ in 0..REPEATS {
            let commands: [&dyn Fn() -> Command; 4] = [
                &|| alone(&native),
                &|| alone(&instrumented),
                &|| recorded(&instrumented),
                &|| recorded(&native),
            ];
            for (best, command) in best.iter_mut().zip(commands) {
                let _ = std::fs::remove_file(&pool);
                *best = best.min(fastest(1, command).seconds);
            }
        }
        let [alone, unrecorded, recorded, by_faults] = best;
        println!(
            "{what:<38}{alone:>8.3}{unrecorded:>8.3}{:>7.2}x{recorded:>10.3}{:>7.2}x{by_faults:>10.3}{:>7.1}x",
            unrecorded / alone,
            recorded / alone,
            by_faults / alone
        );
    }
}
