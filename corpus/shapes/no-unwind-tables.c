// Without unwind tables the line is found all the same.
// build: gcc clang
// cflags: -fno-asynchronous-unwind-tables -fno-unwind-tables -fomit-frame-pointer
#include "../pm.h"

static __attribute__((noinline)) void set(volatile uint64_t *at, uint64_t value) {
    *at = value;
}

static __attribute__((noinline)) void flush(volatile uint64_t *at) {
    PM_CLWB(at);
    PM_SFENCE();
}

int main(int argc, char **argv) {
    volatile uint64_t *pm = pm_map(argv[argc - 1], PAGE);
    set(&pm[0], 1);
    flush(&pm[0]);
    set(&pm[8], 2); //~ missing-flush
    printf("%lu\n", (unsigned long)(pm[0] + pm[8]));
    return 0;
}
