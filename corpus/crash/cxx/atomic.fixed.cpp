// As atomic.cpp, but the data is persistent before it is published.
#include "../app.h"

#include <atomic>
#include <initializer_list>

struct Channel {
    alignas(LINE) uint64_t data[8];
    alignas(LINE) std::atomic<uint64_t> sent;

    void send(uint64_t value) {
        uint64_t at = sent.load(std::memory_order_relaxed);
        data[at] = value;
        pm_persist(&data[at], sizeof value);
        sent.store(at + 1, std::memory_order_release);
        pm_persist(&sent, sizeof sent);
    }
};

static void run(const char *path) {
    auto channel = static_cast<Channel *>(pm_map(path, PAGE));
    for (uint64_t value : {31, 32, 33})
        channel->send(value);
}

static void recover(const char *path) {
    auto channel = static_cast<Channel *>(pm_map(path, PAGE));
    uint64_t sent = channel->sent.load();
    REQUIRE(sent <= 3, "%lu values were sent", sent);
    for (uint64_t i = 0; i < sent; i++)
        REQUIRE(channel->data[i] == 31 + i, "value %lu is %lu", i, channel->data[i]);
}

APP(nullptr, run, recover, nullptr)
