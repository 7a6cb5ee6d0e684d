// The compiler's own copy assignment of a class writes to PM.
#include "../pm.h"

struct Inner {
    uint64_t words[6];
    Inner &operator=(const Inner &) = default;
};

struct Outer {
    Inner first;
    char pad[80];
    Inner second;
};

int main(int argc, char **argv) {
    auto *outer = static_cast<Outer *>(pm_map(argv[argc - 1], PAGE));
    Inner local = {{1, 2, 3, 4, 5, 6}};
    outer->first = local;
    pm_persist(&outer->first, sizeof outer->first);
    local.words[0] = (uint64_t)argc;
    PM_BARRIER();
    outer->second = local;
    pm_persist(&outer->second, sizeof outer->second);
    printf("%lu\n", (unsigned long)(outer->first.words[5] + outer->second.words[5]));
    return 0;
}
