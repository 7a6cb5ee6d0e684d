/*
 * A key-value store in PM, under the load that such stores are measured with: half of the operations read, half update, the
 * keys are random (YCSB's A). An update appends the record to a log, persists it, then switches the table's slot to it and
 * persists that; the record it replaces is used again. A read copies the value out and checks it.
 *
 *     pm_heavy FILE OPERATIONS
 */
#include <fcntl.h>
#include <immintrin.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SLOTS (1 << 16)
#define VALUE 100
#define LINE 64

struct record {
    uint64_t key, version;
    char value[VALUE];
    uint32_t check;
};

struct store {
    uint64_t slots[SLOTS]; /* offsets of records */
    struct record records[2 * SLOTS];
};

static struct store *store;
static uint64_t unused[2 * SLOTS], free_records;

static void persist(const void *at, size_t len) {
    for (uintptr_t line = (uintptr_t)at & ~(uintptr_t)(LINE - 1); line < (uintptr_t)at + len; line += LINE)
        _mm_clwb((void *)line);
    _mm_sfence();
}

static uint64_t random_state = 88172645463325252ull;

static uint64_t next_random(void) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

static uint32_t check_of(const struct record *record) {
    uint32_t sum = (uint32_t)record->key * 2654435761u + (uint32_t)record->version;
    for (int i = 0; i < VALUE; i++)
        sum = (sum ^ (unsigned char)record->value[i]) * 16777619u;
    return sum;
}

static void update(uint64_t key, uint64_t version) {
    struct record new = {.key = key, .version = version};
    snprintf(new.value, VALUE, "value %llu of key %llu", (unsigned long long)version, (unsigned long long)key);
    new.check = check_of(&new);
    uint64_t index = unused[--free_records];
    memcpy(&store->records[index], &new, sizeof new);
    persist(&store->records[index], sizeof new);
    uint64_t old = store->slots[key];
    store->slots[key] = index + 1;
    persist(&store->slots[key], sizeof(uint64_t));
    if (old != 0)
        unused[free_records++] = old - 1;
}

static int lookup(uint64_t key) {
    struct record copy;
    if (store->slots[key] == 0)
        return 1;
    memcpy(&copy, &store->records[store->slots[key] - 1], sizeof copy);
    return copy.key == key && copy.check == check_of(&copy);
}

int main(int argc, char **argv) {
    long operations = argc > 2 ? atol(argv[2]) : 1000000;
    int fd = open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || ftruncate(fd, sizeof *store) != 0)
        return 3;
    store = mmap(NULL, sizeof *store, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (store == MAP_FAILED)
        return 3;
    for (uint64_t i = 0; i < 2 * SLOTS; i++)
        unused[free_records++] = i;
    for (long i = 0; i < operations; i++) {
        uint64_t key = next_random() % SLOTS;
        if (i % 2 == 0)
            update(key, (uint64_t)i);
        else if (!lookup(key))
            return 4;
    }
    munmap(store, sizeof *store);
    return 0;
}
