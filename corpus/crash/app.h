// What the programs of corpus/crash share: their modes, how recovery fails, how an operation is acknowledged.
//
// `PROGRAM setup FILE` makes the initial content, `run` is what is crashed, `recover` opens the file after a crash, repairs it
// and verifies it, `check` verifies it once more after recovery.
#ifndef APP_H
#define APP_H

#include "../pm.h"

typedef void mode(const char *path);

// What a program cannot do has NULL.
#define APP(setup, run, recover, check)                                                                                \
    int main(int argc, char **argv) {                                                                                  \
        return app_main(argc, argv, setup, run, recover, check);                                                       \
    }

#define REQUIRE(condition, ...)                                                                                        \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, __VA_ARGS__);                                                                              \
            fputc('\n', stderr);                                                                                       \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static inline int app_main(int argc, char **argv, mode *setup, mode *run, mode *recover, mode *check) {
    const char *names[] = {"setup", "run", "recover", "check"};
    mode *modes[] = {setup, run, recover, check};
    for (int i = 0; i < 4; i++) {
        if (argc == 3 && modes[i] && strcmp(argv[1], names[i]) == 0) {
            modes[i](argv[2]);
            return 0;
        }
    }
    fprintf(stderr, "usage: %s setup|run|recover|check FILE (not every program has every mode)\n", argv[0]);
    return 2;
}

// Tells whoever asked for it that operation `number` is done. Not buffered: when it returns, they know.
static inline void acknowledge(int number) {
    dprintf(STDOUT_FILENO, "done %d\n", number);
}

// The last operation that the crashed program had acknowledged; 0 if there is none.
static inline int acknowledged(void) {
    const char *path = getenv("CRASHPROOF_OUTPUT");
    FILE *output = path ? fopen(path, "r") : NULL;
    int last = 0, number;
    while (output && fscanf(output, " done %d", &number) == 1)
        last = number;
    if (output)
        fclose(output);
    return last;
}

#endif
