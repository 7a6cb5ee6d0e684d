// strncpy pads its destination with zeroes up to the end.
#include "../pm.h"

struct user {
    char name[256];
};

int main(int argc, char **argv) {
    struct user *user = pm_map(argv[argc - 1], PAGE);
    const char *volatile name = "grace";
    strncpy(user->name, name, sizeof user->name); //~ missing-flush
    pm_persist(user->name, strlen(user->name) + 1);
    printf("%s\n", user->name);
    return 0;
}
