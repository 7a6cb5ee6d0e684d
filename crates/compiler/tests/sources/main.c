#include <stdio.h>
#include <string.h>
#include "part.h"

#ifndef GREETING
#define GREETING "sum"
#endif

int main(int argc, char **argv)
{
	struct part part = {40, NULL};
	char text[32];
	(void)argv;
	memset(text, 0, sizeof text);
	strcpy(text, GREETING);
	printf("%s %ld\n", text, part_add(&part, argc + 1));
	return part.next == &part ? 0 : 1;
}
