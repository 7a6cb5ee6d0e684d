// Classes: inheritance, methods, references, templates.
#include <cstdint>
#include <cstring>

namespace pool {

struct header {
    uint64_t magic;
    uint32_t version;
};

class entry : public header {
  public:
    void set(uint64_t k, uint64_t v);
    void reset();
    uint64_t key;
    uint64_t value;
};

class virtual_entry {
  public:
    virtual ~virtual_entry() = default;
    virtual void touch(int by);
    int count;
};

void entry::set(uint64_t k, uint64_t v) {
    key = k;      //~ pool::entry.key
    value = v;    //~ pool::entry.value
    magic = 1;    //~ pool::header.magic in pool::entry.pool::header.magic
    version = 2;  //~ pool::header.version in pool::entry.pool::header.version
}

void entry::reset() {
    set(0, 0);
    std::memset(this, 0, sizeof *this);  //~ pool::entry.pool::header+key+value
}

void virtual_entry::touch(int by) {
    count += by;  //~ pool::virtual_entry.count
}

}  // namespace pool

template <class K, class V> struct table {
    struct slot {
        K key;
        V value;
        bool valid;
    };
    slot slots[16];
    uint64_t used;

    void insert(unsigned at, const K &k, const V &v) {
        slots[at].key = k;         //~ table<unsigned long, unsigned int>::slot.key in table<unsigned long, unsigned int>.slots[]*
        slots[at].value = v;       //~ table<unsigned long, unsigned int>::slot.value in table<unsigned long, unsigned int>.slots[]*
        slots[at].valid = true;    //~ table<unsigned long, unsigned int>::slot.valid in table<unsigned long, unsigned int>.slots[]*
        used++;                    //~ table<unsigned long, unsigned int>.used
    }
};

void by_reference(pool::entry &e, uint64_t &counter) {
    e.value = 4;   //~ pool::entry.value
    counter = 5;   //~ argument 1 + 0
}

void use(table<unsigned long, unsigned> *t) {
    t->insert(3, 4, 5);
    t->used = 0;   //~ table<unsigned long, unsigned int>.used
    auto &slot = t->slots[1];
    slot.valid = false;  //~ table<unsigned long, unsigned int>::slot.valid in table<unsigned long, unsigned int>.slots[].valid
}

struct vec {
    double x, y, z;
};

void assign(vec *to, const vec &from) {
    *to = from;        //~ vec.x+y+z
    *to = {1, 2, 3};   //~ vec.x+y+z | vec.x+y | vec.z
}
