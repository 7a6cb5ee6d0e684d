// A global object's destructor, after main, stores to PM.
#include "../pm.h"

struct Database {
    volatile uint64_t *pm = nullptr;
    ~Database() {
        if (pm)
            pm[0] = 9;
        pm_persist((void *)pm, 8);
    }
};

static Database database;

int main(int argc, char **argv) {
    database.pm = static_cast<uint64_t *>(pm_map(argv[argc - 1], PAGE));
    database.pm[8] = 1;
    pm_persist((void *)&database.pm[8], 8);
    printf("%lu\n", (unsigned long)database.pm[8]);
    return 0;
}
