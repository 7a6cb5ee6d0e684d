// The optimiser makes one store of five, and credits it to one of their lines.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

struct vector {
    double x, y;
    long a;
    int b, c;
};

__attribute__((noinline)) static void clear(struct vector *v) {
    v->x = 0;
    v->y = 0;
    v->a = 0;
    v->b = 0;
    v->c = 0;
}

int main(int argc, char **argv) {
    int fd = open(argv[1], O_RDWR | O_CREAT, 0600);
    if (ftruncate(fd, 4096))
        return 1;
    struct vector *v = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    clear(v);
    v[1].a = 5;
    return 0;
}
