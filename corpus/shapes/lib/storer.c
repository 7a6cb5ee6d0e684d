// A library that stores for its caller.
#include <stdint.h>

void store(uint64_t *at, uint64_t value);

void store(uint64_t *at, uint64_t value) {
    *at = value;
}
