//! What crashproof says when the machine lacks something: the cause, and a remedy that helps. Some of it takes root to bring about;
//! without root those tests are reported as ignored.

#[path = "../support/mod.rs"]
mod support;

use std::path::Path;
use std::process::Command;

use libtest_mimic::{Arguments, Trial};
use support::compile;
use support::place::{APPEND, Place, VERIFY, expect_words};

fn main() {
    // SAFETY: only returns a number of this process.
    let is_root = unsafe { libc::geteuid() } == 0;
    let trial = |name: &str, test: fn(), needs_root: bool| {
        let trial = Trial::test(name, move || {
            test();
            Ok(())
        });
        trial.with_ignored_flag(needs_root && !is_root)
    };
    let tests = vec![
        trial("a_full_state_directory", a_full_state_directory, true),
        trial("too_few_descriptors", too_few_descriptors, false),
        trial(
            "a_recovery_that_writes_where_it_cannot",
            a_recovery_that_writes_where_it_cannot,
            true,
        ),
    ];
    libtest_mimic::run(&Arguments::from_args(), tests).exit()
}

/// The trace of a crash test is in the state directory, for which `-o` does nothing. It was there before, of another run: that one must
/// not be crashed instead.
fn a_full_state_directory() {
    let place = Place::new();
    compile(
        "gcc",
        &["-O1", &support::source("bad_input/endings.c")],
        &place.path().join("endings"),
    );
    let crash = |size: &str, how: &str| {
        let mounted = "mkdir -p state && mount -t tmpfs -o size=$0 none state && exec \"$@\"";
        let inner = place.command();
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "sh", "-c", mounted, size])
            .arg(inner.get_program());
        command.args(["crash", "--allow-failure", "--strategy", "prefix", "--max-states", "20"]);
        command.args(["--recover", "cat q", "--", "./endings", "q", how]);
        for (name, value) in inner.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.current_dir(place.path()).output().unwrap()
    };
    let full = crash("256k", "much");
    assert_eq!(full.status.code(), Some(2), "{}", support::text(&full.stderr));
    expect_words(
        &full,
        &[
            "No space left on device",
            "free some space, or set XDG_STATE_HOME to a folder that has more",
        ],
    );
    let said = support::text(&full.stderr);
    assert!(!said.contains(" -o") && !said.contains("stored nothing"), "{said}");
    let enough = crash("64m", "exit");
    assert_eq!(enough.status.code(), Some(0), "{}", support::text(&enough.stderr));
}

/// Wherever crashproof runs out of them, that is what it says.
fn too_few_descriptors() {
    let place = Place::new();
    let crash = |files: u32| {
        let inner = place.command();
        let mut command = Command::new("sh");
        command
            .args(["-c", "ulimit -n $0; exec \"$@\"", &files.to_string()])
            .arg(inner.get_program());
        command
            .args(["crash", "--jobs", "2"])
            .args(VERIFY)
            .arg("--")
            .args(APPEND);
        for (name, value) in inner.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.current_dir(place.path()).output().unwrap()
    };
    let mut refused = 0;
    for files in (10..64).step_by(3) {
        let output = crash(files);
        let said = support::text(&output.stderr);
        match output.status.code() {
            Some(0) => continue,
            Some(2) => {}
            other => panic!("{other:?} with {files} files: {said}"),
        }
        // A program that cannot open its own files says so itself.
        if said.contains("ulimit -n") {
            refused += 1;
        } else {
            assert!(said.contains("Too many open files"), "{files} files: {said}");
        }
        assert!(
            !said.contains("still there") && !said.contains("does not answer"),
            "{files} files: {said}"
        );
        assert!(!said.contains("ordinary file system"), "{files} files: {said}");
    }
    assert!(refused > 0);
    assert_eq!(crash(256).status.code(), Some(0));
}

/// Without root, what belongs to other users cannot be changed in the sandbox; the kernel's words for that mislead.
fn a_recovery_that_writes_where_it_cannot() {
    let folder = tempfile::Builder::new()
        .prefix("crashproof-user-")
        .tempdir_in("/tmp")
        .unwrap();
    let place = |name: &str| folder.path().join(name);
    let open = |path: &Path| {
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    };
    for name in ["crashproof", "libcrashproof_runtime.so"] {
        std::fs::copy(crashproof_testing::programs().join(name), place(name)).unwrap();
    }
    let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/demo/event_log.c");
    let demo = demo.display().to_string();
    compile("gcc", &["-g", "-O1", "-mclwb", &demo], &place("event_log"));
    for name in ["home", "others"] {
        std::fs::create_dir(place(name)).unwrap();
        open(&place(name));
    }
    open(folder.path());
    let output = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .args([
            "./crashproof",
            "crash",
            "--recover",
            "echo x > others/new",
            "--",
            "./event_log",
            "log",
        ])
        .env("HOME", place("home"))
        .env_remove("XDG_STATE_HOME")
        .current_dir(folder.path())
        .output()
        .unwrap();
    let said = support::text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains("it cannot change files or folders that belong to other users"),
        "{said}"
    );
}
