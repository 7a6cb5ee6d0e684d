// A longjmp leaves the function between flush and fence.
#include "../pm.h"
#include <setjmp.h>

static jmp_buf out;
static volatile uint64_t *pm;

static void update(uint64_t value) {
    pm[0] = value;
    PM_CLWB(&pm[0]);
    PM_SFENCE();
    if (value > 1)
        longjmp(out, 1);
}

int main(int argc, char **argv) {
    pm = pm_map(argv[argc - 1], PAGE);
    if (setjmp(out) == 0) {
        update(1);
        update(2);
    }
    printf("%lu\n", (unsigned long)pm[0]);
    return 0;
}
