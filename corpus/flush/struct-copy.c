// A struct of three lines is copied into PM, two of them are flushed.
#include "../pm.h"

struct blob {
    char bytes[192];
};

int main(int argc, char **argv) {
    struct blob *pm = pm_map(argv[argc - 1], PAGE);
    struct blob local;
    for (size_t i = 0; i < sizeof local.bytes; i++)
        local.bytes[i] = (char)(i * 7);
    PM_BARRIER();
    *pm = local; //~ missing-flush
    pm_persist(pm, 128);
    printf("%d\n", memcmp(pm, &local, sizeof local));
    return 0;
}
