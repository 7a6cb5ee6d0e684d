// A program of std::string, templates that another unit instantiates, and a class whose key function is there.
#include "templates.h"

#include <iostream>
#include <stdexcept>

struct Square : Shape {
    const char *name() const override {
        return "square";
    }
};

int main() {
    Box<std::string> box("boxed");
    std::string text = box.loud() + " " + std::to_string(std::string(100, 'z').size());
    Square square;
    const Shape &shape = square;
    text += " " + std::to_string(Box<std::string>::number) + " " + shape.name();
    try {
        text.at(1000);
    } catch (const std::out_of_range &error) {
        text += " " + std::string(error.what()).substr(0, 16);
    }
    std::cout << text << std::endl;
}
