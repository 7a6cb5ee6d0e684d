//! The cases.

use std::path::Path;
use std::time::Duration;

use crashproof_sandbox::{BuildError, Command, Ended, How, Options, PmFile, SandboxError, Track, Worker};

use super::support::*;

type Case = (&'static str, fn());

pub(crate) fn all() -> Vec<Case> {
    macro_rules! cases {
        ($($name:ident),* $(,)?) => { vec![$((stringify!($name), $name as fn())),*] };
    }
    cases![
        sandboxes_are_available,
        a_recovery_is_parked,
        exit_statuses_and_signals,
        the_image_is_what_was_written,
        files_grow_and_shrink,
        files_come_go_and_move,
        a_large_sparse_file_is_cheap,
        what_is_changed_is_put_back,
        what_is_changed_everywhere_is_put_back,
        what_is_prepared_is_there_in_each_run,
        what_is_changed_outside_is_put_back,
        folders_of_the_user_are_put_back,
        reads_are_told,
        runs_do_not_share_what_a_constructor_opened,
        the_checker_sees_what_the_recovery_left,
        output_is_captured,
        the_program_s_output_is_there,
        output_that_nobody_opens,
        descriptors_are_not_passed_on,
        hanging_recoveries_are_ended,
        fork_bombs_are_ended,
        daemons_are_ended,
        memory_and_disk_are_limited,
        all_memory_is_limited,
        a_hostile_recovery_reaches_nothing,
        rights_that_stay,
        recoveries_that_kill_their_parent,
        what_cannot_be_parked_is_started,
        programs_that_are_not_there,
        shell_commands_and_pipelines,
        two_servers_on_one_port,
        system_v_ipc_is_removed,
        another_command_with_a_shared_folder,
        a_runtime_at_an_awkward_path,
        nothing_is_left_running,
        nothing_is_left_running_after_kill_9,
        as_an_ordinary_user,
        errors_have_remedies,
    ]
}

/// Why the case cannot run on this machine: then it is ignored.
pub(crate) fn missing(name: &str) -> Option<&'static str> {
    let python = || std::process::Command::new("python3").arg("--version").output().is_ok();
    // SAFETY: only returns a number of this process.
    let root = || unsafe { libc::geteuid() } == 0;
    match name {
        "two_servers_on_one_port" => (!python()).then_some("python3 is not installed"),
        "as_an_ordinary_user" => (!root()).then_some("only root can become an ordinary user"),
        _ => None,
    }
}

/// Parked, and a process for each run.
fn both_ways(options: &Options, test: impl Fn(&mut Worker, bool)) {
    for no_server in [false, true] {
        let options = Options {
            no_server,
            ..options.clone()
        };
        let mut worker = start(&options);
        assert_eq!(*worker.how() == How::Parked, !no_server, "{:?}", worker.how());
        test(&mut worker, no_server);
    }
}

fn succeeds(worker: &mut Worker, what: &str) {
    let run = run(worker);
    assert!(run.recovery.succeeded(), "{what}: {:?}", run.recovery);
}

fn sandboxes_are_available() {
    crashproof_sandbox::available().unwrap();
}

fn a_recovery_is_parked() {
    let place = Place::new();
    let worker = start(&place.options(place.recovery("write", "")));
    assert_eq!(*worker.how(), How::Parked);
}

fn exit_statuses_and_signals() {
    let place = Place::new();
    for status in [0, 1, 2, 126, 127, 255] {
        both_ways(
            &place.options(place.recovery("exit", &status.to_string())),
            |worker, _| {
                let run = run(worker);
                assert_eq!((run.recovery.status, run.recovery.signal), (Some(status), None));
                assert!(!run.wrote);
            },
        );
    }
    for signal in [
        libc::SIGABRT,
        libc::SIGSEGV,
        libc::SIGKILL,
        libc::SIGTERM,
        libc::SIGTRAP,
        libc::SIGPIPE,
    ] {
        both_ways(
            &place.options(place.recovery("die", &signal.to_string())),
            |worker, _| {
                for _ in 0..2 {
                    let run = run(worker);
                    assert_eq!((run.recovery.status, run.recovery.signal), (None, Some(signal)));
                }
            },
        );
    }
}

fn the_image_is_what_was_written() {
    let place = Place::new();
    both_ways(&place.options(place.recovery("read", "7")), |worker, _| {
        assert_eq!(run(worker).recovery.status, Some(1));
        worker.write(0, SIZE / 2, &[7]);
        succeeds(worker, "the byte is 7");
        worker.write(0, SIZE / 2, &[8]);
        assert_eq!(run(worker).recovery.status, Some(1));
        // Beyond the end it is cut off.
        worker.write(0, SIZE - 2, b"abc");
        let mut bytes = [1; 4];
        worker.read(0, SIZE - 3, &mut bytes);
        assert_eq!(&bytes, b"\0ab\0");
        worker.write(0, SIZE + 5, b"abc");
    });
    assert!(!place.pool().exists());
}

fn files_grow_and_shrink() {
    let place = Place::new();
    let size = |bytes: u64| {
        let pool = place.pool().display().to_string();
        Command::Shell(format!("test $(stat -c %s '{pool}') = {bytes}").into())
    };
    for new in [10, 4096, SIZE - 1, SIZE + 1, 3 * SIZE, 200 << 20] {
        let mut worker = start(&place.options(size(new)));
        worker.write(0, 5, &[1; 4096 * 3]);
        worker.resize(0, new).unwrap();
        succeeds(&mut worker, "the new size");
        worker.resize(0, 12).unwrap();
        worker.resize(0, new).unwrap();
        let mut bytes = [9; 10];
        worker.read(0, 7, &mut bytes);
        let kept = if new < 12 { 3 } else { 5 };
        assert!(
            bytes.iter().enumerate().all(|(i, &b)| b == u8::from(i < kept)),
            "{bytes:?}"
        );
        succeeds(&mut worker, "the new size");
        worker.resize(0, 0).unwrap();
        assert_eq!(run(&mut worker).recovery.status, Some(1));
        worker.resize(0, new).unwrap();
        succeeds(&mut worker, "the new size");
    }
}

fn files_come_go_and_move() {
    let place = Place::new();
    // The user's own file of that name is not touched, and not seen.
    std::fs::write(place.pool(), "the user's").unwrap();
    both_ways(&place.options(place.recovery("missing", "")), |worker, _| {
        assert_eq!(run(worker).recovery.status, Some(1));
        worker.place(0, None).unwrap();
        succeeds(worker, "there is no file");
        worker.write(0, SIZE / 2, &[7]);
        succeeds(worker, "there is no file");
        worker.place(0, Some(&place.pool())).unwrap();
        assert_eq!(run(worker).recovery.status, Some(1));
    });
    let mut options = place.options(place.recovery("read", "7"));
    options.files[0].path = place.path("new/folder/elsewhere");
    options.files[0].present = false;
    options.files.push(PmFile {
        path: place.pool(),
        size: 10,
        present: true,
    });
    both_ways(&options, |worker, _| {
        worker.write(0, SIZE / 2, &[7]);
        assert_ne!(run(worker).recovery.status, Some(0));
        worker.place(0, Some(&place.path("new/folder/elsewhere"))).unwrap();
        assert_ne!(run(worker).recovery.status, Some(0));
        // It replaces the other one, as a rename does.
        worker.place(0, Some(&place.pool())).unwrap();
        worker.place(1, None).unwrap();
        succeeds(worker, "the file has moved");
    });
    assert_eq!(std::fs::read(place.pool()).unwrap(), b"the user's");
    assert!(!place.path("new").exists());
}

fn a_large_sparse_file_is_cheap() {
    let place = Place::new();
    let mut options = place.options(place.recovery("write", ""));
    options.files[0].size = 1 << 40;
    both_ways(&options, |worker, _| {
        worker.write(0, 1 << 39, &[1; 10000]);
        worker.write(0, (1 << 40) - 1, &[1]);
        for _ in 0..3 {
            succeeds(worker, "a large file");
        }
        worker.compare().unwrap();
        assert_eq!(worker.doubtful(), 0);
    });
}

/// What a recovery may do to the PM file; each finds the image as it was, every time.
fn what_is_changed_is_put_back() {
    let place = Place::new();
    let moved = place.path("moved").display().to_string();
    for mode in [
        "write",
        "write-all",
        "pwrite",
        "punch",
        "truncate",
        "grow",
        "remove",
        "rename",
        "replace",
        "chmod",
        "close",
        "exec",
    ] {
        let options = place.options(place.recovery(mode, &moved));
        both_ways(&options, |worker, _| {
            worker.write(0, 5000, &[3; 5000]);
            for _ in 0..3 {
                let run = run(worker);
                assert!(run.recovery.succeeded(), "{mode}: {:?}", run.recovery);
                assert!(run.wrote, "{mode}");
            }
            worker.write(0, 6000, &[0; 100]);
            succeeds(worker, mode);
            worker.compare().unwrap();
            assert_eq!(worker.doubtful(), 0, "{mode}");
        });
        assert!(!place.pool().exists() && !Path::new(&moved).exists());
    }
}

/// So many pages that they are soon compared, and not noted one by one. The recovery looks whether the image is as it was.
fn what_is_changed_everywhere_is_put_back() {
    let place = Place::new();
    both_ways(
        &place.options(place.recovery("write-pages", "")),
        |worker, no_server| {
            // Starting a process takes its time.
            let runs: u8 = if no_server { 20 } else { 250 };
            for number in 0..runs {
                worker.write(0, 7 * 4096 + 1, &[number]);
                let pages = if number.is_multiple_of(64) { "2" } else { "60" };
                worker
                    .set_arguments(&[pages.into(), number.to_string().into()])
                    .unwrap();
                let run = run(worker);
                assert!(
                    run.recovery.succeeded() && run.wrote,
                    "run {number}: {:?}",
                    run.recovery
                );
            }
            worker.compare().unwrap();
            assert_eq!(worker.doubtful(), 0);
        },
    );
}

/// The program's function for the fork server is called once, with the arguments of the first run.
fn what_is_prepared_is_there_in_each_run() {
    let place = Place::new();
    both_ways(&place.options(place.recovery("prepared", "")), |worker, no_server| {
        for argument in ["first", "second", "third"] {
            worker.set_arguments(&[argument.into()]).unwrap();
            let printed = run(worker).recovery.stdout;
            let expected = if no_server { "0 -" } else { "1 first" };
            assert_eq!(String::from_utf8_lossy(&printed), format!("{expected} {argument}\n"));
        }
    });
}

fn what_is_changed_outside_is_put_back() {
    let place = Place::new();
    let users = place.path("user's file");
    std::fs::write(&users, "user").unwrap();
    let scratch = place.path("scratch").display().to_string();
    let temporary = format!("/tmp/crashproof-sandbox-test-{}", std::process::id());
    let in_root = format!("/crashproof-sandbox-test-{}", std::process::id());
    let shared = format!("/dev/shm/crashproof-sandbox-test-{}", std::process::id());
    let users_text = users.display().to_string();
    for (mode, other) in [
        ("scratch", &scratch),
        ("scratch", &temporary),
        ("scratch", &in_root),
        ("scratch", &shared),
        ("folder", &scratch),
        ("append", &users_text),
        ("overwrite", &users_text),
        ("unlink-other", &users_text),
    ] {
        both_ways(&place.options(place.recovery(mode, other)), |worker, _| {
            for _ in 0..4 {
                let run = run(worker);
                assert!(run.recovery.succeeded(), "{mode} {other}: {:?}", run.recovery);
            }
        });
        assert_eq!(std::fs::read(&users).unwrap(), b"user");
        for path in [&scratch, &temporary, &in_root, &shared] {
            assert!(!Path::new(path).exists(), "{path}");
        }
    }
}

fn folders_of_the_user_are_put_back() {
    let place = Place::new();
    let folder = place.path("user's folder");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("inner"), "user").unwrap();
    let mut options = place.options(place.recovery("remove-folder", &folder.display().to_string()));
    both_ways(&options, |worker, _| {
        worker.write(0, 9000, &[5]);
        for _ in 0..3 {
            succeeds(worker, "the folder is there again");
        }
    });
    options.recover = place.shell("write", "");
    assert_eq!(std::fs::read(folder.join("inner")).unwrap(), b"user");
}

fn reads_are_told() {
    use crashproof_sandbox::parse_unit;
    let place = Place::new();
    let mut options = place.options(place.recovery("read", "0"));
    options.track = Track::Reads;
    both_ways(&options, |worker, _| {
        let first = run(worker).touched.expect("reads are watched");
        assert_eq!(parse_unit(first[0]), (0, 0, 4096));
        assert_eq!(parse_unit(first[1]), (0, SIZE / 2, 4096));
        assert_eq!(run(worker).touched, Some(first));
    });
    options.fine = vec![(0, SIZE / 2)];
    both_ways(&options, |worker, _| {
        let touched = run(worker).touched.expect("reads are watched");
        assert_eq!(parse_unit(touched[1]), (0, SIZE / 2, 64));
    });
    options.recover = place.shell("read", "0");
    assert_eq!(run(&mut start(&options)).touched, None);
    // libc maps the file by itself, the kernel reads closed pages.
    for unseen in ["read-stream", "read-memory"] {
        options.recover = place.recovery(unseen, "0");
        both_ways(&options, |worker, _| {
            let run = run(worker);
            assert!(run.recovery.succeeded(), "{unseen}: {run:?}");
            assert_eq!(run.touched, None, "{unseen}");
        });
    }
}

fn runs_do_not_share_what_a_constructor_opened() {
    let place = Place::new();
    let input = place.path("input");
    std::fs::write(&input, "abcdefgh").unwrap();
    let input = input.to_str().unwrap();
    for (mode, parked) in [
        ("opened-file", true),
        ("opened-to-write", false),
        ("opened-pipe", false),
        ("opened-memory", false),
    ] {
        let mut worker = start(&place.options(place.recovery(mode, input)));
        match worker.how() {
            How::Parked => assert!(parked, "{mode}"),
            How::Started(reason) => assert!(!parked && reason.contains("would share"), "{mode}: {reason}"),
        }
        for _ in 0..3 {
            let run = run(&mut worker);
            assert_eq!(run.recovery.stdout, b"abcd", "{mode}: {run:?}");
        }
    }
}

fn the_checker_sees_what_the_recovery_left() {
    let place = Place::new();
    for check in [place.recovery("check", "5"), place.shell("check", "5")] {
        let mut options = place.options(place.recovery("write-ok", "5"));
        options.check = Some(check);
        both_ways(&options, |worker, _| {
            for _ in 0..2 {
                let run = run(worker);
                assert!(run.recovery.succeeded());
                assert_eq!(run.check.unwrap().status, Some(0));
            }
        });
        options.recover = place.recovery("write-ok", "6");
        both_ways(&options, |worker, _| {
            assert_eq!(run(worker).check.unwrap().status, Some(1));
        });
        options.recover = place.recovery("exit", "1");
        both_ways(&options, |worker, _| assert_eq!(run(worker).check, None));
    }
}

fn output_is_captured() {
    let place = Place::new();
    both_ways(&place.options(place.recovery("print", "10")), |worker, _| {
        for _ in 0..2 {
            let run = run(worker);
            assert_eq!(run.recovery.stdout, b"0123456789");
            assert_eq!(run.recovery.stderr, b"to stderr\n");
        }
    });
    both_ways(&place.options(place.recovery("print", "5000000")), |worker, _| {
        let run = run(worker);
        assert!(run.recovery.succeeded());
        assert_eq!(run.recovery.stdout.len(), 64 << 10);
    });
}

fn the_program_s_output_is_there() {
    let place = Place::new();
    both_ways(&place.options(place.recovery("output", "")), |worker, _| {
        for output in [
            "",
            "acknowledged 1\n",
            "acknowledged 1\nacknowledged 2\n",
            "ack",
            "other",
            "",
        ] {
            assert_eq!(
                worker.run(output.as_bytes()).unwrap().recovery.stdout,
                output.as_bytes()
            );
        }
    });
}

fn output_that_nobody_opens() {
    let place = Place::new();
    let mut worker = start(&place.options(place.recovery("write", "")));
    for _ in 0..3 {
        assert!(run(&mut worker).output_unread);
    }
    for command in ["exec 3< $CRASHPROOF_OUTPUT", "cat $CRASHPROOF_OUTPUT"] {
        let mut worker = start(&place.options(Command::Shell(command.into())));
        assert!(!run(&mut worker).output_unread, "{command}");
    }
}

fn descriptors_are_not_passed_on() {
    let place = Place::new();
    let opened = std::fs::File::open("/etc/passwd").unwrap();
    // SAFETY: a duplicate that stays open in what is executed, as a descriptor that was inherited does.
    let inherited = unsafe { libc::fcntl(std::os::fd::AsRawFd::as_raw_fd(&opened), libc::F_DUPFD, 77) };
    let command = format!("! test -e /proc/self/fd/{inherited}");
    let mut worker = start(&place.options(Command::Shell(command.into())));
    succeeds(&mut worker, "no such descriptor");
    // SAFETY: the duplicate from above.
    unsafe { libc::close(inherited) };
}

fn hanging_recoveries_are_ended() {
    let place = Place::new();
    let hanging = Ended {
        timed_out: true,
        ..Ended::default()
    };
    for mode in ["hang", "hang-stopped", "stop"] {
        both_ways(&place.options(place.recovery(mode, "")), |worker, _| {
            worker.set_time_limit(Duration::from_millis(100));
            for _ in 0..2 {
                assert_eq!(run(worker).recovery, hanging, "{mode}");
            }
        });
    }
    assert!(processes_with(&place.pool().display().to_string()).is_empty());
}

fn fork_bombs_are_ended() {
    let place = Place::new();
    let limit = std::fs::read_to_string("/proc/sys/kernel/pid_max").unwrap();
    both_ways(&place.options(place.recovery("fork-bomb", "")), |worker, _| {
        worker.set_time_limit(Duration::from_millis(100));
        assert!(run(worker).recovery.timed_out);
        assert!(run(worker).recovery.timed_out);
    });
    assert!(processes_with(&place.pool().display().to_string()).is_empty());
    assert_eq!(std::fs::read_to_string("/proc/sys/kernel/pid_max").unwrap(), limit);
}

fn daemons_are_ended() {
    let place = Place::new();
    both_ways(&place.options(place.recovery("daemon", "")), |worker, no_server| {
        for _ in 0..3 {
            succeeds(worker, "a daemon");
            // What is left is what was there before: the server.
            let left = processes_with(&place.pool().display().to_string());
            assert_eq!(left.len(), usize::from(!no_server), "{left:?}");
        }
        assert_eq!(*worker.how() == How::Parked, !no_server);
    });
}

fn memory_and_disk_are_limited() {
    let place = Place::new();
    let mut options = place.options(place.recovery("memory", ""));
    options.limits.memory = 100 << 20;
    both_ways(&options, |worker, _| assert_eq!(run(worker).recovery.status, Some(12)));
    let full = place.path("full").display().to_string();
    let mut options = place.options(place.recovery("disk", &full));
    options.limits.disk = 20 << 20;
    both_ways(&options, |worker, _| {
        worker.write(0, 5000, &[3; 5000]);
        for _ in 0..2 {
            assert_eq!(run(worker).recovery.status, Some(28));
        }
        // There is room for the PM file itself.
        worker.write(0, 0, &[0; SIZE as usize]);
        worker.write(0, 1, &[1; SIZE as usize - 1]);
        assert_eq!(run(worker).recovery.status, Some(28));
    });
}

/// What the processes of a run take together, however they take it.
fn all_memory_is_limited() {
    let place = Place::new();
    for how in ["memfd", "shared", "children", "awaited children", "System V"] {
        let mut options = place.options(place.recovery("hoard", how));
        options.limits.memory = 100 << 20;
        options.limits.disk = 20 << 20;
        both_ways(&options, |worker, _| {
            for _ in 0..2 {
                let run = run(worker);
                let ended = &run.recovery;
                // Refused (12), or ended and told why; also if only a child was ended, and its parent took no notice. A parent that
                // does not wait may end before its children take much.
                let told = String::from_utf8_lossy(&ended.stderr).contains("(--memory)");
                let refused = ended.status == Some(12);
                let ended_first = how == "children" && ended.status == Some(0) && !told;
                assert!(
                    refused || told && ended.signal == Some(9) || ended_first,
                    "{how}: {ended:?}"
                );
            }
        });
    }
    // What stays within the limit is left alone.
    let mut options = place.options(place.recovery("hoard", "memfd"));
    options.limits.memory = 900 << 20;
    let mut worker = start(&options);
    assert_eq!(run(&mut worker).recovery.status, Some(0));
}

/// Each promise that docs/crash.md makes of the sandbox.
fn a_hostile_recovery_reaches_nothing() {
    let place = Place::new();
    let attempts = [
        "host name",
        "mount proc",
        "mount sysfs",
        "remount",
        "unmount",
        "another root",
        "user namespace",
        "device",
        "clock",
        "supervisor's root",
        "supervisor's descriptors",
        "supervisor's memory",
        "parent's memory",
        "settings",
        "interrupts",
        "devices' settings",
        "control group",
        "file by handle",
        "module",
        "reboot",
        "priority",
        "limits",
        "key in the session's ring",
        "key in the user's ring",
        "request of a key",
        "clear of the user's ring",
        "keys by 32-bit calls",
        "new rights",
    ];
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    for attempt in attempts {
        both_ways(&place.options(place.recovery("refused", attempt)), |worker, _| {
            succeeds(worker, attempt);
        });
    }
    let mut worker = start(&place.options(Command::Shell("! hostname changed 2>/dev/null".into())));
    succeeds(&mut worker, "a shell command that changes the host's name");
    assert_eq!(std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap(), name);
}

/// What a recovery of root's can need, it has.
fn rights_that_stay() {
    // SAFETY: only returns a number of this process.
    if unsafe { libc::geteuid() } != 0 {
        return;
    }
    let place = Place::new();
    for attempt in ["owner", "user", "port", "itself"] {
        both_ways(&place.options(place.recovery("allowed", attempt)), |worker, _| {
            succeeds(worker, attempt);
        });
    }
}

/// The server is lost, but not the result.
fn recoveries_that_kill_their_parent() {
    let place = Place::new();
    for mode in ["kill-all", "kill-parent", "stop-parent"] {
        both_ways(&place.options(place.recovery(mode, "")), |worker, _| {
            worker.set_time_limit(Duration::from_millis(500));
            for _ in 0..5 {
                succeeds(worker, mode);
            }
            assert_ne!(*worker.how(), How::Parked, "{mode}");
        });
    }
    both_ways(&place.options(place.recovery("kill-group", "")), |worker, no_server| {
        for _ in 0..4 {
            assert_eq!(run(worker).recovery.signal, Some(libc::SIGKILL));
        }
        assert_eq!(*worker.how() == How::Parked, !no_server);
    });
}

fn what_cannot_be_parked_is_started() {
    let place = Place::new();
    let static_program = vec![static_program(), "write".into(), place.pool().into()];
    let mut worker = start(&place.options(Command::Direct(static_program)));
    assert!(matches!(worker.how(), How::Started(reason) if reason.contains("static")));
    for _ in 0..3 {
        let run = run(&mut worker);
        assert!(run.recovery.succeeded() && run.wrote, "{run:?}");
    }
    // A script is parked in its interpreter.
    let script = place.path("script");
    std::fs::write(
        &script,
        format!(
            "#!/bin/sh\n'{}' write '{}'\n",
            program().display(),
            place.pool().display()
        ),
    )
    .unwrap();
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let mut worker = start(&place.options(Command::Direct(vec![script.into()])));
    for _ in 0..3 {
        succeeds(&mut worker, "a script");
    }
}

fn programs_that_are_not_there() {
    let place = Place::new();
    for no_server in [false, true] {
        let command = Command::Direct(vec!["no-such-program".into()]);
        let options = Options {
            no_server,
            environment: vec![("PATH".into(), "/bin:/usr/bin".into())],
            ..place.options(command)
        };
        let error = Worker::start(&options)
            .and_then(|mut worker| worker.run(b""))
            .unwrap_err();
        assert!(
            matches!(
                &error,
                SandboxError::Build(BuildError::Start {
                    errno: libc::ENOENT,
                    ..
                })
            ),
            "{error}"
        );
    }
    let mut worker = start(&place.options(Command::Shell("no-such-program".into())));
    assert_eq!(run(&mut worker).recovery.status, Some(127));
}

fn shell_commands_and_pipelines() {
    let place = Place::new();
    let mut worker = start(&place.options(place.shell("write", "")));
    assert!(matches!(worker.how(), How::Started(_)));
    for _ in 0..2 {
        succeeds(&mut worker, "a shell command");
    }
    let text = "printf 'one\\ntwo\\n' | sort -r | tee copy | head -1; test -e copy && pwd";
    let mut worker = start(&place.options(Command::Shell(text.into())));
    let cwd = std::env::current_dir().unwrap();
    for _ in 0..2 {
        let run = run(&mut worker);
        let expected = format!("two\n{}\n", cwd.display());
        assert_eq!(String::from_utf8_lossy(&run.recovery.stdout), expected);
    }
    assert!(!cwd.join("copy").exists());
}

/// A server on a loopback port and its client, in two sandboxes at once.
fn two_servers_on_one_port() {
    let place = Place::new();
    let script = "python3 -c '
import socket, os, time
listener = socket.socket()
listener.bind((\"127.0.0.1\", 7777))
listener.listen()
if os.fork() == 0:
    while True:
        connection, _ = listener.accept()
        time.sleep(0.2)
        connection.sendall(b\"hello\")
        connection.close()
client = socket.create_connection((\"127.0.0.1\", 7777))
print(client.recv(5).decode())
'";
    let options = place.options(Command::Shell(script.into()));
    let work = || {
        let mut worker = start(&options);
        for _ in 0..2 {
            let run = run(&mut worker);
            assert_eq!(run.recovery.stdout, b"hello\n", "{:?}", run.recovery);
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(work);
        scope.spawn(work);
    });
}

fn system_v_ipc_is_removed() {
    let place = Place::new();
    both_ways(&place.options(place.recovery("ipc", "")), |worker, _| {
        for _ in 0..3 {
            succeeds(worker, "shared memory");
        }
    });
}

fn another_command_with_a_shared_folder() {
    let place = Place::new();
    let share = tempfile::tempdir().unwrap();
    let copy = share.path().join("copy");
    both_ways(&place.options(place.recovery("write", "")), |worker, _| {
        worker.write(0, SIZE / 2, b"content");
        let command = Command::Shell(
            format!(
                "cp '{pool}' '{}'; echo x > '{pool}'; echo y > '{}'; echo done",
                copy.display(),
                place.path("scratch").display(),
                pool = place.pool().display(),
            )
            .into(),
        );
        for _ in 0..2 {
            let ended = worker.run_other(&command, share.path()).unwrap();
            assert_eq!(ended.stdout, b"done\n", "{ended:?}");
            assert!(ended.succeeded());
            let copied = std::fs::read(&copy).unwrap();
            assert_eq!(&copied[SIZE as usize / 2..][..7], b"content");
            std::fs::remove_file(&copy).unwrap();
            succeeds(worker, "the image is as before");
        }
    });
    assert!(!place.path("scratch").exists());
}

fn a_runtime_at_an_awkward_path() {
    let place = Place::new();
    let mut options = place.options(place.recovery("write", ""));
    let runtime = place.path("run time: it's here.so");
    std::fs::copy(&options.runtime, &runtime).unwrap();
    options.runtime = runtime;
    let mut worker = start(&options);
    assert_eq!(*worker.how(), How::Parked);
    succeeds(&mut worker, "an awkward path");
}

fn nothing_is_left_running() {
    let place = Place::new();
    let mut worker = start(&place.options(place.recovery("daemon", "")));
    succeeds(&mut worker, "a daemon");
    drop(worker);
    assert!(processes_with(&place.pool().display().to_string()).is_empty());
    // A worker may outlive the thread that started it.
    let options = place.options(place.recovery("write", ""));
    let mut worker = std::thread::scope(|scope| scope.spawn(|| start(&options)).join().unwrap());
    succeeds(&mut worker, "in another thread");
}

/// For the next case: a process that starts a worker and runs a recovery that never ends.
pub(crate) fn run_for_ever(pool: &str) {
    let place = Place::new();
    let hang = Command::Direct(vec![program(), "hang".into(), pool.into()]);
    let mut options = place.options(hang);
    options.limits.time = Duration::from_secs(1000);
    run(&mut start(&options));
}

fn nothing_is_left_running_after_kill_9() {
    let place = Place::new();
    let pool = place.pool().display().to_string();
    let mut child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["run-for-ever", &pool])
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    // The process itself, the server, and the recovery.
    let all_there = comes_true(|| processes_with(&pool).len() == 3);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(all_there, "the recovery did not start");
    assert!(comes_true(|| processes_with(&pool).is_empty()));
}

fn comes_true(condition: impl Fn() -> bool) -> bool {
    (0..1000).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        condition()
    })
}

/// The cases again, without the rights of root.
fn as_an_ordinary_user() {
    // What an ordinary user can reach.
    let folder = tempfile::Builder::new()
        .prefix("sandbox-user-")
        .tempdir_in("/tmp")
        .unwrap();
    let copy = |from: &Path, name: &str| {
        let to = folder.path().join(name);
        std::fs::copy(from, &to).unwrap();
        to
    };
    let beside = folder.path().join("deps");
    std::fs::create_dir(&beside).unwrap();
    let this = copy(&std::env::current_exe().unwrap(), "deps/sandbox");
    copy(&runtime(), "libcrashproof_runtime.so");
    copy(Path::new(&program()), "recovery");
    copy(Path::new(&static_program()), "recovery-static");
    let tmp = folder.path().join("tmp");
    std::fs::create_dir(&tmp).unwrap();
    for path in [folder.path(), &beside, &tmp] {
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    }
    let output = std::process::Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(this)
        .args(["--skip", "as_an_ordinary_user", "--test-threads", "2"])
        .env("TMPDIR", &tmp)
        .env("HOME", &tmp)
        .env(PROGRAMS, folder.path())
        .current_dir(&tmp)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}\n{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

fn errors_have_remedies() {
    let place = Place::new();
    let options = place.options(place.recovery("write", ""));
    let fails = |options: Options| Worker::start(&options).err().expect("an error").to_string();
    let no_supervisor = fails(Options {
        supervisor: "/bin/true".into(),
        ..options.clone()
    });
    assert!(no_supervisor.contains("/bin/true does not answer"), "{no_supervisor}");
    let missing = fails(Options {
        supervisor: "/no/such/file".into(),
        ..options.clone()
    });
    assert!(missing.contains("is the crashproof program still there"), "{missing}");
    let mut in_proc = options.clone();
    in_proc.files[0].path = "/proc/pool".into();
    let message = fails(in_proc);
    assert!(message.contains("ordinary file system"), "{message}");
    let mut many = options;
    many.files = vec![many.files[0].clone(); 1000];
    assert!(fails(many).contains("narrow them with --pm"));
}
