// Parent and child have their own copies of registered memory, as of any private memory.
#include "../pm.h"
#include <sys/wait.h>

static uint64_t words[64] = {1};

int main(void) {
    uint64_t *block = calloc(1, 512);
    int to_child[2], to_parent[2];
    char byte;
    if (pipe(to_child) != 0 || pipe(to_parent) != 0)
        pm_die("pipe");
    PM_REGISTER(words, sizeof words);
    PM_REGISTER(block, 512);
    words[8] = 2;
    pm_persist(words + 8, 8);
    pid_t child = fork();
    if (child == 0) {
        words[16] = 3;
        pm_persist(words + 16, 8);
        block[5] = 4;
        pm_persist(block + 5, 8);
        if (write(to_parent[1], "x", 1) != 1 || read(to_child[0], &byte, 1) != 1)
            pm_die("pipe");
        // Nothing of what the parent has stored since.
        int right = words[0] == 1 && words[8] == 2 && words[24] == 0 && block[5] == 4;
        _exit(right ? 0 : 1);
    }
    if (read(to_parent[0], &byte, 1) != 1)
        pm_die("pipe");
    int right = words[16] == 0 && block[5] == 0;
    words[24] = 5;
    pm_persist(words + 24, 8);
    words[8] = 6;
    pm_persist(words + 8, 8);
    int status = 0;
    if (write(to_child[1], "x", 1) != 1 || waitpid(child, &status, 0) != child)
        pm_die("wait");
    printf("parent %d child %d\n", right, status);
    return 0;
}
