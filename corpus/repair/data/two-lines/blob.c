// repair: flush
// The flush of an unaligned range misses its last line.
#include "pool.h"
#include <stdint.h>

struct __attribute__((packed)) blob {
    char pad[60];
    uint64_t value; // bytes 60 to 67
};

static void flush_line(const void *at) {
    __asm__ volatile("clwb %0" : "+m"(*(volatile char *)at) : : "memory");
}

static void fence(void) {
    __asm__ volatile("sfence" : : : "memory");
}

static void set(struct blob *blob, uint64_t value) {
    blob->value = value;
    flush_line(&blob->pad[56]);
    fence();
}

int main(int argc, char **argv) {
    struct blob *blob = pool_open(argv[argc - 1], 4096);
    set(blob, 0x1122334455667788); //~ missing-flush
    printf("%lx\n", (unsigned long)blob->value);
    return 0;
}
