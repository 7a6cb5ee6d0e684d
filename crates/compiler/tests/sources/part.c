#include "part.h"

static void link_to(struct part *part, struct part *next)
{
	part->next = next;
}

long part_add(struct part *part, long value)
{
	part->count += value;
	link_to(part, part);
	return part->count;
}
