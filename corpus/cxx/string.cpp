// A std::string's bytes are copied into PM by an algorithm of the standard library.
#include "../pm.h"
#include <algorithm>
#include <string>

int main(int argc, char **argv) {
    char *pm = static_cast<char *>(pm_map(argv[argc - 1], PAGE));
    std::string name(100, 'z');
    name += std::to_string(argc);
    std::copy_n(name.data(), name.size(), pm); //~ missing-flush in-stack
    pm_persist(pm, 64);
    printf("%.10s\n", pm);
    return 0;
}
