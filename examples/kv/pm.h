// What makes stores to persistent memory durable.
#ifndef PM_H
#define PM_H

#include <stddef.h>
#include <stdint.h>

#define LINE 64

// Flushes every cache line that the range touches. They are durable after the next pm_drain.
void pm_flush(const void *address, size_t length);

// Waits for the flushes, and orders the stores before it before those after it.
void pm_drain(void);

// What was executed so far; INFO shows it.
struct pm_counts {
    uint64_t flushes; // cache lines
    uint64_t fences;
};
extern struct pm_counts pm_counts;

#endif
