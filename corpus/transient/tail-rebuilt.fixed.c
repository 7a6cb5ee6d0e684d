// Each process that opens the pool resets the tail, and flushes it. So it is
// persistent data, whether it need be or not.
// dependences: they show what a process reads before it stores
#include "../pm.h"
#include <sys/wait.h>

struct log {
    volatile uint64_t tail;
    char pad[56];
    volatile uint64_t entry[7];
};

// Entries end with the first 0.
static void append(struct log *log, uint64_t value) {
    log->entry[log->tail] = value;
    pm_persist((void *)&log->entry[log->tail], sizeof value);
    log->tail = log->tail + 1;
    pm_persist((void *)&log->tail, sizeof log->tail);
}

static int open_and_append(const char *path, uint64_t value) {
    struct log *log = pm_map(path, PAGE);
    log->tail = 0;
    while (log->entry[log->tail] != 0)
        log->tail = log->tail + 1;
    append(log, value);
    append(log, value + 1);
    return log->tail == 0;
}

// Two processes, one after the other.
int main(int argc, char **argv) {
    int failed = 0;
    for (uint64_t value = 10; value <= 20; value += 10) {
        int status;
        pid_t child = fork();
        if (child == 0)
            _exit(open_and_append(argv[argc - 1], value));
        failed |= waitpid(child, &status, 0) != child || status != 0;
    }
    return failed;
}
