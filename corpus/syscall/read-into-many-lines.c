// A large read across lines and pages, of which the start is flushed.
#include "../pm.h"

int main(int argc, char **argv) {
    char *pm = pm_map(argv[argc - 1], 8 * PAGE);
    char text[3000];
    int fds[2];
    memset(text, 'r', sizeof text);
    if (pipe(fds) != 0 || write(fds[1], text, sizeof text) != sizeof text)
        pm_die("pipe");
    ssize_t got = read(fds[0], pm + PAGE - 500, 5000); //~ missing-flush
    pm_persist(pm + PAGE - 500, 500);
    printf("%zd %d\n", got, memcmp(pm + PAGE - 500, text, sizeof text));
    return 0;
}
