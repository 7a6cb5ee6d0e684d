/* A recovery program that does what its first argument says to the PM file that is the second. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/keyctl.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char *pm;
static off_t size;

static void map(const char *path) {
    int fd = open(path, O_RDWR);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) != 0) {
        perror(path);
        exit(3);
    }
    size = st.st_size;
    pm = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (pm == MAP_FAILED) {
        perror("mmap");
        exit(3);
    }
    close(fd);
}

static void put(const char *path, const char *text) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text)) {
        perror(path);
        exit(3);
    }
    close(fd);
}

static void daemonise(void) {
    if (fork() == 0) {
        setsid();
        if (fork() == 0) {
            signal(SIGTERM, SIG_IGN);
            signal(SIGHUP, SIG_IGN);
            for (;;)
                pause();
        }
        _exit(0);
    }
    wait(NULL);
}

/* What a constructor opened, for the modes that begin with "opened-". */
static int opened = -1;

__attribute__((constructor)) static void before_main(int argc, char **argv) {
    if (argc < 4)
        return;
    if (strcmp(argv[1], "opened-file") == 0)
        opened = open(argv[3], O_RDONLY);
    if (strcmp(argv[1], "opened-to-write") == 0)
        opened = open(argv[3], O_RDWR);
    if (strcmp(argv[1], "opened-pipe") == 0) {
        int ends[2];
        if (pipe(ends) == 0 && write(ends[1], "abcd", 4) == 4)
            opened = ends[0];
    }
    if (strcmp(argv[1], "opened-memory") == 0)
        opened = open("/proc/self/mem", O_RDONLY);
}

/* What the fork server calls before it forks. */
static int prepared;
static char prepared_with[64] = "-";

static void prepare(int argc, char **argv) {
    prepared++;
    snprintf(prepared_with, sizeof prepared_with, "%s", argv[argc - 1]);
}

__attribute__((used, aligned(16))) static struct {
    unsigned long long magic[2];
    void (*function)(int, char **);
} marker = {{0x6f72706873617263ULL, 0x79646165723a666fULL}, prepare};

/* Tries to leave the sandbox or to change the machine. */
static int is_refused(const char *what)
{
    if (strcmp(what, "host name") == 0)
        return sethostname("changed", 7) != 0;
    if (strcmp(what, "mount proc") == 0)
        return mount("proc", "/tmp", "proc", 0, NULL) != 0;
    if (strcmp(what, "mount sysfs") == 0)
        return mount("sysfs", "/tmp", "sysfs", 0, NULL) != 0;
    if (strcmp(what, "remount") == 0)
        return mount(NULL, "/proc/sys", NULL, MS_REMOUNT | MS_BIND, NULL) != 0;
    if (strcmp(what, "unmount") == 0)
        return umount2("/proc/sys", MNT_DETACH) != 0;
    if (strcmp(what, "another root") == 0)
        return chroot("/tmp") != 0;
    if (strcmp(what, "user namespace") == 0)
        return unshare(CLONE_NEWUSER) != 0;
    if (strcmp(what, "device") == 0)
        return mknod("/tmp/disk", S_IFBLK | 0600, makedev(7, 0)) != 0;
    if (strcmp(what, "clock") == 0) {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        return clock_settime(CLOCK_REALTIME, &now) != 0;
    }
    if (strcmp(what, "supervisor's root") == 0)
        return open("/proc/1/root/old", O_RDONLY | O_DIRECTORY) < 0 && open("/proc/1/cwd/old", O_RDONLY | O_DIRECTORY) < 0;
    if (strcmp(what, "supervisor's descriptors") == 0) {
        char name[4096];
        return open("/proc/1/fd/0", O_RDWR) < 0 && readlink("/proc/1/fd/0", name, sizeof name) < 0;
    }
    if (strcmp(what, "supervisor's memory") == 0)
        return ptrace(PTRACE_SEIZE, 1, NULL, NULL) != 0 && open("/proc/1/mem", O_RDWR) < 0;
    if (strcmp(what, "parent's memory") == 0) {
        /* Of which later runs are copies, if it waits at main. */
        char name[64];
        snprintf(name, sizeof name, "/proc/%d/mem", getppid());
        return open(name, O_RDWR) < 0 && ptrace(PTRACE_SEIZE, getppid(), NULL, NULL) != 0;
    }
    if (strcmp(what, "settings") == 0)
        return open("/proc/sys/kernel/core_pattern", O_WRONLY) < 0 && open("/proc/sysrq-trigger", O_WRONLY) < 0;
    if (strcmp(what, "interrupts") == 0)
        return open("/proc/irq/default_smp_affinity", O_WRONLY) < 0;
    if (strcmp(what, "devices' settings") == 0)
        return open("/sys/kernel/mm/transparent_hugepage/enabled", O_WRONLY) < 0;
    if (strcmp(what, "control group") == 0)
        return open("/sys/fs/cgroup/cgroup.procs", O_WRONLY) < 0 && open("/sys/fs/cgroup/memory/cgroup.procs", O_WRONLY) < 0;
    if (strcmp(what, "file by handle") == 0) {
        struct {
            struct file_handle head;
            unsigned char id[8];
        } handle = { { 8, 1 }, { 2 } };
        return open_by_handle_at(open("/usr", O_RDONLY), &handle.head, O_RDONLY) < 0 && errno != ESTALE;
    }
    if (strcmp(what, "module") == 0)
        return syscall(SYS_init_module, "", 0, "") != 0 && (errno == EPERM || errno == ENOSYS);
    if (strcmp(what, "reboot") == 0) /* with a wrong magic number, in case it is not refused */
        return syscall(SYS_reboot, 1, 2, 3, NULL) != 0 && errno == EPERM;
    if (strcmp(what, "priority") == 0)
        return setpriority(PRIO_PROCESS, 0, -10) != 0;
    if (strcmp(what, "limits") == 0) {
        struct rlimit limit;
        getrlimit(RLIMIT_DATA, &limit);
        limit.rlim_max += 4096;
        return setrlimit(RLIMIT_DATA, &limit) != 0;
    }
    /* Key rings are the user's, whatever the namespace. */
    if (strcmp(what, "key in the session's ring") == 0)
        return syscall(SYS_add_key, "user", "crashproof-test", "x", 1, KEY_SPEC_SESSION_KEYRING) < 0 && errno == ENOSYS;
    if (strcmp(what, "key in the user's ring") == 0)
        return syscall(SYS_add_key, "user", "crashproof-test", "x", 1, KEY_SPEC_USER_KEYRING) < 0 && errno == ENOSYS;
    if (strcmp(what, "request of a key") == 0)
        return syscall(SYS_request_key, "user", "crashproof-test", NULL, 0) < 0 && errno == ENOSYS;
    if (strcmp(what, "clear of the user's ring") == 0) /* only looked for: clearing it would be a pity */
        return syscall(SYS_keyctl, KEYCTL_GET_KEYRING_ID, KEY_SPEC_USER_KEYRING, 0) < 0 && errno == ENOSYS;
    if (strcmp(what, "keys by 32-bit calls") == 0) {
        long result = 288; /* keyctl */
        __asm__ volatile("int $0x80" : "+a"(result) : "b"(KEYCTL_GET_KEYRING_ID), "c"(KEY_SPEC_USER_KEYRING), "d"(0) : "memory", "r8", "r9", "r10", "r11");
        return (int)result == -ENOSYS;
    }
    if (strcmp(what, "new rights") == 0)
        return prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1;
    fprintf(stderr, "no such attempt: %s\n", what);
    return 0;
}

static int is_allowed(const char *what)
{
    if (strcmp(what, "owner") == 0)
        return close(creat("owned", 0600)) == 0 && chown("owned", 1, 1) == 0 && chown("owned", 0, 0) == 0;
    if (strcmp(what, "user") == 0)
        return setgid(1) == 0 && setuid(1) == 0 && geteuid() == 1;
    if (strcmp(what, "itself") == 0)
        return open("/proc/self/mem", O_RDWR) >= 0;
    if (strcmp(what, "port") == 0) {
        struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(80), .sin_addr = { htonl(INADDR_LOOPBACK) } };
        return bind(socket(AF_INET, SOCK_STREAM, 0), (struct sockaddr *)&address, sizeof address) == 0;
    }
    fprintf(stderr, "no such attempt: %s\n", what);
    return 0;
}

static void hoard(const char *how, int megabytes)
{
    static char block[10 << 20];
    memset(block, 1, sizeof block);
    for (int taken = 0; taken < megabytes; taken += 10) {
        char *memory = MAP_FAILED;
        if (strcmp(how, "memfd") == 0) {
            int fd = memfd_create("hoard", 0);
            if (fd < 0 || write(fd, block, sizeof block) != sizeof block)
                exit(12);
            continue;
        }
        if (strcmp(how, "children") == 0 && fork() == 0) {
            memory = malloc(sizeof block);
            memset(memory, 1, sizeof block);
            sleep(3);
            _exit(0);
        }
        if (strcmp(how, "awaited children") == 0) {
            /* Each is waited for until it has its memory, or is ended, of which no notice is taken. */
            int status;
            pid_t child = fork();
            if (child == 0) {
                memory = malloc(sizeof block);
                memset(memory, 1, sizeof block);
                raise(SIGSTOP);
                _exit(0);
            }
            waitpid(child, &status, WUNTRACED);
            if (WIFSIGNALED(status))
                exit(0);
        }
        if (strcmp(how, "shared") == 0)
            memory = mmap(NULL, sizeof block, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (strcmp(how, "System V") == 0) {
            int id = shmget(IPC_PRIVATE, sizeof block, IPC_CREAT | 0600);
            memory = id < 0 ? MAP_FAILED : shmat(id, NULL, 0);
        }
        if (strstr(how, "children"))
            continue;
        if (memory == MAP_FAILED)
            exit(12);
        memcpy(memory, block, sizeof block);
    }
}

int main(int argc, char **argv) {
    const char *mode = argv[1], *path = argv[2];
    const char *other = argc > 3 ? argv[3] : "";
#define MODE(name) (strcmp(mode, name) == 0)
    if (MODE("exit"))
        return atoi(other);
    if (MODE("prepared")) {
        printf("%d %s %s\n", prepared, prepared_with, argv[argc - 1]);
        return 0;
    }
    if (MODE("write-pages")) { /* so many, which is the next argument; the one after it is a byte of the image, and the rest is 0 */
        map(path);
        for (off_t at = 0; at < size; at++)
            if (pm[at] != (char)(at == 7 * 4096 + 1 ? atoi(argv[5]) : 0))
                return 4;
        for (int page = 0; page < atoi(argv[4]); page++)
            pm[page * 4096 + page] = 1;
        return 0;
    }
    if (MODE("die")) {
        struct rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none);
        raise(atoi(other));
        return 100;
    }
    if (MODE("print")) {
        for (long i = 0; i < atol(other); i++)
            putchar("0123456789abcdef"[i % 16]);
        fflush(stdout);
        fprintf(stderr, "to stderr\n");
        return 0;
    }
    if (MODE("output")) {
        char buffer[100];
        FILE *file = fopen(getenv("CRASHPROOF_OUTPUT"), "r");
        size_t n = file ? fread(buffer, 1, sizeof buffer, file) : 0;
        fwrite(buffer, 1, n, stdout);
        return 0;
    }
    if (MODE("hang"))
        for (;;)
            pause();
    if (MODE("hang-stopped")) {
        pid_t child = fork();
        if (child == 0)
            for (;;)
                pause();
        kill(child, SIGSTOP);
        waitpid(child, NULL, 0);
        return 0;
    }
    if (MODE("stop")) {
        raise(SIGSTOP);
        return 0;
    }
    if (MODE("fork-bomb"))
        for (;;)
            fork();
    if (MODE("kill-group")) {
        kill(0, SIGKILL);
        return 0;
    }
    if (MODE("ipc")) {
        if (shmget(4711, 4096, IPC_CREAT | IPC_EXCL | 0600) < 0) {
            perror("shmget");
            return 1;
        }
        return 0;
    }
    if (strncmp(mode, "opened-", 7) == 0) {
        char next[5] = "abcd";
        if (MODE("opened-memory")) {
            if (pread(opened, next, 4, (off_t)(uintptr_t)"abcd") != 4)
                return 1;
        } else if (read(opened, next, 4) != 4) {
            return 1;
        }
        fputs(next, stdout);
        return 0;
    }
    if (MODE("read-stream")) {
        FILE *file = fopen(path, "rm");
        return !file || fgetc(file) == EOF;
    }
    if (MODE("missing"))
        return access(path, F_OK) == 0;
    map(path);
    if (MODE("read-memory")) {
        char byte;
        int memory = open("/proc/self/mem", O_RDONLY);
        return memory < 0 || pread(memory, &byte, 1, (off_t)(uintptr_t)pm) != 1;
    }
    /* From here on: the first byte counts the runs that were not undone. */
    if (pm[0] != 0) {
        fprintf(stderr, "the image was not restored: %d\n", pm[0]);
        return 42;
    }
    if (MODE("read"))
        return pm[size / 2] != (char)atoi(other);
    if (MODE("check")) /* other: what the recovery must have left */
        return pm[1] != (char)atoi(other);
    if (MODE("write-ok")) {
        pm[1] = (char)atoi(other);
        return 0;
    }
    pm[0] = 1;
    if (MODE("write"))
        return 0;
    if (MODE("write-all")) {
        memset(pm, 7, size);
        return 0;
    }
    if (MODE("pwrite")) {
        int fd = open(path, O_RDWR);
        return pwrite(fd, "x", 1, size - 1) != 1;
    }
    if (MODE("punch")) {
        int fd = open(path, O_RDWR);
        return fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, size);
    }
    if (MODE("truncate"))
        return truncate(path, 10);
    if (MODE("grow"))
        return truncate(path, size + 10000);
    if (MODE("remove"))
        return unlink(path);
    if (MODE("rename"))
        return rename(path, other);
    if (MODE("replace")) {
        put(other, "another file");
        return rename(other, path);
    }
    if (MODE("chmod"))
        return chmod(path, 0400);
    if (MODE("scratch")) { /* other: a file that must not be there yet */
        if (access(other, F_OK) == 0)
            return 43;
        put(other, "scratch");
        return 0;
    }
    if (MODE("folder")) {
        char name[4096];
        if (mkdir(other, 0700) != 0)
            return 43;
        snprintf(name, sizeof name, "%s/inner", other);
        if (mkdir(name, 0) != 0)
            return 44;
        return 0;
    }
    if (MODE("append")) { /* other: a file of the caller's, with "user" in it */
        struct stat st;
        if (stat(other, &st) != 0 || st.st_size != 4)
            return 43;
        int fd = open(other, O_WRONLY | O_APPEND);
        return write(fd, "more", 4) != 4;
    }
    if (MODE("overwrite")) {
        struct stat st;
        if (stat(other, &st) != 0 || st.st_size != 4)
            return 43;
        put(other, "changed!");
        return 0;
    }
    if (MODE("unlink-other"))
        return unlink(other) == 0 ? 0 : 43;
    if (MODE("remove-folder")) { /* other: a folder of the caller's with one file, "inner" */
        char name[4096];
        snprintf(name, sizeof name, "%s/inner", other);
        return unlink(name) != 0 || rmdir(other) != 0 ? 43 : 0;
    }
    if (MODE("daemon")) {
        daemonise();
        return 0;
    }
    if (MODE("memory")) {
        for (int i = 0; i < 1000; i++) {
            char *block = malloc(10 << 20);
            if (!block)
                return 12;
            memset(block, 1, 10 << 20);
        }
        return 0;
    }
    if (MODE("refused")) /* other: what a recovery must not be able to do */
        return is_refused(other) ? 0 : 1;
    if (MODE("allowed")) /* other: what a recovery of root's may do */
        return is_allowed(other) ? 0 : 1;
    if (MODE("hoard")) { /* other: how; takes 600 MB, which is more than the limit, and holds them */
        hoard(other, 600);
        sleep(3);
        return 0;
    }
    if (MODE("disk")) {
        static char block[1 << 20];
        int fd = open(other, O_WRONLY | O_CREAT, 0644);
        for (int i = 0; i < 4000; i++)
            if (write(fd, block, sizeof block) < 0)
                return errno == ENOSPC ? 28 : 1;
        return 0;
    }
    if (MODE("kill-all")) {
        kill(-1, SIGKILL);
        return 0;
    }
    if (MODE("kill-parent")) {
        kill(getppid(), SIGKILL);
        usleep(1000);
        return 0;
    }
    if (MODE("stop-parent")) {
        kill(getppid(), SIGSTOP);
        return 0;
    }
    if (MODE("close")) {
        chdir("/");
        umask(0);
        for (int fd = 0; fd < 1024; fd++)
            close(fd);
        return 0;
    }
    if (MODE("exec")) {
        execlp("true", "true", NULL);
        return 1;
    }
    fprintf(stderr, "no such mode: %s\n", mode);
    return 99;
}
