// Fields of structs, nested, in arrays, in unions.
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct inner {
    uint32_t a;
    uint32_t b;
};

struct node {
    uint64_t key;
    struct node *next;
    struct inner in;
    uint64_t keys[8];
    struct inner pairs[4];
    union {
        uint64_t word;
        struct inner halves;
    } u;
    uint8_t flag : 1;
    uint8_t rest : 7;
    char name[13];
    char tail[];
};

typedef struct {
    int x;
    int y;
} point_t;

extern void escape(void *);

void fields(struct node *n, uint64_t k, struct node *m) {
    n->key = k;              //~ struct node.key
    n->next = m;             //~ struct node.next
    n->in.b = 7;             //~ struct inner.b in struct node.in.b
    n->next->next->key = k;  //~ struct node.key
    n->u.word = 5;           //~ node::(unnamed plain.c:17).word|halves in struct node.u
    n->u.halves.b = 5;       //~ struct inner.b in node::(unnamed plain.c:17).word|halves in struct node.u.word|halves
    n->flag = 1;             //~ struct node.flag+rest
    n->name[2] = 'x';        //~ struct node.name[]
}

void elements(struct node *n, int i, uint64_t k) {
    n->keys[3] = k;      //~ struct node.keys[]
    n->keys[i] = k;      //~ struct node.keys[]*
    n->pairs[i].b = 1;   //~ struct inner.b in struct node.pairs[]*
    n->pairs[2].a = 1;   //~ struct inner.a in struct node.pairs[].a
    n->tail[i] = 1;      //~ struct node.tail[]*
    n[i].key = k;        //~ struct node.key
    n[1].key = k;        //~ struct node.key
}

void through_pointers(struct node *n, uint64_t k) {
    uint64_t *slot = &n->key;
    *slot = k;  //~ struct node.key
    struct inner *in = &n->in;
    in->a = 1;  //~ struct inner.a in struct node.in.a
    struct node **where = &n->next;
    *where = NULL;  //~ struct node.next
    uint64_t *word = &n->keys[0];
    for (int i = 0; i < 8; i++)
        *word++ = k;  //~ struct node.keys[]*
    for (struct inner *p = n->pairs; p < n->pairs + 4; p++)
        p->b = (uint32_t)k;  //~ struct inner.b in struct node.pairs[]*
}

void casts(char *bytes, uintptr_t address, void *raw, uint32_t v) {
    ((struct node *)bytes)->key = v;                          //~ struct node.key
    ((struct inner *)(address + 16))->b = v;                  //~ struct inner.b
    struct node *n = raw;
    n->in.a = v;                                              //~ struct inner.a in struct node.in.a
    ((struct inner *)((char *)raw + offsetof(struct node, in)))->a = v;  //~ struct inner.a
    *(uint64_t *)&n->in = v;                                  //~ struct inner.a+b in struct node.in
    struct node *owner = (struct node *)((char *)&n->in - offsetof(struct node, in));
    owner->next = n;                                          //~ struct node.next
}

void typedefs(point_t *p, const point_t *q) {
    p->y = 3;  //~ point_t.y
    p[2].x = 3;  //~ point_t.x
    *p = *q;   //~ point_t.x+y
}

void copies(struct node *n, const struct inner *from, const char *text, size_t len) {
    n->in = *from;                            //~ struct inner.a+b in struct node.in
    memcpy(&n->in, from, sizeof n->in);       //~ struct inner.a+b in struct node.in
    memcpy(n->name, text, len);               //~ struct node.name[]
    memset(n, 0, sizeof *n);                  //~ struct node.bytes 0..144
    memset(n->keys, 0, sizeof n->keys);       //~ struct node.keys[] | struct node.bytes 0..144
}

struct node *global_head;
void globals(uint64_t k) {
    global_head->key = k;             //~ struct node.key
    global_head->next->in.a = 2;      //~ struct inner.a in struct node.in.a
}

void helper(void *to, uint64_t v) {
    *(uint64_t *)to = v;              //~ argument 0 + 0
    memcpy((char *)to + 8, &v, 8);    //~ argument 0 + 8
}

void scalar(uint64_t *to, int i) {
    *to = 3;        //~ argument 0 + 0
    to[i] = 4;      //~ argument 0
}

uint64_t *global_words;
void words(int i) {
    global_words[i] = 1;        //~ no struct
    static uint64_t counters[4];
    counters[i] = 2;            //~ no struct
}

void atomics(struct node *n) {
    __atomic_fetch_add(&n->key, 1, __ATOMIC_SEQ_CST);      //~ struct node.key
    __atomic_store_n(&n->next, n, __ATOMIC_RELEASE);       //~ struct node.next
    __sync_bool_compare_and_swap(&n->in.a, 1, 2);          //~ struct inner.a in struct node.in.a
}

struct node *choose(struct node *a, struct node *b, int c) {
    struct node *p = c ? a : b;
    p->key = 9;                       //~ struct node.key
    (c ? a : b)->in.a = 9;            //~ struct inner.a in struct node.in.a
    for (struct node *it = a; it; it = it->next)
        it->flag = 0;                 //~ struct node.flag+rest
    return p;
}

static uint64_t *key_of(struct node *n) { return &n->key; }
static void *at(void *base, int by) { return (char *)base + by; }
static void *next_word(void *base) { return (char *)base + 8; }
static struct node **slot(void) { return &global_head->next; }
static uint64_t *rest(struct node *n, int deep) { return deep ? rest(n->next, deep - 1) : n->keys; }

void returned(struct node *n, int i, uint64_t offset) {
    *key_of(n) = 1;                       //~ struct node.key
    *slot() = n;                          //~ struct node.next
    *(uint64_t *)next_word(n) = 2;        //~ struct node.next
    rest(n, i)[1] = 2;                    //~ struct node.keys[]
    *(uint64_t *)((char *)n + offset) = 3;  //~ struct node.bytes 0..144*
    *(uint64_t *)at(n, i) = 3;            //~ struct node.bytes 0..144* | unknown
}

// A macro: three stores at one position.
struct queue {
    uint64_t length;
    struct node *first;
    struct node **last;
};
#define APPEND(queue, node) do { (node)->next = NULL; *(queue)->last = (node); (queue)->last = &(node)->next; } while (0)

void append(struct queue *q, struct node *n) {
    APPEND(q, n);  //~ struct node.next | struct queue.last | no struct
}
