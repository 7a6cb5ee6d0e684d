// A condition stored as a byte.
#include "../pm.h"

int main(int argc, char **argv) {
    char *pm = pm_map(argv[argc - 1], PAGE);
#define SET(cc, n, a, b) __asm__ volatile("cmpl %2, %1\n\t" cc " %0" : "=m"(pm[(n) * LINE]) : "r"(a), "r"(b) : "memory")
    SET("sete", 0, 1, 1);
    SET("setne", 1, 1, 1);
    SET("setl", 2, -1, 1);
    SET("setb", 3, -1, 1);
    SET("setge", 4, 5, 5);
    SET("seta", 5, 6, 5);
    SET("setle", 6, 6, 5);
    SET("setg", 7, 6, 5);
    SET("setbe", 8, 4, 5);
    SET("setae", 9, 4, 5);
    SET("sets", 10, 4, 5);
    SET("setns", 11, 4, 5);
    SET("seto", 12, 0x7fffffff, -1);
    SET("setno", 13, 0x7fffffff, -1);
    SET("setp", 14, 3, 0);
    SET("setnp", 15, 3, 0);
    pm_persist(pm, 16 * LINE);
    for (int i = 0; i < 16; i++)
        printf("%d", pm[i * LINE]);
    printf("\n");
    return 0;
}
