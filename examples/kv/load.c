// kv-load: YCSB's workloads (Cooper et al., SoCC 2010) for kv-server.
//
//   kv-load [OPTIONS] PORT WORKLOAD…    runs the workloads, in this order, against the server on this port of the loopback,
//                                       and prints a line for each
//   kv-load [OPTIONS] --print WORKLOAD… prints the requests instead: a script for kv-server
//
// Workloads: load (inserts the records, which the others need), a (half reads, half updates), b (19 reads for an update),
// c (reads), d (reads of what is new, and inserts), e (scans and inserts), f (half reads, half read-modify-write), and
// all (every command, on few keys; not of YCSB).
#include <arpa/inet.h>
#include <inttypes.h>
#include <math.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define BUFFER (1 << 20)
#define MAX_VALUE 8192
#define THETA 0.99 // of the Zipfian distribution, as YCSB has it
#define SCAN_LENGTH 20

static uint64_t records = 10000, operations = 10000, value_size = 1000, depth = 1, seed = 1;
static uint64_t inserted; // keys that there are

_Noreturn static void die(const char *what) {
    fprintf(stderr, "kv-load: %s\n", what);
    exit(2);
}

// ---- Random numbers.

static uint64_t state;

static uint64_t mix(uint64_t x) {
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static uint64_t below(uint64_t limit) {
    return mix(state += 0x9e3779b97f4a7c15u) % limit;
}

static double zeta_of(uint64_t n) {
    static double sum;
    static uint64_t done;
    if (n < done)
        sum = 0, done = 0;
    for (; done < n; done++)
        sum += 1 / pow((double)(done + 1), THETA);
    return sum;
}

// A rank below n: 0 is the most frequent (Gray et al., SIGMOD 1994).
static uint64_t zipfian(uint64_t n) {
    double zeta = zeta_of(n), alpha = 1 / (1 - THETA), second = 1 + pow(0.5, THETA);
    double eta = (1 - pow(2.0 / (double)n, 1 - THETA)) / (1 - second / zeta);
    double u = (double)below(1u << 30) / (1u << 30), uz = u * zeta;
    if (uz < 1)
        return 0;
    if (uz < second)
        return 1;
    uint64_t rank = (uint64_t)((double)n * pow(eta * u - eta + 1, alpha));
    return rank < n ? rank : n - 1;
}

// ---- Requests.

static char requests[BUFFER];
static size_t request_bytes, request_count;
static int server = -1; // -1: print

static void put(const char *data, size_t length) {
    if (request_bytes + length > sizeof requests)
        die("the requests of one batch are too long: a smaller --depth or --value");
    memcpy(requests + request_bytes, data, length);
    request_bytes += length;
}

static void put_word(const char *data, size_t length) {
    char head[24];
    put(head, (size_t)snprintf(head, sizeof head, "$%zu\r\n", length));
    put(data, length);
    put("\r\n", 2);
}

static void begin(const char *name, int words) {
    char head[24];
    put(head, (size_t)snprintf(head, sizeof head, "*%d\r\n", words));
    put_word(name, strlen(name));
    request_count++;
}

static void put_text(const char *text) {
    put_word(text, strlen(text));
}

static void put_key(uint64_t number) {
    char key[32];
    put_word(key, (size_t)snprintf(key, sizeof key, "user%016" PRIx64, mix(number + 1)));
}

static void put_value(uint64_t size) {
    static char value[MAX_VALUE];
    uint64_t from = below(26);
    for (uint64_t i = 0; i < size; i++)
        value[i] = (char)('a' + (from + i) % 26);
    put_word(value, size);
}

static void set(uint64_t key) {
    begin("SET", 3);
    put_key(key);
    put_value(value_size);
}

static void get(uint64_t key) {
    begin("GET", 2);
    put_key(key);
}

// ---- Workloads.

static void scan(uint64_t key) {
    char count[8];
    snprintf(count, sizeof count, "%" PRIu64, 1 + below(SCAN_LENGTH));
    begin("SCAN", 3);
    put_key(key);
    put_text(count);
}

// A key that is there: the hot ones are scattered over all.
static uint64_t hot_key(void) {
    return mix(zipfian(inserted)) % inserted;
}

static uint64_t new_key(void) {
    return inserted - 1 - zipfian(inserted);
}

// Every command, on few keys, with values of all sizes.
static void any(uint64_t number) {
    static const char *names[] = {"k1", "k2", "k3", "k4", "k5", "k6", "k7", "k8"};
    const char *key = names[below(8)];
    char list[8], count[8], other[24];
    snprintf(list, sizeof list, "l%s", key);
    snprintf(count, sizeof count, "n%s", key);
    snprintf(other, sizeof other, "x%" PRIu64, below(64));
    switch (below(16)) {
    case 0: begin("GET", 2), put_text(key); break;
    case 1: begin("DEL", 2), put_text(below(2) ? key : list); break;
    case 2: begin("INCR", 2), put_text(count); break;
    case 3: begin("APPEND", 3), put_text(key), put_value(1 + below(40)); break;
    case 4: begin("APPEND", 3), put_text(key), put_value(1 + below(400)); break;
    case 5: begin("MSET", 5), put_text(key), put_value(8), put_text(other), put_value(100); break;
    case 6: begin("LPUSH", 3), put_text(list), put_value(10); break;
    case 7: begin("RPUSH", 3), put_text(list), put_value(100); break;
    case 8: begin("LPOP", 2), put_text(list); break;
    case 9: begin("RPOP", 2), put_text(list); break;
    case 10: begin("LRANGE", 4), put_text(list), put_text("0"), put_text("-1"); break;
    case 11: begin("SETNX", 3), put_text(other), put_value(10); break;
    case 12: begin("SET", 3), put_text(number % 8 ? key : list), put_value(below(200)); break;
    default: begin("SET", 3), put_text(other), put_value(below(64)); break;
    }
}

static void one(const char *workload, uint64_t number) {
    if (strcmp(workload, "all") == 0) {
        any(number);
        return;
    }
    if (inserted < 2)
        die("run load first");
    bool often = below(100) >= 5;
    switch (workload[0]) {
    case 'a': below(2) ? get(hot_key()) : set(hot_key()); break;
    case 'b': often ? get(hot_key()) : set(hot_key()); break;
    case 'c': get(hot_key()); break;
    case 'd': often ? get(new_key()) : set(inserted++); break;
    case 'e': often ? scan(hot_key()) : set(inserted++); break;
    default: {
        uint64_t key = hot_key();
        get(key);
        if (below(2))
            set(key);
    }
    }
}

// ---- Talking to the server.

static char replies[BUFFER];
static size_t reply_bytes;
static bool errors_are_right; // `all` also does to a string what is for a list

static void send_all(const char *data, size_t length) {
    while (length > 0) {
        ssize_t n = write(server < 0 ? STDOUT_FILENO : server, data, length);
        if (n <= 0)
            die("the server is gone");
        data += n;
        length -= (size_t)n;
    }
}

// Where the reply at `at` ends; 0 if it is not complete.
static size_t reply_end(size_t at) {
    const char *line = memchr(replies + at, '\n', reply_bytes - at);
    if (!line)
        return 0;
    if (replies[at] == '-' && !errors_are_right)
        die("the server replied with an error");
    size_t end = (size_t)(line - replies) + 1;
    long number = strtol(replies + at + 1, NULL, 10);
    if (replies[at] == '$' && number >= 0)
        return end + (size_t)number + 2 <= reply_bytes ? end + (size_t)number + 2 : 0;
    for (long i = 0; replies[at] == '*' && i < number; i++) {
        end = end < reply_bytes ? reply_end(end) : 0;
        if (end == 0)
            return 0;
    }
    return end;
}

// Reads until there are so many replies; where the last one begins.
static size_t read_replies(uint64_t count) {
    size_t at = 0, last = 0;
    reply_bytes = 0;
    while (count > 0) {
        size_t end = at < reply_bytes ? reply_end(at) : 0;
        if (end > 0) {
            last = at;
            at = end;
            count--;
            continue;
        }
        if (reply_bytes + 1 >= sizeof replies) {
            memmove(replies, replies + at, reply_bytes - at);
            reply_bytes -= at;
            at = 0;
        }
        ssize_t n = read(server, replies + reply_bytes, sizeof replies - 1 - reply_bytes);
        if (n <= 0)
            die("the server is gone, or its replies are too long: a smaller --depth");
        reply_bytes += (size_t)n;
        replies[reply_bytes] = 0;
    }
    return last;
}

static void flush_requests(void) {
    send_all(requests, request_bytes);
    if (server >= 0)
        read_replies(request_count);
    request_bytes = 0;
    request_count = 0;
}

struct info {
    double flushes, fences, microseconds;
};

static struct info ask(void) {
    begin("INFO", 1);
    send_all(requests, request_bytes);
    const char *text = replies + read_replies(1);
    request_bytes = 0;
    request_count = 0;
    struct info info = {0};
    const char *flushes = strstr(text, "flushes:"), *fences = strstr(text, "fences:"), *time = strstr(text, "microseconds:");
    if (flushes && fences && time) {
        info.flushes = atof(flushes + 8);
        info.fences = atof(fences + 7);
        info.microseconds = atof(time + 13);
    }
    return info;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void run(const char *workload) {
    static const char *known[] = {"load", "a", "b", "c", "d", "e", "f", "all"};
    size_t i = 0;
    while (i < sizeof known / sizeof known[0] && strcmp(workload, known[i]) != 0)
        i++;
    if (i == sizeof known / sizeof known[0])
        die("no such workload");
    bool is_load = i == 0;
    errors_are_right = strcmp(workload, "all") == 0;
    uint64_t count = is_load ? records : operations;
    struct info before = {0}, after;
    if (server >= 0)
        before = ask();
    double begun = now();
    for (uint64_t done = 0; done < count; done++) {
        if (is_load)
            set(inserted++);
        else
            one(workload, done);
        if ((done + 1) % depth == 0 || done + 1 == count)
            flush_requests();
    }
    double seconds = now() - begun, n = (double)count;
    if (server < 0)
        return;
    after = ask();
    printf("%-5s %8.0f operations/s %8.3f us of the server %8.3f flushes %8.3f fences an operation\n", workload, n / seconds,
           (after.microseconds - before.microseconds) / n, (after.flushes - before.flushes) / n,
           (after.fences - before.fences) / n);
    fflush(stdout);
}

static int connect_to(const char *port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)strtoul(port, NULL, 10))};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int on = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) != 0) {
        perror("kv-load");
        exit(2);
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

int main(int argc, char **argv) {
    int at = 1;
    bool print = false;
    for (; at < argc && argv[at][0] == '-'; at++) {
        static const struct {
            const char *name;
            uint64_t *value;
        } options[] = {{"--records", &records}, {"--operations", &operations}, {"--value", &value_size},
                       {"--depth", &depth},     {"--seed", &seed}};
        size_t i = 0;
        if (strcmp(argv[at], "--print") == 0) {
            print = true;
            continue;
        }
        while (i < 5 && strcmp(argv[at], options[i].name) != 0)
            i++;
        if (i == 5 || at + 1 == argc)
            die("usage: kv-load [--records N] [--operations N] [--value BYTES] [--depth N] [--seed N] PORT|--print WORKLOAD…");
        *options[i].value = strtoull(argv[++at], NULL, 10);
    }
    if (value_size > MAX_VALUE || depth == 0 || records < 2)
        die("--value may be 8192 at most, --depth 1 at least, --records 2 at least");
    if (!print && at < argc)
        server = connect_to(argv[at++]);
    state = seed;
    for (; at < argc; at++)
        run(argv[at]);
    return 0;
}
