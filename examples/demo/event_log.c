// An append-only log of events in a mapped file. An event counts once `count` includes it.
//
// append() forgets one flush: the event itself. When power fails after `count` has become durable and before the event's
// line happened to leave the cache, the log claims an event that is not there.

#include <fcntl.h>
#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

enum { CAPACITY = 1024 };

struct event {
	uint64_t time;
	char text[56];
};

struct log {
	uint64_t count;
	char unused[56];
	struct event events[CAPACITY];
};

static void append(struct log *log, const struct event *event)
{
	uint64_t n = log->count;

	log->events[n] = *event;
	log->count = n + 1;
	_mm_clwb(&log->count);
	_mm_sfence();
}

int main(int argc, char **argv)
{
	if (argc != 2) {
		fprintf(stderr, "usage: %s FILE\n", argv[0]);
		return 2;
	}
	int file = open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0644);
	if (file < 0 || ftruncate(file, sizeof(struct log)) != 0) {
		perror(argv[1]);
		return 2;
	}
	struct log *log = mmap(NULL, sizeof *log, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (log == MAP_FAILED) {
		perror("mmap");
		return 2;
	}

	static const struct event events[] = {
		{ 1001, "door opened" },
		{ 1002, "alarm armed" },
		{ 1005, "door closed" },
	};
	for (size_t i = 0; i < sizeof events / sizeof *events; i++)
		append(log, &events[i]);
	printf("%llu events logged\n", (unsigned long long)log->count);

	munmap(log, sizeof *log);
	close(file);
	return 0;
}
