// setup: yes
// As insert.c, but the node is persistent before the head points to it.
#include "../app.h"

struct node {
    _Alignas(LINE) uint64_t number;
    uint64_t next; // index, 0 is the end
};

struct list {
    _Alignas(LINE) uint64_t head;
    struct node nodes[8];
};

static void insert(struct list *list, uint64_t number) {
    struct node *node = &list->nodes[number];
    *node = (struct node){.number = number, .next = list->head};
    pm_flush(node, sizeof *node);
    PM_SFENCE();
    list->head = number;
    pm_persist(&list->head, sizeof list->head);
}

static void setup(const char *path) {
    insert((struct list *)pm_map(path, PAGE), 1);
}

static void run(const char *path) {
    struct list *list = (struct list *)pm_map(path, PAGE);
    insert(list, 2);
    insert(list, 3);
}

// Node n is followed by node n - 1, down to the first.
static void recover(const char *path) {
    struct list *list = (struct list *)pm_map(path, PAGE);
    uint64_t at = list->head;
    REQUIRE(at >= 1 && at < 8, "the head is %lu", at);
    for (uint64_t number = at; number > 0; number--) {
        REQUIRE(at < 8 && list->nodes[at].number == number, "node %lu is not in the list", number);
        at = list->nodes[at].next;
    }
    REQUIRE(at == 0, "node 1 is followed by %lu", at);
}

APP(setup, run, recover, NULL)
