// setup: yes
// As doubly.c, but recovery takes only the forward links for the truth and restores the backward ones.
#include "../app.h"

struct node {
    _Alignas(LINE) uint64_t next;
    uint64_t previous;
};

// Node 0 closes the ring.
struct list {
    struct node nodes[6];
};

static void insert_after(struct list *list, uint64_t before, uint64_t index) {
    uint64_t after = list->nodes[before].next;
    list->nodes[index] = (struct node){.next = after, .previous = before};
    pm_persist(&list->nodes[index], sizeof(struct node));
    list->nodes[before].next = index;
    pm_persist(&list->nodes[before], sizeof(struct node));
    list->nodes[after].previous = index;
    pm_persist(&list->nodes[after], sizeof(struct node));
}

static void setup(const char *path) {
    struct list *list = (struct list *)pm_map(path, PAGE);
    insert_after(list, 0, 1);
    insert_after(list, 1, 2);
}

static void run(const char *path) {
    struct list *list = (struct list *)pm_map(path, PAGE);
    insert_after(list, 1, 3);
    insert_after(list, 2, 4);
}

static void recover(const char *path) {
    struct list *list = (struct list *)pm_map(path, PAGE);
    uint64_t at = 0;
    for (int steps = 0; steps < 6; steps++) {
        uint64_t next = list->nodes[at].next;
        REQUIRE(next < 6, "node %lu is followed by %lu", at, next);
        if (list->nodes[next].previous != at) {
            list->nodes[next].previous = at;
            pm_persist(&list->nodes[next], sizeof(struct node));
        }
        at = next;
        if (at == 0)
            return;
    }
    REQUIRE(0, "the list does not come back to its head");
}

APP(setup, run, recover, NULL)
