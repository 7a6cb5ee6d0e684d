// Static data that the program registers as persistent, in a line with data that it does not.
#include "../pm.h"

static struct {
    uint64_t before;
    uint64_t value;
    uint64_t other[6];
    uint64_t behind;
} data = {1, 2, {3}, 4};

int main(void) {
    PM_REGISTER(&data.value, sizeof data.value);
    data.before = 5;
    data.value = 6; //~ missing-flush
    data.other[0] = 7;
    __atomic_fetch_add(&data.behind, 8, __ATOMIC_SEQ_CST);
    pm_print("data", &data, sizeof data);
    return 0;
}
