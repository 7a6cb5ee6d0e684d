/*
 * A ledger in (what stands for) persistent memory, annotated for PMTest: the program that ledger.log is of. It has four bugs on
 * purpose; PMTest finds three of them, crashproof all.
 *
 * ledger.log is what it prints when it is linked with PMTest's library as `make debug` builds it.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pmtest.h"

struct entry {
	uint64_t amount;
	uint64_t from;
};

struct ledger {
	uint64_t count;
	uint64_t hint;
	char pad[48];
	struct entry entries[8];
};

static void store(uint64_t *where, uint64_t value)
{
	*where = value;
	PMTest_assign(where, sizeof *where);
}

static void append(struct ledger *ledger, uint64_t amount, int flush)
{
	struct entry *entry = &ledger->entries[ledger->count];

	entry->amount = amount;
	entry->from = amount / 2;
	PMTest_assign(entry, sizeof *entry);
	if (flush)
		PMTest_flush(entry, sizeof *entry);
	PMTest_fence();
	ledger->count++;
	PMTest_assign(&ledger->count, 8); /* bug: in the second call the entry is not flushed */
	PMTest_flush(&ledger->count, 8);
	PMTest_fence();
	PMTest_isPersistedBefore(entry, sizeof *entry, &ledger->count, 8);
	PMTest_isPersistent(&ledger->count, 8);
	if (!flush) {
		PMTest_flush(entry, sizeof *entry);
		PMTest_fence();
	}
}

int main(void)
{
	void *instance = NULL;
	struct ledger *ledger = aligned_alloc(4096, 4096);

	memset(ledger, 0, 4096);
	PMTest_init(instance, 1);
	PMTest_START;
	PMTest_exclude(&ledger->hint, 8);

	append(ledger, 10, 1);
	append(ledger, 20, 0);
	ledger->hint = 1;
	PMTest_assign(&ledger->hint, 8); /* volatile by design, and excluded */

	/* Backwards: the count before the entry that it counts. */
	struct entry *last = &ledger->entries[ledger->count];
	ledger->count++;
	PMTest_assign(&ledger->count, 8); /* bug: the entry has to come first */
	PMTest_flush(&ledger->count, 8);
	PMTest_fence();
	last->amount = 30;
	PMTest_assign(&last->amount, 8);
	PMTest_flush(&last->amount, 8);
	PMTest_fence();
	PMTest_isPersistedBefore(&last->amount, 8, &ledger->count, 8);

	/* A transaction. */
	PMTest_CHECKER_START;
	PMTest_transactionAdd(&ledger->entries[0], sizeof(struct entry));
	store(&ledger->entries[0].amount, 5);
	ledger->entries[4].amount = 15;
	PMTest_assign(&ledger->entries[4].amount, 8); /* bug: no PMTest_transactionAdd */
	PMTest_flush(&ledger->entries[0], 16);
	PMTest_flush(&ledger->entries[4], 16);
	PMTest_fence();
	PMTest_CHECKER_END;

	printf("ledger of %d entries", (int)ledger->count);
	ledger->entries[5].from = 1;
	PMTest_assign(&ledger->entries[5].from, 8); /* bug: neither flushed nor asserted, so PMTest says nothing */
	PMTest_fence();

	PMTest_END;
	PMTest_sendTrace(instance);
	PMTest_getResult(instance);
	PMTest_exit(instance);
	return 0;
}
