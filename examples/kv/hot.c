#include "hot.h"

#include <stdio.h>
#include <stdlib.h>

#define FIRST_SIZE 16

static struct dict_table *tables[2];
static struct dict counts = {.tables = tables};

static void *allocate(size_t size) {
    void *memory = malloc(size);
    if (!memory) {
        fprintf(stderr, "kv-server: no memory\n");
        exit(2);
    }
    return memory;
}

void hot_init(void) {
    tables[0] = allocate(dict_table_bytes(FIRST_SIZE));
    dict_table_init(tables[0], FIRST_SIZE);
}

// Grows by a bucket, if it is growing.
static void move_some(void) {
    if (dict_is_full(&counts)) {
        uint64_t size = 2 * tables[0]->size;
        struct dict_table *larger = allocate(dict_table_bytes(size));
        dict_table_init(larger, size);
        tables[1] = larger;
        counts.moved = 0;
    }
    if (!tables[1])
        return;
    struct dict_entry **bucket = dict_next_to_move(&counts);
    if (!bucket) {
        free(tables[0]);
        tables[0] = tables[1];
        tables[1] = NULL;
        return;
    }
    while (*bucket) {
        struct dict_entry *entry = *bucket;
        struct dict_entry **to = dict_bucket(&counts, entry->hash);
        dict_link(bucket, entry->next);
        dict_link(&entry->next, *to);
        dict_link(to, entry);
    }
}

void hot_touch(const struct str *key, uint64_t hash) {
    move_some();
    struct dict_entry **link = dict_find(&counts, key->data, key->length, hash);
    if (link) {
        dict_set_value(*link, (void *)((uintptr_t)(*link)->value + 1));
        return;
    }
    struct dict_entry *entry = allocate(sizeof *entry);
    struct dict_entry **bucket = dict_bucket(&counts, hash);
    dict_entry_init(entry, str_new(key->data, key->length), (void *)1, 0, hash, *bucket);
    dict_link(bucket, entry);
    counts.used++;
}

void hot_forget(const struct str *key, uint64_t hash) {
    struct dict_entry **link = dict_find(&counts, key->data, key->length, hash);
    if (!link)
        return;
    struct dict_entry *entry = *link;
    dict_link(link, entry->next);
    counts.used--;
    free(entry->key);
    free(entry);
}

size_t hot_top(struct dict_entry **top, size_t max) {
    size_t found = 0;
    for (int i = 0; i < 2 && tables[i]; i++) {
        for (uint64_t b = 0; b < tables[i]->size; b++) {
            for (struct dict_entry *entry = tables[i]->buckets[b]; entry; entry = entry->next) {
                size_t at = found < max ? found++ : max;
                while (at > 0 && (uintptr_t)top[at - 1]->value < (uintptr_t)entry->value) {
                    if (at < max)
                        top[at] = top[at - 1];
                    at--;
                }
                if (at < max)
                    top[at] = entry;
            }
        }
    }
    return found;
}
