// What a driver of operations needs by itself: a copy of this process, which waits before the driver's main, opens the pool, recovers, does
// the operations and probes, again and again. The driver is built with -Dmain=driver_main.
//
//     driver_alone RUNS SNAPSHOT POOL ARGUMENT...      prints milliseconds a run, and of processor time
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

int driver_main(int argc, char **argv);

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e3 + (double)time.tv_nsec / 1e6;
}

static int copy(const char *from, const char *to) {
    static char buffer[1 << 20];
    int in = open(from, O_RDONLY), out = open(to, O_RDWR | O_CREAT | O_TRUNC, 0600);
    ssize_t length;
    while ((length = read(in, buffer, sizeof buffer)) > 0)
        if (write(out, buffer, (size_t)length) != length)
            return -1;
    close(in);
    return close(out) | (int)length;
}

int main(int argc, char **argv) {
    if (argc < 4)
        return 2;
    double took = 0;
    long runs = atol(argv[1]);
    for (long i = 0; i < runs; i++) {
        if (copy(argv[2], argv[3]) != 0)
            return 3;
        double begin = now();
        pid_t child = fork();
        if (child == 0)
            exit(driver_main(argc - 2, argv + 2));
        int status;
        if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
            return 4;
        took += now() - begin;
    }
    struct rusage used;
    getrusage(RUSAGE_CHILDREN, &used);
    double processor = (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1e3 +
                       (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e3;
    fprintf(stderr, "%f %f\n", took / (double)runs, processor / (double)runs);
    return 0;
}
