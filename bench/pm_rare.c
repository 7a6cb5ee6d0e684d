/*
 * A program that rarely touches PM: it sorts records and counts words in ordinary memory, and notes each round's result in a PM file.
 *
 *     pm_rare FILE ROUNDS
 */
#include <fcntl.h>
#include <immintrin.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define RECORDS 200000
#define BUCKETS (1 << 15)

struct record {
    uint64_t key;
    uint32_t weight, bucket;
};

struct word {
    struct word *next;
    uint64_t hash, count;
};

struct result {
    uint64_t round, sum, words, check;
};

static uint64_t random_state = 88172645463325252ull;

static uint64_t next_random(void) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

static void sort(struct record *records, struct record *scratch, long n) {
    if (n < 16) {
        for (long i = 1; i < n; i++) {
            struct record moved = records[i];
            long at = i;
            for (; at > 0 && records[at - 1].key > moved.key; at--)
                records[at] = records[at - 1];
            records[at] = moved;
        }
        return;
    }
    long half = n / 2, left = 0, right = half;
    sort(records, scratch, half);
    sort(records + half, scratch, n - half);
    for (long i = 0; i < n; i++)
        scratch[i] = right == n || (left < half && records[left].key <= records[right].key) ? records[left++] : records[right++];
    memcpy(records, scratch, n * sizeof *records);
}

static uint64_t count_words(struct word **buckets, struct record *records, long n) {
    uint64_t words = 0;
    for (long i = 0; i < n; i++) {
        uint64_t hash = (records[i].key >> 32) * 11400714819323198485ull;
        struct word **at = &buckets[hash >> 49];
        while (*at && (*at)->hash != hash)
            at = &(*at)->next;
        if (!*at) {
            *at = malloc(sizeof **at);
            **at = (struct word){.hash = hash};
            words++;
        }
        (*at)->count++;
        records[i].bucket = (uint32_t)(hash >> 49);
    }
    return words;
}

int main(int argc, char **argv) {
    long rounds = argc > 2 ? atol(argv[2]) : 10;
    int fd = open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || ftruncate(fd, 1 << 20) != 0)
        return 3;
    struct result *results = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (results == MAP_FAILED)
        return 3;
    struct record *records = malloc(RECORDS * sizeof *records), *scratch = malloc(RECORDS * sizeof *scratch);
    struct word **buckets = calloc(BUCKETS, sizeof *buckets);
    for (long round = 0; round < rounds; round++) {
        for (long i = 0; i < RECORDS; i++)
            records[i] = (struct record){.key = next_random() >> 16, .weight = (uint32_t)i};
        sort(records, scratch, RECORDS);
        uint64_t sum = 0, words = count_words(buckets, records, RECORDS);
        for (long i = 0; i < RECORDS; i++)
            sum += records[i].key * records[i].weight + records[i].bucket;
        struct result *result = &results[2 * (round % 1000)];
        result->round = round;
        result->sum = sum;
        result->words = words;
        result->check = sum ^ words;
        _mm_clwb(result);
        _mm_sfence();
    }
    munmap(results, 1 << 20);
    return 0;
}
