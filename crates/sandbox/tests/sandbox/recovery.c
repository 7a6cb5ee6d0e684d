/* A recovery program that does what its first argument says to the PM file that is the second. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/wait.h>
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
