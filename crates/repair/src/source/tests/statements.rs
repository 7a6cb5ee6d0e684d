//! Flushes and fences behind statements of all kinds.

use insta::assert_snapshot;

use super::harness::{repaired, repaired_c, repaired_cxx};

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

#[test]
fn bodies_without_braces() {
    assert_snapshot!(in_record(
        "void f(struct record *p, int n) {
    if (n)
        p->id = 1; //~ flush+fence
    if (n == 2) p->id = 2; //~ flush
    if (n == 3)
        p->id = 3; //~ flush
    else
        p->id = 4; // four //~ flush
    for (int i = 0; i < n; i++)
        p[i].id = 5; //~ flush
    while (n--)
        p[n].value = 6; //~ flush
    do
        p->value++; //~ flush
    while (p->value < 9);
    switch (n) {
    case 1:
        p->id = 7; //~ flush
        break;
    case 2: p->id = 8; break; //~ flush
    default:
        p->id = 9; //~ flush
    }
again:
    p->id = 10; //~ flush
    if (n)
        goto again;
}
"
    ));
}

#[test]
fn braces_where_the_file_has_them() {
    assert_snapshot!(repaired_c(
        "struct s {
\tint a;
};

void f(struct s *p, int n)
{
\tif (n)
\t{
\t\tn++;
\t}
\tif (n)
\t\tp->a = 1; //~ flush
\telse
\t\tp->a = 2; //~ flush
}

void g(struct s *p) { p->a = 1; } //~ flush
"
    ));
}

#[test]
fn values_that_are_used() {
    assert_snapshot!(in_record(
        "int f(struct record *p, int n) {
    for (p->id = 0; p->id < 3; p->id++) //~ flush
        n++;
    if ((p->value = n)) { //~ flush+fence
        n++;
    }
    int x = p->flag = 1; //~ flush
    n = (p->id = 1, n + 2); //~ flush
    uint64_t both = p->id = p->value = 3; //~ flush
    while ((p->id = n--)) //~ flush
        n++;
    do
        x++;
    while (--p->id && x < 9); //~ flush+fence
    if (x)
        n++;
    else if ((p->value = 3) > 2) //~ flush
        x++;
    n && (p->id = 2); //~ flush
    n ? (p->id = 2) : (p->id = 3); //~ flush
    return p->value = x + (int)both; //~ flush+fence
}

void *g(struct record *p, const char *s) {
    return memcpy(p->name, s, 8); //~ flush
}
"
    ));
}

#[test]
fn places_that_change() {
    assert_snapshot!(in_record(
        "struct record *root;

void f(struct record *p, uint64_t *q, uint64_t *end, int i, char *s) {
    *q++ = 1; //~ flush
    q[i++] = 2; //~ flush
    q[--i] = 3; //~ flush
    while (q < end)
        *q++ = 4; //~ flush
    p->next->next = p; //~ flush
    root->next->value = 5; //~ flush
    q[q[0]] = 6; //~ flush
    i = q[i] = 8; //~ flush
    memcpy(p->name, s, strlen(s) + 1); //~ flush
    memmove(s, s + 1, strlen(s)); //~ flush
    *(p->next ? &p->id : &p->value) = 7; //~ flush
}
"
    ));
}

#[test]
fn several_stores_of_one_object() {
    assert_snapshot!(in_record(
        "struct large {
    uint64_t a;
    char gap[4096];
    uint64_t b;
};

void f(struct record *p, struct large *l) {
    p->id = 1; //~ flush @one
    p->value = 2; //~ flush+fence @one
    l->a = 3; //~ flush @two
    l->b = 4; //~ flush+fence @two
    p->id = 5; //~ flush @three
    p = p->next;
    p->value = 6; //~ flush+fence @three
}
"
    ));
}

#[test]
fn several_edits_of_one_line() {
    assert_snapshot!(in_record(
        "void f(struct record *p) {
    p->id = 1; p->value = 2; //~ flush+fence
    p->id = p->value = 3; //~ flush+fence
}
"
    ));
}

#[test]
fn stores_in_macros() {
    assert_snapshot!(in_record(
        "#define SET(place, v) ((place) = (v))
#define INIT(r) do { (r)->id = 1; (r)->value = 2; } while (0)
#define INIT_IF(r) do { if (r) (r)->id = 1; } while (0)
#define BOTH(r) (r)->id = 1; (r)->value = 2
#define VALUE(r) ((r)->value)
#define CLEAR(r) do { struct record *c = (r); c->id = 0; } while (0)
#define EACH(i, n) for (int i = 0; i < (n); i++)

void f(struct record *p, int n) {
    SET(p->id, 4); //~ flush+fence
    INIT(p); //~ flush
    INIT(&p[n]); //~ flush
    INIT_IF(p); //~ flush
    BOTH(p); //~ flush
    VALUE(p) = 5; //~ flush
    CLEAR(p); //~ flush
    if (n)
        SET(p->id, 6); //~ flush
    EACH(i, 4)
        p[i].id = i; //~ flush
}
"
    ));
}

#[test]
fn fences_and_removals() {
    assert_snapshot!(in_record(
        "#define CLWB(p) __asm__ volatile(\"clwb %0\" : \"+m\"(*(volatile char *)(p)) : : \"memory\")

static void flush(void *p) { CLWB(p); }
static int checked_flush(void *p) { CLWB(p); return 0; }

int f(struct record *p, int n) {
    CLWB(&p->id); //~ fence
    flush(p); //~ fence
    if (n)
        flush(p); //~ fence
    flush(p); //~ remove
    if (checked_flush(p)) //~ fence
        return 1;
    n = checked_flush(p); //~ remove
    return checked_flush(p); //~ fence
}
"
    ));
}

#[test]
fn directives_within_a_statement() {
    assert_snapshot!(in_record(
        "void f(struct record *p, int n) {
    p->id = //~ flush
#ifdef OTHER
        1;
#else
        2;
#endif
#ifndef OTHER
    p->value = 3; //~ flush
#endif
}
"
    ));
}

#[test]
fn generated_code_is_left_alone() {
    assert_snapshot!(repaired_c(
        "/* Generated by a program. Do not edit. */
void f(int *p) {
    *p = 1; //~ flush
}
"
    ));
}

#[test]
fn classes() {
    assert_snapshot!(repaired_cxx(
        "#include <cstdint>
#include <atomic>
#include <new>
#include <vector>

struct Point {
    int x = 0;
    int y;
    Point() : y(2) {} //~ flush
    Point(int a) : x(a), y(a) { //~ flush+fence @init
        y++; //~ flush
    }
    void move(int by) { x += by; } //~ flush
    Point &operator+=(int by) {
        x += by; //~ flush
        return *this;
    }
};

template <typename T> struct Cell {
    T value;
    void set(T v) {
        value = v; //~ flush+fence
    }
};

template <typename T> void put(T *at, T v) {
    *at = v; //~ flush
}

void f(Point *p, Point &r, std::vector<Point *> &all, volatile int *v, int i) {
    p->x = 1; //~ flush
    r.y = 2; //~ flush
    r = *p; //~ flush
    all[i]->x = 3; //~ flush
    *v = 4; //~ flush
    auto set = [p](int x) { p->x = x; }; //~ flush
    set(i);
    put(&p->x, 1);
    Cell<int> *c = reinterpret_cast<Cell<int> *>(p);
    c->set(3);
    *p += 4;
    p->move(1);
    Point a, b(3);
}
"
    ));
}

#[test]
fn headers_are_added_once() {
    assert_snapshot!(repaired(&[
        (
            "src/a.c",
            "#include \"a.h\"\n\nvoid f(struct s *p) {\n    set(p, 1);\n    p->a = 2; //~ flush\n}\n"
        ),
        (
            "lib/b.c",
            "#include \"../src/a.h\"\n\nvoid g(struct s *p) {\n    set(p, 1);\n    p->a = 2; //~ flush\n}\n"
        ),
        (
            "src/a.h",
            "#ifndef A_H\n#define A_H\n\nstruct s {\n    int a;\n};\n\nstatic inline void set(struct s *p, int a) {\n    p->a = a; //~ flush\n}\n\n#endif\n"
        ),
    ]));
}

#[test]
fn labels_in_bodies_and_gnu_style() {
    assert_snapshot!(repaired_c(
        "struct machine
{
  volatile long step;
};

static void
advance (struct machine *machine, int go)
{
  if (go)
  again:
    machine->step = machine->step + 3; //~ flush+fence
  if (machine->step < 10)
    goto again;
}

void
run (struct machine *machine)
{
  advance (machine, 1);
}
"
    ));
}

#[test]
fn members_of_this() {
    assert_snapshot!(repaired_cxx(
        "class Stack {
public:
    void push(long value) {
        items_[top_ * 8] = value; //~ flush
        top_ += 1; //~ flush
    }

private:
    long top_;
    long items_[256];
};

void f(Stack *stack) {
    stack->push(1);
}
"
    ));
}
