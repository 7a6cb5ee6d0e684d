// getline into a buffer that happens to lie in PM.
#include "../pm.h"

int main(int argc, char **argv) {
    char *pm = pm_map(argv[argc - 1], PAGE);
    FILE *file = tmpfile();
    fputs("first line\nsecond line\n", file);
    rewind(file);
    char *line = pm;
    size_t room = PAGE;
    ssize_t len = getline(&line, &room, file);
    pm_persist(line, (size_t)len + 1);
    fclose(file);
    printf("%zd %s", len, pm);
    return 0;
}
