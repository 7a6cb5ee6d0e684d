// brute-force: no, the pointers hold only where the program had mapped the file
// As raw-pointers.c, but a node is persistent before the head points to it.
#include "../app.h"

struct node {
    _Alignas(LINE) struct node *next;
    uint64_t number;
};

struct pool {
    _Alignas(LINE) struct pool *mapped_at;
    struct node *head;
    struct node nodes[4];
};

static void push(struct pool *pool, uint64_t number) {
    struct node *node = &pool->nodes[number];
    *node = (struct node){.next = pool->head, .number = number};
    pm_flush(node, sizeof *node);
    PM_SFENCE();
    pool->head = node;
    pm_persist(&pool->head, sizeof pool->head);
}

static void run(const char *path) {
    struct pool *pool = (struct pool *)pm_map(path, PAGE);
    pool->mapped_at = pool;
    pm_persist(pool, sizeof *pool);
    push(pool, 1);
    push(pool, 2);
}

static void recover(const char *path) {
    struct pool *pool = (struct pool *)pm_map(path, PAGE);
    if (pool->mapped_at == NULL)
        return; // nothing was stored yet
    REQUIRE(pool->mapped_at == pool, "mapped at %p, the pointers are for %p", (void *)pool, (void *)pool->mapped_at);
    uint64_t number = pool->head ? (uint64_t)(pool->head - pool->nodes) : 0;
    for (struct node *node = pool->head; node; node = node->next, number--)
        REQUIRE(node->number == number, "node %lu has number %lu", number, node->number);
    REQUIRE(number == 0, "the list ends after node %lu", number + 1);
}

APP(NULL, run, recover, NULL)
