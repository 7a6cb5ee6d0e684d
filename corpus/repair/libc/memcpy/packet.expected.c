// repair: flush
// memcpy into PM.
#include "persist.h"
#include "pool.h"
#include <string.h>

struct packet {
    uint64_t length;
    char data[248];
};

static void receive(struct packet *packet, const char *data, size_t length) {
    memcpy(packet->data, data, length);
    pm_flush(packet->data, length);
    packet->length = length;
    pm_persist(&packet->length, sizeof packet->length);
}

int main(int argc, char **argv) {
    struct packet *packet = pool_open(argv[argc - 1], 4096);
    char data[200];
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = 'a' + i % 26;
    receive(packet, data, sizeof data);
    printf("%lu %.10s\n", (unsigned long)packet->length, packet->data);
    return 0;
}
