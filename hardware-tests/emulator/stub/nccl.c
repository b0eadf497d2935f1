/* NCCL 2.30.7 that has always just finished, unless told to be late. */
#include <stdlib.h>

#include "stub.h"

enum { SUCCESS = 0, INVALID_ARGUMENT = 4, IN_PROGRESS = 7 };

typedef struct {
    int ranks, rank, device;
    /* How often it is still to be asked for its state until its last operation has been launched. */
    int unanswered;
} comm;

/* That number, for each operation: 0 but in tests. */
static int late;
typedef struct {
    char internal[128];
} unique_id;

#define FUNCTIONS(F)                                                                               \
    F(ncclGetVersion) F(ncclGetUniqueId) F(ncclGetErrorString) F(ncclGetLastError)                 \
    F(ncclCommInitRankConfig) F(ncclCommSplit) F(ncclCommFinalize) F(ncclCommDestroy)              \
    F(ncclCommAbort) F(ncclCommGetAsyncError) F(ncclCommCount) F(ncclCommCuDevice)                 \
    F(ncclCommUserRank) F(ncclCommRegister) F(ncclCommDeregister) F(ncclRedOpCreatePreMulSum)      \
    F(ncclRedOpDestroy) F(ncclReduce) F(ncclBroadcast) F(ncclAllReduce) F(ncclReduceScatter)       \
    F(ncclAllGather) F(ncclAlltoAll) F(ncclGather) F(ncclScatter) F(ncclSend) F(ncclRecv)          \
    F(ncclGroupStart) F(ncclGroupEnd)

#define NUMBER(function) number_##function,
enum { FUNCTIONS(NUMBER) FUNCTION_COUNT };
#define COUNTER(function) {#function, 0},
static stub_counter counters[] = {FUNCTIONS(COUNTER)};

/* ---- the library ------------------------------------------------------------------------------- */

int ncclGetVersion(int *version) {
    COUNT(ncclGetVersion);
    *version = 23007;
    return SUCCESS;
}

int ncclGetUniqueId(unique_id *id) {
    COUNT(ncclGetUniqueId);
    memset(id, 's', sizeof *id);
    return SUCCESS;
}

const char *ncclGetErrorString(int code) {
    COUNT(ncclGetErrorString);
    return code == SUCCESS ? "no error" : "an error of the stub";
}

const char *ncclGetLastError(void *communicator) {
    COUNT(ncclGetLastError);
    (void)communicator;
    return "";
}

/* ---- communicators ----------------------------------------------------------------------------- */

static int make(comm **cell, int ranks, int rank) {
    comm *made = malloc(sizeof *made);
    if (made == NULL)
        return INVALID_ARGUMENT;
    *made = (comm){.ranks = ranks, .rank = rank, .device = rank % STUB_DEVICES};
    *cell = made;
    return SUCCESS;
}

int ncclCommInitRankConfig(comm **cell, int ranks, unique_id id, int rank, void *config) {
    COUNT(ncclCommInitRankConfig);
    (void)id, (void)config;
    return make(cell, ranks, rank);
}

int ncclCommSplit(comm *parent, int color, int key, comm **cell, void *config) {
    COUNT(ncclCommSplit);
    (void)key, (void)config;
    if (color < 0) {
        *cell = NULL;
        return SUCCESS;
    }
    return make(cell, parent->ranks, parent->rank);
}

int ncclCommFinalize(comm *communicator) {
    COUNT(ncclCommFinalize);
    (void)communicator;
    return SUCCESS;
}

int ncclCommDestroy(comm *communicator) {
    COUNT(ncclCommDestroy);
    free(communicator);
    return SUCCESS;
}

int ncclCommAbort(comm *communicator) {
    COUNT(ncclCommAbort);
    free(communicator);
    return SUCCESS;
}

int ncclCommGetAsyncError(comm *communicator, int *state) {
    COUNT(ncclCommGetAsyncError);
    int unanswered = __atomic_load_n(&communicator->unanswered, __ATOMIC_RELAXED);
    *state = unanswered > 0 ? IN_PROGRESS : SUCCESS;
    if (unanswered > 0)
        __atomic_store_n(&communicator->unanswered, unanswered - 1, __ATOMIC_RELAXED);
    return SUCCESS;
}

int ncclCommCount(const comm *communicator, int *count) {
    COUNT(ncclCommCount);
    *count = communicator->ranks;
    return SUCCESS;
}

int ncclCommCuDevice(const comm *communicator, int *device) {
    COUNT(ncclCommCuDevice);
    *device = communicator->device;
    return SUCCESS;
}

int ncclCommUserRank(const comm *communicator, int *rank) {
    COUNT(ncclCommUserRank);
    *rank = communicator->rank;
    return SUCCESS;
}

int ncclCommRegister(comm *communicator, void *buffer, size_t size, void **handle) {
    COUNT(ncclCommRegister);
    (void)communicator, (void)buffer, (void)size;
    *handle = NULL;
    return SUCCESS;
}

int ncclCommDeregister(comm *communicator, void *handle) {
    COUNT(ncclCommDeregister);
    (void)communicator, (void)handle;
    return SUCCESS;
}

int ncclRedOpCreatePreMulSum(int *op, void *scalar, int type, int residence, comm *communicator) {
    COUNT(ncclRedOpCreatePreMulSum);
    (void)scalar, (void)type, (void)residence, (void)communicator;
    *op = 5;
    return SUCCESS;
}

int ncclRedOpDestroy(int op, comm *communicator) {
    COUNT(ncclRedOpDestroy);
    (void)op, (void)communicator;
    return SUCCESS;
}

/* ---- operations -------------------------------------------------------------------------------- */

#define OPERATION(function, parameters)                                                            \
    int function parameters {                                                                      \
        COUNT(function);                                                                           \
        if (__atomic_load_n(&late, __ATOMIC_RELAXED) != 0)                                         \
            __atomic_store_n(&c->unanswered, late, __ATOMIC_RELAXED);                              \
        return SUCCESS;                                                                            \
    }
#define BRACKET(function)                                                                          \
    int function(void) {                                                                           \
        COUNT(function);                                                                           \
        return SUCCESS;                                                                            \
    }

#pragma GCC diagnostic ignored "-Wunused-parameter"
OPERATION(ncclAllReduce, (const void *send, void *recv, size_t count, int type, int op, comm *c, void *stream))
OPERATION(ncclReduce, (const void *send, void *recv, size_t count, int type, int op, int root, comm *c, void *stream))
OPERATION(ncclBroadcast, (const void *send, void *recv, size_t count, int type, int root, comm *c, void *stream))
OPERATION(ncclReduceScatter, (const void *send, void *recv, size_t count, int type, int op, comm *c, void *stream))
OPERATION(ncclAllGather, (const void *send, void *recv, size_t count, int type, comm *c, void *stream))
OPERATION(ncclAlltoAll, (const void *send, void *recv, size_t count, int type, comm *c, void *stream))
OPERATION(ncclGather, (const void *send, void *recv, size_t count, int type, int root, comm *c, void *stream))
OPERATION(ncclScatter, (const void *send, void *recv, size_t count, int type, int root, comm *c, void *stream))
OPERATION(ncclSend, (const void *send, size_t count, int type, int peer, comm *c, void *stream))
OPERATION(ncclRecv, (void *recv, size_t count, int type, int peer, comm *c, void *stream))
BRACKET(ncclGroupStart)
BRACKET(ncclGroupEnd)

/* ---- for benchmarks and tests ------------------------------------------------------------------ */

uint64_t nccl4j_stub_calls(const char *function) {
    return stub_calls(counters, FUNCTION_COUNT, function);
}

/* From now on launches of non-blocking communicators are over after so many questions. */
void nccl4j_stub_be_late(int questions) {
    __atomic_store_n(&late, questions, __ATOMIC_RELAXED);
}

/* As a program calls them that is linked with NCCL: through a pointer that the linker has filled. */
static int (*volatile all_reduce)(const void *, void *, size_t, int, int, comm *, void *) = ncclAllReduce;
static int (*volatile group_start)(void) = ncclGroupStart;
static int (*volatile group_end)(void) = ncclGroupEnd;

static int call(int rank) {
    char *place = (char *)0x10000 + rank;
    return all_reduce(place, place + 0x1000, 256, 7, 0, (comm *)(place + 0x2000), place + 0x3000);
}

/* So many all-reduces; returns 0. */
int nccl4j_stub_all_reduces(int64_t times) {
    int failed = 0;
    for (int64_t i = 0; i < times; i++)
        failed |= call(0);
    return failed;
}

/* So many groups of an all-reduce of some ranks; returns 0. */
int nccl4j_stub_groups(int64_t times, int ranks) {
    int failed = 0;
    for (int64_t i = 0; i < times; i++) {
        failed |= group_start();
        for (int rank = 0; rank < ranks; rank++)
            failed |= call(rank);
        failed |= group_end();
    }
    return failed;
}
