// A plugin that is linked to libpmem (-DPLUGIN), and a program that is not and loads it.
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#ifdef PLUGIN
#include <libpmem.h>

void work(long *pm) {
    pm[0] = 1;
    pmem_persist(pm, sizeof *pm);
    pmem_persist(pm, sizeof *pm);
    pmem_drain();
}
#else
int main(int argc, char **argv) {
    int fd = open(argv[1], O_RDWR | O_CREAT, 0600);
    if (ftruncate(fd, 4096))
        return 3;
    long *pm = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    void *plugin = dlopen(argv[2], RTLD_LAZY);
    if (!plugin)
        return puts(dlerror()), 4;
    ((void (*)(long *))dlsym(plugin, "work"))(pm);
    return dlclose(plugin);
}
#endif
