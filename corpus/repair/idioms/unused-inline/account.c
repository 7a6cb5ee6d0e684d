// repair: flush
// Nobody calls the program's own flush function, so the compiler makes no code of it; the source has it.
#include "nvm.h"
#include "pool.h"

struct account {
    uint64_t balance;
    char pad[56];
    uint64_t version;
};

static void deposit(struct account *account, uint64_t amount) {
    account->balance += amount; //~ missing-flush
    nvm_fence();
}

int main(int argc, char **argv) {
    struct account *account = pool_open(argv[argc - 1], 4096);
    deposit(account, 30);
    printf("%lu\n", (unsigned long)account->balance);
    return 0;
}
