// repair: flush+fence
// build: $CXX -g -O2 -o app price.cpp
// operator= of a persistent type, written by hand.
#include "persist.h"
#include "pool.h"

class Price {
public:
    Price &operator=(uint64_t cents) {
        cents_ = cents;
        return *this;
    }
    operator uint64_t() const { return cents_; }

private:
    uint64_t cents_;
};

int main(int argc, char **argv) {
    auto *prices = static_cast<Price *>(pool_open(argv[argc - 1], 4096));
    prices[0] = 199; //~ missing-flush
    prices[20] = 250; //~ missing-flush
    printf("%lu\n", (unsigned long)(prices[0] + prices[20]));
    return 0;
}
