/* What the examples of libpmemobj-dev include and Debian does not ship; written from their uses of it. */
#ifndef EX_COMMON_H
#define EX_COMMON_H

#include <stdint.h>
#include <sys/stat.h>
#include <unistd.h>

#define CREATE_MODE_RW (S_IWUSR | S_IRUSR)
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))

static inline int file_exists(const char *path) { return access(path, F_OK); }

static inline unsigned char find_last_set_64(uint64_t value) {
    return value == 0 ? 255 : (unsigned char)(63 - __builtin_clzll(value));
}

#endif
