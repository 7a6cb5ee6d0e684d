#include "client.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define READ_SIZE 16384
#define BLOCK_SIZE 16384

struct client *client_new(int in, int out) {
    struct client *client = calloc(1, sizeof *client);
    if (!client)
        return NULL;
    client->in = in;
    client->out = out;
    client->query = str_new("", 0);
    list_init(&client->replies);
    return client;
}

static void drop_block(struct client *client) {
    struct list_node *node = client->replies.head;
    list_unlink(&client->replies, node);
    free(node->value);
    free(node);
    client->sent = 0;
}

void client_free(struct client *client) {
    client_done(client);
    while (client->replies.head)
        drop_block(client);
    close(client->in);
    free(client->query);
    free(client);
}

bool client_read(struct client *client) {
    str_drop(client->query, client->taken);
    client->taken = 0;
    client->query = str_reserve(client->query, READ_SIZE);
    struct str *query = client->query;
    ssize_t n = read(client->in, query->data + query->length, query->capacity - query->length);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return true;
    if (n <= 0)
        return false;
    str_set_length(query, query->length + (size_t)n);
    return true;
}

// ---- The protocol: `*2\r\n$3\r\nGET\r\n$1\r\nk\r\n`, or the words on a line.

// The number behind a `*` or `$` at `at`, and where the next line begins. -1: not complete, -2: no number.
static int64_t header(const struct str *query, size_t *at) {
    const char *begin = query->data + *at, *end = memchr(begin, '\n', query->length - *at);
    if (!end)
        return -1;
    char *stop;
    int64_t number = strtoll(begin + 1, &stop, 10);
    if (stop == begin + 1 || number < 0 || number > INT32_MAX)
        return -2;
    *at += (size_t)(end - begin) + 1;
    return number;
}

static void add_argument(struct client *client, const char *data, size_t length) {
    client->arguments[client->argument_count++] = str_new(data, length);
}

static bool bad_query(struct client *client) {
    reply_error(client, "protocol error");
    client->closing = true;
    client->taken = client->query->length;
    return false;
}

static bool next_array(struct client *client) {
    size_t at = client->taken;
    int64_t count = header(client->query, &at);
    if (count == -1)
        return false;
    if (count < 0 || count > MAX_ARGUMENTS)
        return bad_query(client);
    for (int64_t i = 0; i < count; i++) {
        if (at >= client->query->length) {
            client_done(client);
            return false;
        }
        int64_t length = client->query->data[at] == '$' ? header(client->query, &at) : -2;
        if (length == -2)
            return bad_query(client);
        if (length == -1 || at + (size_t)length + 2 > client->query->length) {
            client_done(client);
            return false;
        }
        add_argument(client, client->query->data + at, (size_t)length);
        at += (size_t)length + 2;
    }
    client->taken = at;
    return true;
}

static bool next_line(struct client *client) {
    struct str *query = client->query;
    const char *word = query->data + client->taken;
    const char *end = memchr(word, '\n', query->length - client->taken);
    if (!end)
        return false;
    while (word < end) {
        size_t length = strcspn(word, " \r\n");
        if (client->argument_count == MAX_ARGUMENTS)
            return bad_query(client);
        if (length > 0)
            add_argument(client, word, length);
        word += length + 1;
    }
    client->taken = (size_t)(end - query->data) + 1;
    return true;
}

bool client_next(struct client *client) {
    if (client->taken == client->query->length)
        return false;
    return client->query->data[client->taken] == '*' ? next_array(client) : next_line(client);
}

void client_done(struct client *client) {
    for (size_t i = 0; i < client->argument_count; i++)
        free(client->arguments[i]);
    client->argument_count = 0;
}

// ---- Replies.

bool client_has_replies(const struct client *client) {
    return client->replies.head != NULL;
}

bool client_send(struct client *client) {
    while (client->replies.head) {
        struct str *block = client->replies.head->value;
        ssize_t n = write(client->out, block->data + client->sent, block->length - client->sent);
        if (n < 0)
            return errno == EAGAIN || errno == EINTR;
        client->sent += (size_t)n;
        if (client->sent == block->length)
            drop_block(client);
    }
    return true;
}

static struct str *new_block(struct client *client, size_t length) {
    size_t capacity = length < BLOCK_SIZE ? BLOCK_SIZE : length;
    struct str *block = malloc(sizeof *block + capacity);
    struct list_node *node = malloc(sizeof *node);
    if (!block || !node) {
        fprintf(stderr, "kv-server: no memory\n");
        exit(2);
    }
    str_init(block, capacity, "", 0);
    list_push_tail(&client->replies, node, block);
    return block;
}

void reply_bytes(struct client *client, const void *data, size_t length) {
    struct list_node *tail = client->replies.tail;
    struct str *block = tail ? tail->value : NULL;
    if (!block || block->capacity - block->length < length)
        block = new_block(client, length);
    str_put(block, block->length, data, length);
    str_set_length(block, block->length + length);
}

void reply_text(struct client *client, const char *text) {
    reply_bytes(client, text, strlen(text));
}

void reply_status(struct client *client, const char *status) {
    char line[64];
    snprintf(line, sizeof line, "+%s\r\n", status);
    reply_text(client, line);
}

void reply_error(struct client *client, const char *error) {
    char line[128];
    snprintf(line, sizeof line, "-ERR %s\r\n", error);
    reply_text(client, line);
}

static void reply_header(struct client *client, char kind, int64_t number) {
    char line[32];
    snprintf(line, sizeof line, "%c%" PRId64 "\r\n", kind, number);
    reply_text(client, line);
}

void reply_number(struct client *client, int64_t number) {
    reply_header(client, ':', number);
}

void reply_string(struct client *client, const struct str *s) {
    if (!s) {
        reply_text(client, "$-1\r\n");
        return;
    }
    reply_header(client, '$', s->length);
    reply_bytes(client, s->data, s->length);
    reply_text(client, "\r\n");
}

void reply_array(struct client *client, size_t elements) {
    reply_header(client, '*', (int64_t)elements);
}
