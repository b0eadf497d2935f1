/*
 * The bound in one process: a collective done by threads that see every rank's buffers, each on a
 * core of its own with a share of its own, in one pass and with no more than the two meetings that
 * tell that all inputs and all outputs are ready. Rows, rounds and sizes as in mpi_bench.c; a round has
 * two rows, one with plain stores and one with non-temporal stores (operation "...-nt"), where the
 * machine has those.
 *
 * bound [-o operation] [-p ranks] [-t threads] [-b bytes] [-k batches, or -g gate] [-c seconds]
 */
#define _GNU_SOURCE
#include "rounds.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#if defined(__AVX512F__) || defined(__AVX__)
#include <immintrin.h>
#endif

#define MOST_RANKS 16
#define MOST_THREADS 16
#define LINE 16 /* floats of a cache line, and of a vector */

typedef float line_t __attribute__((vector_size(64), may_alias));

enum { ALLREDUCE, ALLGATHER, REDUCE_SCATTER, ALLTOALL, BROADCAST, SENDRECV, OPS };
static const char *names[OPS] = {"allreduce", "allgather", "reduce_scatter", "alltoall", "broadcast", "sendrecv"};

static float *S[MOST_RANKS], *R[MOST_RANKS];
static int threads = 2;

static inline line_t load(const float *p) { return *(const line_t *)p; }
static inline void store(float *p, line_t v, int nt) {
    if (!nt) {
        *(line_t *)p = v;
        return;
    }
#if defined(__AVX512F__)
    _mm512_stream_ps(p, (__m512)v);
#elif defined(__AVX__)
    const __m256 *half = (const __m256 *)&v;
    _mm256_stream_ps(p, half[0]);
    _mm256_stream_ps(p + 8, half[1]);
#else
    *(line_t *)p = v;
#endif
}
#if defined(__AVX512F__) || defined(__AVX__)
#define NON_TEMPORAL 1
static inline void fence(void) { _mm_sfence(); }
static inline void pause_core(void) { _mm_pause(); }
#else
#define NON_TEMPORAL 0
static inline void fence(void) {}
static inline void pause_core(void) {}
#endif

/* Thread t's share of [0, len), in whole lines. */
static void share(size_t len, int t, size_t *lo, size_t *hi) {
    size_t lines = len / LINE;
    *lo = lines * (size_t)t / (size_t)threads * LINE;
    *hi = lines * (size_t)(t + 1) / (size_t)threads * LINE;
}

static inline __attribute__((always_inline)) void part(int op, int n, size_t len, int t, int nt) {
    size_t c = len / (size_t)n, lo, hi;
    switch (op) {
    case ALLREDUCE:
        share(len, t, &lo, &hi);
        for (size_t i = lo; i < hi; i += LINE) {
            line_t v = load(S[0] + i) + load(S[1] + i);
            for (int r = 2; r < n; r++) v += load(S[r] + i);
            for (int r = 0; r < n; r++) store(R[r] + i, v, nt);
        }
        break;
    case ALLGATHER:
        share(c, t, &lo, &hi);
        for (int s = 0; s < n; s++) for (size_t i = lo; i < hi; i += LINE) {
            line_t v = load(S[s] + i);
            for (int r = 0; r < n; r++) store(R[r] + (size_t)s * c + i, v, nt);
        }
        break;
    case REDUCE_SCATTER:
        share(c, t, &lo, &hi);
        for (int d = 0; d < n; d++) for (size_t i = lo; i < hi; i += LINE) {
            size_t j = (size_t)d * c + i;
            line_t v = load(S[0] + j) + load(S[1] + j);
            for (int r = 2; r < n; r++) v += load(S[r] + j);
            store(R[d] + i, v, nt);
        }
        break;
    case ALLTOALL:
        share(c, t, &lo, &hi);
        for (int s = 0; s < n; s++) for (int d = 0; d < n; d++)
            for (size_t i = lo; i < hi; i += LINE) store(R[d] + (size_t)s * c + i, load(S[s] + (size_t)d * c + i), nt);
        break;
    case BROADCAST: /* as in MPI_Bcast: the root keeps its buffer */
        share(len, t, &lo, &hi);
        for (size_t i = lo; i < hi; i += LINE) {
            line_t v = load(S[0] + i);
            for (int r = 1; r < n; r++) store(R[r] + i, v, nt);
        }
        break;
    case SENDRECV:
        share(len, t, &lo, &hi);
        for (int s = 0; s < n; s++) for (size_t i = lo; i < hi; i += LINE) store(R[(s + 1) % n] + i, load(S[s] + i), nt);
        break;
    }
    if (nt) fence();
}

/* Threads meet: each counts in a line of its own and reads those of the others. */
typedef struct {
    _Alignas(128) atomic_int v;
    char pad[124];
} meet_t;
static meet_t meet[MOST_THREADS];

static void meet_others(int t, int k) {
    atomic_store_explicit(&meet[t].v, k, memory_order_release);
    for (int o = 0; o < threads; o++)
        while (o != t && atomic_load_explicit(&meet[o].v, memory_order_acquire) < k) pause_core();
}

typedef struct {
    int t, op, n, nt, warm, iters;
    size_t len;
    double seconds;
} job_t;

static void *run(void *p) {
    job_t *j = p;
    cpu_set_t set, mine;
    CPU_ZERO(&mine);
    sched_getaffinity(0, sizeof set, &set);
    for (int cpu = 0, seen = 0; cpu < CPU_SETSIZE; cpu++) if (CPU_ISSET(cpu, &set) && seen++ == j->t) CPU_SET(cpu, &mine);
    sched_setaffinity(0, sizeof mine, &mine);
    double start = 0;
    for (int i = -j->warm, k = 0; i < j->iters; i++) {
        if (i == 0) start = clock_seconds();
        meet_others(j->t, ++k); /* every rank's input is ready */
        if (j->nt) part(j->op, j->n, j->len, j->t, 1);
        else part(j->op, j->n, j->len, j->t, 0);
        meet_others(j->t, ++k); /* every rank's output is ready */
    }
    j->seconds = (clock_seconds() - start) / j->iters;
    return NULL;
}

/* Seconds of one operation, by the slowest thread. */
static double timed(int op, int n, size_t bytes, int nt, int warm, int iters) {
    job_t j[MOST_THREADS];
    pthread_t thread[MOST_THREADS];
    double most = 0;
    for (int t = 0; t < threads; t++) atomic_store(&meet[t].v, 0);
    for (int t = 0; t < threads; t++) {
        j[t] = (job_t){t, op, n, nt, warm, iters, bytes / 4, 0};
        if (pthread_create(&thread[t], NULL, run, &j[t])) {
            fprintf(stderr, "no thread\n");
            exit(1);
        }
    }
    for (int t = 0; t < threads; t++) {
        pthread_join(thread[t], NULL);
        if (j[t].seconds > most) most = j[t].seconds;
    }
    return most;
}

static long wrong(int op, int n, size_t bytes) {
    size_t len = bytes / 4, c = len / (size_t)n, got = op == REDUCE_SCATTER ? c : len;
    long bad = 0;
    for (int r = op == BROADCAST ? 1 : 0; r < n; r++) for (size_t i = 0; i < got / LINE * LINE; i++) {
        float want = 0;
        switch (op) {
        case ALLREDUCE: for (int s = 0; s < n; s++) want += S[s][i]; break;
        case ALLGATHER: want = S[i / c][i % c]; break;
        case REDUCE_SCATTER: for (int s = 0; s < n; s++) want += S[s][(size_t)r * c + i]; break;
        case ALLTOALL: want = S[i / c][(size_t)r * c + i % c]; break;
        case BROADCAST: want = S[0][i]; break;
        case SENDRECV: want = S[(r + n - 1) % n][i]; break;
        }
        if (R[r][i] != want) bad++;
    }
    return bad;
}

/* Staggered, or the streams of all ranks would fall into the same sets of the cache. */
static float *buffer(size_t bytes, int index) {
    void *p = NULL;
    if (posix_memalign(&p, 2 << 20, bytes + (64 << 10))) {
        fprintf(stderr, "no memory\n");
        exit(1);
    }
    float *f = (float *)p + index * LINE * 21;
    for (size_t i = 0; i < bytes / 4; i++) f[i] = (float)(index + 1) + (float)(i & 7);
    return f;
}

int main(int argc, char **argv) {
    size_t bytes = 1024;
    double cap = 0.3;
    int batches = 5, n = 2, op = 0, o, iters[2];
    const char *name = "allreduce", *gate = NULL;
    cpu_set_t set;
    sched_getaffinity(0, sizeof set, &set);
    threads = CPU_COUNT(&set) < MOST_THREADS ? CPU_COUNT(&set) : MOST_THREADS;
    while ((o = getopt(argc, argv, "b:c:k:o:g:p:t:")) != -1) switch (o) {
        case 'b': bytes = parse_bytes(optarg); break;
        case 'c': cap = atof(optarg); break;
        case 'k': batches = atoi(optarg); break;
        case 'o': name = optarg; break;
        case 'g': gate = optarg; break;
        case 'p': n = atoi(optarg); break;
        case 't': threads = atoi(optarg); break;
        default: threads = 0;
    }
    while (op < OPS && strcmp(names[op], name)) op++;
    if (op == OPS || n < 2 || n > MOST_RANKS || threads < 1 || threads > CPU_COUNT(&set) || threads > MOST_THREADS) {
        fprintf(stderr, "bound [-o operation] [-p ranks, 2 to 16] [-t threads, at most a core each] [-b bytes]"
                        " [-k batches, or -g gate] [-c seconds]\n");
        return 2;
    }
    for (int r = 0; r < n; r++) {
        S[r] = buffer(bytes, r);
        R[r] = buffer(bytes, r + n);
    }
    for (int nt = 0; nt <= NON_TEMPORAL; nt++) {
        for (int r = 0; r < n; r++) memset(R[r], 0, bytes);
        iters[nt] = batch_operations(bytes, timed(op, n, bytes, nt, 1, bytes <= (16u << 20) ? 5 : 1), cap);
        if (wrong(op, n, bytes)) {
            fprintf(stderr, "%s of %zu bytes gave wrong values\n", name, bytes);
            return 3;
        }
    }
    printf("ready\n");
    fflush(stdout);
    for (int k = 0; round_begins(gate, k, batches); k++) for (int nt = 0; nt <= NON_TEMPORAL; nt++) {
        double t = timed(op, n, bytes, nt, (iters[nt] + 3) / 4, iters[nt]);
        printf("%s%s,%d,%zu,%.3f\n", name, nt ? "-nt" : "", n, bytes, t * 1e6);
        fflush(stdout);
    }
    return 0;
}
