// The counters of a Java virtual machine are not data.
#include "../pm.h"

int main(int argc, char **argv) {
    volatile uint64_t *data = pm_map(argv[argc - 1], PAGE);
    char path[4096];
    snprintf(path, sizeof path, "%s.hsperfdata_user", argv[argc - 1]);
    char *name = strrchr(path, '/');
    memmove(name + 1, "hsperfdata_user", sizeof "hsperfdata_user");
    mkdir(path, 0700);
    strcat(path, "/4711");
    volatile uint64_t *counters = pm_map(path, PAGE);
    counters[0] = 1;
    data[0] = 7; //~ missing-flush
    printf("%lu\n", (unsigned long)data[0]);
    return 0;
}
