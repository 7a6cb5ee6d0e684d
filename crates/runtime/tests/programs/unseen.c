// Maps PM with a system call of code that it made itself, which nobody can see; the trace must say so.
#include "pm.h"

#include <sys/syscall.h>

int main(void) {
    map_pm();
    store();
    int fd = open(getenv("PM_FILE"), O_RDWR);
    unsigned char *code = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(code != MAP_FAILED);
    code[0] = 0x0f; // syscall
    code[1] = 0x05;
    code[2] = 0xc3; // ret
    register long flags __asm__("r10") = MAP_SHARED;
    register long file __asm__("r8") = fd;
    register long offset __asm__("r9") = 0;
    long mapped;
    __asm__ volatile("sub $128, %%rsp\n\tcall *%[code]\n\tadd $128, %%rsp"
                     : "=a"(mapped)
                     : "a"(SYS_mmap), "D"(0), "S"(4096), "d"(PROT_READ | PROT_WRITE), "r"(flags), "r"(file), "r"(offset),
                       [code] "b"(code)
                     : "rcx", "r11", "memory");
    CHECK(mapped > 0);
    puts("done");
    return 0;
}
