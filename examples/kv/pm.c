#include "pm.h"

#include <cpuid.h>
#include <immintrin.h>
#include <stdbool.h>

struct pm_counts pm_counts;

// The best flush that the processor has: clwb keeps the line in the cache, clflushopt does not, clflush also waits.
static enum { CLWB, CLFLUSHOPT, CLFLUSH } flush_with;

__attribute__((constructor)) static void choose_flush(void) {
    unsigned a, b = 0, c, d;
    bool known = __get_cpuid_count(7, 0, &a, &b, &c, &d);
    flush_with = known && b & bit_CLWB ? CLWB : known && b & bit_CLFLUSHOPT ? CLFLUSHOPT : CLFLUSH;
}

__attribute__((target("clwb,clflushopt"))) void pm_flush(const void *address, size_t length) {
    char *end = (char *)address + length;
    for (char *line = (char *)((uintptr_t)address & ~(uintptr_t)(LINE - 1)); line < end; line += LINE) {
        if (flush_with == CLWB)
            _mm_clwb(line);
        else if (flush_with == CLFLUSHOPT)
            _mm_clflushopt(line);
        else
            _mm_clflush(line);
        pm_counts.flushes++;
    }
}

void pm_drain(void) {
    _mm_sfence();
    pm_counts.fences++;
}
