// setup: yes
// The transaction commits in its destructor, in the wrong order: the undo log is emptied before what was changed is persistent.
#include "../app.h"

#include <vector>

struct Entry {
    uint64_t index, old;
};

struct Pool {
    alignas(LINE) uint64_t count;
    alignas(LINE) Entry log[4];
    alignas(LINE) uint64_t values[8]; // always the same number in 0 and 1

    void roll_back() {
        while (count > 0) {
            REQUIRE(count <= 4 && log[count - 1].index < 8, "the log is damaged");
            values[log[count - 1].index] = log[count - 1].old;
            pm_persist(values, sizeof values);
            count--;
            pm_persist(&count, sizeof count);
        }
    }
};

class Transaction {
  public:
    explicit Transaction(Pool &pool) : pool_(pool) {}

    void set(uint64_t index, uint64_t value) {
        pool_.log[pool_.count] = Entry{index, pool_.values[index]};
        pm_persist(&pool_.log[pool_.count], sizeof(Entry));
        pool_.count++;
        pm_persist(&pool_.count, sizeof pool_.count);
        pool_.values[index] = value; //~ crash-order
    }

    ~Transaction() {
        pool_.count = 0; //~ persisted
        pm_persist(&pool_.count, sizeof pool_.count);
        pm_persist(pool_.values, sizeof pool_.values);
    }

  private:
    Pool &pool_;
};

static void setup(const char *path) {
    (void)pm_map(path, PAGE);
}

static void run(const char *path) {
    auto pool = static_cast<Pool *>(pm_map(path, PAGE));
    Transaction transaction(*pool);
    transaction.set(0, 9);
    transaction.set(1, 9);
}

static void recover(const char *path) {
    auto pool = static_cast<Pool *>(pm_map(path, PAGE));
    pool->roll_back();
    REQUIRE(pool->values[0] == pool->values[1], "the values are %lu and %lu", pool->values[0], pool->values[1]);
}

APP(setup, run, recover, nullptr)
