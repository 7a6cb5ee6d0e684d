//! Persistent subprograms as variants.

use insta::assert_snapshot;

use super::harness::{repaired, repaired_c, repaired_cxx};

#[test]
fn the_papers_listing_5() {
    assert_snapshot!(repaired_c(
        "static void update(char *addr, int idx, char val) {
    addr[idx] = val;
}

static void modify(char *addr) {
    update(addr, 3, 4);
}

void foo(char *vol_addr, char *pm_addr) {
    for (int i = 0; i < 100; i++)
        modify(vol_addr);
    modify(pm_addr); //~ subprogram+fence modify
}
"
    ));
}

#[test]
fn recursion_and_mutual_recursion() {
    assert_snapshot!(repaired_c(
        "struct node {
    int key;
    struct node *left, *right;
};

void odd(struct node *n, int key);

void even(struct node *n, int key) {
    n->key = key;
    if (n->left)
        odd(n->left, key);
}

void odd(struct node *n, int key) {
    n->key = -key;
    if (n->right)
        even(n->right, key);
}

static int fill(struct node *n, int key) {
    if (!n)
        return key;
    key = fill(n->left, key);
    n->key = key++;
    return fill(n->right, key);
}

int main(int argc, char **argv) {
    struct node n = {0};
    even(&n, 1); //~ subprogram even
    return fill(&n, argc); //~ subprogram+fence fill
}
"
    ));
}

#[test]
fn over_several_files() {
    assert_snapshot!(repaired(&[
        (
            "store.h",
            "#ifndef STORE_H
#define STORE_H
#include <stddef.h>

struct item {
    int a;
    char text[20];
};

int item_set(struct item *item, int a,
             const char *text);

static inline void item_clear(struct item *item)
{
    item->a = 0;
}

#endif
"
        ),
        (
            "store.c",
            "#include \"store.h\"
#include <string.h>

int item_set(struct item *item, int a,
             const char *text)
{
    item->a = a;
    strcpy(item->text, text);
    return a;
}
"
        ),
        (
            "one.c",
            "#include \"store.h\"

void one(struct item *item)
{
    if (item_set(item, 1, \"one\") > 0) //~ subprogram+fence item_set
        item_clear(item); //~ subprogram+fence item_clear
}
"
        ),
        (
            "two.c",
            "#include \"store.h\"

void two(struct item *item)
{
    item_set(item, 2, \"two\"); //~ subprogram item_set
    item_clear(item); //~ subprogram item_clear.2
}
"
        ),
    ]));
}

#[test]
fn what_has_no_variant() {
    assert_snapshot!(repaired_c(
        "#include <stdio.h>

#define CALL(f, p) f(p)
#define DEFINE(name) static void name(int *p) { *p = 1; }
#define SET(p) set(p)

DEFINE(defined)

static void set(int *p) {
    *p = 1;
}

static void counted(int *p) {
    static int count;
    *p = ++count;
}

static void named(int *p) {
    *p = 1;
    puts(__func__);
}

static void set_persist(int *p) {
    *p = 2;
}

void f(int *p) {
    defined(p); //~ subprogram defined
    counted(p); //~ subprogram counted
    named(p); //~ subprogram named
    SET(p); //~ subprogram set
    CALL(set, p); //~ subprogram set
    set_persist(p);
    set(p); //~ subprogram+fence set
}
"
    ));
}

#[test]
fn methods_templates_and_overloads() {
    assert_snapshot!(repaired_cxx(
        "namespace pm {

class Pool {
public:
    void set(int v);
    void set(long v) { value = v; }
    virtual void reset() { value = 0; }

private:
    long value;
};

void Pool::set(int v) {
    value = v;
}

template <typename T> void put(T *at, const T &v) {
    *at = v;
}

} // namespace pm

void f(pm::Pool *pool, int *p, long *q) {
    pool->set(1); //~ subprogram+fence _ZN2pm4Pool3setEi
    pool->set(2L); //~ subprogram _ZN2pm4Pool3setEl
    pool->pm::Pool::reset(); //~ subprogram _ZN2pm4Pool5resetEv
    pm::put(p, 1); //~ subprogram _ZN2pm3putIiEEvPT_RKS1_
    pm::put<long>(q, 2); //~ subprogram+fence _ZN2pm3putIlEEvPT_RKS1_
}
"
    ));
}

#[test]
fn through_a_pointer() {
    assert_snapshot!(repaired_c(
        "typedef void (*operation)(long *cell, long value);

static void assign(long *cell, long value) {
    *cell = value;
}

static void increase(long *cell, long value) {
    *cell += value;
}

static void apply(long *cells, operation operation, long value) {
    operation(cells, value); //~ subprogram assign; subprogram+fence increase
}

void f(long *cells) {
    apply(cells, assign, 1);
    apply(cells, increase, 2);
}
"
    ));
}
