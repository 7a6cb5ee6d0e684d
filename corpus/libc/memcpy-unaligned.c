// memcpy to unaligned places within and across lines.
#include "../pm.h"

static void persist(char *at, size_t len) {
    for (size_t i = 0; i < len; i += LINE)
        PM_CLWB(at + i);
    PM_SFENCE();
}

int main(int argc, char **argv) {
    char *pm = pm_map(argv[argc - 1], 2 * PAGE);
    char text[100];
    memset(text, 'u', sizeof text);
    volatile size_t shift = 50;
    memcpy(pm + shift, text, sizeof text); //~ missing-flush
    persist(pm + shift, sizeof text);
    printf("%.100s\n", pm + shift);
    return 0;
}
