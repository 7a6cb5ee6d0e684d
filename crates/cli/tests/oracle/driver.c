// A driver of operations, written by hand: cells that are set and got, and a log that is pushed to and synced.
// WRONG in the environment says what is wrong with it.
#include <fcntl.h>
#include <immintrin.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CELLS 16

struct cell {
    _Alignas(64) uint64_t used;
    _Alignas(64) uint64_t value;
};

struct pool {
    struct cell cell[CELLS];
    _Alignas(64) uint8_t log[64]; // one line, whose stores persist in order: how many, and the entries
    _Alignas(64) uint64_t scratch;
    _Alignas(64) void (*persist)(void *); // an address in the program that made the pool
};

static struct pool *pool;
static const char *wrong = "";
static uint64_t opened;

static int is(const char *what) {
    return strcmp(wrong, what) == 0;
}

__attribute__((target("clwb"))) static void persist(void *at) {
    _mm_clwb(at);
    _mm_sfence();
}

static void set(unsigned long key, unsigned long value) {
    struct cell *cell = &pool->cell[key % CELLS];
    if (is("talks")) {
        pool->scratch = 1; // under way
        persist(&pool->scratch);
    }
    cell->value = value; // the value
    int late = is("order") || is("faults");
    if (!late)
        persist(&cell->value);
    cell->used = 1; // the mark
    (is("code") ? pool->persist : persist)(&cell->used);
    if (late)
        persist(&cell->value);
    if (is("scratch"))
        pool->scratch = value; // never flushed, never read
    if (is("talks")) {
        pool->scratch = 0;
        persist(&pool->scratch);
    }
}

static void get(unsigned long key, char *line) {
    struct cell *cell = &pool->cell[key % CELLS];
    if (cell->used)
        sprintf(line, "%lu", cell->value);
    else
        strcpy(line, "none");
}

static void *set_elsewhere(void *key) {
    set((unsigned long)key, 1);
    return NULL;
}

static void say(const char *line) {
    if (is("silent"))
        return;
    if (is("buffered")) {
        printf("%s\n", line);
        return;
    }
    char text[512];
    int length = sprintf(text, "%s\n%s", line, is("extra") ? "extra\n" : "");
    if (write(1, text, length) != length)
        exit(3);
}

static int operate(char *text, const char *file, int number) {
    char name[16] = "", line[256] = "ok";
    unsigned long key = 0, value = 0;
    int words = sscanf(text, "%15s %lu %lu", name, &key, &value);
    if (strcmp(name, "set") == 0 && words == 3) {
        if (is("fork") && fork() == 0)
            _exit(0);
        if (is("threads")) {
            pthread_t thread;
            pthread_create(&thread, NULL, set_elsewhere, (void *)(key + 1));
            pthread_join(thread, NULL);
        }
        set(key, value);
        if (is("waits") && close(open("waiting", O_CREAT | O_WRONLY, 0644)) == 0)
            pause();
        while (is("fork") && wait(NULL) > 0)
            ;
    } else if (strcmp(name, "get") == 0 && words == 2) {
        get(key, line);
    } else if (strcmp(name, "push") == 0 && words == 2) {
        if (pool->log[0] < 62) {
            pool->log[pool->log[0] + 1] = (uint8_t)key;
            pool->log[0]++;
        }
    } else if (strcmp(name, "sync") == 0) {
        if (!is("unsynced"))
            persist(pool->log);
    } else if (strcmp(name, "time") == 0) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        sprintf(line, "%ld.%09ld", (long)now.tv_sec, now.tv_nsec);
    } else if (strcmp(name, "where") == 0) {
        sprintf(line, "%p", (void *)pool);
    } else if (strcmp(name, "space") == 0) {
        sprintf(line, "%lu", opened);
    } else {
        fprintf(stderr, "%s:%d: '%s' is no operation\n", file, number + 1, text);
        return 2;
    }
    say(line);
    return 0;
}

int main(int argc, char **argv) {
    const char *file = NULL;
    int from = 0, to = 1 << 30, probe = 0;
    wrong = getenv("WRONG") ? getenv("WRONG") : "";
    for (int i = 2; i < argc; i++) {
        if (strcmp(argv[i], "--probe") == 0) {
            if (probe++ && is("once"))
                return 2;
        } else if (strcmp(argv[i], "--ops") == 0)
            file = argv[++i];
        else if (strcmp(argv[i], "--from") == 0)
            from = atoi(argv[++i]);
        else if (strcmp(argv[i], "--to") == 0)
            to = atoi(argv[++i]);
    }
    if (is("ignores"))
        from = 0, to = 1 << 30;
    if (is("dies"))
        abort();
    int create = access(argv[1], F_OK) != 0;
    if (create && is("unmade"))
        return 0;
    int fd = open(argv[1], O_RDWR | O_CREAT, 0644);
    if (fd < 0 || ftruncate(fd, sizeof(struct pool)) != 0)
        return 3;
    pool = mmap(NULL, sizeof(struct pool), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    opened = getenv("CRASHPROOF_LEAK") != NULL;
    if (create && is("code")) {
        pool->persist = persist;
        persist(&pool->persist);
    }
    if (!create && is("faults"))
        for (int i = 0; i < CELLS; i++)
            if (pool->cell[i].used && pool->cell[i].value == 0)
                *(volatile int *)8 = 0;
    if (is("talks") && pool->scratch == 1) {
        pool->scratch = 0;
        persist(&pool->scratch);
        say("recovering cell");
    }
    FILE *operations = fopen(file, "r");
    char text[256];
    for (int number = 0; operations && fgets(text, sizeof text, operations); number++) {
        text[strcspn(text, "\n")] = 0;
        if (number >= from && number < to && operate(text, file, number) != 0)
            return 2;
    }
    if (probe && !is("unprobed")) {
        char all[2048] = "probe\n";
        for (int i = 0; i < CELLS; i++) {
            char line[64];
            get(i, line);
            sprintf(all + strlen(all), "%d: %s\n", i, line);
        }
        for (int i = 0; i < pool->log[0]; i++)
            sprintf(all + strlen(all), "%d ", pool->log[i + 1]);
        strcat(all, "\n");
        fflush(stdout);
        if (write(1, all, strlen(all)) < 0)
            return 3;
    }
    return 0;
}
