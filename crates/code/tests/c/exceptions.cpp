// Frames with landing pads, and a callback from within a destructor that runs while an exception is in flight.
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

typedef void (*callback)();

static volatile int sink;

struct Guard {
    callback call;
    std::string name;
    explicit Guard(callback call) : call(call), name("a name that is too long to be kept in place") {}
    ~Guard() {
        if (call)
            call();
        sink += name.size();
    }
};

__attribute__((noinline)) static void fail(int depth) {
    std::vector<int> numbers(depth + 1, 3);
    if (depth == 0)
        throw std::runtime_error("expected");
    fail(depth - 1);
    sink += numbers[0];
}

__attribute__((noinline)) static void guarded(callback call, int depth) {
    Guard guard(call);
    fail(depth);
}

__attribute__((noinline)) static void plain(const std::function<void()> &call) {
    try {
        call();
    } catch (const std::logic_error &) {
        sink++;
    }
}

extern "C" int enter_with_exception(callback call) {
    try {
        guarded(call, 5);
    } catch (const std::exception &) {
        return 1;
    }
    return 0;
}

extern "C" int enter_with_lambda(callback call) {
    std::string kept = "another one that is too long to be kept in place";
    plain([call, kept] {
        call();
        sink += kept.size();
    });
    return 1;
}
