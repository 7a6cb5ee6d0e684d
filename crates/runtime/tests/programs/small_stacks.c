// Code on stacks with nothing to spare, as Go's: system calls of the program's own on a stack like a goroutine's, on a thread whose alternate
// stack has 32 KiB; handlers on the smallest alternate stack; calls of libc on the smallest thread. The runtime's work for all of these is large
// when it is a thread's first event. What lies below each stack must stay as it is.
#include "pm.h"
#include <limits.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/stat.h>

#define BELOW (128 << 10)
#define PATTERN 0x5a

// A stack, and memory of somebody else's below it.
struct stack {
    size_t size;
    char *low;
};

static struct stack make_stack(size_t size) {
    char *memory = mmap(NULL, BELOW + size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    memset(memory, PATTERN, BELOW);
    return (struct stack){size, memory + BELOW};
}

static void check_below(struct stack stack) {
    for (size_t i = 1; i <= BELOW; i++) CHECK(stack.low[-i] == PATTERN);
    CHECK(munmap(stack.low - BELOW, BELOW + stack.size) == 0);
}

static void use_for_signals(struct stack stack) {
    stack_t alternate = {.ss_sp = stack.low, .ss_size = stack.size};
    CHECK(sigaltstack(&alternate, NULL) == 0);
}

// Makes a system call with an instruction of its own and the stack pointer at `top`. The number is not known beforehand.
static long call_on(char *top, long number, long a, long b, long c, long d) {
    register long fourth __asm__("r10") = d;
    long result;
    __asm__ volatile("mov %%rsp, %%rbx; mov %[top], %%rsp; syscall; mov %%rbx, %%rsp"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(fourth), [top] "r"(top)
                     : "rbx", "rcx", "r11", "memory");
    return result;
}

static int file;

enum { WRITE, PWRITE, WRITEV, READ, MSYNC, MAP, FSYNC, CALLS };

static void *goroutine(void *argument) {
    struct stack own = make_stack(2048), for_signals = make_stack(32 << 10);
    // As little as a system call needs.
    char *top = own.low + 64;
    struct iovec parts[2] = {{"by ", 3}, {"writev\n", 7}};
    stack_t alternate = {.ss_sp = for_signals.low, .ss_size = for_signals.size};
    CHECK(call_on(top, SYS_sigaltstack, (long)&alternate, 0, 0, 0) == 0);
    switch ((long)argument) {
    case WRITE:
        CHECK(call_on(top, SYS_write, 1, (long)"by write\n", 9, 0) == 9);
        break;
    case PWRITE:
        CHECK(call_on(top, SYS_pwrite64, file, (long)"by pwrite", 9, 100) == 9);
        CHECK(memcmp((char *)pm + 100, "by pwrite", 9) == 0);
        break;
    case WRITEV:
        CHECK(call_on(top, SYS_writev, 1, (long)parts, 2, 0) == 10);
        break;
    case READ:
        CHECK(call_on(top, SYS_pread64, file, (long)pm + 500, 9, 100) == 9);
        CHECK(memcmp((char *)pm + 500, "by pwrite", 9) == 0);
        break;
    case MSYNC:
        CHECK(call_on(top, SYS_msync, (long)pm, 4096, MS_SYNC, 0) == 0);
        break;
    case MAP: {
        char *again = (char *)call_on(top, SYS_mmap, 0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS);
        CHECK((long)again > 0 || (long)again < -4095);
        again[5] = 1;
        CHECK(call_on(top, SYS_munmap, (long)again, 4096, 0, 0) == 0);
        break;
    }
    case FSYNC:
        CHECK(call_on(top, SYS_fsync, file, 0, 0, 0) == 0);
        break;
    }
    // And of errors.
    CHECK(call_on(top, SYS_write, -1, (long)"x", 1, 0) == -EBADF);
    CHECK(call_on(top, SYS_write, 1, 8, 1, 0) == -EFAULT);
    store();
    alternate.ss_flags = SS_DISABLE;
    CHECK(sigaltstack(&alternate, NULL) == 0);
    check_below(own);
    check_below(for_signals);
    return NULL;
}

static void libc_calls(void) {
    char name[] = "no such file";
    CHECK(write(1, "by libc\n", 8) == 8);
    CHECK(pwrite(file, "libc", 4, 200) == 4 && pm[200] == 'l');
    CHECK(msync((void *)pm, 4096, MS_SYNC) == 0 && fsync(file) == 0);
    CHECK(open(name, O_RDWR) == -1 && rename(name, name) == -1 && unlink(name) == -1 && truncate(name, 5) == -1);
    char *again = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    CHECK(again != MAP_FAILED);
    again[300] = 1;
    CHECK(pm[300] == 1 && mprotect(again, 4096, PROT_READ) == 0 && munmap(again, 4096) == 0);
    CHECK(pread(file, (char *)pm + 400, 10, 100) == 10 && pm[400] == pm[100]);
    store();
}

static volatile int handled;

static void on_signal(int signal) {
    libc_calls();
    handled++;
}

static void *with_handler(void *argument) {
    struct stack least = make_stack(sysconf(_SC_MINSIGSTKSZ) + 4096);
    use_for_signals(least);
    handled = 0;
    raise(SIGUSR1);
    raise(SIGUSR1);
    CHECK(handled == 2);
    use_for_signals(make_stack(65536));
    check_below(least);
    return NULL;
}

static void *small(void *argument) {
    libc_calls();
    return NULL;
}

static void run(void *(*routine)(void *), long argument, size_t size) {
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    if (size != 0) pthread_attr_setstacksize(&attributes, size);
    CHECK(pthread_create(&thread, &attributes, routine, (void *)argument) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
}

int main(void) {
    map_pm();
    file = open(getenv("PM_FILE"), O_RDWR);
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK};
    sigaction(SIGUSR1, &action, NULL);
    run(small, 0, PTHREAD_STACK_MIN);
    run(with_handler, 0, 0);
    for (long call = 0; call < CALLS; call++) run(goroutine, call, 0);
    return 0;
}
