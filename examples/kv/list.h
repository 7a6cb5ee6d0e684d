// Doubly linked lists: of clients, of reply blocks and of slabs in DRAM, of values in the pool.
#ifndef LIST_H
#define LIST_H

#include <stdint.h>

struct list_node {
    struct list_node *next;
    struct list_node *prev;
    void *value;
};

struct list {
    struct list_node *head;
    struct list_node *tail;
    uint64_t length;
};

void list_init(struct list *list);

// Prepares a node that is to stand between two others (NULL at the ends).
void list_node_init(struct list_node *node, struct list_node *prev, struct list_node *next, void *value);

// Makes a prepared node's neighbours, or the list's ends, point to it: this is what puts it into the list. The forward
// link is stored first.
void list_link(struct list *list, struct list_node *node);
void list_unlink(struct list *list, struct list_node *node);

// Both of the above at an end, for lists in DRAM.
void list_push_head(struct list *list, struct list_node *node, void *value);
void list_push_tail(struct list *list, struct list_node *node, void *value);

#endif
