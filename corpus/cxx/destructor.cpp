// An object's destructor marks it in PM as closed, as the last thing.
#include "../pm.h"

struct Session {
    volatile uint64_t *state;
    explicit Session(volatile uint64_t *at) : state(at) {
        *state = 1;
        pm_persist((void *)state, 8);
    }
    ~Session() {
        *state = 2; //~ missing-fence
        PM_CLWB(state);
    }
};

int main(int argc, char **argv) {
    auto *pm = static_cast<uint64_t *>(pm_map(argv[argc - 1], PAGE));
    {
        Session session(pm);
        printf("%lu\n", (unsigned long)*pm);
    }
    printf("%lu\n", (unsigned long)*pm);
    return 0;
}
