// The order that has to hold, said by the request that PMDebugger has for it.
#include "../pm.h"

#define ORDER_GUARANTEE(first, first_length, second, second_length)                                                    \
    PM_REQUEST_OF(35, first, first_length, second, second_length)

struct slot {
    uint64_t data;
    char pad[56];
    uint64_t valid;
};

int main(int argc, char **argv) {
    struct slot *slots = pm_map(argv[argc - 1], PAGE);
    for (int i = 0; i < 2; i++) {
        ORDER_GUARANTEE(&slots[i].data, 8, &slots[i].valid, 8);
        slots[i].data = 7;
        pm_persist(&slots[i].data, 8);
        slots[i].valid = 1;
        pm_persist(&slots[i].valid, 8);
    }
    return 0;
}
