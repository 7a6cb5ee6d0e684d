// An exception that nobody catches ends the program.
// expect-signal: 6
#include "../pm.h"
#include <stdexcept>

int main(int argc, char **argv) {
    auto *pm = static_cast<volatile uint64_t *>(pm_map(argv[argc - 1], PAGE));
    pm[0] = 1; //~ missing-flush
    pm[8] = 2;
    pm_persist((void *)&pm[8], 8);
    printf("%lu\n", (unsigned long)pm[0]);
    fflush(stdout);
    throw std::runtime_error("nobody catches this");
}
