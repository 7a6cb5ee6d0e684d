// Looks for functions of PMDK: by weak references, and by their names. ./program FILE PLUGIN
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

__attribute__((weak)) void pmem_persist(const void *, size_t);
__attribute__((weak)) int pmemobj_tx_begin(void *, void *, ...);
__attribute__((weak)) void pmemobj_persist(void *, const void *, size_t);
/* In memory that the loader does not protect afterwards. */
static void (*kept)(const void *, size_t) = pmem_persist;

static void look(const char *when) {
    printf("%s: weak %d %d %d %d, found", when, pmem_persist != NULL, pmemobj_tx_begin != NULL, pmemobj_persist != NULL,
           kept != NULL);
    const char *names[] = {"pmem_persist", "pmem_drain", "pmemobj_tx_begin", "pmemobj_alloc"};
    for (int i = 0; i < 4; i++)
        printf(" %d", dlsym(RTLD_DEFAULT, names[i]) != NULL);
    printf(", error %d\n", dlerror() != NULL);
}

int main(int argc, char **argv) {
    look("start");
    void *plugin = dlopen(argv[2], RTLD_NOW);
    if (!plugin)
        return puts(dlerror()), 3;
    void (*report)(void) = (void (*)(void))dlsym(plugin, "report");
    report();
    look("plugin");
    int fd = open(argv[1], O_RDWR | O_CREAT, 0600);
    if (ftruncate(fd, 4096))
        return 4;
    volatile long *pm = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    void *library = dlopen("libpmem.so.1", RTLD_NOW | RTLD_LOCAL);
    void (*persist)(const void *, size_t) = (void (*)(const void *, size_t))dlsym(library, "pmem_persist");
    pm[0] = 1;
    persist((void *)pm, 8);
    pm[8] = 2;
#ifdef LINKED
    pmem_persist((void *)&pm[8], 8);
#else
    persist((void *)&pm[8], 8);
    dlclose(library);
#endif
    look("end");
    return 0;
}
