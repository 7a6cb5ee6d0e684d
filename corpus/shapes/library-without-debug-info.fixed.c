// The flush is in a shared library without debug info, symbols or unwind tables; the finding is on the call.
// library: lib/flusher.c -O2 -s -fno-asynchronous-unwind-tables -fno-unwind-tables
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
    printf("%lu\n", (unsigned long)*pm);
    return 0;
}
