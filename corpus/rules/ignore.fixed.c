// What the ignore list names is left out, by function and kind; the same mistake elsewhere is not.
// config: ignore.toml
#include "../pm.h"

static volatile uint64_t *pm;

static __attribute__((noinline)) void legacy_put(uint64_t value) {
    pm[0] = value;
}

static __attribute__((noinline)) void put(uint64_t value) {
    pm[8] = value;
    pm_persist((void *)&pm[8], 8);
}

static __attribute__((noinline)) void legacy_touch(void) {
    pm[16] = 1;
    PM_CLWB(&pm[16]);
    PM_CLWB(&pm[16]);
    PM_SFENCE();
}

int main(int argc, char **argv) {
    pm = pm_map(argv[argc - 1], PAGE);
    legacy_put(1);
    put(2);
    printf("%lu\n", (unsigned long)(pm[0] + pm[8]));
    (void)legacy_touch;
    return 0;
}
