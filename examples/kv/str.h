// Strings that know their length, for buffers in DRAM and for values in the pool alike.
#ifndef STR_H
#define STR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct str {
    uint32_t length;
    uint32_t capacity;
    char data[];
};

// Makes a string of `capacity` bytes that holds `length` of `data`.
void str_init(struct str *s, size_t capacity, const void *data, size_t length);

// Copies into the string's memory, which must be large enough, and leaves its length as it is.
void str_put(struct str *s, size_t at, const void *data, size_t length);
void str_set_length(struct str *s, size_t length);

bool str_equal(const struct str *s, const void *data, size_t length);
// As a decimal number; false if it is none.
bool str_number(const struct str *s, int64_t *number);

// In DRAM:
struct str *str_new(const void *data, size_t length);
// Appends, in a larger string if need be, and returns where it is now.
struct str *str_append(struct str *s, const void *data, size_t length);
struct str *str_reserve(struct str *s, size_t more);
// Removes the first bytes.
void str_drop(struct str *s, size_t length);

#endif
