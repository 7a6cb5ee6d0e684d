/*
 * A driver of operations (docs/drivers.md): a hundred counters, each used or not. With a bug, for crashproof to find: in `set`
 * nothing keeps `used` from persisting before `value`.
 *
 *     gcc -g -O2 -mclwb -I../../include -o counters counters.c
 */
#include "crashproof_driver.h"

#include <fcntl.h>
#include <immintrin.h>
#include <sys/mman.h>

struct counter {
    _Alignas(64) uint64_t used; /* 1: the value counts */
    _Alignas(64) uint64_t value;
};

static struct counter *counters;

static void persist(const void *at) {
    _mm_clwb((void *)at);
    _mm_sfence();
}

static void open_pool(const char *path, int create) {
    int fd = open(path, O_RDWR | (create ? O_CREAT : 0), 0600);
    if (fd < 0 || ftruncate(fd, 100 * sizeof *counters) != 0) {
        perror(path);
        exit(1);
    }
    counters = mmap(NULL, 100 * sizeof *counters, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (counters == MAP_FAILED) {
        perror(path);
        exit(1);
    }
    close(fd);
}

static struct counter *counter(const char *word) {
    uint64_t key = crashproof_number(word);
    if (key >= 100)
        crashproof_refuse("there are 100 counters");
    return &counters[key];
}

static void set(char **words) {
    struct counter *at = counter(words[0]);
    at->value = crashproof_number(words[1]);
    at->used = 1;
    persist(&at->value);
    persist(&at->used);
}

static void get(char **words) {
    struct counter *at = counter(words[0]);
    if (at->used)
        crashproof_print("%lu", at->value);
    else
        crashproof_print("none");
}

static void probe(void) {
    crashproof_probe_keys(get);
}

static const struct crashproof_operation operations[] = {
    {"set", 2, set},
    {"get", 1, get},
    {NULL, 0, NULL},
};
static const struct crashproof_driver driver = {open_pool, NULL, probe, operations};
CRASHPROOF_DRIVER(driver)
