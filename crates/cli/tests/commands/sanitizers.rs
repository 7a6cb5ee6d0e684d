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
}
