// A copy function of the program's own: one of its callers forgets to persist what it copied.
// build: gcc clang
// flags: -O0 -O2
#include "../pm.h"

__attribute__((noinline)) static void pm_memcpy(void *to, const void *from, size_t len) {
    volatile char *target = to;
    const char *source = from;
    for (size_t i = 0; i < len; i++)
        target[i] = source[i];
}

struct names {
    _Alignas(LINE) char first[16];
    _Alignas(LINE) char other[16];
};

__attribute__((noinline)) static void name_first(struct names *names) {
    pm_memcpy(names->first, "first name here", sizeof names->first);
    pm_persist(names->first, sizeof names->first);
}

__attribute__((noinline)) static void name_other(struct names *names) {
    pm_memcpy(names->other, "other name here", sizeof names->other);
    pm_persist(names->other, sizeof names->other);
}

int main(int argc, char **argv) {
    struct names *names = pm_map(argv[argc - 1], PAGE);
    name_first(names);
    name_other(names);
    printf("%s, %s\n", names->first, names->other);
    return 0;
}
