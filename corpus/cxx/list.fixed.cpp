// A linked list in PM: a new node is linked in before its own fields are flushed, and they never are.
#include "../pm.h"

struct Node {
    volatile uint64_t value;
    volatile uint64_t next;
    char pad[48];
};

struct List {
    volatile uint64_t head;
    char pad[56];
    Node nodes[16];

    void push(uint64_t index, uint64_t value) {
        Node *node = &nodes[index];
        node->value = value;
        node->next = head;
        pm_persist(node, sizeof *node);
        head = index;
        pm_persist((void *)&head, sizeof head);
    }
};

int main(int argc, char **argv) {
    List *list = static_cast<List *>(pm_map(argv[argc - 1], PAGE));
    for (uint64_t i = 1; i <= 4; i++)
        list->push(i, i * i);
    uint64_t sum = 0;
    for (uint64_t i = list->head; i; i = list->nodes[i].next)
        sum += list->nodes[i].value;
    printf("%lu\n", (unsigned long)sum);
    return 0;
}
