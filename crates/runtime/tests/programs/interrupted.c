// Signals that arrive during a system call that writes to PM, and storms of them during stores.
#include "pm.h"
#include <sys/time.h>

static volatile int calls;
static sigjmp_buf jump;

static void count(int signal) {
    calls++;
    store();
}

static void leave(int signal) { siglongjmp(jump, 1); }

static void alarm_every(int first, int interval) {
    struct itimerval timer = {.it_value.tv_usec = first, .it_interval.tv_usec = interval};
    CHECK(setitimer(ITIMER_REAL, &timer, NULL) == 0);
}

static void handle(void (*handler)(int), int flags) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
}

int main(void) {
    map_pm();
    char *p = (char *)pm + 65536;
    int ends[2];
    CHECK(pipe(ends) == 0);

    handle(count, 0);
    alarm_every(20000, 0);
    CHECK(read(ends[0], p, 10) == -1 && errno == EINTR && calls == 1);

    handle(count, SA_RESTART);
    pid_t child = fork();
    if (!child) {
        usleep(100000);
        _exit(write(ends[1], "done", 4) != 4);
    }
    alarm_every(2000, 2000);
    CHECK(read(ends[0], p, 10) == 4 && !memcmp(p, "done", 4) && calls > 5);
    alarm_every(0, 0);
    CHECK(waitpid(child, NULL, 0) == child);

    // A handler on the program's alternate stack, whose store comes while our own stack has the call.
    static char alternate[65536];
    stack_t stack = {.ss_sp = alternate, .ss_size = sizeof alternate};
    sigaltstack(&stack, NULL);
    handle(count, SA_ONSTACK);
    calls = 0;
    alarm_every(5000, 0);
    CHECK(read(ends[0], p, 10) == -1 && errno == EINTR && calls == 1);

    for (int on_stack = 0; on_stack < 2; on_stack++) {
        handle(leave, on_stack ? SA_ONSTACK : 0);
        for (volatile int i = 0; i < 5; i++) {
            if (!sigsetjmp(jump, 1)) {
                alarm_every(3000, 0);
                CHECK(read(ends[0], p, 10) == 0);
            }
            store();
        }
    }

    handle(count, SA_RESTART);
    int fd = open("/etc/passwd", O_RDONLY);
    char text[20];
    CHECK(pread(fd, text, 20, 0) == 20);
    calls = 0;
    alarm_every(100, 100);
    for (int i = 0; i < 20000 || calls < 200; i++) {
        p[i % 1000] = i;
        CHECK(p[i % 1000] == (char)i);
        if (i % 100 == 0) CHECK(pread(fd, p + 2000, 20, 0) == 20 && !memcmp(p + 2000, text, 20));
    }
    alarm_every(0, 0);
    puts("done");
    return 0;
}
