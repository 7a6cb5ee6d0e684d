/*
 * A driver of operations, for `crashproof crash --oracle output` (docs/drivers.md). C and C++; one file beside crashproof.h.
 *
 * To test a persistent structure, crashproof runs sequences of operations on it, crashes them, and compares what the structure
 * answers afterwards with what it answers without a crash. All that it needs is a program that does the operations of a file:
 *
 *     ./driver POOL --ops FILE [--from N] [--to M] [--skip K] [--probe]
 *
 * This header is that program but for five things, which you fill in:
 *
 *     #include "crashproof_driver.h"
 *
 *     static void open_pool(const char *path, int create) { ... }       // make the pool and an empty structure, or open them
 *     static void recover(void) { ... }                                 // what your program does first with a pool it finds
 *     static void insert(char **words) {                                // one function per operation ...
 *         uint64_t key = crashproof_number(words[0]), value = crashproof_number(words[1]);
 *         crashproof_print("%s", table_insert(key, value) ? "inserted" : "exists");   // ... which prints its result
 *     }
 *     static void get(char **words) {
 *         uint64_t value;
 *         if (table_get(crashproof_number(words[0]), &value))
 *             crashproof_print("%lu", value);
 *         else
 *             crashproof_print("none");
 *     }
 *     static void probe(void) { crashproof_probe_keys(get); }           // what can be asked at the end
 *
 *     static const struct crashproof_operation operations[] = {
 *         {"insert", 2, insert},                                        // its name, how many words follow it, the function
 *         {"get", 1, get},
 *         {NULL, 0, NULL},
 *     };
 *     static const struct crashproof_driver driver = {open_pool, recover, probe, operations};
 *     CRASHPROOF_DRIVER(driver)
 *
 * FILE has an operation a line, the name and its words between blanks ("insert 3 14"). The first line is operation 0. Operations N
 * to M, without M and without K, are done in their order; each prints one line, which is written at once and unbuffered: it is the promise
 * that crashproof holds the structure to. A line of FILE that is no operation is refused before anything is done
 * ("FILE:LINE: ...", exit status 2).
 *
 * What an operation prints must follow from the operations before it and from nothing else: no addresses, times, counts of
 * free blocks, or order of iteration of a table that hashes addresses.
 *
 *   crashproof_print(format, ...)      adds to the output line of the operation ("ok" if it adds nothing), or to the probe's lines
 *   crashproof_number(word)            the word as a number; refuses the line of FILE if it is none
 *   crashproof_refuse(why)             refuses the line of FILE whose operation is being done: the word is a key that cannot be, say
 *   crashproof_probe_keys(function)    for the probe of a map: one line for each first word of an operation in FILE, sorted
 *
 * The probe of a structure without keys prints the structure instead, a line (with "\n") an element.
 *
 * Only what crashproof_print adds counts. Whatever else the program prints on standard output (a recovery that says what it has recovered)
 * appears on standard error instead: results have a descriptor of their own, and standard output is standard error from the beginning of
 * main.
 *
 *     CRASHPROOF_DRIVER_WITH_LEAK(driver, leak)
 *
 * instead of CRASHPROOF_DRIVER(driver) names a function that allocates something in the pool and forgets it: crashproof sees whether
 * that changes what is printed.
 *
 * SPDX-License-Identifier: 0BSD
 */
#ifndef CRASHPROOF_DRIVER_H
#define CRASHPROOF_DRIVER_H

#include "crashproof.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct crashproof_operation {
    const char *name;
    int words;                    /* that follow the name */
    void (*function)(char **words);
};

struct crashproof_driver {
    /* The pool is at this path. `create`: there is no file; make it and an empty structure, durably. */
    void (*open)(const char *path, int create);
    /* After `open` of a pool that was there. May be NULL, if opening recovers. */
    void (*recover)(void);
    /* Prints what the structure holds. */
    void (*probe)(void);
    /* The last one has the name NULL. */
    const struct crashproof_operation *operations;
};

#define CRASHPROOF_DRIVER(driver) CRASHPROOF_DRIVER_WITH_LEAK(driver, NULL)

#define CRASHPROOF_DRIVER_WITH_LEAK(driver, leak)                                                                      \
    CRASHPROOF_PREPARE_(driver)                                                                                        \
    int main(int argc, char **argv) {                                                                                  \
        return crashproof_drive(&(driver), leak, argc, argv);                                                          \
    }

/* The rest is how it is done. Names that end with an underscore are not for use. */

#define CRASHPROOF_MAX_WORDS_ 8

struct crashproof_line_ {
    const struct crashproof_operation *operation;
    char *words; /* the first one; the others follow, each after a zero */
};

static struct {
    const char *file; /* NULL: not read yet */
    struct crashproof_line_ *lines;
    size_t count;
    size_t current; /* being read or done */
    char **keys;    /* the first words of the lines, each once, sorted; NULL: not yet */
    size_t key_count;
    char *text; /* of the line of output, or of the probe */
    size_t used, room;
    char why[256]; /* a line is refused */
} crashproof_state_;

/* What the command line says. */
struct crashproof_arguments_ {
    const char *pool, *file;
    unsigned long from, to, skip;
    int probe;
};

#if defined(__GNUC__)
__attribute__((noreturn, unused))
#endif
static void
crashproof_refuse(const char *why) {
    fprintf(stderr, "%s:%lu: %s\n", crashproof_state_.file, (unsigned long)crashproof_state_.current + 1, why);
    exit(2);
}

#if defined(__GNUC__)
__attribute__((noreturn))
#endif
static void
crashproof_fail_(const char *what) {
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(2);
}

static void *crashproof_grown_(void *memory, size_t size) {
    memory = realloc(memory, size);
    if (memory == NULL)
        crashproof_fail_("memory for the operations");
    return memory;
}

#if defined(__GNUC__)
__attribute__((unused))
#endif
static uint64_t
crashproof_number(const char *word) {
    char *end;
    errno = 0;
    uint64_t number = strtoull(word, &end, 0);
    if (end == word || *end != 0 || *word == '-' || errno != 0) {
        char why[128];
        snprintf(why, sizeof why, "'%s' is not a number", word);
        crashproof_refuse(why);
    }
    return number;
}

#if defined(__GNUC__)
__attribute__((format(printf, 1, 2), unused))
#endif
static void
crashproof_print(const char *format, ...) {
    for (;;) {
        size_t room = crashproof_state_.room - crashproof_state_.used;
        va_list arguments;
        va_start(arguments, format);
        int length = vsnprintf(crashproof_state_.text + crashproof_state_.used, room, format, arguments);
        va_end(arguments);
        if (length < 0)
            crashproof_fail_(format);
        if ((size_t)length < room) {
            crashproof_state_.used += (size_t)length;
            return;
        }
        crashproof_state_.room = 2 * crashproof_state_.room + (size_t)length;
        crashproof_state_.text = (char *)crashproof_grown_(crashproof_state_.text, crashproof_state_.room);
    }
}

/* As crashproof_print, but as it is. */
static void crashproof_add_(const char *text, size_t length) {
    if (crashproof_state_.room - crashproof_state_.used < length) {
        crashproof_state_.room = 2 * crashproof_state_.room + length;
        crashproof_state_.text = (char *)crashproof_grown_(crashproof_state_.text, crashproof_state_.room);
    }
    memcpy(crashproof_state_.text + crashproof_state_.used, text, length);
    crashproof_state_.used += length;
}

/* Where results are written. The recorder knows the number, and that a write of nothing to it says that results are written there. */
#define CRASHPROOF_RESULTS_ 1000

static int crashproof_results_ = STDOUT_FILENO;

/* Standard output, as it was, is for results; what else is printed there goes to standard error. Where descriptors are too few for that, nothing changes. */
static void crashproof_separate_(void) {
    int results = fcntl(STDOUT_FILENO, F_DUPFD, CRASHPROOF_RESULTS_);
    if (results != CRASHPROOF_RESULTS_) {
        if (results >= 0)
            close(results);
        return;
    }
    fcntl(results, F_SETFD, FD_CLOEXEC);
    if (dup2(STDERR_FILENO, STDOUT_FILENO) < 0) {
        int nowhere = open("/dev/null", O_WRONLY);
        if (nowhere < 0 || dup2(nowhere, STDOUT_FILENO) < 0)
            crashproof_fail_("/dev/null");
        if (nowhere != STDOUT_FILENO)
            close(nowhere);
    }
    if (write(results, "", 0) != 0)
        crashproof_fail_("standard output");
    crashproof_results_ = results;
}

/* One write, unless the kernel takes less. */
static void crashproof_write_(void) {
    for (size_t done = 0; done < crashproof_state_.used;) {
        ssize_t written = write(crashproof_results_, crashproof_state_.text + done, crashproof_state_.used - done);
        if (written < 0 && errno != EINTR)
            crashproof_fail_("standard output");
        done += written < 0 ? 0 : (size_t)written;
    }
    crashproof_state_.used = 0;
}

/* Exactly one line for an operation, whatever it printed. */
static void crashproof_write_line_(void) {
    if (crashproof_state_.used == 0)
        crashproof_add_("ok", 2);
    for (size_t i = 0; i < crashproof_state_.used; i++)
        if (crashproof_state_.text[i] == '\n')
            crashproof_state_.text[i] = ' ';
    crashproof_add_("\n", 1);
    crashproof_write_();
}

/* Shorter words first, so that numbers are in order. */
static int crashproof_compare_(const void *a, const void *b) {
    const char *one = *(char *const *)a, *other = *(char *const *)b;
    size_t length = strlen(one), other_length = strlen(other);
    return length != other_length ? (length < other_length ? -1 : 1) : strcmp(one, other);
}

static void crashproof_find_keys_(void) {
    size_t room = 16, count = 0;
    while (room < 2 * crashproof_state_.count)
        room *= 2;
    char **keys = (char **)crashproof_grown_(NULL, room * sizeof *keys);
    memset(keys, 0, room * sizeof *keys);
    for (size_t i = 0; i < crashproof_state_.count; i++) {
        if (crashproof_state_.lines[i].operation->words == 0)
            continue;
        char *key = crashproof_state_.lines[i].words;
        size_t at = 5381;
        for (const char *c = key; *c; c++)
            at = at * 33 + (unsigned char)*c;
        for (at &= room - 1; keys[at] && strcmp(keys[at], key) != 0; at = (at + 1) & (room - 1))
            ;
        keys[at] = key;
    }
    for (size_t i = 0; i < room; i++)
        if (keys[i])
            keys[count++] = keys[i];
    qsort(keys, count, sizeof *keys, crashproof_compare_);
    crashproof_state_.keys = keys;
    crashproof_state_.key_count = count;
}

#if defined(__GNUC__)
__attribute__((unused))
#endif
static void
crashproof_probe_keys(void (*function)(char **words)) {
    if (!crashproof_state_.keys)
        crashproof_find_keys_();
    for (size_t i = 0; i < crashproof_state_.key_count; i++) {
        char *words[CRASHPROOF_MAX_WORDS_] = {crashproof_state_.keys[i]};
        crashproof_add_(words[0], strlen(words[0]));
        crashproof_add_(": ", 2);
        function(words);
        crashproof_add_("\n", 1);
    }
}

/* What a line of the file says. The blanks between words become zeros. 0: it is refused. */
static int crashproof_read_line_(const struct crashproof_driver *driver, char *line) {
    const char *blanks = " \t\r";
    char *why = crashproof_state_.why;
    const size_t room = sizeof crashproof_state_.why;
    char *name = line + strspn(line, blanks), *end = name + strcspn(name, blanks);
    if (name == end) {
        snprintf(why, room, "an empty line; each line is an operation");
        return 0;
    }
    char *rest = end + (*end != 0);
    *end = 0;
    const struct crashproof_operation *operation = driver->operations;
    while (operation->name && strcmp(operation->name, name) != 0)
        operation++;
    if (!operation->name) {
        snprintf(why, room, "'%.60s' is no operation; there are", name);
        for (operation = driver->operations; operation->name; operation++) {
            strncat(why, " ", room - strlen(why) - 1);
            strncat(why, operation->name, room - strlen(why) - 1);
        }
        return 0;
    }
    /* The words are moved together, so that each begins where the one before ends. */
    char *to = rest;
    int count = 0;
    for (char *at = rest + strspn(rest, blanks); *at; at += strspn(at, blanks), count++) {
        size_t length = strcspn(at, blanks);
        int last = at[length] == 0;
        memmove(to, at, length);
        to[length] = 0;
        to += length + 1;
        at += length + !last;
    }
    if (count != operation->words) {
        snprintf(why, room, "'%.60s' with %d words after it instead of %d", name, count, operation->words);
        return 0;
    }
    crashproof_state_.lines[crashproof_state_.current].operation = operation;
    crashproof_state_.lines[crashproof_state_.current].words = rest;
    return 1;
}

/* All of a file, and room for one character more; NULL: errno says why. */
static char *crashproof_content_(const char *path, size_t *length) {
    FILE *file = fopen(path, "r");
    if (!file)
        return NULL;
    size_t room = 1 << 16;
    char *text = NULL;
    *length = 0;
    do {
        room *= 2;
        text = (char *)crashproof_grown_(text, room);
        *length += fread(text + *length, 1, room - *length - 1, file);
    } while (*length == room - 1);
    int failed = ferror(file), error = errno;
    fclose(file);
    errno = error;
    if (!failed)
        return text;
    free(text);
    return NULL;
}

/* 0: errno says why, or a line is refused. */
static int crashproof_read_(const struct crashproof_driver *driver, const char *path) {
    size_t length, lines = 0;
    crashproof_state_.why[0] = 0;
    crashproof_state_.file = NULL;
    crashproof_state_.keys = NULL;
    char *text = crashproof_content_(path, &length);
    if (!text)
        return 0;
    if (length > 0 && text[length - 1] != '\n')
        text[length++] = '\n';
    for (size_t i = 0; i < length; i++)
        lines += text[i] == '\n';
    crashproof_state_.count = lines;
    crashproof_state_.lines =
        (struct crashproof_line_ *)crashproof_grown_(NULL, (lines + 1) * sizeof *crashproof_state_.lines);
    char *line = text;
    for (crashproof_state_.current = 0; crashproof_state_.current < lines; crashproof_state_.current++) {
        char *end = (char *)memchr(line, '\n', length - (size_t)(line - text));
        *end = 0;
        if (strlen(line) != (size_t)(end - line)) {
            snprintf(crashproof_state_.why, sizeof crashproof_state_.why, "a zero byte");
            return 0;
        }
        if (!crashproof_read_line_(driver, line))
            return 0;
        line = end + 1;
    }
    crashproof_state_.file = path;
    return 1;
}

static void crashproof_do_(size_t number) {
    const struct crashproof_line_ *line = &crashproof_state_.lines[number];
    char *words[CRASHPROOF_MAX_WORDS_] = {NULL};
    char *word = line->words;
    for (int i = 0; i < line->operation->words; i++, word += strlen(word) + 1)
        words[i] = word;
    crashproof_state_.current = number;
    CRASHPROOF_REQUEST_(1, line->operation->name, strlen(line->operation->name), 0, 0);
    line->operation->function(words);
    crashproof_write_line_();
    CRASHPROOF_REQUEST_(2, line->operation->name, strlen(line->operation->name), 0, 0);
}

static void crashproof_probe_(const struct crashproof_driver *driver) {
    crashproof_print("probe\n");
    driver->probe();
    crashproof_write_();
}

/* 0: that is no command line of a driver. */
static int crashproof_parse_(int argc, char **argv, struct crashproof_arguments_ *given) {
    memset(given, 0, sizeof *given);
    given->to = given->skip = (unsigned long)-1;
    for (int i = 1; i < argc; i++) {
        unsigned long *number = NULL;
        char *end = NULL;
        if (strcmp(argv[i], "--probe") == 0) {
            given->probe++;
            continue;
        }
        if (strncmp(argv[i], "--", 2) != 0) {
            if (given->pool)
                return 0;
            given->pool = argv[i];
            continue;
        }
        if (strcmp(argv[i], "--from") == 0)
            number = &given->from;
        else if (strcmp(argv[i], "--to") == 0)
            number = &given->to;
        else if (strcmp(argv[i], "--skip") == 0)
            number = &given->skip;
        else if (strcmp(argv[i], "--ops") != 0)
            return 0;
        if (++i == argc)
            return 0;
        if (!number) {
            given->file = argv[i];
            continue;
        }
        *number = strtoul(argv[i], &end, 10);
        if (end == argv[i] || *end != 0 || argv[i][0] == '-')
            return 0;
    }
    return given->pool && given->file;
}

/*
 * `crashproof crash` runs the driver once for each crash state, thousands of times, as copies of a process that waits before main. Before the
 * first copy it calls this function there, which it finds by the two numbers before its address, so that the operations
 * are read once and not in every copy. Whatever is wrong with them, a copy reads them itself and says so.
 */
#if defined(__GNUC__)
__attribute__((unused))
#endif
static void
crashproof_prepare_(const struct crashproof_driver *driver, int argc, char **argv) {
    struct crashproof_arguments_ given;
    if (!crashproof_parse_(argc, argv, &given))
        return;
    for (const struct crashproof_operation *operation = driver->operations; operation->name; operation++)
        if (operation->words > CRASHPROOF_MAX_WORDS_)
            return;
    if (crashproof_read_(driver, given.file))
        crashproof_find_keys_();
}

#if defined(__GNUC__)
struct crashproof_marker_ {
    unsigned long long magic[2]; /* "crashproof:ready" */
    void (*prepare)(int argc, char **argv);
} __attribute__((aligned(16)));
#define CRASHPROOF_PREPARE_(driver)                                                                                    \
    static void crashproof_prepare_driver_(int argc, char **argv) {                                                    \
        crashproof_prepare_(&(driver), argc, argv);                                                                    \
    }                                                                                                                  \
    __attribute__((used)) static struct crashproof_marker_ crashproof_marker_ = {                                      \
        {0x6f72706873617263ULL, 0x79646165723a666fULL}, crashproof_prepare_driver_};
#else
#define CRASHPROOF_PREPARE_(driver)
#endif

static int crashproof_usage_(const char *program) {
    fprintf(stderr, "usage: %s POOL --ops FILE [--from N] [--to M] [--skip K] [--probe]\n", program);
    return 2;
}

static int
crashproof_drive(const struct crashproof_driver *driver, void (*leak)(void), int argc, char **argv) {
    struct crashproof_arguments_ given;
    if (!crashproof_parse_(argc, argv, &given))
        return crashproof_usage_(argv[0]);
    for (const struct crashproof_operation *operation = driver->operations; operation->name; operation++)
        if (operation->words > CRASHPROOF_MAX_WORDS_) {
            fprintf(stderr, "operation %s has more than %d words\n", operation->name, CRASHPROOF_MAX_WORDS_);
            return 2;
        }
    crashproof_separate_();
    crashproof_state_.room = 1 << 12;
    crashproof_state_.text = (char *)crashproof_grown_(NULL, crashproof_state_.room);
    int prepared = crashproof_state_.file && strcmp(crashproof_state_.file, given.file) == 0;
    if (!prepared && !crashproof_read_(driver, given.file)) {
        if (!crashproof_state_.why[0])
            crashproof_fail_(given.file);
        crashproof_state_.file = given.file;
        crashproof_refuse(crashproof_state_.why);
    }

    int create = access(given.pool, F_OK) != 0;
    driver->open(given.pool, create);
    if (!create && driver->recover)
        driver->recover();
    if (leak && getenv("CRASHPROOF_LEAK"))
        leak();
    for (size_t number = given.from; number < given.to && number < crashproof_state_.count; number++) {
        if (number != given.skip)
            crashproof_do_(number);
        if (given.probe > 1)
            crashproof_probe_(driver);
    }
    if (given.probe)
        crashproof_probe_(driver);
    return 0;
}

#endif
