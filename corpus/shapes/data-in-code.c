// Bytes that look like flushes, in constants and in data between functions, are left alone.
#include "../pm.h"

__asm__(".text\n\t.globl looks_like_code\nlooks_like_code:\n\t"
        ".byte 0x0f, 0xae, 0xf8, 0x66, 0x0f, 0xae, 0x30, 0x0f, 0xae, 0xf0, 0x0f, 0xae, 0x38, 1, 2, 3\n\t"
        ".size looks_like_code, 16\n\t.type looks_like_code, @object\n");
extern const unsigned char looks_like_code[16];

int main(int argc, char **argv) {
    uint64_t *pm = pm_map(argv[argc - 1], PAGE);
    volatile uint64_t constant = 0xf8ae0ff8ae0f9090;
    *pm = constant; //~ missing-flush
    printf("%lx\n", *pm);
    pm_print("data", looks_like_code, 16);
    return 0;
}
