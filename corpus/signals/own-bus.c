// Reading beyond the file's end raises SIGBUS, which the program expects.
#include "../pm.h"
#include <setjmp.h>
#include <signal.h>

static sigjmp_buf back;

static void on_bus(int signal) {
    siglongjmp(back, signal);
}

int main(int argc, char **argv) {
    int fd = open(argv[argc - 1], O_RDWR | O_CREAT, 0600);
    if (ftruncate(fd, PAGE) != 0)
        pm_die("ftruncate");
    volatile char *pm = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    signal(SIGBUS, on_bus);
    int signal = sigsetjmp(back, 1);
    if (signal == 0)
        printf("%d\n", pm[2 * PAGE]);
    int second = sigsetjmp(back, 1);
    if (second == 0)
        pm[3 * PAGE] = 1;
    pm[0] = 1; //~ missing-flush
    printf("%d %d %d\n", signal == SIGBUS, second == SIGBUS, pm[0]);
    return 0;
}
