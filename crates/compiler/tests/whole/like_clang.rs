//! The same command line for clang and for `crashproof-cc`: the same exit status, words, and files.

use crate::support;

use std::collections::BTreeMap;
use std::process::Output;

use support::{CLANG, Folder, cc, stderr, stdout};

#[derive(Clone, Copy, PartialEq)]
enum Mode {
    C,
    Cpp,
}

struct Ran {
    output: Output,
    /// What was made.
    files: BTreeMap<String, Vec<u8>>,
}

fn ran(folder: &Folder, program: &std::ffi::OsStr, first: &[&str], arguments: &[&str], input: &[u8]) -> Ran {
    let before = folder.files();
    let all: Vec<&str> = first.iter().chain(arguments).copied().collect();
    let output = folder.with_input(program, &all, input);
    let mut files = folder.files();
    files.retain(|name, content| before.get(name) != Some(content));
    folder.assert_clean();
    Ran { output, files }
}

/// Text in which a file's content must be that of clang's.
fn is_text(name: &str) -> bool {
    [".d", ".i", ".ii", ".dep", ".txt"]
        .iter()
        .any(|ending| name.ends_with(ending))
}

/// Compares what both do in fresh folders; gives what ours did for further looks.
fn same_given(mode: Mode, arguments: &[&str], input: &[u8], prepare: &dyn Fn(&Folder)) -> (Folder, Output) {
    let (theirs_folder, ours_folder) = (Folder::new(), Folder::new());
    prepare(&theirs_folder);
    prepare(&ours_folder);
    let cpp = ours_folder.cpp();
    let (first, program): (&[&str], &std::ffi::OsStr) = match mode {
        Mode::C => (&[], cc().as_ref()),
        Mode::Cpp => (&["--driver-mode=g++"], cpp.as_os_str()),
    };
    let theirs = ran(&theirs_folder, CLANG.as_ref(), first, arguments, input);
    let ours = ran(&ours_folder, program, &[], arguments, input);
    // The folders differ in name.
    let name = |folder: &Folder| folder.path("").parent().unwrap().display().to_string();
    let plain = |text: String, folder: &Folder| text.replace(&name(folder), "FOLDER");
    assert_eq!(
        ours.output.status.code(),
        theirs.output.status.code(),
        "{arguments:?}: {}",
        stderr(&ours.output)
    );
    assert_eq!(
        plain(stderr(&ours.output), &ours_folder),
        plain(stderr(&theirs.output), &theirs_folder),
        "{arguments:?}"
    );
    if !arguments.contains(&"-S") {
        assert_eq!(
            plain(stdout(&ours.output), &ours_folder),
            plain(stdout(&theirs.output), &theirs_folder),
            "{arguments:?}"
        );
    }
    assert_eq!(
        ours.files.keys().collect::<Vec<_>>(),
        theirs.files.keys().collect::<Vec<_>>(),
        "{arguments:?}"
    );
    for (file, content) in ours.files.iter().filter(|(file, _)| is_text(file)) {
        let text = |content: &[u8], folder| plain(String::from_utf8_lossy(content).into_owned(), folder);
        assert_eq!(
            text(content, &ours_folder),
            text(&theirs.files[file], &theirs_folder),
            "{arguments:?}: {file}"
        );
    }
    (ours_folder, ours.output)
}

fn same(arguments: &[&str]) -> (Folder, Output) {
    same_given(Mode::C, arguments, b"", &|_| {})
}

fn same_cpp(arguments: &[&str]) -> (Folder, Output) {
    same_given(Mode::Cpp, arguments, b"", &|_| {})
}

/// A program that prints the sum.
fn prints(folder: &Folder, program: &str, expected: &str) {
    assert_eq!(folder.done(folder.path(program), &[]), expected);
}

#[test]
fn objects() {
    for level in ["-O0", "-O1", "-O2", "-O3", "-Os", "-Oz", "-Og", "-Ofast", "-O"] {
        same(&[level, "-c", "part.c", "-Wno-deprecated"]);
    }
    same(&["-c", "part.c", "-o", "objects/other.o"]);
    same(&["-c", "part.c", "-oobjects/other.o"]);
    same(&["-c", "part.c", "main.c"]);
    same(&["-g3", "-gdwarf-4", "-c", "part.c"]);
    same(&["-g0", "-c", "part.c"]);
    same(&["-c", "part.c", "-o", "/dev/null"]);
    same(&[
        "-std=gnu17",
        "-fPIC",
        "-fvisibility=hidden",
        "-march=x86-64-v3",
        "-pthread",
        "-c",
        "part.c",
    ]);
    same(&["-fno-integrated-as", "-c", "part.c"]);
    same(&[
        "-fstack-protector-strong",
        "-D_FORTIFY_SOURCE=2",
        "-O2",
        "-fcf-protection",
        "-c",
        "main.c",
    ]);
    same(&["-ffunction-sections", "-fdata-sections", "-fno-plt", "-c", "main.c"]);
    same(&["-gsplit-dwarf", "-g", "-c", "part.c"]);
    same(&["-x", "c", "-c", "part.c", "-x", "none"]);
}

#[test]
fn programs() {
    let (folder, _) = same(&["main.c", "part.c"]);
    prints(&folder, "a.out", "sum 42\n");
    let (folder, _) = same(&["-O2", "-DGREETING=\"a b\"", "-o", "program", "main.c", "part.c", "-lm"]);
    prints(&folder, "program", "a b 42\n");
    let (folder, _) = same(&["-O2", "-o", "program", "callers.c", "plain.s", "macro.S"]);
    prints(&folder, "program", "");
    let (folder, _) = same(&["-static", "-O1", "-o", "program", "main.c", "part.c"]);
    prints(&folder, "program", "sum 42\n");
    let (folder, _) = same(&[
        "-fsanitize=undefined",
        "-fno-sanitize-recover",
        "-o",
        "program",
        "main.c",
        "part.c",
    ]);
    prints(&folder, "program", "sum 42\n");
    let (folder, _) = same_cpp(&["-O2", "-o", "program", "thrower.cpp"]);
    prints(&folder, "program", "gone first\nthrown\n");
    same_cpp(&["-std=c++20", "-c", "thrower.cpp", "part.c"]);
}

#[test]
fn steps_of_a_build() {
    let folder = Folder::new();
    folder.cc(&["-O2", "-fPIC", "-c", "part.c", "-o", "objects/part.o"]);
    folder.done("ar", &["rcs", "libpart.a", "objects/part.o"]);
    folder.cc(&["-shared", "-o", "libpart.so", "objects/part.o"]);
    folder.cc(&["-o", "static", "main.c", "libpart.a"]);
    folder.cc(&["-o", "dynamic", "main.c", "-L.", "-l:libpart.so", "-Wl,-rpath,$ORIGIN"]);
    folder.cc(&["-r", "-o", "relocatable.o", "objects/part.o"]);
    folder.cc(&["-o", "partial", "relocatable.o", "main.c"]);
    for program in ["static", "dynamic", "partial"] {
        prints(&folder, program, "sum 42\n");
    }
    folder.assert_clean();
}

#[test]
fn other_outputs() {
    let (folder, _) = same(&["-S", "-O2", "part.c"]);
    assert!(String::from_utf8_lossy(&folder.read("part.s")).contains("part_add:"));
    let (folder, _) = same(&["-S", "main.c", "part.c"]);
    // The assembly needs no file that is gone.
    folder.cc(&["-o", "program", "main.s", "part.s"]);
    prints(&folder, "program", "sum 42\n");
    assert!(folder.section("program", ".crashproof.bc").is_some());
    let (_, output) = same(&["-S", "-o", "-", "part.c"]);
    assert!(stdout(&output).contains("part_add:"));

    same(&["-E", "part.c"]);
    same(&["-E", "-P", "-dM", "part.c"]);
    same(&["-E", "part.c", "-o", "part.i"]);
    same(&["-fsyntax-only", "part.c"]);
    same(&["-emit-llvm", "-c", "part.c"]);
    let (folder, _) = same(&["-emit-llvm", "-S", "main.c", "part.c"]);
    folder.cc(&["-o", "program", "main.ll", "part.ll"]);
    prints(&folder, "program", "sum 42\n");
    assert!(folder.section("program", ".crashproof.bc").is_some());

    for what in ["-save-temps", "-save-temps=obj"] {
        // With debug information clang's assembler warns of a checksum, so the words are not compared.
        let arguments = ["-g", what, "-c", "part.c", "-o", "objects/part.o"];
        let (theirs, ours) = (Folder::new(), Folder::new());
        theirs.done(CLANG, &arguments);
        ours.done(cc(), &arguments);
        assert!(theirs.files().keys().eq(ours.files().keys()));
        assert!(ours.section("objects/part.o", ".crashproof.bc").is_some());
    }
    same(&["-c", "plain.s", "macro.S"]);
}

#[test]
fn dependencies() {
    same(&["-M", "main.c"]);
    same(&["-MM", "main.c", "part.c"]);
    same(&["-MM", "-MF", "main.dep", "main.c"]);
    same(&["-MD", "-c", "main.c"]);
    same(&["-MMD", "-MP", "-c", "main.c", "-o", "objects/renamed.o"]);
    same(&[
        "-MMD",
        "-MT",
        "target",
        "-MF",
        "objects/main.dep",
        "-c",
        "main.c",
        "-o",
        "objects/main.o",
    ]);
    same(&["-MD", "-MQ", "$(target)", "-c", "main.c", "part.c"]);
    same(&["-MD", "-o", "program", "main.c", "part.c"]);
    same(&["-Wp,-MMD,objects/deps.d", "-c", "main.c"]);
    same(&["-MMD", "-c", "broken.c"]);
}

#[test]
fn input_from_stdin() {
    let source = b"int value(void) { return 1; }\n";
    let given = |arguments: &[&str], input: &[u8]| same_given(Mode::C, arguments, input, &|_| {});
    given(&["-x", "c", "-c", "-o", "value.o", "-"], source);
    given(&["-xc", "-c", "-"], source);
    given(&["-E", "-"], source);
    given(&["-x", "c", "-fsyntax-only", "-"], b"int x = ;\n");
    given(&["-x", "c", "-c", "-"], b"int x = ;\n");
    given(&["-dM", "-E", "-x", "c", "/dev/null"], b"");
    given(&["-x", "assembler", "-c", "-o", "nothing.o", "-"], b"nop\n");
    same_given(
        Mode::Cpp,
        &["-x", "c++", "-c", "-o", "value.o", "-"],
        b"struct S { S(); }; S::S() {}\n",
        &|_| {},
    );
}

#[test]
fn response_files() {
    let prepare = |folder: &Folder| {
        folder.write("inner.rsp", "-o program \"-DGREETING=\\\"quoted words\\\"\"\n");
        folder.write("outer.rsp", "main.c part.c @inner.rsp");
    };
    let (folder, _) = same_given(Mode::C, &["-O1", "@outer.rsp"], b"", &prepare);
    prints(&folder, "program", "quoted words 42\n");
    same(&["@missing.rsp"]);
}

/// More objects than the kernel takes as arguments of one command.
#[test]
fn very_long_commands() {
    let folder = Folder::new();
    let mut words = String::from("-o program main.c part.c");
    for number in 0..12_000 {
        words.push_str(&format!(
            " -Wl,--defsym=a_symbol_with_a_long_name_that_fills_the_command_line_up_to_the_limit_{number}=0"
        ));
    }
    folder.write("all.rsp", &words);
    folder.cc(&["@all.rsp"]);
    prints(&folder, "program", "sum 42\n");
}

#[test]
fn diagnostics_appear_once() {
    for arguments in [
        &["-Wall", "-Wextra", "-c", "warned.c"][..],
        &["-Wall", "-Werror", "-c", "warned.c"],
        &["-O2", "-c", "broken.c"],
        &["-c", "broken.c", "part.c", "warned.c", "-Wall"],
        &["-o", "program", "main.c", "broken.c"],
        &["-c", "missing.c"],
        &["-c", "part.c", "-lm", "-Wl,-z,now"],
        &["-c", "part.c", "--no-such-option"],
        &["-c", "part.c", "-fno-such-option"],
        &["-c", "part.c", "main.c", "-o", "one.o"],
        &["-fdiagnostics-format=msvc", "-Wall", "-c", "warned.c"],
        &["-fcolor-diagnostics", "-Wall", "-c", "warned.c"],
        &["-c", "part.c", "-o", "no-such-folder/part.o"],
        &["-w", "-c", "warned.c"],
        &["-Weverything", "-Wno-unsafe-buffer-usage", "-O3", "-c", "warned.c"],
        &[],
    ] {
        same(arguments);
    }
    same_cpp(&["-c", "part.c", "-o", "part.o"]);
}

/// The object of an earlier compilation must not be linked after one that failed.
#[test]
fn a_failed_compilation_leaves_no_object() {
    let prepare = |folder: &Folder| folder.write("broken.o", "old");
    let (folder, _) = same_given(Mode::C, &["-c", "broken.c"], b"", &prepare);
    assert_eq!(folder.files().contains_key("broken.o"), {
        let theirs = Folder::new();
        prepare(&theirs);
        theirs.run(CLANG, &["-c", "broken.c"]);
        theirs.files().contains_key("broken.o")
    });
}

#[test]
fn a_failed_link_is_told() {
    let folder = Folder::new();
    let output = folder.run(cc(), &["-o", "program", "main.c"]);
    assert_eq!(
        output.status.code(),
        folder.run(CLANG, &["-o", "program", "main.c"]).status.code()
    );
    let said = stderr(&output);
    assert!(said.contains("undefined reference to `part_add'"), "{said}");
    assert!(
        said.contains("linker command failed with exit code 1 (use -v to see invocation)"),
        "{said}"
    );
    assert!(!folder.path("program").exists());
    folder.assert_clean();
}

#[test]
fn questions_about_the_compiler() {
    for arguments in [
        &["--version"][..],
        &["-dumpmachine"],
        &["-dumpversion"],
        &["-print-search-dirs"],
        &["-print-prog-name=ld"],
        &["-print-file-name=libc.so"],
        &["--print-multiarch"],
        &["-print-resource-dir"],
        &["-print-libgcc-file-name"],
        &["-print-multi-os-directory"],
        &["-v"],
        &["-V"],
        &["-qversion"],
        &["-E", "-v", "-x", "c", "/dev/null"],
    ] {
        same(arguments);
        same_cpp(arguments);
    }
}

/// Build systems learn the linker's folders from this.
#[test]
fn verbose_shows_the_commands() {
    let folder = Folder::new();
    let theirs = stderr(&folder.run(CLANG, &["-v", "main.c", "part.c"]));
    let ours = stderr(&folder.run(cc(), &["-v", "main.c", "part.c"]));
    let links = |text: &str| {
        let line = text
            .lines()
            .rfind(|line| line.contains("--eh-frame-hdr"))
            .unwrap()
            .to_owned();
        line.split_whitespace()
            .filter(|word| !word.ends_with(".o") || word.contains("crt"))
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!(links(&ours), links(&theirs));
    let shape = |text: &str| {
        text.lines()
            .filter(|line| !line.starts_with(" \""))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(shape(&ours), shape(&theirs));
}

#[test]
fn precompiled_headers() {
    let folder = Folder::new();
    folder.cc(&["-O2", "-x", "c-header", "part.h", "-o", "part.pch"]);
    folder.cc(&["-include-pch", "part.pch", "-O2", "-c", "part.c"]);
    folder.cc(&["-O2", "-o", "program", "part.o", "main.c"]);
    prints(&folder, "program", "sum 42\n");
}

#[test]
fn profiles_and_coverage() {
    let (folder, _) = same(&["--coverage", "-O0", "-o", "program", "main.c", "part.c"]);
    prints(&folder, "program", "sum 42\n");
    assert!(
        folder.files().keys().any(|name| name.ends_with(".gcda")),
        "{:?}",
        folder.files().keys()
    );
}

/// What configure scripts try.
#[test]
fn configure_probes() {
    // Does it work, what is the suffix of programs, are we cross compiling?
    let prepare = |folder: &Folder| folder.write("conftest.c", "int main(void)\n{\n\n  ;\n  return 0;\n}\n");
    let (folder, _) = same_given(Mode::C, &["-o", "conftest", "-g", "-O2", "conftest.c"], b"", &prepare);
    prints(&folder, "conftest", "");
    same_given(Mode::C, &["conftest.c"], b"", &prepare);
    // Which compiler is it?
    let identify = |folder: &Folder| {
        folder.write(
            "conftest.c",
            "#ifndef __GNUC__\n       choke me\n#endif\n#ifndef __clang__\n       choke me\n#endif\nint main(void) { return 0; }\n",
        );
    };
    same_given(Mode::C, &["-c", "conftest.c"], b"", &identify);
    // Is there a function, is there a header?
    let missing = |folder: &Folder| {
        folder.write(
            "conftest.c",
            "char no_such_function(void);\nint main(void) { return no_such_function(); }\n",
        );
    };
    let folder = Folder::new();
    missing(&folder);
    assert_eq!(
        folder.run(cc(), &["-o", "conftest", "conftest.c"]).status.code(),
        Some(1)
    );
    let header = |folder: &Folder| folder.write("conftest.c", "#include <no-such-header.h>\n");
    same_given(Mode::C, &["-E", "conftest.c"], b"", &header);
    same_given(Mode::C, &["-c", "conftest.c"], b"", &header);
    // Does it take -c and -o together, is a constant of this value?
    same_given(Mode::C, &["-c", "conftest.c", "-o", "conftest2.o"], b"", &prepare);
    let negative = |folder: &Folder| {
        folder.write(
            "conftest.c",
            "static int test_array[1 - 2 * !(sizeof(long) == 4)];\nint main(void) { return test_array[0]; }\n",
        );
    };
    same_given(Mode::C, &["-c", "-g", "-O2", "conftest.c"], b"", &negative);
    // What the bytes of the object say of the machine: the object holds this text once in its data.
    let endian = |folder: &Folder| {
        folder.write("conftest.c", "const char probe[] = \"INFO:\" \"probe[value]\";\nint main(int c, char **v) { (void)v; return probe[c]; }\n");
    };
    let (folder, _) = same_given(Mode::C, &["-O2", "conftest.c", "-o", "conftest"], b"", &endian);
    let bytes = folder.read("conftest");
    assert!(bytes.windows(17).any(|window| window == b"INFO:probe[value]"));
}
