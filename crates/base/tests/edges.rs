//! Which crate may depend on which. Without this test the edges are a matter of memory: `crashproof-cc` once linked the HTML
//! renderer because a crate that it needs wanted one struct of it.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;

/// A crate, the crates of the workspace that it may depend on, and why these.
struct Layer {
    name: &'static str,
    may_use: &'static [&'static str],
    reason: &'static str,
}

const fn layer(name: &'static str, may_use: &'static [&'static str], reason: &'static str) -> Layer {
    Layer { name, may_use, reason }
}

/// From the bottom up; `crashproof-` is left out, the command line is `cli`. `explore` is
/// listed before it is built.
const LAYERS: &[Layer] = &[
    layer("base", &[], "the runtime links it: no dependencies at all"),
    layer("wire", &["base"], "what the runtime and the recorder share"),
    layer(
        "instruction",
        &["base"],
        "one machine instruction; knows neither PM nor traces",
    ),
    layer(
        "code",
        &["base"],
        "the code of the running process; knows neither PM nor traces",
    ),
    layer(
        "runtime",
        &["base", "wire", "instruction", "code"],
        "is preloaded into the user's program: what it links is loaded there, and must be async-signal-safe",
    ),
    layer("interrupt", &[], "Ctrl-C and its like; every program has it"),
    layer("trace", &["base"], "the file format; knows no persistency rules"),
    layer("model", &["base"], "the persistency rules; pure, knows no trace"),
    layer(
        "finding",
        &["base"],
        "findings as data; knows neither traces nor renderers",
    ),
    layer(
        "record",
        &["base", "interrupt", "wire", "trace"],
        "writes traces; knows no findings",
    ),
    layer(
        "sandbox",
        &["base", "wire"],
        "an image is bytes, a run is an exit status; knows no traces and no rules",
    ),
    layer(
        "render",
        &["base", "finding"],
        "shows findings and computes none; never reads a trace",
    ),
    layer(
        "library",
        &[],
        "the one table of library functions; compilers and analyses read it, the runtime does not link it",
    ),
    layer(
        "tables",
        &["trace"],
        "what crashproof-cc writes into objects; stacks reads which functions are helpers, sites the types",
    ),
    layer(
        "stacks",
        &["base", "trace", "finding", "library", "tables"],
        "call stacks as frames of findings, and the rules for helpers, which crashproof-cc applies to the front end's code",
    ),
    layer(
        "sites",
        &["base", "trace", "library", "tables", "stacks"],
        "types of stores; crashproof-cc links it, so no renderer and no analysis",
    ),
    layer(
        "replay",
        &["base", "trace", "model"],
        "the one executor of a model over a trace; its observers are above it",
    ),
    layer(
        "litmus",
        &["base", "model"],
        "litmus tests; knows neither traces nor programs",
    ),
    layer(
        "litmus-reference",
        &["litmus"],
        "what litmus is tested against and measured beside; nothing that is shipped links it",
    ),
    layer(
        "check",
        &["base", "trace", "model", "finding", "replay", "stacks", "sites"],
        "an analysis: reads traces, produces findings, never calls a recorder, a renderer or another analysis",
    ),
    layer(
        "infer",
        &["base", "trace", "finding", "replay", "stacks", "sites"],
        "an analysis; knows no crash states",
    ),
    layer(
        "crash",
        &[
            "base", "library", "wire", "trace", "model", "finding", "replay", "stacks", "sites", "infer", "sandbox",
        ],
        "an analysis; tests the conditions of infer, and runs recoveries in a sandbox",
    ),
    layer(
        "exchange",
        &["base", "trace", "model", "finding", "replay", "stacks"],
        "traces from and for other tools; no analysis",
    ),
    layer(
        "campaign",
        &[
            "base",
            "interrupt",
            "trace",
            "model",
            "finding",
            "replay",
            "stacks",
            "sites",
            "check",
            "infer",
            "crash",
            "record",
            "sandbox",
        ],
        "what cli, repair and explore call; shows nothing",
    ),
    layer("llvm", &["base"], "the one wrapper of LLVM"),
    layer(
        "program",
        &["base", "library", "llvm", "sites"],
        "the whole program from its bitcode; knows no traces and no findings",
    ),
    layer(
        "compiler",
        &[
            "base",
            "interrupt",
            "wire",
            "library",
            "llvm",
            "stacks",
            "sites",
            "program",
        ],
        "crashproof-cc; starts for every file compiled",
    ),
    layer(
        "repair",
        &[
            "base",
            "interrupt",
            "wire",
            "trace",
            "model",
            "finding",
            "render",
            "replay",
            "library",
            "stacks",
            "sites",
            "check",
            "litmus",
            "campaign",
            "llvm",
            "program",
            "compiler",
        ],
        "crashproof-repair, a binary; what records and crashes is behind campaign",
    ),
    layer(
        "explore",
        &[
            "base", "trace", "finding", "render", "replay", "stacks", "sites", "check", "crash", "campaign", "llvm",
            "program", "compiler",
        ],
        "a binary beside cli and repair, above campaign",
    ),
    layer(
        "cli",
        &[
            "base",
            "interrupt",
            "trace",
            "model",
            "finding",
            "render",
            "replay",
            "stacks",
            "sites",
            "check",
            "infer",
            "crash",
            "exchange",
            "litmus",
            "campaign",
            "record",
            "sandbox",
        ],
        "the crashproof binary; starts without loading LLVM",
    ),
    layer(
        "bench",
        &[
            "base",
            "code",
            "instruction",
            "trace",
            "finding",
            "litmus",
            "litmus-reference",
            "llvm",
            "program",
            "repair",
        ],
        "measurements; nothing that is shipped links them",
    ),
    layer(
        "soak",
        &[
            "base", "trace", "finding", "render", "replay", "sites", "check", "infer", "crash", "exchange", "litmus",
            "sandbox",
        ],
        "long tests",
    ),
    layer("testing", &["base"], "what tests share; a development dependency only"),
];

/// Edges that only tests have, beyond [`LAYERS`]. Every crate may use `testing` in its tests.
const FOR_TESTS: &[(&str, &[&str])] = &[
    ("compiler", &["record", "trace"]),
    ("exchange", &["check"]),
    ("runtime", &["stacks"]),
];

/// Dependencies outside the workspace that only these crates may have, and why.
const FOREIGN: &[(&str, &[&str], &str)] = &[
    (
        "llvm-sys",
        &["llvm"],
        "every unsafe call of LLVM is behind one crate's safe handles",
    ),
    (
        "clang",
        &["repair"],
        "libclang is for reading the source that is to be patched",
    ),
    (
        "annotate-snippets",
        &["render"],
        "source excerpts are shown in one crate",
    ),
];

/// Binaries, and crates that they must not link over any number of edges.
const NOT_LINKED: &[(&str, &[&str])] = &[
    ("compiler", &["render", "check", "crash", "record", "sandbox"]),
    ("runtime", &["trace", "model", "finding", "render", "library"]),
    (
        "cli",
        &[
            "llvm",
            "program",
            "compiler",
            "repair",
            "explore",
            "bench",
            "litmus-reference",
        ],
    ),
    ("repair", &["bench", "litmus-reference"]),
];

#[derive(Default)]
struct Package {
    normal: BTreeSet<String>,
    tests: BTreeSet<String>,
}

fn short(name: &str) -> &str {
    match name {
        "crashproof" => "cli",
        _ => name.strip_prefix("crashproof-").unwrap_or(name),
    }
}

/// What `cargo metadata` says of the workspace. Build scripts count as normal dependencies.
fn workspace() -> BTreeMap<String, Package> {
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml");
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args([
            "metadata",
            "--no-deps",
            "--offline",
            "--format-version",
            "1",
            "--manifest-path",
            manifest,
        ])
        .output()
        .expect("cargo starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let text = |value: &Value| value.as_str().expect("a string").to_owned();
    let list = |value: &Value| value.as_array().expect("a list").clone();
    let mut packages = BTreeMap::new();
    for package in list(&metadata["packages"]) {
        let mut found = Package::default();
        for dependency in list(&package["dependencies"]) {
            let name = short(&text(&dependency["name"])).to_owned();
            match dependency["kind"].as_str() {
                Some("dev") => found.tests.insert(name),
                _ => found.normal.insert(name),
            };
        }
        packages.insert(short(&text(&package["name"])).to_owned(), found);
    }
    packages
}

fn layer_of(name: &str) -> Option<&'static Layer> {
    LAYERS.iter().find(|layer| layer.name == name)
}

#[test]
fn crates_depend_on_what_their_layer_allows() {
    let packages = workspace();
    let mut wrong = Vec::new();
    for (name, package) in &packages {
        let Some(layer) = layer_of(name) else {
            wrong.push(format!(
                "{name} is in no layer: add it to LAYERS, with what it may use and why"
            ));
            continue;
        };
        for used in package.normal.iter().filter(|used| packages.contains_key(*used)) {
            if !layer.may_use.contains(&used.as_str()) {
                wrong.push(format!("{name} must not depend on {used} ({name}: {})", layer.reason));
            }
        }
        let for_tests = FOR_TESTS
            .iter()
            .find(|(of, _)| of == name)
            .map_or(&[][..], |(_, used)| used);
        for used in package.tests.iter().filter(|used| packages.contains_key(*used)) {
            let allowed = [layer.may_use, for_tests, &["testing"]].concat();
            if !allowed.contains(&used.as_str()) {
                wrong.push(format!("the tests of {name} must not depend on {used}: see FOR_TESTS"));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{}\n\nThe layers are a table in crates/base/tests/edges.rs. Prefer to move what both crates need into a lower one: \
         everything above a crate links what it links, and a cycle of concepts begins with one edge upwards. If the edge is \
         right, add it to the table and correct the reason and ARCHITECTURE.md.",
        wrong.join("\n")
    );
}

#[test]
fn layers_are_listed_from_the_bottom_up() {
    for (at, layer) in LAYERS.iter().enumerate() {
        for used in layer.may_use {
            let below = LAYERS[..at].iter().any(|lower| lower.name == *used);
            assert!(
                below,
                "{used} is not listed above {}: an edge upwards or a misspelt name",
                layer.name
            );
        }
    }
}

#[test]
fn foreign_crates_stay_where_they_belong() {
    for (name, package) in workspace() {
        for (foreign, allowed, reason) in FOREIGN {
            let used = package.normal.contains(*foreign) || package.tests.contains(*foreign);
            assert!(
                !used || allowed.contains(&name.as_str()),
                "{name} must not depend on {foreign}, only {allowed:?} may: {reason}"
            );
        }
    }
}

#[test]
fn binaries_do_not_link_what_they_do_not_need() {
    let packages = workspace();
    for (binary, without) in NOT_LINKED.iter().filter(|(binary, _)| packages.contains_key(*binary)) {
        let mut linked = BTreeSet::new();
        let mut left = vec![binary.to_string()];
        while let Some(name) = left.pop() {
            if let Some(package) = packages.get(&name).filter(|_| linked.insert(name.clone())) {
                left.extend(package.normal.iter().cloned());
            }
        }
        for name in *without {
            assert!(!linked.contains(*name), "{binary} links {name}");
        }
    }
}
