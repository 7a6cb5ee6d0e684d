// What the programs of the corpus share: mapping the PM file, and the instructions that make a store durable.
//
// The flushes and fences are macros, so that a finding on one of them lies on the line that uses it. pm_flush and
// pm_persist are functions, as a library would have them, for use where nothing is to be found in them.
// Include this before any other header.
#ifndef PM_H
#define PM_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINE 64
#define PAGE 4096

#define PM_CLWB(p) __asm__ volatile("clwb %0" : "+m"(*(volatile char *)(p)) : : "memory")
#define PM_CLFLUSHOPT(p) __asm__ volatile("clflushopt %0" : "+m"(*(volatile char *)(p)) : : "memory")
#define PM_CLFLUSH(p) __asm__ volatile("clflush %0" : "+m"(*(volatile char *)(p)) : : "memory")
#define PM_SFENCE() __asm__ volatile("sfence" : : : "memory")
#define PM_MFENCE() __asm__ volatile("mfence" : : : "memory")
#define PM_NTSTORE(p, value) __asm__ volatile("movnti %1, %0" : "=m"(*(p)) : "r"(value) : "memory")

// Keeps the compiler from moving or merging stores; emits nothing.
#define PM_BARRIER() __asm__ volatile("" : : : "memory")

static inline void pm_die(const char *what) {
    perror(what);
    exit(99);
}

// Maps the first `size` bytes of the file, which is made and grown as needed.
static inline void *pm_map(const char *path, size_t size) {
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) != 0)
        pm_die(path);
    if ((size_t)st.st_size < size && ftruncate(fd, (off_t)size) != 0)
        pm_die("ftruncate");
    void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED)
        pm_die("mmap");
    close(fd);
    return at;
}

// Flushes every line that the range touches. Needs a fence.
static inline void pm_flush(const void *at, size_t len) {
    uintptr_t end = (uintptr_t)at + len;
    for (uintptr_t line = (uintptr_t)at & ~(uintptr_t)(LINE - 1); line < end; line += LINE)
        PM_CLWB(line);
}

static inline void pm_persist(const void *at, size_t len) {
    pm_flush(at, len);
    PM_SFENCE();
}

// What pmemcheck's requests are made of: those to register memory as persistent, to take that back, and others.
#define PM_REQUEST(number, at, len) PM_REQUEST_OF(number, at, len, 0, 0)
#define PM_REQUEST_OF(number, a, b, c, d)                                                                              \
    do {                                                                                                               \
        volatile uint64_t pm_words_[6] = {                                                                             \
            0x50430000u + (number), (uint64_t)(a), (uint64_t)(b), (uint64_t)(c), (uint64_t)(d), 0};                    \
        uint64_t pm_answer_ = 0;                                                                                       \
        __asm__ volatile("rolq $3, %%rdi\n\trolq $13, %%rdi\n\trolq $61, %%rdi\n\trolq $51, %%rdi\n\t"                \
                         "xchgq %%rbx, %%rbx"                                                                          \
                         : "+d"(pm_answer_)                                                                            \
                         : "a"(&pm_words_[0])                                                                          \
                         : "cc", "memory");                                                                            \
        (void)pm_answer_;                                                                                              \
    } while (0)
#define PM_REGISTER(at, len) PM_REQUEST(0, at, len)
#define PM_UNREGISTER(at, len) PM_REQUEST(2, at, len)

// Prints bytes, so that the effect of a store shows in the output.
static inline void pm_print(const char *name, const void *at, size_t len) {
    const unsigned char *bytes = (const unsigned char *)at;
    printf("%s:", name);
    for (size_t i = 0; i < len; i++)
        printf(" %02x", bytes[i]);
    printf("\n");
}

// A system call by an instruction of the program's own, as languages without libc make them: the kernel's result, and errno
// stays as it is.
static inline long pm_raw(long number, long a, long b, long c, long d, long e, long f) {
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}

#endif
