#ifndef PART_H
#define PART_H
struct part {
	long count;
	struct part *next;
};
long part_add(struct part *part, long value);
#endif
