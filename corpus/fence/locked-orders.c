// A locked instruction on PM is a fence for what was flushed before it; a plain add is not.
#include "../pm.h"

int main(int argc, char **argv) {
    volatile uint64_t *value = pm_map(argv[argc - 1], PAGE);
    value[0] = 1; //~ missing-fence
    PM_CLWB(&value[0]);
    __asm__ volatile("addq $1, %0" : "+m"(value[8]) : : "memory"); //~ missing-fence
    PM_CLWB(&value[8]);
    printf("%lu %lu\n", (unsigned long)value[0], (unsigned long)value[8]);
    return 0;
}
