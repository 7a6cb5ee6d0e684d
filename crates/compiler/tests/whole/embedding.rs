//! What is in the objects, and what becomes of it in archives, libraries and programs.

use crate::support;

use crashproof_sites::ObjectTable;
use crashproof_sites::section::{self, Content};
use support::{Folder, cc};

/// The payloads of a section, each with its object.
fn frames(folder: &Folder, file: &str, content: Content) -> Vec<(u64, Vec<u8>)> {
    let section = folder.section(file, content.section()).unwrap_or_default();
    section::frames(content, &section)
        .map(|frame| frame.unwrap_or_else(|error| panic!("{file}: {error}")).1)
        .map(|frame| (frame.object, frame.payload.to_vec()))
        .collect()
}

fn tables(folder: &Folder, file: &str) -> Vec<ObjectTable> {
    frames(folder, file, Content::Sites)
        .into_iter()
        .map(|(object, payload)| {
            let table: ObjectTable = postcard::from_bytes(&payload).unwrap();
            assert_eq!(table.object, object);
            table
        })
        .collect()
}

/// The sources in a file, by its bitcode and by its tables, which must be of the same objects.
fn sources(folder: &Folder, file: &str) -> Vec<String> {
    let mut bitcode = frames(folder, file, Content::Bitcode);
    let mut tables = tables(folder, file);
    bitcode.sort();
    tables.sort_by_key(|table| table.object);
    let of_tables: Vec<u64> = tables.iter().map(|table| table.object).collect();
    assert_eq!(bitcode.iter().map(|(object, _)| *object).collect::<Vec<_>>(), of_tables);
    assert!(bitcode.iter().all(|(_, payload)| payload.starts_with(b"BC\xc0\xde")));
    let mut sources: Vec<_> = tables.into_iter().map(|table| table.source).collect();
    sources.sort();
    sources
}

#[test]
fn an_object_carries_its_source_and_command() {
    let folder = Folder::new();
    folder.write("options", r#"-DGREETING=\"x\""#);
    folder.cc(&["-O2", "@options", "-c", "main.c", "-o", "objects/main.o"]);
    let tables = tables(&folder, "objects/main.o");
    let [table] = tables.as_slice() else {
        panic!("{tables:?}");
    };
    assert_eq!(table.source, "main.c");
    assert!(
        table.types.iter().any(|ty| ty.name == "struct part"),
        "{:?}",
        table.types
    );
    assert_eq!(
        table.command,
        [
            "crashproof-cc",
            "-O2",
            "-DGREETING=\"x\"",
            "-c",
            "main.c",
            "-o",
            "objects/main.o"
        ]
    );
    assert_eq!(
        std::path::Path::new(&table.directory),
        folder.path("").canonicalize().unwrap()
    );

    // The bitcode is the front end's: the call that is inlined in the object is still there.
    let (_, bitcode) = frames(&folder, "objects/main.o", Content::Bitcode).remove(0);
    std::fs::write(folder.path("main.bc"), bitcode).unwrap();
    let text = folder.done("llvm-dis-19", &["-o", "-", "main.bc"]);
    assert!(text.contains("@part_add"));
    assert!(text.contains("DICompositeType"), "the types are there without -g");
    assert!(text.contains("%struct.part = type"));
}

/// Whatever the command says: nothing is inlined or left out by a tail call, so that stacks are whole, and the bitcode may be optimised.
#[test]
fn in_repair_mode_stacks_are_whole() {
    let folder = Folder::new();
    folder.write(
        "chain.c",
        "#include <execinfo.h>\nstatic int inner(void *stack[]) { return backtrace(stack, 8); }\n\
         static int middle(void *stack[]) { return inner(stack); }\nstatic int outer(void *stack[]) { return middle(stack); }\n\
         int main(void) { void *stack[8]; return outer(stack); }\n",
    );
    let depth = |repair: &str| {
        let arguments = ["-O2", "-Werror", "-D_FORTIFY_SOURCE=2", "-o", "chain", "chain.c"];
        let built = folder
            .command(cc())
            .args(arguments)
            .env("CRASHPROOF_REPAIR", repair)
            .output();
        assert!(built.unwrap().status.success());
        folder.run(folder.path("chain"), &[]).status.code().unwrap()
    };
    let inlined = depth("");
    assert!(depth("1") >= inlined + 3, "{inlined} frames without repair mode");
    let (_, bitcode) = frames(&folder, "chain", Content::Bitcode).remove(0);
    std::fs::write(folder.path("chain.bc"), bitcode).unwrap();
    let text = folder.done("llvm-dis-19", &["-o", "-", "chain.bc"]);
    assert!(text.contains("define internal i32 @inner") && !text.contains("optnone"));
}

#[test]
fn the_same_command_makes_the_same_object() {
    let folder = Folder::new();
    folder.cc(&["-O2", "-c", "main.c"]);
    let first = folder.read("main.o");
    folder.cc(&["-O2", "-c", "main.c"]);
    assert!(first == folder.read("main.o"));
    folder.cc(&["-O1", "-c", "main.c", "-o", "other.o"]);
    assert_ne!(
        tables(&folder, "main.o")[0].object,
        tables(&folder, "other.o")[0].object
    );
}

#[test]
fn linking_keeps_every_object() {
    let folder = Folder::new();
    let both = ["main.c", "part.c"];
    folder.cc(&[
        "-ffunction-sections",
        "-fdata-sections",
        "-fPIC",
        "-c",
        "main.c",
        "part.c",
    ]);
    folder.done("ar", &["rcs", "libpart.a", "part.o"]);
    folder.cc(&["-o", "from_archive", "main.o", "libpart.a"]);
    assert_eq!(sources(&folder, "from_archive"), both);
    folder.cc(&["-Wl,--gc-sections", "-o", "collected", "main.o", "part.o"]);
    assert_eq!(sources(&folder, "collected"), both);
    folder.cc(&["-r", "-o", "relocatable.o", "main.o", "part.o"]);
    assert_eq!(sources(&folder, "relocatable.o"), both);
    folder.cc(&["-shared", "-o", "libpart.so", "part.o"]);
    assert_eq!(sources(&folder, "libpart.so"), ["part.c"]);
    folder.cc(&["-o", "at_once", "main.c", "part.c"]);
    assert_eq!(sources(&folder, "at_once"), both);
    // Plain objects mix with ours.
    folder.done("gcc", &["-c", "part.c", "-o", "plain.o"]);
    folder.cc(&["-o", "mixed", "main.o", "plain.o"]);
    assert_eq!(sources(&folder, "mixed"), ["main.c"]);
    assert_eq!(folder.done(folder.path("mixed"), &[]), "sum 42\n");
    // The linker of another compiler does as well.
    folder.done("gcc", &["-o", "by_gcc", "main.o", "part.o"]);
    assert_eq!(sources(&folder, "by_gcc"), both);
    assert_eq!(folder.done(folder.path("by_gcc"), &[]), "sum 42\n");
}

#[test]
fn stripping() {
    let folder = Folder::new();
    folder.cc(&["-O2", "-o", "program", "main.c", "part.c"]);
    for (arguments, name) in [(&["-o"][..], "stripped"), (&["--strip-debug", "-o"], "no_debug")] {
        let arguments: Vec<&str> = arguments.iter().copied().chain([name, "program"]).collect();
        folder.done("strip", &arguments);
        assert_eq!(sources(&folder, name), ["main.c", "part.c"], "{name}");
        assert_eq!(folder.done(folder.path(name), &[]), "sum 42\n");
    }
    // It drops every section that is not loaded.
    folder.done("llvm-strip-19", &["-o", "bare", "program"]);
    assert_eq!(sources(&folder, "bare"), Vec::<String>::new());
    assert_eq!(folder.done(folder.path("bare"), &[]), "sum 42\n");
}

/// Nothing of it is loaded when the program runs.
#[test]
fn the_sections_are_not_loaded() {
    use object::{Object, ObjectSection, SectionFlags};
    let folder = Folder::new();
    folder.cc(&["-o", "program", "main.c", "part.c"]);
    let bytes = folder.read("program");
    let file = object::File::parse(&bytes[..]).unwrap();
    for name in [section::BITCODE, section::SITES] {
        let SectionFlags::Elf { sh_flags } = file.section_by_name(name).unwrap().flags() else {
            panic!("an ELF file");
        };
        assert_eq!(sh_flags & u64::from(object::elf::SHF_ALLOC), 0, "{name}");
    }
}

#[test]
fn awkward_names() {
    let folder = Folder::new();
    let odd = folder.path("a \"b\\ $c");
    std::fs::create_dir(&odd).unwrap();
    std::fs::copy(folder.path("part.c"), odd.join("it's, part.c")).unwrap();
    let output = folder
        .command(cc())
        .current_dir(&odd)
        .env("TMPDIR", &odd)
        .args(["-I..", "-c", "it's, part.c"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", support::stderr(&output));
    assert_eq!(sources(&folder, "a \"b\\ $c/it's, part.o"), ["it's, part.c"]);
    assert_eq!(std::fs::read_dir(&odd).unwrap().count(), 2);
}
