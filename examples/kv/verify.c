#include "verify.h"

#include "client.h"
#include "db.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

// What the keyspace should hold: an array in DRAM, which nothing is faster than for the few keys of a script.
struct expected {
    struct str *key;
    struct str *value; // of a list: its elements, each with a newline after it
    enum kind kind;
};

static struct expected *expected;
static size_t expected_count;

static struct expected *find(const struct str *key) {
    for (size_t i = 0; i < expected_count; i++) {
        if (str_equal(expected[i].key, key->data, key->length))
            return &expected[i];
    }
    return NULL;
}

static void set(const struct str *key, enum kind kind, struct str *value) {
    struct expected *found = find(key);
    if (!found) {
        expected = realloc(expected, (expected_count + 1) * sizeof *expected);
        if (!expected)
            abort();
        found = &expected[expected_count++];
        found->key = str_new(key->data, key->length);
    } else {
        free(found->value);
    }
    found->kind = kind;
    found->value = value;
}

static void delete(const struct str *key) {
    struct expected *found = find(key);
    if (!found)
        return;
    free(found->key);
    free(found->value);
    *found = expected[--expected_count];
}

static struct str *joined(const struct str *first, const struct str *second) {
    struct str *s = str_new(first->data, first->length);
    return str_append(s, second->data, second->length);
}

static void add(const struct str *key, int64_t number) {
    struct expected *found = find(key);
    int64_t old = 0;
    if (found && (found->kind != STRING || !str_number(found->value, &old)))
        return;
    char digits[24];
    if (__builtin_add_overflow(old, number, &number))
        return;
    set(key, STRING, str_new(digits, (size_t)snprintf(digits, sizeof digits, "%" PRId64, number)));
}

static void append(const struct str *key, const struct str *more) {
    struct expected *found = find(key);
    if (!found)
        set(key, STRING, str_new(more->data, more->length));
    else if (found->kind == STRING)
        set(key, STRING, joined(found->value, more));
}

static void push(const struct str *key, const struct str *element, bool at_head) {
    struct expected *found = find(key);
    struct str *line = str_append(str_new(element->data, element->length), "\n", 1);
    if (!found)
        set(key, LIST, str_new(line->data, line->length));
    else if (found->kind == LIST)
        set(key, LIST, at_head ? joined(line, found->value) : joined(found->value, line));
    free(line);
}

static void pop(const struct str *key, bool at_head) {
    struct expected *found = find(key);
    if (!found || found->kind != LIST)
        return;
    const char *data = found->value->data;
    size_t length = found->value->length, cut;
    if (at_head)
        cut = (size_t)((char *)memchr(data, '\n', length) - data) + 1;
    else
        for (cut = length - 1; cut > 0 && data[cut - 1] != '\n';)
            cut--;
    if (at_head ? cut == length : cut == 0)
        delete(key);
    else
        set(key, LIST, at_head ? str_new(data + cut, length - cut) : str_new(data, cut));
}

static void apply(struct str **words, size_t count) {
    char name[16] = "";
    int64_t number = 0;
    if (count < 2)
        return; // those that change something have a key
    snprintf(name, sizeof name, "%.*s", (int)words[0]->length, words[0]->data);
    bool has_value = count > 2;
    if (strcasecmp(name, "SET") == 0 || strcasecmp(name, "MSET") == 0) {
        for (size_t i = 1; i + 1 < count; i += 2)
            set(words[i], STRING, str_new(words[i + 1]->data, words[i + 1]->length));
    } else if (strcasecmp(name, "SETNX") == 0 && has_value && !find(words[1])) {
        set(words[1], STRING, str_new(words[2]->data, words[2]->length));
    } else if (strcasecmp(name, "DEL") == 0) {
        delete(words[1]);
    } else if (strcasecmp(name, "INCR") == 0) {
        add(words[1], 1);
    } else if (strcasecmp(name, "DECR") == 0) {
        add(words[1], -1);
    } else if (strcasecmp(name, "INCRBY") == 0 && has_value && str_number(words[2], &number)) {
        add(words[1], number);
    } else if (strcasecmp(name, "APPEND") == 0 && has_value) {
        append(words[1], words[2]);
    } else if ((strcasecmp(name, "LPUSH") == 0 || strcasecmp(name, "RPUSH") == 0) && has_value) {
        push(words[1], words[2], strcasecmp(name, "LPUSH") == 0);
    } else if (strcasecmp(name, "LPOP") == 0 || strcasecmp(name, "RPOP") == 0) {
        pop(words[1], strcasecmp(name, "LPOP") == 0);
    }
}

static bool is_as_expected(const struct expected *it) {
    struct dict_entry *entry = db_find(it->key, dict_hash(it->key->data, it->key->length));
    if (!entry || entry->kind != it->kind)
        return false;
    struct str *value = entry->value;
    if (it->kind == STRING)
        return str_equal(value, it->value->data, it->value->length);
    struct list *list = entry->value;
    size_t at = 0;
    for (struct list_node *node = list->head; node; node = node->next) {
        struct str *element = node->value;
        if (at + element->length + 1 > it->value->length
            || memcmp(it->value->data + at, element->data, element->length) != 0)
            return false;
        at += element->length + 1;
    }
    return at == it->value->length;
}

static bool all_as_expected(void) {
    if (db_size() != expected_count)
        return false;
    for (size_t i = 0; i < expected_count; i++) {
        if (!is_as_expected(&expected[i]))
            return false;
    }
    return true;
}

// One reply; where the next begins, NULL if this one is not complete.
static const char *skip_reply(const char *at, const char *end) {
    const char *line = memchr(at, '\n', (size_t)(end - at));
    if (!line)
        return NULL;
    long number = strtol(at + 1, NULL, 10);
    line++;
    if (*at == '$' && number >= 0)
        return end - line < number + 2 ? NULL : line + number + 2;
    for (long i = 0; *at == '*' && i < number; i++) {
        line = line < end ? skip_reply(line, end) : NULL;
        if (!line)
            return NULL;
    }
    return line;
}

static size_t acknowledged(const char *path) {
    FILE *file = fopen(path, "r");
    struct str *output = str_new("", 0);
    char block[4096];
    size_t n, replies = 0;
    while (file && (n = fread(block, 1, sizeof block, file)) > 0)
        output = str_append(output, block, n);
    if (file)
        fclose(file);
    output = str_append(output, "", 1); // so that strtol stops
    const char *at = output->data, *end = at + output->length - 1;
    while (at < end && (at = skip_reply(at, end)))
        replies++;
    free(output);
    return replies;
}

bool verify_script(const char *script) {
    int fd = open(script, O_RDONLY);
    struct client *client = fd < 0 ? NULL : client_new(fd, -1);
    if (!client) {
        perror(script);
        return false;
    }
    const char *output = getenv("CRASHPROOF_OUTPUT");
    size_t least = output ? acknowledged(output) : SIZE_MAX, done = 0;
    bool found = output && least == 0 && all_as_expected();
    bool more = true;
    while (more && !found) {
        more = client_read(client);
        while (!found && client_next(client)) {
            apply(client->arguments, client->argument_count);
            client_done(client);
            done++;
            found = done >= least && all_as_expected();
        }
    }
    if (!output)
        found = all_as_expected();
    if (!found)
        fprintf(stderr, "kv-server: the pool holds what no number of commands leaves (%zu were acknowledged)\n", least);
    client_free(client);
    return found;
}
