// std::thread with lambdas; each thread persists its part, the last element is left to nobody.
#include "../pm.h"
#include <thread>
#include <vector>

int main(int argc, char **argv) {
    auto *pm = static_cast<volatile uint64_t *>(pm_map(argv[argc - 1], 2 * PAGE));
    std::vector<std::thread> threads;
    for (int id = 0; id < 4; id++)
        threads.emplace_back([pm, id] {
            for (int i = id; i < 32; i += 4) {
                pm[i * 8] = (uint64_t)i;
                pm_persist((void *)&pm[i * 8], 8);
            }
        });
    for (auto &thread : threads)
        thread.join();
    uint64_t sum = 0;
    for (int i = 0; i < 32; i++)
        sum += pm[i * 8];
    printf("%lu\n", (unsigned long)sum);
    return 0;
}
