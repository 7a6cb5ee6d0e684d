//! PMBugAssist's table 3 (ICSE 2024), rebuilt: its columns beside ours, and the time of its own encoding on this machine.

use std::time::Duration;

use crashproof_litmus::{Least, Litmus, Repair, repair};
use crashproof_litmus_reference::{Blocking, Outcome, ROWS, Reference, Row, Tried, extended};

/// Assertions up to which the encoding is tried: beyond that they do not fit into the memory of this machine.
const MOST_ASSERTIONS: u64 = 20_000_000;
const REPEATS: usize = 5;

/// `seconds`: what the paper's encoding may take of the processor for a row; 0 leaves it out. With `names` only these rows.
pub(crate) fn measure(seconds: u64, names: &[String]) {
    let rows: Vec<&Row> = ROWS
        .iter()
        .filter(|row| names.is_empty() || names.iter().any(|name| name == row.name))
        .collect();
    let repaired: Vec<(f64, Option<Repair>)> = rows.iter().map(|row| repaired(&row.litmus())).collect();
    // Short ones first, and told as they come: this may take hours.
    let mut encodings = vec![String::new(); rows.len()];
    let mut by_length: Vec<usize> = (0..rows.len()).collect();
    by_length.sort_by_key(|&row| rows[row].length);
    for at in by_length {
        if let (Some(found), true) = (&repaired[at].1, seconds > 0) {
            encodings[at] = encoding(&rows[at].litmus(), found, Duration::from_secs(seconds));
            eprintln!("{}: {}", rows[at].name, encodings[at]);
        }
    }
    println!(
        "PMBugAssist's table 3: its seconds (on its authors' machine), ours (fastest of {REPEATS}), its encoding's here (both of the processor)"
    );
    println!();
    println!(
        "| trace | length | added (paper) | reordered (paper) | added | reordered | least by | paper's time | our time | its encoding here |"
    );
    println!("|---|---:|---:|---:|---:|---:|---|---:|---:|---:|");
    for ((row, (fastest, found)), encoding) in rows.iter().zip(&repaired).zip(&encodings) {
        let Some(found) = found else {
            println!("| {} | {} | no repair |", row.name, row.length);
            continue;
        };
        println!(
            "| {} | {} | {}+{} | {} | {}+{} | {} | {} | {} s | {} | {encoding} |",
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
                Least::Additions => "not proven",
                Least::InParts { .. } => "each part",
            },
            row.paper_seconds,
            human(*fastest),
        );
    }
}

/// The fastest of some runs, and what they found.
fn repaired(litmus: &Litmus) -> (f64, Option<Repair>) {
    let runs = (0..REPEATS).map(|_| processor_time(|| repair(litmus, Duration::from_secs(60))));
    let (seconds, found): (Vec<f64>, Vec<_>) = runs.unzip();
    let fastest = seconds.into_iter().fold(f64::MAX, f64::min);
    (fastest, found.into_iter().find_map(Result::ok))
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
fn encoding(litmus: &Litmus, found: &Repair, limit: Duration) -> String {
    // Every two instructions are compared.
    let compared = litmus.ops.len() as u64 * litmus.ops.len() as u64 / 2;
    if compared > MOST_ASSERTIONS {
        return format!("too large ({:.0e} assertions)", compared as f64);
    }
    let Some(reference) = Reference::of(&extended(litmus, found)) else {
        return "cannot say it".to_owned();
    };
    let assertions = reference.assertions();
    if assertions > MOST_ASSERTIONS {
        return format!("too large ({:.0e} assertions)", assertions as f64);
    }
    match reference.repair(Blocking::Signed, limit) {
        Ok(Tried {
            outcome,
            processor,
            blocked,
        }) => match outcome {
            Outcome::Repaired(_) => human(processor.as_secs_f64()),
            Outcome::Vacuous => format!("vacuous after {}", human(processor.as_secs_f64())),
            Outcome::TimedOut => format!("> {} s ({blocked} orders blocked)", limit.as_secs()),
        },
        Err(error) => error.to_string(),
    }
}
