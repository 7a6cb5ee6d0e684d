// setup: yes
// The slot is wiped while a crash may still find it on the stack.
#include "../app.h"

struct stack {
    _Alignas(LINE) uint64_t top;
    _Alignas(LINE) uint64_t slots[8];
};

static uint64_t pop(struct stack *stack) {
    uint64_t slot = stack->top - 1, value = stack->slots[slot];
    stack->top = slot; //~ crash-order
    stack->slots[slot] = 0; //~ persisted
    pm_flush(&stack->slots[slot], sizeof value);
    pm_persist(&stack->top, sizeof stack->top);
    return value;
}

static void setup(const char *path) {
    struct stack *stack = (struct stack *)pm_map(path, PAGE);
    for (uint64_t slot = 0; slot < 3; slot++)
        stack->slots[slot] = slot + 100;
    stack->top = 3;
    pm_persist(stack, sizeof *stack);
}

static void run(const char *path) {
    struct stack *stack = (struct stack *)pm_map(path, PAGE);
    printf("%lu\n", pop(stack));
    printf("%lu\n", pop(stack));
}

static void recover(const char *path) {
    struct stack *stack = (struct stack *)pm_map(path, PAGE);
    for (uint64_t slot = 0; slot < stack->top; slot++)
        REQUIRE(stack->slots[slot] == slot + 100, "slot %lu of %lu is wiped", slot, stack->top);
}

APP(setup, run, recover, NULL)
