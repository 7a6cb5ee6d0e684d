// After a crash: does the pool hold what the commands had done?
#ifndef VERIFY_H
#define VERIFY_H

#include <stdbool.h>

// Compares the keyspace with what the script's commands do, up to some command that is not before the last one that
// was acknowledged: its reply is in the file that CRASHPROOF_OUTPUT names. Without that, all of them. Prints what is wrong.
bool verify_script(const char *script);

#endif
