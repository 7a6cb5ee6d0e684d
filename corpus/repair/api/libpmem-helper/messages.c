// repair: subprogram+fence format
// build: $CC -g -O2 -o app messages.c -lpmem
// A helper formats messages, in buffers mostly, once in PM without pmem_persist.
#include <libpmem.h>
#include <stdint.h>
#include <stdio.h>

__attribute__((noinline)) static void format(char *to, uint64_t number) {
    char digits[24];
    int count = 0;
    do {
        digits[count++] = '0' + number % 10;
        number /= 10;
    } while (number);
    while (count)
        *to++ = digits[--count]; //~ missing-flush
    *to = 0; //~ missing-flush
}

int main(int argc, char **argv) {
    size_t size;
    char *pm = pmem_map_file(argv[argc - 1], 4096, PMEM_FILE_CREATE, 0600, &size, NULL);
    char first[32], second[32];
    format(first, 1);
    format(second, 22);
    format(pm, 333);
    printf("%s %s %s\n", first, second, pm);
    pmem_unmap(pm, size);
    return 0;
}
