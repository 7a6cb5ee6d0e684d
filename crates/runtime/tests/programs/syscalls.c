// System calls, libc's own included, that write to PM.
#include "pm.h"
#include <aio.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <time.h>

static char text[4096];
static size_t length;
static char *p;

static void stdio(void) {
    FILE *file = fopen("/etc/passwd", "r");
    length = fread(text, 1, sizeof text, file);
    rewind(file);
    CHECK(fread(p, 1, length, file) == length && !memcmp(p, text, length));
    rewind(file);
    setvbuf(file, p, _IOFBF, 4096);
    char *line = NULL;
    size_t room = 0;
    CHECK(getline(&line, &room, file) > 0 && !strncmp(line, text, strlen(line)));
    rewind(file);
    CHECK(fgets(p + 8192, 100, file) && !strncmp(p + 8192, text, strlen(p + 8192)));
    fclose(file);
    free(line);
}

static void files(void) {
    int fd = open("/etc/passwd", O_RDONLY);
    CHECK(read(fd, p + 3, 5) == 5 && !memcmp(p + 3, text, 5));
    CHECK(pread(fd, p, 7, 2) == 7 && !memcmp(p, text + 2, 7));
    char volatile_part[4];
    struct iovec parts[3] = {{p + 100, 3}, {volatile_part, 4}, {p + 200, 5}};
    for (int way = 0; way < 4; way++) {
        memset(p + 100, 0, 200);
        lseek(fd, 0, SEEK_SET);
        ssize_t n = way == 0   ? readv(fd, parts, 3)
                    : way == 1 ? preadv(fd, parts, 3, 0)
                    : way == 2 ? preadv2(fd, parts, 3, 0, 0)
                               : syscall(SYS_readv, fd, parts, 3);
        CHECK(n == 12 && !memcmp(p + 100, text, 3) && !memcmp(volatile_part, text + 3, 4) && !memcmp(p + 200, text + 7, 5));
    }
    struct iovec from = {text, 12};
    CHECK(process_vm_readv(getpid(), parts, 3, &from, 1, 0) == 12 && !memcmp(p + 200, text + 7, 5));
    CHECK(read(fd, p + 1, 0) == 0);
    CHECK(read(99, p, 10) == -1 && errno == EBADF);
    struct stat *status = (struct stat *)(p + 400);
    CHECK(fstat(fd, status) == 0 && S_ISREG(status->st_mode));
    CHECK(stat("/", status) == 0 && S_ISDIR(status->st_mode));
    struct statx *extended = (struct statx *)(p + 600);
    CHECK(statx(AT_FDCWD, "/", 0, STATX_TYPE, extended) == 0 && S_ISDIR(extended->stx_mode));
    CHECK(statfs("/", (struct statfs *)(p + 1000)) == 0);
    CHECK(getcwd(p, 1000) == p && p[0] == '/');
    CHECK(readlink("/proc/self/exe", p, 100) > 0 && p[0] == '/');
    int directory = open("/", O_RDONLY | O_DIRECTORY);
    CHECK(syscall(SYS_getdents64, directory, p, 4096) > 0);
    close(directory);

    char name[] = "bigXXXXXX";
    int big = mkstemp(name);
    unlink(name);
    char *data = malloc(300000);
    for (int i = 0; i < 300000; i++) data[i] = i * 7;
    CHECK(write(big, data, 300000) == 300000);
    lseek(big, 0, SEEK_SET);
    CHECK(read(big, p, 300000) == 300000 && !memcmp(p, data, 300000));
    FILE *file = fdopen(big, "r");
    rewind(file);
    memset(p, 0, 100);
    CHECK(fread(p, 1, 300000, file) == 300000 && !memcmp(p, data, 300000));
    fclose(file);
    free(data);

    int pm_fd = open(getenv("PM_FILE"), O_RDWR);
    char *read_only = mmap(NULL, 4096, PROT_READ, MAP_SHARED, pm_fd, 0);
    CHECK(pread(fd, read_only, 5, 0) == -1 && errno == EFAULT);
    close(pm_fd);
    close(fd);
}

static void system_state(void) {
    CHECK(getrandom(p, 16, 0) == 16);
    CHECK(uname((struct utsname *)p) == 0 && !strcmp(p, "Linux"));
    CHECK(clock_gettime(CLOCK_REALTIME, (struct timespec *)p) == 0 && ((struct timespec *)p)->tv_sec > 1000000);
    CHECK(syscall(SYS_clock_gettime, CLOCK_REALTIME, p) == 0);
    CHECK(time((time_t *)p) > 1000000);
    CHECK(gettimeofday((struct timeval *)p, NULL) == 0);
    CHECK(getrusage(RUSAGE_SELF, (struct rusage *)p) == 0);
    CHECK(getrlimit(RLIMIT_NOFILE, (struct rlimit *)p) == 0 && ((struct rlimit *)p)->rlim_cur > 0);
    pid_t child = fork();
    if (!child) _exit(3);
    CHECK(waitpid(child, (int *)(p + 6000), 0) == child && WEXITSTATUS(*(int *)(p + 6000)) == 3);
}

static void sockets(void) {
    int pair[2], datagrams[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0 && socketpair(AF_UNIX, SOCK_DGRAM, 0, datagrams) == 0);
    CHECK(send(pair[0], "hello world", 11, 0) == 11 && recv(pair[1], p, 5, 0) == 5 && !memcmp(p, "hello", 5));
    char volatile_part[1];
    struct iovec parts[3] = {{p + 100, 2}, {volatile_part, 1}, {p + 200, 10}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 3};
    CHECK(recvmsg(pair[1], &message, 0) == 6 && !memcmp(p + 100, " w", 2) && !memcmp(p + 200, "rld", 3));
    // The message itself in PM.
    struct msghdr *in_pm = (struct msghdr *)(p + 512);
    memset(in_pm, 0, sizeof *in_pm);
    in_pm->msg_iov = parts;
    in_pm->msg_iovlen = 1;
    in_pm->msg_flags = 77;
    CHECK(write(pair[0], "abc", 3) == 3 && recvmsg(pair[1], in_pm, 0) == 2 && in_pm->msg_flags == 0);
    CHECK(!memcmp(p + 100, "ab", 2));
    struct mmsghdr several[2] = {{.msg_hdr = {.msg_iov = parts, .msg_iovlen = 1}}, {.msg_hdr = {.msg_iov = parts + 2, .msg_iovlen = 1}}};
    CHECK(send(datagrams[0], "xy", 2, 0) == 2 && send(datagrams[0], "mnop", 4, 0) == 4);
    CHECK(recvmmsg(datagrams[1], several, 2, 0, NULL) == 2 && several[0].msg_len == 2 && several[1].msg_len == 4);
    CHECK(!memcmp(p + 100, "xy", 2) && !memcmp(p + 200, "mnop", 4));
    socklen_t *len = (socklen_t *)(p + 1024);
    *len = 4;
    CHECK(getsockopt(pair[0], SOL_SOCKET, SO_TYPE, p + 1032, len) == 0 && *(int *)(p + 1032) == SOCK_STREAM && *len == 4);
    *len = sizeof(struct sockaddr_un);
    CHECK(getsockname(pair[0], (struct sockaddr *)(p + 1100), len) == 0 && *len == 2);
    CHECK(((struct sockaddr *)(p + 1100))->sa_family == AF_UNIX);
}

static void descriptors(void) {
    int *ends = (int *)(p + 2000);
    CHECK(pipe(ends) == 0 && write(ends[1], "q", 1) == 1);
    // At the very end of the mapping, where the runtime does not know how much the kernel will write.
    int *available = (int *)(pm + PM_SIZE - sizeof(int));
    CHECK(ioctl(ends[0], FIONREAD, available) == 0 && *available == 1);
    struct pollfd *polled = (struct pollfd *)(p + 3000);
    *polled = (struct pollfd){.fd = ends[0], .events = POLLIN};
    CHECK(poll(polled, 1, 0) == 1 && polled->revents == POLLIN && polled->fd == ends[0]);
    fd_set *set = (fd_set *)(p + 4096);
    FD_ZERO(set);
    FD_SET(ends[0], set);
    FD_SET(ends[1], set);
    CHECK(select(ends[1] + 1, set, NULL, NULL, NULL) == 1 && FD_ISSET(ends[0], set) && !FD_ISSET(ends[1], set));
    int epoll = epoll_create1(0);
    struct epoll_event wanted = {.events = EPOLLIN, .data.u64 = 42}, *events = (struct epoll_event *)(p + 5000);
    CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, ends[0], &wanted) == 0);
    CHECK(epoll_wait(epoll, events, 4, 0) == 1 && events[0].data.u64 == 42);
}

static volatile int notified;

static void on_end(union sigval value) { notified = value.sival_int; }

static void asynchronous(void) {
    int fd = open("/etc/passwd", O_RDONLY);
    struct aiocb control = {.aio_fildes = fd, .aio_buf = p + 7000, .aio_nbytes = 30, .aio_offset = 5};
    control.aio_sigevent.sigev_notify = SIGEV_THREAD;
    control.aio_sigevent.sigev_notify_function = on_end;
    control.aio_sigevent.sigev_value.sival_int = 17;
    CHECK(aio_read(&control) == 0);
    const struct aiocb *list[] = {&control};
    CHECK(aio_suspend(list, 1, NULL) == 0 && aio_error(&control) == 0 && aio_return(&control) == 30);
    CHECK(!memcmp(p + 7000, text + 5, 30));
    for (int i = 0; i < 1000 && !notified; i++) usleep(1000);
    CHECK(notified == 17);
    close(fd);
}

// Where the program wants its mapping, outside the range that the runtime prefers.
static void fixed_mapping(void) {
    int fd = open(getenv("PM_FILE"), O_RDWR);
    char *there = mmap(NULL, 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 100; i++) {
        CHECK(mmap(there, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == there);
        there[0] = 1;
        CHECK(getrandom(there, 16, 0) == 16 && !memcmp(there, (char *)pm, 16));
        // Ordinary memory in its place.
        CHECK(mmap(there, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == there);
        CHECK(uname((struct utsname *)there) == 0 && !strcmp(there, "Linux"));
        CHECK(read(-1, there, 8) == -1 && errno == EBADF);
    }
    CHECK(munmap(there, 8192) == 0);
    close(fd);
}

// A process loses its locks on a file as soon as it closes any descriptor of it.
static void locks(void) {
    char path[4096];
    snprintf(path, sizeof path, "%s.locked", getenv("PM_FILE"));
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 8};
    CHECK(fd >= 0 && ftruncate(fd, 4096) == 0 && fcntl(fd, F_SETLK, &lock) == 0);
    char *there = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    there[0] = 1;
    pid_t child = fork();
    if (child == 0) _exit(fcntl(fd, F_GETLK, &lock) == 0 && lock.l_type == F_WRLCK ? 0 : 1);
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(lseek(fd, 0, SEEK_CUR) == 0 && munmap(there, 4096) == 0 && close(fd) == 0 && unlink(path) == 0);
}

// Mapped, grown, synced and unmapped by number: seen like the functions.
static void by_number(void) {
    int fd = open(getenv("PM_FILE"), O_RDWR);
    char *there = (char *)syscall(SYS_mmap, NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0L);
    CHECK(there != MAP_FAILED);
    there[4096] = 42;
    CHECK(pm[4096] == 42 && syscall(SYS_msync, there, 8192, MS_SYNC) == 0);
    there = (char *)syscall(SYS_mremap, there, 8192, 16384, MREMAP_MAYMOVE);
    CHECK(there != MAP_FAILED);
    there[12288] = 43;
    CHECK(pm[12288] == 43 && syscall(SYS_munmap, there, 16384) == 0);
    close(fd);
}

int main(void) {
    map_pm();
    p = (char *)pm + 65536;
    stdio();
    files();
    system_state();
    sockets();
    descriptors();
    asynchronous();
    fixed_mapping();
    by_number();
    locks();
    puts("done");
    return 0;
}
