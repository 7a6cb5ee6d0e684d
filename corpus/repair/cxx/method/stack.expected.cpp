// repair: flush
// build: $CXX -g -O2 -o app stack.cpp
// A method stores through `this`, the fence is there.
#include "persist.h"
#include "pool.h"

class Stack {
public:
    void push(uint64_t value) {
        items_[top_ * 8] = value;
        pm_flush(&items_[top_ * 8], sizeof items_[top_ * 8]);
        pm_fence();
        top_ += 1;
        pm_persist(&top_, sizeof top_);
    }

    uint64_t top() const { return items_[(top_ - 1) * 8]; }

private:
    uint64_t top_;
    uint64_t pad_[7];
    uint64_t items_[256];
};

int main(int argc, char **argv) {
    auto *stack = static_cast<Stack *>(pool_open(argv[argc - 1], 4096));
    stack->push(4);
    stack->push(5);
    printf("%lu\n", (unsigned long)stack->top());
    return 0;
}
