// What is lost in a file that the program deletes is not reported; what is lost in the file that it keeps is.
#include "../pm.h"

int main(int argc, char **argv) {
    volatile uint64_t *data = pm_map(argv[argc - 1], PAGE);
    char path[4096];
    snprintf(path, sizeof path, "%s.scratch", argv[argc - 1]);
    volatile uint64_t *scratch = pm_map(path, PAGE);
    scratch[0] = 1;
    scratch[8] = 2;
    unlink(path);
    data[0] = 7; //~ missing-flush
    printf("%lu\n", (unsigned long)data[0]);
    return 0;
}
