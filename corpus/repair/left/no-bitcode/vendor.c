#include <stdint.h>

void vendor_set(uint64_t *cell, uint64_t value) {
    *cell = value; //~ missing-flush
}
