// How these programs make their stores durable.
#ifndef PERSIST_H
#define PERSIST_H

#include <stddef.h>
#include <stdint.h>

static inline void pm_flush(const void *at, size_t len) {
    uintptr_t end = (uintptr_t)at + len;
    for (uintptr_t line = (uintptr_t)at & ~(uintptr_t)63; line < end; line += 64)
        __asm__ volatile("clwb %0" : "+m"(*(volatile char *)line) : : "memory");
}

static inline void pm_fence(void) {
    __asm__ volatile("sfence" : : : "memory");
}

static inline void pm_persist(const void *at, size_t len) {
    pm_flush(at, len);
    pm_fence();
}

#endif
