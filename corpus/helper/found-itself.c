// A function with a parameter that stores to PM which it finds itself is no helper: the mistake is its own.
// build: gcc clang
// flags: -O0 -O2
#include "../pm.h"

struct log {
    uint64_t count;
    char pad[LINE - sizeof(uint64_t)];
    volatile uint64_t entries[8];
};

static struct log *log_;

__attribute__((noinline)) static void note(uint64_t value) {
    log_->entries[0] = value; //~ missing-flush x1
}

__attribute__((noinline)) static void append(struct log *log, uint64_t value) {
    log->entries[log->count + 1] = value; //~ missing-flush x1
}

int main(int argc, char **argv) {
    log_ = pm_map(argv[argc - 1], PAGE);
    note(3);
    append(log_, 4);
    printf("%lu\n", (unsigned long)(log_->entries[0] + log_->entries[1]));
    return 0;
}
