/* Does what its arguments say, in their order: with a PM file, and with memory that it registers as persistent. */
#include "../../../../corpus/pm.h"
#include <signal.h>
#include <sys/wait.h>

static uint64_t words[8] __attribute__((aligned(4096)));

static void store(volatile uint64_t *at) {
    at[0] = 42;
    pm_persist((const void *)at, 8);
}

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        const char *what = argv[i];
        if (strcmp(what, "file") == 0) {
            int fd = open("pool", O_RDWR | O_CREAT, 0600);
            if (fd < 0 || ftruncate(fd, PAGE) != 0)
                pm_die("pool");
            store(mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
        } else if (strcmp(what, "register") == 0)
            PM_REGISTER(words, sizeof words);
        else if (strcmp(what, "unregister") == 0)
            PM_UNREGISTER(words, sizeof words);
        else if (strcmp(what, "unregister-half") == 0)
            PM_UNREGISTER(words + 4, sizeof words / 2);
        else if (strcmp(what, "store") == 0)
            store(words);
        else if (strcmp(what, "fork") == 0) {
            if (fork() != 0) {
                wait(NULL);
                return 0;
            }
        } else if (strcmp(what, "execute") == 0)
            execl("/bin/true", "true", (char *)NULL);
        else if (strcmp(what, "kill") == 0)
            kill(getpid(), SIGKILL);
    }
    return 0;
}
