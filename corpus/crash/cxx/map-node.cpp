// A node of a binary search tree is linked to its parent before it is persistent.
#include "../app.h"

#include <initializer_list>

struct alignas(LINE) Node {
    uint64_t key, value;
    uint64_t children[2]; // index, 0 is none
};

class Map {
  public:
    void insert(uint64_t key, uint64_t value) {
        uint64_t index = key, *link = &root_;
        while (*link != 0)
            link = &nodes_[*link].children[key > nodes_[*link].key];
        nodes_[index] = Node{key, value, {0, 0}}; //~ crash-order
        pm_flush(&nodes_[index], sizeof(Node));
        *link = index; //~ persisted
        pm_persist(link, sizeof *link);
    }

    void verify() const { verify(root_, 0, UINT64_MAX); }

  private:
    void verify(uint64_t index, uint64_t low, uint64_t high) const {
        if (index == 0)
            return;
        const Node &node = nodes_[index];
        REQUIRE(node.key > low && node.key < high, "key %lu is not between %lu and %lu", node.key, low, high);
        REQUIRE(node.value == node.key * 10, "key %lu has the value %lu", node.key, node.value);
        verify(node.children[0], low, node.key);
        verify(node.children[1], node.key, high);
    }

    alignas(LINE) uint64_t root_;
    Node nodes_[8];
};

static void run(const char *path) {
    auto map = static_cast<Map *>(pm_map(path, PAGE));
    for (uint64_t key : {4, 2, 6})
        map->insert(key, key * 10);
}

static void recover(const char *path) {
    static_cast<const Map *>(pm_map(path, PAGE))->verify();
}

APP(nullptr, run, recover, nullptr)
