//! Writes a synthetic trace and measures how fast it is checked, in processor time, and with how much memory.
//!
//! `cargo run --release -p crashproof-check --example throughput -- [mixed|fill|dirty] [MILLIONS OF EVENTS]`
//!
//! - `mixed`: two threads that update random objects in 1 GiB of PM: some stores, a flush, a fence, as data structures do
//! - `fill`: one range after another written with non-temporal stores, and a single fence at the end
//! - `dirty`: stores to ever new lines that nothing ever flushes

use crashproof_check::{CheckOptions, check};
use crashproof_trace::*;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let pattern = arguments.next().unwrap_or_else(|| "mixed".to_owned());
    let events = arguments.next().map_or(Ok(20), |n| n.parse::<u64>())? * 1_000_000;
    let path = std::env::temp_dir().join(format!("crashproof-throughput-{}.trace", std::process::id()));
    generate(&path, &pattern, events)?;
    let bytes = std::fs::metadata(&path)?.len();
    let start = processor_seconds();
    let mut reader = TraceReader::open(&path)?;
    while reader.next()?.is_some() {}
    let reading = processor_seconds() - start;
    let before = peak_memory();
    let start = processor_seconds();
    let mut reader = TraceReader::open(&path)?;
    let report = check(&mut reader, &CheckOptions::default(), |_, _| {})?;
    let checking = processor_seconds() - start;
    std::fs::remove_file(&path)?;
    let rate = |seconds: f64| reader.events() as f64 / seconds / 1e6;
    println!(
        "{pattern}: {} events, {} MB, {} findings",
        reader.events(),
        bytes >> 20,
        report.findings.len()
    );
    println!("reading alone: {:.1} million events/s", rate(reading));
    println!("checking:      {:.1} million events/s", rate(checking));
    println!(
        "peak memory:   {} MB ({} MB before checking)",
        peak_memory() >> 10,
        before >> 10
    );
    Ok(())
}

fn generate(path: &std::path::Path, pattern: &str, events: u64) -> Result<(), Box<dyn std::error::Error>> {
    let mut writer = TraceWriter::create(path, &Header::default())?;
    let module = writer.module(&Module {
        path: "/no/app".into(),
        build_id: vec![1],
        locked_sites: 0,
        place: None,
    })?;
    let size = 1 << 30;
    let file = writer.file(&PmFile {
        path: "/pm/pool".into(),
        size,
        created: false,
        kind: PmFileKind::File,
    })?;
    let mut stacks = Vec::new();
    for address in 1..1000 {
        stacks.push(writer.stack(&[Frame {
            module: Some(module),
            address,
        }])?);
    }
    let process = ProcessId(0);
    let start = EventKind::ProcessStart {
        process,
        pid: 1,
        parent: None,
        executable: "/no/app",
    };
    writer.event(ThreadId(0), StackId(0), &start)?;
    for thread in 0..2 {
        writer.event(
            ThreadId(thread),
            StackId(0),
            &EventKind::ThreadStart { process, os_id: 1 },
        )?;
    }
    let mapped = EventKind::Map {
        file,
        address: 1 << 40,
        offset: 0,
        len: 1 << 40,
        writable: true,
    };
    writer.event(ThreadId(0), StackId(0), &mapped)?;
    let sfence = EventKind::Fence {
        kind: FenceKind::Sfence,
    };
    let mut random = 88172645463325252u64;
    let mut next_random = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    let data = [7; 32];
    let mut line = 0;
    while writer.events() < events {
        let r = next_random();
        let thread = ThreadId((r >> 60) as u32 & 1);
        let stack = |n: u64| stacks[(n % 900) as usize];
        match pattern {
            "mixed" => {
                let object = (r >> 8) % (size / 256) * 256;
                let stores = 1 + r % 6;
                for i in 0..stores {
                    let at = PmAddress {
                        file,
                        offset: object + i * 24,
                    };
                    let store = EventKind::Store {
                        at,
                        data: &data[..8],
                        flags: StoreFlags::default(),
                    };
                    writer.event(thread, stack(r + i), &store)?;
                }
                for line in object / 64..=(object + (stores - 1) * 24) / 64 {
                    let at = PmAddress {
                        file,
                        offset: line * 64,
                    };
                    writer.event(
                        thread,
                        stack(r + 10),
                        &EventKind::Flush {
                            at,
                            kind: FlushKind::Clwb,
                        },
                    )?;
                }
                writer.event(thread, stack(r + 11), &sfence)?;
            }
            "fill" | "dirty" => {
                let flags = StoreFlags {
                    nontemporal: pattern == "fill",
                    ..StoreFlags::default()
                };
                for half in 0..2 {
                    let at = PmAddress {
                        file,
                        offset: line * 64 + half * 32,
                    };
                    writer.event(ThreadId(0), stack(1), &EventKind::Store { at, data: &data, flags })?;
                }
                line += 1;
            }
            _ => return Err(format!("no pattern `{pattern}`: mixed, fill or dirty").into()),
        }
    }
    writer.event(ThreadId(0), stacks[0], &sfence)?;
    writer.finish(ProgramEnd {
        status: Some(0),
        ..ProgramEnd::default()
    })?;
    Ok(())
}

/// Of this process, so far. It does not depend on what else the machine does.
fn processor_seconds() -> f64 {
    let schedstat = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    schedstat
        .split_whitespace()
        .next()
        .and_then(|ns| ns.parse::<f64>().ok())
        .unwrap_or(0.0)
        / 1e9
}

/// In KB.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    line.and_then(|line| line.split_whitespace().nth(1))
        .and_then(|kb| kb.parse().ok())
        .unwrap_or(0)
}
