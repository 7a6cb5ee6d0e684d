// A persistent allocator: chunks of 1 KiB, each of which is divided into units of one size class, with a bitmap of the units
// that are taken. Allocating also stores the object's offset where the caller wants it, freeing clears it: bitmap and offset
// change together, by a redo log. Free lists of chunks are in memory and built anew at opening.
//
// The client is a table of objects; a random operation allocates or frees one of them.
#include "structure.h"

#define MAGIC 0x636f6c6c6170u
#define OBJECTS 96
#define CHUNKS 64
#define CHUNK_SIZE 1024
#define CLASSES 3 // units of 64, 128 and 256 bytes

struct chunk_header {
    _Alignas(LINE) uint64_t class_plus_1; // 0: the chunk is free
    uint64_t taken;                       // a bit for each unit
};

struct redo_entry {
    uint64_t offset, value;
};

struct redo_log {
    _Alignas(LINE) uint64_t count; // 0: nothing is to be done
    _Alignas(LINE) struct redo_entry entries[4];
};

// An object begins with its length; the rest is derived from its seed.
struct object {
    uint64_t length, seed;
    uint64_t words[];
};

struct root {
    _Alignas(LINE) uint64_t magic;
    struct redo_log redo;
    _Alignas(LINE) uint64_t objects[OBJECTS]; // offsets; 0: none
    struct chunk_header headers[CHUNKS];
    _Alignas(LINE) char chunks[CHUNKS][CHUNK_SIZE];
};

static struct root *root;
// Chunks of each class with a free unit, and free chunks, as stacks.
static uint64_t partial[CLASSES + 1][CHUNKS], partial_count[CLASSES + 1];

static uint64_t unit_size(uint64_t size_class) {
    return 64ull << size_class;
}

static uint64_t units_of(uint64_t size_class) {
    return CHUNK_SIZE / unit_size(size_class);
}

static uint64_t class_for(uint64_t size) {
    uint64_t size_class = 0;
    while (unit_size(size_class) < size)
        size_class++;
    return size_class;
}

static struct object *object_at(uint64_t offset) {
    return (struct object *)((char *)root + offset);
}

static void push(uint64_t list, uint64_t chunk) {
    partial[list][partial_count[list]++] = chunk;
}

static uint64_t offset_in_file(const void *at) {
    return (uint64_t)((const char *)at - (const char *)root);
}

static void apply_redo(void) {
    REQUIRE(root->redo.count <= 4, "a redo log of %lu entries", root->redo.count);
    for (uint64_t i = 0; i < root->redo.count; i++) {
        struct redo_entry entry = root->redo.entries[i];
        REQUIRE(entry.offset < sizeof *root && entry.offset % 8 == 0, "redo entry %lu is broken", i);
        uint64_t *at = (uint64_t *)((char *)root + entry.offset);
        *at = entry.value; //~[BUG_REDO_END] crash-order|crash-atomicity|crash-durability
#ifndef BUG_REDO_END
        pm_flush(at, sizeof *at);
#endif
    }
    PM_SFENCE();
    root->redo.count = 0;
    pm_persist(&root->redo.count, sizeof root->redo.count);
}

// Both words, or none.
static void set_two(uint64_t *first, uint64_t first_value, uint64_t *second, uint64_t second_value) {
#ifdef BUG_NO_REDO
    *first = first_value;
    pm_persist(first, sizeof *first);
    *second = second_value; //~[BUG_NO_REDO] crash-atomicity|crash-order|crash-durability
    pm_persist(second, sizeof *second);
#else
    root->redo.entries[0] = (struct redo_entry){offset_in_file(first), first_value}; //~[BUG_REDO_ORDER] crash-order|crash-durability
    root->redo.entries[1] = (struct redo_entry){offset_in_file(second), second_value}; //~[BUG_REDO_ORDER] crash-order|crash-durability
    pm_flush(root->redo.entries, sizeof root->redo.entries);
#ifndef BUG_REDO_ORDER
    PM_SFENCE();
#endif
    root->redo.count = 2;
    pm_persist(&root->redo.count, sizeof root->redo.count);
    apply_redo();
#ifdef BUG_REDO_END
    pm_persist(first, sizeof *first);
    pm_persist(second, sizeof *second);
#endif
#endif
}

// A chunk of this class that has a free unit; a free chunk is given to the class if there is none.
static uint64_t chunk_for(uint64_t size_class) {
    if (partial_count[size_class] == 0) {
        REQUIRE(partial_count[CLASSES] > 0, "the file is full");
        uint64_t chunk = partial[CLASSES][--partial_count[CLASSES]];
        root->headers[chunk].class_plus_1 = size_class + 1; //~[BUG_CLASS_FLUSH] crash-order|crash-durability
#ifndef BUG_CLASS_FLUSH
        pm_persist(&root->headers[chunk].class_plus_1, sizeof(uint64_t));
#endif
        push(size_class, chunk);
    }
    return partial[size_class][partial_count[size_class] - 1];
}

static void fill(struct object *object, uint64_t length, uint64_t seed) {
    object->length = length; //~[BUG_FILL_ORDER] crash-order|crash-durability
    object->seed = seed; //~[BUG_FILL_ORDER] crash-order|crash-durability
    for (uint64_t i = 0; i < length; i++)
        object->words[i] = seed + i; //~[BUG_FILL_ORDER] crash-order|crash-durability
    pm_persist(object, sizeof *object + length * sizeof(uint64_t));
}

static void allocate(uint64_t *where, uint64_t length, uint64_t seed) {
    uint64_t size = sizeof(struct object) + length * sizeof(uint64_t);
    uint64_t size_class = class_for(size);
    uint64_t chunk = chunk_for(size_class);
    struct chunk_header *header = &root->headers[chunk];
    uint64_t unit = (uint64_t)__builtin_ctzll(~header->taken);
    struct object *object = (struct object *)(root->chunks[chunk] + unit * unit_size(size_class));
#ifndef BUG_FILL_ORDER
    fill(object, length, seed);
#endif
    set_two(&header->taken, header->taken | 1ull << unit, where, offset_in_file(object));
#ifdef BUG_FILL_ORDER
    fill(object, length, seed);
#endif
    if (header->taken == (1ull << units_of(size_class)) - 1)
        partial_count[size_class]--;
}

static struct chunk_header *header_of(uint64_t offset, uint64_t *unit) {
    uint64_t in_chunks = offset - offsetof(struct root, chunks);
    uint64_t chunk = in_chunks / CHUNK_SIZE;
    REQUIRE(offset >= offsetof(struct root, chunks) && chunk < CHUNKS, "an object at %lu", offset);
    struct chunk_header *header = &root->headers[chunk];
    REQUIRE(header->class_plus_1 >= 1 && header->class_plus_1 <= CLASSES, "an object in chunk %lu of class %lu", chunk,
            header->class_plus_1);
    uint64_t size = unit_size(header->class_plus_1 - 1);
    REQUIRE(in_chunks % CHUNK_SIZE % size == 0, "an object at %lu in units of %lu", offset, size);
    *unit = in_chunks % CHUNK_SIZE / size;
    return header;
}

// A chunk without objects can be given to any class.
static void release(uint64_t *where) {
    uint64_t unit;
    struct chunk_header *header = header_of(*where, &unit);
    uint64_t size_class = header->class_plus_1 - 1, chunk = (uint64_t)(header - root->headers);
    bool was_full = header->taken == (1ull << units_of(size_class)) - 1;
    set_two(&header->taken, header->taken & ~(1ull << unit), where, 0);
    if (was_full)
        push(size_class, chunk);
    if (header->taken != 0)
        return;
    header->class_plus_1 = 0;
    pm_persist(&header->class_plus_1, sizeof header->class_plus_1);
    uint64_t at = 0;
    while (partial[size_class][at] != chunk)
        at++;
    partial[size_class][at] = partial[size_class][--partial_count[size_class]];
    push(CLASSES, chunk);
}

struct model {
    uint64_t random;
    struct {
        uint64_t length, seed; // of each object; a length of 0: none
    } objects[OBJECTS];
};

// What becomes of the object: allocated, or freed (length 0).
struct op {
    uint64_t object, length, seed;
};

static struct op model_next(struct model *model) {
    struct op op;
    op.object = next_random(&model->random) % OBJECTS;
    bool exists = model->objects[op.object].length != 0;
    op.length = exists ? 0 : 1 + next_random(&model->random) % 30;
    op.seed = exists ? 0 : next_random(&model->random);
    model->objects[op.object].length = op.length;
    model->objects[op.object].seed = op.seed;
    return op;
}

static void recover(void) {
    if (root->redo.count != 0)
        apply_redo();
    for (uint64_t chunk = 0; chunk < CHUNKS; chunk++) {
        struct chunk_header *header = &root->headers[chunk];
        REQUIRE(header->class_plus_1 <= CLASSES, "chunk %lu is of class %lu", chunk, header->class_plus_1);
        // One that was just given to a class, or just about to be free.
        if (header->class_plus_1 != 0 && header->taken == 0) {
            header->class_plus_1 = 0;
            pm_persist(&header->class_plus_1, sizeof header->class_plus_1);
        }
        if (header->class_plus_1 == 0)
            push(CLASSES, chunk);
        else if (header->taken != (1ull << units_of(header->class_plus_1 - 1)) - 1)
            push(header->class_plus_1 - 1, chunk);
    }
}

static bool open_file(const char *path, bool create) {
    root = (struct root *)pm_map(path, sizeof *root);
    if (root->magic == MAGIC) {
        recover();
        return true;
    }
    if (!create)
        return false;
    memset(root, 0, offsetof(struct root, chunks));
    pm_persist(root, offsetof(struct root, chunks));
    root->magic = MAGIC;
    pm_persist(&root->magic, sizeof root->magic);
    for (uint64_t chunk = CHUNKS; chunk-- > 0;)
        push(CLASSES, chunk);
    return true;
}

// The units that are taken are those of the objects, each of one object: nothing leaks, nothing is shared.
static void check(void) {
    uint64_t reached[CHUNKS] = {0};
    for (uint64_t i = 0; i < OBJECTS; i++) {
        if (root->objects[i] == 0)
            continue;
        uint64_t unit;
        struct chunk_header *header = header_of(root->objects[i], &unit);
        uint64_t chunk = (uint64_t)(header - root->headers);
        REQUIRE(!(reached[chunk] >> unit & 1), "object %lu shares its unit", i);
        reached[chunk] |= 1ull << unit;
        struct object *object = object_at(root->objects[i]);
        uint64_t size = unit_size(header->class_plus_1 - 1);
        REQUIRE(object->length != 0 && sizeof *object + object->length * 8 <= size, "object %lu has length %lu in %lu", i,
                object->length, size);
        for (uint64_t w = 0; w < object->length; w++)
            REQUIRE(object->words[w] == object->seed + w, "word %lu of object %lu is wrong", w, i);
    }
    for (uint64_t chunk = 0; chunk < CHUNKS; chunk++)
        REQUIRE(root->headers[chunk].taken == reached[chunk], "chunk %lu has %lx taken and %lx in use", chunk,
                root->headers[chunk].taken, reached[chunk]);
}

static bool matches(const struct model *model, uint64_t i) {
    if (root->objects[i] == 0)
        return model->objects[i].length == 0;
    struct object *object = object_at(root->objects[i]);
    return object->length == model->objects[i].length && object->seed == model->objects[i].seed;
}

static void load(const char *path, uint64_t operations, uint64_t seed) {
    open_file(path, true);
    struct model model;
    memset(&model, 0, sizeof model);
    model.random = seed;
    for (uint64_t i = 0; i < OBJECTS; i++)
        if (root->objects[i] != 0)
            model.objects[i].length = object_at(root->objects[i])->length;
    for (uint64_t i = 1; i <= operations; i++) {
        struct op op = model_next(&model);
        if (op.length == 0)
            release(&root->objects[op.object]);
        else
            allocate(&root->objects[op.object], op.length, op.seed);
        acknowledge(i);
    }
}

static void verify(const char *path, const char *seed) {
    uint64_t done = acknowledged();
    if (!open_file(path, false)) {
        REQUIRE(done == 0, "there is nothing, and %lu operations were acknowledged", done);
        return;
    }
    check();
    if (!seed || !getenv("CRASHPROOF_OUTPUT"))
        return;
    struct model before;
    memset(&before, 0, sizeof before);
    before.random = strtoull(seed, NULL, 0);
    for (uint64_t i = 0; i < done; i++)
        model_next(&before);
    struct model after = before;
    uint64_t last = model_next(&after).object;
    struct model *expected = matches(&after, last) ? &after : &before;
    for (uint64_t i = 0; i < OBJECTS; i++)
        REQUIRE(matches(expected, i), "object %lu is not what it was", i);
}

#include "load_verify.h"
