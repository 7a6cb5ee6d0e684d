#undef FACTOR
#define FACTOR 3
#include "inline.h"

// Of this one there is an external definition.
extern inline int counted(int x);

int other_scale(int x) {
    return scale(x);
}

int (*address(void))(int) {
    return counted;
}
