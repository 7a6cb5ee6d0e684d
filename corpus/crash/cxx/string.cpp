// setup: yes
// A string's size and characters lie in two lines; one fence after both lets the new size meet the old characters.
#include "../app.h"

#include <string>

class String {
  public:
    void append(const char *text) {
        size_t more = strlen(text);
        memcpy(characters_ + size_, text, more); //~ crash-order
        pm_flush(characters_ + size_, more);
        size_ += more; //~ persisted
        pm_persist(&size_, sizeof size_);
    }

    std::string value() const { return std::string(characters_, size_); }

  private:
    alignas(LINE) uint64_t size_;
    alignas(LINE) char characters_[256];
};

static void setup(const char *path) {
    static_cast<String *>(pm_map(path, PAGE))->append("persist");
}

static void run(const char *path) {
    auto string = static_cast<String *>(pm_map(path, PAGE));
    string->append("ent");
    string->append(" memory");
}

static void recover(const char *path) {
    std::string value = static_cast<String *>(pm_map(path, PAGE))->value();
    REQUIRE(value == "persist" || value == "persistent" || value == "persistent memory", "the string is \"%s\"",
            value.c_str());
}

APP(setup, run, recover, nullptr)
