// Records of two classes behind one interface; one class forgets its flush.
#include "../pm.h"

struct Writer {
    virtual void write(volatile uint64_t *at, uint64_t value) = 0;
    virtual ~Writer() = default;
};

struct Durable : Writer {
    void write(volatile uint64_t *at, uint64_t value) override {
        *at = value;
        pm_persist((void *)at, 8);
    }
};

struct Fast : Writer {
    void write(volatile uint64_t *at, uint64_t value) override {
        *at = value;
    }
};

int main(int argc, char **argv) {
    auto *pm = static_cast<uint64_t *>(pm_map(argv[argc - 1], PAGE));
    Durable durable;
    Fast fast;
    Writer *writers[] = {&durable, &fast};
    for (int i = 0; i < 4; i++)
        writers[i % 2]->write(&pm[i * 8], (uint64_t)i + 1); //~ missing-flush
    printf("%lu\n", (unsigned long)(pm[0] + pm[8] + pm[16] + pm[24]));
    return 0;
}
