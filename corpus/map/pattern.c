// Only files that match the pattern are PM; the scratch file's stores are nobody's business.
// crashproof: --pm */pm
#include "../pm.h"

int main(int argc, char **argv) {
    char scratch_path[4096];
    snprintf(scratch_path, sizeof scratch_path, "%s.scratch", argv[argc - 1]);
    volatile char *pm = pm_map(argv[argc - 1], PAGE);
    volatile char *scratch = pm_map(scratch_path, PAGE);
    scratch[0] = 1;
    scratch[64] = 2;
    pm[0] = 3; //~ missing-flush
    printf("%d\n", scratch[0] + scratch[64] + pm[0]);
    unlink(scratch_path);
    return 0;
}
