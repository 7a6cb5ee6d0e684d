// Built with AddressSanitizer: its interceptors store to PM, it watches ordinary memory as always, also in threads and in children that are executed.
#include "pm.h"
#include <emmintrin.h>
#include <pthread.h>

static void *work(void *argument) {
    char *own = malloc(100);
    memset(own, 3, 100);
    memcpy((void *)(pm + 8192), own, 100);
    CHECK(memcmp((void *)(pm + 8192), own, 100) == 0);
    store();
    free(own);
    return NULL;
}

static volatile int beyond = 8;

// Exits with the status that AddressSanitizer has for an error.
static void overflow(void) {
    close(2);
    char *block = malloc(8);
    block[beyond] = 1;
    _exit(0);
}

static int status_of(const char *program, const char *what) {
    pid_t child = fork();
    if (child == 0) {
        if (program) execl(program, program, what, NULL);
        else overflow();
        _exit(99);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
    return WEXITSTATUS(status);
}

int main(int count, char **arguments) {
    map_pm();
    if (count > 1) {
        pm[0] = 1;
        if (!strcmp(arguments[1], "overflow")) overflow();
        return 5;
    }
    strcpy((char *)pm, "hello");
    memset((void *)(pm + 64), 1, 640);
    memmove((void *)(pm + 70), (void *)(pm + 64), 600);
    for (int i = 0; i < 704; i += 64) _mm_clflush((void *)(pm + i));
    _mm_sfence();
    CHECK(!strcmp((char *)pm, "hello") && pm[703] == 1);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) CHECK(pthread_create(&threads[i], NULL, work, NULL) == 0);
    for (int i = 0; i < 4; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    printf("forked %d\n", status_of(NULL, NULL));
    printf("executed %d %d\n", status_of(arguments[0], "overflow"), status_of(arguments[0], "well"));
    // Programs without the sanitizer do not get it from us.
    printf("another program %d\n", system("! grep -q -e libasan -e libclang_rt /proc/self/maps"));
    puts("done");
    return 0;
}
