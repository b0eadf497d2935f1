/*
 * The emulated NCCL's own test: threads of this process, and processes that it starts of itself. Prints a line per test and
 * exits with 1 if one fails. Every test has a deadline.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../nccl_abi.h"

/* ---- what is under test ---------------------------------------------------------------------------------- */

int cudaSetDevice(int);
int cudaMalloc(void **, size_t);
int cudaFree(void *);
int cudaHostAlloc(void **, size_t, unsigned);
int cudaFreeHost(void *);
int cudaMemcpy(void *, const void *, size_t, int);
int cudaStreamCreateWithFlags(void **, unsigned);
int cudaStreamDestroy(void *);
int cudaStreamSynchronize(void *);
int cudaStreamQuery(void *);
int cudaStreamBeginCapture(void *, int);
int cudaStreamEndCapture(void *, void **);
int cudaGraphInstantiateWithFlags(void **, void *, unsigned long long);
int cudaGraphLaunch(void *, void *);
int cudaGraphExecDestroy(void *);
int cudaGraphDestroy(void *);

int nccl4j_emulator_inject(const char *);
int nccl4j_emulator_misuse(char *, int);
int64_t nccl4j_emulator_live(const char *);
void nccl4j_emulator_forget(void);

ncclResult_t ncclGetVersion(int *);
const char *ncclGetLastError(ncclComm_t);
ncclResult_t ncclGetUniqueId(ncclUniqueId *);
ncclResult_t ncclCommInitRank(ncclComm_t *, int, ncclUniqueId, int);
ncclResult_t ncclCommInitRankConfig(ncclComm_t *, int, ncclUniqueId, int, ncclConfig_t *);
ncclResult_t ncclCommInitAll(ncclComm_t *, int, const int *);
ncclResult_t ncclCommFinalize(ncclComm_t);
ncclResult_t ncclCommDestroy(ncclComm_t);
ncclResult_t ncclCommAbort(ncclComm_t);
ncclResult_t ncclCommSplit(ncclComm_t, int, int, ncclComm_t *, ncclConfig_t *);
ncclResult_t ncclCommShrink(ncclComm_t, int *, int, ncclComm_t *, ncclConfig_t *, int);
ncclResult_t ncclCommGetUniqueId(ncclComm_t, ncclUniqueId *);
ncclResult_t ncclCommGrow(ncclComm_t, int, const ncclUniqueId *, int, ncclComm_t *, ncclConfig_t *);
ncclResult_t ncclCommRevoke(ncclComm_t, int);
ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t *);
ncclResult_t ncclCommCount(ncclComm_t, int *);
ncclResult_t ncclCommUserRank(ncclComm_t, int *);
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);
ncclResult_t ncclAllReduce(const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, void *);
ncclResult_t ncclReduce(const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, int, ncclComm_t, void *);
ncclResult_t ncclBroadcast(const void *, void *, size_t, ncclDataType_t, int, ncclComm_t, void *);
ncclResult_t ncclReduceScatter(const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, void *);
ncclResult_t ncclAllGather(const void *, void *, size_t, ncclDataType_t, ncclComm_t, void *);
ncclResult_t ncclAlltoAll(const void *, void *, size_t, ncclDataType_t, ncclComm_t, void *);
ncclResult_t ncclGather(const void *, void *, size_t, ncclDataType_t, int, ncclComm_t, void *);
ncclResult_t ncclScatter(const void *, void *, size_t, ncclDataType_t, int, ncclComm_t, void *);
ncclResult_t ncclSend(const void *, size_t, ncclDataType_t, int, ncclComm_t, void *);
ncclResult_t ncclRecv(void *, size_t, ncclDataType_t, int, ncclComm_t, void *);
ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t *, void *, ncclDataType_t, ncclScalarResidence_t, ncclComm_t);
ncclResult_t ncclRedOpDestroy(ncclRedOp_t, ncclComm_t);

/* Not in every version. */
#pragma weak ncclAlltoAll
#pragma weak ncclGather
#pragma weak ncclScatter
#pragma weak ncclCommShrink
#pragma weak ncclCommGetUniqueId
#pragma weak ncclCommGrow
#pragma weak ncclCommRevoke

static int version;

/* ---- frame -------------------------------------------------------------------------------------------------- */

static _Atomic int failures;
static const char *running = "nothing";

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            failures++;                                                                                                \
            fprintf(stderr, "%s: line %d: %s (last error: %s)\n", running, __LINE__, #condition, ncclGetLastError(NULL)); \
        }                                                                                                              \
    } while (0)
#define EQUAL(expected, actual)                                                                                        \
    do {                                                                                                               \
        long long wanted = (long long)(expected), got = (long long)(actual);                                           \
        if (wanted != got) {                                                                                           \
            failures++;                                                                                                \
            fprintf(stderr, "%s: line %d: %s is %lld, expected %lld (last error: %s)\n", running, __LINE__, #actual, got,  \
                    wanted, ncclGetLastError(NULL));                                                                   \
        }                                                                                                              \
    } while (0)
#define OK(call) EQUAL(0, call)

static void expect_misuse(const char *part) {
    char text[4096] = "";
    int lines = nccl4j_emulator_misuse(text, sizeof text);
    if (part == NULL ? lines != 0 : strstr(text, part) == NULL) {
        failures++;
        fprintf(stderr, "%s: misuse is \"%s\", expected %s\n", running, text, part == NULL ? "none" : part);
    }
    nccl4j_emulator_forget();
}

static int64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void pause_ms(int ms) {
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000L}, NULL);
}

static void at_deadline(int signal) {
    (void)signal;
    static const char text[] = ": deadline\n";
    if (write(2, running, strlen(running)) < 0 || write(2, text, sizeof text - 1) < 0) {
        _exit(3);
    }
    _exit(2);
}

enum { RANKS = 4, MOST = 300000 };

typedef struct {
    int rank, count;
    ncclComm_t comm;
    void *stream;
    void *send, *recv; /* MOST times RANKS floats */
    float *host;
} place;

static void furnish(place *p, int rank, int count) {
    memset(p, 0, sizeof *p);
    p->rank = rank;
    p->count = count;
    OK(cudaSetDevice(rank));
    OK(cudaStreamCreateWithFlags(&p->stream, 1));
    OK(cudaMalloc(&p->send, sizeof(float) * MOST * RANKS));
    OK(cudaMalloc(&p->recv, sizeof(float) * MOST * RANKS));
    p->host = calloc((size_t)MOST * RANKS, sizeof(float));
}

static void clear_out(place *p) {
    OK(cudaSetDevice(p->rank));
    OK(cudaStreamDestroy(p->stream));
    OK(cudaFree(p->send));
    OK(cudaFree(p->recv));
    free(p->host);
}

/* send[i] of a rank; sums of these are exact. */
static float sample(int rank, size_t i) {
    return (float)((i * 7 + (size_t)rank * 13) % 1001);
}

static void fill(place *p, size_t count) {
    for (size_t i = 0; i < count; i++) {
        p->host[i] = sample(p->rank, i);
    }
    OK(cudaMemcpy(p->send, p->host, count * sizeof(float), 1));
    for (size_t i = 0; i < count; i++) {
        p->host[i] = -1;
    }
    OK(cudaMemcpy(p->recv, p->host, count * sizeof(float), 1));
}

static const float *result(place *p, const void *memory, size_t count) {
    OK(cudaStreamSynchronize(p->stream));
    OK(cudaMemcpy(p->host, memory, count * sizeof(float), 2));
    return p->host;
}

static float total(int ranks, size_t i) {
    float sum = 0;
    for (int r = 0; r < ranks; r++) {
        sum += sample(r, i);
    }
    return sum;
}

static bool sums(const float *values, int ranks, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (values[i] != total(ranks, i)) {
            fprintf(stderr, "element %zu is %g, expected %g\n", i, (double)values[i], (double)total(ranks, i));
            return false;
        }
    }
    return true;
}

static place places[RANKS];

static void furnish_all(void) {
    ncclComm_t comms[RANKS];
    OK(ncclCommInitAll(comms, RANKS, NULL));
    for (int r = 0; r < RANKS; r++) {
        furnish(&places[r], r, RANKS);
        places[r].comm = comms[r];
    }
}

static void clear_out_all(void) {
    for (int r = 0; r < RANKS; r++) {
        OK(ncclCommDestroy(places[r].comm));
    }
    for (int r = 0; r < RANKS; r++) {
        clear_out(&places[r]);
    }
    EQUAL(0, nccl4j_emulator_live("communicators"));
    EQUAL(0, nccl4j_emulator_live("device bytes"));
}

static void in_threads(void *(*body)(void *), place *of) {
    pthread_t threads[RANKS];
    for (int r = 0; r < RANKS; r++) {
        pthread_create(&threads[r], NULL, body, &of[r]);
    }
    for (int r = 0; r < RANKS; r++) {
        pthread_join(threads[r], NULL);
    }
}

/* ---- tests ----------------------------------------------------------------------------------------------------- */

static void one_thread_with_groups(void) {
    furnish_all();
    static const size_t sizes[] = {0, 1, 33, 1025, 20000, MOST};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        size_t count = sizes[s];
        for (int r = 0; r < RANKS; r++) {
            fill(&places[r], count);
        }
        OK(ncclGroupStart());
        for (int r = 0; r < RANKS; r++) {
            OK(ncclAllReduce(places[r].send, places[r].recv, count, ncclFloat32, ncclSum, places[r].comm, places[r].stream));
        }
        OK(ncclGroupEnd());
        for (int r = 0; r < RANKS; r++) {
            CHECK(sums(result(&places[r], places[r].recv, count), RANKS, count));
        }
    }
    clear_out_all();
    expect_misuse(NULL);
}

static void two_streams_of_a_group_wait_for_each_other(void) {
    furnish_all();
    void *more[RANKS];
    size_t count = 1000;
    for (int r = 0; r < RANKS; r++) {
        fill(&places[r], 2 * count);
        OK(cudaSetDevice(r));
        OK(cudaStreamCreateWithFlags(&more[r], 1));
    }
    OK(ncclGroupStart());
    for (int r = 0; r < RANKS; r++) {
        OK(ncclAllReduce(places[r].send, places[r].recv, count, ncclFloat32, ncclSum, places[r].comm, places[r].stream));
        OK(ncclAllReduce((float *)places[r].send + count, (float *)places[r].recv + count, count, ncclFloat32, ncclSum,
                         places[r].comm, more[r]));
    }
    OK(ncclGroupEnd());
    for (int r = 0; r < RANKS; r++) {
        /* One of the two streams stands for both. */
        CHECK(sums(result(&places[r], places[r].recv, 2 * count), RANKS, 2 * count));
        OK(cudaStreamSynchronize(more[r]));
        OK(cudaStreamDestroy(more[r]));
    }
    clear_out_all();
    expect_misuse(NULL);
}

static ncclUniqueId shared_id;

static void *all_collectives(void *argument) {
    place *p = argument;
    furnish(p, p->rank, p->count);
    OK(ncclCommInitRank(&p->comm, p->count, shared_id, p->rank));
    int n = p->count;
    static const size_t sizes[] = {1, 33, 1025, 70000};
    for (size_t s = 0; s < 4; s++) {
        size_t count = sizes[s], all = count * (size_t)n;
        const float *got;
        fill(p, count);
        OK(ncclAllReduce(p->send, p->send, count, ncclFloat32, ncclSum, p->comm, p->stream));
        CHECK(sums(result(p, p->send, count), n, count));

        fill(p, count);
        OK(ncclReduce(p->send, p->rank == 1 ? p->recv : NULL, count, ncclFloat32, ncclSum, 1, p->comm, p->stream));
        got = result(p, p->recv, count);
        CHECK(p->rank == 1 ? sums(got, n, count) : got[0] == -1 && got[count - 1] == -1);

        fill(p, count);
        OK(ncclBroadcast(p->rank == 2 ? p->send : NULL, p->recv, count, ncclFloat32, 2, p->comm, p->stream));
        got = result(p, p->recv, count);
        CHECK(got[0] == sample(2, 0) && got[count - 1] == sample(2, count - 1));

        fill(p, all);
        OK(ncclReduceScatter(p->send, p->recv, count, ncclFloat32, ncclSum, p->comm, p->stream));
        got = result(p, p->recv, count + 1);
        for (size_t i = 0; i < count; i++) {
            if (got[i] != total(n, count * (size_t)p->rank + i)) {
                CHECK(got[i] == total(n, count * (size_t)p->rank + i));
                break;
            }
        }
        CHECK(got[count] == -1 || all == count);

        fill(p, all);
        OK(ncclReduceScatter(p->send, (float *)p->send + count * (size_t)p->rank, count, ncclFloat32, ncclSum, p->comm, p->stream));
        got = result(p, (float *)p->send + count * (size_t)p->rank, count);
        CHECK(got[count - 1] == total(n, count * (size_t)p->rank + count - 1));

        fill(p, all);
        OK(ncclAllGather(p->send, p->recv, count, ncclFloat32, p->comm, p->stream));
        got = result(p, p->recv, all);
        for (int r = 0; r < n; r++) {
            CHECK(got[count * (size_t)r] == sample(r, 0) && got[count * (size_t)r + count - 1] == sample(r, count - 1));
        }

        fill(p, count);
        OK(ncclGroupStart());
        OK(ncclSend(p->send, count, ncclFloat32, (p->rank + 1) % n, p->comm, p->stream));
        OK(ncclRecv(p->recv, count, ncclFloat32, (p->rank + n - 1) % n, p->comm, p->stream));
        OK(ncclGroupEnd());
        got = result(p, p->recv, count);
        CHECK(got[count - 1] == sample((p->rank + n - 1) % n, count - 1));

        fill(p, all);
        if (ncclAlltoAll == NULL) {
            continue;
        }
        OK(ncclAlltoAll(p->send, p->recv, count, ncclFloat32, p->comm, p->stream));
        got = result(p, p->recv, all);
        for (int r = 0; r < n; r++) {
            CHECK(got[count * (size_t)r] == sample(r, count * (size_t)p->rank));
            CHECK(got[count * (size_t)r + count - 1] == sample(r, count * (size_t)p->rank + count - 1));
        }

        fill(p, all);
        OK(ncclGather(p->send, p->rank == 3 ? p->recv : NULL, count, ncclFloat32, 3, p->comm, p->stream));
        got = result(p, p->recv, all);
        CHECK(p->rank == 3 ? got[all - 1] == sample(n - 1, count - 1) : got[all - 1] == -1);

        fill(p, all);
        OK(ncclScatter(p->rank == 0 ? p->send : NULL, p->recv, count, ncclFloat32, 0, p->comm, p->stream));
        got = result(p, p->recv, count);
        CHECK(got[count - 1] == sample(0, count * (size_t)p->rank + count - 1));
    }
    /* Many operations without a look between them, beyond what is in flight at once. */
    fill(p, 8);
    for (int i = 0; i < 500; i++) {
        OK(ncclAllReduce(p->send, p->recv, 8, ncclFloat32, ncclSum, p->comm, p->stream));
        OK(ncclGroupStart());
        OK(ncclSend(p->send, 8, ncclFloat32, (p->rank + 1) % n, p->comm, p->stream));
        OK(ncclRecv((float *)p->recv + 8, 8, ncclFloat32, (p->rank + n - 1) % n, p->comm, p->stream));
        OK(ncclGroupEnd());
    }
    CHECK(sums(result(p, p->recv, 8), n, 8));
    OK(ncclCommFinalize(p->comm));
    OK(ncclCommDestroy(p->comm));
    clear_out(p);
    return NULL;
}

static void thread_per_rank(void) {
    OK(ncclGetUniqueId(&shared_id));
    for (int r = 0; r < RANKS; r++) {
        places[r].rank = r;
        places[r].count = RANKS;
    }
    in_threads(all_collectives, places);
    EQUAL(0, nccl4j_emulator_live("communicators"));
    expect_misuse(NULL);
}

/* Reduces one element of each rank and gives the outcome's bits. */
static uint64_t reduced(ncclDataType_t type, ncclRedOp_t op, const uint64_t *bits, int size) {
    uint64_t value = 0;
    for (int r = 0; r < RANKS; r++) {
        OK(cudaMemcpy(places[r].send, &bits[r], (size_t)size, 1));
    }
    OK(ncclGroupStart());
    for (int r = 0; r < RANKS; r++) {
        OK(ncclAllReduce(places[r].send, places[r].recv, 1, type, op, places[r].comm, places[r].stream));
    }
    OK(ncclGroupEnd());
    for (int r = 0; r < RANKS; r++) {
        uint64_t other = 0;
        OK(cudaStreamSynchronize(places[r].stream));
        OK(cudaMemcpy(&other, places[r].recv, (size_t)size, 2));
        if (r > 0) {
            EQUAL(value, other);
        }
        value = other;
    }
    return value;
}

#define REDUCED(type, op, size, a, b, c, d) reduced(type, op, (uint64_t[]){a, b, c, d}, size)

static void values(void) {
    furnish_all();
    EQUAL(0x80, REDUCED(ncclInt8, ncclSum, 1, 0x7f, 1, 0, 0));
    EQUAL(0xff, REDUCED(ncclInt8, ncclAvg, 1, 0xfd, 0xff, 0xff, 0xfe)); /* -7 / 4 = -1 */
    EQUAL(1, REDUCED(ncclUint8, ncclAvg, 1, 4, 2, 0, 1));
    EQUAL(0x80, REDUCED(ncclInt8, ncclMin, 1, 0x7f, 0x80, 0, 0));
    EQUAL(0xff, REDUCED(ncclUint8, ncclMax, 1, 0x7f, 0xff, 0, 0));
    EQUAL(0x3c00, REDUCED(ncclFloat16, ncclAvg, 2, 0x3c00, 0x3c00, 0x3c00, 0x3c00));
    EQUAL(0x7bff, REDUCED(ncclFloat16, ncclAvg, 2, 0x7bff, 0x7bff, 0x7bff, 0x7bff)); /* no overflow */
    EQUAL(0x7c00, REDUCED(ncclFloat16, ncclSum, 2, 0x7bff, 0x7bff, 0, 0));
    EQUAL(4, REDUCED(ncclFloat16, ncclSum, 2, 1, 1, 1, 1)); /* subnormals */
    EQUAL(0x4380, REDUCED(ncclBfloat16, ncclSum, 2, 0x4380, 0x3f80, 0x3f80, 0x3f80)); /* 256 + 1 + 1 + 1, hop by hop */
    if (version >= 22403) {
        EQUAL(0x7e, REDUCED(ncclFloat8e4m3, ncclSum, 1, 0x7e, 0x7e, 0x7e, 0)); /* saturates */
        EQUAL(0x7b, REDUCED(ncclFloat8e5m2, ncclSum, 1, 0x7b, 0x7b, 0, 0));
        EQUAL(0x38, REDUCED(ncclFloat8e4m3, ncclMax, 1, 0x38, 0x7f, 0xb8, 0x7f)); /* NaN is dropped */
    } else {
        place *p = &places[0];
        EQUAL(ncclInvalidArgument, ncclAllReduce(p->send, p->recv, 1, ncclFloat8e4m3, ncclSum, p->comm, p->stream));
        nccl4j_emulator_forget();
    }
    uint64_t nan = 0x7fc00000, one = 0x3f800000, zero = 0, minus_zero = 0x80000000u;
    EQUAL(one, REDUCED(ncclFloat32, ncclMin, 4, nan, one, nan, nan));
    EQUAL(minus_zero, REDUCED(ncclFloat32, ncclMin, 4, zero, minus_zero, zero, zero));
    EQUAL(zero, REDUCED(ncclFloat32, ncclMax, 4, minus_zero, zero, minus_zero, minus_zero));
    double quarter = 0.25;
    uint64_t bits;
    memcpy(&bits, &quarter, 8);
    uint64_t average = REDUCED(ncclFloat64, ncclAvg, 8, bits, bits, bits, bits);
    EQUAL(bits, average);

    ncclRedOp_t ops[RANKS];
    for (int r = 0; r < RANKS; r++) {
        int32_t factor = r + 1, value = 10;
        OK(ncclRedOpCreatePreMulSum(&ops[r], &factor, ncclInt32, ncclScalarHostImmediate, places[r].comm));
        OK(cudaMemcpy(places[r].send, &value, 4, 1));
    }
    EQUAL(RANKS, nccl4j_emulator_live("reduction operators"));
    OK(ncclGroupStart());
    for (int r = 0; r < RANKS; r++) {
        OK(ncclAllReduce(places[r].send, places[r].recv, 1, ncclInt32, ops[r], places[r].comm, places[r].stream));
        OK(ncclRedOpDestroy(ops[r], places[r].comm));
    }
    OK(ncclGroupEnd());
    int32_t sum;
    for (int r = 0; r < RANKS; r++) {
        OK(cudaStreamSynchronize(places[r].stream));
    }
    OK(cudaMemcpy(&sum, places[0].recv, 4, 2));
    EQUAL(100, sum);
    EQUAL(0, nccl4j_emulator_live("reduction operators"));
    clear_out_all();
    expect_misuse(NULL);
}

static void argument_checks(void) {
    furnish_all();
    place *p = &places[0], *q = &places[1];
    ncclComm_t c = p->comm;
    EQUAL(ncclInvalidArgument, ncclAllReduce(p->send, p->recv, 1, ncclFloat32, ncclSum, NULL, p->stream));
    EQUAL(ncclInvalidArgument, ncclAllReduce(p->send, p->recv, 1, 12, ncclSum, c, p->stream));
    EQUAL(ncclInvalidArgument, ncclAllReduce(p->send, p->recv, 1, ncclFloat32, 77, c, p->stream));
    EQUAL(ncclInvalidArgument, ncclBroadcast(p->send, p->recv, 1, ncclFloat32, RANKS, c, p->stream));
    EQUAL(ncclInvalidArgument, ncclSend(p->send, 1, ncclFloat32, -1, c, p->stream));
    EQUAL(ncclInvalidArgument, ncclAllReduce(p->send, p->recv, SIZE_MAX / 4, ncclFloat32, ncclSum, c, p->stream));
    EQUAL(ncclUnhandledCudaError, ncclAllReduce(p->send, p->recv, 1, ncclFloat32, ncclSum, c, q->stream));
    float half = 0.5f;
    ncclRedOp_t op;
    OK(ncclRedOpCreatePreMulSum(&op, &half, ncclFloat32, ncclScalarHostImmediate, c));
    EQUAL(ncclInvalidArgument, ncclAllReduce(p->send, p->recv, 1, ncclFloat64, op, c, p->stream));
    EQUAL(ncclInvalidArgument, ncclAllReduce(q->send, q->recv, 1, ncclFloat32, op, q->comm, q->stream));
    OK(ncclRedOpDestroy(op, c));
    EQUAL(ncclInvalidArgument, ncclRedOpDestroy(op, c));
    expect_misuse("comm argument is NULL");

    /* An error in a group sticks: its end answers it, and drops the rest. */
    OK(ncclGroupStart());
    OK(ncclSend(p->send, 1, ncclFloat32, 1, c, p->stream));
    EQUAL(ncclInvalidArgument, ncclSend(p->send, 1, ncclFloat32, 9, c, p->stream));
    EQUAL(ncclInvalidArgument, ncclGroupEnd());
    EQUAL(ncclInvalidUsage, ncclGroupEnd());
    OK(cudaStreamSynchronize(p->stream));
    nccl4j_emulator_forget();

    ncclUniqueId id;
    ncclComm_t bad = (ncclComm_t)8;
    OK(ncclGetUniqueId(&id));
    EQUAL(ncclInvalidArgument, ncclCommInitRank(&bad, 2, id, 2));
    CHECK(bad == NULL);
    ncclConfig_t config;
    memset(&config, 0, sizeof config);
    config.size = sizeof config;
    EQUAL(ncclInvalidArgument, ncclCommInitRankConfig(&bad, 1, id, 0, &config));
    memset(&id, 0, sizeof id);
    EQUAL(ncclSystemError, ncclCommInitRank(&bad, 1, id, 0));
    CHECK(bad == NULL);
    int twice[] = {1, 1};
    ncclComm_t two[2];
    EQUAL(ncclInvalidUsage, ncclCommInitAll(two, 2, twice));

    ncclComm_t dead = c;
    clear_out_all();
    EQUAL(ncclInvalidArgument, ncclCommAbort(dead));
    ncclResult_t state;
    EQUAL(ncclInvalidArgument, ncclCommGetAsyncError(dead, &state));
    expect_misuse("destroyed or aborted");
}

static ncclConfig_t non_blocking(void) {
    ncclConfig_t config;
    memset(&config, 0, sizeof config);
    config.size = sizeof config;
    config.magic = NCCL_MAGIC;
    config.version = (unsigned)version;
    config.blocking = 0;
    int undefined = NCCL_UNDEFINED;
    int *fields[] = {&config.cgaClusterSize, &config.minCTAs, &config.maxCTAs, &config.splitShare, &config.trafficClass,
                     &config.collnetEnable, &config.CTAPolicy, &config.shrinkShare, &config.nvlsCTAs,
                     &config.nChannelsPerNetPeer, &config.nvlinkCentricSched, &config.graphUsageMode, &config.numRmaCtx,
                     &config.maxP2pPeers, &config.graphStreamOrdering};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        *fields[i] = undefined;
    }
    return config;
}

static ncclResult_t settled(ncclComm_t comm) {
    ncclResult_t state = ncclInProgress;
    while (state == ncclInProgress) {
        OK(ncclCommGetAsyncError(comm, &state));
        pause_ms(state == ncclInProgress);
    }
    return state;
}

static void *non_blocking_rank(void *argument) {
    place *p = argument;
    furnish(p, p->rank, p->count);
    ncclConfig_t config = non_blocking();
    ncclResult_t code = ncclCommInitRankConfig(&p->comm, p->count, shared_id, p->rank, &config);
    CHECK(code == ncclInProgress || code == ncclSuccess);
    CHECK(p->comm != NULL);
    OK(settled(p->comm));
    int n;
    OK(ncclCommCount(p->comm, &n));
    EQUAL(p->count, n);
    for (int i = 0; i < 20; i++) {
        fill(p, 1000);
        code = ncclAllReduce(p->send, p->recv, 1000, ncclFloat32, ncclSum, p->comm, p->stream);
        CHECK(code == ncclInProgress || code == ncclSuccess);
        OK(settled(p->comm));
        CHECK(sums(result(p, p->recv, 1000), p->count, 1000));
    }
    ncclComm_t child = (ncclComm_t)1;
    OK(ncclCommSplit(p->comm, p->rank == 3 ? NCCL_SPLIT_NOCOLOR : 5, -p->rank, &child, NULL));
    OK(settled(p->comm));
    if (p->rank == 3) {
        CHECK(child == NULL);
    } else {
        int rank;
        OK(settled(child));
        OK(ncclCommUserRank(child, &rank));
        EQUAL(2 - p->rank, rank);
        code = ncclAllReduce(p->send, p->recv, 1000, ncclFloat32, ncclSum, child, p->stream);
        CHECK(code == ncclInProgress || code == ncclSuccess);
        OK(settled(child));
        CHECK(sums(result(p, p->recv, 1000), 3, 1000));
        code = ncclCommFinalize(child);
        CHECK(code == ncclInProgress || code == ncclSuccess);
        OK(settled(child));
        OK(ncclCommDestroy(child));
    }
    code = ncclCommFinalize(p->comm);
    CHECK(code == ncclInProgress || code == ncclSuccess);
    OK(settled(p->comm));
    OK(ncclCommDestroy(p->comm));
    clear_out(p);
    return NULL;
}

static void non_blocking_communicators(void) {
    OK(ncclGetUniqueId(&shared_id));
    for (int r = 0; r < RANKS; r++) {
        places[r].rank = r;
        places[r].count = RANKS;
    }
    in_threads(non_blocking_rank, places);
    EQUAL(0, nccl4j_emulator_live("communicators"));
    expect_misuse(NULL);

    /* One rank alone: in progress for ever, answers so, and can be aborted. */
    ncclConfig_t config = non_blocking();
    ncclComm_t alone = NULL;
    ncclResult_t state;
    OK(ncclGetUniqueId(&shared_id));
    EQUAL(ncclInProgress, ncclCommInitRankConfig(&alone, 2, shared_id, 0, &config));
    pause_ms(20);
    OK(ncclCommGetAsyncError(alone, &state));
    EQUAL(ncclInProgress, state);
    int n;
    EQUAL(ncclInvalidArgument, ncclCommCount(alone, &n));
    OK(ncclCommAbort(alone));
    EQUAL(0, nccl4j_emulator_live("communicators"));
    expect_misuse("before its last operation is over");
}

static void *abort_later(void *argument) {
    pause_ms(50);
    ncclComm_t comm;
    while ((comm = __atomic_load_n((ncclComm_t *)argument, __ATOMIC_ACQUIRE)) == NULL) {
        pause_ms(1);
    }
    OK(ncclCommAbort(comm));
    return NULL;
}

static void aborts(void) {
    /* A blocking init whose peer never comes. */
    static ncclComm_t alone;
    alone = NULL;
    pthread_t thread;
    OK(ncclGetUniqueId(&shared_id));
    pthread_create(&thread, NULL, abort_later, &alone);
    CHECK(ncclCommInitRank(&alone, 2, shared_id, 0) != ncclSuccess);
    pthread_join(thread, NULL);
    EQUAL(0, nccl4j_emulator_live("communicators"));

    /* A first collective that waits on the CPU. */
    furnish_all();
    static ncclComm_t first;
    first = places[0].comm;
    pthread_create(&thread, NULL, abort_later, &first);
    CHECK((ncclAllReduce(places[0].send, places[0].recv, 8, ncclFloat32, ncclSum, first, places[0].stream) == ncclSuccess) ==
          (version < 22203));
    pthread_join(thread, NULL);
    for (int r = 1; r < RANKS; r++) {
        OK(ncclCommAbort(places[r].comm));
    }
    for (int r = 0; r < RANKS; r++) {
        clear_out(&places[r]);
    }

    /* An operation in a stream whose peer is late for ever. */
    furnish_all();
    OK(ncclGroupStart());
    for (int r = 0; r < RANKS; r++) {
        fill(&places[r], 8);
        OK(ncclAllReduce(places[r].send, places[r].recv, 8, ncclFloat32, ncclSum, places[r].comm, places[r].stream));
    }
    OK(ncclGroupEnd());
    for (int r = 0; r < RANKS; r++) {
        OK(cudaStreamSynchronize(places[r].stream));
    }
    for (int r = 0; r < RANKS - 1; r++) {
        OK(ncclAllReduce(places[r].send, places[r].recv, 8, ncclFloat32, ncclSum, places[r].comm, places[r].stream));
    }
    pause_ms(30);
    EQUAL(600, cudaStreamQuery(places[0].stream));
    for (int r = 0; r < RANKS; r++) {
        OK(ncclCommAbort(places[r].comm));
    }
    for (int r = 0; r < RANKS; r++) {
        OK(cudaStreamSynchronize(places[r].stream));
        clear_out(&places[r]);
    }
    EQUAL(0, nccl4j_emulator_live("communicators"));
    expect_misuse(NULL);
}

static void faults(void) {
    furnish_all();
    ncclResult_t state;
    OK(nccl4j_emulator_inject("ncclAllReduce:1=code:3"));
    EQUAL(ncclInternalError, ncclAllReduce(places[0].send, places[0].recv, 8, ncclFloat32, ncclSum, places[0].comm, places[0].stream));
    nccl4j_emulator_forget();
    OK(nccl4j_emulator_inject("ncclAllReduce:2=hang"));
    OK(ncclGroupStart());
    for (int r = 0; r < RANKS; r++) {
        OK(ncclAllReduce(places[r].send, places[r].recv, 8, ncclFloat32, ncclSum, places[r].comm, places[r].stream));
    }
    OK(ncclGroupEnd());
    pause_ms(30);
    EQUAL(600, cudaStreamQuery(places[0].stream));
    OK(nccl4j_emulator_inject("ncclAllReduce:5=async:6;ncclAllReduce:7=lost"));
    OK(ncclAllReduce(places[2].send, places[2].recv, 8, ncclFloat32, ncclSum, places[2].comm, places[2].stream));
    OK(ncclCommGetAsyncError(places[2].comm, &state));
    EQUAL(ncclRemoteError, state);
    EQUAL(ncclRemoteError, ncclAllReduce(places[2].send, places[2].recv, 8, ncclFloat32, ncclSum, places[2].comm, places[2].stream));
    OK(ncclAllReduce(places[3].send, places[3].recv, 8, ncclFloat32, ncclSum, places[3].comm, places[3].stream));
    /* The lost rank is noticed by the others. */
    int64_t since = now_ms();
    do {
        OK(ncclCommGetAsyncError(places[0].comm, &state));
        pause_ms(5);
    } while (state == ncclSuccess && now_ms() - since < 2000);
    EQUAL(ncclRemoteError, state);
    CHECK(now_ms() - since < 1000);
    /* A communicator in error is not destroyed, and the thread is left in a group, as by NCCL. */
    EQUAL(ncclRemoteError, ncclCommDestroy(places[0].comm));
    EQUAL(version < 22602 ? ncclInvalidUsage : ncclSuccess, ncclGroupEnd());
    for (int r = 0; r < RANKS; r++) {
        OK(ncclCommAbort(places[r].comm));
        OK(cudaStreamSynchronize(places[r].stream));
        clear_out(&places[r]);
    }
    EQUAL(0, nccl4j_emulator_live("communicators"));
    nccl4j_emulator_forget();
}

static void *shrinks(void *argument) {
    place *p = argument;
    ncclComm_t fewer = NULL;
    int out[] = {1};
    OK(cudaSetDevice(p->rank));
    OK(ncclCommShrink(p->comm, out, 1, &fewer, NULL, NCCL_SHRINK_DEFAULT));
    int rank, n;
    OK(ncclCommUserRank(fewer, &rank));
    OK(ncclCommCount(fewer, &n));
    EQUAL(p->rank - (p->rank > 1), rank);
    EQUAL(RANKS - 1, n);
    OK(ncclCommDestroy(fewer));
    return NULL;
}

static ncclUniqueId growth;

static void *grows(void *argument) {
    place *p = argument;
    ncclComm_t more = NULL;
    OK(cudaSetDevice(p->rank));
    OK(ncclCommGrow(p->comm, RANKS, p->comm == NULL ? &growth : NULL, p->comm == NULL ? p->rank : -1, &more, NULL));
    OK(ncclAllReduce(p->send, p->recv, 100, ncclFloat32, ncclSum, more, p->stream));
    CHECK(sums(result(p, p->recv, 100), RANKS, 100));
    OK(ncclCommDestroy(more));
    return NULL;
}

static void derived_communicators(void) {
    furnish_all();
    ncclComm_t halves[RANKS];
    OK(ncclGroupStart());
    for (int r = 0; r < RANKS; r++) {
        fill(&places[r], 100);
        OK(ncclCommSplit(places[r].comm, r % 2, 0, &halves[r], NULL));
    }
    OK(ncclGroupEnd());
    OK(ncclGroupStart());
    for (int r = 0; r < RANKS; r++) {
        OK(ncclAllReduce(places[r].send, places[r].recv, 100, ncclFloat32, ncclSum, halves[r], places[r].stream));
    }
    OK(ncclGroupEnd());
    for (int r = 0; r < RANKS; r++) {
        const float *got = result(&places[r], places[r].recv, 100);
        CHECK(got[99] == sample(r % 2, 99) + sample(r % 2 + 2, 99));
        OK(ncclCommDestroy(halves[r]));
    }
    if (ncclCommRevoke == NULL) {
        clear_out_all();
        return;
    }
    pthread_t threads[RANKS];
    for (int r = 0; r < RANKS; r++) {
        if (r != 1) {
            pthread_create(&threads[r], NULL, shrinks, &places[r]);
        }
    }
    for (int r = 0; r < RANKS; r++) {
        if (r != 1) {
            pthread_join(threads[r], NULL);
        }
        OK(ncclCommRevoke(places[r].comm, 0));
        EQUAL(ncclInvalidUsage, ncclAllReduce(places[r].send, places[r].recv, 8, ncclFloat32, ncclSum, places[r].comm, places[r].stream));
        EQUAL(ncclInvalidArgument, ncclCommFinalize(places[r].comm));
        OK(ncclCommDestroy(places[r].comm));
    }
    ncclComm_t pair[2];
    OK(ncclCommInitAll(pair, 2, NULL));
    OK(ncclCommGetUniqueId(pair[0], &growth));
    EQUAL(ncclInvalidUsage, ncclCommGetUniqueId(pair[0], &growth));
    for (int r = 0; r < RANKS; r++) {
        places[r].comm = r < 2 ? pair[r] : NULL;
        fill(&places[r], 100);
    }
    in_threads(grows, places);
    OK(ncclCommDestroy(pair[0]));
    OK(ncclCommDestroy(pair[1]));
    for (int r = 0; r < RANKS; r++) {
        clear_out(&places[r]);
    }
    EQUAL(0, nccl4j_emulator_live("communicators"));
    expect_misuse(NULL);
}

static void wrong_memory(void) {
    furnish_all();
    OK(cudaSetDevice(0));
    void *gone;
    OK(cudaMalloc(&gone, 4096));
    OK(cudaFree(gone));
    OK(ncclGroupStart());
    for (int r = 0; r < RANKS; r++) {
        OK(ncclAllReduce(r == 0 ? gone : places[r].send, places[r].recv, 8, ncclFloat32, ncclSum, places[r].comm, places[r].stream));
    }
    OK(ncclGroupEnd());
    EQUAL(700, cudaStreamSynchronize(places[0].stream));
    OK(cudaSetDevice(1));
    EQUAL(600, cudaStreamQuery(places[1].stream));
    for (int r = 0; r < RANKS; r++) {
        OK(ncclCommAbort(places[r].comm));
    }
    expect_misuse("send buffer");
}

static void one_rank(void) {
    ncclComm_t comm;
    ncclUniqueId id;
    OK(cudaSetDevice(2));
    OK(ncclGetUniqueId(&id));
    OK(ncclCommInitRank(&comm, 1, id, 0));
    place *p = &places[2];
    furnish(p, 2, 1);
    fill(p, 100);
    OK(ncclGroupStart());
    OK(ncclAllReduce(p->send, p->recv, 100, ncclFloat32, ncclAvg, comm, p->stream));
    const float *got = result(p, p->recv, 100); /* at once, even in a group */
    CHECK(got[99] == sample(2, 99));
    OK(ncclGroupEnd());
    float two = 2;
    ncclRedOp_t op;
    OK(ncclRedOpCreatePreMulSum(&op, &two, ncclFloat32, ncclScalarHostImmediate, comm));
    OK(ncclAllReduce(p->send, p->recv, 100, ncclFloat32, op, comm, p->stream));
    CHECK(result(p, p->recv, 100)[99] == 2 * sample(2, 99));
    OK(ncclRedOpDestroy(op, comm));
    OK(ncclGroupStart());
    OK(ncclSend(p->send, 100, ncclFloat32, 0, comm, p->stream));
    OK(ncclRecv(p->recv, 100, ncclFloat32, 0, comm, p->stream));
    OK(ncclGroupEnd());
    CHECK(result(p, p->recv, 100)[99] == sample(2, 99));
    OK(ncclCommDestroy(comm));
    clear_out(p);
    expect_misuse(NULL);
}

static void captured(void) {
    furnish_all();
    void *graphs[RANKS], *execs[RANKS];
    for (int r = 0; r < RANKS; r++) {
        OK(cudaSetDevice(r));
        OK(cudaStreamBeginCapture(places[r].stream, 1));
    }
    OK(ncclGroupStart());
    for (int r = 0; r < RANKS; r++) {
        OK(ncclAllReduce(places[r].send, places[r].recv, 100, ncclFloat32, ncclSum, places[r].comm, places[r].stream));
    }
    OK(ncclGroupEnd());
    for (int r = 0; r < RANKS; r++) {
        OK(cudaSetDevice(r));
        OK(cudaStreamEndCapture(places[r].stream, &graphs[r]));
        OK(cudaGraphInstantiateWithFlags(&execs[r], graphs[r], 0));
    }
    for (int round = 0; round < 3; round++) {
        for (int r = 0; r < RANKS; r++) {
            fill(&places[r], 100);
        }
        for (int r = 0; r < RANKS; r++) {
            OK(cudaSetDevice(r));
            OK(cudaGraphLaunch(execs[r], places[r].stream));
        }
        for (int r = 0; r < RANKS; r++) {
            CHECK(sums(result(&places[r], places[r].recv, 100), RANKS, 100));
        }
    }
    for (int r = 0; r < RANKS; r++) {
        OK(cudaGraphExecDestroy(execs[r]));
        OK(cudaGraphDestroy(graphs[r]));
    }
    clear_out_all();
    expect_misuse(NULL);
}

/* ---- misuse ---------------------------------------------------------------------------------------------------- */

static void *first_collective(void *argument) {
    place *p = argument;
    return ncclAllReduce(p->send, p->recv, 8, ncclFloat32, ncclSum, p->comm, p->stream) == ncclSuccess ? NULL : p;
}

static void *ends_in_a_group(void *unused) {
    OK(ncclGroupStart());
    return unused;
}

static void *ends_a_foreign_group(void *unused) {
    EQUAL(ncclInvalidUsage, ncclGroupEnd());
    return unused;
}

static void threads_that_do_wrong(void) {
    furnish_all();
    pthread_t thread;
    if (version >= 22203) { /* then the first collective waits on the CPU */
        void *failed;
        int n;
        pthread_create(&thread, NULL, first_collective, &places[0]);
        pause_ms(50);
        OK(ncclCommCount(places[0].comm, &n));
        expect_misuse("two threads use the communicator of rank 0");
        for (int r = 1; r < RANKS; r++) {
            pthread_t other;
            pthread_create(&other, NULL, first_collective, &places[r]);
            pthread_detach(other);
        }
        pthread_join(thread, &failed);
        CHECK(failed == NULL);
        pause_ms(20);
        for (int r = 0; r < RANKS; r++) {
            OK(cudaStreamSynchronize(places[r].stream));
        }
    }
    pthread_create(&thread, NULL, ends_in_a_group, NULL);
    pthread_join(thread, NULL);
    expect_misuse("ends inside a group of depth 1");
    OK(ncclGroupStart());
    pthread_create(&thread, NULL, ends_a_foreign_group, NULL);
    pthread_join(thread, NULL);
    OK(ncclGroupEnd());
    expect_misuse("groups belong to threads");
    clear_out_all();
}

static void ranks_that_disagree(void) {
    furnish_all();
    for (int recorded = 0; recorded < 2; recorded++) {
        if (recorded) {
            setenv("NCCL4J_EMULATOR_MISMATCH", "record", 1);
        }
        OK(ncclGroupStart());
        for (int r = 0; r < RANKS; r++) {
            OK(ncclAllReduce(places[r].send, places[r].recv, r == 2 ? 9 : 8, ncclFloat32, ncclSum, places[r].comm,
                             places[r].stream));
        }
        OK(ncclGroupEnd());
        pause_ms(50);
        EQUAL(600, cudaStreamQuery(places[0].stream));
        expect_misuse(recorded ? "mismatch in operation" : NULL);
        for (int r = 0; r < RANKS; r++) {
            OK(ncclCommAbort(places[r].comm));
        }
        for (int r = 0; r < RANKS; r++) {
            OK(cudaStreamSynchronize(places[r].stream));
        }
        unsetenv("NCCL4J_EMULATOR_MISMATCH");
        ncclComm_t comms[RANKS];
        OK(ncclCommInitAll(comms, RANKS, NULL));
        for (int r = 0; r < RANKS; r++) {
            places[r].comm = comms[r];
        }
    }
    clear_out_all();
    expect_misuse(NULL);
}

static void destroyed_by_some_ranks_only(void) {
    furnish_all();
    for (int round = 0; round < 2; round++) {
        OK(ncclGroupStart());
        for (int r = round; r < RANKS; r++) {
            fill(&places[r], 8);
            OK(ncclAllReduce(places[r].send, places[r].recv, 8, ncclFloat32, ncclSum, places[r].comm, places[r].stream));
        }
        OK(ncclGroupEnd());
        if (round == 0) {
            for (int r = 0; r < RANKS; r++) {
                OK(cudaStreamSynchronize(places[r].stream));
            }
            OK(ncclCommDestroy(places[0].comm));
        }
    }
    expect_misuse("which has destroyed its communicator");
    for (int r = 1; r < RANKS; r++) {
        OK(ncclCommAbort(places[r].comm));
    }
    for (int r = 0; r < RANKS; r++) {
        OK(cudaStreamSynchronize(places[r].stream));
        clear_out(&places[r]);
    }
    EQUAL(0, nccl4j_emulator_live("communicators"));
    expect_misuse(NULL);
}

/* Two ranks wait for a third; one gives up, and the other, which has no connection to it, notices nothing. */
static void *waits_for_a_third(void *argument) {
    place *p = argument;
    CHECK(cudaSetDevice(p->rank) == 0);
    return ncclCommInitRank(&p->comm, 3, shared_id, p->rank) == ncclInternalError ? p : NULL;
}

static void a_rank_that_gives_up(void) {
    pthread_t threads[2];
    void *aborted;
    OK(ncclGetUniqueId(&shared_id));
    for (int r = 0; r < 2; r++) {
        places[r].rank = r;
        places[r].comm = NULL;
        pthread_create(&threads[r], NULL, waits_for_a_third, &places[r]);
    }
    for (int r = 0; r < 2; r++) {
        pause_ms(50);
        OK(ncclCommAbort(__atomic_load_n(&places[r].comm, __ATOMIC_ACQUIRE)));
        pthread_join(threads[r], &aborted);
        CHECK(aborted != NULL);
    }
    EQUAL(0, nccl4j_emulator_live("communicators"));
    expect_misuse(NULL);
}

static void pointer_checks(void) {
    furnish_all();
    place *p = &places[0];
    float pageable[8];
    setenv("NCCL_CHECK_POINTERS", "1", 1);
    EQUAL(ncclInvalidArgument, ncclAllReduce(pageable, p->recv, 8, ncclFloat32, ncclSum, p->comm, p->stream));
    expect_misuse("is not a valid pointer");
    EQUAL(ncclInvalidArgument, ncclAllReduce(places[1].send, p->recv, 8, ncclFloat32, ncclSum, p->comm, p->stream));
    expect_misuse("mismatch");
    unsetenv("NCCL_CHECK_POINTERS");
    clear_out_all();
}

static void failing_grouped_init(void) {
    ncclComm_t comms[RANKS];
    OK(ncclGetUniqueId(&shared_id));
    for (int fault = 0; fault < 2; fault++) {
        OK(nccl4j_emulator_inject(fault == 0 ? "ncclCommInitRank:3=code:2" : "ncclGroupEnd:2=code:1"));
        OK(ncclGroupStart());
        for (int r = 0; r < RANKS; r++) {
            OK(cudaSetDevice(r));
            EQUAL(fault == 0 && r == 2 ? ncclSystemError : ncclSuccess, ncclCommInitRank(&comms[r], RANKS, shared_id, r));
        }
        EQUAL(fault == 0 ? ncclSystemError : ncclUnhandledCudaError, ncclGroupEnd());
        EQUAL(0, nccl4j_emulator_live("communicators"));
        for (int r = 0; r < RANKS; r++) {
            CHECK(comms[r] == NULL);
        }
    }
    nccl4j_emulator_forget();
}

/* ---- processes --------------------------------------------------------------------------------------------------- */

static const char *self;

static void hex(const ncclUniqueId *id, char *text) {
    for (int i = 0; i < 128; i++) {
        sprintf(text + 2 * i, "%02x", (unsigned char)id->internal[i]);
    }
}

static void unhex(const char *text, ncclUniqueId *id) {
    for (int i = 0; i < 128; i++) {
        unsigned byte;
        sscanf(text + 2 * i, "%2x", &byte);
        id->internal[i] = (char)byte;
    }
}

static pid_t start(const char *role, const ncclUniqueId *id, int rank) {
    char text[257], number[16];
    hex(id, text);
    snprintf(number, sizeof number, "%d", rank);
    pid_t pid = fork();
    if (pid == 0) {
        execl(self, self, role, text, number, (char *)NULL);
        _exit(127);
    }
    return pid;
}

static void reduce_between_processes(place *p) {
    static const size_t sizes[] = {1, 1000, MOST};
    for (size_t s = 0; s < 3; s++) {
        fill(p, sizes[s]);
        OK(ncclAllReduce(p->send, p->recv, sizes[s], ncclFloat32, ncclSum, p->comm, p->stream));
        CHECK(sums(result(p, p->recv, sizes[s]), p->count, sizes[s]));
        OK(ncclGroupStart());
        OK(ncclSend(p->send, sizes[s], ncclFloat32, 1 - p->rank, p->comm, p->stream));
        OK(ncclRecv(p->recv, sizes[s], ncclFloat32, 1 - p->rank, p->comm, p->stream));
        OK(ncclGroupEnd());
        CHECK(result(p, p->recv, sizes[s])[sizes[s] - 1] == sample(1 - p->rank, sizes[s] - 1));
        /* Memory of the host, which the other process cannot reach. */
        float *pinned;
        OK(cudaHostAlloc((void **)&pinned, sizes[s] * sizeof(float), 0));
        for (size_t i = 0; i < sizes[s]; i++) {
            pinned[i] = sample(p->rank, i);
        }
        OK(ncclAllReduce(pinned, pinned, sizes[s], ncclFloat32, ncclSum, p->comm, p->stream));
        OK(cudaStreamSynchronize(p->stream));
        CHECK(sums(pinned, p->count, sizes[s]));
        OK(cudaFreeHost(pinned));
    }
}

static int child_main(const char *role, const char *id_text, int rank) {
    ncclUniqueId id;
    place p;
    running = role;
    unhex(id_text, &id);
    furnish(&p, rank, 2);
    if (strcmp(role, "alone") == 0) {
        OK(ncclCommInitRank(&p.comm, 3, id, rank)); /* is killed here */
    }
    if (strcmp(role, "refuse") == 0) {
        EQUAL(ncclInvalidUsage, ncclCommInitRank(&p.comm, 2, id, rank));
        clear_out(&p);
        return failures != 0;
    }
    OK(ncclCommInitRank(&p.comm, 2, id, rank));
    if (strcmp(role, "die") == 0) {
        fill(&p, 8);
        OK(ncclAllReduce(p.send, p.recv, 8, ncclFloat32, ncclSum, p.comm, p.stream));
        OK(cudaStreamSynchronize(p.stream));
        kill(getpid(), SIGKILL);
    }
    reduce_between_processes(&p);
    ncclComm_t child;
    OK(ncclCommSplit(p.comm, 1, -rank, &child, NULL));
    int place_in_child;
    OK(ncclCommUserRank(child, &place_in_child));
    EQUAL(1 - rank, place_in_child);
    OK(ncclCommDestroy(child));
    OK(ncclCommFinalize(p.comm));
    OK(ncclCommDestroy(p.comm));
    clear_out(&p);
    expect_misuse(NULL);
    return failures != 0;
}

static int litter(void) {
    int count = 0;
    DIR *folder = opendir("/dev/shm");
    for (struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;) {
        char mine[64];
        snprintf(mine, sizeof mine, "nccl4j-nccl-%d-", (int)getpid());
        count += strncmp(entry->d_name, mine, strlen(mine)) == 0;
    }
    closedir(folder);
    return count;
}

static void two_processes(void) {
    ncclUniqueId id;
    OK(ncclGetUniqueId(&id));
    pid_t pids[2] = {start("work", &id, 0), start("work", &id, 1)};
    for (int i = 0; i < 2; i++) {
        int status;
        waitpid(pids[i], &status, 0);
        EQUAL(0, status);
    }
    EQUAL(0, litter());
}

static void two_versions(void) {
    char here[4096], there[4096];
    const char *folder = getenv("LD_LIBRARY_PATH"), *number = version > 22000 ? "2.30" : "2.18";
    const char *at = folder == NULL ? NULL : strstr(folder, number);
    if (at == NULL) {
        printf("       (not asked: LD_LIBRARY_PATH names no folder of one version)\n");
        return;
    }
    ncclUniqueId id;
    OK(ncclGetUniqueId(&id));
    snprintf(here, sizeof here, "%s", folder);
    snprintf(there, sizeof there, "%.*s%s", (int)(at - folder), folder, version > 22000 ? "2.18" : "2.30");
    setenv("LD_LIBRARY_PATH", there, 1);
    pid_t pid = start("refuse", &id, 1);
    setenv("LD_LIBRARY_PATH", here, 1);
    ncclComm_t comm;
    OK(cudaSetDevice(0));
    EQUAL(ncclInvalidUsage, ncclCommInitRank(&comm, 2, id, 0));
    CHECK(strstr(ncclGetLastError(NULL), "Mismatched NCCL version") != NULL);
    int status;
    waitpid(pid, &status, 0);
    EQUAL(0, status);
    EQUAL(0, litter());
    expect_misuse(NULL);
}

static void a_process_that_is_killed(void) {
    ncclUniqueId id;
    OK(ncclGetUniqueId(&id));
    pid_t pid = start("die", &id, 1);
    place *p = &places[0];
    furnish(p, 0, 2);
    OK(ncclCommInitRank(&p->comm, 2, id, 0));
    fill(p, 8);
    OK(ncclAllReduce(p->send, p->recv, 8, ncclFloat32, ncclSum, p->comm, p->stream));
    CHECK(sums(result(p, p->recv, 8), 2, 8));
    OK(ncclAllReduce(p->send, p->recv, 8, ncclFloat32, ncclSum, p->comm, p->stream));
    int64_t since = now_ms();
    ncclResult_t state = ncclSuccess;
    while (state == ncclSuccess && now_ms() - since < 3000) {
        OK(ncclCommGetAsyncError(p->comm, &state));
        pause_ms(5);
    }
    EQUAL(ncclRemoteError, state);
    CHECK(now_ms() - since < 1500);
    OK(ncclCommAbort(p->comm));
    OK(cudaStreamSynchronize(p->stream));
    waitpid(pid, NULL, 0);
    clear_out(p);
    EQUAL(0, litter());
    expect_misuse(NULL);
}

static void a_process_that_is_killed_during_init(void) {
    ncclUniqueId id;
    ncclComm_t comm = NULL;
    OK(ncclGetUniqueId(&id));
    pid_t pid = start("alone", &id, 1);
    pause_ms(100);
    kill(pid, SIGKILL);
    OK(cudaSetDevice(0));
    int64_t since = now_ms();
    EQUAL(ncclRemoteError, ncclCommInitRank(&comm, 3, id, 0));
    CHECK(now_ms() - since < 1500);
    waitpid(pid, NULL, 0);
    EQUAL(0, litter());
    EQUAL(0, nccl4j_emulator_live("communicators"));
    expect_misuse(NULL);
}

/* -------------------------------------------------------------------------------------------------------------------- */

static void run(const char *name, void (*test)(void)) {
    const char *only = getenv("ONLY");
    if (only != NULL && strcmp(only, name) != 0) {
        return;
    }
    running = name;
    int before = failures;
    int64_t since = now_ms();
    alarm(30);
    test();
    alarm(0);
    printf("%s %s (%lld ms)\n", failures == before ? "ok    " : "FAILED", name, (long long)(now_ms() - since));
    fflush(stdout);
}

int main(int count, char **arguments) {
    self = "/proc/self/exe";
    signal(SIGALRM, at_deadline);
    ncclGetVersion(&version);
    if (count == 4) {
        alarm(30);
        return child_main(arguments[1], arguments[2], atoi(arguments[3]));
    }
    printf("NCCL %d\n", version);
#define RUN(test) run(#test, test)
    RUN(one_thread_with_groups);
    RUN(two_streams_of_a_group_wait_for_each_other);
    RUN(thread_per_rank);
    RUN(values);
    RUN(argument_checks);
    RUN(non_blocking_communicators);
    RUN(aborts);
    RUN(faults);
    RUN(derived_communicators);
    RUN(one_rank);
    RUN(captured);
    RUN(threads_that_do_wrong);
    RUN(ranks_that_disagree);
    RUN(destroyed_by_some_ranks_only);
    RUN(a_rank_that_gives_up);
    RUN(pointer_checks);
    RUN(failing_grouped_init);
    RUN(two_processes);
    RUN(two_versions);
    RUN(a_process_that_is_killed);
    RUN(a_process_that_is_killed_during_init);
    RUN(wrong_memory); /* last: a device is lost */
    return failures != 0;
}
