#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef FACTOR
#define FACTOR 2
#endif

// C99 allows each unit a definition of its own.
inline int scale(int x) {
    return x * FACTOR;
}
inline int twice(int x) {
    return 2 * x;
}
// Its address is taken, but after inlining no longer.
inline int apply(int (*function)(int), int x) {
    return function(x) + 1;
}
inline int counted(int x) {
    return x + 40;
}

int other_scale(int x);
int (*address(void))(int);
