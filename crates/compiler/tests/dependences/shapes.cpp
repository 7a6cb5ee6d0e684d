// What crosses frames in unusual ways. Words of PM: pm[0], pm[1], ... are told apart by their offsets.
#include <csetjmp>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <pthread.h>
#include <stdexcept>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>
typedef uint64_t word;
static word *pm;
static volatile word sink;
static void done() { if (write(1, "\n", 1) != 1) abort(); }

// A branch of a frame that an exception skips is closed in the handler.
static void thrower(word x) { if (x + pm[0]) throw std::runtime_error("x"); }
static void exception() {
    try { thrower(1); } catch (const std::exception &) { sink = pm[1]; }
}
// What was read before the throw is known after the catch.
static void value_through_exception() {
    try { throw pm[2]; } catch (word w) { pm[3] = w; }
}
// A frame that longjmp skips, and a branch that was opened after setjmp.
static jmp_buf back;
static void jumper() { if (pm[4] + 1) longjmp(back, 1); }
static void jump() {
    if (setjmp(back) == 0) { if (pm[5] + 1) jumper(); }
    sink = pm[6];
}
// A callback of libc's sees no labels of the caller's, and gives none to it.
static int compare(const void *a, const void *b) {
    word x = *(const word *)a, y = *(const word *)b;
    return x < y ? -1 : x > y;
}
static void callback() {
    word order[2] = {2, 1};
    word one = pm[7];
    qsort(order, 2 + (one & 0), sizeof order[0], compare);
    pm[8] = order[0];
}
static const void *found;
static void search() {
    static word sorted[2] = {1, 2};
    word key = 2;
    found = bsearch(&key, sorted, 2, sizeof key, compare);
    pm[9] = found != nullptr;
}
// Library functions.
static void library() {
    char text[32];
    strcpy(text, (char *)&pm[10]);
    pm[11] = strlen(text);
    if (memcmp(&pm[12], text, 4) == 0) sink = 1;
    pm[13] = strcmp((char *)&pm[12], (char *)&pm[10]) == 0;
    memcpy(&pm[14], text, 8);
    memset(text, 0, sizeof text);
    pm[15] = text[0];
}
// A switch, a virtual call, a vector on the heap.
struct Shape { virtual ~Shape() {} virtual word area(word x) { return x; } };
struct Square : Shape { word area(word x) override { return x * x; } };
static void classes() {
    Square square;
    Shape *shape = &square;
    std::vector<word> all;
    all.push_back(pm[16]);
    all.push_back(pm[17]);
    switch (all[0]) { case 0: pm[18] = shape->area(all[1]); break; default: pm[19] = 1; }
    pm[20] = all.size();
}
// An operation's labels end with it.
static word kept;
static void first() { kept = pm[21]; }
static void second() { pm[22] = kept; }
// Structs by value.
struct Wide { word a, b, c; };
static word take(Wide w) { return w.b; }
static void by_value() { Wide w = {pm[23], 1, pm[24]}; pm[25] = take(w); }
// A thread has its own branches and arguments.
static void *threaded(void *p) { pm[27] = *(word *)p; return nullptr; }
static void thread() {
    word x = pm[26];
    pthread_t t;
    if (x + 1) { pthread_create(&t, nullptr, threaded, &x); pthread_join(t, nullptr); }
}
// One success, one failure.
static void exchange() {
    word expected = 0;
    __atomic_compare_exchange_n(&pm[28], &expected, pm[29] + 5, 0, 5, 5);
    __atomic_compare_exchange_n(&pm[28], &expected, 7, 0, 5, 5);
    __atomic_compare_exchange_n(&pm[28], &expected, 9, 0, 5, 5);
}
int main(int, char **v) {
    int fd = open(v[1], O_RDWR | O_CREAT, 0600);
    if (ftruncate(fd, 4096)) return 1;
    pm = (word *)mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    done();
    void (*const operations[])() = {exception, value_through_exception, jump, callback, search, library, classes, first, second, by_value, thread, exchange};
    for (auto operation : operations) { operation(); done(); }
    return 7;
}
