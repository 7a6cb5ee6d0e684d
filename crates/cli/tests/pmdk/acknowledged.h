/* How many operations the program had acknowledged, one line of output each, when power failed. */
#ifndef ACKNOWLEDGED_H
#define ACKNOWLEDGED_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static inline void acknowledge(void) {
    if (write(STDOUT_FILENO, "done\n", 5) != 5)
        exit(4);
}

/* -1: nobody says. */
static inline long acknowledged(void) {
    const char *path = getenv("CRASHPROOF_OUTPUT");
    FILE *file = path == NULL ? NULL : fopen(path, "r");
    if (file == NULL)
        return -1;
    long lines = 0;
    for (int c; (c = getc(file)) != EOF;)
        lines += c == '\n';
    fclose(file);
    return lines;
}

#endif
