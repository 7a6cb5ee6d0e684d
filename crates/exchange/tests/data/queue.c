// A queue in persistent memory with two bugs; queue.log is what pmemcheck says of a run. (The library maps the file and tells pmemcheck so.)
#include <libpmem.h>
#include <stdint.h>
#include <string.h>

struct queue {
    uint64_t head, tail;
    char pad[48];
    struct entry {
        uint64_t key;
        char name[56];
    } entries[8];
};

static void push(struct queue *queue, uint64_t key, const char *name) {
    struct entry *entry = &queue->entries[queue->tail];
    entry->key = key;
    strcpy(entry->name, name);
    pmem_persist(entry, sizeof *entry);
    queue->tail++;
    pmem_flush(&queue->tail, sizeof queue->tail);
    pmem_drain();
}

static uint64_t pop(struct queue *queue) {
    uint64_t key = queue->entries[queue->head].key;
    queue->entries[queue->head].key = 0; // never flushed
    queue->head++;
    pmem_persist(&queue->head, sizeof queue->head);
    return key;
}

int main(int argc, char **argv) {
    size_t len;
    struct queue *queue = pmem_map_file(argv[argc - 1], 4096, PMEM_FILE_CREATE, 0600, &len, 0);
    push(queue, 1, "one");
    push(queue, 2, "two");
    push(queue, 3, "three");
    uint64_t sum = pop(queue) + pop(queue);
    queue->entries[7].key = sum; // never flushed
    pmem_persist(queue, sizeof queue->head);
    pmem_unmap(queue, len);
    return sum != 3;
}
