// std::copy fills an array of several lines, and the flush covers as many bytes as a pointer has.
#include "../app.h"

#include <algorithm>
#include <array>

using Samples = std::array<uint64_t, 20>;

struct Series {
    alignas(LINE) uint64_t count;
    alignas(LINE) uint64_t samples[20];
};

static Samples measure() {
    Samples samples;
    for (size_t i = 0; i < samples.size(); i++)
        samples[i] = 1000 + i;
    return samples;
}

static void load(Series *series, const Samples &from) {
    uint64_t *to = series->samples;
    std::copy(from.begin(), from.end(), to); //~ crash-order
    pm_persist(to, sizeof to);
    series->count = from.size(); //~ persisted
    pm_persist(&series->count, sizeof series->count);
}

static void run(const char *path) {
    load(static_cast<Series *>(pm_map(path, PAGE)), measure());
}

static void recover(const char *path) {
    auto series = static_cast<const Series *>(pm_map(path, PAGE));
    Samples expected = measure();
    REQUIRE(series->count == 0 || series->count == expected.size(), "%lu samples", series->count);
    REQUIRE(std::equal(series->samples, series->samples + series->count, expected.begin()), "samples are lost");
}

APP(nullptr, run, recover, nullptr)
