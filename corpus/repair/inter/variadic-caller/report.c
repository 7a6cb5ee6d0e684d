// repair: subprogram+fence fill
// The helper is called from a function with a variable number of arguments.
#include "persist.h"
#include "pool.h"
#include <stdarg.h>

__attribute__((noinline)) static void fill(uint64_t *to, int count, va_list values) {
    for (int i = 0; i < count; i++)
        to[i] = va_arg(values, int); //~ missing-flush
}

static uint64_t sum(int count, ...) {
    uint64_t local[8], sum = 0;
    va_list values;
    va_start(values, count);
    fill(local, count, values);
    va_end(values);
    for (int i = 0; i < count; i++)
        sum += local[i];
    return sum;
}

static void keep(uint64_t *pm, int count, ...) {
    va_list values;
    va_start(values, count);
    fill(pm, count, values);
    va_end(values);
}

int main(int argc, char **argv) {
    uint64_t *pm = pool_open(argv[argc - 1], 4096);
    uint64_t total = sum(3, 1, 2, 3);
    keep(pm, 4, 4, 5, 6, 7);
    printf("%lu %lu\n", (unsigned long)total, (unsigned long)pm[3]);
    return 0;
}
