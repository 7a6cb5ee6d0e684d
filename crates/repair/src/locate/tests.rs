use crashproof_finding::Frame;
use crashproof_llvm::Context;

use super::*;
use crate::testing::Snippet;

fn lines(values: &[Value]) -> Vec<(String, u32)> {
    values
        .iter()
        .map(|value| {
            let place = value.place().expect("an instruction");
            (place.function, place.position.expect("a position").line)
        })
        .collect()
}

#[test]
fn columns_tell_stores_of_a_line_apart_and_locals_are_none() {
    let context = Context::create();
    let code = Snippet::c(
        &context,
        "void f(int *p, int *q) { int x; x = 1; *p = x; *q = x; } //@ stores\n",
    );
    let locator = Locator::new(&code.program.module);
    let mut stack = code.stack("f@stores");
    assert_eq!(locator.stack(&stack, Wanted::Store).unwrap().at.len(), 2);
    stack[0].column = Some(43);
    let at = locator.stack(&stack, Wanted::Store).unwrap().at;
    assert_eq!(at.len(), 1);
    assert_eq!(at[0].location().unwrap().column(), 43);
    // A column that nothing is at says nothing.
    stack[0].column = Some(99);
    assert_eq!(locator.stack(&stack, Wanted::Store).unwrap().at.len(), 2);
}

#[test]
fn the_whole_stack_through_pointers_and_libraries() {
    let context = Context::create();
    let code = Snippet::c(
        &context,
        "static void copy(char *to, const char *from) {
    strcpy(to, from); //@ copy
}
static void (*hook)(char *, const char *) = copy;
static int order(const void *a, const void *b) {
    hook((char *)a, b); //@ hook
    return 0;
}
void sort(char *pm) {
    qsort(pm, 4, 4, order); //@ sort
}",
    );
    let locator = Locator::new(&code.program.module);
    let frames = code.stack("__strcpy_avx2 copy@copy order@hook msort qsort sort@sort");
    let stack = locator.stack(&frames, Wanted::Store).unwrap();
    assert_eq!(stack.innermost, 1);
    assert_eq!(lines(&stack.at)[0].0, "copy");
    assert_eq!(stack.at[0].called_function().unwrap().name(), "strcpy");
    assert!(stack.calls[0].as_ref().unwrap().is_indirect_call());
    let Err(Unlocated::FrameWithoutBitcode { frame }) = &stack.calls[1] else {
        panic!("{:?}", stack.calls[1])
    };
    assert_eq!(frame, "`msort`");
}

#[test]
fn a_frame_is_found_by_the_end_of_its_path() {
    let context = Context::create();
    let code = Snippet::c(&context, "void f(int *p) { *p = 1; } //@ store\n");
    let locator = Locator::new(&code.program.module);
    let mut frames = code.stack("f@store");
    frames[0].file = Some("/elsewhere/snippet.c".into());
    assert_eq!(locator.stack(&frames, Wanted::Store).unwrap().at.len(), 1);
    frames[0].file = Some("/elsewhere/other.c".into());
    assert!(matches!(
        locator.stack(&frames, Wanted::Store),
        Err(Unlocated::NoBitcode { .. })
    ));
    frames[0] = Frame::default();
    assert!(locator.stack(&frames, Wanted::Store).is_err());
    assert!(matches!(locator.stack(&[], Wanted::Store), Err(Unlocated::NoStack)));
}

#[test]
fn methods_templates_and_virtual_calls() {
    let context = Context::create();
    let code = Snippet::cpp(
        &context,
        "template <typename T> struct Cell {
    T value;
    virtual void set(T to) {
        value = to; //@ store
    }
};
struct Loud : Cell<int> { void set(int to) override { Cell<int>::set(to); } }; //@ up
void f(Cell<int> *cell, Cell<long> *other) {
    cell->set(1); //@ call
    other->set(2);
}
Loud loud; Cell<long> wide;",
    );
    let locator = Locator::new(&code.program.module);
    let mut frames = code.stack("Cell@store Loud@up f@call");
    frames[0].function = Some("Cell<int>::set(int)".into());
    frames[1].function = Some("Loud::set(int)".into());
    frames[2].function = Some("f(Cell<int>*, Cell<long>*)".into());
    let stack = locator.stack(&frames, Wanted::Store).unwrap();
    assert_eq!(lines(&stack.at)[0].0, "_ZN4CellIiE3setEi");
    let calls: Vec<Value> = stack.calls.into_iter().map(Result::unwrap).collect();
    assert_eq!(calls.len(), 2);
    assert!(calls[1].is_indirect_call());
}
