// repair: flush
// snprintf writes into PM; its result counts.
#include "persist.h"
#include "pool.h"

struct label {
    uint64_t length;
    char pad[56];
    char text[128];
};

static int print(struct label *label, int number) {
    int length = snprintf(label->text, sizeof label->text, "label number %d", number); //~ missing-flush in-stack
    label->length = length;
    pm_persist(&label->length, sizeof label->length);
    return length;
}

int main(int argc, char **argv) {
    struct label *label = pool_open(argv[argc - 1], 4096);
    int length = print(label, 12345);
    printf("%d %s\n", length, label->text);
    return 0;
}
