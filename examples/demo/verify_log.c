// What reads the log after a power failure: every event that is counted must be there.

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>

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

int main(int argc, char **argv)
{
	if (argc != 2) {
		fprintf(stderr, "usage: %s FILE\n", argv[0]);
		return 2;
	}
	int file = open(argv[1], O_RDONLY);
	if (file < 0 && errno == ENOENT)
		return 0; // there is no log yet
	struct stat status;
	if (file < 0 || fstat(file, &status) != 0) {
		perror(argv[1]);
		return 2;
	}
	if (status.st_size < (off_t)sizeof(struct log))
		return 0; // nor now
	const struct log *log = mmap(NULL, sizeof *log, PROT_READ, MAP_SHARED, file, 0);
	if (log == MAP_FAILED) {
		perror("mmap");
		return 2;
	}
	for (uint64_t i = 0; i < log->count; i++)
		if (log->events[i].time == 0 || log->events[i].text[0] == '\0') {
			fprintf(stderr, "event %lu is counted and not there\n", (unsigned long)i);
			return 1;
		}
	return 0;
}
