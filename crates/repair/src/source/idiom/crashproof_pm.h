/*
 * crashproof_pm.h - makes stores to persistent memory durable.
 *
 * Added by crashproof repair; yours to keep and change. Apache-2.0 OR MIT.
 *
 * A store is durable when its lines were flushed and a fence came after that. The best flush instruction that the
 * processor has is chosen at run time: clwb, clflushopt or clflush.
 */
#ifndef CRASHPROOF_PM_H
#define CRASHPROOF_PM_H

#if !defined(__x86_64__) && !defined(__i386__)
#error "crashproof_pm.h knows the flush instructions of x86 only"
#endif

#include <cpuid.h>
#include <stddef.h>
#include <stdint.h>

/* 1: clflush, 2: clflushopt, 3: clwb. */
static __inline__ int crashproof_flush_instruction(void)
{
    static int chosen; /* 0: not chosen yet; all threads choose the same */
    int instruction = __atomic_load_n(&chosen, __ATOMIC_RELAXED);
    if (instruction == 0) {
        unsigned eax, ebx = 0, ecx, edx;
        if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx))
            ebx = 0;
        instruction = (ebx >> 24 & 1) ? 3 : (ebx >> 23 & 1) ? 2 : 1;
        __atomic_store_n(&chosen, instruction, __ATOMIC_RELAXED);
    }
    return instruction;
}

/* Flushes every line that the range touches. Needs a fence after it. */
static __inline__ void crashproof_flush(const volatile void *address, size_t size)
{
    int instruction = crashproof_flush_instruction();
    uintptr_t line = (uintptr_t)address & ~(uintptr_t)63;
    uintptr_t end = (uintptr_t)address + size;
    for (; line < end; line += 64) {
        volatile char *at = (volatile char *)line;
        if (instruction == 3)
            __asm__ volatile("clwb %0" : "+m"(*at) : : "memory");
        else if (instruction == 2)
            __asm__ volatile("clflushopt %0" : "+m"(*at) : : "memory");
        else
            __asm__ volatile("clflush %0" : "+m"(*at) : : "memory");
    }
}

/* What was flushed before is durable after it. */
static __inline__ void crashproof_fence(void)
{
    __asm__ volatile("sfence" : : : "memory");
}

static __inline__ void crashproof_persist(const volatile void *address, size_t size)
{
    crashproof_flush(address, size);
    crashproof_fence();
}

#endif
