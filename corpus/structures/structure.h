// What the structures share: random operations from a seed, acknowledgements, and how verification fails.
//
// `PROGRAM load FILE OPS SEED` makes the structure if the file has none and performs OPS random operations; each that is
// durable is acknowledged by a line `done N`. `PROGRAM verify FILE [SEED]` recovers as the program would, checks every
// invariant, and, given the seed, that the content is what the acknowledged operations make, with the next one or without.
//
// A program is right as it stands. Each BUG_NAME that its source mentions seeds one mistake; `//~[BUG_NAME] KIND` marks the
// line that a finding of this kind must name.
#ifndef STRUCTURE_H
#define STRUCTURE_H

#include "../pm.h"
#include <stdbool.h>

#define REQUIRE(condition, ...)                                                                                        \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, __VA_ARGS__);                                                                              \
            fputc('\n', stderr);                                                                                       \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

// splitmix64: also the hash function of the structures.
static inline uint64_t mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static inline uint64_t next_random(uint64_t *state) {
    return mix((*state)++);
}

// A slot that is not used, from the hint on; it is used then. Which are is not persistent: opening finds out.
static inline uint64_t take_slot(bool *used, uint64_t count, uint64_t *hint) {
    for (uint64_t i = 0; i < count; i++, *hint = (*hint + 1) % count)
        if (!used[*hint]) {
            used[*hint] = true;
            return *hint;
        }
    REQUIRE(false, "the file is full");
    return 0;
}

// Tells whoever asked for it that operation `number` is done. Not buffered: when it returns, they know.
static inline void acknowledge(uint64_t number) {
    dprintf(STDOUT_FILENO, "done %lu\n", number);
}

// The last operation that the crashed program had acknowledged; 0 if there is none.
static inline uint64_t acknowledged(void) {
    const char *path = getenv("CRASHPROOF_OUTPUT");
    FILE *output = path ? fopen(path, "r") : NULL;
    if (!output)
        return 0;
    // Acknowledgements are in order: the last line has the last one.
    char tail[64];
    if (fseek(output, -(long)(sizeof tail - 1), SEEK_END) != 0)
        rewind(output);
    tail[fread(tail, 1, sizeof tail - 1, output)] = 0;
    fclose(output);
    uint64_t last = 0;
    for (char *at = strstr(tail, "done "); at; at = strstr(at + 1, "done "))
        last = strtoull(at + 5, NULL, 10);
    return last;
}

static inline int usage(const char *program) {
    fprintf(stderr, "usage: %s load FILE OPS SEED\n       %s verify FILE [SEED]\n", program, program);
    return 2;
}

#endif
