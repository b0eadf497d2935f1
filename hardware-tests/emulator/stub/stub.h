/*
 * Libraries that return at once: they hold just as much as the backend needs to make communicators,
 * streams and memory, and then count calls. They are for measuring what a call costs on our side and
 * for counting calls; nothing is ever moved.
 */
#ifndef NCCL4J_STUB_H
#define NCCL4J_STUB_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define STUB_DEVICES 8

typedef struct {
    const char *name;
    uint64_t calls;
} stub_counter;

/*
 * Counts in a plain variable: exact for a function that one thread calls at a time, as are the
 * operations of a measured loop, and cheaper than an atomic addition.
 */
#define COUNT(function)                                                                            \
    do {                                                                                           \
        uint64_t *calls = &counters[number_##function].calls;                                               \
        __atomic_store_n(calls, __atomic_load_n(calls, __ATOMIC_RELAXED) + 1, __ATOMIC_RELAXED);   \
    } while (0)

/* How often a function of a library has been called; of all its functions if the name is empty. */
static inline uint64_t stub_calls(const stub_counter *counters, int count, const char *name) {
    uint64_t calls = 0;
    for (int i = 0; i < count; i++) {
        if (name[0] == 0 || strcmp(name, counters[i].name) == 0)
            calls += __atomic_load_n(&counters[i].calls, __ATOMIC_RELAXED);
    }
    return calls;
}

#endif
