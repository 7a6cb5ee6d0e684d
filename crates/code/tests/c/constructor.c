/* Stops in its constructor. */
#include <unistd.h>

__attribute__((constructor)) static void construct(void) { __asm__ volatile("int3"); }

/* Needs the C library. */
int anchor(void) { return getpid(); }
