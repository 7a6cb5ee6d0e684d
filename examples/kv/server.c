// kv-server: a key-value server in the manner of Redis whose keyspace lies in persistent memory.
//
//   kv-server POOL [--port N]          serves on the loopback; prints the port, which 0 (the default) lets the system choose
//   kv-server POOL --script FILE       does the commands of a file (or - for stdin), replies to stdout, and ends
//   kv-server POOL --verify [FILE]     opens the pool, checks everything in it, and ends; with the script that was running
//                                      when it crashed, also whether the pool holds what the script had done
//   --size MIB                         of a new pool; default 64
#define _GNU_SOURCE
#include "command.h"
#include "db.h"
#include "hot.h"
#include "verify.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MAX_CLIENTS 1000

static struct list clients;
static bool running = true;

static void add_client(int in, int out) {
    struct client *client = client_new(in, out);
    if (!client) {
        close(in);
        return;
    }
    list_push_tail(&clients, &client->node, client);
}

static void remove_client(struct client *client) {
    list_unlink(&clients, &client->node);
    client_free(client);
}

static int listen_on(uint16_t port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0
        || bind(fd, (struct sockaddr *)&address, length) != 0 || listen(fd, 64) != 0
        || getsockname(fd, (struct sockaddr *)&address, &length) != 0) {
        perror("kv-server");
        return -1;
    }
    printf("listening on %u\n", ntohs(address.sin_port));
    fflush(stdout);
    return fd;
}

static void accept_client(int listener) {
    int on = 1, fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
    if (fd < 0)
        return;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    add_client(fd, fd);
}

// Does what the client has sent. False once it is gone, and at the end of a script.
static bool serve(struct client *client, short events) {
    if (events & (POLLIN | POLLHUP | POLLERR) && !client->closing) {
        bool more = client_read(client);
        while (running && client_next(client)) {
            running = command_do(client);
            client_done(client);
            if (client->in != client->out && !client_send(client))
                return false; // a script's replies do not wait for each other
        }
        client->closing |= !more || !running;
    }
    return client_send(client) && (!client->closing || client_has_replies(client));
}

// A listener of -1: none, only the clients that there are.
static int run(int listener) {
    struct pollfd polled[MAX_CLIENTS + 1];
    struct client *of[MAX_CLIENTS + 1];
    while (running && (listener >= 0 || clients.head)) {
        nfds_t n = 0;
        for (struct list_node *node = clients.head; node; node = node->next, n++) {
            struct client *client = node->value;
            of[n] = client;
            polled[n].fd = client_has_replies(client) ? client->out : client->in;
            polled[n].events = client_has_replies(client) ? POLLOUT : POLLIN;
        }
        nfds_t client_count = n;
        if (listener >= 0 && n < MAX_CLIENTS)
            polled[n++] = (struct pollfd){.fd = listener, .events = POLLIN};
        if (poll(polled, n, -1) < 0 && errno != EINTR) {
            perror("kv-server: poll");
            return 2;
        }
        if (n > client_count && polled[client_count].revents)
            accept_client(listener);
        for (nfds_t i = 0; i < client_count; i++) {
            if (polled[i].revents && !serve(of[i], polled[i].revents))
                remove_client(of[i]);
        }
    }
    while (clients.head)
        remove_client(clients.head->value);
    return 0;
}

static int usage(void) {
    fprintf(stderr, "usage: kv-server POOL [--size MIB] [--port N | --script FILE | --verify [FILE]]\n");
    return 2;
}

int main(int argc, char **argv) {
    const char *script = NULL, *verified = NULL;
    size_t size = 64;
    uint16_t port = 0;
    bool verify = false;
    if (argc < 2)
        return usage();
    for (int i = 2; i < argc; i++) {
        const char *next = i + 1 < argc ? argv[i + 1] : NULL;
        if (strcmp(argv[i], "--verify") == 0) {
            verify = true;
            verified = next;
            i += next != NULL;
        } else if (!next) {
            return usage();
        } else if (strcmp(argv[i], "--size") == 0) {
            size = strtoul(argv[++i], NULL, 10);
        } else if (strcmp(argv[i], "--port") == 0) {
            port = (uint16_t)strtoul(argv[++i], NULL, 10);
        } else if (strcmp(argv[i], "--script") == 0) {
            script = argv[++i];
        } else {
            return usage();
        }
    }
    signal(SIGPIPE, SIG_IGN);
    if (!db_open(argv[1], size << 20, !verify))
        return 1;
    int status;
    hot_init();
    if (verify) {
        status = verified && !verify_script(verified) ? 1 : 0;
    } else if (script) {
        int in = strcmp(script, "-") == 0 ? STDIN_FILENO : open(script, O_RDONLY);
        if (in < 0) {
            perror(script);
            return 2;
        }
        add_client(in, STDOUT_FILENO);
        status = run(-1);
    } else {
        int listener = listen_on(port);
        status = listener < 0 ? 2 : run(listener);
    }
    db_close();
    return status;
}
