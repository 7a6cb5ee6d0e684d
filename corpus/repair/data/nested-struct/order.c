// repair: flush
// A field of an element of an array in a struct in a struct.
#include "persist.h"
#include "pool.h"

struct order {
    struct customer {
        uint64_t id;
        struct address {
            uint32_t zip;
            char city[60];
        } addresses[2];
    } customer;
    uint64_t total;
};

static void move(struct order *order, int which, uint32_t zip) {
    order->customer.addresses[which].zip = zip; //~ missing-flush
    pm_fence();
}

int main(int argc, char **argv) {
    struct order *orders = pool_open(argv[argc - 1], 4096);
    move(&orders[3], 1, 10115);
    printf("%u\n", orders[3].customer.addresses[1].zip);
    return 0;
}
