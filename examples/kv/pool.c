#define _GNU_SOURCE
#include "pool.h"

#include "list.h"
#include "pm.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC 0x317670666f6f7270u
#define BASE ((void *)0x100000000000)
#define FIRST_BUCKETS 16
#define LOG_STORES 1024

#define SLAB 65536
#define SLAB_LINES (SLAB / LINE)
#define LARGE (SLAB / 4) // more than this takes whole slabs

struct tx_store {
    void **where;
    void *value;
};

struct pool {
    _Alignas(LINE) uint64_t magic; // stored last when a pool is made
    uint64_t size;
    _Alignas(LINE) struct dict_table *tables[2];
    // The redo log: the first `count` stores are to be done, also after a crash.
    _Alignas(LINE) uint64_t count;
    _Alignas(LINE) struct tx_store log[LOG_STORES];
    _Alignas(SLAB) char slabs[];
};

static struct pool *pool;

// ---- The allocator: slabs of objects of one size, a run of slabs for a large one.

struct slab {
    uint32_t lines; // of one object; 0: the slab is free
    uint32_t run;   // slabs that the object at its begin takes; 0 in all but the first of a run
    uint32_t used;
    uint64_t taken[SLAB_LINES / 64]; // by number of object
    struct list_node partial;        // in the list of slabs that have objects of this size to give
    bool is_partial;
};

static struct slab *slabs;
static uint64_t slab_count;
static struct list partials[LARGE / LINE + 1]; // by the size of their objects in lines

static uint32_t lines_of(size_t size) {
    return (uint32_t)((size + LINE - 1) / LINE);
}

size_t pool_usable(size_t size) {
    return (size_t)lines_of(size) * LINE;
}

static uint32_t objects_in(const struct slab *slab) {
    return SLAB_LINES / slab->lines;
}

static char *slab_memory(const struct slab *slab) {
    return pool->slabs + (size_t)(slab - slabs) * SLAB;
}

// The first of `run` free slabs in a row.
static struct slab *take_slabs(uint32_t run, uint32_t lines) {
    uint32_t found = 0;
    for (uint64_t i = 0; i < slab_count; i++) {
        found = slabs[i].lines == 0 ? found + 1 : 0;
        if (found < run)
            continue;
        struct slab *first = &slabs[i + 1 - run];
        for (uint32_t j = 0; j < run; j++)
            first[j].lines = lines;
        first->run = run;
        return first;
    }
    return NULL;
}

static void set_partial(struct slab *slab, bool is_partial) {
    if (slab->is_partial == is_partial)
        return;
    slab->is_partial = is_partial;
    if (is_partial)
        list_push_head(&partials[slab->lines], &slab->partial, slab);
    else
        list_unlink(&partials[slab->lines], &slab->partial);
}

static void *take_object(struct slab *slab) {
    uint32_t word = 0;
    while (~slab->taken[word] == 0)
        word++;
    uint32_t i = 64 * word + (uint32_t)__builtin_ctzll(~slab->taken[word]);
    slab->taken[word] |= 1ull << i % 64;
    slab->used++;
    set_partial(slab, slab->used < objects_in(slab));
    return slab_memory(slab) + (size_t)i * slab->lines * LINE;
}

void *pool_alloc(size_t size) {
    uint32_t lines = lines_of(size);
    if (size > LARGE) {
        struct slab *first = take_slabs((uint32_t)((size + SLAB - 1) / SLAB), lines);
        return first ? slab_memory(first) : NULL;
    }
    struct list_node *node = partials[lines].head;
    struct slab *slab = node ? node->value : take_slabs(1, lines);
    return slab ? take_object(slab) : NULL;
}

static void free_slabs(struct slab *first) {
    uint32_t run = first->run;
    memset(first, 0, run * sizeof *first);
}

void pool_free(void *object, size_t size) {
    size_t at = (size_t)((char *)object - pool->slabs);
    struct slab *slab = &slabs[at / SLAB];
    if (size > LARGE) {
        free_slabs(slab);
        return;
    }
    uint32_t i = (uint32_t)(at % SLAB / LINE / slab->lines);
    slab->taken[i / 64] &= ~(1ull << i % 64);
    slab->used--;
    set_partial(slab, slab->used > 0);
    if (slab->used == 0)
        free_slabs(slab);
}

static bool claim_slabs(struct slab *first, uint32_t run, uint32_t lines) {
    if (run > slab_count - (uint64_t)(first - slabs))
        return false;
    for (uint32_t i = 0; i < run; i++) {
        if (first[i].lines != 0)
            return false;
    }
    for (uint32_t i = 0; i < run; i++)
        first[i].lines = lines;
    first->run = run;
    return true;
}

bool pool_holds(const void *object, size_t size) {
    uintptr_t at = (uintptr_t)object - (uintptr_t)pool->slabs;
    return (uintptr_t)object >= (uintptr_t)pool->slabs && at < slab_count * SLAB && size <= slab_count * SLAB - at;
}

bool pool_claim(const void *object, size_t size) {
    uintptr_t at = (uintptr_t)object - (uintptr_t)pool->slabs;
    uint32_t lines = lines_of(size);
    if (!pool_holds(object, size) || at % LINE != 0)
        return false;
    struct slab *slab = &slabs[at / SLAB];
    if (size > LARGE)
        return at % SLAB == 0 && claim_slabs(slab, (uint32_t)((size + SLAB - 1) / SLAB), lines);
    if (slab->lines == 0 && !claim_slabs(slab, 1, lines))
        return false;
    uint32_t i = (uint32_t)(at % SLAB / LINE / lines);
    if (slab->lines != lines || at % SLAB / LINE % lines != 0 || i >= objects_in(slab))
        return false;
    if (slab->taken[i / 64] >> i % 64 & 1)
        return false;
    slab->taken[i / 64] |= 1ull << i % 64;
    slab->used++;
    set_partial(slab, slab->used < objects_in(slab));
    return true;
}

// ---- Transactions.

static struct tx_store stores[LOG_STORES];
static size_t store_count;

void pool_tx_begin(void) {
    store_count = 0;
}

void pool_tx_store(void *where, const void *value) {
    if (store_count == LOG_STORES) {
        fprintf(stderr, "kv-server: a transaction of more than %d stores\n", LOG_STORES);
        exit(2);
    }
    stores[store_count].where = where;
    stores[store_count].value = (void *)value;
    store_count++;
}

void *pool_tx_load(void *where) {
    for (size_t i = store_count; i-- > 0;) {
        if (stores[i].where == where)
            return stores[i].value;
    }
    return *(void **)where;
}

static void set_log_count(uint64_t count) {
    pool->count = count;
    pm_flush(&pool->count, sizeof pool->count);
    pm_drain();
}

// Does what the log says. Doing it twice does no harm.
static void apply_log(void) {
    for (uint64_t i = 0; i < pool->count; i++) {
        void **where = pool->log[i].where;
        *where = pool->log[i].value;
        pm_flush(where, sizeof *where);
    }
    pm_drain();
    set_log_count(0);
}

void pool_tx_commit(void) {
    memcpy(pool->log, stores, store_count * sizeof stores[0]);
    pm_flush(pool->log, store_count * sizeof stores[0]);
    pm_drain();
    set_log_count(store_count);
    apply_log();
}

// ---- Opening and making.

struct dict_table **pool_tables(void) {
    return pool->tables;
}

static void make_pool(size_t size) {
    pool->size = size;
    pool->count = 0;
    pool->tables[1] = NULL;
    struct dict_table *table = pool_alloc(dict_table_bytes(FIRST_BUCKETS));
    dict_table_init(table, FIRST_BUCKETS);
    pm_flush(table, dict_table_bytes(FIRST_BUCKETS));
    pool->tables[0] = table;
    pm_flush(&pool->tables, sizeof pool->tables);
    pm_flush(&pool->count, sizeof pool->count);
    pm_flush(&pool->size, sizeof pool->size);
    pm_drain();
    pool->magic = MAGIC;
    pm_flush(&pool->magic, sizeof pool->magic);
    pm_drain();
    pool_free(table, dict_table_bytes(FIRST_BUCKETS)); // who opens the pool claims it
}

static bool fail(const char *path, const char *what) {
    fprintf(stderr, "kv-server: %s: %s\n", path, what);
    return false;
}

bool pool_open(const char *path, size_t size, bool create) {
    int fd = open(path, create ? O_RDWR | O_CREAT : O_RDWR, 0600);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) != 0)
        return fail(path, strerror(errno));
    if (st.st_size == 0 && create) {
        if (ftruncate(fd, (off_t)size) != 0)
            return fail(path, strerror(errno));
    } else {
        size = (size_t)st.st_size;
    }
    if (size < sizeof(struct pool) + SLAB)
        return fail(path, "too small for a pool");
    void *at = mmap(BASE, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED_NOREPLACE, fd, 0);
    close(fd);
    if (at == MAP_FAILED)
        return fail(path, strerror(errno));
    pool = at;
    slab_count = (size - sizeof(struct pool)) / SLAB;
    slabs = calloc(slab_count, sizeof *slabs);
    if (!slabs)
        return fail(path, "no memory");
    if (pool->magic == 0 && create)
        make_pool(size);
    if (pool->magic != MAGIC || pool->size != size || pool->count > LOG_STORES)
        return fail(path, "not a pool");
    if (pool->count > 0)
        apply_log();
    return true;
}

void pool_close(void) {
    munmap(pool, pool->size);
    free(slabs);
}
