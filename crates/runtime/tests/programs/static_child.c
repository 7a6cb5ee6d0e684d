// Has no loader, hence no runtime, but inherits its parent's filters. With an argument it prints what else it inherits.
#include "signal_state.h"
#include <sys/uio.h>

int main(int argc, char **argv) {
    (void)argv;
    if (argc > 1) {
        print_signal_state("static child");
        return argc;
    }
    puts("static child");
    fflush(stdout);
    struct iovec part = {"writes\n", 7};
    return writev(1, &part, 1) == 7 ? 4 : 1;
}
