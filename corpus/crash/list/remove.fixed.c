// setup: yes
// As remove.c, but a node is free only when the list does not lead to it any more.
#include "../app.h"

enum { FREE, USED };

struct node {
    _Alignas(LINE) uint64_t state;
    uint64_t next; // index, 0 is the head itself and the end
};

struct list {
    struct node nodes[6];
};

static void insert_front(struct list *list, uint64_t index) {
    list->nodes[index] = (struct node){.state = USED, .next = list->nodes[0].next};
    pm_persist(&list->nodes[index], sizeof list->nodes[index]);
    list->nodes[0].next = index;
    pm_persist(&list->nodes[0], sizeof list->nodes[0]);
}

static void remove_after(struct list *list, uint64_t before) {
    uint64_t index = list->nodes[before].next;
    list->nodes[before].next = list->nodes[index].next;
    pm_persist(&list->nodes[before], sizeof list->nodes[before]);
    list->nodes[index].state = FREE;
    pm_persist(&list->nodes[index], sizeof list->nodes[index]);
}

static void setup(const char *path) {
    for (uint64_t index = 5; index > 0; index--)
        insert_front((struct list *)pm_map(path, PAGE), index);
}

static void run(const char *path) {
    struct list *list = (struct list *)pm_map(path, PAGE);
    remove_after(list, 1);
    remove_after(list, 0);
}

// Every node in the list is in use; the others are made free, also those that the crash caught in between.
static void recover(const char *path) {
    struct list *list = (struct list *)pm_map(path, PAGE);
    unsigned linked = 0;
    for (uint64_t at = list->nodes[0].next; at != 0; at = list->nodes[at].next) {
        REQUIRE(at < 6 && !(linked & 1u << at), "the list leads to node %lu, twice or beyond its end", at);
        REQUIRE(list->nodes[at].state == USED, "the list leads to node %lu, which is free", at);
        linked |= 1u << at;
    }
    for (uint64_t index = 1; index < 6; index++) {
        if (!(linked & 1u << index) && list->nodes[index].state == USED) {
            list->nodes[index].state = FREE;
            pm_persist(&list->nodes[index], sizeof list->nodes[index]);
        }
    }
}

APP(setup, run, recover, NULL)
