//! Whether functions are helpers, by the front end's code and by machine code: both say what the function was made to
//! be.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crashproof_sites::JudgedFunctions;
use crashproof_stacks::helper::ModuleCode;

use crate::support::{CLANG, Folder, cc};

const FUNCTIONS: &str = include_str!("../../../stacks/src/helper/tests/functions.c");
const INLINED: &str = include_str!("../../../stacks/src/helper/tests/inlined.c");

fn build(folder: &Folder, compiler: &str, level: &str) {
    folder.done(
        compiler,
        &[level, "-g", "-shared", "-fPIC", "-w", "-o", "code.so", "code.c"],
    );
}

/// What `crashproof cc` at this level says of these functions.
fn judged<'n>(folder: &Folder, level: &str, names: impl Iterator<Item = &'n str>) -> BTreeMap<&'n str, Option<bool>> {
    build(folder, cc(), level);
    let judged = JudgedFunctions::read(&folder.path("code.so"));
    let file = folder.path("code.c").display().to_string();
    names.map(|name| (name, judged.is_helper(name, &file))).collect()
}

/// The names of functions in C, with what they are called for.
fn names<'s>(source: &'s str, kinds: &'s [&'s str]) -> impl Iterator<Item = &'s str> {
    source.lines().filter_map(move |line| {
        let (before, _) = line.strip_prefix("NOINLINE ")?.split_once('(')?;
        let name = before.rsplit([' ', '*']).next()?;
        kinds.iter().any(|kind| name.starts_with(kind)).then_some(name)
    })
}

const LEVELS: [&str; 3] = ["-O0", "-O1", "-O2"];

#[test]
fn functions_of_both_kinds() {
    // What the front end's code leaves to the machine code.
    let open = BTreeSet::from([
        // Call what is not here.
        "no_unknown",
        // Inline assembly that stores.
        "yes_nontemporal",
        // What is copied is memory of its own.
        "no_memcpy_local",
        // Calls itself with what it has read.
        "no_recursive_build",
    ]);
    let folder = Folder::new();
    folder.write("code.c", FUNCTIONS);
    for level in LEVELS {
        let judged = judged(&folder, level, names(FUNCTIONS, &["yes_", "no_"]));
        let wrong: Vec<_> = judged
            .iter()
            .filter(|(name, verdict)| match open.contains(**name) {
                true => verdict.is_some(),
                false => **verdict != Some(name.starts_with("yes_")),
            })
            .collect();
        assert!(wrong.is_empty(), "{level} {wrong:#?}");
    }
}

/// What machine code leaves in doubt at some level and the front end's code does not.
#[test]
fn functions_that_only_the_front_end_shows() {
    let source = r#"
        #include <stdbool.h>
        #include <stdint.h>
        #define NOINLINE __attribute__((noinline))
        struct flags { uint64_t used; bool valid; };
        NOINLINE void yes_bool(struct flags *flags, bool valid) { flags->valid = valid; }
        NOINLINE void yes_switch(void *at, int size, uint64_t value) {
            switch (size) {
            case 1: *(uint8_t *)at = value; break;
            case 2: *(uint16_t *)at = value; break;
            case 4: *(uint32_t *)at = value; break;
            case 8: *(uint64_t *)at = value; break;
            case 16: __builtin_trap();
            }
        }
    "#;
    let folder = Folder::new();
    folder.write("code.c", source);
    for level in LEVELS {
        let judged = judged(&folder, level, ["yes_bool", "yes_switch"].into_iter());
        assert!(
            judged.values().all(|verdict| *verdict == Some(true)),
            "{level} {judged:?}"
        );
    }
}

/// Where a function is inlined makes no difference to what it is.
#[test]
fn inlined_functions_of_both_kinds() {
    let expected = BTreeMap::from([
        ("flush_line", Some(true)),
        ("drain", Some(true)),
        ("flush", Some(true)),
        ("set", Some(true)),
        ("set_word", Some(true)),
        ("set_global", Some(false)),
        ("add", Some(false)),
        ("mark", Some(false)),
        ("unfinished", Some(false)),
    ]);
    let folder = Folder::new();
    folder.write("code.c", INLINED);
    for level in LEVELS {
        assert_eq!(judged(&folder, level, expected.keys().copied()), expected, "{level}");
    }
}

/// Numbers that are the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }

    fn pick(&mut self, from: &[&'static str]) -> &'static str {
        from[self.below(from.len())]
    }
}

/// A function that stores or flushes what it is told to, and maybe one more thing, which makes it no helper.
fn random_function(number: usize, random: &mut Random) -> String {
    let ty = random.pick(&["uint64_t", "uint32_t", "uint16_t", "uint8_t", "double"]);
    let place = random.pick(&[
        "*(T *)p",
        "p->tail",
        "((T *)p)[index]",
        "((T *)p->base)[index]",
        "((T *)p->base)[3]",
    ]);
    let (body, stores) = match random.below(6) {
        0 => (format!("{place} = value;"), true),
        1 => (format!("{place} = *from;"), true),
        2 => (format!("{place} = value; flush(&{place}, sizeof(T)); SFENCE();"), true),
        3 => (format!("CLWB(&{place});"), false),
        4 => (format!("flush(&{place}, len); SFENCE();"), false),
        _ => (
            "for (size_t i = 0; i < len; i++) ((T *)p)[i] = from[i];".to_owned(),
            true,
        ),
    };
    let also = [
        "",
        "",
        "statistics++;",
        "if (len == 0) abort();",
        "other->words[1] = index;",
        "global_pm->words[2] = index;",
        "elsewhere(from);",
        "p->words[p->used & 7] = index;",
        "while (other->next) other = other->next; other->used = index;",
        "CLWB(other);",
    ];
    let chosen = random.below(also.len());
    let is_helper = chosen < 4;
    let first = random.below(2) == 0;
    // Behind what flushes, a store would be another mistake; before it, too, it is one more place.
    let body = match first {
        true => format!("{} {body}", also[chosen]),
        false => format!("{body} {}", also[chosen]),
    };
    let name = if is_helper { "yes" } else { "no" };
    let from = if stores { "const T *from" } else { "T *from" };
    format!(
        "#define T {ty}\nNOINLINE void {name}_{number}(struct object *p, size_t index, T value, {from}, size_t len, struct object *other) \
         {{ {} }}\n#undef T\n",
        body.replace("p->tail", "p->TAIL")
            .replace("TAIL", &format!("tail_{ty}"))
    )
}

const RANDOM: &str = r#"
#include <stdint.h>
#include <stddef.h>
#include <stdlib.h>

#define CLWB(p) __asm__ volatile("clwb %0" : "+m"(*(volatile char *)(p)) : : "memory")
#define SFENCE() __asm__ volatile("sfence" : : : "memory")
#define NOINLINE __attribute__((noinline, noclone))

struct object {
    uint64_t used;
    char *base;
    uint64_t words[8];
    struct object *next;
    uint64_t tail_uint64_t; uint32_t tail_uint32_t; uint16_t tail_uint16_t; uint8_t tail_uint8_t; double tail_double;
};
extern struct object *global_pm;
extern uint64_t statistics;
void elsewhere(const void *);

static inline void flush(const void *at, size_t len) {
    uintptr_t end = (uintptr_t)at + len;
    for (uintptr_t line = (uintptr_t)at & ~(uintptr_t)63; line < end; line += 64)
        CLWB(line);
}
"#;

/// The two kinds of evidence, for every compiler and level, and as the function was made.
#[test]
fn random_functions() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let functions: String = (0..150).map(|number| random_function(number, &mut random)).collect();
    let folder = Folder::new();
    folder.write("code.c", &(RANDOM.to_owned() + &functions));
    let mut wrong = Vec::new();
    for level in LEVELS {
        let judged = judged(&folder, level, names(&functions, &["yes_", "no_"]));
        assert!(judged.len() > 100, "{}", judged.len());
        for (name, verdict) in &judged {
            let calls_elsewhere = line(&functions, name).contains("elsewhere(");
            let expected = (!calls_elsewhere).then_some(name.starts_with("yes_"));
            if *verdict != expected {
                wrong.push(format!("{level} front end {verdict:?}: {}", line(&functions, name)));
            }
        }
        for compiler in ["gcc", CLANG, cc()] {
            build(&folder, compiler, level);
            for (name, by_code) in by_machine_code(&folder.path("code.so")) {
                let Some(by_source) = judged.get(&name[..]) else {
                    continue;
                };
                // Around wide stores, hooks leave machine code in doubt.
                let is_in_doubt = compiler == cc() && !by_code;
                let is_other = by_source.is_some_and(|by_source| by_source != by_code);
                if !is_in_doubt && (is_other || by_code != name.starts_with("yes_")) {
                    wrong.push(format!(
                        "{compiler} {level} {by_source:?} {by_code}: {}",
                        line(&functions, &name)
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

fn by_machine_code(module: &Path) -> Vec<(String, bool)> {
    let code = ModuleCode::read(module, Some(module)).unwrap();
    code.functions()
        .map(|(name, verdict)| (name.to_owned(), verdict))
        .collect()
}

fn line<'s>(functions: &'s str, name: &str) -> &'s str {
    let call = format!(" {name}(");
    functions.lines().find(|line| line.contains(&call)).unwrap_or_default()
}
