// The store is in a library without debug info; the finding is on the call that led to it.
// library: lib/storer.c -O2 -s
// link: -ldl
// run-args: {dir}/storer.so
#include "../pm.h"
#include <dlfcn.h>

int main(int argc, char **argv) {
    uint64_t *pm = pm_map(argv[argc - 1], PAGE);
    void *library = dlopen(argv[1], RTLD_LAZY);
    if (!library)
        pm_die(dlerror());
    void (*store)(uint64_t *, uint64_t) = (void (*)(uint64_t *, uint64_t))dlsym(library, "store");
    store(pm, 1);
    pm_persist(pm, 8);
    store(pm + 8, 2); //~ missing-flush
    dlclose(library);
    printf("%lu\n", pm[0] + pm[8]);
    return 0;
}
