//! Programs that are built with a sanitizer.

use crate::support;

const PROGRAM: &str = r#"
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int main(void) {
    int fd = open("pm", O_RDWR | O_CREAT, 0600);
    if (ftruncate(fd, 4096)) return 3;
    char *pm = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    char *own = malloc(8);
    memset(own, 1, 8);
    memcpy(pm, own, 8);
    free(own);
#ifdef FIXED
    msync(pm, 4096, MS_SYNC);
#endif
    return 0;
}
"#;

fn check(flags: &[&str], status: i32, words: &str) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (source, program) = (folder.path().join("program.c"), folder.path().join("program"));
    std::fs::write(&source, PROGRAM).unwrap();
    let name = source.display().to_string();
    support::compile("gcc", &[&["-g", "-O1", &name], flags].concat(), &program);
    let mut checker = support::crashproof();
    let checked = support::run(
        checker.current_dir(folder.path()).args(["check", "--"]).arg(&program),
        status,
    );
    let said = support::text(&checked.stderr) + &support::text(&checked.stdout);
    assert!(said.contains(words), "{flags:?}: {said}");
}

#[test]
fn address_sanitizer_is_checked_like_any_program() {
    check(&["-fsanitize=address"], 1, "missing-flush");
    check(&["-fsanitize=address", "-DFIXED"], 0, "no findings");
    check(&["-fsanitize=address,undefined", "-static-libasan"], 1, "missing-flush");
}

#[test]
fn thread_sanitizer_is_refused_before_it_runs() {
    check(&["-fsanitize=thread"], 2, "ThreadSanitizer");
    check(&["-fsanitize=thread", "-static-libtsan"], 2, "ThreadSanitizer");
}

const CHILD: &str = r#"
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

static char *pm;

static void *store(void *arg) {
    pm[0] = 1;
    return arg;
}

int main(int argc, char **argv) {
    if (argc > 1) {
        int fd = open(argv[1], O_RDWR | O_CREAT, 0600);
        if (ftruncate(fd, 4096)) return 3;
        pm = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (pm == MAP_FAILED) return 4;
        pthread_t thread;
        pthread_create(&thread, NULL, store, NULL);
        pthread_join(thread, NULL);
        printf("stored %d\n", pm[0]);
    }
    printf("child\n");
    return 5;
}
"#;

/// Children that have no room for views run as natively, and the trace says what it may lack.
fn check_child(compiler: &str, flags: &[&str], name: &str) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (source, program) = (folder.path().join("child.c"), folder.path().join("child"));
    std::fs::write(&source, CHILD).unwrap();
    let source = source.display().to_string();
    support::compile(
        compiler,
        &[&["-g", "-O1", "-pthread", &source], flags].concat(),
        &program,
    );
    for (arguments, maps) in [("", false), (" pm", true)] {
        let script = format!("./child{arguments}; echo status $?");
        let native = std::process::Command::new("sh")
            .args(["-c", &script])
            .current_dir(folder.path())
            .output()
            .unwrap();
        let native = support::text(&native.stdout);
        assert!(native.contains("status 5"), "{name}: {native}");
        let mut checker = support::crashproof();
        checker.current_dir(folder.path());
        // The shell stores to no file, so that there is nothing to conclude.
        let checked = checker.args(["check", "--", "sh", "-c", &script]).output().unwrap();
        assert_eq!(support::text(&checked.stdout), native, "{name}");
        let said = support::text(&checked.stderr);
        let reason = format!("child is built with {name}");
        assert_eq!(said.contains(&reason), maps, "{name}: {said}");
        assert_eq!(said.contains("trace complete"), !maps, "{name}: {said}");
    }
}

#[test]
fn children_with_thread_or_memory_sanitizer_run_unrecorded() {
    check_child("clang-19", &["-fsanitize=thread"], "ThreadSanitizer");
    check_child("gcc", &["-fsanitize=thread"], "ThreadSanitizer");
    check_child("gcc", &["-fsanitize=thread", "-static-libtsan"], "ThreadSanitizer");
    check_child("clang-19", &["-fsanitize=memory"], "MemorySanitizer");
}

const RACES: &str = r#"
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static int shared;
static char *place;

// Maps anew and uses what the other thread has used before, which ThreadSanitizer knows if it sees the call.
static void *in_turn(void *which) {
    usleep((long)which * 200000);
    char *at = mmap(place, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    at[0] = 1;
    return NULL;
}

static void *at_once(void *unused) {
    for (int i = 0; i < 100000; i++) shared++;
    return unused;
}

int main(int argc, char **argv) {
    pthread_t threads[2];
    place = mmap(NULL, 1 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (long i = 0; i < 2; i++) pthread_create(&threads[i], NULL, argc > 1 ? at_once : in_turn, (void *)i);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    printf("ended\n");
    fflush(stdout);
    _exit(0);
}
"#;

/// The sanitizer sees which memory is mapped anew, and when the process ends.
#[test]
fn thread_sanitizer_finds_in_a_child_what_it_finds_natively() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (source, program) = (folder.path().join("races.c"), folder.path().join("races"));
    std::fs::write(&source, RACES).unwrap();
    let source = source.display().to_string();
    for flags in [&[][..], &["-static-libtsan"]] {
        support::compile(
            "gcc",
            &[&["-g", "-O1", "-fsanitize=thread", "-pthread", &source], flags].concat(),
            &program,
        );
        for (script, status) in [("./races", 0), ("./races race", 66)] {
            let script = format!("{script} 2>&1; echo status $?");
            let mut shell = std::process::Command::new("sh");
            let native = shell.args(["-c", &script]).current_dir(folder.path()).output().unwrap();
            let native = support::text(&native.stdout);
            assert!(native.contains(&format!("status {status}")), "{native}");
            let mut checker = support::crashproof();
            checker.current_dir(folder.path());
            let checked = checker.args(["check", "--", "sh", "-c", &script]).output().unwrap();
            let recorded = support::text(&checked.stdout);
            assert_eq!(
                recorded.contains("data race"),
                native.contains("data race"),
                "{recorded}"
            );
            assert!(
                recorded.contains("ended\n") && recorded.ends_with(&format!("status {status}\n")),
                "{recorded}"
            );
        }
    }
}
