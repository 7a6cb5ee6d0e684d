//! The key-value server of `examples/kv`: right as it is written, wrong in many places without its flushes.

use crate::support;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use serde_json::Value;
use support::{crashproof, run, text};
use tempfile::TempDir;

/// The server, the load generator and the tree without flushes, built once in a folder of their own.
fn built() -> &'static Path {
    static FOLDER: OnceLock<TempDir> = OnceLock::new();
    FOLDER.get_or_init(build).path()
}

fn build() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/kv");
    for entry in std::fs::read_dir(sources).unwrap() {
        let path = entry.unwrap().path();
        let is_source = path
            .extension()
            .is_some_and(|extension| extension == "c" || extension == "h");
        if is_source || path.ends_with("Makefile") {
            std::fs::copy(&path, folder.path().join(path.file_name().unwrap())).unwrap();
        }
    }
    let flags = "CFLAGS=-O1 -g -Wall -Wextra -Werror";
    run(
        Command::new("make")
            .args(["-s", "all", "flush-free", flags])
            .current_dir(folder.path()),
        0,
    );
    let flush_free = folder.path().join("flush-free");
    run(
        Command::new("make")
            .args(["-s", "kv-server", flags])
            .current_dir(flush_free),
        0,
    );
    folder
}

fn script(folder: &Path, options: &[&str]) -> PathBuf {
    let path = folder.join("script");
    let mut load = Command::new(built().join("kv-load"));
    let printed = run(load.arg("--print").args(options).args(["load", "all"]), 0);
    std::fs::write(&path, printed.stdout).unwrap();
    path
}

fn check(server: &Path, pool: &Path, script: &Path, status: i32) -> (Vec<u8>, Value) {
    let report = pool.with_extension("json");
    let mut command = crashproof();
    command
        .args(["check", "--json"])
        .arg(&report)
        .arg("--")
        .arg(server)
        .arg(pool)
        .arg("--script")
        .arg(script);
    let output = run(&mut command, status);
    (
        output.stdout,
        serde_json::from_slice(&std::fs::read(report).unwrap()).unwrap(),
    )
}

#[test]
fn the_hand_made_server_is_clean_and_the_flush_free_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let (built, path) = (built(), folder.path());
    let script = script(path, &["--records", "40", "--operations", "300"]);
    let (replies, report) = check(&built.join("kv-server"), &path.join("pool"), &script, 0);
    assert_eq!(report["findings"], serde_json::json!([]));
    assert_eq!(report["trace"]["complete"], true);
    run(
        Command::new(built.join("kv-server"))
            .arg(path.join("pool"))
            .arg("--verify")
            .arg(&script),
        0,
    );

    let server = built.join("flush-free/kv-server");
    let (replies_without, report) = check(&server, &path.join("pool-without"), &script, 1);
    assert_eq!(text(&replies), text(&replies_without));
    let missing = report["findings"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|finding| finding["kind"] == "missing-flush");
    // Strings, entries, tables, list nodes, the log: the least is one for each.
    assert!(missing.count() >= 20, "{report:#}");
}

#[test]
fn the_hand_made_server_survives_crashes() {
    let folder = tempfile::tempdir().unwrap();
    let (built, path) = (built(), folder.path());
    let script = script(path, &["--records", "20", "--value", "100", "--operations", "40"]);
    let server = built.join("kv-server").display().to_string();
    let pool = path.join("pool").display().to_string();
    run(
        Command::new(&server).args([&pool, "--size", "1", "--script", "/dev/null"]),
        0,
    );
    let mut command = crashproof();
    command.current_dir(path).env("XDG_STATE_HOME", path.join("state"));
    command.args(["crash", "--jobs", "1", "--max-states", "400", "--recover"]);
    command.arg(format!("{server} {pool} --verify {}", script.display()));
    command.args(["--", &server, &pool, "--script"]).arg(&script);
    run(&mut command, 0);
}

#[test]
fn the_server_serves_sockets() {
    let folder = tempfile::tempdir().unwrap();
    let (built, path) = (built(), folder.path());
    let mut server = Command::new(built.join("kv-server"));
    server.arg(path.join("pool")).stdout(std::process::Stdio::piped());
    let mut server = server.spawn().unwrap();
    let mut first = String::new();
    let mut output = std::io::BufReader::new(server.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut output, &mut first).unwrap();
    let port = first.trim().strip_prefix("listening on ").unwrap();
    let mut load = Command::new(built.join("kv-load"));
    load.args(["--records", "200", "--operations", "200", "--depth", "8", port]);
    let lines = run(load.args(["load", "a", "b", "c", "d", "e", "f", "all"]), 0);
    assert_eq!(text(&lines.stdout).lines().count(), 8);
    let mut connection = std::net::TcpStream::connect(("127.0.0.1", port.parse().unwrap())).unwrap();
    std::io::Write::write_all(&mut connection, b"SHUTDOWN\n").unwrap();
    assert!(server.wait().unwrap().success());
    run(
        Command::new(built.join("kv-server"))
            .arg(path.join("pool"))
            .arg("--verify"),
        0,
    );
}
