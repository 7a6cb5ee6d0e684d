// A bit-field is a read-modify-write of its word.
#include "../pm.h"

struct flags {
    unsigned used : 1;
    unsigned kind : 5;
    unsigned length : 10;
};

int main(int argc, char **argv) {
    struct flags *flags = pm_map(argv[argc - 1], PAGE);
    flags->length = 700; //~? missing-flush
    PM_BARRIER();
    flags->used = 1; //~ missing-flush
    printf("%u %u %u\n", flags->used, flags->kind, flags->length);
    return 0;
}
