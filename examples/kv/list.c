#include "list.h"

#include <stddef.h>

void list_init(struct list *list) {
    list->head = NULL;
    list->tail = NULL;
    list->length = 0;
}

void list_node_init(struct list_node *node, struct list_node *prev, struct list_node *next, void *value) {
    node->next = next;
    node->prev = prev;
    node->value = value;
}

void list_link(struct list *list, struct list_node *node) {
    if (node->prev)
        node->prev->next = node;
    else
        list->head = node;
    if (node->next)
        node->next->prev = node;
    else
        list->tail = node;
    list->length++;
}

void list_unlink(struct list *list, struct list_node *node) {
    if (node->prev)
        node->prev->next = node->next;
    else
        list->head = node->next;
    if (node->next)
        node->next->prev = node->prev;
    else
        list->tail = node->prev;
    list->length--;
}

void list_push_head(struct list *list, struct list_node *node, void *value) {
    list_node_init(node, NULL, list->head, value);
    list_link(list, node);
}

void list_push_tail(struct list *list, struct list_node *node, void *value) {
    list_node_init(node, list->tail, NULL, value);
    list_link(list, node);
}
