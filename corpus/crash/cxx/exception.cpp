// The guard publishes the record when its scope is left, also by an exception: then the value comes only afterwards.
#include "../app.h"

#include <exception>
#include <stdexcept>

struct Record {
    alignas(LINE) uint64_t value;
    alignas(LINE) uint64_t valid;

    void set(uint64_t number) {
        value = number; //~ crash-order one-of
        pm_persist(&value, sizeof value);
    }

    void publish() {
        valid = 1; //~ persisted
        pm_persist(&valid, sizeof valid);
    }
};

class PublishOnExit {
  public:
    explicit PublishOnExit(Record &record) : record_(record) {}
    ~PublishOnExit() {
        record_.publish();
    }

  private:
    Record &record_;
};

static uint64_t parse(const char *text) {
    if (*text < '0' || *text > '9')
        throw std::invalid_argument(text);
    return strtoul(text, nullptr, 10);
}

static void load(Record &record, const char *text) {
    try {
        PublishOnExit guard(record);
        record.set(parse(text));
    } catch (const std::invalid_argument &) {
        record.set(99); // the default //~ crash-order one-of
    }
}

static void run(const char *path) {
    auto records = static_cast<Record *>(pm_map(path, PAGE));
    load(records[0], "12");
    load(records[1], "twelve");
}

static void recover(const char *path) {
    auto records = static_cast<Record *>(pm_map(path, PAGE));
    REQUIRE(!records[0].valid || records[0].value == 12, "the first record holds %lu", records[0].value);
    REQUIRE(!records[1].valid || records[1].value == 99, "the second record holds %lu", records[1].value);
}

APP(nullptr, run, recover, nullptr)
