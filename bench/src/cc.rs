//! What recording costs a program built by `crashproof cc`, against the same program built by clang and run alone: in wall time, for which
//! the recorder needs a core of its own, and in processor time, the recorder's included.

use crate::measure::fastest;
use std::path::Path;
use std::process::Command;

/// The machine's other work falls on both sides alike, so runs alternate and the fastest of each counts.
const REPEATS: usize = 7;

/// (program, its size, what it is)
const PROGRAMS: [(&str, &str, &str); 3] = [
    ("pm_heavy", "2000000", "key-value store in PM, YCSB A"),
    ("pm_rare", "60", "sorting, a result in PM now and then"),
    ("pm_atomics", "400", "atomics, a result in PM now and then"),
];

pub(crate) fn measure(root: &Path, tool: &Path, folder: &Path) {
    println!("\nprograms built by crashproof cc, against clang's alone (least of {REPEATS}; wall | processor seconds)");
    println!(
        "{:<38}{:>15}{:>15}{:>15}{:>18}{:>18}",
        "", "native", "cc, alone", "cc, recorded", "wall | processor", "by faults"
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
        let mut best = [(f64::INFINITY, f64::INFINITY); 4];
        for _ in 0..REPEATS {
            let commands: [&dyn Fn() -> Command; 4] = [
                &|| alone(&native),
                &|| alone(&instrumented),
                &|| recorded(&instrumented),
                &|| recorded(&native),
            ];
            for (best, command) in best.iter_mut().zip(commands) {
                let _ = std::fs::remove_file(&pool);
                let measured = fastest(1, command);
                *best = (best.0.min(measured.seconds), best.1.min(measured.processor_seconds));
            }
        }
        let [alone, unrecorded, recorded, by_faults] = best;
        let pair = |(wall, processor): (f64, f64)| format!("{wall:.2} | {processor:.2}");
        let ratio = |(wall, processor): (f64, f64)| format!("{:.2}x | {:.2}x", wall / alone.0, processor / alone.1);
        println!(
            "{what:<38}{:>15}{:>15}{:>15}{:>18}{:>18}",
            pair(alone),
            pair(unrecorded),
            pair(recorded),
            ratio(recorded),
            ratio(by_faults)
        );
    }
}
