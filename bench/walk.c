/*
 * A structure of 100 entries spread over 8 MiB, for the measurement of crash testing. Each entry has two versions and a
 * byte that says which one counts, so an update is: write the other version, persist, switch, persist.
 *
 *     walk setup FILE     walk run FILE UPDATES     walk verify FILE     walk repeat FILE TIMES
 *
 * `repeat` forks and verifies, so many times: what a recovery costs by itself.
 */
#include <fcntl.h>
#include <immintrin.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define SIZE (8 << 20)
#define ENTRIES 100
#define STRIDE (SIZE / ENTRIES / 64 * 64)

struct version {
    uint64_t number, value, check;
    uint64_t pad[5];
};

struct entry {
    struct version versions[2];
    uint64_t current;
};

static uint64_t check_of(const struct version *version) { return version->number * 31 + version->value * 17 + 1; }

static void persist(void *at) {
    _mm_clwb(at);
    _mm_sfence();
}

static int walk(int argc, char **argv) {
    int setup = strcmp(argv[1], "setup") == 0;
    int fd = open(argv[2], O_RDWR | (setup ? O_CREAT | O_TRUNC : 0), 0600);
    if (fd < 0 || (setup && ftruncate(fd, SIZE) != 0))
        return 3;
    char *pm = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (pm == MAP_FAILED)
        return 3;
    if (strcmp(argv[1], "verify") == 0) {
        for (int i = 0; i < ENTRIES; i++) {
            struct entry *entry = (struct entry *)(pm + i * STRIDE);
            if (entry->current > 1 || entry->versions[entry->current].check != check_of(&entry->versions[entry->current])) {
                fprintf(stderr, "entry %d is broken\n", i);
                return 1;
            }
        }
        return 0;
    }
    long updates = setup ? ENTRIES : atol(argv[3]);
    for (long i = 0; i < updates; i++) {
        struct entry *entry = (struct entry *)(pm + i % ENTRIES * STRIDE);
        struct version *next = &entry->versions[1 - entry->current];
        next->number = (uint64_t)i;
        next->value = (uint64_t)i * i;
        next->check = check_of(next);
        persist(next);
        entry->current = 1 - entry->current;
        persist(&entry->current);
    }
    return 0;
}

int main(int argc, char **argv) {
    if (argc < 3)
        return 2;
    if (strcmp(argv[1], "repeat") != 0)
        return walk(argc, argv);
    for (long i = 0; i < atol(argv[3]); i++) {
        pid_t child = fork();
        if (child == 0) {
            char *arguments[] = {argv[0], "verify", argv[2], NULL};
            exit(walk(3, arguments));
        }
        int status;
        if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
            return 3;
    }
    return 0;
}
