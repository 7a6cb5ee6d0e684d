/* Flushes and fences in every shape, each with its address and kind noted in the section `expected`; and their bytes where
   they are none. */
#include <stddef.h>
#include <stdint.h>

#define CLWB "0"
#define CLFLUSHOPT "1"
#define CLFLUSH "2"
#define SFENCE "3"
#define MFENCE "4"
#define REQUEST "5"
#define LOCKED "6"

#define SITE(kind, instruction)                                                                                        \
    "771: " instruction "\n.pushsection expected,\"a\"\n.long 771b - .\n.long " kind "\n.popsection\n"

extern const int32_t __start_expected[] __attribute__((visibility("hidden")));
extern const int32_t __stop_expected[] __attribute__((visibility("hidden")));

const int32_t *expected_begin(void) { return __start_expected; }
const int32_t *expected_end(void) { return __stop_expected; }

static char buffer[4096] __attribute__((aligned(64)));

#define ADDRESSING(kind, name)                                                                                         \
    SITE(kind, name " (%%rax)")                                                                                        \
    SITE(kind, name " (%%rsp)")                                                                                        \
    SITE(kind, name " 0(%%rbp)")                                                                                       \
    SITE(kind, name " (%%r12)")                                                                                        \
    SITE(kind, name " (%%r13)")                                                                                        \
    SITE(kind, name " 0x40(%%rax)")                                                                                    \
    SITE(kind, name " 0x400(%%r9)")                                                                                    \
    SITE(kind, name " (%%rax,%%rcx,8)")                                                                                \
    SITE(kind, name " 0x10(%%r10,%%r11,2)")                                                                            \
    SITE(kind, name " 0x1000(,%%rdx,4)")                                                                               \
    SITE(kind, name " 16(%%rip)")                                                                                      \
    SITE(kind, name " %%fs:(%%rax)")                                                                                   \
    SITE(kind, name " (%%eax)")                                                                                        \
    SITE(kind, name " %%gs:0xae0f(%%r8d,%%r9d,4)")

/* Never called: only looked at. */
void addressing(void) {
    __asm__ volatile(ADDRESSING(CLWB, "clwb") ADDRESSING(CLFLUSHOPT, "clflushopt") ADDRESSING(CLFLUSH, "clflush") ::: "memory");
}

/* As PMDK and other PM code write them for assemblers that do not know the instructions. */
void byte_encodings(void *p) {
    __asm__ volatile(SITE(CLWB, ".byte 0x66; xsaveopt %0") : "+m"(*(volatile char *)p));
    __asm__ volatile(SITE(CLFLUSHOPT, ".byte 0x66; clflush %0") : "+m"(*(volatile char *)p));
    __asm__ volatile(SITE(CLFLUSHOPT, ".byte 0x3e; .byte 0x66; clflush %0") : "+m"(*(volatile char *)p));
    __asm__ volatile(SITE(CLFLUSH, ".byte 0x3e; clflush %0") : "+m"(*(volatile char *)p));
    __asm__ volatile(SITE(SFENCE, ".byte 0x0f, 0xae, 0xf9") ::: "memory");
    __asm__ volatile(SITE(MFENCE, ".byte 0x0f, 0xae, 0xf1") ::: "memory");
    __asm__ volatile(SITE(SFENCE, "sfence") SITE(MFENCE, "mfence") "lfence" ::: "memory");
}

/* The bytes occur, the instructions do not. */
uint64_t decoys(uint64_t x) {
    uint64_t y;
    __asm__ volatile("movabs $0x00f8ae0f66f8ae0f, %0" : "=r"(y));
    x ^= y;
    __asm__ volatile("movabs $0x30ae0f6690f0ae0f, %0" : "=r"(y));
    x ^= y;
    __asm__ volatile("mov $0x38ae0f66, %k0" : "=r"(y));
    x ^= y;
    __asm__ volatile("lea 0x38ae0f(%1), %0" : "=r"(y) : "r"(x));
    __asm__ volatile("jmp 1f\n xsaveopt (%%rax)\n .byte 0x66, 0x0f, 0xae, 0xf1\n ldmxcsr (%%rax)\n stmxcsr (%%rax)\n1:" ::: "memory");
    return x ^ y;
}

int32_t locked(int32_t *p) {
    int32_t value = 1;
    __asm__ volatile(SITE(LOCKED, "lock xaddl %0, %1") : "+r"(value), "+m"(*p));
    __asm__ volatile(SITE(LOCKED, "xchgl %0, %1") : "+r"(value), "+m"(*p));
    __asm__ volatile(SITE(LOCKED, "lock orq $0, (%%rsp)") ::: "memory");
    __asm__ volatile("xchg %%rax, %%rcx" ::: "rax", "rcx");
    return value;
}

uint64_t request(uint64_t code) {
    volatile uint64_t arguments[6] = {code, 0, 0, 0, 0, 0};
    uint64_t result = 0;
    __asm__ volatile("rolq $3, %%rdi; rolq $13, %%rdi\n rolq $61, %%rdi; rolq $51, %%rdi\n" SITE(REQUEST, "xchgq %%rbx, %%rbx")
                     : "=d"(result)
                     : "a"(arguments), "0"(result)
                     : "cc", "memory", "rdi");
    return result;
}

/* Data among the code: with a symbol it is known to be data, without one it may not be patched either. */
__asm__(".text\n"
        ".type table, @object\n"
        ".size table, 8\n"
        "table: .byte 0x0f, 0xae, 0xf8, 0x06, 0x0f, 0xae, 0xf0, 0x06\n"
        ".balign 16\n"
        ".byte 0x0f, 0xae, 0xf8, 0x06, 0x06\n"
        ".balign 16, 0xcc\n");

/* Runs every kind once or more; the addresses of the flushes are in `buffer`. */
uint64_t run(void) {
    byte_encodings(buffer);
    __asm__ volatile(SITE(CLWB, "clwb 64(%0)") SITE(CLFLUSHOPT, "clflushopt 128(%0)") SITE(CLFLUSH, "clflush 192(%0)")
                     :
                     : "r"(buffer)
                     : "memory");
    return decoys(5) + request(0x1234);
}
