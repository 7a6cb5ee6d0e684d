// Code that the program generates itself, with a flush in it.
#include "../pm.h"

int main(int argc, char **argv) {
    volatile uint64_t *pm = pm_map(argv[argc - 1], PAGE);
    // clwb (%rdi); sfence; ret
    static const unsigned char code[] = {0x66, 0x0f, 0xae, 0x37, 0x0f, 0xae, 0xf8, 0xc3};
    void *at = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(at, code, sizeof code);
    if (mprotect(at, PAGE, PROT_READ | PROT_EXEC) != 0)
        pm_die("mprotect");
    void (*persist)(volatile void *) = (void (*)(volatile void *))at;
    pm[0] = 1;
    persist(&pm[0]);
    pm[8] = 2; //~ missing-flush
    printf("%lu\n", (unsigned long)(pm[0] + pm[8]));
    return 0;
}
