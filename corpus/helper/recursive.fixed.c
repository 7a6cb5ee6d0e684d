// A helper that calls itself: the caller outside is to blame.
// build: gcc clang
// flags: -O0 -O2
#include "../pm.h"

__attribute__((noinline)) static void write_back(const char *at, size_t lines) {
    if (lines == 0)
        return;
    PM_CLWB(at);
    write_back(at + LINE, lines - 1);
    PM_BARRIER();
}

__attribute__((noinline)) static void fill(volatile char *at) {
    at[0] = 1;
    at[LINE] = 2;
    write_back((const char *)at, 2);
    PM_SFENCE();
}

int main(int argc, char **argv) {
    char *at = pm_map(argv[argc - 1], PAGE);
    fill(at);
    printf("%d\n", at[0] + at[LINE]);
    return 0;
}
