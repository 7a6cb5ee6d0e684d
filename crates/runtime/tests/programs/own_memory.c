// Functions of the C library that compilers call by themselves, made by the program, which counts its calls in PM: nobody else may call them.
#include "pm.h"
#include <emmintrin.h>

static int mine, calls;

static void count(void) {
    calls++;
    CHECK(mine);
    pm[64]++;
}
void *memcpy(void *to, const void *from, size_t n) {
    count();
    for (size_t i = 0; i < n; i++) ((volatile char *)to)[i] = ((const char *)from)[i];
    return to;
}
void *memmove(void *to, const void *from, size_t n) {
    return memcpy(to, from, n);
}
void *memset(void *to, int byte, size_t n) {
    count();
    for (size_t i = 0; i < n; i++) ((volatile char *)to)[i] = byte;
    return to;
}
int memcmp(const void *a, const void *b, size_t n) {
    count();
    for (size_t i = 0; i < n; i++)
        if (((const char *)a)[i] != ((const char *)b)[i]) return 1;
    return 0;
}
int bcmp(const void *a, const void *b, size_t n) {
    return memcmp(a, b, n);
}
size_t strlen(const char *text) {
    count();
    size_t n = 0;
    while (((volatile const char *)text)[n]) n++;
    return n;
}

int main(void) {
    map_pm();
    for (int i = 0; i < 100; i++) {
        store();
        pm[i] = i;
        _mm_clflush((void *)(pm + i));
        _mm_sfence();
        mine = 1;
        memcpy((void *)(pm + 256), "abcdefgh", 9);
        CHECK(strlen((char *)pm + 256) == 8 && !memcmp((void *)(pm + 256), "abcdefgh", 9));
        memset((void *)(pm + 4096), i, 300);
        mine = 0;
        int fd = open("/dev/zero", O_RDONLY);
        CHECK(read(fd, (void *)(pm + 8192), 500) == 500);
        close(fd);
    }
    CHECK(calls == 400);
    return 0;
}
