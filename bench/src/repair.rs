//! The main experiment of the Hippocrates paper (section 6.3) on `examples/kv`: the server with the flushes that were put in by hand, the same
//! without a single flush, and that repaired by crashproof, with persistent subprograms and without; YCSB's workloads over loopback sockets.
//!
//! Rounds go through all variants, so that what else the machine does meets all of them. The server counts its own flushes and fences.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// YCSB's, and every command on few keys.
const WORKLOADS: [&str; 8] = ["load", "a", "b", "c", "d", "e", "f", "all"];
/// How many requests are on their way at a time, and records and operations; the first is what the paper has.
const LOADS: [(u32, u32); 2] = [(1, 10_000), (16, 50_000)];

struct Variant {
    name: &'static str,
    server: PathBuf,
}

/// One line of kv-load.
#[derive(Clone, Copy)]
struct Line {
    throughput: f64,
    server_time: f64,
    flushes: f64,
    fences: f64,
}

/// By variant and workload, a line for each round.
type Lines = BTreeMap<(usize, usize), Vec<Line>>;

pub(crate) fn measure(root: &Path, tool: &Path, folder: &Path, rounds: Option<&str>) {
    let rounds: usize = rounds.map_or(20, |rounds| rounds.parse().expect("a number of rounds"));
    println!("repairing examples/kv");
    let variants = variants(root, tool, folder);
    println!(
        "\n{:<14}{:>12}{:>10}{:>24}{:>10}",
        "", "code bytes", "growth", "with tables, constants", "growth"
    );
    let sizes: Vec<[f64; 2]> = variants.iter().map(|variant| sizes(&variant.server)).collect();
    for (variant, [code, all]) in variants.iter().zip(&sizes) {
        println!(
            "{:<14}{code:>12}{:>9.2}%{all:>24}{:>9.2}%",
            variant.name,
            (code / sizes[0][0] - 1.0) * 100.0,
            (all / sizes[0][1] - 1.0) * 100.0
        );
    }
    let load = folder.join("hand-made/kv-load");
    for (depth, operations) in LOADS {
        let mut lines = Lines::new();
        for _ in 0..rounds {
            for (v, variant) in variants.iter().enumerate() {
                for (w, line) in run(&variant.server, &load, depth, operations).into_iter().enumerate() {
                    lines.entry((v, w)).or_default().push(line);
                }
            }
        }
        print_table(&variants, &lines, depth, operations, rounds);
    }
}

/// Builds them all with the same compiler and flags. The first is what the others are compared with.
fn variants(root: &Path, tool: &Path, folder: &Path) -> Vec<Variant> {
    let hand_made = folder.join("hand-made");
    copy(&root.join("examples/kv"), &hand_made);
    make(&hand_made, &["all", "flush-free"]);
    let flush_free = folder.join("flush-free");
    std::fs::rename(hand_made.join("flush-free"), &flush_free).expect("make has made it");
    let script = folder.join("script");
    let mut print = Command::new(hand_made.join("kv-load"));
    print.args([
        "--print",
        "--records",
        "200",
        "--value",
        "200",
        "--operations",
        "2000",
        "load",
        "all",
    ]);
    print.stdout(std::fs::File::create(&script).expect("a file in the folder"));
    assert!(print.status().expect("kv-load runs").success(), "kv-load failed");
    let mut variants = vec![("hand-made", hand_made), ("flush-free", flush_free.clone())];
    for (name, options) in [("repaired", &[][..]), ("intra-only", &["--intra-only"])] {
        let tree = folder.join(name);
        copy(&flush_free, &tree);
        repair(tool, &tree, &script, &folder.join(format!("{name}.diff")), options);
        variants.push((name, tree));
    }
    let variants = variants.into_iter().map(|(name, tree)| {
        make(&tree, &["kv-server"]);
        Variant {
            name,
            server: tree.join("kv-server"),
        }
    });
    variants.collect()
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).expect("a new folder");
    for entry in std::fs::read_dir(from).expect("the sources").flatten() {
        let path = entry.path();
        let is_source = path
            .extension()
            .is_some_and(|extension| extension == "c" || extension == "h");
        if is_source || path.ends_with("Makefile") {
            std::fs::copy(&path, to.join(entry.file_name())).expect("it can be copied");
        }
    }
}

fn make(tree: &Path, targets: &[&str]) {
    let mut make = Command::new("make");
    make.arg("-s")
        .args(targets)
        .args(["CC=gcc", "CFLAGS=-O2 -g"])
        .current_dir(tree);
    assert!(make.status().expect("make is installed").success(), "{make:?} failed");
}

fn repair(tool: &Path, tree: &Path, script: &Path, diff: &Path, options: &[&str]) {
    let begin = Instant::now();
    let mut command = Command::new(tool);
    command.args([
        "repair",
        "--inject-flushes",
        "--apply",
        "--build",
        "make -s kv-server",
        "--out",
    ]);
    command
        .arg(diff)
        .args(options)
        .args(["--", "./kv-server", "pool", "--script"])
        .arg(script);
    command.current_dir(tree).stdout(Stdio::null());
    let status = command.status().expect("crashproof runs");
    assert!(status.success(), "{command:?}: {status}");
    let text = std::fs::read_to_string(diff).expect("repair has written the diff");
    let added = || {
        text.lines()
            .filter(|line| line.starts_with('+') && !line.starts_with("+++"))
    };
    let foreign = added().find(|line| ["_mm_", "pmem_", "crashproof_"].iter().any(|mark| line.contains(mark)));
    assert!(
        foreign.is_none(),
        "a flush or fence that the server does not count: {foreign:?}"
    );
    println!(
        "{:<14}{:>6.1} s, {} lines added, {} of them flush",
        tree.file_name().map(|name| name.to_string_lossy()).unwrap_or_default(),
        begin.elapsed().as_secs_f64(),
        added().count(),
        added().filter(|line| line.contains("pm_flush(")).count()
    );
}

/// Of its code, and with all else that `size` counts as text: constants, and tables for unwinding and linking.
fn sizes(program: &Path) -> [f64; 2] {
    let number = |options: &[&str], is_line: &dyn Fn(&str) -> bool, column: usize| {
        let mut size = Command::new("size");
        let output = size
            .args(options)
            .arg(program)
            .output()
            .expect("binutils are installed");
        let text = String::from_utf8_lossy(&output.stdout);
        let line = text.lines().find(|line| is_line(line)).expect("its line");
        let field = line.split_whitespace().nth(column);
        field.and_then(|field| field.parse().ok()).expect("a size")
    };
    [
        number(&["-A"], &|line| line.starts_with(".text"), 1),
        number(&[], &|line| !line.contains("text"), 0),
    ]
}

/// All workloads, in order, on a server with a new pool, in memory.
fn run(server: &Path, load: &Path, depth: u32, operations: u32) -> Vec<Line> {
    let pool = tempfile::Builder::new()
        .prefix("kv")
        .tempdir_in("/dev/shm")
        .expect("memory for a pool");
    let mut command = Command::new(server);
    command
        .arg(pool.path().join("pool"))
        .args(["--size", "256"])
        .stdout(Stdio::piped());
    let mut child = command.spawn().expect("the server starts");
    let mut first = String::new();
    let mut output = BufReader::new(child.stdout.take().expect("it is piped"));
    output.read_line(&mut first).expect("the server says where it listens");
    let port = first.trim().strip_prefix("listening on ").expect("a port").to_owned();
    let counts = [operations.to_string(), depth.to_string()];
    let mut command = Command::new(load);
    command.args([
        "--records",
        &counts[0],
        "--operations",
        &counts[0],
        "--depth",
        &counts[1],
        &port,
    ]);
    let done = command.args(WORKLOADS).output().expect("kv-load runs");
    let mut connection = TcpStream::connect(format!("127.0.0.1:{port}")).expect("the server listens");
    connection.write_all(b"SHUTDOWN\n").expect("the server reads");
    assert!(child.wait().is_ok_and(|status| status.success()), "the server failed");
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(
        done.status.success(),
        "kv-load failed: {}",
        String::from_utf8_lossy(&done.stderr)
    );
    text.lines().map(parse).collect()
}

/// `a  14879 operations/s  13.882 us of the server  10.960 flushes  2.341 fences an operation`
fn parse(line: &str) -> Line {
    let numbers: Vec<f64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let [throughput, server_time, flushes, fences] = numbers[..] else {
        panic!("not a line of kv-load: {line}");
    };
    Line {
        throughput,
        server_time,
        flushes,
        fences,
    }
}

fn print_table(variants: &[Variant], lines: &Lines, depth: u32, operations: u32, rounds: usize) {
    println!(
        "\n{operations} records and operations, {depth} requests at a time, {rounds} rounds; ratios to hand-made with 95% confidence intervals"
    );
    println!(
        "{:<6}{:<12}{:>14}{:>18}{:>16}{:>18}{:>10}{:>10}",
        "", "", "operations/s", "ratio", "server us/op", "ratio", "flushes", "fences"
    );
    for (w, workload) in WORKLOADS.iter().enumerate() {
        for (v, variant) in variants.iter().enumerate() {
            let of = |v: usize, field: fn(&Line) -> f64| -> Vec<f64> { lines[&(v, w)].iter().map(field).collect() };
            let ratio = |field: fn(&Line) -> f64| interval(&of(v, field), &of(0, field));
            println!(
                "{:<6}{:<12}{:>14.0}{:>18}{:>16.2}{:>18}{:>10.3}{:>10.3}",
                if v == 0 { workload } else { "" },
                variant.name,
                mean(&of(v, |line| line.throughput)),
                ratio(|line| line.throughput),
                mean(&of(v, |line| line.server_time)),
                ratio(|line| line.server_time),
                mean(&of(v, |line| line.flushes)),
                mean(&of(v, |line| line.fences)),
            );
        }
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The mean of the ratios of each round.
fn interval(values: &[f64], to: &[f64]) -> String {
    let ratios: Vec<f64> = values.iter().zip(to).map(|(value, to)| value / to).collect();
    let middle = mean(&ratios);
    let squares = ratios.iter().map(|ratio| (ratio - middle).powi(2)).sum::<f64>();
    let n = ratios.len() as f64;
    // Student's t for so many rounds; from 31 on it is near enough to the normal distribution's.
    const T: [f64; 30] = [
        12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13, 2.12, 2.11, 2.10,
        2.09, 2.09, 2.08, 2.07, 2.07, 2.06, 2.06, 2.06, 2.05, 2.05, 2.05, 2.04,
    ];
    let Some(freedom) = ratios.len().checked_sub(2) else {
        return format!("{middle:.2}");
    };
    let t = T.get(freedom).copied().unwrap_or(1.96);
    let error = t * (squares / (n - 1.0)).sqrt() / n.sqrt();
    format!("{middle:.2} ± {error:.2}")
}
