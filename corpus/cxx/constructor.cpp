// A constructor by placement new fills an object in PM; nobody persists it.
// build: gcc clang
#include "../pm.h"
#include <new>

class Account {
  public:
    explicit Account(long opening) : balance_(opening) {}
    long balance() const { return balance_; }
    void persist() const { pm_persist(this, sizeof *this); }

  private:
    volatile long balance_;
};

int main(int argc, char **argv) {
    char *pm = static_cast<char *>(pm_map(argv[argc - 1], PAGE));
    Account *first = new (pm) Account(100);
    first->persist();
    Account *second = new (pm + LINE) Account(200); //~ missing-flush x1
    printf("%ld\n", first->balance() + second->balance());
    return 0;
}
