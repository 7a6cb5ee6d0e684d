// The rule speaks of bytes of the file: the second line must be durable before the first is changed.
// config: order-of-bytes.toml
#include "../pm.h"

int main(int argc, char **argv) {
    volatile uint64_t *pm = pm_map(argv[argc - 1], PAGE);
    for (uint64_t i = 1; i <= 3; i++) {
        pm[8] = i;
        pm[0] = i; //~ rule-order x3
        PM_CLWB(&pm[8]);
        PM_CLWB(&pm[0]);
        PM_SFENCE();
    }
    printf("%lu\n", (unsigned long)(pm[0] + pm[8]));
    return 0;
}
