// Connections: what came in and is not yet done, what goes out and is not yet sent.
#ifndef CLIENT_H
#define CLIENT_H

#include "list.h"
#include "str.h"

#define MAX_ARGUMENTS 1024

struct client {
    int in, out; // the same for a socket
    struct str *query;
    size_t taken; // of the query: commands that are done
    struct list replies; // of blocks, each a str
    size_t sent;         // of the first block
    struct list_node node;
    bool closing; // once the replies are sent
    // The command that is being done.
    struct str *arguments[MAX_ARGUMENTS];
    size_t argument_count;
};

struct client *client_new(int in, int out);
void client_free(struct client *client);

// Reads what there is. False at the end of the input, and if the client is gone.
bool client_read(struct client *client);
// Takes the next command off the query into `arguments`. False if it is not complete yet.
bool client_next(struct client *client);
void client_done(struct client *client);
// Sends what it can. False if the client is gone.
bool client_send(struct client *client);
bool client_has_replies(const struct client *client);

void reply_bytes(struct client *client, const void *data, size_t length);
void reply_text(struct client *client, const char *text);
void reply_status(struct client *client, const char *status);
void reply_error(struct client *client, const char *error);
void reply_number(struct client *client, int64_t number);
void reply_string(struct client *client, const struct str *s); // NULL: nil
void reply_array(struct client *client, size_t elements);

#endif
