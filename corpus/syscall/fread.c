// fread of a large block reads straight into the caller's buffer, from inside libc.
#include "../pm.h"

int main(int argc, char **argv) {
    char *pm = pm_map(argv[argc - 1], 8 * PAGE);
    FILE *file = tmpfile();
    for (int i = 0; i < 20000; i++)
        fputc('a' + i % 26, file);
    rewind(file);
    size_t got = fread(pm, 1, 20000, file); //~ missing-flush
    pm_persist(pm, got - 64);
    fclose(file);
    printf("%zu %.5s %.5s\n", got, pm, pm + 19995);
    return 0;
}
