/* Frames of many shapes on the way from `enter` to a callback, or to a breakpoint. */
#include <alloca.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef void (*callback)(void);
#define FRAME __attribute__((noinline))

static volatile int sink;

static FRAME void stop(callback call) {
    if (call)
        call();
    else
        __asm__ volatile("int3; nop" ::: "memory");
    sink++;
}

static FRAME void large(callback call) {
    char room[9000];
    memset(room, sink, sizeof room);
    __asm__ volatile("" ::"r"(room) : "memory");
    stop(call);
    sink += room[sink & 1023];
}

static FRAME void dynamic(callback call, int size) {
    char *room = alloca(size);
    memset(room, 1, size);
    __asm__ volatile("" ::"r"(room) : "memory");
    large(call);
    sink += room[size - 1];
}

static FRAME void realigned(callback call) {
    char room[256] __attribute__((aligned(64)));
    memset(room, 1, sizeof room);
    __asm__ volatile("" ::"r"(room) : "memory");
    dynamic(call, 100 + sink % 7);
    sink += room[3];
}

static FRAME long registers(callback call, long a, long b, long c, long d, long e, long f, long g) {
    long w = a * b + sink, x = b * c + sink, y = c * d + sink, z = d * e + sink, v = e * f + sink, u = f * g + sink;
    realigned(call);
    return a + b + c + d + e + f + g + w + x + y + z + v + u;
}

static FRAME int branches(callback call, int x) {
    if (x == 12345)
        abort();
    switch (x & 7) {
    case 0: sink += 5; break;
    case 1: sink *= 7; break;
    case 2: sink ^= x; break;
    case 3: sink -= x * 3; break;
    case 5: return 3;
    case 6: abort();
    default: sink += registers(call, 1, 2, 3, 4, 5, 6, x); break;
    }
    for (int i = 0; i < x; i++) {
        if (sink == i * 77)
            return i;
        sink += i;
    }
    if (sink == 54321)
        abort();
    return sink;
}

static FRAME int tail(callback call) { return branches(call, 4 + 8 * (sink & 1)); }

static FRAME int recurse(callback call, int depth) {
    if (depth == 0)
        return tail(call);
    int result = recurse(call, depth - 1);
    sink += result;
    return result + depth;
}

static callback compare_callback;
static int compared;

static int compare(const void *one, const void *other) {
    if (compared++ == 3)
        recurse(compare_callback, 2);
    return *(const int *)one - *(const int *)other;
}

int enter(callback call, int depth) {
    int result = recurse(call, depth);
    sink += result;
    return result;
}

int enter_sorting(callback call) {
    int numbers[] = {5, 3, 9, 1, 7, 2, 8};
    compare_callback = call;
    compared = 0;
    qsort(numbers, 7, sizeof *numbers, compare);
    return numbers[0];
}

/* The first call of `resolved` goes through its PLT entry and the loader's trampoline to `resolve`. */
static callback resolving_callback;
static int nothing(int x) { return x; }

static int (*resolve(void))(int) {
    recurse(resolving_callback, 2);
    return nothing;
}

#ifdef LAZY
int resolved(int) __attribute__((ifunc("resolve")));

int enter_lazily(callback call) {
    resolving_callback = call;
    return resolved(3) + sink;
}
#else
int enter_directly(callback call) {
    resolving_callback = call;
    return resolve()(3);
}
#endif
