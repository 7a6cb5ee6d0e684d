// The flush is in a shared library with debug info; the finding is on its line there.
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
    persist(pm); // the finding is in lib/flusher.c
//~@ lib/flusher.c redundant-flush
//~@? lib/flusher.c redundant-fence
    printf("%lu\n", (unsigned long)*pm);
    return 0;
}
