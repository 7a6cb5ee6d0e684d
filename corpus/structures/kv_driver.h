// A map as a driver of operations: insert, update, remove and get. What is there is not inserted, what is not there neither
// updated nor removed; both are said.
#ifndef KV_DRIVER_H
#define KV_DRIVER_H

#include "../../include/crashproof_driver.h"

static uint64_t driver_key(const char *word) {
    uint64_t key = crashproof_number(word);
    if (key < 1 || key > KEYS)
        crashproof_refuse("keys are 1 to 256");
    return key;
}

static uint64_t driver_value(const char *word) {
    uint64_t value = crashproof_number(word);
    if (value == 0)
        crashproof_refuse("a value is not 0");
    return value;
}

static void driver_insert(char **words) {
    uint64_t key = driver_key(words[0]), value = driver_value(words[1]);
    if (kv_get(key) != 0) {
        crashproof_print("exists");
        return;
    }
    kv_insert(key, value);
    crashproof_print("inserted");
}

static void driver_update(char **words) {
    uint64_t key = driver_key(words[0]), value = driver_value(words[1]);
    if (kv_get(key) == 0) {
        crashproof_print("none");
        return;
    }
    kv_update(key, value);
    crashproof_print("updated");
}

static void driver_remove(char **words) {
    uint64_t key = driver_key(words[0]), value = kv_get(key);
    if (value == 0) {
        crashproof_print("none");
        return;
    }
    kv_remove(key);
    crashproof_print("removed %lu", value);
}

static void driver_get(char **words) {
    uint64_t value = kv_get(driver_key(words[0]));
    if (value == 0)
        crashproof_print("none");
    else
        crashproof_print("%lu", value);
}

static void driver_open(const char *path, int create) {
    (void)kv_check; // of no use here: the output decides
    REQUIRE(kv_open(path, create), "%s: there is no structure in it", path);
}

static void driver_probe(void) {
    crashproof_probe_keys(driver_get);
}

static const struct crashproof_operation driver_operations[] = {
    {"insert", 2, driver_insert},
    {"update", 2, driver_update},
    {"remove", 1, driver_remove},
    {"get", 1, driver_get},
    {NULL, 0, NULL},
};
static const struct crashproof_driver driver = {driver_open, NULL, driver_probe, driver_operations};
// A structure that can allocate for nothing says so.
#ifdef KV_LEAK
CRASHPROOF_DRIVER_WITH_LEAK(driver, KV_LEAK)
#else
CRASHPROOF_DRIVER(driver)
#endif

#endif
