// A mailbox for one number, 0 if it is empty, posted by compare-exchange and emptied later, and never flushed: what is posted
// is lost. It is no lock, since a thread posts different numbers, though they are as small as the states of a lock.
#include "../pm.h"

struct mailbox {
    uint32_t task;
    char pad[60];
    volatile uint64_t done;
};

static int post(struct mailbox *mailbox, uint32_t task) {
    uint32_t empty = 0;
    return __atomic_compare_exchange_n(&mailbox->task, &empty, task, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

static void empty(struct mailbox *mailbox) {
    __atomic_store_n(&mailbox->task, 0, __ATOMIC_RELEASE); //~ missing-flush
}

int main(int argc, char **argv) {
    struct mailbox *mailbox = pm_map(argv[argc - 1], PAGE);
    for (uint32_t task = 1; task <= 3; task++) {
        if (!post(mailbox, task))
            return 1;
        mailbox->done += task;
        pm_persist((void *)&mailbox->done, sizeof mailbox->done);
        empty(mailbox);
    }
    printf("%lu\n", (unsigned long)mailbox->done);
    return 0;
}
