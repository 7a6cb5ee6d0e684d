// pread past the end stores nothing, and what it does not store needs no flush.
#include "../pm.h"

int main(int argc, char **argv) {
    char *pm = pm_map(argv[argc - 1], PAGE);
    FILE *file = tmpfile();
    fputs("0123456789", file);
    fflush(file);
    ssize_t none = pread(fileno(file), pm, 64, 10);
    ssize_t some = pread(fileno(file), pm + 64, 64, 7); //~ missing-flush
    printf("%zd %zd %s\n", none, some, pm + 64);
    return 0;
}
