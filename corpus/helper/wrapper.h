// A flush wrapper as a project has it in a header, as a function and to be inlined.
#ifndef WRAPPER_H
#define WRAPPER_H

#include "../pm.h"

__attribute__((noinline, unused)) static void write_back(const void *at, size_t len) {
    uintptr_t end = (uintptr_t)at + len;
    for (uintptr_t line = (uintptr_t)at & ~(uintptr_t)(LINE - 1); line < end; line += LINE)
        PM_CLWB(line);
}

__attribute__((always_inline)) static inline void write_back_line(const void *at) {
    PM_CLWB(at);
}

#endif
