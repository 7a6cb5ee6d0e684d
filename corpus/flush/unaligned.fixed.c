// A store that crosses a line needs both lines flushed.
// build: gcc clang
#include "../pm.h"

struct __attribute__((packed)) entry {
    char tag[60];
    volatile uint64_t key;
};

int main(int argc, char **argv) {
    struct entry *entry = pm_map(argv[argc - 1], PAGE);
    entry->key = 0x0123456789abcdef;
    PM_CLWB(&entry->tag[0]);
    PM_CLWB((char *)entry + LINE);
    PM_SFENCE();
    printf("%lx\n", (unsigned long)entry->key);
    return 0;
}
