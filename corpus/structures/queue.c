// A FIFO queue of messages in linked segments. The consumer gives a segment back when it has read all of it.
//
// Head and tail are counters of messages; the segments that hold them are linked from the first one, which the root names
// together with the number of its first message (the root has two such records, the newer of which counts).
//
// With -DDRIVER it is a driver of operations (docs/drivers.md): `put`, `take`, and `print`, which shows all messages.
#include "structure.h"

#define MAGIC 0x6575657571u
#define SEGMENTS 64
#define PER_SEGMENT 6
#define WORDS 7
#define MOST 200 // messages in the queue

struct message {
    _Alignas(LINE) uint64_t number;
    uint64_t words[WORDS + 1]; // derived from the number; the last lies in the second line
};

struct segment {
    _Alignas(LINE) uint64_t next; // index + 1; 0: none yet
    struct message messages[PER_SEGMENT];
};

// Which segment the queue begins with.
struct anchor {
    uint32_t sequence; // the anchor with the higher one counts
    uint32_t segment;
    uint64_t first; // the number of its first message
};

struct root {
    _Alignas(LINE) uint64_t magic;
    _Alignas(LINE) uint64_t head; // messages taken from the queue
    _Alignas(LINE) uint64_t tail; // messages ever put
    struct {
        _Alignas(LINE) uint64_t words[2];
    } anchors[2];
    struct segment segments[SEGMENTS];
};

static struct root *root;
static uint32_t last_segment; // in use
static bool used[SEGMENTS];
static uint64_t hint;

static struct anchor read_anchor(int i) {
    struct anchor anchor;
    memcpy(&anchor, root->anchors[i].words, sizeof anchor);
    return anchor;
}

static struct anchor current_anchor(void) {
    struct anchor a = read_anchor(0), b = read_anchor(1);
    return a.sequence > b.sequence ? a : b;
}

// First what the new anchor says, then that it counts. Both are in one line, so their order is kept.
static void set_anchor(struct anchor anchor) {
#ifdef BUG_ANCHOR_IN_PLACE
    uint64_t *words = root->anchors[1].words;
#else
    uint64_t *words = root->anchors[anchor.sequence % 2].words;
#endif
    uint64_t packed[2];
    memcpy(packed, &anchor, sizeof packed);
#ifdef BUG_ANCHOR_ORDER
    words[0] = packed[0];
    PM_BARRIER();
    words[1] = packed[1]; //~[BUG_ANCHOR_ORDER] crash-order|crash-atomicity
#else
    words[1] = packed[1];
    PM_BARRIER();
    words[0] = packed[0]; //~[BUG_ANCHOR_IN_PLACE] crash-order|crash-atomicity
    //~^[BUG_ANCHOR_FLUSH] crash-order|crash-atomicity|crash-durability
#endif
#ifndef BUG_ANCHOR_FLUSH
    pm_persist(words, sizeof packed);
#endif
}

static uint32_t allocate(void) {
    return (uint32_t)take_slot(used, SEGMENTS, &hint);
}

static void release(uint32_t index) {
    used[index] = false;
    hint = index;
}

static void store_durably(uint64_t *at, uint64_t value) {
    *at = value;
    pm_persist(at, sizeof *at);
}

static void put(void) {
    struct anchor anchor = current_anchor();
    uint64_t number = root->tail, place = (number - anchor.first) % PER_SEGMENT;
    if (place == 0 && number != anchor.first) {
        // The segment is full, and the next one is new.
        uint32_t segment = allocate();
        store_durably(&root->segments[segment].next, 0);
#ifdef BUG_LINK_ORDER
        root->segments[last_segment].next = segment + 1; //~[BUG_LINK_ORDER] crash-order|crash-durability
#else
        store_durably(&root->segments[last_segment].next, segment + 1);
#endif
        last_segment = segment;
    }
    struct message *message = &root->segments[last_segment].messages[place];
    message->number = number; //~[BUG_TAIL_ORDER] crash-order|crash-durability
    for (uint64_t i = 0; i <= WORDS; i++)
        message->words[i] = mix(number + i); //~[BUG_TAIL_ORDER] crash-order|crash-durability
    pm_flush(message, sizeof *message);
#ifndef BUG_TAIL_ORDER
    PM_SFENCE();
#endif
    store_durably(&root->tail, number + 1);
}

// Takes one message. The first segment goes when all of it was taken and there is another one.
static void take(void) {
    store_durably(&root->head, root->head + 1);
    struct anchor anchor = current_anchor();
    uint64_t next = root->segments[anchor.segment].next;
    if (root->head - anchor.first < PER_SEGMENT || next == 0)
        return;
    uint32_t old = anchor.segment;
    anchor = (struct anchor){anchor.sequence + 1, (uint32_t)next - 1, anchor.first + PER_SEGMENT};
    set_anchor(anchor);
    release(old);
}

static void recover(void) {
    struct anchor anchor = current_anchor();
    REQUIRE(anchor.first <= root->head && root->head <= root->tail, "a head of %lu and a tail of %lu, from %lu on", root->head,
            root->tail, anchor.first);
    uint32_t segment = anchor.segment;
    for (uint64_t first = anchor.first;; first += PER_SEGMENT) {
        REQUIRE(segment < SEGMENTS && !used[segment], "segment %u is linked twice, or is none", segment);
        used[segment] = true;
        last_segment = segment;
        if (first + PER_SEGMENT >= root->tail)
            break;
        REQUIRE(root->segments[segment].next != 0, "there is no segment for message %lu", first + PER_SEGMENT);
        segment = (uint32_t)root->segments[segment].next - 1;
    }
    // One that was linked and got no message.
    if (root->segments[last_segment].next != 0)
        store_durably(&root->segments[last_segment].next, 0);
}

static bool open_file(const char *path, bool create) {
    root = (struct root *)pm_map(path, sizeof *root);
    if (root->magic == MAGIC) {
        recover();
        return true;
    }
    if (!create)
        return false;
    root->head = root->tail = 0;
    memset(root->anchors, 0, sizeof root->anchors);
    root->segments[0].next = 0;
    pm_persist(root, offsetof(struct root, segments) + LINE);
    set_anchor((struct anchor){1, 0, 0});
    used[0] = true;
    store_durably(&root->magic, MAGIC);
    return true;
}

static bool has_words(const struct message *message, uint64_t number) {
    bool right = message->number == number;
    for (uint64_t i = 0; i <= WORDS; i++)
        right &= message->words[i] == mix(number + i);
    return right;
}

// The message with this number, which is in the queue.
static struct message *message_at(uint64_t number) {
    struct anchor anchor = current_anchor();
    uint32_t segment = anchor.segment;
    uint64_t first = anchor.first;
    for (; number >= first + PER_SEGMENT; first += PER_SEGMENT)
        segment = (uint32_t)root->segments[segment].next - 1;
    return &root->segments[segment].messages[number - first];
}

#ifdef DRIVER

#include "../../include/crashproof_driver.h"

static void driver_put(char **words) {
    (void)words;
    if (root->tail - root->head == MOST)
        crashproof_print("full");
    else
        put();
}

static void print_message(uint64_t number) {
    struct message *message = message_at(number);
    crashproof_print("%lu%s", message->number, has_words(message, number) ? "" : " (with other words)");
}

static void driver_take(char **words) {
    (void)words;
    if (root->tail == root->head) {
        crashproof_print("empty");
        return;
    }
    print_message(root->head);
    take();
}

static void print_messages(const char *separator) {
    crashproof_print("%lu messages:%s", root->tail - root->head, separator);
    for (uint64_t number = root->head; number < root->tail; number++) {
        print_message(number);
        crashproof_print("%s", separator);
    }
}

static void driver_print(char **words) {
    (void)words;
    print_messages(" ");
}

static void driver_probe(void) {
    print_messages("\n");
}

static void driver_open(const char *path, int create) {
    REQUIRE(open_file(path, create), "%s: there is no queue in it", path);
}

static const struct crashproof_operation operations[] = {
    {"put", 0, driver_put},
    {"take", 0, driver_take},
    {"print", 0, driver_print},
    {NULL, 0, NULL},
};
static const struct crashproof_driver driver = {driver_open, NULL, driver_probe, operations};
CRASHPROOF_DRIVER(driver)

#else

static void check(void) {
    for (uint64_t number = root->head; number < root->tail; number++)
        REQUIRE(has_words(message_at(number), number), "message %lu is wrong: its number is %lu", number,
                message_at(number)->number);
}

struct model {
    uint64_t random, head, tail;
};

// Whether a message is put; else one is taken.
static bool model_next(struct model *model) {
    bool is_put = next_random(&model->random) % 16 < 9;
    if (model->tail == model->head)
        is_put = true;
    if (model->tail - model->head == MOST)
        is_put = false;
    *(is_put ? &model->tail : &model->head) += 1;
    return is_put;
}

static void load(const char *path, uint64_t operations, uint64_t seed) {
    open_file(path, true);
    struct model model = {seed, root->head, root->tail};
    for (uint64_t i = 1; i <= operations; i++) {
        if (model_next(&model))
            put();
        else
            take();
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
    struct model before = {strtoull(seed, NULL, 0), 0, 0};
    for (uint64_t i = 0; i < done; i++)
        model_next(&before);
    struct model after = before;
    model_next(&after);
    bool is_before = root->head == before.head && root->tail == before.tail;
    bool is_after = root->head == after.head && root->tail == after.tail;
    REQUIRE(is_before || is_after, "messages %lu to %lu instead of %lu to %lu", root->head, root->tail, before.head,
            before.tail);
}

#include "load_verify.h"

#endif
