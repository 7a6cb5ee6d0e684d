// repair: flush
// The store is in the condition of an if.
#include "persist.h"
#include "pool.h"

struct ticket {
    uint64_t next;
    char pad[56];
    uint64_t served;
};

static uint64_t serve(struct ticket *ticket) {
    if ((ticket->next = ticket->next + 2) > 1) { //~ missing-flush
        ticket->served++;
        pm_persist(&ticket->served, sizeof ticket->served);
    }
    return ticket->next;
}

int main(int argc, char **argv) {
    struct ticket *ticket = pool_open(argv[argc - 1], 4096);
    uint64_t next = serve(ticket);
    printf("%lu %lu\n", (unsigned long)next, (unsigned long)ticket->served);
    return 0;
}
