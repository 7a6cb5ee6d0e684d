//! Flushes and fences behind statements of all kinds.

use insta::assert_snapshot;

use super::harness::{repaired_c, repaired_cxx};

const RECORD: &str = "#include <stdint.h>\n#include <string.h>\n\nstruct record {\n    uint64_t id;\n    uint64_t value;\n    char name[48];\n    struct record *next;\n    unsigned flag : 1;\n};\n\n";

fn in_record(code: &str) -> String {
    let repaired = repaired_c(&format!("{RECORD}{code}"));
    // The declarations are the same in all cases.
    match repaired.split_once("    unsigned flag : 1;\n};\n\n") {
        Some((_, code)) => code.to_owned(),
        None => repaired,
    }
}

#[test]
fn plain_assignments() {
    assert_snapshot!(in_record(
        "void f(struct record *p, uint64_t *q, int i, const char *s) {
    p->id = 1; //~ flush+fence
    *q = 2; //~ flush
    q[i] = 3; //~ flush
    p->value += 4; // why //~ flush
    p->next->value++; //~ flush
    *(uint32_t *)(p->name + 4) = 5; //~ flush
    p->flag = 1; //~ flush
    p[i] = *p; //~ flush
    memcpy(p->name, s, strlen(s) + 1); //~ flush+fence
    strcpy(p->name, s); //~ flush
    memset(p, 0, sizeof(*p)); //~ flush
    __atomic_store_n(&p->id, 3, __ATOMIC_RELEASE); //~ flush
    __sync_fetch_and_add(q, 1); //~ flush
}
"
    ));
}
