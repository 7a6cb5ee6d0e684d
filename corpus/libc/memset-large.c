// A memset large enough for libc to use rep stos or non-temporal stores.
#include "../pm.h"

int main(int argc, char **argv) {
    char *pm = pm_map(argv[argc - 1], 64 * PAGE);
    volatile size_t len = 50 * PAGE;
    memset(pm, 0x33, len); //~ missing-flush
    pm_persist(pm, len - 2 * PAGE);
    pm_print("end", pm + len - 2, 4);
    return 0;
}
