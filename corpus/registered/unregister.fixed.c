// Memory is persistent from when it is registered until that is taken back; part of it may be taken back.
#include "../pm.h"

static uint64_t words[2048];

int main(void) {
    for (int round = 0; round < 3; round++) {
        words[0] = 1;
        PM_REGISTER(words, sizeof words);
        words[64] = 2 + (uint64_t)round;
        pm_persist(words + 64, 8);
        PM_UNREGISTER(words + 1024, sizeof words / 2);
        words[1500] = 3;
        words[100] = 4;
        pm_persist(words + 100, 8);
        PM_UNREGISTER(words, sizeof words);
        words[64] += 10;
        words[100] = 5;
    }
    printf("%lu %lu %lu %lu\n", words[0], words[64], words[100], words[1500]);
    return 0;
}
