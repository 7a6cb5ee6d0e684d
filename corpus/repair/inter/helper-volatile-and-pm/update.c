// repair: subprogram+fence modify
// The paper's listings 5 and 6: the store is in a helper that mostly works on volatile data.
#include "persist.h"
#include "pool.h"

static char scratch[4096];

__attribute__((noinline)) static void update(char *addr, int idx, char val) {
    addr[idx] = val;
}

__attribute__((noinline)) static void modify(char *addr) {
    update(addr, 7, 'x'); //~ missing-flush
}

__attribute__((noinline)) static void foo(char *vol_addr, char *pm_addr) {
    for (int i = 0; i < 1000; i++)
        modify(vol_addr);
    modify(pm_addr);
}

int main(int argc, char **argv) {
    char *pm = pool_open(argv[argc - 1], 4096);
    foo(scratch, pm);
    printf("%c %c\n", scratch[7], pm[7]);
    return 0;
}
