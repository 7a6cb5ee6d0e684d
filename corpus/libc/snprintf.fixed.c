// snprintf right into PM.
#include "../pm.h"

int main(int argc, char **argv) {
    char *pm = pm_map(argv[argc - 1], PAGE);
    int len = snprintf(pm, 128, "%s-%d-%05.1f", "entry", argc, 2.5);
    pm_persist(pm, (size_t)len + 1);
    printf("%s\n", pm);
    return 0;
}
