//! What must not move, and the reason that is given.

use super::reason;

/// The flag is stored first, and `between` lies between it and the data.
fn with_between(between: &str) -> String {
    reason(&format!(
        "int g(void);
volatile int seen;
void f(struct record *r, int n) {{
    r->valid = 1; //~ after; store 128 8
    CLWB(&r->valid); //~ flush 128
    SFENCE(); //~ fence
{between}
    r->value = 7; //~ before; store 0 8
    CLWB(&r->value); //~ flush 0
    SFENCE(); //~ fence
}}
"
    ))
}

#[track_caller]
fn refused(between: &str, because: &str) {
    let reason = with_between(between);
    assert!(reason.contains(because), "{reason}");
}

#[test]
fn nothing_moves_past_what_leaves_the_block() {
    refused(
        "    if (n < 0)\n        return;",
        "may leave the block (a return), and line 18 (`r->valid = 1`) would not be done then",
    );
    refused("    if (n < 0)\n        goto end;\n    end:\n    n++;", "a goto");
}

#[test]
fn nothing_moves_past_what_may_end_the_program() {
    refused(
        "    if (n < 0)\n        exit(1);",
        "may not come to its end (a call of exit)",
    );
}

#[test]
fn nothing_moves_past_a_label() {
    refused("    again:\n    n++;", "has a label, by which the code is entered");
}

#[test]
fn nothing_moves_past_a_directive() {
    refused(
        "#ifdef EXTRA\n    n++;\n#endif\n    n--;",
        "a preprocessor directive lies between",
    );
}

#[test]
fn nothing_moves_past_output_or_unknown_functions() {
    refused("    write(1, \"x\", 1);", "calls write, so that the outside knows");
    refused("    n = g();", "calls g, which may do anything");
}

#[test]
fn nothing_moves_past_volatile_and_atomic_accesses() {
    refused("    n = seen;", "accesses volatile memory");
    refused(
        "    __atomic_store_n(&r->other, 1, __ATOMIC_RELEASE);",
        "synchronises with other threads",
    );
}

#[test]
fn nothing_moves_past_what_it_depends_on() {
    // What is between reads the flag, and the data is computed from it.
    let text = reason(
        "void f(struct record *r) {
    r->valid = 1; //~ after; store 128 8
    CLWB(&r->valid); //~ flush 128
    SFENCE(); //~ fence
    r->value = r->valid + 1; //~ before; store 0 8
    CLWB(&r->value); //~ flush 0
    SFENCE(); //~ fence
}
",
    );
    assert!(
        text.contains("may touch the same memory, and one of them writes it"),
        "{text}"
    );
}

#[test]
fn pointers_that_may_be_the_same_are() {
    let text = reason(
        "void f(uint64_t *flag, uint64_t *data) {
    *flag = 1; //~ after; store 128 8
    CLWB(flag); //~ flush 128
    SFENCE(); //~ fence
    *data = 7; //~ before; store 0 8
    CLWB(data); //~ flush 0
    SFENCE(); //~ fence
}
void any(uint64_t *p) {
    f(p, p);
}
",
    );
    assert!(text.contains("may touch the same memory"), "{text}");
}

#[test]
fn declarations_stay() {
    let text = reason(
        "void f(struct record *r) {
    uint64_t slot = r->valid = 1; //~ after; store 128 8
    CLWB(&r->valid); //~ flush 128
    SFENCE(); //~ fence
    r->value = slot; //~ before; store 0 8
    CLWB(&r->value); //~ flush 0
    SFENCE(); //~ fence
}
",
    );
    assert!(
        text.contains("declares a variable, which has to stay where it is"),
        "{text}"
    );
}

#[test]
fn statements_of_one_macro_stay_together() {
    let text = reason(
        "#define SET(r) r->valid = 1; r->value = 7
void f(struct record *r) {
    r->other = 0;
    SET(r); //~ after; before; store 128 8; store 0 8
    SFENCE(); //~ fence
}
",
    );
    assert!(
        text.contains("one statement makes both stores") || text.contains("the macro SET"),
        "{text}"
    );
}

#[test]
fn a_statement_that_shares_its_line_stays() {
    let text = reason(
        "void f(struct record *r, int n) {
    r->valid = 1; n++; //~ after; store 128 8
    CLWB(&r->valid); //~ flush 128
    SFENCE(); //~ fence
    r->value = 7; n--; //~ before; store 0 8
    CLWB(&r->value); //~ flush 0
    SFENCE(); //~ fence
}
",
    );
    assert!(text.contains("has more than that statement"), "{text}");
}

#[test]
fn branches_of_one_if_have_no_order() {
    let text = reason(
        "void f(struct record *r, int n) {
    if (n)
        r->valid = 1; //~ after; store 128 8
    else
        r->value = 7; //~ before; store 0 8
}
",
    );
    assert!(text.contains("one statement makes both stores"), "{text}");
}

/// What a branch stores now and then, the flush behind it is there for; so it stays, and another is added.
#[test]
fn a_flush_does_not_move_past_a_branch_that_it_serves() {
    let text = super::in_order(
        "void f(struct record *r, int n) {
    r->value = 7; //~ before; store 0 8
    r->valid = 1; //~ after; store 128 8
    if (n > 0)
        r->other = 2;
    CLWB(&r->value); //~ flush 0
    CLWB(&r->valid); //~ flush 128
    SFENCE(); //~ fence
}
",
    );
    let expected = "    r->value = 7;
    CLWB(&r->value);
    SFENCE();
    r->valid = 1;
    if (n > 0)
        r->other = 2;
    CLWB(&r->value);
";
    assert!(text.contains(expected), "{text}");
}

/// On a path that was not recorded the first fence is there for the log, which has to persist before the value.
#[test]
fn a_fence_that_another_path_needs_does_not_come_later() {
    let reason = reason(
        "struct logged { _Alignas(64) uint64_t log; _Alignas(64) uint64_t value; _Alignas(64) uint64_t valid; };
void f(struct logged *r, int n) {
    if (n > 0) {
        r->log = n;
        CLWB(&r->log);
    }
    r->valid = 1; //~ after; store 128 8
    CLWB(&r->valid); //~ flush 128
    SFENCE(); //~ fence
    r->value = 7; //~ before; store 64 8
    CLWB(&r->value); //~ flush 64
    SFENCE(); //~ fence
}
",
    );
    assert!(reason.contains("must not come later"), "{reason}");
}

/// The line that is flushed may hold the element, with another index.
#[test]
fn a_flush_does_not_move_past_a_store_at_an_index() {
    let text = super::in_order(
        "struct slots { _Alignas(64) uint64_t value; uint64_t slots[15]; _Alignas(64) uint64_t valid; };
void f(struct slots *r, int n) {
    r->value = 7; //~ before; store 0 8
    r->valid = 1; //~ after; store 128 8
    r->slots[n] = 5; //~ store 88 8
    CLWB(&r->value); //~ flush 0
    CLWB(&r->valid); //~ flush 128
    SFENCE(); //~ fence
}
",
    );
    assert!(text.contains("r->slots[n] = 5;\n    CLWB(&r->value);"), "{text}");
}

#[test]
fn members_of_a_union_are_not_apart() {
    let reason = reason(
        "struct number { uint64_t flag; };
struct pointer { uint64_t *word; };
union either { struct number a; struct pointer b; };
struct all { _Alignas(64) union either u[2]; _Alignas(64) uint64_t value; };
void f(struct all *r, int n) {
    r->u[0].a.flag = 1; //~ after; store 0 8
    CLWB(&r->u[0]); //~ flush 0
    SFENCE(); //~ fence
    r->value = (r->u[n].b.word != 0) + 7; //~ before; store 64 8
    CLWB(&r->value); //~ flush 64
    SFENCE(); //~ fence
}
",
    );
    assert!(reason.contains("may touch the same memory"), "{reason}");
}
