// repair: flush+fence
// build: $CXX -g -O2 -o app shapes.cpp
// A virtual method of a volatile object stores to the PM that it refers to.
#include "persist.h"
#include "pool.h"

struct Data {
    uint64_t area;
    uint64_t pad[7];
};

struct Shape {
    explicit Shape(Data *data) : data_(data) {}
    virtual ~Shape() = default;
    virtual void measure() = 0;

protected:
    Data *data_;
};

struct Square : Shape {
    Square(Data *data, uint64_t side) : Shape(data), side_(side) {}
    void measure() override {
        data_->area = side_ * side_; //~ missing-flush
    }

private:
    uint64_t side_;
};

int main(int argc, char **argv) {
    auto *data = static_cast<Data *>(pool_open(argv[argc - 1], 4096));
    Square first(&data[0], 3), second(&data[1], 4);
    Shape *shapes[] = {&first, &second};
    for (Shape *shape : shapes)
        shape->measure();
    printf("%lu\n", (unsigned long)(data[0].area + data[1].area));
    return 0;
}
