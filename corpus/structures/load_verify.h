// The command line of a structure that has `load(path, operations, seed)` and `verify(path, seed)`; included after them.
#ifndef LOAD_VERIFY_H
#define LOAD_VERIFY_H

int main(int argc, char **argv) {
    if (argc == 5 && strcmp(argv[1], "load") == 0)
        load(argv[2], strtoull(argv[3], NULL, 0), strtoull(argv[4], NULL, 0));
    else if ((argc == 3 || argc == 4) && strcmp(argv[1], "verify") == 0)
        verify(argv[2], argc == 4 ? argv[3] : NULL);
    else
        return usage(argv[0]);
    return 0;
}

#endif
