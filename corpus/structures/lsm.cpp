// A log-structured merge tree: operations go to a log in PM and to a table in memory; a full table becomes a sorted run in PM;
// when there are too many runs, they are merged into one.
//
// A version says which runs there are and from where on the log is valid. A new version is written to the slot that is not in use,
// and the root is switched to it by one store. Opening reads the log from there on.
#include "kv.h"
#include <algorithm>
#include <map>
#include <vector>

namespace {

constexpr uint64_t MAGIC = 0x6d736c;
constexpr uint64_t LOG_ENTRIES = 128; // a ring
constexpr uint64_t TABLE_ENTRIES = 12;
constexpr uint64_t MAX_RUNS = 4;
constexpr uint64_t AREAS = 8; // of runs
constexpr uint64_t RUN_ENTRIES = 512;

struct alignas(32) Entry {
    uint64_t key;
    uint64_t value; // 0: removed
    uint64_t sequence;
};

struct alignas(LINE) Run {
    uint64_t count;
    uint64_t checksum;
    alignas(LINE) Entry entries[RUN_ENTRIES]; // sorted by key
};

struct alignas(LINE) Version {
    uint64_t log_start; // sequence of the first log entry that no run has
    uint32_t run_count;
    uint32_t runs[MAX_RUNS + 1]; // areas, oldest first
};

struct Root {
    alignas(LINE) uint64_t magic;
    alignas(LINE) uint64_t version;  // which of the two is in use
    alignas(LINE) uint64_t log_end; // sequence after the last log entry
    Version versions[2];
    alignas(LINE) Entry log[LOG_ENTRIES]; // by sequence, modulo its size
    Run runs[AREAS];
};

Root *root;
std::map<uint64_t, uint64_t> table;

const Version &current() {
    return root->versions[root->version & 1];
}

void store_durably(uint64_t &at, uint64_t value) {
    at = value;
    pm_persist(&at, sizeof at);
}

uint64_t checksum(const Run &run) {
    uint64_t sum = mix(run.count);
    for (uint64_t i = 0; i < run.count; i++)
        sum = mix(sum ^ run.entries[i].key ^ mix(run.entries[i].value));
    return sum;
}

// To the log: first the entry, then the log's end.
void append(uint64_t key, uint64_t value) {
    uint64_t sequence = root->log_end;
    Entry &entry = root->log[sequence % LOG_ENTRIES];
    entry = Entry{key, value, sequence}; //~[BUG_LOG_ORDER] crash-order|crash-durability
    pm_flush(&entry, sizeof entry);
#ifndef BUG_LOG_ORDER
    PM_SFENCE();
#endif
    store_durably(root->log_end, sequence + 1);
}

// A version with other runs, which begins the log at `log_start`.
void install(const std::vector<uint32_t> &runs, uint64_t log_start) {
    Version next = {};
    next.log_start = log_start;
    next.run_count = static_cast<uint32_t>(runs.size());
    std::copy(runs.begin(), runs.end(), next.runs);
#ifdef BUG_VERSION_IN_PLACE
    Version &to = root->versions[root->version & 1];
    to = next; //~[BUG_VERSION_IN_PLACE] crash-atomicity|crash-order
    pm_persist(&to, sizeof to);
#else
    Version &to = root->versions[~root->version & 1];
    to = next; //~[BUG_VERSION_ORDER] crash-order
    pm_flush(&to, sizeof to);
#ifndef BUG_VERSION_ORDER
    PM_SFENCE();
#endif
    store_durably(root->version, root->version + 1);
#endif
}

uint32_t free_area(const std::vector<uint32_t> &runs) {
    for (uint32_t area = 0; area < AREAS; area++)
        if (std::find(runs.begin(), runs.end(), area) == runs.end())
            return area;
    REQUIRE(false, "no area is free");
    return 0;
}

std::vector<uint32_t> current_runs() {
    return {current().runs, current().runs + current().run_count};
}

// Writes a run to the area.
void write_run(uint32_t area, const std::map<uint64_t, uint64_t> &content) {
    Run &run = root->runs[area];
    REQUIRE(content.size() <= RUN_ENTRIES, "a run is full");
    uint64_t count = 0;
    for (const auto &[key, value] : content)
        run.entries[count++] = Entry{key, value, 0}; //~[BUG_RUN_ORDER] crash-order|crash-durability
    run.count = count; //~[BUG_RUN_ORDER] crash-order|crash-durability
    run.checksum = checksum(run); //~[BUG_RUN_ORDER] crash-order|crash-durability
#ifndef BUG_RUN_ORDER
    // A bounded number of lines in flight, as in large copies.
    for (uint64_t i = 0; i < count; i += 4) {
        pm_flush(&run.entries[i], 4 * sizeof(Entry));
        PM_SFENCE();
    }
    pm_persist(&run, LINE);
#endif
}

// All runs in one: newer entries count, and what was removed is gone.
void compact() {
    std::vector<uint32_t> runs = current_runs();
    std::map<uint64_t, uint64_t> merged;
    for (uint32_t area : runs)
        for (uint64_t i = 0; i < root->runs[area].count; i++)
            merged[root->runs[area].entries[i].key] = root->runs[area].entries[i].value;
    for (auto at = merged.begin(); at != merged.end();)
        at = at->second == 0 ? merged.erase(at) : std::next(at);
#ifdef BUG_COMPACT_REUSE
    uint32_t area = runs[0]; // "it is merged already" //~[BUG_COMPACT_REUSE] crash-order|crash-atomicity
#else
    uint32_t area = free_area(runs);
#endif
    write_run(area, merged); //~[BUG_COMPACT_REUSE] crash-order|crash-atomicity
    install({area}, current().log_start);
}

void flush_table() {
    std::vector<uint32_t> runs = current_runs();
    uint32_t area = free_area(runs);
#ifdef BUG_LOG_TRUNCATED
    // The log is given up before there is a version with the run.
    store_durably(root->versions[root->version & 1].log_start, root->log_end); //~[BUG_LOG_TRUNCATED] crash-order|crash-atomicity|crash-durability
#endif
    write_run(area, table);
    runs.push_back(area);
    install(runs, root->log_end);
#ifdef BUG_RUN_ORDER
    pm_persist(&root->runs[area], sizeof root->runs[area]);
#endif
    table.clear();
    if (runs.size() > MAX_RUNS)
        compact();
}

void put(uint64_t key, uint64_t value) {
    append(key, value);
    table[key] = value;
    if (table.size() >= TABLE_ENTRIES || root->log_end - current().log_start >= LOG_ENTRIES)
        flush_table();
}

const Entry *find_in(const Run &run, uint64_t key) {
    const Entry *end = run.entries + run.count;
    const Entry *at = std::lower_bound(run.entries, end, key, [](const Entry &e, uint64_t k) { return e.key < k; });
    return at != end && at->key == key ? at : nullptr;
}

} // namespace

static void kv_insert(uint64_t key, uint64_t value) {
    put(key, value);
}

static void kv_update(uint64_t key, uint64_t value) {
    put(key, value);
}

static void kv_remove(uint64_t key) {
    put(key, 0);
}

static uint64_t kv_get(uint64_t key) {
    auto at = table.find(key);
    if (at != table.end())
        return at->second;
    for (uint32_t i = current().run_count; i-- > 0;)
        if (const Entry *entry = find_in(root->runs[current().runs[i]], key))
            return entry->value;
    return 0;
}

static uint64_t kv_check(void) {
    for (uint32_t area : current_runs()) {
        const Run &run = root->runs[area];
        REQUIRE(run.count <= RUN_ENTRIES && run.checksum == checksum(run), "run %u is broken", area);
        for (uint64_t i = 1; i < run.count; i++)
            REQUIRE(run.entries[i - 1].key < run.entries[i].key, "run %u is not sorted", area);
    }
    uint64_t count = 0;
    for (uint64_t key = 1; key <= KEYS; key++)
        count += kv_get(key) != 0;
    return count;
}

static bool kv_open(const char *path, bool create) {
    root = static_cast<Root *>(pm_map(path, sizeof *root));
    if (root->magic == MAGIC) {
        const Version &version = current();
        REQUIRE(version.run_count <= MAX_RUNS + 1, "a version of %u runs", version.run_count);
        for (uint32_t area : current_runs())
            REQUIRE(area < AREAS && root->runs[area].count <= RUN_ENTRIES, "run %u is broken", area);
        REQUIRE(root->log_end - version.log_start <= LOG_ENTRIES, "a log from %lu to %lu", version.log_start, root->log_end);
        for (uint64_t sequence = version.log_start; sequence != root->log_end; sequence++) {
            const Entry &entry = root->log[sequence % LOG_ENTRIES];
            REQUIRE(entry.sequence == sequence && entry.key != 0, "log entry %lu is broken", sequence);
            table[entry.key] = entry.value;
        }
        return true;
    }
    if (!create)
        return false;
    root->version = 0;
    root->log_end = 0;
    memset(root->versions, 0, sizeof root->versions);
    pm_persist(root, offsetof(Root, log));
    store_durably(root->magic, MAGIC);
    return true;
}
