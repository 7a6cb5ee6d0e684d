#ifndef NVM_H
#define NVM_H

#include <stddef.h>
#include <stdint.h>

struct nvm {
    uint64_t syncs;
};

void nvm_sync(struct nvm *nvm, const void *at, size_t len);

#endif
