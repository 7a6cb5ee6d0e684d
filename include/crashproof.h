/*
 * Annotations for crashproof (docs/annotations.md). C and C++.
 *
 * They say what only the author of a program knows: which data is volatile, what has to be durable where, what has to persist
 * before what. Natively they do nothing: a few instructions without effect, and nothing to link. `crashproof record` and
 * `crashproof check` recognise these instructions and act on them (unless `--client-requests off` is given).
 *
 * With -DCRASHPROOF_NO_ANNOTATIONS, and where the processor is not an x86-64, they are empty. Arguments are then not evaluated.
 *
 *   CRASHPROOF_TRANSIENT(ptr, len)             what is stored there is volatile by design, until it is unmapped
 *   CRASHPROOF_OP_BEGIN(name)                  an operation of this thread begins ...
 *   CRASHPROOF_OP_END(name)                    ... and ends: what it stored has to be durable here
 *   CRASHPROOF_EXPECT_DURABLE(ptr, len)        all that was stored there has to be durable here
 *   CRASHPROOF_EXPECT_ORDER(a, alen, b, blen)  at the next store to b, all that was stored to a until then has to be durable,
 *                                              and a is not stored to only afterwards
 *
 * Names are string literals of at most 48 bytes.
 *
 * SPDX-License-Identifier: 0BSD
 */
#ifndef CRASHPROOF_H
#define CRASHPROOF_H

#if defined(__x86_64__) && defined(__GNUC__) && !defined(CRASHPROOF_NO_ANNOTATIONS)

/*
 * The instructions of a Valgrind client request, with a number of our own: rotations by 128 bits in all, and an exchange of a
 * register with itself. A macro, not a function, so that debug information gives the line of the annotation.
 */
#define CRASHPROOF_REQUEST_(number, a, b, c, d)                                                                        \
    do {                                                                                                               \
        volatile unsigned long long crashproof_words_[6] = {                                                           \
            0x43500000ULL + (number),                                                                                  \
            (unsigned long long)(a),                                                                                   \
            (unsigned long long)(b),                                                                                   \
            (unsigned long long)(c),                                                                                   \
            (unsigned long long)(d),                                                                                   \
            0,                                                                                                         \
        };                                                                                                             \
        unsigned long long crashproof_answer_ = 0;                                                                     \
        __asm__ volatile("rolq $3, %%rdi\n\trolq $13, %%rdi\n\trolq $61, %%rdi\n\trolq $51, %%rdi\n\t"                \
                         "xchgq %%rbx, %%rbx"                                                                          \
                         : "+d"(crashproof_answer_)                                                                    \
                         : "a"(&crashproof_words_[0])                                                                  \
                         : "cc", "memory");                                                                            \
        (void)crashproof_answer_;                                                                                      \
    } while (0)

#else

#define CRASHPROOF_REQUEST_(number, a, b, c, d)                                                                        \
    do {                                                                                                               \
    } while (0)

#endif

#define CRASHPROOF_TRANSIENT(ptr, len) CRASHPROOF_REQUEST_(0, ptr, len, 0, 0)
#define CRASHPROOF_OP_BEGIN(name) CRASHPROOF_REQUEST_(1, "" name, sizeof(name) - 1, 0, 0)
#define CRASHPROOF_OP_END(name) CRASHPROOF_REQUEST_(2, "" name, sizeof(name) - 1, 0, 0)
#define CRASHPROOF_EXPECT_DURABLE(ptr, len) CRASHPROOF_REQUEST_(3, ptr, len, 0, 0)
#define CRASHPROOF_EXPECT_ORDER(a, alen, b, blen) CRASHPROOF_REQUEST_(4, a, alen, b, blen)

#endif
