// Memory that is slower than what the program runs on is imitated by a delay in the flush. The value is there before its key.
#include "../app.h"

struct entry {
    _Alignas(LINE) uint64_t key;
    _Alignas(LINE) uint64_t value;
};

static unsigned long delay = 20;

static inline unsigned long cycles(void) {
    unsigned low, high;
    __asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
    return (unsigned long)high << 32 | low;
}

static void persist(const void *at, size_t size) {
    for (uintptr_t line = (uintptr_t)at & ~(uintptr_t)(LINE - 1); line < (uintptr_t)at + size; line += LINE) {
        unsigned long until = cycles() + delay;
        PM_CLWB(line);
        while (cycles() < until)
            __asm__ volatile("pause" : : : "memory");
    }
    PM_SFENCE();
}

static void insert(struct entry *entry, uint64_t key, uint64_t value) {
    entry->value = value;
    persist(&entry->value, sizeof entry->value);
    entry->key = key;
    persist(&entry->key, sizeof entry->key);
}

static void run(const char *path) {
    struct entry *entries = (struct entry *)pm_map(path, PAGE);
    for (int i = 0; i < 3; i++)
        insert(&entries[i], i + 1, 10 * (i + 1));
}

static void recover(const char *path) {
    struct entry *entries = (struct entry *)pm_map(path, PAGE);
    for (int i = 0; i < 3; i++)
        REQUIRE(entries[i].value == 10 * entries[i].key || !entries[i].key, "key %lu has the value %lu",
                entries[i].key, entries[i].value);
}

APP(NULL, run, recover, NULL)
