// A hash table for several threads in the manner of CLHT: a bucket is a cache line, with three pairs and a link to an overflow
// bucket. Three threads insert, update and remove keys of their own, in buckets that they share.
//
// A pair is there if its key is not 0; its value is stored before, in the same line. Locks are not persistent.
#define KEYS 64 // of each thread
#include "kv_model.h"
#include <pthread.h>

#define MAGIC 0x74686c63u
#define THREADS 3
#define PAIRS 3
#define TABLES 6 // of 4, 8, … buckets
#define OVERFLOWS 512
#define STRIPES 16

struct bucket {
    _Alignas(LINE) uint64_t keys[PAIRS];
    uint64_t values[PAIRS];
    uint64_t next;  // overflow bucket + 1; 0: none
    uint64_t owner; // of an overflow bucket: which chain it belongs to, plus 1
};

struct table {
    struct bucket buckets[4 << (TABLES - 1)];
};

struct root {
    _Alignas(LINE) uint64_t magic;
    _Alignas(LINE) uint64_t bits; // tables[bits] is in use and has 4 << bits buckets
    struct table tables[TABLES];
    struct bucket overflows[OVERFLOWS];
};

static struct root *root;
static pthread_rwlock_t resizing = PTHREAD_RWLOCK_INITIALIZER;
static pthread_mutex_t stripes[STRIPES], allocating = PTHREAD_MUTEX_INITIALIZER;
static bool used[OVERFLOWS];

static struct bucket *first_bucket(uint64_t bits, uint64_t key) {
    return &root->tables[bits].buckets[mix(key) & ((4ull << bits) - 1)];
}

static struct bucket *overflow(uint64_t link) {
    REQUIRE(link <= OVERFLOWS, "a link to overflow bucket %lu", link);
    return link == 0 ? NULL : &root->overflows[link - 1];
}

static uint64_t owner_of(const struct bucket *first) {
    return (uint64_t)(first - root->tables[0].buckets) + 1;
}

static uint64_t allocate(void) {
    pthread_mutex_lock(&allocating);
    uint64_t i = 0;
    while (i < OVERFLOWS && used[i])
        i++;
    REQUIRE(i < OVERFLOWS, "the file is full");
    used[i] = true;
    pthread_mutex_unlock(&allocating);
    return i + 1;
}

// The place of the key, or a free one; an overflow bucket is appended if there is none.
static struct bucket *find(struct bucket *bucket, uint64_t key, int *place) {
    for (; bucket; bucket = overflow(bucket->next))
        for (*place = 0; *place < PAIRS; ++*place)
            if (bucket->keys[*place] == key)
                return bucket;
    return NULL;
}

static void insert_into(struct bucket *first, uint64_t key, uint64_t value) {
    int place;
    struct bucket *bucket = find(first, 0, &place);
    if (bucket) {
#ifdef BUG_INSERT_ORDER
        bucket->keys[place] = key;
        PM_BARRIER();
        bucket->values[place] = value; //~[BUG_INSERT_ORDER] crash-order|crash-atomicity
#else
        bucket->values[place] = value;
        PM_BARRIER();
        bucket->keys[place] = key; //~[BUG_RESIZE_ORDER] crash-order|crash-durability
#endif
#ifdef BUG_RESIZE_ORDER
        if (first >= root->tables[root->bits].buckets + (4ull << root->bits))
            return; // the new table is flushed as a whole
#endif
        pm_persist(bucket, sizeof *bucket);
        return;
    }
    uint64_t link = allocate();
    struct bucket *added = overflow(link);
    memset(added, 0, sizeof *added);
    added->values[0] = value; //~[BUG_LINK_ORDER] crash-order|crash-durability
    added->keys[0] = key; //~[BUG_LINK_ORDER] crash-order|crash-durability
    added->owner = owner_of(first); //~[BUG_LINK_ORDER] crash-order|crash-durability
#ifdef BUG_LINK_ORDER
    pm_flush(added, sizeof *added);
#else
    pm_persist(added, sizeof *added);
#endif
    for (bucket = first; bucket->next != 0;)
        bucket = overflow(bucket->next);
    bucket->next = link;
    pm_persist(&bucket->next, sizeof bucket->next);
}

// Nobody else is in the table.
static void resize(void) {
    uint64_t bits = root->bits;
    memset(&root->tables[bits + 1], 0, (8ull << bits) * sizeof(struct bucket));
    pm_persist(&root->tables[bits + 1], (8ull << bits) * sizeof(struct bucket));
    for (uint64_t i = 0; i < 4ull << bits; i++)
        for (struct bucket *bucket = &root->tables[bits].buckets[i]; bucket; bucket = overflow(bucket->next))
            for (int place = 0; place < PAIRS; place++)
                if (bucket->keys[place] != 0)
                    insert_into(first_bucket(bits + 1, bucket->keys[place]), bucket->keys[place], bucket->values[place]);
    root->bits = bits + 1;
    pm_persist(&root->bits, sizeof root->bits);
#ifdef BUG_RESIZE_ORDER
    pm_persist(&root->tables[bits + 1], (8ull << bits) * sizeof(struct bucket));
#endif
    for (uint64_t i = 0; i < 4ull << bits; i++)
        for (uint64_t link = root->tables[bits].buckets[i].next; link != 0; link = overflow(link)->next)
            used[link - 1] = false;
}

static bool is_long(struct bucket *bucket) {
    return bucket->next != 0 && root->bits + 1 < TABLES;
}

static void update(struct bucket *first, uint64_t key, uint64_t value) {
    int place;
    struct bucket *bucket = find(first, key, &place);
    bucket->values[place] = value; //~[BUG_UPDATE_FENCE] crash-durability|crash-order
    pm_flush(&bucket->values[place], sizeof value);
#ifndef BUG_UPDATE_FENCE
    PM_SFENCE();
#endif
}

static void apply(struct op op) {
    pthread_rwlock_rdlock(&resizing);
    struct bucket *first = first_bucket(root->bits, op.key);
    pthread_mutex_t *lock = &stripes[(uint64_t)(first - root->tables[0].buckets) % STRIPES];
    pthread_mutex_lock(lock);
    int place;
    struct bucket *bucket;
    switch (op.kind) {
    case INSERT: insert_into(first, op.key, op.value); break;
    case UPDATE: update(first, op.key, op.value); break;
    case REMOVE:
        bucket = find(first, op.key, &place);
        bucket->keys[place] = 0;
        pm_persist(&bucket->keys[place], sizeof(uint64_t));
        break;
    }
    bool must_grow = is_long(first);
    pthread_mutex_unlock(lock);
    pthread_rwlock_unlock(&resizing);
    if (must_grow) {
        pthread_rwlock_wrlock(&resizing);
        if (is_long(first_bucket(root->bits, op.key)))
            resize();
        pthread_rwlock_unlock(&resizing);
    }
}

static uint64_t get(uint64_t key) {
    int place;
    struct bucket *bucket = find(first_bucket(root->bits, key), key, &place);
    return bucket ? bucket->values[place] : 0;
}

// Every key is in its bucket, once; marks the overflow buckets in use.
static uint64_t check(void) {
    bool seen[THREADS * KEYS + 1] = {false};
    uint64_t pairs = 0;
    REQUIRE(root->bits < TABLES, "a table of 4 << %lu buckets", root->bits);
    for (uint64_t i = 0; i < 4ull << root->bits; i++) {
        struct bucket *first = &root->tables[root->bits].buckets[i];
        for (struct bucket *bucket = first; bucket; bucket = overflow(bucket->next)) {
            if (bucket != first) {
                REQUIRE(!used[bucket - root->overflows], "an overflow bucket is linked twice");
                used[bucket - root->overflows] = true;
                REQUIRE(bucket->owner == owner_of(first), "an overflow bucket of another chain in that of bucket %lu", i);
            }
            for (int place = 0; place < PAIRS; place++) {
                uint64_t key = bucket->keys[place];
                if (key == 0)
                    continue;
                REQUIRE(key <= THREADS * KEYS && first_bucket(root->bits, key) == first, "key %lu in bucket %lu", key, i);
                REQUIRE(!seen[key], "key %lu is there twice", key);
                REQUIRE(bucket->values[place] != 0, "key %lu has no value", key);
                seen[key] = true;
                pairs++;
            }
        }
    }
    return pairs;
}

static bool open_file(const char *path, bool create) {
    root = (struct root *)pm_map(path, sizeof *root);
    if (root->magic == MAGIC)
        return true;
    if (!create)
        return false;
    root->bits = 0;
    memset(&root->tables[0], 0, 4 * sizeof(struct bucket));
    pm_flush(&root->tables[0], 4 * sizeof(struct bucket));
    pm_persist(&root->bits, sizeof root->bits);
    root->magic = MAGIC;
    pm_persist(&root->magic, sizeof root->magic);
    return true;
}

static uint64_t operations, seed;

static uint64_t key_of(uint64_t thread, uint64_t key) {
    return thread * KEYS + key;
}

static void *work(void *number) {
    uint64_t thread = (uintptr_t)number;
    struct model model;
    memset(&model, 0, sizeof model);
    model.random = seed + thread * 1000003;
    for (uint64_t key = 1; key <= KEYS; key++) {
        model.values[key] = get(key_of(thread, key));
        model.used += model.values[key] != 0;
    }
    for (uint64_t i = 1; i <= operations / THREADS; i++) {
        struct op op = model_next(&model);
        op.key = key_of(thread, op.key);
        apply(op);
        dprintf(STDOUT_FILENO, "done %lu %lu\n", thread, i);
    }
    return NULL;
}

static void load(const char *path) {
    if (open_file(path, true))
        check();
    for (int i = 0; i < STRIPES; i++)
        pthread_mutex_init(&stripes[i], NULL);
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, work, (void *)i) != 0)
            pm_die("pthread_create");
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

static void verify(const char *path, bool with_seed) {
    uint64_t done[THREADS] = {0}, thread, number;
    const char *output_path = getenv("CRASHPROOF_OUTPUT");
    FILE *output = output_path ? fopen(output_path, "r") : NULL;
    while (output && fscanf(output, " done %lu %lu", &thread, &number) == 2)
        if (thread < THREADS)
            done[thread] = number;
    if (!open_file(path, false)) {
        REQUIRE(done[0] + done[1] + done[2] == 0, "there is nothing, and operations were acknowledged");
        return;
    }
    uint64_t pairs = check(), found = 0;
    for (uint64_t t = 0; t < THREADS; t++) {
        struct model before;
        memset(&before, 0, sizeof before);
        before.random = seed + t * 1000003;
        for (uint64_t i = 0; i < done[t]; i++)
            model_next(&before);
        // What each thread was at is done or not done.
        struct model after = before;
        uint64_t last = model_next(&after).key;
        struct model *expected = get(key_of(t, last)) == after.values[last] ? &after : &before;
        for (uint64_t key = 1; key <= KEYS; key++) {
            uint64_t value = get(key_of(t, key));
            found += value != 0;
            REQUIRE(!with_seed || !output || value == expected->values[key], "key %lu has value %lx instead of %lx",
                    key_of(t, key), value, expected->values[key]);
        }
    }
    REQUIRE(found == pairs, "%lu keys are found, and there are %lu pairs", found, pairs);
}

int main(int argc, char **argv) {
    if (argc >= 4)
        seed = strtoull(argv[argc - 1], NULL, 0);
    if (argc == 5 && strcmp(argv[1], "load") == 0) {
        operations = strtoull(argv[3], NULL, 0);
        load(argv[2]);
    } else if ((argc == 3 || argc == 4) && strcmp(argv[1], "verify") == 0) {
        verify(argv[2], argc == 4);
    } else {
        return usage(argv[0]);
    }
    return 0;
}
