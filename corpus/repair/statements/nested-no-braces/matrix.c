// repair: flush
// The store is the body of an if in a for in a for.
#include "persist.h"
#include "pool.h"

#define ROWS 4
#define COLUMNS 16

static void diagonal(uint64_t (*matrix)[COLUMNS], uint64_t value) {
    for (int row = 0; row < ROWS; row++)
        for (int column = 0; column < COLUMNS; column++)
            if (row == column)
                matrix[row][column] = value; //~ missing-flush
    pm_fence();
}

int main(int argc, char **argv) {
    uint64_t(*matrix)[COLUMNS] = pool_open(argv[argc - 1], 4096);
    diagonal(matrix, 5);
    uint64_t sum = 0;
    for (int row = 0; row < ROWS; row++)
        for (int column = 0; column < COLUMNS; column++)
            sum += matrix[row][column];
    printf("%lu\n", (unsigned long)sum);
    return 0;
}
