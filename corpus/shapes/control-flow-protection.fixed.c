// Built with control-flow protection, stack protector and no PLT, as distributions do.
// cflags: -fcf-protection=full -fstack-protector-all -fno-plt -D_FORTIFY_SOURCE=2
// build: gcc clang
// flags: -O2
#include "../pm.h"

static __attribute__((noinline)) void fill(char *at, size_t len) {
    char local[64];
    memset(local, 'h', sizeof local);
    memcpy(at, local, len);
}

int main(int argc, char **argv) {
    char *pm = pm_map(argv[argc - 1], PAGE);
    fill(pm, (size_t)argc * 10);
    pm_persist(pm, 10);
    fill(pm + 64, (size_t)argc * 20);
    pm_persist(pm + 64, 20);
    printf("%c%c\n", pm[0], pm[64]);
    return 0;
}
