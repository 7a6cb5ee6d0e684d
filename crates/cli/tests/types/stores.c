// Every line that stores to persistent memory says to what; the first argument is the file.
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct inner {
    uint32_t a, b;
};

struct node {
    uint64_t key;
    struct node *next;
    struct inner in;
    uint64_t keys[4];
    char name[64];
};

struct root {
    uint64_t count;
    struct node nodes[8];
    uint64_t log[2];
};

#define NOINLINE __attribute__((noinline))

static void put(void *to, uint64_t value) {
    *(uint64_t *)to = value; //~ struct inner.a+b in struct node.in in struct root.nodes[].in
}

// Two levels up, of which the compiler may inline one.
NOINLINE static void put_twice(void *to, uint64_t value) {
    put(to, value);
    put(to, value + 1);
}

NOINLINE static void copy(void *to, const void *from, size_t length) {
    memcpy(to, from, length); //~ struct node.name[] in struct root.nodes[].name[]
}

NOINLINE static void set_key(struct node *node, int index, uint64_t key) {
    node->keys[index] = key; //~ struct node.keys[] in struct root.nodes[].keys[]
}

// What a log holds has no type; what it is written to does.
NOINLINE static void replay(uint64_t *to, uint64_t value) {
    *to = value; //~ struct root.count
}

NOINLINE static void fill(struct root *root, int n, char *text) {
    snprintf(root->nodes[1].name, 20, "%s", text); //~ struct node.name[] in struct root.nodes[].name[]
    struct node copied;
    memset(&copied, n, sizeof copied);
    root->nodes[3] = copied; //~ *
    memset(&root->nodes[5], n, sizeof root->nodes[5]); //~ *
}

int main(int argc, char **argv) {
    int fd = open(argv[1], O_RDWR | O_CREAT, 0600);
    if (ftruncate(fd, 4096))
        return 1;
    struct root *root = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    root->count = 3; //~ struct root.count
    for (int i = 0; i < 3; i++) {
        struct node *node = &root->nodes[i];
        node->key = i; //~ struct node.key in struct root.nodes[].key
        node->in.b = argc; //~ struct inner.b in struct node.in.b in struct root.nodes[].in.b
        put_twice(&node->in, 7);
        copy(node->name, "hello, this is a longer text", 20 + argc);
        set_key(node, i, 9);
    }
    root->nodes[6].key = 6; //~ struct node.key in struct root.nodes[].key
    set_key(&root->nodes[6], 3, 9);
    fill(root, argc, argv[0]);
    uint64_t *target;
    root->log[0] = (uintptr_t)&root->count; //~ struct root.log[]
    memcpy(&target, &root->log[0], 8);
    replay(target, 4);
    return 0;
}
