// poll and epoll_wait write their answers into PM.
#include "../pm.h"
#include <poll.h>
#include <sys/epoll.h>

int main(int argc, char **argv) {
    char *pm = pm_map(argv[argc - 1], PAGE);
    struct pollfd *waiting = (struct pollfd *)pm;
    struct epoll_event *events = (struct epoll_event *)(pm + 128);
    int fds[2];
    if (pipe(fds) != 0 || write(fds[1], "x", 1) != 1)
        pm_die("pipe");
    waiting->fd = fds[0];
    waiting->events = POLLIN;
    pm_persist(pm, sizeof *waiting);
    int ready = poll(waiting, 1, 1000); //~ missing-flush
    int epoll = epoll_create1(0);
    struct epoll_event wanted = {.events = EPOLLIN, .data = {.u64 = 17}};
    epoll_ctl(epoll, EPOLL_CTL_ADD, fds[0], &wanted);
    int happened = epoll_wait(epoll, events, 4, 1000); //~ missing-flush
    printf("%d %d %d %lu\n", ready, waiting->revents == POLLIN, happened, (unsigned long)events->data.u64);
    return 0;
}
