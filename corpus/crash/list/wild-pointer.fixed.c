// setup: yes
// signal: 11
// As wild-pointer.c, but the node is persistent before the head points to it.
#include "../app.h"

#define POISON 0x7fffdeadbeef0000ull

struct node {
    _Alignas(LINE) uint64_t next; // offset in the pool, 0 is the end
};

struct pool {
    _Alignas(LINE) uint64_t head;
    struct node nodes[4];
};

static struct node *node_at(struct pool *pool, uint64_t offset) {
    return (struct node *)((char *)pool + offset);
}

static void push(struct pool *pool, int index) {
    struct node *node = &pool->nodes[index];
    node->next = pool->head;
    pm_flush(node, sizeof *node);
    PM_SFENCE();
    pool->head = (uint64_t)((char *)node - (char *)pool);
    pm_persist(&pool->head, sizeof pool->head);
}

static void setup(const char *path) {
    struct pool *pool = (struct pool *)pm_map(path, PAGE);
    for (int i = 0; i < 4; i++)
        pool->nodes[i].next = POISON;
    pm_persist(pool, sizeof *pool);
    push(pool, 0);
}

static void run(const char *path) {
    struct pool *pool = (struct pool *)pm_map(path, PAGE);
    push(pool, 1);
    push(pool, 2);
}

static void recover(const char *path) {
    struct pool *pool = (struct pool *)pm_map(path, PAGE);
    int length = 0;
    for (uint64_t at = pool->head; at != 0; at = node_at(pool, at)->next)
        length++;
    REQUIRE(length >= 1 && length <= 4, "the list has %d nodes", length);
}

APP(setup, run, recover, NULL)
