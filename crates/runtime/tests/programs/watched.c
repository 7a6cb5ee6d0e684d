// A recovery program in many variants: `watched VARIANT`. It touches its PM in a way that the test knows.
#include "pm.h"
#include <pthread.h>
#include <stdint.h>
#include <sys/uio.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>

#define PAGES 64
#define PAGE 4096
#define LINE 64

static volatile char *p;
static int fd;

static volatile char *map(int protection, int flags) {
    void *mapped = mmap(NULL, PAGES * PAGE, protection, flags, fd, 0);
    CHECK(mapped != MAP_FAILED);
    return mapped;
}

// Stores to pages 3, 5 and 3 again, loads pages 5, 7, 1.
static int plain(void) {
    p = map(PROT_READ | PROT_WRITE, MAP_SHARED);
    p[3 * PAGE + 100] = 1;
    p[5 * PAGE] = 2;
    p[3 * PAGE + 200] = 3;
    return p[5 * PAGE] + p[7 * PAGE + 4095] + p[1 * PAGE] == 2 ? 0 : 1;
}

static int nothing(void) {
    return 0;
}

static int private_mapping(void) {
    p = map(PROT_READ | PROT_WRITE, MAP_PRIVATE);
    p[2 * PAGE] = 1;
    p[9 * PAGE]++;
    CHECK(p[4 * PAGE] == 0);
    return 0;
}

static int read_only(void) {
    close(fd);
    fd = open(getenv("PM_FILE"), O_RDONLY);
    CHECK(mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED && errno == EACCES);
    p = map(PROT_READ, MAP_SHARED);
    CHECK(mprotect((void *)p, PAGE, PROT_READ | PROT_WRITE) == -1 && errno == EACCES);
    CHECK(p[6 * PAGE] == 0 && p[2 * PAGE] == 0);
    return 0;
}

// The kernel writes to pages 1 to 3 and 10, and reads page 20 and 21.
static int calls(void) {
    p = map(PROT_READ | PROT_WRITE, MAP_SHARED);
    int zero = open("/dev/zero", O_RDONLY), sink = open("/dev/null", O_WRONLY);
    CHECK(read(zero, (char *)p + PAGE + 10, 2 * PAGE) == 2 * PAGE);
    struct iovec parts[] = {{(char *)p + 10 * PAGE, 8}, {(char *)p + 10 * PAGE + 8, 8}};
    CHECK(readv(zero, parts, 2) == 16);
    CHECK(write(sink, (char *)p + 20 * PAGE + 4000, 200) == 200);
    CHECK(syscall(SYS_read, zero, (char *)p + 30 * PAGE, 8) == 8);
    strcpy((char *)p + 31 * PAGE, "/dev/null");
    CHECK(open((char *)p + 31 * PAGE, O_RDONLY) >= 0);
    char *volatile nowhere = (char *)1;
    CHECK(read(zero, nowhere, 5) == -1 && errno == EFAULT);
    return 0;
}

// A mapping at an address of the program's choice, closed until mprotect opens it; then the kernel writes to page 2 and reads page 4.
static int opened_later(void) {
    int first[] = {PROT_NONE, PROT_READ};
    for (int i = 0; i < 2; i++) {
        char *at = (char *)0x10000000000 + i * 0x10000000;
        CHECK(mmap(at, 8 * PAGE, first[i], MAP_SHARED | MAP_FIXED, fd, 0) == at);
        CHECK(mprotect(at, 8 * PAGE, PROT_READ | PROT_WRITE) == 0);
        int zero = open("/dev/zero", O_RDONLY), sink = open("/dev/null", O_WRONLY);
        CHECK(read(zero, at + 2 * PAGE, 100) == 100);
        CHECK(write(sink, at + 4 * PAGE, 100) == 100);
    }
    return 0;
}

// Reads the file by its descriptor: page 2, lines 3 and 4 of page 5, page 8, all of pages 11 to 12, line 0 of page 20.
static int descriptor(void) {
    char buffer[3 * PAGE];
    CHECK(pread(fd, buffer, PAGE, 2 * PAGE) == PAGE);
    CHECK(pread(fd, buffer, 128, 5 * PAGE + 192) == 128);
    CHECK(lseek(fd, 8 * PAGE, SEEK_SET) == 8 * PAGE);
    CHECK(read(fd, buffer, 10) == 10);
    struct iovec parts[] = {{buffer, PAGE}, {buffer, PAGE}};
    CHECK(preadv(fd, parts, 2, 11 * PAGE) == 2 * PAGE);
    int sink = open("/dev/null", O_WRONLY);
    off_t offset = 20 * PAGE;
    CHECK(sendfile(sink, fd, &offset, 1) == 1);
    CHECK(pread(fd, buffer, PAGE, PAGES * PAGE) == 0);
    return 0;
}

static int forks(void) {
    p = map(PROT_READ | PROT_WRITE, MAP_SHARED);
    p[0] = 1;
    pid_t child = fork();
    if (child == 0) {
        p[2 * PAGE] = 1;
        _exit(p[0] == 1 ? 7 : 8);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 7);
    p[4 * PAGE] = p[2 * PAGE];
    return 0;
}

static sigjmp_buf jump;
static void *volatile where;

static void handler(int signal, siginfo_t *info, void *context) {
    where = info->si_addr;
    p[12 * PAGE] = 1;
    siglongjmp(jump, 1);
}

static int own_handler(void) {
    p = map(PROT_READ | PROT_WRITE, MAP_SHARED);
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
    CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
    if (!sigsetjmp(jump, 1)) *(volatile int *)0x1234 = p[3 * PAGE];
    CHECK(where == (void *)0x1234);
    // One operand in PM, the other nowhere.
    if (!sigsetjmp(jump, 1)) {
        const char *from = (const char *)p + 4 * PAGE;
        char *to = (char *)0x5678;
        asm volatile("movsb" : "+S"(from), "+D"(to)::"memory");
    }
    CHECK(where == (void *)0x5678);
    sigset_t all;
    sigfillset(&all);
    CHECK(sigprocmask(SIG_SETMASK, &all, NULL) == 0);
    p[5 * PAGE] = 1;
    // What it asked not to be allowed.
    sigemptyset(&all);
    CHECK(sigprocmask(SIG_SETMASK, &all, NULL) == 0);
    CHECK(mprotect((char *)p + 6 * PAGE, PAGE, PROT_READ) == 0);
    if (!sigsetjmp(jump, 1)) p[6 * PAGE + 5] = 1;
    CHECK(where == (void *)(p + 6 * PAGE + 5));
    CHECK(mprotect((char *)p + 6 * PAGE, PAGE, PROT_NONE) == 0);
    if (!sigsetjmp(jump, 1)) CHECK(p[6 * PAGE + 7] == 100);
    CHECK(where == (void *)(p + 6 * PAGE + 7));
    return 0;
}

static int dies(void) {
    p = map(PROT_READ | PROT_WRITE, MAP_SHARED);
    p[0] = 1;
    *(volatile int *)0x1234 = 1;
    return 0;
}

// The root of the structure in PM is a raw pointer to page 9.
static int raw_pointer(void) {
    p = map(PROT_READ | PROT_WRITE, MAP_SHARED);
    volatile char *object = *(volatile char *volatile *)p;
    CHECK(object == p + 9 * PAGE);
    return object[1] == 0 ? 0 : 1;
}

static void *thread(void *argument) {
    p[2 * PAGE]++;
    return NULL;
}

static int threads(void) {
    p = map(PROT_READ | PROT_WRITE, MAP_SHARED);
    p[PAGE]++;
    pthread_t t;
    CHECK(pthread_create(&t, NULL, thread, NULL) == 0 && pthread_join(t, NULL) == 0);
    p[3 * PAGE]++;
    return 0;
}

// A few hundred loads and stores of all sizes in the first 16 pages; the test makes the same ones.
static int random_touches(void) {
    p = map(PROT_READ | PROT_WRITE, MAP_SHARED);
    uint64_t state = strtoull(getenv("SEED"), NULL, 10), sum = 0;
    for (int i = 0; i < 40; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        uint64_t r = state >> 33;
        volatile char *at = p + r % (16 * PAGE - 64);
        switch (r >> 20 & 7) {
        case 0: sum += *(volatile uint8_t *)at; break;
        case 1: sum += *(volatile uint32_t *)at; break;
        case 2: sum += *(volatile uint64_t *)at; break;
        case 3: *(volatile uint64_t *)at = i; break;
        case 4: *(volatile uint8_t *)at += 1; break;
        case 5: {
            __int128 both;
            asm volatile("movups (%1), %%xmm0\n movups %%xmm0, %0" : "=m"(both) : "r"(at) : "xmm0");
            sum += (uint64_t)both;
            break;
        }
        case 6: {
            char copy[24];
            const char *from = (const char *)at;
            char *to = copy;
            long n = 24;
            asm volatile("rep movsb" : "+S"(from), "+D"(to), "+c"(n)::"memory");
            sum += copy[23];
            break;
        }
        case 7: asm volatile("lock incl %0" : "+m"(*(volatile uint32_t *)((uintptr_t)at & ~63ul))); break;
        }
    }
    return sum == 12345 ? 1 : 0;
}

// Loads each line of page 0, again and again.
static int busy_page(void) {
    p = map(PROT_READ | PROT_WRITE, MAP_SHARED);
    int sum = 0;
    for (int i = 0; i < 100; i++) sum += p[i % 4 * LINE];
    sum += p[40 * LINE];
    return sum;
}

// Remaps, protects, unmaps.
static int moves(void) {
    p = map(PROT_READ | PROT_WRITE, MAP_SHARED);
    p[PAGE] = 1;
    p[3 * PAGE] = 1;
    volatile char *q = mremap((void *)p, 8 * PAGE, 16 * PAGE, MREMAP_MAYMOVE);
    CHECK(q != MAP_FAILED && q != p);
    CHECK(q[PAGE] == 1 && q[3 * PAGE] == 1);
    q[10 * PAGE] = 1;
    p[20 * PAGE] = 1;
    CHECK(mprotect((void *)q, 16 * PAGE, PROT_READ) == 0 && q[10 * PAGE] == 1);
    CHECK(mprotect((void *)q, 16 * PAGE, PROT_READ | PROT_WRITE) == 0);
    q[10 * PAGE] = 2;
    q[11 * PAGE] = 2;
    CHECK(munmap((void *)(q + 4 * PAGE), 4 * PAGE) == 0);
    CHECK(mmap((void *)q, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == q);
    q[0] = 5;
    volatile char *r = map(PROT_READ | PROT_WRITE, MAP_SHARED);
    CHECK(r[3 * PAGE] == 1 && r[0] == 0);
    r[12 * PAGE] = 1;
    // At an address of the program's choice.
    volatile char *fixed = mmap((void *)0x410000000000, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 30 * PAGE);
    int zero = open("/dev/zero", O_RDONLY);
    CHECK(read(zero, (void *)fixed, 8) == 8);
    return 0;
}

static int executes(void) {
    p = map(PROT_READ | PROT_WRITE, MAP_SHARED);
    p[0] = 1;
    return system("exit 3") == 3 << 8 ? 0 : 1;
}

static int executes_itself(void) {
    if (getenv("CRASHPROOF_SERVER")) return 1;
    execl("/proc/self/exe", "watched", "plain", NULL);
    return 2;
}

static int flushes(void) {
    p = map(PROT_READ | PROT_WRITE, MAP_SHARED);
    asm volatile("clflush %0" : "+m"(p[2 * PAGE]));
    p[3 * PAGE] = 1;
    asm volatile("clflush %0" : "+m"(p[3 * PAGE]));
    return 0;
}

static void divided(int signal, siginfo_t *info, void *context) {
    siglongjmp(jump, 2);
}

static void behind(int signal, siginfo_t *info, void *context) {
    where = info->si_addr;
    siglongjmp(jump, 3);
}

// The instruction that touches PM raises a signal of its own; then page 2 is touched, and what is behind the end.
static int raises(void) {
    p = map(PROT_READ | PROT_WRITE, MAP_SHARED);
    struct sigaction action = {.sa_sigaction = divided, .sa_flags = SA_SIGINFO};
    CHECK(sigaction(SIGFPE, &action, NULL) == 0);
    action.sa_sigaction = behind;
    CHECK(sigaction(SIGBUS, &action, NULL) == 0);
    for (int i = 0; i < 2; i++) {
        int left = sigsetjmp(jump, 1);
        if (!left) {
            asm volatile("idivl %0" ::"m"(p[PAGE + i * LINE]), "a"(1), "d"(0));
            CHECK(0);
        }
        CHECK(left == 2);
    }
    sigset_t set;
    CHECK(sigprocmask(SIG_BLOCK, NULL, &set) == 0 && !sigismember(&set, SIGINT));
    CHECK(p[2 * PAGE] == 0);
    CHECK(sigprocmask(SIG_BLOCK, NULL, &set) == 0 && !sigismember(&set, SIGINT));
    volatile char *end = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, PAGES * PAGE);
    CHECK(end != MAP_FAILED);
    int left = sigsetjmp(jump, 1);
    if (!left) CHECK(end[5] == 100);
    CHECK(left == 3 && where == (void *)(end + 5));
    CHECK(sigprocmask(SIG_BLOCK, NULL, &set) == 0 && !sigismember(&set, SIGINT));
    return 0;
}

// Touches every other page of a large file, more pieces than the kernel could keep apart.
static int islands(void) {
    const size_t count = 34000;
    CHECK(ftruncate(fd, count * PAGE) == 0);
    p = mmap(NULL, count * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(p != MAP_FAILED);
    for (size_t i = 0; i < count; i += 2) CHECK(p[i * PAGE] == 0);
    p[PAGE] = 1;
    return p[3 * PAGE];
}

static int thread_exit(void) {
    p = map(PROT_READ | PROT_WRITE, MAP_SHARED);
    p[PAGE] = 1;
    pthread_exit(NULL);
}

static int exit_handler(void) {
    p = map(PROT_READ | PROT_WRITE, MAP_SHARED);
    printf("%d\n", 5 + p[0]);
    return 42;
}

static const struct {
    const char *name;
    int (*run)(void);
} variants[] = {
    {"plain", plain},
    {"nothing", nothing},
    {"private", private_mapping},
    {"read-only", read_only},
    {"calls", calls},
    {"opened-later", opened_later},
    {"descriptor", descriptor},
    {"forks", forks},
    {"own-handler", own_handler},
    {"dies", dies},
    {"raw-pointer", raw_pointer},
    {"threads", threads},
    {"random", random_touches},
    {"busy-page", busy_page},
    {"moves", moves},
    {"executes", executes},
    {"executes-itself", executes_itself},
    {"flushes", flushes},
    {"raises", raises},
    {"islands", islands},
    {"thread-exit", thread_exit},
    {"exit", exit_handler},
};

int main(int count, char **arguments) {
    fd = open(getenv("PM_FILE"), O_RDWR);
    CHECK(fd >= 0 && fd < 10 && count == 2);
    CHECK(getenv("CRASHPROOF_SERVER") == NULL);
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++)
        if (!strcmp(arguments[1], variants[i].name)) return variants[i].run();
    return 99;
}

// What happens before `main` must not depend on PM, if it is to be shared by all runs.
__attribute__((constructor)) static void early(void) {
    const char *what = getenv("EARLY");
    if (!what) return;
    if (!strcmp(what, "open")) CHECK(open(getenv("PM_FILE"), O_RDONLY) >= 0);
    if (!strcmp(what, "read")) {
        FILE *file = fopen(getenv("PM_FILE"), "r");
        CHECK(file && fgetc(file) != EOF);
        fclose(file);
    }
    if (!strcmp(what, "thread")) {
        static pthread_t t;
        CHECK(pthread_create(&t, NULL, (void *(*)(void *))sleep, (void *)100) == 0);
    }
}
