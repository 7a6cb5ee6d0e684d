//! Values on their own; [`flow`](super::flow) as a whole is compared with what `crashproof cc` notes, on the structures of the corpus
//! (`cargo test -p crashproof --test structures types`).

use std::path::{Path, PathBuf};

use proptest::prelude::*;

use gimli::{EndianSlice, LittleEndian};

use super::entries::Entries;
use super::value::Value;
use super::{DebugInfo, disjoint, lookup};
use crate::layout;
use crate::pointer::{Pointer, Shapes, Type};
use crate::table::{Field, Target, TypeInfo};

/// `struct node { u64 key; u64 padding[5]; node *next[4]; }` in `struct root { u64 count; node nodes[8]; }`.
fn shapes() -> Shapes {
    const NUMBER: usize = 0;
    let field = |name: &str, offset, size, ty, elements| Field {
        name: name.to_owned(),
        offset,
        size,
        ty,
        elements,
        points_to: None,
    };
    let info = |name: &str, size, fields| TypeInfo {
        name: name.to_owned(),
        size,
        is_union: false,
        fields,
    };
    let array = |element, size, stride| Type::Array { element, size, stride };
    Shapes {
        types: vec![
            Type::Scalar,
            array(NUMBER, 40, 8),
            array(NUMBER, 32, 8),
            Type::Composite(0),
            array(3, 640, 80),
            Type::Composite(1),
        ],
        composites: vec![
            info(
                "node",
                80,
                vec![
                    field("key", 0, 8, None, None),
                    field("padding", 8, 40, None, Some(5)),
                    field("next", 48, 32, None, Some(4)),
                ],
            ),
            info(
                "root",
                648,
                vec![
                    field("count", 0, 8, None, None),
                    field("nodes", 8, 640, Some(0), Some(8)),
                ],
            ),
        ],
        field_types: vec![vec![NUMBER, 1, 2], vec![NUMBER, 4]],
    }
}

const ROOT: usize = 5;
const NODE: usize = 3;

fn times(scale: u64) -> Value {
    Value::made_at(1).multiply(scale)
}

fn resolved(value: &Value) -> Option<Pointer> {
    match value {
        Value::Pointer(address) => Some(address.resolve(&shapes())).filter(|pointer| pointer.object.is_some()),
        _ => None,
    }
}

/// Whatever the order in which indices and offsets are added.
#[test]
fn elements_of_elements() {
    let parts = [times(80), times(8), Value::constant(8 + 48)];
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
        let root = Value::to(Pointer::to(ROOT));
        let sum = order.iter().fold(root, |sum, &part| sum.add(parts[part].clone()));
        let pointer = resolved(&sum).unwrap();
        assert_eq!((pointer.object, pointer.offset), (Some(0), 0));
        let array = pointer.outer.unwrap();
        assert_eq!(
            (array.at.object, array.at.offset, array.array),
            (Some(NODE), 48, Some(32))
        );
    }
}

/// `next[i - 1]` begins in what lies before `next`.
#[test]
fn an_index_less_one_is_in_doubt() {
    let sum = Value::to(Pointer::to(NODE)).add(times(8)).add(Value::constant(40));
    assert_eq!(resolved(&sum), None);
}

#[test]
fn a_loop_is_over_elements() {
    let shapes = shapes();
    let first = Value::to(Pointer::to(ROOT)).add(Value::constant(8));
    let met = first.join(&first.clone().add(Value::constant(80)), &shapes);
    assert_eq!(
        resolved(&met).map(|pointer| (pointer.object, pointer.offset)),
        Some((Some(NODE), 0))
    );
    assert_eq!(met.join(&met.clone().add(Value::constant(80)), &shapes), met);
}

/// An array that may end before the second, or another member.
#[test]
fn different_members_have_nothing_in_common() {
    let node = Value::to(Pointer::to(NODE));
    let (key, padding) = (node.clone(), node.add(Value::constant(8)));
    assert_eq!(resolved(&key.join(&padding, &shapes())), None);
}

/// An instance of what a value stands for: symbols have these values, and the numbers that are not known are multiples by `free`.
fn instance(value: &Value, symbol: i64, free: i64) -> Option<i64> {
    match value {
        Value::Integer {
            symbol: made,
            scale,
            add,
        } => {
            let number = if made.is_some() { symbol } else { free };
            Some((*scale as i64).wrapping_mul(number).wrapping_add(*add))
        }
        _ => None,
    }
}

/// Whether the number is one that the value stands for.
fn stands_for(value: &Value, number: i64) -> bool {
    match *value {
        Value::Integer { scale: 0, add, .. } => number == add,
        Value::Integer { scale, add, .. } => number.wrapping_sub(add) % scale as i64 == 0,
        _ => false,
    }
}

#[derive(Clone, Debug)]
enum Step {
    Add(usize),
    Subtract(usize),
    Multiply(u64),
    Join(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (0..4usize).prop_map(Step::Add),
        (0..4usize).prop_map(Step::Subtract),
        (1..20u64).prop_map(Step::Multiply),
        (0..4usize).prop_map(Step::Join),
    ];
    proptest::collection::vec(step, 0..8)
}

proptest! {
    /// Integers, against what is computed with numbers.
    #[test]
    fn integers_stand_for_what_is_computed(steps in steps(), symbol in -50i64..50, constants in [-20i64..20, -20i64..20]) {
        let shapes = Shapes::default();
        let mut known = vec![
            (Value::made_at(1), symbol),
            (Value::constant(constants[0]), constants[0]),
            (Value::constant(constants[1]), constants[1]),
            (Value::UNKNOWN, symbol ^ 5),
        ];
        for step in steps {
            let (value, number) = known[0].clone();
            known[0] = match step {
                Step::Add(other) => (value.add(known[other].0.clone()), number + known[other].1),
                Step::Subtract(other) => (value.subtract(known[other].0.clone()), number - known[other].1),
                Step::Multiply(factor) => (value.multiply(factor), number * factor as i64),
                // Either path may have been taken.
                Step::Join(other) => {
                    let met = value.join(&known[other].0, &shapes);
                    prop_assert!(stands_for(&met, number) && stands_for(&met, known[other].1));
                    (met, number)
                }
            };
            prop_assert!(stands_for(&known[0].0, known[0].1), "{known:?}");
            if let Value::Integer { symbol: Some(_), .. } = known[0].0 {
                prop_assert_eq!(instance(&known[0].0, symbol, 0), Some(known[0].1));
            }
        }
    }
}

/// A library from C source, optimised.
fn compile(folder: &Path, text: &str) -> PathBuf {
    let (source, object) = (folder.join("a.c"), folder.join("a.so"));
    std::fs::write(&source, text).unwrap();
    let mut compile = std::process::Command::new("gcc");
    compile
        .args(["-g", "-O2", "-fcf-protection=none", "-shared", "-fPIC"])
        .args(["-ffunction-sections", "-fdata-sections", "-Wl,--gc-sections", "-o"])
        .arg(&object)
        .arg(&source);
    assert!(compile.status().unwrap().success());
    object
}

/// What the stores of each function are to: struct and field of the innermost, and all around it.
fn stores(text: &str) -> Vec<(String, String)> {
    let folder = tempfile::tempdir().unwrap();
    stores_of(&DebugInfo::read_one(&compile(folder.path(), text)))
}

impl DebugInfo {
    fn read_one(path: &Path) -> DebugInfo {
        DebugInfo::read(path, path).unwrap()
    }

    /// Whether a unit refers to another.
    fn has_foreign_entries(&self) -> bool {
        let dwarf = self.sections.borrow(|data| EndianSlice::new(data, LittleEndian));
        self.units.iter().any(|(home, _)| {
            let entries = Entries::read(&dwarf, &self.homes, *home).unwrap();
            entries.all[entries.own..].iter().any(|entry| entry.in_use)
        })
    }
}

fn stores_of(info: &DebugInfo) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for address in info.ranges.iter().flat_map(|(range, _)| range.clone()) {
        let Some(store) = info.store(address) else { continue };
        let types = info.types(store.unit);
        let target = match store.target {
            Target::Place(place) => {
                let levels = place.levels.iter().map(|level| {
                    let field = layout::field_name(types, level.ty, level.offset, place.size.unwrap_or(1));
                    match level.array {
                        Some(_) => format!("{}: array", types[level.ty as usize].name),
                        None => format!("{}: {field}", types[level.ty as usize].name),
                    }
                });
                levels.collect::<Vec<_>>().join(" in ")
            }
            other => format!("{other:?}"),
        };
        found.push((info.function(address).unwrap().name, target));
    }
    found
}

/// Those of one function that have a type.
fn typed<'s>(stores: &'s [(String, String)], function: &str) -> Vec<&'s str> {
    let of_function = stores
        .iter()
        .filter(|(name, target)| name == function && target.contains(": "));
    of_function.map(|(_, target)| target.as_str()).collect()
}

/// What a call, or a store at an index, may have written to the frame is not what was there before.
#[test]
fn frame_words_whose_address_is_taken_are_forgotten() {
    let stores = stores(
        "struct A { long a0, a1; }; struct B { long b0, b1; };\n\
         void look(void **p);\n\
         void first(struct A *x) { void *p[2]; p[0] = x; look(p); ((struct B *)p[0])->b1 = 7; }\n\
         void again(struct A *x, long n) {\n\
             void *p[2]; p[0] = x;\n\
             for (long i = 0; i < n; i++) look(p);\n\
             ((struct B *)p[0])->b1 = 7; }\n\
         void at_index(struct A *x, void *y, long i) {\n\
             void *volatile p[2]; p[0] = x; p[i] = y; ((struct B *)p[0])->b1 = 7; }\n\
         void kept(struct A *x, long n) {\n\
             void *p[2]; look(p); x->a0 = n; look(p); x->a1 = (long)p[0]; }\n",
    );
    for function in ["first", "again", "at_index"] {
        assert_eq!(typed(&stores, function), [] as [&str; 0], "{function}");
    }
    assert_eq!(typed(&stores, "kept"), ["struct A: a0", "struct A: a1"]);
}

/// A struct that is a part of another which the source casts to: a store behind its end is not one to its start.
#[test]
fn behind_the_end_is_no_field() {
    let stores = stores(
        "struct base { long a, b; }; struct derived { struct base h; long c, d; }; struct open { long n; long of[]; };\n\
         void down(struct base *b) { ((struct derived *)b)->c = 5; }\n\
         void next(struct base *b) { b[1].b = 5; }\n\
         void whole(struct derived *d) { d->d = 5; }\n\
         void last(struct open *o) { o->of[2] = 5; }\n",
    );
    assert_eq!(typed(&stores, "down"), [] as [&str; 0]);
    assert_eq!(typed(&stores, "next"), [] as [&str; 0]);
    assert_eq!(typed(&stores, "whole"), ["struct derived: d"]);
    assert_eq!(typed(&stores, "last"), ["struct open: of[]"]);
}

/// Some element is not the first.
#[test]
fn what_a_function_returns_is_at_its_index() {
    let stores = stores(
        "struct entry { long key, val; }; struct node { long used, pad; struct entry entries[8]; };\n\
         static __attribute__((noipa)) struct entry *slot(struct node *n, int i) { return &n->entries[i]; }\n\
         static __attribute__((noipa)) struct entry *second(struct node *n) { return &n->entries[1]; }\n\
         void put(struct node *n, int i, long v) { slot(n, i)->val = v; }\n\
         void put_second(struct node *n, long v) { second(n)->val = v; }\n",
    );
    assert_eq!(typed(&stores, "put"), ["struct entry: val in struct node: array"]);
    assert_eq!(
        typed(&stores, "put_second"),
        ["struct entry: val in struct node: entries[].val"]
    );
}

/// A program of two sources: compilers put types into units of their own, link-time optimisation refers from one unit to another, `dwz` makes
/// units of what others have in common. What is known of each store stays the same.
#[test]
fn types_in_other_units() {
    const SHARED: &str = "
        #define KEPT extern \"C\" __attribute__((noinline, used, visibility(\"default\")))
        #ifndef __cplusplus
        #undef KEPT
        #define KEPT __attribute__((noinline, used, visibility(\"default\")))
        #endif
        enum kind { LEAF, INNER, OTHER_KIND, AND_ANOTHER };
        struct statistics { long reads, writes, splits, merges, hits, misses, first_seen, last_seen; };
        typedef struct { enum kind kind; int count; } header;
        struct node { header head; long keys[200]; struct node *next; union { int small; long large; } value; struct statistics all; };
        struct root { long used; struct node nodes[8]; struct { int a, b; } pair; };
        void elsewhere(struct node *node);\n";
    const FIRST: &str = "
        KEPT void first(struct node *node, int i) {
            node->head.count = i; node->keys[i] = 7; node->next->value.large = 3; elsewhere(node); node->all.hits = i; }\n";
    const SECOND: &str = "
        KEPT void second(struct root *root, long i) { root->nodes[2].keys[1] = i; root->pair.b = 5; root->nodes[i].head.kind = INNER; }
        void elsewhere(struct node *node) { node->all.merges = node->all.splits; }\n";
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let run = |command: &mut std::process::Command| {
        let output = command.output().unwrap();
        assert!(
            output.status.success(),
            "{command:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    };
    for (suffix, compilers) in [("c", ["gcc", "clang-19"]), ("cpp", ["g++", "clang++-19"])] {
        let (open, close) = if suffix == "cpp" {
            ("namespace tree {", "}")
        } else {
            ("", "")
        };
        for (name, text) in [("first", FIRST), ("second", SECOND)] {
            let source = format!("{open}\n{SHARED}{text}{close}\n");
            std::fs::write(at(&format!("{name}.{suffix}")), source).unwrap();
        }
        for compiler in compilers {
            let build = |options: &[&str]| {
                let object = at("a.so");
                let mut command = std::process::Command::new(compiler);
                command
                    .args(["-g", "-O1", "-fcf-protection=none", "-shared", "-fPIC"])
                    .args(options);
                for name in ["first", "second"] {
                    command.arg(at(&format!("{name}.{suffix}")));
                }
                run(command.arg("-o").arg(&object));
                object
            };
            let sorted = |info: &DebugInfo| {
                let mut found = stores_of(info);
                found.retain(|(_, target)| target.contains(": "));
                found.sort();
                found
            };
            let plain = DebugInfo::read_one(&build(&[]));
            let expected = sorted(&plain);
            assert!(!plain.has_foreign_entries());
            let of = |ty: &str| match suffix {
                "cpp" => format!("tree::{ty}"),
                _ => format!("struct {ty}"),
            };
            for (ty, field) in [("statistics", "hits"), ("node", "all.hits"), ("root", "pair.b")] {
                let wanted = format!("{}: {field}", of(ty));
                let is_there = expected.iter().any(|(_, target)| target.contains(&wanted));
                assert!(is_there, "{compiler}: {wanted} in {expected:#?}");
            }
            let variants: [&[&str]; 3] = [
                &["-fdebug-types-section", "-gdwarf-5"],
                &["-fdebug-types-section", "-gdwarf-4"],
                &["-flto"],
            ];
            for options in variants {
                let info = DebugInfo::read_one(&build(options));
                // For C, clang makes no use of other units.
                assert!(
                    info.has_foreign_entries() || compiler == "clang-19",
                    "{compiler} {options:?}"
                );
                assert_eq!(sorted(&info), expected, "{compiler} {options:?}");
            }
            // The newest that dwz knows all sections of.
            let object = build(&["-gdwarf-4"]);
            run(std::process::Command::new("dwz").arg(&object));
            let info = DebugInfo::read_one(&object);
            assert!(info.has_foreign_entries(), "{compiler}, dwz");
            assert_eq!(sorted(&info), expected, "{compiler}, dwz");
        }
    }
}

/// Link-time optimisation reads two sources of C as one, each with a `struct node` of its own: what one of them only declares is not what the
/// other defines, nor is it what a function of the other returns.
#[test]
fn a_declaration_is_of_its_own_unit() {
    const KEPT: &str = "#define KEPT __attribute__((noipa, used, visibility(\"hidden\")))\n";
    const OPAQUE: &str = "
        struct node; struct list { struct node *first; long count; };
        KEPT struct node *opaque(struct list *list) { return list->first; }
        KEPT void in_opaque(struct list *list) { list->count = 1; ((long *)opaque(list))[1] = 2; }\n";
    const FIRST: &str = "
        struct node { long key, value; };
        KEPT struct node *first_node(struct node *n) { return n; }
        KEPT void in_first(struct node *n) { n->value = 3; first_node(n)->key = 4; }\n";
    const SECOND: &str = "
        struct node { long left, right; };
        KEPT struct node *second_node(struct node *n) { return n; }
        KEPT void in_second(struct node *n) { n->right = 5; second_node(n)->left = 6; }\n";
    for sources in [
        &[OPAQUE, FIRST][..],
        &[FIRST, OPAQUE],
        &[OPAQUE, FIRST, SECOND],
        &[SECOND, FIRST, OPAQUE],
    ] {
        let folder = tempfile::tempdir().unwrap();
        let object = folder.path().join("a.so");
        let mut compile = std::process::Command::new("gcc");
        compile.args(["-g", "-O2", "-flto", "-fcf-protection=none", "-shared", "-fPIC"]);
        for (number, source) in sources.iter().enumerate() {
            let file = folder.path().join(format!("{number}.c"));
            std::fs::write(&file, format!("{KEPT}{source}")).unwrap();
            compile.arg(file);
        }
        assert!(compile.arg("-o").arg(&object).status().unwrap().success());
        let stores = stores_of(&DebugInfo::read_one(&object));
        assert_eq!(typed(&stores, "in_opaque"), ["struct list: count"], "{sources:?}");
        assert_eq!(
            typed(&stores, "in_first"),
            ["struct node: value", "struct node: key"],
            "{sources:?}"
        );
        if sources.contains(&SECOND) {
            assert_eq!(
                typed(&stores, "in_second"),
                ["struct node: right", "struct node: left"],
                "{sources:?}"
            );
        }
    }
}

/// What a function defines is not what the file declares.
#[test]
fn a_declaration_is_not_of_a_function() {
    let stores = stores(
        "struct node; struct list { struct node *first; long count; };\n\
         void look(void *p);\n\
         void local(void) { struct node { long key, value; } n; n.key = 1; look(&n); }\n\
         void put(struct list *list) { list->count = 1; ((long *)list->first)[1] = 2; }\n",
    );
    assert_eq!(typed(&stores, "put"), ["struct list: count"]);
}

/// A class that is only declared in one namespace is not that of another.
#[test]
fn a_declaration_is_of_its_own_namespace() {
    let folder = tempfile::tempdir().unwrap();
    let (source, object) = (folder.path().join("a.cpp"), folder.path().join("a.so"));
    let text = "
        namespace a { struct node; struct list { node *first; long count; }; }
        namespace b { struct node { long key, value; }; }
        extern \"C\" void in_a(a::list *list) { list->count = 1; ((long *)list->first)[1] = 2; }
        extern \"C\" void in_b(b::node *n) { n->value = 3; }\n";
    std::fs::write(&source, text).unwrap();
    for compiler in ["g++", "clang++-19"] {
        let mut compile = std::process::Command::new(compiler);
        compile
            .args(["-g", "-O2", "-fcf-protection=none", "-shared", "-fPIC"])
            .arg(&source);
        assert!(compile.arg("-o").arg(&object).status().unwrap().success());
        let stores = stores_of(&DebugInfo::read_one(&object));
        assert_eq!(typed(&stores, "in_a"), ["a::list: count"], "{compiler}");
        assert_eq!(typed(&stores, "in_b"), ["b::node: value"], "{compiler}");
    }
}

/// An array of more than 127 elements, whose bound fits into a byte, is not open-ended.
#[test]
fn bounds_have_no_sign() {
    let stores = stores(
        "struct table { long entries[200]; long last; char text[200]; long end; };\n\
         void put(struct table *t, long i) { t->entries[i] = 5; t->last = 1; *(long *)(t->text + 8) = 3; t->end = 2; }\n",
    );
    assert_eq!(
        typed(&stores, "put"),
        ["struct table: array", "struct table: last", "struct table: end"]
    );
}

/// Debug info has the address 0 for a variable that the linker left out.
#[test]
fn what_was_left_out_is_not_at_address_0() {
    let stores = stores(
        "struct table { struct table *entries[100]; };\n\
         #define HIDDEN __attribute__((visibility(\"hidden\")))\n\
         HIDDEN struct table gone; HIDDEN void unused(void) { gone.entries[3] = &gone; }\n\
         void put(long *index) { *(long *)(*index * 8) = 4; }\n",
    );
    assert_eq!(stores, [("put".to_owned(), "Unknown".to_owned())]);
}

/// Functions that the linker made one, and one function in pieces.
#[test]
fn code_of_several_is_of_none() {
    let ranges = [
        (10..20, 0),
        (10..20, 1),
        (15..30, 2),
        (40..50, 3),
        (50..60, 3),
        (45..48, 3),
        (60..70, 4),
    ];
    let disjoint = disjoint(&ranges);
    let owner = |address| lookup(&disjoint, address);
    assert_eq!(
        [5, 10, 17, 20, 29, 30].map(owner),
        [None, None, None, Some(2), Some(2), None]
    );
    assert_eq!(
        [40, 46, 50, 59, 60, 70].map(owner),
        [Some(3), Some(3), Some(3), Some(3), Some(4), None]
    );
}

/// No damage to debug info or code is an error, or more.
#[test]
fn damaged_files_have_no_types() {
    let program = std::env::current_exe().unwrap();
    assert!(DebugInfo::read(Path::new("/nowhere"), &program).is_none());
    let folder = tempfile::tempdir().unwrap();
    let (source, object) = (folder.path().join("a.c"), folder.path().join("a.so"));
    let text = "struct n { long k, v[4]; struct n *next; union { int a; char b; } u; };\n\
                void set(struct n *n, int i) { n->next->v[i] = 3; n->u.a = 1; }\n";
    std::fs::write(&source, text).unwrap();
    let mut compile = std::process::Command::new("gcc");
    compile
        .args(["-g", "-O1", "-shared", "-fPIC", "-o"])
        .arg(&object)
        .arg(&source);
    assert!(compile.status().unwrap().success());
    let whole = std::fs::read(&object).unwrap();
    let damaged = folder.path().join("damaged.so");
    let known = |path: &Path| {
        let info = DebugInfo::read(path, path)?;
        let ranges: Vec<u64> = info
            .ranges
            .iter()
            .flat_map(|(range, _)| range.start..range.end.min(range.start + 256))
            .collect();
        Some(ranges.into_iter().filter_map(|address| info.store(address)).count())
    };
    assert_eq!(known(&object), Some(2));
    let mut state = 1u64;
    for _ in 0..300 {
        let mut bytes = whole.clone();
        for _ in 0..8 {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            let at = (state >> 33) as usize % bytes.len();
            bytes[at] = (state >> 20) as u8;
        }
        std::fs::write(&damaged, bytes).unwrap();
        let _ = known(&damaged);
    }
}
