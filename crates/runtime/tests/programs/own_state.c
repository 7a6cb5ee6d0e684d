// `errno` and everything else that belongs to the program's thread, read and set around every kind of event: what the program stored there stays,
// and nothing else changes it. What system calls and libc leave behind is printed, and must be the same as natively.
#include "pm.h"
#include <dlfcn.h>
#include <emmintrin.h>
#include <fenv.h>
#include <cpuid.h>
#include <pthread.h>
#include <spawn.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#define ROUNDS 4

extern char **environ;
static int has_clwb, has_clflushopt, has_avx, has_avx512;
static int fd, *location;
static char path[4096], other[4200];
static volatile double ten = 10.0;

static void look_at_processor(void) {
    unsigned a, b, c, d;
    has_avx = __builtin_cpu_supports("avx");
    has_avx512 = __builtin_cpu_supports("avx512f");
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) {
        has_clflushopt = b >> 23 & 1;
        has_clwb = b >> 24 & 1;
    }
}

// Each event is followed at once by loads and stores of `errno`, which the runtime may execute together with it.
#define AROUND(event)                                                                                                     \
    for (int round = 0; round < ROUNDS; round++) {                                                                        \
        errno = 17 + round;                                                                                               \
        event;                                                                                                            \
        CHECK(errno == 17 + round);                                                                                       \
        event;                                                                                                            \
        errno = 0;                                                                                                        \
        CHECK(strtoull("18", NULL, 10) == 18 && errno == 0);                                                              \
        CHECK(mkdir("/", 0700) == -1);                                                                                    \
        event;                                                                                                            \
        CHECK(errno == EEXIST);                                                                                           \
        event;                                                                                                            \
        *location = 40 + round;                                                                                           \
        event;                                                                                                            \
        CHECK(*location == 40 + round);                                                                                   \
        event;                                                                                                            \
        *location += 1;                                                                                                   \
        CHECK(errno == 41 + round);                                                                                       \
        CHECK(mkdir("/", 0700) == -1 && errno == EEXIST);                                                                 \
    }

static void instructions(void) {
    volatile char *p = pm;
    char source[512];
    memset(source, 7, sizeof source);
    AROUND(p[0] = 1);
    AROUND(*(volatile short *)(p + 2) = 2);
    AROUND(*(volatile int *)(p + 4) = 3);
    AROUND(*(volatile long *)(p + 8) = 4);
    AROUND(*(volatile long *)(p + 61) = 5);
    AROUND(p[0] += 1);
    AROUND(*(volatile double *)(p + 16) = ten);
    AROUND(_mm_storeu_si128((__m128i *)(pm + 32), _mm_set1_epi8(9)));
    AROUND(memset((void *)(p + 64), 0xff, 16));
    AROUND(memset((void *)(p + 64), 0xff, 400));
    AROUND(memcpy((void *)(p + 640), source, 33));
    AROUND(memcpy((void *)(p + 640), source, 512));
    AROUND({
        void *to = (void *)(p + 1280);
        long n = 100;
        __asm__ volatile("rep stosb" : "+D"(to), "+c"(n) : "a"(1) : "memory");
    });
    AROUND({
        void *to = (void *)(p + 1280);
        const void *from = source;
        long n = 20;
        __asm__ volatile("rep movsq" : "+D"(to), "+S"(from), "+c"(n)::"memory");
    });
    AROUND(__asm__ volatile("fldpi; fstpl %0" : "=m"(*(volatile double *)(p + 24))));
    AROUND(_mm_stream_si32((int *)(pm + 128), 1));
    AROUND(_mm_stream_si128((__m128i *)(pm + 192), _mm_set1_epi8(9)));
    AROUND(__atomic_fetch_add((long *)(pm + 256), 1, __ATOMIC_SEQ_CST));
    AROUND(__atomic_fetch_or((long *)(pm + 256), 64, __ATOMIC_SEQ_CST));
    AROUND(__atomic_exchange_n((long *)(pm + 256), 1, __ATOMIC_SEQ_CST));
    AROUND({
        long expected = 12345;
        CHECK(!__atomic_compare_exchange_n((long *)(pm + 256), &expected, 1, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
    });
    AROUND(_mm_clflush((void *)p));
    if (has_clflushopt) AROUND(__asm__ volatile("clflushopt %0" : "+m"(*p)));
    if (has_clwb) AROUND(__asm__ volatile("clwb %0" : "+m"(*p)));
    AROUND(_mm_sfence());
    AROUND(_mm_mfence());
    AROUND({
        p[0] = 1;
        memset((void *)(p + 8), 0xff, 16);
        __atomic_fetch_or((long *)(pm + 256), 64, __ATOMIC_SEQ_CST);
        _mm_clflush((void *)p);
        _mm_sfence();
    });
    puts("instructions");
}

static void *empty(void *argument) {
    pm[4000] = 1;
    return (void *)(long)errno;
}

// Prints what the call leaves in `errno`, which was 1000 before.
#define CALL(call)                                                                                                        \
    for (int round = 0; round < 2; round++) {                                                                             \
        errno = 1000;                                                                                                     \
        long result = (long)(call);                                                                                       \
        int left = errno;                                                                                                 \
        printf("%s: %s, errno %d\n", #call, result == -1 ? "-1" : result == 0 ? "0" : "value", left);                     \
    }

static int run_child(void) {
    int status;
    pid_t child = fork();
    int left = errno;
    if (child == 0) _exit(left == 1000 ? 7 : 8);
    int result = waitpid(child, &status, 0) == child ? WEXITSTATUS(status) : -1;
    return result == 7 ? 0 : 1;
}

static int spawn(const char *name) {
    char *arguments[] = {(char *)name, NULL};
    pid_t child;
    int status, error = posix_spawn(&child, name, NULL, NULL, arguments, environ);
    if (error == 0) waitpid(child, &status, 0);
    return error;
}

static int start_thread(void) {
    pthread_t thread;
    void *result;
    if (pthread_create(&thread, NULL, empty, NULL)) return 1;
    pthread_join(thread, &result);
    return result == NULL ? 0 : 1;
}

static int map_and_unmap(int prot, off_t offset) {
    void *at = mmap(NULL, 4096, prot, MAP_SHARED, fd, offset);
    if (at == MAP_FAILED) return -1;
    if (prot & PROT_WRITE) *(volatile char *)at = 1;
    return munmap(at, 4096);
}

static long move(void) {
    void *at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    void *moved = mremap(at, 4096, 8192, MREMAP_MAYMOVE);
    return moved == MAP_FAILED ? -1 : munmap(moved, 8192);
}

static void calls(void) {
    struct iovec parts[2] = {{(void *)(pm + 4096), 10}, {(void *)(pm + 4200), 10}};
    struct sigaction action = {.sa_handler = SIG_IGN};
    sigset_t set;
    stack_t stack;
    int zero = open("/dev/zero", O_RDONLY);
    sigemptyset(&set);
    sigaddset(&set, SIGSEGV);
    CALL(msync((void *)pm, 4096, MS_SYNC));
    CALL(msync((void *)(pm + 1), 4096, MS_SYNC));
    CALL(fsync(fd));
    CALL(fdatasync(fd));
    CALL(fsync(-1));
    CALL(write(fd, "x", 1));
    CALL(write(-1, "x", 1));
    CALL(pwrite(fd, "x", 1, 100));
    CALL(pwrite(fd, "x", 1, -100));
    CALL(writev(fd, parts, 2));
    CALL(read(zero, (void *)pm, 16));
    CALL(read(-1, (void *)pm, 16));
    CALL(readv(zero, parts, 2));
    CALL(readv(-1, parts, 2));
    CALL(map_and_unmap(PROT_READ | PROT_WRITE, 0));
    CALL(map_and_unmap(PROT_READ, 0));
    CALL(map_and_unmap(PROT_READ | PROT_WRITE, 1));
    CALL(munmap((void *)(pm + 1), 4096));
    CALL(move());
    CALL(mprotect((void *)pm, 4096, PROT_READ | PROT_WRITE));
    CALL(mprotect((void *)(pm + 1), 4096, PROT_READ));
    CALL(ftruncate(fd, PM_SIZE));
    CALL(ftruncate(-1, PM_SIZE));
    CALL(truncate("/no/such/file", 1));
    CALL(fallocate(fd, 0, 0, 4096));
    CALL(fallocate(-1, 0, 0, 4096));
    CALL(posix_fallocate(fd, 0, 4096));
    CALL(posix_fallocate(-1, 0, 4096));
    CALL(rename(path, other));
    CALL(rename(other, path));
    CALL(unlink("/no/such/file"));
    CALL(remove("/no/such/file"));
    CALL(linkat(AT_FDCWD, "/no/such/file", AT_FDCWD, "/no/such/name", 0));
    CALL(syscall(SYS_pwrite64, fd, "x", 1, 100));
    CALL(syscall(SYS_pwrite64, -1, "x", 1, 100));
    CALL(sigprocmask(SIG_BLOCK, &set, NULL));
    CALL(sigprocmask(SIG_UNBLOCK, &set, NULL));
    CALL(sigprocmask(77, &set, NULL));
    CALL(sigaction(SIGUSR2, &action, NULL));
    CALL(sigaction(SIGSEGV, NULL, &action));
    CALL(sigaction(77, &action, NULL));
    CALL(sigaltstack(NULL, &stack));
    CALL(pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, NULL));
    CALL(start_thread());
    CALL(run_child());
    CALL(spawn("/bin/true"));
    CALL(spawn("/no/such/program"));
    CALL(execl("/no/such/program", "x", NULL));
    CALL(execv("/no/such/program", environ));
    CALL(dlopen("libm.so.6", RTLD_NOW) == NULL);
    CALL(dlopen("no-such-library.so", RTLD_NOW) == NULL);
    // The error of the last is still there after everything that may look a function up.
    pm[0] = 1;
    _mm_clflush((void *)pm);
    map_and_unmap(PROT_READ | PROT_WRITE, 0);
    pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, NULL);
    const char *error = dlerror();
    printf("dlerror: %s\n", error ? error : "none");
    printf("a new descriptor: %d\n", dup(zero));
}

static void set_errno(int signal) {
    pm[100] = signal;
    errno = 77;
}

static void skip(int signal, siginfo_t *info, void *context) {
    // "movb $1, (%rax)" has three bytes.
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] += 3;
    errno = 78;
}

static void handlers(void) {
    static char alternate[65536];
    stack_t stack = {.ss_sp = alternate, .ss_size = sizeof alternate}, known;
    CHECK(sigaltstack(&stack, NULL) == 0);
    for (int on_stack = 0; on_stack < 2; on_stack++) {
        struct sigaction action = {.sa_handler = set_errno, .sa_flags = on_stack ? SA_ONSTACK : 0};
        sigaction(SIGUSR1, &action, NULL);
        action = (struct sigaction){.sa_sigaction = skip, .sa_flags = SA_SIGINFO | (on_stack ? SA_ONSTACK : 0)};
        sigaction(SIGSEGV, &action, NULL);
        for (int i = 0; i < ROUNDS; i++) {
            errno = 5;
            pm[0] = 1;
            raise(SIGUSR1);
            CHECK(errno == 77);
            pm[0] = 2;
            errno = 6;
            __asm__ volatile("movb $1, (%%rax)" ::"a"(1) : "memory");
            CHECK(errno == 78);
        }
    }
    CHECK(sigaltstack(NULL, &known) == 0 && known.ss_sp == alternate && known.ss_size == sizeof alternate);
    signal(SIGSEGV, SIG_DFL);
    puts("handlers");
}

// The registers that no function keeps, around stores, flushes and fences; the store of `errno` in between is one of ordinary memory.
#define EVENTS                                                                                                            \
    "movq $1, (%[pm])\n movl $3, (%[place])\n clflush (%[pm])\n movntiq %[pm], 64(%[pm])\n sfence\n"                      \
    "lock incq 128(%[pm])\n movups %%xmm3, 256(%[pm])\n mfence\n"

static void registers(void) {
    unsigned char in[32 * 64], out[32 * 64];
    for (unsigned i = 0; i < sizeof in; i++) in[i] = i * 7 + 1;
    for (int round = 0; round < ROUNDS; round++) {
        memset(out, 0, sizeof out);
        __asm__ volatile("movups (%[in]), %%xmm0\n movups 16(%[in]), %%xmm3\n movups 32(%[in]), %%xmm15\n" EVENTS
                         "movups %%xmm0, (%[out])\n movups %%xmm3, 16(%[out])\n movups %%xmm15, 32(%[out])"
                         ::[in] "r"(in), [out] "r"(out), [pm] "r"(pm), [place] "r"(location)
                         : "xmm0", "xmm3", "xmm15", "memory");
        CHECK(memcmp(in, out, 48) == 0);
        if (has_avx) {
            __asm__ volatile("vmovups (%[in]), %%ymm0\n vmovups 32(%[in]), %%ymm15\n" EVENTS
                             "vmovups %%ymm0, (%[out])\n vmovups %%ymm15, 32(%[out])\n vzeroupper"
                             ::[in] "r"(in), [out] "r"(out), [pm] "r"(pm), [place] "r"(location)
                             : "xmm0", "xmm15", "memory");
            CHECK(memcmp(in, out, 64) == 0);
        }
        if (has_avx512) {
            __asm__ volatile("vmovups (%[in]), %%zmm0\n vmovups 64(%[in]), %%zmm31\n kmovw (%[in]), %%k1\n" EVENTS
                             "vmovups %%zmm0, (%[out])\n vmovups %%zmm31, 64(%[out])\n kmovw %%k1, 128(%[out])\n vzeroupper"
                             ::[in] "r"(in), [out] "r"(out), [pm] "r"(pm), [place] "r"(location)
                             : "xmm0", "memory");
            CHECK(memcmp(in, out, 128) == 0 && memcmp(in, out + 128, 2) == 0);
        }
        long flags = 0;
        // Direction and carry, and a string store that goes down.
        void *to = (void *)(pm + 600);
        long n = 8;
        __asm__ volatile("std\n stc\n" EVENTS "stc\n movb $1, 300(%[pm])\n rep stosb\n pushfq\n cld\n popq %[flags]"
                         : [flags] "=r"(flags), "+D"(to), "+c"(n)
                         : "a"(1), [pm] "r"(pm), [place] "r"(location)
                         : "memory", "cc");
        __asm__ volatile("cld");
        CHECK((flags & 0x401) == 0x401 && to == (void *)(pm + 592) && n == 0);
    }
    puts("registers");
}

static void floating_point(void) {
    unsigned csr = _mm_getcsr();
    for (int round = 0; round < ROUNDS; round++) {
        CHECK(fesetround(FE_TOWARDZERO) == 0 && feclearexcept(FE_ALL_EXCEPT) == 0);
        pm[0] = 1;
        _mm_clflush((void *)pm);
        _mm_sfence();
        CHECK(fegetround() == FE_TOWARDZERO && fetestexcept(FE_ALL_EXCEPT) == 0);
        volatile double *at = (volatile double *)(pm + 512);
        at[0] = 1.0;
        at[1] = 1.0 / ten;
        CHECK(fetestexcept(FE_INEXACT) && at[1] < 0.1);
        pm[0] = 2;
        CHECK(fetestexcept(FE_ALL_EXCEPT) == FE_INEXACT);
        // A value on the x87 stack, and its control word.
        short control = 0x0c7f, known = 0;
        long double result;
        __asm__ volatile("fldcw %1\n fldpi\n movq $1, (%[pm])\n clflush (%[pm])\n sfence\n fnstcw %2\n fstpt %0\n fninit"
                         : "=m"(result)
                         : "m"(control), "m"(known), [pm] "r"(pm)
                         : "memory");
        CHECK(result > 3.14159L && result < 3.1416L && known == control);
        _mm_setcsr(csr);
    }
    puts("floating point");
}

static void masks(void) {
    sigset_t blocked, known;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR1);
    sigaddset(&blocked, SIGTRAP);
    CHECK(sigprocmask(SIG_SETMASK, &blocked, NULL) == 0);
    for (int round = 0; round < ROUNDS; round++) {
        pm[0] = round;
        _mm_clflush((void *)pm);
        _mm_sfence();
        map_and_unmap(PROT_READ | PROT_WRITE, 0);
        CHECK(sigprocmask(SIG_BLOCK, NULL, &known) == 0);
        for (int signal = 1; signal < 32; signal++) CHECK(sigismember(&known, signal) == sigismember(&blocked, signal));
    }
    sigemptyset(&blocked);
    CHECK(sigprocmask(SIG_SETMASK, &blocked, NULL) == 0);
    puts("masks");
}

int main(void) {
    printf("at the start: errno %d, dlerror %s\n", errno, dlerror() ? "set" : "none");
    setvbuf(stdout, NULL, _IOFBF, 1 << 16);
    location = &errno;
    look_at_processor();
    map_pm();
    snprintf(path, sizeof path, "%s", getenv("PM_FILE"));
    snprintf(other, sizeof other, "%s.other", path);
    fd = open(path, O_RDWR);
    CHECK(fd >= 0);
    instructions();
    calls();
    handlers();
    registers();
    floating_point();
    masks();
    return 0;
}
