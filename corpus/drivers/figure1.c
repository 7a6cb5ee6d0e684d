// The example of Witcher (SOSP '21, figure 1): query, insert and update of a level hash. A slot is taken if its token is set; tokens
// and slots of a bucket lie in different lines.
//
// The query guards the reads of key and value by the token; that is all that there is to infer from. With -DVALUE_AFTER_RETURN it
// returns the slot instead, and the value is read by whoever asked.
#include "../structures/kv.h"

#define MAGIC 0x31657275676966u
#define SLOTS 8
#define TOP 64 // buckets of the top level; the bottom level has half of them

struct slot {
    uint64_t key, value;
};

struct bucket {
    _Alignas(LINE) uint8_t token[SLOTS]; // a word
    _Alignas(LINE) struct slot slot[SLOTS];
};

struct root {
    _Alignas(LINE) uint64_t magic;
    struct bucket top[TOP], bottom[TOP / 2];
};

static struct root *root;

// The four buckets in which a key may be.
static struct bucket *bucket(uint64_t key, int i) {
    uint64_t hash = mix(i % 2 ? key ^ 0x5bd1e995 : key);
    return i < 2 ? &root->top[hash % TOP] : &root->bottom[hash % (TOP / 2)];
}

static void set_tokens(struct bucket *bucket, const uint8_t *token) {
    uint64_t word;
    memcpy(&word, token, sizeof word);
    *(volatile uint64_t *)bucket->token = word;
    pm_persist(bucket->token, sizeof bucket->token);
}

#ifdef VALUE_AFTER_RETURN
static struct slot *query(uint64_t key) {
    for (int i = 0; i < 4; i++) {
        struct bucket *at = bucket(key, i);
        for (int j = 0; j < SLOTS; j++)
            if (at->token[j] == 1 && at->slot[j].key == key)
                return &at->slot[j];
    }
    return NULL;
}

static uint64_t kv_get(uint64_t key) {
    struct slot *slot = query(key);
    return slot ? slot->value : 0;
}
#else
static uint64_t kv_get(uint64_t key) {
    for (int i = 0; i < 4; i++) {
        struct bucket *at = bucket(key, i);
        for (int j = 0; j < SLOTS; j++)
            if (at->token[j] == 1 && at->slot[j].key == key)
                return at->slot[j].value;
    }
    return 0;
}
#endif

static void kv_insert(uint64_t key, uint64_t value) {
    for (int i = 0; i < 4; i++) {
        struct bucket *at = bucket(key, i);
        for (int j = 0; j < SLOTS; j++) {
            if (at->token[j] != 0)
                continue;
            at->slot[j].key = key; //~[BUG_INSERT_ORDER] crash-order
            at->slot[j].value = value; //~[BUG_INSERT_ORDER] crash-order
#ifdef BUG_INSERT_ORDER
            at->token[j] = 1;
            pm_persist(&at->slot[j], sizeof at->slot[j]);
            pm_persist(&at->token[j], sizeof at->token[j]);
#else
            pm_persist(&at->slot[j], sizeof at->slot[j]);
            at->token[j] = 1;
            pm_persist(&at->token[j], sizeof at->token[j]);
#endif
            return;
        }
    }
    REQUIRE(false, "the table is full");
}

// The new value goes to a free slot of the same bucket; then the tokens change.
static void kv_update(uint64_t key, uint64_t value) {
    for (int i = 0; i < 4; i++) {
        struct bucket *at = bucket(key, i);
        for (int j = 0; j < SLOTS; j++) {
            if (at->token[j] == 0 || at->slot[j].key != key)
                continue;
            int k = 0;
            while (k < SLOTS && at->token[k] != 0)
                k++;
            if (k == SLOTS) { // a word
                at->slot[j].value = value;
                pm_persist(&at->slot[j].value, sizeof at->slot[j].value);
                return;
            }
            at->slot[k].key = key;
            at->slot[k].value = value;
            pm_persist(&at->slot[k], sizeof at->slot[k]);
#ifdef BUG_UPDATE_TOKENS
            volatile uint8_t *token = at->token;
            token[j] = 0; //~[BUG_UPDATE_TOKENS] crash-atomicity|crash-order|crash-durability
            token[k] = 1; //~[BUG_UPDATE_TOKENS] crash-atomicity|crash-order|crash-durability
            pm_persist(at->token, sizeof at->token);
#else
            uint8_t token[SLOTS];
            memcpy(token, at->token, sizeof token);
            token[j] = 0;
            token[k] = 1;
            set_tokens(at, token);
#endif
            return;
        }
    }
}

static void kv_remove(uint64_t key) {
    for (int i = 0; i < 4; i++) {
        struct bucket *at = bucket(key, i);
        for (int j = 0; j < SLOTS; j++)
            if (at->token[j] == 1 && at->slot[j].key == key) {
                at->token[j] = 0;
                pm_persist(&at->token[j], sizeof at->token[j]);
                return;
            }
    }
}

static uint64_t kv_check(void) {
    uint64_t entries = 0;
    for (uint64_t key = 1; key <= KEYS; key++)
        entries += kv_get(key) != 0;
    return entries;
}

static bool kv_open(const char *path, bool create) {
    root = (struct root *)pm_map(path, sizeof *root);
    if (root->magic == MAGIC)
        return true;
    if (!create)
        return false;
    root->magic = MAGIC;
    pm_persist(&root->magic, sizeof root->magic);
    return true;
}
