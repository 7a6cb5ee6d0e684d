// repair: flush+fence
// A label stands before the store, and a jump leaves over the persist.
#include "persist.h"
#include "pool.h"

struct job {
    uint64_t attempts;
    char pad[56];
    uint64_t done;
};

static int run(struct job *job) {
    int tries = 0;
retry:
    job->attempts += 1; //~ missing-flush
    if (++tries < 3)
        goto retry;
    if (job->attempts > 2)
        goto out;
    pm_persist(&job->attempts, sizeof job->attempts);
out:
    return tries;
}

int main(int argc, char **argv) {
    struct job *job = pool_open(argv[argc - 1], 4096);
    int tries = run(job);
    printf("%d %lu\n", tries, (unsigned long)job->attempts);
    return 0;
}
