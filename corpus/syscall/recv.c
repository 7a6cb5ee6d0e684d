// recv and recvmsg from a socket into PM.
#include "../pm.h"
#include <sys/socket.h>
#include <sys/uio.h>

int main(int argc, char **argv) {
    char *pm = pm_map(argv[argc - 1], PAGE);
    int fds[2];
    if (socketpair(AF_UNIX, SOCK_DGRAM, 0, fds) != 0)
        pm_die("socketpair");
    if (send(fds[1], "one", 3, 0) != 3 || send(fds[1], "three", 5, 0) != 5)
        pm_die("send");
    ssize_t first = recv(fds[0], pm, 64, 0); //~ missing-flush
    struct iovec part = {pm + 64, 64};
    struct msghdr message = {0};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    ssize_t second = recvmsg(fds[0], &message, 0); //~ missing-flush
    printf("%zd %zd %s %s\n", first, second, pm, pm + 64);
    return 0;
}
