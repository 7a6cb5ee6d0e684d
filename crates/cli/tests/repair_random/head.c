// What every random program begins with.
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct item {
    uint64_t key;
    uint32_t count;
    uint32_t flags;
    uint64_t values[4];
    struct {
        uint32_t x, y;
    } at;
    char tag[8];
};

struct page {
    uint64_t words[24];
};

struct root {
    struct item items[6];
    struct page pages[3];
};

static struct item cache[6];
static struct page buffers[3];

static void pm_flush(const void *at, size_t size) {
    uintptr_t end = (uintptr_t)at + size;
    for (uintptr_t line = (uintptr_t)at & ~(uintptr_t)63; line < end; line += 64)
        __asm__ volatile("clwb %0" : "+m"(*(volatile char *)line) : : "memory");
}

static void pm_fence(void) {
    __asm__ volatile("sfence" : : : "memory");
}

static void pm_persist(const void *at, size_t size) {
    pm_flush(at, size);
    pm_fence();
}

static uint64_t sum(const void *at, size_t size) {
    uint64_t sum = 1469598103934665603u;
    for (size_t i = 0; i < size; i++)
        sum = (sum ^ ((const unsigned char *)at)[i]) * 1099511628211u;
    return sum;
}

static struct root *open_root(const char *path) {
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, 4096) != 0)
        exit(99);
    struct root *root = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (root == MAP_FAILED)
        exit(99);
    memset(root, 0, sizeof *root);
    pm_persist(root, sizeof *root);
    return root;
}
