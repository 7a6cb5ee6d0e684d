// Files that are made without a name and get one, before or after they are mapped, are data. One that never gets a name is not.
#include "../pm.h"

static int unnamed(const char *path) {
    char folder[4096];
    snprintf(folder, sizeof folder, "%s", path);
    char *slash = strrchr(folder, '/');
    if (slash)
        *slash = 0;
    int fd = open(slash ? folder : ".", O_TMPFILE | O_RDWR, 0600);
    if (fd < 0 || ftruncate(fd, PAGE) != 0)
        pm_die(folder);
    return fd;
}

static void name(int fd, const char *path, const char *suffix) {
    char old[64], new[4096];
    snprintf(old, sizeof old, "/proc/self/fd/%d", fd);
    snprintf(new, sizeof new, "%s.%s", path, suffix);
    unlink(new); // of the run before
    if (linkat(AT_FDCWD, old, AT_FDCWD, new, AT_SYMLINK_FOLLOW) != 0)
        pm_die(new);
}

static volatile uint64_t *map(int fd) {
    return mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
}

int main(int argc, char **argv) {
    const char *path = argv[argc - 1];
    int late = unnamed(path), early = unnamed(path);
    volatile uint64_t *mapped_first = map(late);
    mapped_first[0] = 1; //~ missing-flush
    name(late, path, "late");
    name(early, path, "early");
    volatile uint64_t *named_first = map(early);
    named_first[0] = 2; //~ missing-flush
    volatile uint64_t *never = map(unnamed(path));
    never[0] = 3;
    printf("%lu %lu %lu\n", (unsigned long)mapped_first[0], (unsigned long)named_first[0], (unsigned long)never[0]);
    return 0;
}
