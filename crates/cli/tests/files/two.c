/* Stores to two files, each with its own flush and fence; with a third word there is a fence that nothing needs. */
#include "../../../../corpus/pm.h"

int main(int argc, char **argv) {
    (void)argc;
    for (int file = 1; file <= 2; file++) {
        char *pm = pm_map(argv[file], PAGE);
        pm[0] = 1;
        pm_persist(pm, 1);
    }
    if (argc > 3)
        PM_SFENCE();
    return 0;
}
