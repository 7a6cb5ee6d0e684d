// A transaction that one thread begins and another one, which takes part in it for a while, ends.
// link: -lpthread
#include "../pm.h"
#include <pthread.h>

#define START_TX(id) PM_REQUEST_OF(19, id, 0, 0, 0)
#define END_TX(id) PM_REQUEST_OF(21, id, 0, 0, 0)
#define ADD_TO_TX(id, at, length) PM_REQUEST_OF(23, id, at, length, 0)
#define JOIN_TX(id) PM_REQUEST_OF(26, id, 0, 0, 0)
#define LEAVE_TX(id) PM_REQUEST_OF(27, id, 0, 0, 0)
#define NUMBER 99

struct line {
    uint64_t word;
    char pad[56];
};

static void *work(void *argument) {
    struct line *lines = argument;
    JOIN_TX(NUMBER);
    ADD_TO_TX(NUMBER, &lines[1].word, 8);
    lines[1].word = 1;
    ADD_TO_TX(NUMBER, &lines[2].word, 8);
    lines[2].word = 2;
    LEAVE_TX(NUMBER);
    // In no transaction.
    lines[3].word = 3;
    pm_persist(&lines[3].word, 8);
    return NULL;
}

static void *finish(void *argument) {
    struct line *lines = argument;
    JOIN_TX(NUMBER);
    pm_persist(lines, 3 * sizeof *lines);
    END_TX(NUMBER);
    return NULL;
}

static void run(void *(*function)(void *), struct line *lines) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, function, lines) != 0 || pthread_join(thread, NULL) != 0)
        pm_die("thread");
}

int main(int argc, char **argv) {
    struct line *lines = pm_map(argv[argc - 1], PAGE);
    START_TX(NUMBER);
    ADD_TO_TX(NUMBER, &lines[0].word, 8);
    lines[0].word = 1;
    run(work, lines);
    run(finish, lines);
    // It has ended for this thread, too.
    lines[4].word = 4;
    pm_persist(&lines[4].word, 8);
    printf("%lu\n", lines[0].word + lines[1].word);
    return 0;
}
