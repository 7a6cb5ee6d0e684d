// A library that is loaded late stores and flushes in its constructor, before dlopen returns.
// library: lib/constructor.c -g -O1
// link: -ldl
// cflags: -rdynamic
// run-args: {dir}/constructor.so
#include "../pm.h"
#include <dlfcn.h>

volatile uint64_t *constructor_pm;
int constructor_fences;

int main(int argc, char **argv) {
    constructor_pm = pm_map(argv[argc - 1], PAGE);
    constructor_fences = 0;
    if (!dlopen(argv[1], RTLD_NOW))
        pm_die(dlerror());
//~@ lib/constructor.c missing-fence
    printf("%lu\n", (unsigned long)*constructor_pm);
    return 0;
}
