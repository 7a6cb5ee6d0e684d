// The start is taken and stored first.
#include "../app.h"

struct job {
    _Alignas(LINE) uint64_t ended;
    _Alignas(LINE) uint64_t started;
};

static unsigned long cycles(void) {
    unsigned low, high;
    __asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
    return (unsigned long)high << 32 | low;
}

static void work(struct job *job) {
    job->started = cycles();
    pm_persist(&job->started, sizeof job->started);
    job->ended = cycles();
    pm_persist(&job->ended, sizeof job->ended);
}

static void run(const char *path) {
    struct job *jobs = (struct job *)pm_map(path, PAGE);
    for (int i = 0; i < 2; i++)
        work(&jobs[i]);
}

static void recover(const char *path) {
    struct job *jobs = (struct job *)pm_map(path, PAGE);
    for (int i = 0; i < 2; i++)
        REQUIRE(!jobs[i].ended || jobs[i].started, "job %d has ended and not started", i);
}

APP(NULL, run, recover, NULL)
