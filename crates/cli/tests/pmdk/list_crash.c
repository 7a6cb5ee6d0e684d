/* The example lists under crash test: `setup`, `run` and `verify` as in map_crash.c. */
#define main lists_main
#include "lists.c"
#undef main

#include "acknowledged.h"

static void fail(const char *what) {
    fprintf(stderr, "list_crash: %s\n", what);
    exit(1);
}

/* The n-th insert goes to this list of these two kinds. */
static int list_of(long n) { return (int)(n % MAX_LISTS); }
static enum list_type type_of(long n) { return n % 3 ? LIST_FOO : LIST_BAR; }

/* The insert before `n` into the same list; each is put at the head. -1: none. */
static long before(long n, int list, enum list_type type) {
    do
        n--;
    while (n >= 0 && (list_of(n) != list || type_of(n) != type));
    return n;
}

/* Whether the lists hold what the first `count` inserts put there, in both directions. */
#define EQUAL_ELEMENTS(head, element, list, type)                                                                        \
    do {                                                                                                                 \
        TOID(element) at;                                                                                                \
        TOID(element) last = TOID_NULL(element);                                                                         \
        long expected = before(count, list, type), left = count + 1;                                                     \
        POBJ_LIST_FOREACH(at, head, entries) {                                                                           \
            if (expected < 0 || left-- == 0 || D_RO(at)->value != (int)expected)                                         \
                return 0;                                                                                                \
            if (!TOID_IS_NULL(last) && !TOID_EQUALS(POBJ_LIST_PREV(at, entries), last))                                  \
                return 0;                                                                                                \
            last = at;                                                                                                   \
            expected = before(expected, list, type);                                                                     \
        }                                                                                                                \
        if (expected >= 0)                                                                                               \
            return 0;                                                                                                    \
    } while (0)

static int equal(struct my_root *root, long count) {
    for (int list = 0; list < MAX_LISTS; list++) {
        EQUAL_ELEMENTS(&root->lists[list].foo_list, struct foo_el, list, LIST_FOO);
        EQUAL_ELEMENTS(&root->lists[list].bar_list, struct bar_el, list, LIST_BAR);
    }
    return 1;
}

static void verify(struct my_root *root, long operations) {
    long done = acknowledged();
    long from = done < 0 ? 0 : done, to = done < 0 ? operations : done + 1;
    for (long n = from; n <= to && n <= operations; n++)
        if (equal(root, n))
            return;
    fail("the lists hold neither the state before nor the state after the insert that was under way");
}

int main(int argc, char **argv) {
    if (argc != 4)
        fail("usage: list_crash setup|run|verify POOL OPERATIONS");
    int setup = strcmp(argv[1], "setup") == 0, check = strcmp(argv[1], "verify") == 0;
    long operations = atol(argv[3]);
    if (setup)
        unlink(argv[2]);
    if (check && pmemobj_check(argv[2], POBJ_LAYOUT_NAME(two_lists)) != 1)
        fail("pmemobj_check says that the pool is inconsistent");
    PMEMobjpool *pool = setup ? pmemobj_create(argv[2], POBJ_LAYOUT_NAME(two_lists), PMEMOBJ_MIN_POOL, 0600)
                              : pmemobj_open(argv[2], POBJ_LAYOUT_NAME(two_lists));
    if (pool == NULL)
        fail("the pool does not open");
    struct my_root *root = D_RW(POBJ_ROOT(pool, struct my_root));
    if (check)
        verify(root, operations);
    for (long n = 0; !setup && !check && n < operations; n++) {
        list_insert(pool, &root->lists[list_of(n)], type_of(n), (int)n);
        acknowledge();
    }
    pmemobj_close(pool);
    return 0;
}
