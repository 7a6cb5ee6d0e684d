// The file exists with content; what was there needs no flush.
#include "../pm.h"

int main(int argc, char **argv) {
    FILE *file = fopen(argv[argc - 1], "w");
    for (int i = 0; i < PAGE / 4; i++)
        fputs("old.", file);
    fclose(file);
    char *pm = pm_map(argv[argc - 1], 2 * PAGE);
    memcpy(pm + 256, "NEW!", 4); //~ missing-flush
    printf("%.12s\n", pm + 252);
    return 0;
}
