/*
 * What the C and C++ programs share: the rounds that bench/peers/compare lets begin, and how often a
 * batch repeats its operation.
 */
#ifndef ROUNDS_H
#define ROUNDS_H
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static inline double clock_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/*
 * Waits, without using a core, until round k may begin: when the gate, a file, has more than k
 * bytes. Every rank looks for itself, so none waits inside the library that is measured.
 * Returns 0 when the gate is gone, which is the end; ends the program when nothing happens.
 */
static inline int round_begins(const char *gate, int k, int batches) {
    struct stat s;
    struct timespec nap = {0, 10000000};
    double start = clock_seconds();
    if (!gate) return k < batches;
    for (;;) {
        if (stat(gate, &s)) return 0;
        if (s.st_size > k) return 1;
        if (clock_seconds() - start > 300) {
            fprintf(stderr, "no round has begun for 300 s\n");
            _exit(4);
        }
        nanosleep(&nap, NULL);
    }
}

/* Operations of a batch, from the seconds that one takes: 30 ms or more, and not much over cap seconds. */
static inline int batch_operations(size_t bytes, double one, double cap) {
    double it = bytes <= (64u << 10) ? 200 : bytes <= (1u << 20) ? 50 : bytes <= (64u << 20) ? 20 : 5;
    if (it * one < 0.030) it = 0.030 / one;
    if (it > 20000) it = 20000;
    if (it * one > cap) it = cap / one;
    return it < 1 ? 1 : (int)it;
}

/* Bytes of 4, 4K, 4M or 4G. */
static inline size_t parse_bytes(const char *s) {
    char *e;
    double v = strtod(s, &e);
    if (*e == 'K') v *= 1 << 10;
    else if (*e == 'M') v *= 1 << 20;
    else if (*e == 'G') v *= 1 << 30;
    return (size_t)v;
}

#endif
