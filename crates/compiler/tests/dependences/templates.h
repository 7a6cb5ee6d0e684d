#include <string>

template <class T> struct Box {
    T value;
    explicit Box(T given);
    __attribute__((always_inline)) T get() const {
        return value;
    }
    T loud() const;
    static const int number = 7;
};
template <class T> Box<T>::Box(T given) : value(given) {
}
template <class T> T Box<T>::loud() const {
    return get() + "!";
}
extern template struct Box<std::string>;

struct Shape {
    virtual ~Shape();
    virtual const char *name() const {
        return "shape";
    }
};
