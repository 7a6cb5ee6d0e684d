//! Stores that have to be one.

use super::harness::{left_apart, made_one};

const TYPES: &str = "#include <stddef.h>
#include <stdint.h>

struct pair {
    _Alignas(64) uint32_t low;
    uint32_t high;
    uint64_t far;
};

";

fn in_pair(code: &str) -> String {
    let text = made_one(&format!("{TYPES}{code}"));
    text.split_once("far;\n};\n\n")
        .map_or(text.clone(), |(_, code)| code.to_owned())
}

#[test]
fn members_of_one_word_become_one_store() {
    let text = in_pair(
        "void f(struct pair *pair, int x) {
    pair->high = x + 1; //~ after; store 4 4
    pair->low = 7; //~ before; store 0 4
}
",
    );
    assert_eq!(
        text,
        "void f(struct pair *pair, int x) {
    __atomic_store_n((uint64_t __attribute__((may_alias)) *)&pair->low, (uint64_t)(uint32_t)(7) | (uint64_t)(uint32_t)(x + 1) << 32, __ATOMIC_RELAXED);
}
"
    );
}

#[test]
fn other_members_are_left_with_their_names() {
    let (reason, advice) = left_apart(&format!(
        "{TYPES}void f(struct pair *pair) {{
    pair->low = 7; //~ before; store 0 4
    pair->far = 8; //~ after; store 8 8
}}
"
    ));
    assert!(reason.contains("they have to become persistent as one"), "{reason}");
    assert!(
        advice.contains("`pair->low` (a.c:11)") && advice.contains("`pair->far` (a.c:12)"),
        "{advice}"
    );
    assert!(advice.contains("a log") && advice.contains("a transaction"), "{advice}");
}

/// What the second computes from the first is not what the first was.
#[test]
fn what_depends_on_the_other_is_left() {
    let (reason, _) = left_apart(&format!(
        "{TYPES}void f(struct pair *pair) {{
    pair->low = 7; //~ before; store 0 4
    pair->high = pair->low; //~ after; store 4 4
}}
"
    ));
    assert!(reason.contains("they have to become persistent as one"), "{reason}");
}

const TRANSACTION: &str = "#define TX_BEGIN(pool) if (begin(pool))
#define TX_END end();
int begin(void *pool);
void end(void);
int pmemobj_tx_add_range_direct(const void *at, size_t size);

";

#[test]
fn a_store_of_a_transaction_gets_its_snapshot() {
    let text = in_pair(&format!(
        "{TRANSACTION}void f(void *pool, struct pair *pair) {{
    TX_BEGIN(pool) {{
        pmemobj_tx_add_range_direct(&pair->low, sizeof(pair->low));
        pair->low = 7; //~ before; store 0 4
        pair->far = 8; //~ after; store 8 8
    }} TX_END
}}
"
    ));
    let expected = "        pair->low = 7;
        pmemobj_tx_add_range_direct(&pair->far, sizeof(pair->far));
        pair->far = 8;
";
    assert!(text.contains(expected), "{text}");
}

/// Behind the transaction a snapshot would end the program.
#[test]
fn a_store_behind_a_transaction_gets_none() {
    let (reason, _) = left_apart(&format!(
        "{TYPES}{TRANSACTION}void f(void *pool, struct pair *pair) {{
    TX_BEGIN(pool) {{
        pmemobj_tx_add_range_direct(&pair->low, sizeof(pair->low));
    }} TX_END
    pair->low = 7; //~ before; store 0 4
    pair->far = 8; //~ after; store 8 8
}}
"
    ));
    assert!(reason.contains("they have to become persistent as one"), "{reason}");
}

/// What is stored to a `bool` is 0 or 1, whatever the value.
#[test]
fn truth_values_are_left() {
    let (reason, _) = left_apart(
        "#include <stdbool.h>
struct flags { _Alignas(64) bool low; bool high; };
void f(struct flags *flags, int n) {
    flags->low = n & 4; //~ before; store 0 1
    flags->high = n & 8; //~ after; store 1 1
}
",
    );
    assert!(reason.contains("they have to become persistent as one"), "{reason}");
}

/// What comes in between may rely on the first.
#[test]
fn stores_with_something_in_between_are_left() {
    let (reason, _) = left_apart(&format!(
        "{TYPES}void f(struct pair *pair, int n) {{
    pair->low = 7; //~ before; store 0 4
    if (n > 1)
        pair->far = 1;
    pair->high = 8; //~ after; store 4 4
}}
"
    ));
    assert!(reason.contains("they have to become persistent as one"), "{reason}");
}
