// Output on stdout, stderr and sockets.
#include "pm.h"
#include <sys/socket.h>
#include <sys/uio.h>

int main(void) {
    map_pm();
    store();
    printf("by printf\n");
    fflush(stdout);
    CHECK(write(1, "by write\n", 9) == 9);
    struct iovec parts[2] = {{"by ", 3}, {"writev\n", 7}};
    CHECK(writev(1, parts, 2) == 10);
    fprintf(stderr, "to stderr\n");

    int pair[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    CHECK(send(pair[0], "send ", 5, 0) == 5);
    CHECK(write(pair[0], "write ", 6) == 6);
    struct iovec gathered[2] = {{"write", 5}, {"v ", 2}};
    CHECK(writev(pair[0], gathered, 2) == 7);
    CHECK(sendto(pair[0], "sendto ", 7, 0, NULL, 0) == 7);
    struct iovec one = {"sendmsg ", 8}, another = {"sendmmsg ", 9};
    struct msghdr message = {.msg_iov = &one, .msg_iovlen = 1};
    CHECK(sendmsg(pair[0], &message, 0) == 8);
    struct mmsghdr several = {.msg_hdr = {.msg_iov = &another, .msg_iovlen = 1}};
    CHECK(sendmmsg(pair[0], &several, 1, 0) == 1 && several.msg_len == 9);

    // Neither a file nor a pipe is output.
    int ends[2];
    CHECK(pipe(ends) == 0 && write(ends[1], "pipe", 4) == 4);
    int file = open("file", O_WRONLY | O_CREAT, 0600);
    CHECK(write(file, "file", 4) == 4);
    return 0;
}
