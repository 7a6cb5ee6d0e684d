// A library's persist function.
void persist(volatile void *at);

void persist(volatile void *at) {
    __asm__ volatile("clwb %0" : "+m"(*(volatile char *)at) : : "memory");
    __asm__ volatile("sfence" : : : "memory");
}
