// memset of a buffer whose second half is never flushed.
#include "../pm.h"

int main(int argc, char **argv) {
    char *pm = pm_map(argv[argc - 1], 16 * PAGE);
    volatile size_t len = 6000;
    memset(pm, 0xab, len);
    pm_persist(pm, len);
    memset(pm + 8192, 0x11, len / 100);
    pm_persist(pm + 8192, len / 100);
    pm_print("end", pm + 5998, 4);
    return 0;
}
