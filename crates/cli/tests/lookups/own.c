// A library of the program's own has a function of PMDK's name, as if PMDK were linked into it.
#include <stddef.h>
#include <stdio.h>

#ifdef LIBRARY
const char *pmem_persist(const void *address, size_t length) {
    (void)address, (void)length;
    return "own";
}
#else
__attribute__((weak)) const char *pmem_persist(const void *, size_t);
__attribute__((weak)) const char *pmem_drain(void);

int main(void) {
    printf("%s, %s\n", pmem_persist ? pmem_persist(NULL, 0) : "none", pmem_drain ? pmem_drain() : "none");
    return 0;
}
#endif
