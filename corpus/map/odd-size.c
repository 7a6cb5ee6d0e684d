// A file whose size is no multiple of a page; the last bytes are stored and forgotten.
#include "../pm.h"

int main(int argc, char **argv) {
    char *pm = pm_map(argv[argc - 1], PAGE + 777);
    memset(pm + PAGE, 'o', 700);
    pm_persist(pm + PAGE, 700);
    pm[PAGE + 776] = 'e'; //~ missing-flush
    printf("%c%c\n", pm[PAGE], pm[PAGE + 776]);
    return 0;
}
