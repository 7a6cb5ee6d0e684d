// repair: flush+fence
// A bit-field has no address; its object has.
#include "persist.h"
#include "pool.h"

struct flags {
    unsigned used : 1;
    unsigned kind : 5;
    unsigned length : 10;
};

static void set(struct flags *flags, unsigned length) {
    flags->length = length; //~ missing-flush
}

int main(int argc, char **argv) {
    struct flags *flags = pool_open(argv[argc - 1], 4096);
    set(flags, 700);
    printf("%u %u %u\n", flags->used, flags->kind, flags->length);
    return 0;
}
