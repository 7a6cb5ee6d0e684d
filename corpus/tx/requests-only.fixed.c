// An undo log of the program's own, which announces its transactions by pmemcheck's requests and calls nothing of libpmemobj.
#include "../pm.h"

#define REQUEST(number, a, b)                                                                                          \
    do {                                                                                                               \
        volatile uint64_t request[6] = {0x50430000 + (number), (uint64_t)(a), (uint64_t)(b), 0, 0, 0};                 \
        uint64_t result = 0;                                                                                           \
        __asm__ volatile("rolq $3, %%rdi\n\trolq $13, %%rdi\n\trolq $61, %%rdi\n\trolq $51, %%rdi\n\t"                 \
                         "xchgq %%rbx, %%rbx"                                                                          \
                         : "+d"(result)                                                                                \
                         : "a"(request)                                                                                \
                         : "cc", "memory");                                                                            \
    } while (0)
#define START_TX() REQUEST(18, 0, 0)
#define END_TX() REQUEST(20, 0, 0)
#define ADD_TO_TX(at, length) REQUEST(22, at, length)
#define REMOVE_FROM_TX(at, length) REQUEST(24, at, length)

struct root {
    uint64_t log[8];
    uint64_t a;
    uint64_t beside_a;
    char pad[112];
    uint64_t far_away;
};

static void snapshot(struct root *root, int slot, uint64_t *at) {
    root->log[slot] = *at;
    PM_CLWB(&root->log[slot]);
    PM_SFENCE();
    ADD_TO_TX(at, sizeof *at);
}

int main(int argc, char **argv) {
    struct root *root = pm_map(argv[argc - 1], 4096);
    START_TX();
    snapshot(root, 0, &root->a);
    root->a = 1;
    PM_BARRIER();
    snapshot(root, 1, &root->beside_a);
    root->beside_a = 2;
    PM_BARRIER();
    snapshot(root, 2, &root->far_away);
    root->far_away = 3;
    PM_BARRIER();
    PM_CLWB(&root->far_away);
    PM_CLWB(&root->a);
    PM_SFENCE();
    REMOVE_FROM_TX(&root->a, sizeof root->a);
    END_TX();
    printf("%lu\n", root->a + root->beside_a + root->far_away);
    return 0;
}
