// setup: yes
// hangs: yes
// A node is moved to the end of the list; its old successor may still stand in it there, which makes a cycle. Recovery
// walks to the end and never comes there.
#include "../app.h"

#define END UINT64_MAX

struct node {
    _Alignas(LINE) uint64_t next;
};

struct list {
    _Alignas(LINE) uint64_t head;
    struct node nodes[4];
};

// The first node becomes the last. A crash in between may lose it, which is allowed here: work is done at most once.
static void rotate(struct list *list) {
    uint64_t first = list->head, last = first;
    while (list->nodes[last].next != END)
        last = list->nodes[last].next;
    list->head = list->nodes[first].next;
    pm_persist(&list->head, sizeof list->head);
    list->nodes[first].next = END; //~ crash-order
    list->nodes[last].next = first; //~ persisted
    pm_flush(&list->nodes[first], sizeof(struct node));
    pm_persist(&list->nodes[last], sizeof(struct node));
}

static void setup(const char *path) {
    struct list *list = (struct list *)pm_map(path, PAGE);
    for (uint64_t i = 0; i < 3; i++)
        list->nodes[i].next = i < 2 ? i + 1 : END;
    pm_persist(list, sizeof *list);
}

static void run(const char *path) {
    rotate((struct list *)pm_map(path, PAGE));
}

static void recover(const char *path) {
    struct list *list = (struct list *)pm_map(path, PAGE);
    int length = 0;
    for (uint64_t at = list->head; at != END; at = list->nodes[at].next) {
        REQUIRE(at < 4, "the list leads to node %lu", at);
        length++;
    }
    REQUIRE(length >= 2, "the list has %d nodes", length);
}

APP(setup, run, recover, NULL)
