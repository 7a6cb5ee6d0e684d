//! The whole program from what is embedded in it: `crashproof-cc --crashproof-program`.

use crate::support;

use support::Folder;

const CC: &str = env!("CARGO_BIN_EXE_crashproof-cc");

/// Two objects with a static function of the same name, a shared library with one of its own, and a call through a pointer.
fn build(folder: &Folder) {
    folder.write("first.c", "struct node { long key; struct node *next; };\n\
        static void touch(struct node *n) { n->key = 1; }\n\
        void second(struct node *); long library(long);\n\
        void chosen(struct node *n) { n->next = n; }\n\
        void (*choice)(struct node *) = chosen;\n\
        int main(int c, char **v) { struct node *n = (struct node *)v; if (c > 5) { touch(n); second(n); choice(n); } return library(c) > 9; }\n");
    folder.write(
        "second.c",
        "struct node { long key; struct node *next; };\n\
        static void touch(struct node *n) { n->key = 2; }\n\
        void second(struct node *n) { touch(n); }\n",
    );
    folder.write(
        "library.c",
        "static long touch(long n) { return n + 1; }\n\
        __attribute__((visibility(\"hidden\"))) long second(long n) { return touch(n); }\n\
        long library(long n) { return second(n); }\n",
    );
    let commands: [&[&str]; 2] = [
        &["-O0", "-shared", "-fPIC", "library.c", "-o", "libextra.so"],
        &[
            "-O0",
            "first.c",
            "second.c",
            "-L.",
            "-lextra",
            "-Wl,-rpath,$ORIGIN",
            "-o",
            "program",
        ],
    ];
    for arguments in commands {
        let output = folder.run(CC, arguments);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

fn overview(folder: &Folder, binary: &str) -> (bool, String) {
    let output = folder.run(CC, &["--crashproof-program", binary]);
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

#[test]
fn modules_calls_types_and_sites() {
    let folder = Folder::new();
    build(&folder);
    let (success, text) = overview(&folder, "program");
    assert!(success, "{text}");
    assert!(!text.contains("left out"), "{text}");
    for line in [
        "  source first.c (",
        "  source second.c (",
        "  source library.c (",
        "function main\n  calls library\n  calls second\n  calls touch\n  may call chosen\n",
        "function second\n  calls touch.", // That of second.c: renamed.
        "type struct node (16 bytes)\n  key 0+8\n  next 8+8\n",
        "first.c:2:44 touch: store to struct node.key",
        "second.c:2:44 touch: store to struct node.key",
        "first.c:4:39 chosen: store to struct node.next",
        "3 sites write: 3 to a known field",
    ] {
        assert!(text.contains(line), "{line:?} is missing in\n{text}");
    }
    // The library's hidden function did not get in the way of the program's.
    assert_eq!(text.matches("\nfunction second").count(), 2, "{text}");
    assert_eq!(text.matches("\nfunction touch").count(), 3, "{text}");
}

#[test]
fn what_stripping_leaves() {
    let folder = Folder::new();
    build(&folder);
    assert!(folder.run("strip", &["program", "-o", "stripped"]).status.success());
    let (success, text) = overview(&folder, "stripped");
    assert!(success && text.contains("3 sites write"), "{text}");
    assert!(folder.run("llvm-strip-19", &["program", "-o", "bare"]).status.success());
    let (success, text) = overview(&folder, "bare");
    assert!(!success && text.contains("llvm-strip does that"), "{text}");
    let (success, text) = overview(&folder, "/bin/true");
    assert!(!success && text.contains("holds no bitcode"), "{text}");
}

/// Two objects with the same inline function and template, and one strong symbol twice.
#[test]
fn duplicates() {
    let folder = Folder::new();
    folder.write(
        "shared.h",
        "template <class T> struct cell { T value; void set(T v) { value = v; } };\n\
        inline void clear(cell<int> *c) { c->set(0); }\n",
    );
    folder.write(
        "one.cc",
        "#include \"shared.h\"\nvoid two(cell<int> *);\n\
        int main(int c, char **v) { if (c > 5) { clear((cell<int> *)v); two((cell<int> *)v); } }\n",
    );
    folder.write(
        "two.cc",
        "#include \"shared.h\"\nvoid two(cell<int> *c) { clear(c); c->set(2); }\n",
    );
    let output = folder.run(CC, &["--driver-mode=g++", "-O0", "one.cc", "two.cc", "-o", "program"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let (success, text) = overview(&folder, "program");
    assert!(success && !text.contains("left out"), "{text}");
    assert_eq!(text.matches("\nfunction _Z5clearP4cellIiE\n").count(), 1, "{text}");
    assert!(text.contains("store to cell<int>.value"), "{text}");
}
