// The program of figure 2 of PMBugAssist (ICSE 2024), with its bugs: the counter is raised before the record is there and never flushed, and a record's
// `valid` is flushed together with its name and address.
//
//     records setup FILE     makes the file: no record is written yet
//     records run FILE       writes the records (the paper's writer)
//     records recover FILE   reads them after a crash (its reader); 1 if a record that is counted was not written, or a name or an address
//                            is not the one that was written
#include <fcntl.h>
#include <immintrin.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MAGIC 0x73647263
#define NUM_RECORDS 4
#define NOT_WRITTEN 2

struct record_t {
	_Alignas(64) char name[64];
	char addr[64];
	char valid;
};

struct header_t {
	_Alignas(64) uint64_t magic;
	uint32_t counter;
};

struct pool {
	struct header_t header;
	struct record_t records[NUM_RECORDS];
};

static struct pool *map(const char *path)
{
	int file = open(path, O_RDWR | O_CREAT, 0644);
	if (file < 0 || ftruncate(file, sizeof(struct pool)) != 0) {
		perror(path);
		exit(2);
	}
	struct pool *pool = mmap(NULL, sizeof *pool, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (pool == MAP_FAILED) {
		perror(path);
		exit(2);
	}
	close(file);
	return pool;
}

static void writer(struct header_t *header, struct record_t *records)
{
	for (int i = 0; i < NUM_RECORDS; i++) {
		if (rand() % 2 == 0) {
			snprintf(records[i].name, 64, "name %d", i);
			snprintf(records[i].addr, 64, "%d Record Road", i);
			records[i].valid = 1;
			_mm_clflushopt(&records[i].valid);
			_mm_clflushopt(records[i].name);
			_mm_clflushopt(records[i].addr);
		} else {
			records[i].valid = 0;
			_mm_clflushopt(&records[i].valid);
		}
		_mm_sfence();
		header->counter++;
		_mm_clflushopt(&header->counter);
		_mm_sfence();
	}
}

static int reader(const struct header_t *header, const struct record_t *records)
{
	if (header->magic != MAGIC) {
		fprintf(stderr, "this file has no records\n");
		return 1;
	}
	for (uint32_t i = 0; i < header->counter; i++) {
		if (records[i].valid == NOT_WRITTEN) {
			fprintf(stderr, "record %u was not written\n", i);
			return 1;
		}
		if (records[i].valid == 1) {
			char name[64], addr[64];
			snprintf(name, sizeof name, "name %u", i);
			snprintf(addr, sizeof addr, "%u Record Road", i);
			if (strcmp(records[i].name, name) != 0 || strcmp(records[i].addr, addr) != 0) {
				fprintf(stderr, "record %u: name = %s, addr = %s\n", i, records[i].name, records[i].addr);
				return 1;
			}
			printf("name = %s\naddr = %s\n", records[i].name, records[i].addr);
		}
	}
	return 0;
}

int main(int argc, char **argv)
{
	if (argc != 3) {
		fprintf(stderr, "usage: records setup|run|recover FILE\n");
		return 2;
	}
	struct pool *pool = map(argv[2]);
	if (strcmp(argv[1], "recover") == 0)
		return reader(&pool->header, pool->records);
	if (strcmp(argv[1], "setup") == 0) {
		pool->header.magic = MAGIC;
		for (int i = 0; i < NUM_RECORDS; i++)
			pool->records[i].valid = NOT_WRITTEN;
		return 0;
	}
	srand(3);
	writer(&pool->header, pool->records);
	return 0;
}
