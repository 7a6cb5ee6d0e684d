// The pointer is flushed instead of what it points to.
#include "../pm.h"

struct list {
    volatile uint64_t *head;
};

int main(int argc, char **argv) {
    uint64_t *pm = pm_map(argv[argc - 1], PAGE);
    struct list list = {pm + 16};
    *list.head = 99;
    PM_CLWB(list.head);
    PM_SFENCE();
    printf("%lu\n", (unsigned long)*list.head);
    return 0;
}
