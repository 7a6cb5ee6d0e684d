// String instructions, single and repeated, forwards and backwards, in every width.
#include "../pm.h"

static char source[4096];

int main(int argc, char **argv) {
    char *pm = pm_map(argv[argc - 1], 8 * PAGE);
    for (int i = 0; i < 4096; i++)
        source[i] = (char)(i * 3 + i / 100);
    char *to;
    const char *from;
    uint64_t count;
#define COPY(insn, dst, src, n) to = (dst); from = (src); count = (n); __asm__ volatile(insn "\n\tcld" : "+D"(to), "+S"(from), "+c"(count) : : "memory"); printf("%ld %ld %lu\n", (long)(to - (dst)), (long)(from - (src)), count)
#define FILL(insn, dst, n) to = (dst); count = (n); __asm__ volatile(insn "\n\tcld" : "+D"(to), "+c"(count) : "a"(0x8081828384858687) : "memory"); printf("%ld %lu\n", (long)(to - (dst)), count)
    COPY("movsb", pm, source + 5, 77);
    COPY("movsw", pm + LINE, source + 5, 77);
    COPY("movsl", pm + 2 * LINE, source + 5, 77);
    COPY("movsq", pm + 3 * LINE, source + 5, 77);
    FILL("stosb", pm + 4 * LINE, 77);
    FILL("stosw", pm + 5 * LINE, 77);
    FILL("stosl", pm + 6 * LINE, 77);
    FILL("stosq", pm + 7 * LINE, 77);
    COPY("rep movsb", pm + 8 * LINE, source, 64);
    COPY("rep movsw", pm + 9 * LINE, source, 32);
    COPY("rep movsl", pm + 10 * LINE, source, 16);
    COPY("rep movsq", pm + 11 * LINE, source, 8);
    FILL("rep stosb", pm + 12 * LINE, 64);
    FILL("rep stosw", pm + 13 * LINE, 32);
    FILL("rep stosl", pm + 14 * LINE, 16);
    FILL("rep stosq", pm + 15 * LINE, 8);
    COPY("rep movsb", pm + 16 * LINE, source, 0);
    FILL("rep stosq", pm + 16 * LINE, 0);
    COPY("std\n\trep movsb", pm + 18 * LINE - 1, source + 127, 128);
    FILL("std\n\trep stosq", pm + 20 * LINE - 8, 16);
    COPY("rep movsb", pm + 20 * LINE, source + 1, 20 * LINE);
    COPY("rep movsq", pm + 2 * PAGE - 1000, source, 500);
    COPY("rep movsb", pm + 5 * PAGE, pm, 2000);
    COPY("rep movsb", pm + 5 * PAGE + 1, pm + 5 * PAGE, 300);
    pm_flush(pm, 40 * LINE);
    pm_flush(pm + 2 * PAGE - 1000, 4000);
    pm_flush(pm + 5 * PAGE, 2000);
    PM_SFENCE();
    unsigned sum = 0;
    for (int i = 0; i < 8 * PAGE; i++)
        sum = sum * 33 + (unsigned char)pm[i];
    printf("sum %u\n", sum);
    return 0;
}
