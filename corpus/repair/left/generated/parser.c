// repair: left
// A generator made this from grammar.y: an edit here would not last.
#include "persist.h"
#include "pool.h"

struct table {
    uint64_t tokens;
};

static void reduce(struct table *table) {
#line 20 "grammar.y"
    table->tokens += 1;
#line 13 "parser.c"
}

int main(int argc, char **argv) {
    struct table *table = pool_open(argv[argc - 1], 4096);
    reduce(table);
    printf("%lu\n", (unsigned long)table->tokens);
    return 0;
}
