// A library whose constructor stores to PM that its program has mapped.
#include <stdint.h>

extern volatile uint64_t *constructor_pm;
extern int constructor_fences;

__attribute__((constructor)) static void construct(void) {
    *constructor_pm = 77; // missing-fence
    __asm__ volatile("clwb %0" : "+m"(*constructor_pm) : : "memory");
    if (constructor_fences)
        __asm__ volatile("sfence" : : : "memory");
}
