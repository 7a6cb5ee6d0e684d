#include "command.h"

#include "db.h"
#include "hot.h"
#include "pm.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>

#define MAX_SCAN 1000
#define MAX_HOT 64

static const char WRONG_KIND[] = "the key holds a value of another kind";
static const char FULL[] = "the pool is full";

// A key of the command, looked up and counted.
struct lookup {
    struct str *key;
    uint64_t hash;
    struct dict_entry *entry; // NULL: not there
};

static struct lookup look_up(struct client *client, size_t argument) {
    struct str *key = client->arguments[argument];
    struct lookup found = {.key = key, .hash = dict_hash(key->data, key->length)};
    found.entry = db_find(key, found.hash);
    hot_touch(key, found.hash);
    return found;
}

static bool is_other(const struct lookup *found, enum kind kind) {
    return found->entry && found->entry->kind != kind;
}

static void reply_done(struct client *client, bool done) {
    if (done)
        reply_status(client, "OK");
    else
        reply_error(client, FULL);
}

static void do_ping(struct client *client) {
    reply_status(client, "PONG");
}

static void do_get(struct client *client) {
    struct lookup found = look_up(client, 1);
    if (is_other(&found, STRING))
        reply_error(client, WRONG_KIND);
    else
        reply_string(client, found.entry ? found.entry->value : NULL);
}

static void do_set(struct client *client) {
    struct lookup found = look_up(client, 1);
    struct str *value = client->arguments[2];
    reply_done(client, db_set(found.key, found.hash, value->data, value->length));
}

static void do_setnx(struct client *client) {
    struct lookup found = look_up(client, 1);
    struct str *value = client->arguments[2];
    if (found.entry)
        reply_number(client, 0);
    else if (db_set(found.key, found.hash, value->data, value->length))
        reply_number(client, 1);
    else
        reply_error(client, FULL);
}

static void do_del(struct client *client) {
    int64_t deleted = 0;
    for (size_t i = 1; i < client->argument_count; i++) {
        struct str *key = client->arguments[i];
        uint64_t hash = dict_hash(key->data, key->length);
        deleted += db_delete(key, hash);
        hot_forget(key, hash);
    }
    reply_number(client, deleted);
}

static void do_exists(struct client *client) {
    int64_t there = 0;
    for (size_t i = 1; i < client->argument_count; i++)
        there += look_up(client, i).entry != NULL;
    reply_number(client, there);
}

static void add_to(struct client *client, int64_t add) {
    struct lookup found = look_up(client, 1);
    int64_t number = 0;
    if (is_other(&found, STRING)) {
        reply_error(client, WRONG_KIND);
        return;
    }
    if ((found.entry && !str_number(found.entry->value, &number)) || __builtin_add_overflow(number, add, &number)) {
        reply_error(client, "the value is not a number, or too large");
        return;
    }
    char digits[24];
    int length = snprintf(digits, sizeof digits, "%" PRId64, number);
    if (db_set(found.key, found.hash, digits, (size_t)length))
        reply_number(client, number);
    else
        reply_error(client, FULL);
}

static void do_incr(struct client *client) {
    add_to(client, 1);
}

static void do_decr(struct client *client) {
    add_to(client, -1);
}

static void do_incrby(struct client *client) {
    int64_t add;
    if (str_number(client->arguments[2], &add))
        add_to(client, add);
    else
        reply_error(client, "not a number");
}

static void do_append(struct client *client) {
    struct lookup found = look_up(client, 1);
    struct str *more = client->arguments[2];
    if (is_other(&found, STRING)) {
        reply_error(client, WRONG_KIND);
        return;
    }
    if (!db_append(found.key, found.hash, more->data, more->length)) {
        reply_error(client, FULL);
        return;
    }
    struct str *now = db_find(found.key, found.hash)->value;
    reply_number(client, now->length);
}

static void do_strlen(struct client *client) {
    struct lookup found = look_up(client, 1);
    if (is_other(&found, STRING))
        reply_error(client, WRONG_KIND);
    else
        reply_number(client, found.entry ? ((struct str *)found.entry->value)->length : 0);
}

static void do_mset(struct client *client) {
    if (client->argument_count % 2 == 0) {
        reply_error(client, "a key without a value");
        return;
    }
    for (size_t i = 1; i < client->argument_count; i += 2)
        look_up(client, i);
    reply_done(client, db_set_all(client->arguments + 1, (client->argument_count - 1) / 2));
}

static void do_mget(struct client *client) {
    reply_array(client, client->argument_count - 1);
    for (size_t i = 1; i < client->argument_count; i++) {
        struct lookup found = look_up(client, i);
        bool is_string = found.entry && found.entry->kind == STRING;
        reply_string(client, is_string ? found.entry->value : NULL);
    }
}

static void push(struct client *client, bool at_head) {
    for (size_t i = 2; i < client->argument_count; i++) {
        struct lookup found = look_up(client, 1);
        struct str *value = client->arguments[i];
        if (is_other(&found, LIST)) {
            reply_error(client, WRONG_KIND);
            return;
        }
        if (!db_push(found.key, found.hash, value->data, value->length, at_head)) {
            reply_error(client, FULL);
            return;
        }
    }
    struct str *key = client->arguments[1];
    struct list *list = db_find(key, dict_hash(key->data, key->length))->value;
    reply_number(client, (int64_t)list->length);
}

static void do_lpush(struct client *client) {
    push(client, true);
}

static void do_rpush(struct client *client) {
    push(client, false);
}

static void pop(struct client *client, bool at_head) {
    struct lookup found = look_up(client, 1);
    if (is_other(&found, LIST)) {
        reply_error(client, WRONG_KIND);
        return;
    }
    if (!found.entry) {
        reply_string(client, NULL);
        return;
    }
    struct list *list = found.entry->value;
    reply_string(client, (at_head ? list->head : list->tail)->value);
    db_pop(found.key, found.hash, at_head);
}

static void do_lpop(struct client *client) {
    pop(client, true);
}

static void do_rpop(struct client *client) {
    pop(client, false);
}

static void do_llen(struct client *client) {
    struct lookup found = look_up(client, 1);
    if (is_other(&found, LIST))
        reply_error(client, WRONG_KIND);
    else
        reply_number(client, found.entry ? (int64_t)((struct list *)found.entry->value)->length : 0);
}

// LRANGE key first last; a negative position counts from the end.
static void do_lrange(struct client *client) {
    struct lookup found = look_up(client, 1);
    int64_t first, last;
    if (!str_number(client->arguments[2], &first) || !str_number(client->arguments[3], &last)) {
        reply_error(client, "not a number");
        return;
    }
    if (is_other(&found, LIST)) {
        reply_error(client, WRONG_KIND);
        return;
    }
    struct list empty = {0}, *list = found.entry ? found.entry->value : &empty;
    int64_t length = (int64_t)list->length;
    first = first < 0 ? first + length : first;
    last = last < 0 ? last + length : last;
    first = first < 0 ? 0 : first;
    last = last >= length ? length - 1 : last;
    reply_array(client, last < first ? 0 : (size_t)(last - first + 1));
    int64_t at = 0;
    for (struct list_node *node = list->head; node && at <= last; node = node->next, at++) {
        if (at >= first)
            reply_string(client, node->value);
    }
}

// SCAN key count: the values of so many keys, from this one on in the order of the table.
static void do_scan(struct client *client) {
    struct lookup found = look_up(client, 1);
    int64_t count;
    if (!str_number(client->arguments[2], &count) || count < 0 || count > MAX_SCAN) {
        reply_error(client, "not a number, or too many");
        return;
    }
    struct dict_entry *entries[MAX_SCAN];
    size_t n = db_scan(found.key, found.hash, entries, (size_t)count);
    reply_array(client, n);
    for (size_t i = 0; i < n; i++)
        reply_string(client, entries[i]->kind == STRING ? entries[i]->value : entries[i]->key);
}

static void do_dbsize(struct client *client) {
    reply_number(client, (int64_t)db_size());
}

static void do_hotkeys(struct client *client) {
    struct dict_entry *top[MAX_HOT];
    int64_t max;
    if (!str_number(client->arguments[1], &max) || max < 0 || max > MAX_HOT) {
        reply_error(client, "not a number, or too many");
        return;
    }
    size_t n = max > 0 ? hot_top(top, (size_t)max) : 0;
    reply_array(client, 2 * n);
    for (size_t i = 0; i < n; i++) {
        reply_string(client, top[i]->key);
        reply_number(client, (int64_t)(uintptr_t)top[i]->value);
    }
}

static void do_info(struct client *client) {
    char text[256];
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    int64_t microseconds = (used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000000 + used.ru_utime.tv_usec + used.ru_stime.tv_usec;
    int length = snprintf(text, sizeof text,
                          "keys:%" PRIu64 "\r\nflushes:%" PRIu64 "\r\nfences:%" PRIu64 "\r\nmicroseconds:%" PRId64 "\r\n",
                          db_size(), pm_counts.flushes, pm_counts.fences, microseconds);
    struct str *info = str_new(text, (size_t)length);
    reply_string(client, info);
    free(info);
}

static const struct command {
    const char *name;
    void (*run)(struct client *client);
    size_t least, most; // arguments, the name among them
} commands[] = {
    {"PING", do_ping, 1, 1},
    {"GET", do_get, 2, 2},
    {"SET", do_set, 3, 3},
    {"SETNX", do_setnx, 3, 3},
    {"DEL", do_del, 2, MAX_ARGUMENTS},
    {"EXISTS", do_exists, 2, MAX_ARGUMENTS},
    {"INCR", do_incr, 2, 2},
    {"DECR", do_decr, 2, 2},
    {"INCRBY", do_incrby, 3, 3},
    {"APPEND", do_append, 3, 3},
    {"STRLEN", do_strlen, 2, 2},
    {"MSET", do_mset, 3, 257},
    {"MGET", do_mget, 2, MAX_ARGUMENTS},
    {"LPUSH", do_lpush, 3, MAX_ARGUMENTS},
    {"RPUSH", do_rpush, 3, MAX_ARGUMENTS},
    {"LPOP", do_lpop, 2, 2},
    {"RPOP", do_rpop, 2, 2},
    {"LLEN", do_llen, 2, 2},
    {"LRANGE", do_lrange, 4, 4},
    {"SCAN", do_scan, 3, 3},
    {"DBSIZE", do_dbsize, 1, 1},
    {"HOTKEYS", do_hotkeys, 2, 2},
    {"INFO", do_info, 1, 1},
};

static bool is_named(const struct str *word, const char *name) {
    return word->length == strlen(name) && strncasecmp(word->data, name, word->length) == 0;
}

bool command_do(struct client *client) {
    if (client->argument_count == 0)
        return true;
    const struct str *name = client->arguments[0];
    if (is_named(name, "SHUTDOWN")) {
        reply_status(client, "OK");
        return false;
    }
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        if (!is_named(name, commands[i].name))
            continue;
        if (client->argument_count < commands[i].least || client->argument_count > commands[i].most)
            reply_error(client, "wrong number of arguments");
        else
            commands[i].run(client);
        return true;
    }
    reply_error(client, "unknown command");
    return true;
}
