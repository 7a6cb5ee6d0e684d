// Processes that die: of the same signal as without the runtime.
#include "pm.h"

static volatile int nothing;

static void fault(void) { *(volatile int *)8 = 1; }

static void plain(void) {
    store();
    fault();
}

static void ignored(void) {
    signal(SIGSEGV, SIG_IGN);
    fault();
}

static void survive(int signal) { _exit(9); }

static void blocked(void) {
    signal(SIGSEGV, survive);
    sighold(SIGSEGV);
    store();
    fault();
}

static volatile int depth;

static void fault_again(int signal) {
    if (depth++) _exit(9);
    store();
    fault();
}

static void in_handler(void) {
    signal(SIGSEGV, fault_again);
    fault();
}

static void once(int signal) { nothing = 1; }

static void reset(void) {
    struct sigaction action = {.sa_handler = once, .sa_flags = SA_RESETHAND | SA_NODEFER};
    sigaction(SIGSEGV, &action, NULL);
    raise(SIGSEGV);
    CHECK(nothing);
    fault();
}

static void breakpoint(void) { __asm__ volatile("int3"); }

static void sent(void) {
    kill(getpid(), SIGBUS);
    pause();
}

static void raised(void) { raise(SIGSYS); }

static int overflow(int n) {
    volatile char room[4096];
    room[0] = n;
    return overflow(n + 1) + room[0];
}

static void no_stack(void) {
    signal(SIGSEGV, survive);
    overflow(0);
}

static void overflow_caught(int signal) {
    store();
    _exit(42);
}

static void no_stack_but_alternate(void) {
    static char alternate[32768];
    stack_t stack = {.ss_sp = alternate, .ss_size = sizeof alternate};
    sigaltstack(&stack, NULL);
    struct sigaction action = {.sa_handler = overflow_caught, .sa_flags = SA_ONSTACK};
    sigaction(SIGSEGV, &action, NULL);
    overflow(0);
}

static void behind_the_file(void) {
    int fd = open(getenv("PM_FILE"), O_RDWR);
    volatile char *more = mmap(NULL, PM_SIZE + 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    more[PM_SIZE + 5000] = 1;
}

static void read_only(void) {
    int fd = open(getenv("PM_FILE"), O_RDWR);
    volatile char *view = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
    view[0] = 1;
}

static int status_of(void (*end)(void)) {
    fflush(NULL);
    pid_t child = fork();
    if (!child) {
        end();
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 1000 + WEXITSTATUS(status);
}

int main(void) {
    map_pm();
    store();
    CHECK(status_of(plain) == SIGSEGV);
    CHECK(status_of(ignored) == SIGSEGV);
    CHECK(status_of(blocked) == SIGSEGV);
    CHECK(status_of(in_handler) == SIGSEGV);
    CHECK(status_of(reset) == SIGSEGV);
    CHECK(status_of(breakpoint) == SIGTRAP);
    CHECK(status_of(sent) == SIGBUS);
    CHECK(status_of(raised) == SIGSYS);
    CHECK(status_of(abort) == SIGABRT);
    CHECK(status_of(no_stack) == SIGSEGV);
    CHECK(status_of(no_stack_but_alternate) == 1042);
    CHECK(status_of(behind_the_file) == SIGBUS);
    CHECK(status_of(read_only) == SIGSEGV);
    puts("done");
    return 0;
}
