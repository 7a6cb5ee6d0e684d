// repair: subprogram+fence append, subprogram+fence append
// Two places need the persistent helper; it is made once.
#include "persist.h"
#include "pool.h"

struct buffer {
    uint64_t length;
    char text[248];
};

__attribute__((noinline)) static void append(struct buffer *buffer, char c) {
    buffer->text[buffer->length] = c; //~ missing-flush
    buffer->length++; //~ missing-flush
}

static struct buffer line;

static void write_header(struct buffer *pm) {
    append(&line, 'h');
    append(pm, 'H');
}

static void write_body(struct buffer *pm) {
    append(&line, 'b');
    append(&line, 'b');
    append(pm, 'B');
}

int main(int argc, char **argv) {
    struct buffer *pm = pool_open(argv[argc - 1], 4096);
    write_header(pm);
    write_body(pm);
    printf("%s %s\n", line.text, pm->text);
    return 0;
}
