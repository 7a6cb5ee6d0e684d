// repair: flush
// memset of a range, then the fence.
#include "persist.h"
#include "pool.h"
#include <string.h>

static void clear(char *buffer, size_t from, size_t to) {
    memset(buffer + from, '-', to - from); //~ missing-flush
    pm_fence();
}

int main(int argc, char **argv) {
    char *buffer = pool_open(argv[argc - 1], 4096);
    clear(buffer, 50, 50 + argc * 100);
    printf("%.4s\n", buffer + 100);
    return 0;
}
