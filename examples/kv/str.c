#include "str.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void str_init(struct str *s, size_t capacity, const void *data, size_t length) {
    s->length = (uint32_t)length;
    s->capacity = (uint32_t)capacity;
    memcpy(s->data, data, length);
}

void str_put(struct str *s, size_t at, const void *data, size_t length) {
    memcpy(s->data + at, data, length);
}

void str_set_length(struct str *s, size_t length) {
    s->length = (uint32_t)length;
}

bool str_equal(const struct str *s, const void *data, size_t length) {
    return s->length == length && memcmp(s->data, data, length) == 0;
}

bool str_number(const struct str *s, int64_t *number) {
    char digits[24];
    if (s->length == 0 || s->length >= sizeof digits)
        return false;
    memcpy(digits, s->data, s->length);
    digits[s->length] = 0;
    char *end;
    *number = strtoll(digits, &end, 10);
    return end == digits + s->length;
}

static void *memory_or_exit(void *memory) {
    if (!memory) {
        fprintf(stderr, "kv-server: no memory\n");
        exit(2);
    }
    return memory;
}

struct str *str_new(const void *data, size_t length) {
    struct str *s = memory_or_exit(malloc(sizeof *s + length));
    str_init(s, length, data, length);
    return s;
}

struct str *str_reserve(struct str *s, size_t more) {
    size_t needed = s->length + more;
    if (needed <= s->capacity)
        return s;
    s = memory_or_exit(realloc(s, sizeof *s + 2 * needed));
    s->capacity = (uint32_t)(2 * needed);
    return s;
}

struct str *str_append(struct str *s, const void *data, size_t length) {
    s = str_reserve(s, length);
    str_put(s, s->length, data, length);
    str_set_length(s, s->length + length);
    return s;
}

void str_drop(struct str *s, size_t length) {
    memmove(s->data, s->data + length, s->length - length);
    str_set_length(s, s->length - length);
}
