// The file is unlinked while it is mapped.
// crashproof: --pm *.gone
#include "../pm.h"

int main(int argc, char **argv) {
    char path[4096];
    snprintf(path, sizeof path, "%s.gone", argv[argc - 1]);
    volatile char *pm = pm_map(path, PAGE);
    unlink(path);
    pm[0] = 1; //~ missing-flush
    printf("%d\n", pm[0]);
    return 0;
}
