// Has no loader, hence no runtime, but inherits its parent's filters.
#include <stdio.h>
#include <sys/uio.h>

int main(void) {
    puts("static child");
    fflush(stdout);
    struct iovec part = {"writes\n", 7};
    return writev(1, &part, 1) == 7 ? 4 : 1;
}
