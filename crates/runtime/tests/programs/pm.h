// What every program here needs: a PM mapping and a store to it that is checked at once.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define PM_SIZE (1 << 20)
#define CHECK(condition)                                                                                                  \
    do {                                                                                                                  \
        if (!(condition)) {                                                                                               \
            fprintf(stderr, "%s:%d: %s (errno %d)\n", __FILE__, __LINE__, #condition, errno);                             \
            _exit(1);                                                                                                     \
        }                                                                                                                 \
    } while (0)

static volatile char *pm;

static inline void map_pm(void) {
    int fd = open(getenv("PM_FILE"), O_RDWR | O_CREAT, 0600);
    CHECK(fd >= 0 && ftruncate(fd, PM_SIZE) == 0);
    pm = mmap(NULL, PM_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(pm != MAP_FAILED);
    close(fd);
}

// Threads and processes have places of their own at the end of the mapping.
static inline void store(void) {
    static __thread char n;
    volatile char *place = pm + PM_SIZE - 4096 + gettid() % 4096;
    *place = ++n;
    CHECK(*place == n);
}
