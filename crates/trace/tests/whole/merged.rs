//! Which stores of optimised code are said to be of several source lines.

use std::path::{Path, PathBuf};
use std::process::Command;

use crashproof_trace::Module;
use crashproof_trace::symbols::Symbolizer;
use iced_x86::{Decoder, DecoderOptions, Mnemonic, OpKind};
use object::{Object, ObjectSection, ObjectSymbol};

/// Functions called `merged_…` have a store of several lines, those called `plain_…` have none. Written so that clang merges what can be
/// merged.
const SOURCE: &str = r#"
#include <string.h>
#define F __attribute__((noinline)) void
typedef unsigned long word;
struct pair { unsigned a, b; word c, d; char name[16]; };
struct outer { struct pair p; word x, y; struct pair q; };
static struct pair *root;
static inline void set_a(struct pair *p, unsigned v) { p->a = v; }
static inline void set_b(struct pair *p, unsigned v) { p->b = v; }
F merged_constants(struct pair *p) {
    p->a = 1;
    p->b = 2;
}
F merged_zeros(struct pair *p) {
    p->c = 0; // with the next
    p->d = 0;
}
F merged_copies(struct pair *p, struct pair *q) {
    p->c = q->c;
    p->d = q->d;
}
F merged_global(void) {
    root->c = 0;
    root->d = 0;
}
F merged_cast(void *p) {
    ((struct pair *)p)->c = 0;
    ((struct pair *)p)->d = 0;
}
F merged_elements(word *p) {
    p[0] = 0;
    p[1] = 0;
}
F merged_targets(word *p) {
    *p = 0;
    *(p + 1) = 0;
}
F merged_inlined(struct pair *p) {
    set_a(p, 1);
    set_b(p, 2);
}
F merged_in_loop(struct pair *p, int n) {
    for (int i = 0; i < n; i++) {
        p[i].c = 0;
        p[i].d = 0;
    }
}
F merged_with_memset(struct outer *p) {
    p->p.d = 0;
    memset(p->p.name, 0, 16);
}
F plain_structure(struct pair *p, struct pair *q) {
    *p = *q;
}
F plain_member(struct outer *p, struct pair *q) {
    p->q = *q;
}
F plain_literal(struct pair *p) {
    *p = (struct pair){ .a = 1, .b = 2, .c = 3 };
}
F plain_memcpy(struct pair *p, struct pair *q) {
    memcpy(p->name, q->name, 16);
}
F plain_memset(struct pair *p) {
    memset(p, 0, sizeof *p);
}
F plain_loop(word *p, word *q, int n) {
    for (int i = 0; i < n; i++)
        p[i] = q[i];
}
F plain_pointers(word *p, word *end) {
    while (p < end)
        *p++ = 7;
}
F plain_chain(struct pair *p, unsigned v) {
    p->a = v;
    p->c = p->d = 0;
}
F plain_words(struct pair *p, word v) {
    const word k = 42;
    p->c = v + k;
    p->name[3] = 1;
}
char buffer[1 << 16];
int main(int n, char **v) {
    struct pair *p = (void *)buffer, *q = p + 4;
    root = p;
    merged_constants(p); merged_zeros(p); merged_copies(p, q); merged_global(); merged_cast(p); merged_elements((void *)p);
    merged_targets((void *)p); merged_inlined(p); merged_in_loop(p, n); merged_with_memset((void *)p);
    plain_structure(p, q); plain_member((void *)p, q); plain_literal(p); plain_memcpy(p, q); plain_memset(p);
    plain_loop((void *)p, (void *)q, n); plain_pointers((void *)p, (void *)q); plain_chain(p, n); plain_words(p, n);
    return buffer[n];
}
"#;

fn build(folder: &Path, compiler: &str, level: &str) -> PathBuf {
    let (source, program) = (folder.join("app.c"), folder.join(format!("{compiler}{level}")));
    std::fs::write(&source, SOURCE).unwrap();
    let built = Command::new(compiler)
        .args([level, "-g", "-o"])
        .args([&program, &source])
        .status()
        .unwrap();
    assert!(built.success());
    program
}

/// Each function that is called `merged_…` or `plain_…`, and whether a store in it is approximate.
fn functions(program: &Path) -> Vec<(String, bool)> {
    let bytes = std::fs::read(program).unwrap();
    let object = object::File::parse(&*bytes).unwrap();
    let module = Module {
        path: program.to_str().unwrap().into(),
        build_id: object.build_id().unwrap().unwrap_or_default().to_vec(),
        locked_sites: 0,
    };
    let mut symbolizer = Symbolizer::default();
    let mut found = Vec::new();
    for symbol in object.symbols() {
        let name = symbol.name().unwrap();
        if !name.starts_with("merged_") && !name.starts_with("plain_") {
            continue;
        }
        let text = object.section_by_name(".text").unwrap();
        let code = text.data_range(symbol.address(), symbol.size()).unwrap().unwrap();
        let stores = Decoder::with_ip(64, code, symbol.address(), DecoderOptions::NONE)
            .into_iter()
            .filter(|instruction| instruction.op0_kind() == OpKind::Memory && instruction.mnemonic() != Mnemonic::Nop)
            .map(|instruction| instruction.ip());
        let approximate = stores
            .map(|address| symbolizer.frames(&module, address, false)[0].approximate)
            .fold(false, |any, one| any | one);
        found.push((name.to_owned(), approximate));
    }
    found
}

fn check(compiler: &str, level: &str, not_merged: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let functions = functions(&build(folder.path(), compiler, level));
    assert_eq!(functions.len(), 19);
    for (name, approximate) in functions {
        let expected = name.starts_with("merged_") && !not_merged.contains(&name.as_str());
        assert_eq!(approximate, expected, "{name} by {compiler} {level}");
    }
}

#[test]
fn by_clang() {
    for level in ["-O2", "-O3"] {
        check("clang-19", level, &[]);
    }
}

#[test]
fn by_gcc() {
    for level in ["-O2", "-O3"] {
        check("gcc", level, &["merged_with_memset"]);
    }
}

/// clang makes one `memset` of three lines; the store itself is in libc then.
#[test]
fn calls() {
    const CALLS: &str = "struct big { long a; long v[64]; long b; };\n\
        __attribute__((noinline)) int merged(struct big *p) {\n\
        p->a = 0;\n\
        for (int i = 0; i < 64; i++)\n\
          p->v[i] = 0;\n\
        p->b = 0;\n\
        return 1; }\n\
        __attribute__((noinline)) int copied(struct big *p, struct big *q) {\n\
        *p = *q;\n\
        return 1; }\n\
        int main(int n, char **v) { struct big p[2] = {0}; return merged(p + n % 2) + copied(p, p + n % 2); }\n";
    let folder = tempfile::tempdir().unwrap();
    let (source, program) = (folder.path().join("app.c"), folder.path().join("app"));
    std::fs::write(&source, CALLS).unwrap();
    let mut clang = Command::new("clang-19");
    clang.args(["-O2", "-g", "-fno-inline", "-o"]).args([&program, &source]);
    assert!(clang.status().unwrap().success());
    let bytes = std::fs::read(&program).unwrap();
    let object = object::File::parse(&*bytes).unwrap();
    let module = Module {
        path: program.to_str().unwrap().into(),
        build_id: vec![],
        locked_sites: 0,
    };
    for (name, expected) in [("merged", true), ("copied", false)] {
        let symbol = object.symbols().find(|symbol| symbol.name() == Ok(name)).unwrap();
        let text = object.section_by_name(".text").unwrap();
        let code = text.data_range(symbol.address(), symbol.size()).unwrap().unwrap();
        let call = Decoder::with_ip(64, code, symbol.address(), DecoderOptions::NONE)
            .into_iter()
            .find(|instruction| instruction.mnemonic() == Mnemonic::Call)
            .unwrap();
        let frames = Symbolizer::default().frames(&module, call.next_ip(), true);
        assert_eq!(frames[0].approximate, expected, "{name}");
    }
}

/// Nothing is merged without the optimiser.
#[test]
fn not_optimised() {
    for compiler in ["clang-19", "gcc"] {
        let folder = tempfile::tempdir().unwrap();
        for (name, approximate) in functions(&build(folder.path(), compiler, "-O0")) {
            assert!(!approximate, "{name} by {compiler}");
        }
    }
}
