// Maps PM with a system call of its own, which nobody can see; the trace must say so.
#include "pm.h"

#include <sys/syscall.h>

int main(void) {
    map_pm();
    store();
    int fd = open(getenv("PM_FILE"), O_RDWR);
    register long flags __asm__("r10") = MAP_SHARED;
    register long file __asm__("r8") = fd;
    register long offset __asm__("r9") = 0;
    long mapped;
    __asm__ volatile("syscall"
                     : "=a"(mapped)
                     : "a"(SYS_mmap), "D"(0), "S"(4096), "d"(PROT_READ | PROT_WRITE), "r"(flags), "r"(file), "r"(offset)
                     : "rcx", "r11", "memory");
    CHECK(mapped > 0);
    puts("done");
    return 0;
}
