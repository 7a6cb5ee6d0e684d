// repair: fence
// build: $CC -g -O2 -o app note.c -lpmem
// pmem_memcpy_nodrain, and no pmem_drain.
#include <libpmem.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv) {
    size_t size;
    char *text = pmem_map_file(argv[argc - 1], 4096, PMEM_FILE_CREATE, 0600, &size, NULL);
    const char *message = "drained by nobody";
    pmem_memcpy_nodrain(text, message, strlen(message) + 1); //~ missing-fence
    printf("%s\n", text);
    pmem_unmap(text, size);
    return 0;
}
