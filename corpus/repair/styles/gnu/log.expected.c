// repair: flush+fence
// GNU's style.
#include "persist.h"
#include "pool.h"

struct log
{
  uint64_t head;
  char pad[56];
  uint64_t tail;
};

static void
advance (struct log *log, int by)
{
  if (by > 0)
    {
      log->head += by;
      pm_persist (&log->head, sizeof (log->head));
    }
}

int
main (int argc, char **argv)
{
  struct log *log = pool_open (argv[argc - 1], 4096);
  advance (log, 3);
  printf ("%lu %lu\n", (unsigned long) log->head, (unsigned long) log->tail);
  return 0;
}
