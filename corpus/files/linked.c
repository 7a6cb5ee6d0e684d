// A file that is made under a temporary name, linked to its own name and unlinked from the first one is not deleted. Neither
// is one that loses a second name. One that loses both is.
#include "../pm.h"

static volatile uint64_t *make(const char *path, const char *first, const char *second, char names[2][4096]) {
    snprintf(names[0], 4096, "%s.%s", path, first);
    snprintf(names[1], 4096, "%s.%s", path, second);
    unlink(names[0]); // of the run before
    unlink(names[1]);
    volatile uint64_t *data = pm_map(names[0], PAGE);
    if (link(names[0], names[1]) != 0)
        pm_die(names[1]);
    return data;
}

static void drop(const char *name) {
    if (unlink(name) != 0)
        pm_die(name);
}

int main(int argc, char **argv) {
    const char *path = argv[argc - 1];
    char names[2][4096];
    volatile uint64_t *published = make(path, "new", "data", names);
    published[0] = 1; //~ missing-flush
    drop(names[0]);
    volatile uint64_t *saved = make(path, "pool", "saved", names);
    saved[0] = 2; //~ missing-flush
    drop(names[1]);
    volatile uint64_t *scratch = make(path, "scratch", "again", names);
    scratch[0] = 3;
    drop(names[0]);
    if (remove(names[1]) != 0)
        pm_die(names[1]);
    printf("%lu %lu %lu\n", (unsigned long)published[0], (unsigned long)saved[0], (unsigned long)scratch[0]);
    return 0;
}
