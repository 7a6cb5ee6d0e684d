#include "nvm.h"

void nvm_sync(struct nvm *nvm, const void *at, size_t len) {
    const char *end = (const char *)at + len;
    for (const char *line = (const char *)((uintptr_t)at & ~(uintptr_t)63); line < end; line += 64)
        __asm__ volatile("clwb %0" : "+m"(*(volatile char *)line) : : "memory");
    __asm__ volatile("sfence" : : : "memory");
    nvm->syncs++;
}
