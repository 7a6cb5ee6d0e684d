//! PMBugAssist's table 3 (ICSE 2024), rebuilt: its columns beside ours, and the time of its own encoding on this machine.

use std::time::{Duration, Instant};

use crashproof_litmus::reference::{Blocking, Outcome, Reference, extended};
use crashproof_litmus::rows::{ROWS, Row};
use crashproof_litmus::{Least, Litmus, Repair, repair};

/// Instructions up to which the encoding is tried: beyond that its text alone has millions of clauses.
const LONGEST: usize = 2_000;
const REPEATS: usize = 5;

/// `seconds`: what the paper's encoding may take for a row.
pub fn measure(seconds: u64) {
    println!(
        "PMBugAssist's table 3: its seconds (on its authors' machine), ours (fastest of {REPEATS}, and of the processor), its encoding's here"
    );
    println!();
    println!(
        "| trace | length | added (paper) | reordered (paper) | added | reordered | least by | paper's time | our time | its encoding here |"
    );
    println!("|---|---:|---:|---:|---:|---:|---|---:|---:|---:|");
    for row in &ROWS {
        let litmus = row.litmus();
        let mut fastest = f64::MAX;
        let mut found = None;
        for _ in 0..REPEATS {
            let (seconds, result) = processor_time(|| repair(&litmus, Duration::from_secs(60)));
            fastest = fastest.min(seconds);
            found = result.ok();
        }
        let Some(found) = found else {
            println!("| {} | {} | no repair |", row.name, row.length);
            continue;
        };
        println!(
            "| {} | {} | {}+{} | {} | {}+{} | {} | {} | {} s | {} | {} |",
            row.name,
            row.length,
            row.flushes_added,
            row.fences_added,
            row.reordered,
            found.added_flushes,
            found.added_fences,
            found.moved + found.stores_moved,
            match found.least {
                Least::NothingToDo => "-",
                Least::Disjoint => "disjoint spans",
                Least::Exact => "search",
            },
            row.paper_seconds,
            human(fastest),
            encoding(row, &litmus, &found, Duration::from_secs(seconds)),
        );
    }
}

/// Seconds of this thread's processor: the machine may have other things to do.
fn processor_time<T>(action: impl FnOnce() -> T) -> (f64, T) {
    let now = || {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: writes one timespec, which is ours.
        unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
        time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
    };
    let start = now();
    let result = action();
    (now() - start, result)
}

fn human(seconds: f64) -> String {
    match seconds {
        s if s < 1e-3 => format!("{:.0} µs", s * 1e6),
        s if s < 1.0 => format!("{:.1} ms", s * 1e3),
        s => format!("{s:.2} s"),
    }
}

/// It is given what our least repair adds, and has to find the order: less than its own search.
fn encoding(row: &Row, litmus: &Litmus, found: &Repair, limit: Duration) -> String {
    if row.length > LONGEST {
        return "not tried".to_owned();
    }
    let Some(reference) = Reference::of(&extended(litmus, found)) else {
        return "cannot say it".to_owned();
    };
    let start = Instant::now();
    match reference.repair(Blocking::Signed, limit) {
        Ok(Outcome::Repaired(_)) => human(start.elapsed().as_secs_f64()),
        Ok(Outcome::Vacuous) => format!("vacuous after {}", human(start.elapsed().as_secs_f64())),
        Ok(Outcome::TimedOut) => format!("> {} s", limit.as_secs()),
        Err(error) => error.to_string(),
    }
}
