// repair: flush+fence, flush+fence
// No flush anywhere, in two files.
#include "journal.h"
#include "pool.h"

int main(int argc, char **argv) {
    struct journal *journal = pool_open(argv[argc - 1], 4096);
    journal->sequence = 1; //~ missing-flush
    journal_close(journal);
    printf("%lu %lu\n", (unsigned long)journal->sequence, (unsigned long)journal->state);
    return 0;
}
