// Executes programs that have the runtime at the addresses where this one has the code of libc, whose writes a filter traps.
#include "pm.h"
#include <stdint.h>
#include <sys/personality.h>
#include <sys/resource.h>

struct range {
    uintptr_t start, end;
};

// Of the code of a library; from the first to the last of its mappings.
static struct range code_of(const char *library) {
    struct range found = {0, 0};
    char line[4096], rights[8];
    uintptr_t start, end;
    FILE *maps = fopen("/proc/self/maps", "r");
    CHECK(maps);
    while (fgets(line, sizeof line, maps))
        if (sscanf(line, "%lx-%lx %7s", &start, &end, rights) == 3 && rights[2] == 'x' && strstr(line, library)) {
            if (!found.start) found.start = start;
            found.end = end;
        }
    fclose(maps);
    return found;
}

// Everything is mapped lower by so much: below a larger stack.
static void writes_when_lower_by(uintptr_t distance, char *name) {
    int ends[2];
    CHECK(pipe(ends) == 0);
    pid_t child = fork();
    if (child == 0) {
        struct rlimit stack;
        dup2(ends[1], 1);
        CHECK(getrlimit(RLIMIT_STACK, &stack) == 0);
        // At least 128 MiB are kept free for the stack, of which 1 MiB is a guard.
        stack.rlim_cur = (127 << 20) + distance;
        CHECK(setrlimit(RLIMIT_STACK, &stack) == 0);
        execl("/proc/self/exe", name, "again", "child", NULL);
        _exit(99);
    }
    close(ends[1]);
    char said[16] = "";
    ssize_t length = read(ends[0], said, sizeof said);
    close(ends[0]);
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    CHECK(length == 8 && !memcmp(said, "written\n", 8));
}

int main(int argc, char **argv) {
    if (argc == 3) {
        puts("written");
        return 0;
    }
    if (argc == 1) {
        CHECK(personality(ADDR_NO_RANDOMIZE) != -1);
        execl("/proc/self/exe", argv[0], "again", NULL);
        return 99;
    }
    map_pm();
    store();
    struct range runtime = code_of("/libcrashproof_runtime"), libc = code_of("/libc.so");
    CHECK(libc.start < libc.end);
    for (uintptr_t at = runtime.start; at < runtime.end; at += (libc.end - libc.start) / 2)
        writes_when_lower_by(at - libc.start, argv[0]);
    writes_when_lower_by(64 << 20, argv[0]);
    printf("all of them wrote\n");
    return 0;
}
