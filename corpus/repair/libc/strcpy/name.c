// repair: flush+fence
// strcpy: how long it was is known afterwards.
#include "persist.h"
#include "pool.h"
#include <string.h>

struct user {
    uint64_t id;
    char name[120];
};

static void rename_user(struct user *user, const char *name) {
    strcpy(user->name, name);
}

int main(int argc, char **argv) {
    struct user *user = pool_open(argv[argc - 1], 4096);
    rename_user(user, argc > 5 ? argv[1] : "somebody with a name that needs two lines, or nearly three of them"); //~ missing-flush
    printf("%s\n", user->name);
    return 0;
}
