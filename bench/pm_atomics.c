/*
 * A program that counts by atomic operations in ordinary memory, as reference counts and statistics do, and notes the result in PM now and then.
 *
 *     pm_atomics FILE ROUNDS
 */
#include <fcntl.h>
#include <immintrin.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define OBJECTS 4096
#define STEPS 400000

struct object {
    atomic_ulong references, uses;
    atomic_uint lock;
    uint64_t sum;
};

struct result {
    uint64_t round, sum;
};

int main(int argc, char **argv) {
    long rounds = argc > 2 ? atol(argv[2]) : 10;
    int fd = open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || ftruncate(fd, 1 << 20) != 0)
        return 3;
    struct result *results = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    struct object *objects = calloc(OBJECTS, sizeof *objects);
    if (results == MAP_FAILED || !objects)
        return 3;
    uint64_t random = 88172645463325252ull;
    for (long round = 0; round < rounds; round++) {
        uint64_t sum = 0;
        for (long step = 0; step < STEPS; step++) {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            struct object *object = &objects[random % OBJECTS];
            atomic_fetch_add_explicit(&object->references, 1, memory_order_relaxed);
            unsigned unlocked = 0;
            while (!atomic_compare_exchange_weak(&object->lock, &unlocked, 1))
                unlocked = 0;
            sum += object->sum += random & 0xff;
            atomic_store_explicit(&object->lock, 0, memory_order_release);
            atomic_fetch_add(&object->uses, 1);
            sum += atomic_fetch_sub(&object->references, 1);
        }
        struct result *result = &results[4 * (round % 1000)];
        result->round = round;
        result->sum = sum;
        _mm_clwb(result);
        _mm_sfence();
    }
    munmap(results, 1 << 20);
    return 0;
}
