// Maps the PM file. Nothing here stores to it.
#ifndef POOL_H
#define POOL_H

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static inline void *pool_open(const char *path, size_t size) {
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, (off_t)size) != 0) {
        perror(path);
        exit(99);
    }
    void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) {
        perror("mmap");
        exit(99);
    }
    close(fd);
    return at;
}

#endif
