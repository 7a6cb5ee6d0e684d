// A compare-exchange that finds another value leaves memory as it was and returns what it found.
#include "../pm.h"

int main(int argc, char **argv) {
    volatile uint64_t *pm = pm_map(argv[argc - 1], PAGE);
    pm[0] = 5;
    pm_persist((void *)pm, 8);
    uint64_t expected = 4;
    int equal;
    __asm__ volatile("lock cmpxchgq %3, %0" : "+m"(pm[0]), "+a"(expected), "=@ccz"(equal) : "r"(9L)); //~? missing-flush
    printf("%lu %lu %d\n", (unsigned long)pm[0], (unsigned long)expected, equal);
    __asm__ volatile("lock cmpxchgq %3, %0" : "+m"(pm[0]), "+a"(expected), "=@ccz"(equal) : "r"(9L)); //~ missing-flush
    printf("%lu %lu %d\n", (unsigned long)pm[0], (unsigned long)expected, equal);
    return 0;
}
