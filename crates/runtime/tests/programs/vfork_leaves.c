// Children of vfork that execute a program leave nothing mapped in their parent, whose memory they share.
#include "pm.h"

extern char **environ;

static int mappings(void) {
    char line[4096];
    int count = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, maps)) count++;
    fclose(maps);
    return count;
}

static long pages(void) {
    long pages = 0;
    FILE *statm = fopen("/proc/self/statm", "r");
    CHECK(fscanf(statm, "%ld", &pages) == 1);
    fclose(statm);
    return pages;
}

static void execute(int way) {
    char *arguments[] = {"true", NULL}, *nothing[] = {NULL};
    pid_t child = vfork();
    if (child == 0) {
        switch (way) {
        case 0: execl("/bin/true", "true", NULL); break;
        case 1: execlp("true", "true", NULL); break;
        case 2: execle("/bin/true", "true", NULL, nothing); break;
        case 3: execve("/bin/true", arguments, nothing); break;
        case 4: execve("/nowhere", arguments, nothing); _exit(0);
        }
        _exit(99);
    }
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
}

int main(void) {
    map_pm();
    store();
    for (int way = 0; way < 5; way++) {
        execute(way);
        int before = mappings();
        long size = pages();
        for (int i = 0; i < 10; i++) execute(way);
        printf("way %d: %d mappings and %ld pages more\n", way, mappings() - before, pages() - size);
    }
    return 0;
}
