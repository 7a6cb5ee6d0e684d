// As compare-exchange.cpp, but the node is flushed; the locked instruction that publishes it is the fence.
#include "../app.h"

#include <atomic>

struct alignas(LINE) Node {
    uint64_t value, next;
};

struct Stack {
    alignas(LINE) std::atomic<uint64_t> head; // index, 0 is the end
    Node nodes[8];

    void push(uint64_t index, uint64_t value) {
        uint64_t next = head.load();
        nodes[index] = Node{value, next};
        pm_flush(&nodes[index], sizeof(Node));
        while (!head.compare_exchange_weak(next, index)) {
            nodes[index].next = next;
            pm_flush(&nodes[index], sizeof(Node));
        }
        pm_persist(&head, sizeof head);
    }
};

static void run(const char *path) {
    auto stack = static_cast<Stack *>(pm_map(path, PAGE));
    stack->push(1, 10);
    stack->push(2, 20);
    pm_persist(stack, sizeof *stack);
}

static void recover(const char *path) {
    auto stack = static_cast<Stack *>(pm_map(path, PAGE));
    uint64_t at = stack->head.load();
    REQUIRE(at <= 2, "the head is node %lu", at);
    for (uint64_t expected = at; expected > 0; expected--) {
        REQUIRE(at == expected && stack->nodes[at].value == expected * 10, "node %lu is not in its place", expected);
        at = stack->nodes[at].next;
    }
    REQUIRE(at == 0, "the stack does not end after node 1");
}

APP(nullptr, run, recover, nullptr)
