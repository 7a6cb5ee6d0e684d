// Three functions flush twice through one wrapper, which is a function in a header: each is told apart.
// build: gcc clang
// flags: -O0 -O2
#include "wrapper.h"

struct record {
    _Alignas(LINE) volatile uint64_t id;
    _Alignas(LINE) volatile uint64_t size;
    _Alignas(LINE) volatile uint64_t state;
};

__attribute__((noinline)) static void set_id(struct record *record) {
    record->id = 7;
    write_back((const void *)&record->id, sizeof record->id);
    PM_SFENCE();
}

__attribute__((noinline)) static void set_size(struct record *record) {
    record->size = 7;
    write_back((const void *)&record->size, sizeof record->size);
    PM_SFENCE();
}

__attribute__((noinline)) static void set_state(struct record *record) {
    record->state = 7;
    write_back((const void *)&record->state, sizeof record->state);
    PM_SFENCE();
}

int main(int argc, char **argv) {
    struct record *record = pm_map(argv[argc - 1], PAGE);
    set_id(record);
    set_size(record);
    set_state(record);
    printf("%lu\n", (unsigned long)(record->id + record->size + record->state));
    return 0;
}
