// A write from PM only reads it.
#include "../pm.h"

int main(int argc, char **argv) {
    char *pm = pm_map(argv[argc - 1], PAGE);
    memcpy(pm, "written from PM\n", 16);
    pm_persist(pm, 16);
    if (write(1, pm, 16) != 16)
        pm_die("write");
    return 0;
}
