// A persistent array that can grow and shrink: its elements are copied to the other of two areas, to which one store switches
// together with the length.
//
// No map: `set I V`, `get I`, `resize N`, and `print`, which shows all elements. New elements are 0.
#include "../structures/structure.h"

#include "../../include/crashproof_driver.h"

#define MAGIC 0x7961727261u
#define MOST 512

struct shape {
    uint32_t area, length;
};

struct root {
    _Alignas(LINE) uint64_t magic;
#ifdef BUG_SHAPE_PAIR
    _Alignas(LINE) volatile uint32_t area;
    _Alignas(LINE) volatile uint32_t length;
#else
    _Alignas(LINE) uint64_t shape; // changed by one store
#endif
    struct {
        _Alignas(LINE) uint64_t elements[MOST];
    } areas[2];
};

static struct root *root;

static struct shape shape(void) {
    struct shape shape;
#ifdef BUG_SHAPE_PAIR
    shape.area = root->area;
    shape.length = root->length;
#else
    memcpy(&shape, &root->shape, sizeof shape);
#endif
    REQUIRE(shape.area < 2 && shape.length <= MOST, "area %u of %u elements", shape.area, shape.length);
    return shape;
}

static void set_shape(struct shape shape) {
#ifdef BUG_SHAPE_PAIR
    root->length = shape.length; //~[BUG_SHAPE_PAIR] crash-atomicity|crash-order|crash-durability
    pm_flush((void *)&root->length, sizeof root->length);
    root->area = shape.area; //~[BUG_SHAPE_PAIR] crash-atomicity|crash-order|crash-durability
    pm_persist((void *)&root->area, sizeof root->area);
#else
    memcpy(&root->shape, &shape, sizeof shape);
    pm_persist(&root->shape, sizeof root->shape);
#endif
}

static uint64_t *element(const char *word) {
    uint64_t i = crashproof_number(word);
    return i < shape().length ? &root->areas[shape().area].elements[i] : NULL;
}

static void array_set(char **words) {
    uint64_t *at = element(words[0]), value = crashproof_number(words[1]);
    if (!at) {
        crashproof_print("no element");
        return;
    }
    *at = value; //~[BUG_SET_FLUSH] crash-order|crash-durability
#ifndef BUG_SET_FLUSH
    pm_persist(at, sizeof *at);
#endif
}

static void array_get(char **words) {
    uint64_t *at = element(words[0]);
    if (at)
        crashproof_print("%lu", *at);
    else
        crashproof_print("no element");
}

static void array_resize(char **words) {
    uint64_t length = crashproof_number(words[0]);
    if (length > MOST)
        crashproof_refuse("an array has at most 512 elements");
    struct shape from = shape(), to = {!from.area, (uint32_t)length};
    uint64_t *old = root->areas[from.area].elements, *copy = root->areas[to.area].elements;
#ifdef BUG_RESIZE_IN_PLACE
    to.area = from.area;
    copy = old;
    set_shape(to); // has what was there before, until it is cleared
    for (uint64_t i = from.length; i < length; i++)
        copy[i] = 0; //~[BUG_RESIZE_IN_PLACE] crash-order|crash-durability|crash-atomicity
    pm_persist(copy, length * sizeof(uint64_t));
#else
    for (uint64_t i = 0; i < length; i++)
        copy[i] = i < from.length ? old[i] : 0; //~[BUG_COPY_FLUSH] crash-order|crash-durability
        //~^[BUG_RESIZE_ORDER] crash-order|crash-durability
#ifdef BUG_COPY_FLUSH
    pm_flush(copy, (from.length < length ? from.length : length) * sizeof(uint64_t)); // not what is new
#else
    pm_flush(copy, length * sizeof(uint64_t));
#endif
#ifndef BUG_RESIZE_ORDER
    PM_SFENCE();
#endif
    set_shape(to);
#endif
}

static void print_elements(const char *separator) {
    struct shape now = shape();
    crashproof_print("%u elements:%s", now.length, separator);
    for (uint32_t i = 0; i < now.length; i++)
        crashproof_print("%lu%s", root->areas[now.area].elements[i], separator);
}

static void array_print(char **words) {
    (void)words;
    print_elements(" ");
}

static void array_probe(void) {
    print_elements("\n");
}

static void array_open(const char *path, int create) {
    root = (struct root *)pm_map(path, sizeof *root);
    if (!create) {
        REQUIRE(root->magic == MAGIC, "%s: there is no array in it", path);
        return;
    }
    root->magic = MAGIC;
    pm_persist(&root->magic, sizeof root->magic);
}

static const struct crashproof_operation operations[] = {
    {"set", 2, array_set},
    {"get", 1, array_get},
    {"resize", 1, array_resize},
    {"print", 0, array_print},
    {NULL, 0, NULL},
};
static const struct crashproof_driver driver = {array_open, NULL, array_probe, operations};
CRASHPROOF_DRIVER(driver)
