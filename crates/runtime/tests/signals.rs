//! Programs that use signals, threads, processes and system calls in every way that could collide with the runtime's own.
//!
//! Each is compiled, run natively, and run again with the runtime preloaded. It must do the same (its checks are in its
//! source), and what the log replays to must be what the PM file holds.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

mod session;

fn programs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs")
}

/// Beside the test's own executable.
fn runtime() -> PathBuf {
    let test = std::env::current_exe().expect("the test's own path");
    let library = test.with_file_name("libcrashproof_runtime.so");
    assert!(library.exists(), "{} is not built", library.display());
    library
}

fn compile(directory: &Path, name: &str, flags: &[&str]) -> PathBuf {
    let executable = directory.join(name);
    let source = programs().join(name).with_extension("c");
    let status = Command::new("cc")
        .args([
            "-g",
            "-O1",
            "-Wall",
            "-Wno-deprecated-declarations",
            "-Wno-infinite-recursion",
            "-pthread",
            "-o",
        ])
        .args([executable.as_os_str(), source.as_os_str()])
        .args(flags)
        .status()
        .expect("running cc");
    assert!(status.success(), "{} does not compile", source.display());
    executable
}

fn run(executable: &Path, directory: &Path, environment: &[(&str, &OsStr)]) -> Output {
    Command::new(executable)
        .current_dir(directory)
        .env("PM_FILE", directory.join("pm"))
        .envs(environment.iter().copied())
        .output()
        .expect("running the program")
}

/// Runs the program both ways and returns what the runtime recorded.
fn behaves(name: &str) -> session::Recorded {
    behaves_built(name, &[])
}

fn behaves_built(name: &str, flags: &[&str]) -> session::Recorded {
    let directory = tempfile::tempdir().expect("a temporary directory");
    compile(directory.path(), "static_child", &["-static"]);
    let executable = compile(directory.path(), name, flags);
    let native = run(&executable, directory.path(), &[]);
    assert!(native.status.success(), "{name} fails natively: {native:?}");
    std::fs::remove_file(directory.path().join("pm")).expect("the program has made its PM file");

    let session = session::Session::create(&directory.path().join("session"));
    let environment = [
        ("LD_PRELOAD", runtime()),
        ("CRASHPROOF_SESSION", directory.path().join("session")),
    ];
    let environment = environment.each_ref().map(|(name, value)| (*name, value.as_os_str()));
    let (recorded, output) = session.record(|| run(&executable, directory.path(), &environment));
    assert_eq!(native.status, output.status, "{name}: {output:?}");
    assert_eq!(
        String::from_utf8_lossy(&native.stdout),
        String::from_utf8_lossy(&output.stdout),
        "{name}"
    );
    assert_eq!(recorded.mismatches, Vec::<String>::new(), "{name}");
    assert!(recorded.stores > 0, "{name} stored nothing");
    recorded
}

#[test]
fn masks_are_the_programs_and_stores_work_under_each() {
    assert_eq!(behaves("masks").incomplete, Vec::<String>::new());
}

#[test]
fn handlers_of_other_signals_store_and_get_their_stack() {
    assert_eq!(behaves("handlers").incomplete, Vec::<String>::new());
}

#[test]
fn faults_of_the_program_reach_its_handlers() {
    assert_eq!(behaves("faults").incomplete, Vec::<String>::new());
}

#[test]
fn deaths_have_the_right_signal() {
    assert_eq!(behaves("deaths").incomplete, Vec::<String>::new());
}

#[test]
fn threads_store_on_small_stacks_and_end_in_every_way() {
    assert_eq!(behaves("threads").incomplete, Vec::<String>::new());
}

/// What the runtime does for a thread takes more stack than the thread may have left.
#[test]
fn stacks_with_nothing_to_spare_do_not_overflow() {
    let recorded = behaves("small_stacks");
    assert_eq!(recorded.incomplete, Vec::<String>::new());
    let output = recorded
        .output
        .iter()
        .filter(|(fd, _)| *fd == 1)
        .flat_map(|(_, data)| data);
    let output = output.copied().collect::<Vec<u8>>();
    assert!(String::from_utf8_lossy(&output).contains("by write\nby writev\n"));
}

/// As Go does it, with its registers.
#[test]
fn code_whose_handlers_make_it_call_functions_keeps_its_registers() {
    assert_eq!(behaves("preempted").incomplete, Vec::<String>::new());
}

#[test]
fn system_calls_write_to_pm() {
    let recorded = behaves("syscalls");
    assert_eq!(recorded.incomplete, Vec::<String>::new());
    assert!(recorded.system_call_stores > 30, "{}", recorded.system_call_stores);
}

#[test]
fn system_calls_of_the_programs_own_read_into_pm() {
    let recorded = behaves("raw_reads");
    assert_eq!(recorded.incomplete, Vec::<String>::new());
    assert!(recorded.system_call_stores > 20, "{}", recorded.system_call_stores);
}

#[test]
fn a_mapping_that_no_function_made_is_reported() {
    let recorded = behaves("unseen");
    assert_eq!(recorded.incomplete.len(), 1, "{:?}", recorded.incomplete);
    assert!(recorded.incomplete[0].contains("does not go through libc"));
}

#[test]
fn blocking_calls_are_interrupted_restarted_and_left() {
    assert_eq!(behaves("interrupted").incomplete, Vec::<String>::new());
}

#[test]
fn mutexes_in_pm_work_and_robust_ones_are_reported() {
    let recorded = behaves("mutexes");
    assert_eq!(recorded.incomplete.len(), 1, "{:?}", recorded.incomplete);
    assert!(recorded.incomplete[0].contains("robust mutex"));
}

#[test]
fn children_of_every_kind_run() {
    assert_eq!(behaves("children").incomplete, Vec::<String>::new());
}

#[test]
fn signals_of_ours_that_others_send() {
    assert_eq!(behaves("sent").incomplete, Vec::<String>::new());
}

#[test]
fn signals_of_ours_that_others_send_to_new_children() {
    assert_eq!(behaves("sent_to_children").incomplete, Vec::<String>::new());
}

/// Filters are inherited, and the addresses in them are not the child's. Chance makes such a layout about once in a million programs.
#[test]
fn a_program_that_has_the_runtime_where_its_parent_has_libc() {
    assert_eq!(behaves("layouts").incomplete, Vec::<String>::new());
}

#[test]
fn what_is_blocked_ignored_and_pending_survives_an_exec() {
    assert_eq!(behaves("executed").incomplete, Vec::<String>::new());
}

#[test]
fn handlers_that_store_interrupt_an_exec() {
    assert_eq!(behaves("exec_interrupted").incomplete, Vec::<String>::new());
}

#[test]
fn children_of_vfork_leave_no_memory_behind() {
    assert_eq!(behaves("vfork_leaves").incomplete, Vec::<String>::new());
}

#[test]
fn a_vfork_child_keeps_its_mask_to_itself() {
    assert_eq!(behaves("vforked").incomplete, Vec::<String>::new());
}

/// `errno`, `dlerror`, masks, registers, floating-point state: all as natively.
#[test]
fn what_belongs_to_a_thread_stays_its_own() {
    let flags = ["-lm"];
    assert_eq!(behaves_built("own_state", &flags).incomplete, Vec::<String>::new());
}

/// The library of AddressSanitizer wants to be loaded before all others, the runtime too.
#[test]
fn a_program_with_address_sanitizer() {
    let flags = ["-fsanitize=address"];
    assert_eq!(behaves_built("sanitized", &flags).incomplete, Vec::<String>::new());
}

#[test]
fn a_program_that_executes_one_with_address_sanitizer() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let program = compile(directory.path(), "sanitized", &["-fsanitize=address"]);
    let run = |environment: &[(&str, &OsStr)]| {
        let mut shell = Command::new("sh");
        shell.args(["-c", "\"$0\" && echo \"$LD_PRELOAD\""]).arg(&program);
        shell.env("PM_FILE", directory.path().join("pm"));
        shell
            .envs(environment.iter().copied())
            .output()
            .expect("running a shell")
    };
    let session = session::Session::create(&directory.path().join("session"));
    let (runtime, name) = (runtime(), directory.path().join("session"));
    let environment = [
        ("LD_PRELOAD", runtime.as_os_str()),
        ("CRASHPROOF_SESSION", name.as_os_str()),
    ];
    let (recorded, output) = session.record(|| run(&environment));
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.ends_with(&format!("done\n{}\n", runtime.display())), "{said}");
    assert_eq!(recorded.mismatches, Vec::<String>::new());
    assert!(recorded.stores > 10 && recorded.incomplete.is_empty());
}

/// Its `memcpy` is for its own use.
#[test]
fn a_program_with_memory_functions_of_its_own() {
    let flags = ["-rdynamic", "-fno-builtin"];
    assert_eq!(behaves_built("own_memory", &flags).incomplete, Vec::<String>::new());
}

#[test]
fn all_of_it_at_once() {
    assert_eq!(behaves("storm").incomplete, Vec::<String>::new());
}

#[test]
fn output_is_recorded() {
    let recorded = behaves("output");
    let of = |fd: u32| {
        recorded
            .output
            .iter()
            .filter(|(f, _)| *f == fd)
            .flat_map(|(_, d)| d)
            .copied()
            .collect::<Vec<u8>>()
    };
    assert_eq!(String::from_utf8_lossy(&of(1)), "by printf\nby write\nby writev\n");
    assert_eq!(String::from_utf8_lossy(&of(2)), "to stderr\n");
    let sockets = recorded
        .output
        .iter()
        .filter(|(fd, _)| *fd > 2)
        .flat_map(|(_, data)| data)
        .copied()
        .collect::<Vec<u8>>();
    assert_eq!(
        String::from_utf8_lossy(&sockets),
        "send write writev sendto sendmsg sendmmsg "
    );
}
