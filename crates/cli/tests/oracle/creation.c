// A driver that recognises a pool whose creation was cut off, and makes it anew. -DBUG_CREATION: the mark of a finished pool persists first.
// -DBUG_REFUSES: it does not open such a pool.
#include "crashproof_driver.h"

#include <fcntl.h>
#include <immintrin.h>
#include <sys/mman.h>

#define FINISHED 0x6c6f6f70 /* "pool" */

struct pool {
    _Alignas(64) uint64_t finished;
    _Alignas(64) uint64_t cells;
    _Alignas(64) struct {
        _Alignas(64) uint64_t used;
        _Alignas(64) uint64_t value;
    } cell[16];
};

static struct pool *pool;

__attribute__((target("clwb"))) static void persist(void *at) {
    _mm_clwb(at);
    _mm_sfence();
}

static void open_pool(const char *path, int create) {
    int fd = open(path, O_RDWR | O_CREAT, 0644);
    if (fd < 0 || ftruncate(fd, sizeof(struct pool)) != 0)
        exit(3);
    pool = mmap(NULL, sizeof(struct pool), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (!create && pool->finished == FINISHED)
        return;
#ifdef BUG_REFUSES
    if (!create)
        exit(4);
#endif
#ifdef BUG_CREATION
    pool->finished = FINISHED; // too early
    persist(&pool->finished);
#endif
    pool->cells = 16; // not yet
    persist(&pool->cells);
    pool->finished = FINISHED;
    persist(&pool->finished);
}

static void set(char **words) {
    uint64_t key = crashproof_number(words[0]);
    if (key >= pool->cells) {
        crashproof_print("no such cell");
        return;
    }
    pool->cell[key].value = crashproof_number(words[1]);
    persist(&pool->cell[key].value);
    pool->cell[key].used = 1;
    persist(&pool->cell[key].used);
}

static void get(char **words) {
    uint64_t key = crashproof_number(words[0]);
    if (key < pool->cells && pool->cell[key].used)
        crashproof_print("%lu", pool->cell[key].value);
    else
        crashproof_print("none");
}

static void probe(void) {
    crashproof_probe_keys(get);
}

static const struct crashproof_operation operations[] = {{"set", 2, set}, {"get", 1, get}, {NULL, 0, NULL}};
static const struct crashproof_driver driver = {open_pool, NULL, probe, operations};
CRASHPROOF_DRIVER(driver)
