// Extendible hashing in the manner of CCEH: a directory of segments, indexed by the hash's leading bits. A full segment is
// split in two new ones; where its depth is that of the directory, the directory is doubled first.
//
// A slot holds an entry if its key is not 0: the value is durable before the key is. A split is announced in the root, so that
// recovery can finish the change of the directory.
#include "kv.h"

namespace {

constexpr uint64_t MAGIC = 0x68656363;
constexpr uint64_t SLOTS = 12;     // of a segment
constexpr uint64_t SEGMENTS = 512; // of a file
constexpr unsigned MAX_DEPTH = 8;

struct Pair {
    uint64_t key;
    uint64_t value;
};

struct alignas(LINE) Segment {
    uint64_t depth;
    uint64_t pattern; // the leading bits of all hashes in it
    alignas(LINE) Pair slots[SLOTS];
};

struct alignas(LINE) Directory {
    uint32_t segments[1u << MAX_DEPTH]; // only the first 1 << depth are in use
};

struct alignas(LINE) Split {
    uint64_t under_way; // 1: the three below are to be put into the directory
    uint32_t old_segment, left, right;
};

struct Root {
    alignas(LINE) uint64_t magic;
    alignas(LINE) uint64_t depth; // also which directory is in use
    Split split;
    Directory directories[MAX_DEPTH + 1];
    Segment segments[SEGMENTS];
};

Root *root;
bool used[SEGMENTS];
uint64_t hint;

template <typename T> void persist(const T &object) {
    pm_persist(&object, sizeof object);
}

template <typename T> void store_durably(T &at, T value) {
    at = value;
    persist(at);
}

uint64_t leading(uint64_t hash, uint64_t bits) {
    return bits == 0 ? 0 : hash >> (64 - bits);
}

uint32_t *entries() {
    return root->directories[root->depth].segments;
}

Segment &segment_at(uint32_t index) {
    REQUIRE(index < SEGMENTS, "segment %u", index);
    return root->segments[index];
}

Segment &segment_of(uint64_t key) {
    return segment_at(entries()[leading(mix(key), root->depth)]);
}

Pair *find(uint64_t key) {
    for (Pair &pair : segment_of(key).slots)
        if (pair.key == key)
            return &pair;
    return nullptr;
}

uint32_t allocate() {
    return static_cast<uint32_t>(take_slot(used, SEGMENTS, &hint));
}

// A segment with those entries whose hash begins with the pattern. Persistent, without a fence.
uint32_t make_segment(uint64_t depth, uint64_t pattern, const Segment *from) {
    uint32_t index = allocate();
    Segment &segment = segment_at(index);
    memset(&segment, 0, sizeof segment); //~[BUG_SPLIT_ORDER] crash-order|crash-durability
    segment.depth = depth; //~[BUG_DEPTH_FLUSH] crash-order
    //~^[BUG_SPLIT_ORDER] crash-order|crash-durability
    segment.pattern = pattern; //~[BUG_DEPTH_FLUSH] crash-order
    //~^[BUG_SPLIT_ORDER] crash-order|crash-durability
    uint64_t count = 0;
    if (from != nullptr)
        for (const Pair &pair : from->slots)
            if (pair.key != 0 && leading(mix(pair.key), depth) == pattern)
                segment.slots[count++] = pair; //~[BUG_SPLIT_ORDER] crash-order|crash-durability
#if defined BUG_DEPTH_FLUSH
    pm_flush(segment.slots, sizeof segment.slots);
#elif !defined BUG_SPLIT_ORDER
    pm_flush(&segment, sizeof segment);
#endif
    return index;
}

// The directory's entries for a segment that was split.
void enter_split() {
    const Segment &left = segment_at(root->split.left);
    uint64_t span = root->depth - left.depth;
    REQUIRE(left.depth <= root->depth, "a segment of depth %lu", left.depth);
    uint64_t from = left.pattern << span;
    for (uint64_t i = 0; i < 2ull << span; i++)
        entries()[from + i] = i < 1ull << span ? root->split.left : root->split.right; //~[BUG_SPLIT_INTENT] crash-atomicity|crash-order
    pm_persist(&entries()[from], (2ull << span) * sizeof(uint32_t));
}

void double_directory() {
    REQUIRE(root->depth < MAX_DEPTH, "the directory is full");
    uint32_t *to = root->directories[root->depth + 1].segments;
    for (uint64_t i = 0; i < 1ull << root->depth; i++)
        to[2 * i] = to[2 * i + 1] = entries()[i]; //~[BUG_DIRECTORY_ORDER] crash-order
    pm_flush(to, (2ull << root->depth) * sizeof(uint32_t));
#ifndef BUG_DIRECTORY_ORDER
    PM_SFENCE();
#endif
    store_durably(root->depth, root->depth + 1);
}

void split(Segment &old) {
    if (old.depth == root->depth)
        double_directory();
    uint32_t left = make_segment(old.depth + 1, old.pattern * 2, &old);
    uint32_t right = make_segment(old.depth + 1, old.pattern * 2 + 1, &old);
    PM_SFENCE();
    root->split.old_segment = static_cast<uint32_t>(&old - root->segments);
    root->split.left = left;
    root->split.right = right;
    persist(root->split);
#ifndef BUG_SPLIT_INTENT
    store_durably<uint64_t>(root->split.under_way, 1);
#endif
    enter_split();
    store_durably<uint64_t>(root->split.under_way, 0);
#ifdef BUG_SPLIT_ORDER
    persist(segment_at(left));
    persist(segment_at(right));
#endif
    used[root->split.old_segment] = false;
}

void recover() {
    REQUIRE(root->depth <= MAX_DEPTH, "a directory of depth %lu", root->depth);
    if (root->split.under_way != 0) {
        enter_split();
        store_durably<uint64_t>(root->split.under_way, 0);
    }
    for (uint64_t i = 0; i < 1ull << root->depth; i++) {
        REQUIRE(entries()[i] < SEGMENTS, "the directory has segment %u", entries()[i]);
        used[entries()[i]] = true;
    }
}

} // namespace

static void kv_insert(uint64_t key, uint64_t value) {
    for (;;) {
        for (Pair &pair : segment_of(key).slots) {
            if (pair.key != 0)
                continue;
#ifdef BUG_INSERT_ORDER
            pair.key = key;
            PM_BARRIER();
            pair.value = value; //~[BUG_INSERT_ORDER] crash-order|crash-atomicity
            persist(pair);
#else
            store_durably(pair.value, value);
            store_durably(pair.key, key);
#endif
            return;
        }
        split(segment_of(key));
    }
}

static void kv_update(uint64_t key, uint64_t value) {
    store_durably(find(key)->value, value);
}

static void kv_remove(uint64_t key) {
    store_durably<uint64_t>(find(key)->key, 0);
}

static uint64_t kv_get(uint64_t key) {
    Pair *pair = find(key);
    return pair == nullptr ? 0 : pair->value;
}

// A segment of depth d has the directory entries of its pattern, and no other.
static uint64_t kv_check(void) {
    uint64_t count = 0;
    for (uint64_t i = 0; i < 1ull << root->depth; i++) {
        const Segment &segment = segment_at(entries()[i]);
        REQUIRE(segment.depth <= root->depth, "segment %u has depth %lu", entries()[i], segment.depth);
        REQUIRE(i >> (root->depth - segment.depth) == segment.pattern, "entry %lu has a segment of pattern %lx", i,
                segment.pattern);
        if (i != segment.pattern << (root->depth - segment.depth)) {
            REQUIRE(entries()[i] == entries()[i - 1], "entries %lu and %lu have two segments of one pattern", i - 1, i);
            continue;
        }
        for (const Pair &pair : segment.slots) {
            if (pair.key == 0)
                continue;
            REQUIRE(&segment_of(pair.key) == &segment, "key %lu is in another segment than its own", pair.key);
            count++;
        }
    }
    return count;
}

static bool kv_open(const char *path, bool create) {
    root = static_cast<Root *>(pm_map(path, sizeof *root));
    if (root->magic == MAGIC) {
        recover();
        return true;
    }
    if (!create)
        return false;
    root->depth = 0;
    memset(&root->split, 0, sizeof root->split);
    entries()[0] = make_segment(0, 0, nullptr);
    persist(root->segments[entries()[0]]);
    pm_persist(root, offsetof(Root, directories) + LINE);
    store_durably<uint64_t>(root->magic, MAGIC);
    return true;
}
