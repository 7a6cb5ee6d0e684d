// A driver with the header whose recovery, and whose operations, print on standard output as they please. -DBUG_ORDER: the mark persists before the
// value. -DHINT: remembers the last key, which nobody reads.
#include "crashproof_driver.h"

#include <fcntl.h>
#include <immintrin.h>
#include <sys/mman.h>

#define CELLS 16

struct pool {
    struct {
        _Alignas(64) uint64_t used;
        _Alignas(64) uint64_t value;
    } cell[CELLS];
    _Alignas(64) uint64_t busy; /* an operation is under way */
    _Alignas(64) uint64_t last;
};

static struct pool *pool;

__attribute__((target("clwb"))) static void persist(void *at) {
    _mm_clwb(at);
    _mm_sfence();
}

static void open_pool(const char *path, int create) {
    int fd = open(path, O_RDWR | O_CREAT, 0644);
    if (fd < 0 || (create && ftruncate(fd, sizeof(struct pool)) != 0))
        exit(3);
    pool = mmap(NULL, sizeof(struct pool), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    printf("%s a pool\n", create ? "made" : "opened");
}

static void recover(void) {
    if (!pool->busy)
        return;
    if (write(1, "recovering\n", 11) != 11)
        exit(3);
    pool->busy = 0;
    persist(&pool->busy);
}

static void set(char **words) {
    unsigned long key = crashproof_number(words[0]) % CELLS;
    printf("setting %lu\n", key);
    fflush(stdout);
    pool->busy = 1;
    persist(&pool->busy);
#ifdef HINT
    pool->last = key;
#endif
#ifdef BUG_ORDER
    pool->cell[key].used = 1;
    persist(&pool->cell[key].used);
#endif
    pool->cell[key].value = crashproof_number(words[1]);
    persist(&pool->cell[key].value);
    pool->cell[key].used = 1;
    persist(&pool->cell[key].used);
    pool->busy = 0;
    persist(&pool->busy);
}

static void get(char **words) {
    unsigned long key = crashproof_number(words[0]) % CELLS;
    if (pool->cell[key].used)
        crashproof_print("%lu", pool->cell[key].value);
    else
        crashproof_print("none");
}

static void probe(void) {
    printf("probing\n");
    crashproof_probe_keys(get);
}

static const struct crashproof_operation operations[] = {{"set", 2, set}, {"get", 1, get}, {NULL, 0, NULL}};
static const struct crashproof_driver driver = {open_pool, recover, probe, operations};
CRASHPROOF_DRIVER(driver)
