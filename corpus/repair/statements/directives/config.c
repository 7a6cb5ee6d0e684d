// repair: flush
// Nothing may be moved across a directive, and code that is not compiled stays as it is.
#include "persist.h"
#include "pool.h"

struct config {
    uint64_t mode;
    char pad[56];
    uint64_t level;
};

static void configure(struct config *config) {
#ifdef LEGACY
    config->mode = 1;
#else
    config->mode = 2; //~ missing-flush
#endif
    config->level = 3;
    pm_persist(&config->level, sizeof config->level);
}

int main(int argc, char **argv) {
    struct config *config = pool_open(argv[argc - 1], 4096);
    configure(config);
    printf("%lu %lu\n", (unsigned long)config->mode, (unsigned long)config->level);
    return 0;
}
