/* A log and a pair of numbers in persistent memory, right and wrong, with their recovery: what `crashproof crash` is tested with.
 *
 *   pool create POOL            an empty pool
 *   pool append POOL N          N entries, each persisted before it is counted
 *   pool append-early POOL N    N entries, each counted before it is persisted: the bug
 *   pool append-ack POOL N      like append; says "appended I" before the entry is counted
 *   pool pair POOL N            N updates of two numbers through a redo log
 *   pool verify POOL            every entry that is counted is there; else status 3
 *   pool verify-or-hang POOL    the same, but loops for ever where it should fail
 *   pool verify-slow POOL       the same, 20 ms later
 *   pool verify-unseen POOL     the same, and leaves a mark, by system calls of its own; status 6 if there is one already
 *   pool acknowledged POOL      what CRASHPROOF_OUTPUT says was appended is counted; else status 4
 *   pool redo POOL              applies the redo log, and wants the two numbers equal; else status 5
 *   pool redo-early POOL        the same, but clears the redo log before it is applied: the bug, if power fails twice
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SIZE = 16384, MAGIC = 0x706f6f6c, ENTRIES = 200 };

struct entry {
    uint64_t value;
    uint64_t check;
};

struct pool {
    _Alignas(64) uint64_t magic;
    _Alignas(64) uint64_t count;
    _Alignas(64) uint64_t first;
    _Alignas(64) uint64_t second;
    _Alignas(64) uint64_t redo;
    _Alignas(64) uint64_t redo_valid;
    struct entry entries[ENTRIES] __attribute__((aligned(64)));
};

/* clflushopt; a processor without it executes clflush. */
static void persist(const void *address, size_t length)
{
    uintptr_t line = (uintptr_t)address & ~(uintptr_t)63;
    for (; line < (uintptr_t)address + length; line += 64)
        __asm__ volatile(".byte 0x66; clflush %0" : "+m"(*(volatile char *)line));
    __asm__ volatile("sfence" ::: "memory");
}

static struct pool *map(const char *path, int flags)
{
    int fd = open(path, O_RDWR | flags, 0600);
    if (fd < 0 || (flags && ftruncate(fd, SIZE) != 0)) {
        perror(path);
        exit(2);
    }
    void *memory = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) {
        perror("mmap");
        exit(2);
    }
    return memory;
}

static struct pool *open_pool(const char *path)
{
    struct pool *pool = map(path, 0);
    if (pool->magic != MAGIC) {
        fprintf(stderr, "%s is no pool\n", path);
        exit(2);
    }
    return pool;
}

static void write_entry(struct pool *pool, uint64_t index)
{
    struct entry *entry = &pool->entries[index];
    entry->value = index + 1;
    entry->check = ~(index + 1);
    persist(entry, sizeof *entry);
}

static void count_entry(struct pool *pool, uint64_t index)
{
    pool->count = index + 1;
    persist(&pool->count, sizeof pool->count);
}

static void append(struct pool *pool, uint64_t index)
{
    write_entry(pool, index);
    count_entry(pool, index);
}

static void append_early(struct pool *pool, uint64_t index)
{
    count_entry(pool, index);
    write_entry(pool, index);
}

static void append_ack(struct pool *pool, uint64_t index)
{
    write_entry(pool, index);
    printf("appended %llu\n", (unsigned long long)index + 1);
    fflush(stdout);
    count_entry(pool, index);
}

static void set(uint64_t *where, uint64_t value)
{
    *where = value;
    persist(where, sizeof *where);
}

static void update_pair(struct pool *pool, uint64_t index)
{
    set(&pool->redo, index + 1);
    set(&pool->redo_valid, 1);
    set(&pool->first, index + 1);
    set(&pool->second, index + 1);
    set(&pool->redo_valid, 0);
}

static int redo(struct pool *pool, int early)
{
    if (pool->redo_valid) {
        if (early)
            set(&pool->redo_valid, 0);
        set(&pool->first, pool->redo);
        set(&pool->second, pool->redo);
        if (!early)
            set(&pool->redo_valid, 0);
    }
    if (pool->first != pool->second) {
        fprintf(stderr, "%llu is not %llu\n", (unsigned long long)pool->first, (unsigned long long)pool->second);
        return 5;
    }
    return 0;
}

static int verify(const struct pool *pool)
{
    for (uint64_t index = 0; index < pool->count; index++) {
        const struct entry *entry = &pool->entries[index];
        if (entry->value != index + 1 || entry->check != ~(index + 1)) {
            fprintf(stderr, "entry %llu is counted and not there\n", (unsigned long long)index);
            return 3;
        }
    }
    puts("verified");
    return 0;
}

/* Not through libc, so nobody can watch it. */
static long system_call(long number, long a, long b, long c, long d, long e, long f)
{
    register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
    __asm__ volatile("syscall"
                     : "+a"(number)
                     : "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return number;
}

static int leave_a_mark(const char *path)
{
    int fd = open(path, O_RDWR);
    long at = system_call(9, 0, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd < 0 || at < 0)
        return 2;
    uint64_t *mark = (uint64_t *)(at + SIZE - 8);
    if (*mark != 0) {
        fprintf(stderr, "somebody was here before\n");
        return 6;
    }
    *mark = 1;
    return 0;
}

static int acknowledged(const struct pool *pool)
{
    const char *path = getenv("CRASHPROOF_OUTPUT");
    FILE *output = path ? fopen(path, "r") : NULL;
    if (!output) {
        fprintf(stderr, "no CRASHPROOF_OUTPUT\n");
        return 2;
    }
    unsigned long long last = 0;
    while (fscanf(output, "appended %llu\n", &last) == 1)
        ;
    if (last > pool->count) {
        fprintf(stderr, "%llu acknowledged, %llu there\n", last, (unsigned long long)pool->count);
        return 4;
    }
    return 0;
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: pool COMMAND POOL [N]\n");
        return 2;
    }
    const char *command = argv[1], *path = argv[2];
    uint64_t times = argc > 3 ? strtoull(argv[3], NULL, 10) : 1;
    if (strcmp(command, "create") == 0) {
        struct pool *pool = map(path, O_CREAT | O_TRUNC);
        set(&pool->magic, MAGIC);
        return 0;
    }
    struct pool *pool = open_pool(path);
    if (strcmp(command, "verify") == 0)
        return verify(pool);
    if (strcmp(command, "verify-slow") == 0) {
        usleep(20000);
        return verify(pool);
    }
    if (strcmp(command, "verify-unseen") == 0) {
        int marked = leave_a_mark(path);
        return marked ? marked : verify(pool);
    }
    if (strcmp(command, "verify-or-hang") == 0) {
        while (verify(pool) != 0)
            sleep(1);
        return 0;
    }
    if (strcmp(command, "acknowledged") == 0)
        return acknowledged(pool);
    if (strcmp(command, "redo") == 0 || strcmp(command, "redo-early") == 0)
        return redo(pool, strcmp(command, "redo-early") == 0);
    void (*update)(struct pool *, uint64_t) = strcmp(command, "append") == 0         ? append
                                              : strcmp(command, "append-early") == 0 ? append_early
                                              : strcmp(command, "append-ack") == 0   ? append_ack
                                              : strcmp(command, "pair") == 0         ? update_pair
                                                                                     : NULL;
    if (!update) {
        fprintf(stderr, "unknown command %s\n", command);
        return 2;
    }
    for (uint64_t index = 0; index < times; index++)
        update(pool, index);
    return 0;
}
