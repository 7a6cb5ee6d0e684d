// strcpy and strcat of a name; the flush covers too little.
#include "../pm.h"

int main(int argc, char **argv) {
    char *name = pm_map(argv[argc - 1], PAGE);
    char text[120];
    memset(text, 'n', sizeof text);
    text[70] = 0;
    PM_BARRIER();
    strcpy(name, text);
    strcat(name, " and more");
    pm_persist(name, strlen(name) + 1);
    printf("%s\n", name);
    return 0;
}
