// The top of the stack is raised before the slot under it is filled.
#include "../app.h"

struct stack {
    _Alignas(LINE) uint64_t top;
    _Alignas(LINE) uint64_t slots[16];
};

static void push(struct stack *stack, uint64_t value) {
    uint64_t slot = stack->top++; //~ persisted
    pm_persist(&stack->top, sizeof stack->top);
    stack->slots[slot] = value; //~ crash-order
    pm_persist(&stack->slots[slot], sizeof value);
}

static void run(const char *path) {
    struct stack *stack = (struct stack *)pm_map(path, PAGE);
    for (uint64_t value = 1; value <= 3; value++)
        push(stack, value * 11);
}

static void recover(const char *path) {
    struct stack *stack = (struct stack *)pm_map(path, PAGE);
    REQUIRE(stack->top <= 3, "the stack has %lu slots in use", stack->top);
    for (uint64_t slot = 0; slot < stack->top; slot++)
        REQUIRE(stack->slots[slot] == (slot + 1) * 11, "slot %lu holds %lu", slot, stack->slots[slot]);
}

APP(NULL, run, recover, NULL)
