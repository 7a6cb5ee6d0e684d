// A language runtime of its own, like Go's: a thread keeps values in registers (a zero in xmm15, a pointer in r14), stores to PM, flushes and
// makes system calls, while another sends it signals whose handler, on an alternate stack with all signals blocked, makes the interrupted code
// call a function of which it knows nothing.
#include "pm.h"
#include <pthread.h>
#include <sys/syscall.h>

#define LEAST_ROUNDS 2000
#define LEAST_CALLS 50

extern char loop_begin[], loop_end[], preempt[];
// Runs the rounds and returns 0, or the number of what was not as it should be.
extern long loop(volatile char *at, long rounds, int vectors);

volatile long preempted;
static volatile int done;
static pid_t looping;

__asm__(".text\n"
        // Keeps every register that it does not know, as asyncPreempt does.
        ".globl preempt\n"
        ".type preempt, @function\n"
        "preempt:\n"
        "pushfq\n"
        "push %rax; push %rcx; push %rdx; push %rbx; push %rbp; push %rsi; push %rdi\n"
        "push %r8; push %r9; push %r10; push %r11; push %r12; push %r13; push %r14; push %r15\n"
        "sub $256, %rsp\n"
        "movups %xmm0, (%rsp); movups %xmm1, 16(%rsp); movups %xmm14, 224(%rsp); movups %xmm15, 240(%rsp)\n"
        "incq preempted(%rip)\n"
        "mov $0x1234567, %r14d\n"
        "pcmpeqd %xmm0, %xmm0; pcmpeqd %xmm1, %xmm1; pcmpeqd %xmm14, %xmm14; pcmpeqd %xmm15, %xmm15\n"
        "movups (%rsp), %xmm0; movups 16(%rsp), %xmm1; movups 224(%rsp), %xmm14; movups 240(%rsp), %xmm15\n"
        "add $256, %rsp\n"
        "pop %r15; pop %r14; pop %r13; pop %r12; pop %r11; pop %r10; pop %r9; pop %r8\n"
        "pop %rdi; pop %rsi; pop %rbp; pop %rbx; pop %rdx; pop %rcx; pop %rax\n"
        "popfq\n"
        "ret\n"
        ".size preempt, . - preempt\n"
        ".globl loop\n"
        ".type loop, @function\n"
        "loop:\n"
        "push %rbx; push %rbp; push %r12; push %r13; push %r14; push %r15\n"
        "mov %rdi, %rbx; mov %rsi, %r12; mov %edx, %r13d\n"
        "movabs $0x1122334455667788, %r14\n"
        "mov %rsp, %r15\n"
        "xorps %xmm15, %xmm15\n"
        "movq %r14, %xmm14\n"
        "punpcklqdq %xmm14, %xmm14\n"
        "cmp $1, %r13d; jl loop_begin\n"
        "vinsertf128 $1, %xmm14, %ymm14, %ymm13\n"
        "cmp $2, %r13d; jl loop_begin\n"
        "vbroadcastsd %xmm14, %zmm29\n"
        "kmovw %r14d, %k5\n"
        ".globl loop_begin\n"
        "loop_begin:\n"
        "mov %r12, (%rbx)\n"
        "movups %xmm15, 16(%rbx)\n"
        "mov (%rbx), %rax\n"
        "add $3, %rax\n"
        "mov %rax, 8(%rbx)\n"
        "movups %xmm14, 32(%rbx)\n"
        "push %rax\n"
        "call 7f\n"
        "pop %rcx\n"
        "cmp %rax, %rcx; jne 91f\n"
        "mov %r14, 48(%rbx)\n"
        "movups 16(%rbx), %xmm0\n"
        "pcmpeqb %xmm15, %xmm0\n"
        "pmovmskb %xmm0, %eax\n"
        "cmp $0xffff, %eax; jne 92f\n"
        "xor %eax, %eax\n"
        "lea 64(%rbx), %rdi\n"
        "mov $8, %ecx\n"
        "rep stosq\n"
        "lock incq 128(%rbx)\n"
        "clflush (%rbx)\n"
        "sfence\n"
        // A system call of which the number is not known, and that is none of ours.
        "mov getppid_number(%rip), %rax\n"
        "syscall\n"
        "mov $1, %edi; lea nothing(%rip), %rsi; xor %edx, %edx\n"
        "mov write_number(%rip), %rax\n"
        "syscall\n"
        "test %rax, %rax; jne 93f\n"
        "xorps %xmm1, %xmm1\n"
        "pcmpeqb %xmm15, %xmm1\n"
        "pmovmskb %xmm1, %eax\n"
        "cmp $0xffff, %eax; jne 94f\n"
        "movabs $0x1122334455667788, %rax\n"
        "cmp %rax, %r14; jne 95f\n"
        "movq %xmm14, %rcx; cmp %rax, %rcx; jne 96f\n"
        "cmp %r15, %rsp; jne 97f\n"
        "cmp $1, %r13d; jl 6f\n"
        "vmovups %ymm13, 192(%rbx)\n"
        "vextractf128 $1, %ymm13, %xmm0\n"
        "vmovq %xmm0, %rcx; cmp %rax, %rcx; jne 98f\n"
        "cmp $2, %r13d; jl 6f\n"
        "vmovups %zmm29, 256(%rbx)\n"
        "vextractf64x4 $1, %zmm29, %ymm0\n"
        "vmovq %xmm0, %rcx; cmp %rax, %rcx; jne 99f\n"
        "kmovw %k5, %ecx; cmp $0x7788, %ecx; jne 99f\n"
        "6: dec %r12; jnz loop_begin\n"
        ".globl loop_end\n"
        "loop_end:\n"
        "xor %eax, %eax\n"
        "8: mov %r15, %rsp\n"
        "pop %r15; pop %r14; pop %r13; pop %r12; pop %rbp; pop %rbx\n"
        "ret\n"
        "7: mov %rax, 56(%rbx)\n"
        "ret\n"
        "91: mov $1, %eax; jmp 8b\n"
        "92: mov $2, %eax; jmp 8b\n"
        "93: mov $3, %eax; jmp 8b\n"
        "94: mov $4, %eax; jmp 8b\n"
        "95: mov $5, %eax; jmp 8b\n"
        "96: mov $6, %eax; jmp 8b\n"
        "97: mov $7, %eax; jmp 8b\n"
        "98: mov $8, %eax; jmp 8b\n"
        "99: mov $9, %eax; jmp 8b\n"
        ".size loop, . - loop\n"
        ".data\n"
        "getppid_number: .quad 110\n"
        "write_number: .quad 1\n"
        "nothing: .quad 0\n"
        ".text\n");

static void on_signal(int signal, siginfo_t *info, void *context) {
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    char *at = (char *)registers[REG_RIP];
    if (at < loop_begin || at >= loop_end) return;
    registers[REG_RSP] -= 8;
    *(greg_t *)registers[REG_RSP] = registers[REG_RIP];
    registers[REG_RIP] = (greg_t)preempt;
}

static void *send(void *argument) {
    while (!done) syscall(SYS_tgkill, getpid(), looping, SIGURG);
    return NULL;
}

int main(void) {
    map_pm();
    stack_t alternate = {.ss_sp = malloc(32 << 10), .ss_size = 32 << 10};
    CHECK(sigaltstack(&alternate, NULL) == 0);
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_ONSTACK | SA_SIGINFO | SA_RESTART};
    sigfillset(&action.sa_mask);
    CHECK(sigaction(SIGURG, &action, NULL) == 0);
    looping = gettid();
    pthread_t sender;
    CHECK(pthread_create(&sender, NULL, send, NULL) == 0);
    int vectors = __builtin_cpu_supports("avx512f") ? 2 : __builtin_cpu_supports("avx") ? 1 : 0;
    for (long rounds = 0; rounds < LEAST_ROUNDS || preempted < LEAST_CALLS; rounds += 100) {
        long wrong = loop(pm + 4096, 100, vectors);
        if (wrong != 0) fprintf(stderr, "wrong: %ld\n", wrong);
        CHECK(wrong == 0);
    }
    done = 1;
    CHECK(pthread_join(sender, NULL) == 0);
    puts("as it was");
    return 0;
}
