//! Where `crashproof-cc` is not like clang, and what it does when something is wrong.

use crate::support;

use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};

use support::{Folder, cc, stderr, stdout};

#[test]
fn help_teaches() {
    let folder = Folder::new();
    let help = folder.done(cc(), &["--help"]);
    for word in ["CRASHPROOF_CLANG", "./configure CC=", "clang-19 --help"] {
        assert!(help.contains(word), "{help}");
    }
}

#[test]
fn link_time_optimisation_is_left_out_with_one_note() {
    let folder = Folder::new();
    let output = folder.run(
        cc(),
        &[
            "-flto=thin",
            "-ffat-lto-objects",
            "-O2",
            "-o",
            "program",
            "main.c",
            "part.c",
        ],
    );
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(stderr(&output).matches("note:").count(), 1, "{}", stderr(&output));
    assert!(stderr(&output).contains("-flto"));
    assert_eq!(folder.done(folder.path("program"), &[]), "sum 42\n");
    assert!(folder.section("program", ".crashproof.bc").is_some());
}

#[test]
fn other_machines_are_left_to_clang() {
    let folder = Folder::new();
    let output = folder.run(cc(), &["--target=bpf", "-O2", "-c", "broken.c", "-Dundeclared=1"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("code for bpf is not instrumented"),
        "{}",
        stderr(&output)
    );
    assert!(folder.section("broken.o", ".crashproof.bc").is_none());
}

#[test]
fn debug_information_and_frame_pointers_are_always_there() {
    let folder = Folder::new();
    for options in [
        &["-O2"][..],
        &["-O2", "-g0"],
        &["-O2", "-g1", "-fomit-frame-pointer"],
        &["-O0"],
    ] {
        let arguments: Vec<&str> = options.iter().copied().chain(["-c", "part.c"]).collect();
        folder.cc(&arguments);
        assert!(folder.section("part.o", ".debug_info").is_some(), "{options:?}");
        let text = folder.section("part.o", ".text").unwrap();
        // push %rbp; mov %rsp,%rbp
        assert!(
            text.windows(4).any(|bytes| bytes == [0x55, 0x48, 0x89, 0xe5]),
            "{options:?}"
        );
    }
}

#[test]
fn without_clang_it_says_what_to_install() {
    let folder = Folder::new();
    let output = folder
        .command(cc())
        .env("CRASHPROOF_CLANG", "/nowhere/clang")
        .args(["-c", "part.c"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = stderr(&output);
    assert!(
        said.contains("/nowhere/clang") && said.contains("apt-get install clang-19"),
        "{said}"
    );

    let output = folder
        .command(cc())
        .env("CRASHPROOF_CLANG", "/bin/false")
        .args(["-c", "part.c"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn the_clang_of_the_environment_is_used() {
    let folder = Folder::new();
    let path = std::env::split_paths(&std::env::var_os("PATH").unwrap())
        .map(|folder| folder.join(support::CLANG))
        .find(|path| path.exists())
        .unwrap();
    let output = folder
        .command(cc())
        .env("CRASHPROOF_CLANG", &path)
        .env("PATH", "/usr/bin:/bin")
        .args(["-c", "part.c"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let output = folder
        .command(cc())
        .env("CRASHPROOF_CLANG", "")
        .arg("--version")
        .output()
        .unwrap();
    assert!(stdout(&output).contains("clang version 19"));
}

#[test]
fn temporary_files_that_cannot_be_made() {
    let folder = Folder::new();
    let output = folder
        .command(cc())
        .env("TMPDIR", "/nowhere")
        .args(["-c", "part.c"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("temporary folder in /nowhere"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn compilation_database() {
    let folder = Folder::new();
    folder.cc(&["-MJ", "all.json", "-DA=\"b\"", "-c", "main.c", "part.c"]);
    let text = String::from_utf8(folder.read("all.json")).unwrap();
    let entries: Vec<serde_json::Value> = text
        .lines()
        .map(|line| serde_json::from_str(line.trim_end_matches(',')).unwrap())
        .collect();
    let seen: Vec<_> = entries
        .iter()
        .map(|entry| (entry["file"].as_str(), entry["output"].as_str()))
        .collect();
    assert_eq!(
        seen,
        [(Some("main.c"), Some("main.o")), (Some("part.c"), Some("part.o"))]
    );
    assert_eq!(entries[0]["arguments"][1], "-DA=\"b\"");
}

/// Interrupted while clang reads its input, it ends by the signal, and nothing is left.
#[test]
fn interrupts() {
    use std::os::unix::process::CommandExt;
    use std::process::Stdio;
    let folder = Folder::new();
    for signal in [libc::SIGTERM, libc::SIGINT] {
        let mut command = folder.command(cc());
        command
            .args(["-x", "c", "-c", "-o", "never.o", "-"])
            .stdin(Stdio::piped());
        // What the caller ignores (nohup, a job in the background) is not ignored by the compiler.
        // SAFETY: between fork and exec it only makes a system call.
        unsafe {
            command.pre_exec(move || {
                libc::signal(signal, libc::SIG_DFL);
                Ok(())
            })
        };
        let mut child = command.spawn().unwrap();
        // The front end runs once its folder is there; it waits for the input.
        let started = Instant::now();
        let tmp = folder.path("").parent().unwrap().join("tmp");
        let running = || {
            let entries = std::fs::read_dir(&tmp).unwrap().flatten();
            entries
                .into_iter()
                .any(|entry| entry.path().join("crashproof-0").exists())
        };
        while !running() {
            assert!(
                started.elapsed() < Duration::from_secs(60),
                "the compilation does not start"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
        // SAFETY: our own child, not waited for yet.
        unsafe {
            libc::kill(child.id() as i32, signal);
        }
        // The input stays open: only the signal ends it.
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            assert!(
                started.elapsed() < Duration::from_secs(60),
                "the signal does not end it"
            );
            std::thread::sleep(Duration::from_millis(5));
        };
        assert_eq!(status.signal(), Some(signal));
        folder.assert_clean();
        assert!(!folder.path("never.o").exists());
    }
}

#[test]
fn repair_mode_defines_inline_functions() {
    let folder = Folder::new();
    let build = |arguments: &[&str]| {
        let mut command = folder.command(cc());
        command.args(arguments).env("CRASHPROOF_REPAIR", "1");
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        assert_eq!(stderr(&output), "");
    };
    build(&["-O2", "-o", "inlined", "inline_one.c", "inline_two.c"]);
    assert_eq!(folder.done(folder.path("inlined"), &[]), "2 3 3 41 1\n");
    // What the source sees is not optimised.
    folder.write(
        "macros.c",
        "#if defined __OPTIMIZE__ || !defined __NO_INLINE__\n#error optimised\n#endif\nint x;\n",
    );
    build(&["-O2", "-c", "macros.c"]);
}
