//! The runtime has functions of PMDK's names. A program that looks for one finds what it would find without us.

use crate::support;

use std::process::Command;
use support::{compile, crashproof, run, source, text};

fn finds_the_same(flags: &[&str], words: &str) {
    let folder = tempfile::tempdir().unwrap();
    let [program, plugin] = ["program", "plugin.so"].map(|name| folder.path().join(name));
    let [of_program, of_plugin] = ["lookups/program.c", "lookups/plugin.c"].map(source);
    compile("gcc", &["-shared", "-fPIC", &of_plugin], &plugin);
    compile("gcc", &[&["-g", &of_program], flags].concat(), &program);
    let native = run(Command::new(&program).arg(folder.path().join("native")).arg(&plugin), 0);
    assert!(text(&native.stdout).contains(words), "{}", text(&native.stdout));
    // What it stored is persisted by functions of the library, wherever it got them from.
    let mut check = crashproof();
    check.args(["check", "--"]).arg(&program);
    let recorded = run(check.arg(folder.path().join("recorded")).arg(&plugin), 0);
    assert_eq!(text(&recorded.stdout), text(&native.stdout), "{flags:?}");
    let said = text(&recorded.stderr);
    assert!(
        said.contains("2 stores, 2 flushes, 2 fences; trace complete"),
        "{flags:?}: {said}"
    );
}

#[test]
fn functions_of_pmdk_are_not_there_without_the_library() {
    for flags in [&[][..], &["-no-pie"], &["-Wl,-z,now"], &["-Wl,-z,norelro"]] {
        finds_the_same(flags, "start: weak 0 0 0 0, found 0 0 0 0");
    }
}

#[test]
fn functions_of_pmdk_are_those_of_the_library_that_is_there() {
    let libpmem = ["-DLINKED", "-Wl,--no-as-needed", "-lpmem"];
    finds_the_same(&libpmem, "start: weak 1 0 0 1, found 1 1 0 0");
    let both = [&libpmem[..], &["-lpmemobj"]].concat();
    finds_the_same(&both, "start: weak 1 1 1 1, found 1 1 1 1");
}

#[test]
fn a_function_of_that_name_in_another_library_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let [program, library] = ["program", "libown.so"].map(|name| folder.path().join(name));
    let code = source("lookups/own.c");
    compile("gcc", &["-g", "-shared", "-fPIC", "-DLIBRARY", &code], &library);
    let library = library.display().to_string();
    compile("gcc", &["-g", &code, "-Wl,--no-as-needed", &library], &program);
    let native = run(&mut Command::new(&program), 0);
    assert_eq!(text(&native.stdout), "own, none\n");
    let recorded = run(crashproof().args(["check", "--allow-no-stores", "--"]).arg(&program), 0);
    assert_eq!(text(&recorded.stdout), text(&native.stdout));
}

#[test]
fn calls_of_a_library_that_is_loaded_later_are_recognised() {
    let folder = tempfile::tempdir().unwrap();
    let [program, plugin, pool] = ["program", "plugin.so", "pool"].map(|name| folder.path().join(name));
    let code = source("lookups/later.c");
    compile("gcc", &["-g", "-shared", "-fPIC", "-DPLUGIN", &code, "-lpmem"], &plugin);
    compile("gcc", &["-g", &code], &program);
    let mut check = crashproof();
    let checked = run(check.args(["check", "--"]).args([&program, &pool, &plugin]), 1);
    let said = text(&checked.stdout) + &text(&checked.stderr);
    for words in ["flush, called as `pmem_persist`", "fence, called as `pmem_drain`"] {
        assert!(said.contains(words), "{said}");
    }
}
