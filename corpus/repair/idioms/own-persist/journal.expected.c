// repair: flush+fence
// A persist function with an argument before the range, in another file.
#include "nvm.h"
#include "pool.h"

struct journal {
    uint64_t sequence;
    char pad[56];
    uint64_t state;
};

static struct nvm nvm;

static void begin(struct journal *journal) {
    journal->sequence++;
    nvm_sync(&nvm, &journal->sequence, sizeof journal->sequence);
    journal->state = 1;
    nvm_sync(&nvm, &journal->state, sizeof journal->state);
}

int main(int argc, char **argv) {
    struct journal *journal = pool_open(argv[argc - 1], 4096);
    begin(journal);
    printf("%lu %lu, %lu synced\n", (unsigned long)journal->sequence, (unsigned long)journal->state,
           (unsigned long)(nvm.syncs > 0));
    return 0;
}
