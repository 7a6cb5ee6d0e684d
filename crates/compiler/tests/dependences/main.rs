//! `--deps`, compared with a naive reference: random small programs are built and recorded, and interpreted instruction by instruction into a full
//! dependence graph; every access must have the same dependences in both.

mod generate;
mod graph;
mod interpret;
#[path = "../support/mod.rs"]
mod support;

use std::collections::BTreeMap;
use std::path::Path;

use crashproof_llvm::{Context, Module};
use crashproof_record::{RecordOptions, record};
use crashproof_trace::{EventKind, Item, TraceReader};
use support::Folder;

use generate::{CALLS, Generator};
use interpret::Machine;

const OPERATIONS: usize = 24;

/// An access, its dependences by their position among the accesses of the operation.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Access {
    store: bool,
    offset: u64,
    length: u64,
    depends: BTreeMap<usize, bool>,
}

#[derive(Default)]
struct Operation {
    accesses: Vec<Access>,
    blocks: u64,
    cuts: u64,
}

/// Records the program within, and returns the accesses of each operation.
fn recorded(folder: &Folder, program: &str, status: i32) -> Vec<Operation> {
    let trace = folder.path(&format!("{program}.trace"));
    let options = RecordOptions {
        remedy: "free some space",
        command: vec![folder.path(program).into(), folder.path("pool").into()],
        output: trace.clone(),
        pm: Vec::new(),
        client_requests: true,
        locked_rmw: false,
        dependences: true,
        runtime: crashproof_testing::runtime(),
        kept: true,
        quiet: false,
    };
    let recorded = record(&options).unwrap();
    assert!(recorded.dependences);
    assert_eq!(recorded.end.status, Some(status));
    assert!(recorded.incomplete.is_empty(), "{:?}", recorded.incomplete);
    operations(&trace)
}

fn operations(trace: &Path) -> Vec<Operation> {
    let mut reader = TraceReader::open(trace).unwrap();
    let (mut operations, mut current) = (Vec::new(), Operation::default());
    let mut positions: BTreeMap<u64, usize> = BTreeMap::new();
    while let Some(item) = reader.next().unwrap() {
        let Item::Event(event) = item else { continue };
        match event.kind {
            EventKind::Access {
                store,
                node,
                at,
                len,
                depends,
            } => {
                positions.insert(node, current.accesses.len());
                current.accesses.push(Access {
                    store,
                    offset: at.offset,
                    length: len.into(),
                    // A dependence on an access of another operation would fail here.
                    depends: depends
                        .iter()
                        .map(|dependence| (positions[&dependence.node], dependence.control))
                        .collect(),
                });
            }
            EventKind::Path { blocks, cuts } => {
                (current.blocks, current.cuts) = (blocks, cuts);
                operations.push(std::mem::take(&mut current));
                positions.clear();
            }
            _ => {}
        }
    }
    operations
}

/// As `--deps` sees it, before labels.
fn prepared<'context>(context: &'context Context, program: &Path) -> Module<'context> {
    let bitcode = crashproof_sites::read_bitcode(program).unwrap();
    let mut module = context.parse_bitcode(&bitcode[0].bytes).unwrap();
    crashproof_compiler::dependences::prepare(&mut module).unwrap();
    module
}

fn compare(seed: u64) -> (usize, usize, usize) {
    let folder = Folder::new();
    folder.write("random.c", &Generator::new(seed).program(OPERATIONS));
    folder.cc(&["--deps", "-w", "-O1", "random.c", "-o", "random"]);
    let plain = folder.run(folder.path("random"), &["other"]);
    let recorded = recorded(&folder, "random", plain.status.code().unwrap());
    let context = Context::create();
    let module = prepared(&context, &folder.path("random"));
    let mut machine = Machine::new(&module, generate::initial);
    // The first is the set-up.
    assert_eq!(recorded.len(), 1 + OPERATIONS * CALLS as usize);
    let mut recorded = recorded.into_iter().skip(1);
    let (mut accesses, mut edges, mut paper, mut cut) = (0, 0, 0, 0);
    for call in 0..CALLS {
        for number in 0..OPERATIONS {
            machine.operation(&format!("operation{number}"), [number as u64, call]);
            let expected = machine.graph.edges();
            let positions: BTreeMap<usize, usize> = expected
                .iter()
                .enumerate()
                .map(|(position, (node, ..))| (*node, position))
                .collect();
            let expected: Vec<Access> = expected
                .iter()
                .map(|(_, access, depends)| Access {
                    store: access.store,
                    offset: access.offset,
                    length: access.length,
                    depends: depends
                        .iter()
                        .map(|(node, &control)| (positions[node], control))
                        .collect(),
                })
                .collect();
            let found = recorded.next().unwrap();
            // Which members a cut label keeps depends on the order of unions, of which a graph knows nothing.
            if found.cuts > 0 {
                cut += 1;
                continue;
            }
            let place = || format!("seed {seed}, operation{number}, call {call}");
            assert_eq!(found.accesses.len(), expected.len(), "{}", place());
            for (index, (found, expected)) in found.accesses.iter().zip(&expected).enumerate() {
                assert_eq!(found, expected, "{}, access {index}", place());
                edges += expected.depends.len();
            }
            accesses += expected.len();
            paper += machine.graph.paper_edges();
        }
    }
    assert!(
        cut * 5 < OPERATIONS * CALLS as usize,
        "seed {seed}: {cut} operations are too large to compare"
    );
    (accesses, edges, paper)
}

#[test]
fn dependences_are_those_of_the_full_graph() {
    let seeds = std::env::var("CRASHPROOF_DEPENDENCE_SEEDS")
        .ok()
        .and_then(|seeds| seeds.parse().ok());
    for seed in 1..=seeds.unwrap_or(2) {
        let (accesses, edges, paper) = compare(seed);
        // Nearest accesses only: the paper's definition has every pair that a path joins.
        println!("seed {seed}: {accesses} accesses, {edges} dependences; by the paper's definition {paper}");
        assert!(accesses > 0 && edges > 0 && edges < paper);
    }
}

/// Each operation of `shapes.cpp`: its accesses by the number of the word (stores with `=`), each with what it depends on (`?`: by control).
const SHAPES: &[(&str, &str)] = &[
    ("exception", "0 1"),
    ("value_through_exception", "2 3=(2)"),
    ("jump", "5 4(5?) 6"),
    ("callback", "7 8="),
    ("search", "9="),
    ("library", "10 11=(10) 12 12 10 13=(12 10) 14=(10) 15="),
    ("classes", "16 17 18=(16? 17) 20="),
    ("first", "21"),
    ("second", "22="),
    ("by_value", "23 24 25=(23 24)"),
    ("thread", "26 27=(26)"),
    ("exchange", "29 28 28=(29 28?) 28 28 28=(28? 28? 28?)"),
];

fn described(operation: &Operation) -> String {
    let word = |access: &Access| access.offset / 8;
    let accesses = operation.accesses.iter().map(|access| {
        let depends = access.depends.iter().map(|(&on, &control)| {
            let control = if control { "?" } else { "" };
            format!("{}{control}", word(&operation.accesses[on]))
        });
        let depends = depends.collect::<Vec<_>>().join(" ");
        let store = if access.store { "=" } else { "" };
        match depends.is_empty() {
            true => format!("{}{store}", word(access)),
            false => format!("{}{store}({depends})", word(access)),
        }
    });
    accesses.collect::<Vec<_>>().join(" ")
}

/// Exceptions, longjmp, callbacks, library functions, classes, threads: what has no place in the small programs.
#[test]
fn frames_and_libraries() {
    let folder = Folder::new();
    folder.write("shapes.cpp", include_str!("shapes.cpp"));
    let output = folder.run(
        folder.cpp(),
        &["--deps", "-w", "-O2", "shapes.cpp", "-o", "shapes", "-lpthread"],
    );
    assert!(output.status.success(), "{}", support::stderr(&output));
    let plain = folder.run(folder.path("shapes"), &["other"]);
    assert_eq!(plain.status.code(), Some(7));
    let recorded = recorded(&folder, "shapes", 7);
    assert_eq!(recorded.len(), 1 + SHAPES.len());
    for ((name, expected), found) in SHAPES.iter().zip(&recorded[1..]) {
        assert_eq!(described(found), *expected, "{name}");
    }
    // Another path is another set of blocks.
    let mut paths: Vec<u64> = recorded.iter().map(|operation| operation.blocks).collect();
    paths.sort_unstable();
    paths.dedup();
    assert_eq!(paths.len(), recorded.len());
}

/// Objects and archives that were compiled before, one of them without crashproof: that one's code has no labels.
#[test]
fn objects_are_replaced_where_they_have_bitcode() {
    let folder = Folder::new();
    folder.write(
        "main.c",
        "#include <fcntl.h>\n#include <stdint.h>\n#include <sys/mman.h>\n#include <unistd.h>\n\
         uint64_t archived(uint64_t *), foreign(uint64_t *);\n\
         int main(int c, char **v) {\nint fd = open(v[1], O_RDWR | O_CREAT, 0600);\nif (ftruncate(fd, 4096)) return 1;\n\
         uint64_t *pm = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);\n\
         pm[2] = archived(pm);\npm[3] = foreign(pm);\nreturn write(1, \"\\n\", 1) != 1;\n}\n",
    );
    folder.write(
        "archived.c",
        "#include <stdint.h>\nuint64_t archived(uint64_t *pm) { return pm[0] + 1; }\n",
    );
    folder.write(
        "foreign.c",
        "#include <stdint.h>\nuint64_t foreign(uint64_t *pm) { return pm[1] + 1; }\n",
    );
    folder.cc(&["-O2", "-c", "main.c", "archived.c"]);
    folder.done(support::CLANG, &["-O2", "-c", "foreign.c"]);
    folder.done("ar", &["rcs", "libarchived.a", "archived.o"]);
    folder.cc(&["--deps", "main.o", "foreign.o", "-L.", "-larchived", "-o", "linked"]);
    let recorded = recorded(&folder, "linked", 0);
    assert_eq!(recorded.iter().map(described).collect::<Vec<_>>(), ["0 2=(0) 3="]);
    // Without a program there is nothing to put anything into.
    folder.cc(&["--deps", "-c", "archived.c"]);
    let output = folder.run(support::cc(), &["--deps", "-shared", "archived.o", "-o", "archived.so"]);
    assert!(output.status.success());
}

/// What the version that follows dependences prints and returns; it is executed as it is, without a recorder.
fn run_within(folder: &Folder, program: &str) -> String {
    use std::os::unix::fs::PermissionsExt;
    let within = crashproof_sites::dependence_program(&folder.path(program)).unwrap();
    let path = folder.path(&format!("{program}.within"));
    std::fs::write(&path, within.expect("a version that follows dependences")).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    folder.done(path, &[])
}

/// Functions that the front end defines for inlining only: C99's `inline` without an external definition.
#[test]
fn inline_functions_have_a_definition() {
    let folder = Folder::new();
    let sources = ["inline_one.c", "inline_two.c"];
    folder.done(support::CLANG, &[&["-O1", "-o", "native"], &sources[..]].concat());
    let expected = folder.done(folder.path("native"), &[]);
    assert_eq!(expected, "2 3 3 41 1\n");
    for level in ["-O1", "-O2"] {
        folder.cc(&[&["--deps", level, "-o", "inlined"], &sources[..]].concat());
        assert_eq!(folder.done(folder.path("inlined"), &[]), expected, "{level}");
        assert_eq!(run_within(&folder, "inlined"), expected, "{level}");
        // Their code is followed as any other.
        let accesses: Vec<String> = recorded(&folder, "inlined", 0).iter().map(described).collect();
        assert_eq!(accesses, ["0 1=(0)"], "{level}");
    }
    // Without optimisation clang does not link it either.
    let unoptimised = [&["-O0", "-o", "native"], &sources[..]].concat();
    assert!(!folder.run(support::CLANG, &unoptimised).status.success());
    assert!(!folder.run(support::cc(), &unoptimised).status.success());
}

/// Members of `extern template` classes, constants that are defined in their class, and a class whose virtual table is elsewhere.
#[test]
fn templates_of_other_units_have_a_definition() {
    let folder = Folder::new();
    folder.write("templates.h", include_str!("templates.h"));
    folder.write("templates.cpp", include_str!("templates.cpp"));
    folder.write(
        "instances.cpp",
        "#include \"templates.h\"\ntemplate struct Box<std::string>;\nShape::~Shape() {}\n",
    );
    for (level, standard) in [("-O0", "c++11"), ("-O1", "c++17"), ("-O2", "c++20")] {
        let standard = format!("-std={standard}");
        let arguments = [
            "--deps",
            level,
            &standard,
            "templates.cpp",
            "instances.cpp",
            "-o",
            "templates",
        ];
        let output = folder.run(folder.cpp(), &arguments);
        assert!(output.status.success(), "{level}: {}", support::stderr(&output));
        assert_eq!(support::stderr(&output), "");
        let expected = "boxed! 100 7 square basic_string::at\n";
        assert_eq!(folder.done(folder.path("templates"), &[]), expected, "{level}");
        assert_eq!(run_within(&folder, "templates"), expected, "{level}");
    }
}

/// If the version that follows dependences cannot be linked, the program has none, and a warning says that.
#[test]
fn a_failed_link_leaves_the_program_without_that_version() {
    let folder = Folder::new();
    // Optimised, nothing is left of the call.
    folder.write(
        "gone.c",
        "void nowhere(void);\nstatic int zero(int x) { return x & 0; }\nint main(int c, char **v) { (void)v; if (zero(c)) nowhere(); return 7; }\n",
    );
    folder.cc(&["-O2", "gone.c", "-o", "gone"]);
    let output = folder.run(support::cc(), &["--deps", "-O2", "gone.c", "-o", "gone"]);
    let message = support::stderr(&output);
    assert!(output.status.success(), "{message}");
    assert!(message.contains("undefined reference to `nowhere'"), "{message}");
    assert!(
        message.contains("crashproof-cc: warning: the version of the program that follows dependences"),
        "{message}"
    );
    assert!(message.contains("gone was linked without that version"), "{message}");
    assert_eq!(folder.run(folder.path("gone"), &[]).status.code(), Some(7));
    assert!(
        crashproof_sites::dependence_program(&folder.path("gone"))
            .unwrap()
            .is_none()
    );
}
