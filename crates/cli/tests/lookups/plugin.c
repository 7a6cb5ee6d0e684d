// Is loaded by program.c.
#include <stddef.h>
#include <stdio.h>
__attribute__((weak)) void pmem_persist(const void *, size_t);
__attribute__((weak)) int pmemobj_tx_begin(void *, void *, ...);
void report(void) { printf("plugin: weak %d %d\n", pmem_persist != NULL, pmemobj_tx_begin != NULL); }
