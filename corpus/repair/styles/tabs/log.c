// repair: flush+fence
// Tabs, as in the kernel's style.
#include "persist.h"
#include "pool.h"

struct log {
	uint64_t head;
	char pad[56];
	uint64_t tail;
};

static int log_advance(struct log *log, int by)
{
	if (by > 0) {
		if (log->head < 100)
			log->head += by; //~ missing-flush
	}
	return 0;
}

int main(int argc, char **argv)
{
	struct log *log = pool_open(argv[argc - 1], 4096);

	log->tail = 1;
	pm_persist(&log->tail, sizeof(log->tail));
	log_advance(log, 3);
	printf("%lu %lu\n", (unsigned long)log->head, (unsigned long)log->tail);
	return 0;
}
