// System calls with buffers in PM that find them by an array or a message, made by instructions of the program's own, as Go makes them; and by
// libc's syscall() and its functions. Blocking ones, interrupted ones, and some that fail.
#include "pm.h"
#include <stdint.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>

static long raw(long number, long a, long b, long c, long d, long e, long f) {
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "0"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}

static long by_libc(long number, long a, long b, long c, long d, long e, long f) {
    long result = syscall(number, a, b, c, d, e, f);
    return result == -1 ? -errno : result;
}

static long by_function(long number, long a, long b, long c, long d, long e, long f) {
    const struct iovec *parts = (const struct iovec *)b;
    long result = -1;
    switch (number) {
    case SYS_read: result = read(a, (void *)b, c); break;
    case SYS_pread64: result = pread(a, (void *)b, c, d); break;
    case SYS_readv: result = readv(a, parts, c); break;
    case SYS_preadv: result = preadv(a, parts, c, d); break;
    case SYS_preadv2: result = preadv2(a, parts, c, d, f); break;
    case SYS_pwritev: result = pwritev(a, parts, c, d); break;
    case SYS_process_vm_readv: result = process_vm_readv(a, parts, c, (const struct iovec *)d, e, f); break;
    case SYS_recvmsg: result = recvmsg(a, (struct msghdr *)b, c); break;
    case SYS_recvmmsg: result = recvmmsg(a, (struct mmsghdr *)b, c, d, (struct timespec *)e); break;
    case SYS_recvfrom: result = recvfrom(a, (void *)b, c, d, NULL, NULL); break;
    default: CHECK(!"a call that has a function");
    }
    return result == -1 ? -errno : result;
}

typedef long (*call)(long, long, long, long, long, long, long);

static char ordinary[64];

static void print(const char *name, long result, const volatile char *at) {
    printf("%s %ld %.16s\n", name, result, at ? (const char *)at : "");
    fflush(stdout);
}

static void files(call make, volatile char *at) {
    char name[] = "/tmp/raw-reads-XXXXXX";
    int fd = mkstemp(name);
    CHECK(fd >= 0 && unlink(name) == 0 && write(fd, "0123456789abcdefghijklmnopqrstuvwxyz", 36) == 36);
    struct iovec parts[] = {{ordinary, 4}, {(void *)at, 10}, {(void *)(at + 100), 30}};
    lseek(fd, 0, SEEK_SET);
    print("readv", make(SYS_readv, fd, (long)parts, 3, 0, 0, 0), at);
    print("readv", 0, at + 100);
    print("readv at the end", make(SYS_readv, fd, (long)parts, 3, 0, 0, 0), at);
    print("preadv", make(SYS_preadv, fd, (long)parts, 2, 3, 0, 0), at);
    print("preadv2", make(SYS_preadv2, fd, (long)parts, 3, 20, 0, 0), at);
    print("preadv2", make(SYS_preadv2, fd, (long)parts, 3, -1, -1, 0), at);
    struct iovec remote = {(void *)"from this very process", 22}, local = {(void *)(at + 200), 22};
    print("process_vm_readv", make(SYS_process_vm_readv, getpid(), (long)&local, 1, (long)&remote, 1, 0), at + 200);
    // What the kernel refuses.
    print("no array", make(SYS_readv, fd, 8, 3, 0, 0, 0), NULL);
    print("too many", make(SYS_readv, fd, (long)parts, 5000, 0, 0, 0), NULL);
    print("no file", make(SYS_readv, -1, (long)parts, 3, 0, 0, 0), NULL);
    struct iovec bad[] = {{(void *)(at + 300), 4}, {(void *)8, 4}};
    lseek(fd, 0, SEEK_SET);
    print("half of it", make(SYS_readv, fd, (long)bad, 2, 0, 0, 0), at + 300);
    // PM that is not writable, alone and behind some that is; and a length that nothing has.
    int pool = open(getenv("PM_FILE"), O_RDWR);
    char *closed = mmap(NULL, 4096, PROT_READ, MAP_SHARED, pool, 0);
    CHECK(closed != MAP_FAILED);
    struct iovec shut[] = {{closed, 4}, {ordinary, 4}}, behind[] = {{(void *)(at + 300), 4}, {closed, 4}};
    struct iovec endless = {(void *)at, (size_t)-1};
    lseek(fd, 0, SEEK_SET);
    print("not writable", make(SYS_readv, fd, (long)shut, 2, 0, 0, 0), NULL);
    print("writable at first", make(SYS_readv, fd, (long)behind, 2, 0, 0, 0), at + 300);
    print("not writable", make(SYS_preadv, fd, (long)shut, 2, 0, 0, 0), NULL);
    print("endless", make(SYS_readv, fd, (long)&endless, 1, 0, 0, 0), NULL);
    munmap(closed, 4096);
    close(pool);
    print("pwritev", make(SYS_pwritev, fd, (long)&local, 1, 0, 0, 0), NULL);
    print("preadv", make(SYS_preadv, fd, (long)parts, 2, 0, 0, 0), at);
    close(fd);
}

// Behind the buffer is nothing: as much is read as there is room for.
static void over_the_end(call make, volatile char *at) {
    char *place = mmap(NULL, 4 * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int fd = open(getenv("PM_FILE"), O_RDWR), file = open("/proc/self/exe", O_RDONLY);
    CHECK(mmap(place, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, at - pm) == place);
    struct iovec parts[] = {{ordinary, 4}, {place + 4096 - 16, 100}, {ordinary, 4}};
    print("read", make(SYS_read, file, (long)(place + 4096 - 16), 100, 0, 0, 0), NULL);
    printf("position %ld, first byte %d\n", (long)lseek(file, 0, SEEK_CUR), place[4096 - 16]);
    print("pread", make(SYS_pread64, file, (long)(place + 4096 - 16), 100, 1, 0, 0), NULL);
    print("readv", make(SYS_readv, file, (long)parts, 3, 0, 0, 0), NULL);
    printf("position %ld\n", (long)lseek(file, 0, SEEK_CUR));
    print("nowhere", make(SYS_read, file, (long)(place + 4096), 100, 0, 0, 0), NULL);
    // Ordinary memory behind the view, which can be written.
    CHECK(mprotect(place + 4096, 4096, PROT_READ | PROT_WRITE) == 0);
    print("read", make(SYS_read, file, (long)(place + 4096 - 16), 100, 0, 0, 0), NULL);
    print("read", make(SYS_read, file, (long)(place + 4096 - 16), 3 * 4096, 0, 0, 0), NULL);
    munmap(place, 4 * 4096);
    close(fd);
    close(file);
}

static void messages(call make, volatile char *at) {
    int pair[2];
    CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == 0);
    struct iovec parts[] = {{(void *)at, 8}, {ordinary, 8}, {(void *)(at + 64), 32}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 3};
    CHECK(send(pair[1], "a message in several parts", 26, 0) == 26);
    print("recvmsg", make(SYS_recvmsg, pair[0], (long)&message, 0, 0, 0, 0), at);
    print("recvmsg", message.msg_flags, at + 64);
    // The message itself is in PM, its parts are not.
    struct msghdr *in_pm = (struct msghdr *)(at + 128);
    struct iovec one = {ordinary, 10};
    in_pm->msg_name = in_pm->msg_control = NULL;
    in_pm->msg_namelen = in_pm->msg_controllen = 0;
    in_pm->msg_iov = &one;
    in_pm->msg_iovlen = 1;
    in_pm->msg_flags = -1;
    CHECK(send(pair[1], "another message", 15, 0) == 15);
    print("recvmsg", make(SYS_recvmsg, pair[0], (long)in_pm, 0, 0, 0, 0), ordinary);
    print("truncated", in_pm->msg_flags == MSG_TRUNC, NULL);
    struct iovec first = {(void *)(at + 256), 16}, second = {(void *)(at + 320), 16};
    struct mmsghdr two[2] = {{.msg_hdr = {.msg_iov = &first, .msg_iovlen = 1}}, {.msg_hdr = {.msg_iov = &second, .msg_iovlen = 1}}};
    CHECK(send(pair[1], "first", 6, 0) == 6 && send(pair[1], "second", 7, 0) == 7);
    print("recvmmsg", make(SYS_recvmmsg, pair[0], (long)two, 2, 0, 0, 0), at + 256);
    print("recvmmsg", two[0].msg_len * 10 + two[1].msg_len, at + 320);
    CHECK(send(pair[1], "from", 5, 0) == 5);
    print("recvfrom", make(SYS_recvfrom, pair[0], (long)(at + 384), 16, 0, 0, 0), at + 384);
    print("nothing there", make(SYS_recvmsg, pair[0], (long)&message, MSG_DONTWAIT, 0, 0, 0), NULL);
    print("no message", make(SYS_recvmsg, pair[0], 8, 0, 0, 0, 0), NULL);
    print("no messages", make(SYS_recvmmsg, pair[0], 8, 2, MSG_DONTWAIT, 0, 0), NULL);
    close(pair[0]);
    close(pair[1]);
}

static volatile int restart, woken;
static int wake[2];

static void on_alarm(int signal) {
    (void)signal;
    store();
    // With SA_RESTART the call goes on; then there is something to read.
    if (restart && !woken++) CHECK(write(wake[1], "woken up", 8) == 8);
}

// A call that waits is interrupted, and restarted if the program wants that. The alarm comes until the call has begun.
static void interrupted(call make, volatile char *at) {
    struct iovec part = {(void *)at, 16};
    CHECK(pipe(wake) == 0);
    woken = 0;
    for (restart = 0; restart < 2; restart++) {
        struct sigaction action = {.sa_handler = on_alarm, .sa_flags = restart ? SA_RESTART : 0};
        sigaction(SIGALRM, &action, NULL);
        struct itimerval often = {{0, 20000}, {0, 20000}}, never = {0};
        setitimer(ITIMER_REAL, &often, NULL);
        long result = make(SYS_readv, wake[0], (long)&part, 1, 0, 0, 0);
        setitimer(ITIMER_REAL, &never, NULL);
        print("interrupted", result, restart ? at : NULL);
    }
    close(wake[0]);
    close(wake[1]);
}

int main(void) {
    map_pm();
    call ways[] = {raw, by_libc, by_function};
    for (int way = 0; way < 3; way++) {
        volatile char *at = pm + way * 8192;
        errno = 77;
        files(ways[way], at);
        messages(ways[way], at + 4096);
        interrupted(ways[way], at + 1024);
        over_the_end(ways[way], pm + 65536 + way * 4096);
    }
    return 0;
}
