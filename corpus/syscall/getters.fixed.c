// getcwd, uname, getsockopt and readlink write into PM.
// file-differs: holds the name of the machine and of the folder
#include "../pm.h"
#include <sys/socket.h>
#include <sys/utsname.h>

int main(int argc, char **argv) {
    char *pm = pm_map(argv[argc - 1], 8 * PAGE);
    int sockets[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0)
        pm_die("socketpair");
    char *folder = getcwd(pm, PAGE);
    int named = uname((struct utsname *)(pm + PAGE)) == 0;
    socklen_t *len = (socklen_t *)(pm + 2 * PAGE + 64);
    *len = sizeof(int);
    int option = getsockopt(sockets[0], SOL_SOCKET, SO_TYPE, pm + 2 * PAGE, len);
    ssize_t link = readlink("/proc/self/exe", pm + 3 * PAGE, PAGE);
    pm_flush(pm, strlen(pm) + 1);
    pm_flush(pm + PAGE, sizeof(struct utsname));
    pm_flush(pm + 2 * PAGE, 4);
    pm_flush(len, sizeof *len);
    pm_persist(pm + 3 * PAGE, (size_t)link);
    printf("%d %d %d %d %u %d\n", folder == pm, named, option, *(int *)(pm + 2 * PAGE), *len, link > 0);
    return 0;
}
