// The flush is in a function of a shared library that is a helper: the finding is at its caller.
// library: lib/flusher.c -g -O1
// link: -ldl
// run-args: {dir}/flusher.so
#include "../pm.h"
#include <dlfcn.h>

int main(int argc, char **argv) {
    volatile uint64_t *pm = pm_map(argv[argc - 1], PAGE);
    void *library = dlopen(argv[1], RTLD_NOW);
    if (!library)
        pm_die(dlerror());
    void (*persist)(volatile void *) = (void (*)(volatile void *))dlsym(library, "persist");
    *pm = 1;
    persist(pm);
    persist(pm); //~ redundant-flush //~? redundant-fence
    printf("%lu\n", (unsigned long)*pm);
    return 0;
}
