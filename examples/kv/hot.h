// How often each key was used. In DRAM: it is not worth a flush, and starts anew with the server.
#ifndef HOT_H
#define HOT_H

#include "dict.h"

void hot_init(void);
void hot_touch(const struct str *key, uint64_t hash);
void hot_forget(const struct str *key, uint64_t hash);
// The most used keys, at most `max` of them; returns how many.
size_t hot_top(struct dict_entry **top, size_t max);

#endif
