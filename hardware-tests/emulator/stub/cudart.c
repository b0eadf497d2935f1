/* A CUDA runtime 13.0 that has always just finished. Device memory is addresses and nothing else. */
#include <stdio.h>
#include <stdlib.h>

#include "stub.h"

enum { SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, INVALID_DEVICE = 101 };

#define FUNCTIONS(F)                                                                               \
    F(cudaRuntimeGetVersion) F(cudaDriverGetVersion) F(cudaGetDeviceCount) F(cudaGetDevice)        \
    F(cudaSetDevice) F(cudaDeviceGetAttribute) F(cudaDeviceGetPCIBusId)                            \
    F(cudaDeviceCanAccessPeer) F(cudaMemGetInfo) F(cudaGetErrorName) F(cudaGetErrorString)         \
    F(cudaGetLastError) F(cudaPeekAtLastError) F(cudaMalloc) F(cudaFree) F(cudaHostAlloc)          \
    F(cudaFreeHost) F(cudaMallocFromPoolAsync) F(cudaFreeAsync) F(cudaMemPoolCreate)               \
    F(cudaMemPoolDestroy) F(cudaMemPoolSetAccess) F(cudaMemPoolSetAttribute)                       \
    F(cudaMemPoolTrimTo) F(cudaMemcpyAsync) F(cudaMemcpyPeerAsync) F(cudaMemsetAsync)              \
    F(cudaStreamCreateWithFlags) F(cudaStreamDestroy) F(cudaStreamQuery)                           \
    F(cudaStreamWaitEvent) F(cudaStreamIsCapturing) F(cudaStreamGetDevice)                         \
    F(cudaThreadExchangeStreamCaptureMode) F(cudaEventCreateWithFlags) F(cudaEventDestroy)         \
    F(cudaEventRecord) F(cudaEventQuery) F(cudaEventElapsedTime)

#define NUMBER(function) number_##function,
enum { FUNCTIONS(NUMBER) FUNCTION_COUNT };
#define COUNTER(function) {#function, 0},
static stub_counter counters[] = {FUNCTIONS(COUNTER)};

static _Thread_local int current_device;
/* Streams, events and memory are numbers that have not been given out before. */
static uintptr_t next_address = 0x7000000000;

static void *fresh(size_t size) {
    size_t rounded = (size + 511) / 512 * 512;
    return (void *)__atomic_fetch_add(&next_address, rounded, __ATOMIC_RELAXED);
}

/* ---- the library and its devices --------------------------------------------------------------- */

int cudaRuntimeGetVersion(int *version) {
    COUNT(cudaRuntimeGetVersion);
    *version = 13000;
    return SUCCESS;
}

int cudaDriverGetVersion(int *version) {
    COUNT(cudaDriverGetVersion);
    *version = 13000;
    return SUCCESS;
}

int cudaGetDeviceCount(int *count) {
    COUNT(cudaGetDeviceCount);
    *count = STUB_DEVICES;
    return SUCCESS;
}

int cudaGetDevice(int *device) {
    COUNT(cudaGetDevice);
    *device = current_device;
    return SUCCESS;
}

int cudaSetDevice(int device) {
    COUNT(cudaSetDevice);
    if (device < 0 || device >= STUB_DEVICES)
        return INVALID_DEVICE;
    current_device = device;
    return SUCCESS;
}

int cudaDeviceGetAttribute(int *value, int attribute, int device) {
    COUNT(cudaDeviceGetAttribute);
    (void)device;
    /* The compute capability is 9.0; it has memory pools. */
    *value = attribute == 75 ? 9 : attribute == 115;
    return SUCCESS;
}

int cudaDeviceGetPCIBusId(char *text, int size, int device) {
    COUNT(cudaDeviceGetPCIBusId);
    snprintf(text, (size_t)size, "0000:%02x:00.0", (unsigned)device);
    return SUCCESS;
}

int cudaDeviceCanAccessPeer(int *can, int device, int peer) {
    COUNT(cudaDeviceCanAccessPeer);
    *can = device != peer;
    return SUCCESS;
}

int cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes) {
    COUNT(cudaMemGetInfo);
    *free_bytes = *total_bytes = (size_t)1 << 30;
    return SUCCESS;
}

const char *cudaGetErrorName(int code) {
    COUNT(cudaGetErrorName);
    return code == SUCCESS ? "cudaSuccess" : "cudaErrorOfTheStub";
}

const char *cudaGetErrorString(int code) {
    COUNT(cudaGetErrorString);
    return code == SUCCESS ? "no error" : "an error of the stub";
}

int cudaGetLastError(void) {
    COUNT(cudaGetLastError);
    return SUCCESS;
}

int cudaPeekAtLastError(void) {
    COUNT(cudaPeekAtLastError);
    return SUCCESS;
}

/* ---- memory ------------------------------------------------------------------------------------ */

int cudaMalloc(void **address, size_t size) {
    COUNT(cudaMalloc);
    *address = fresh(size);
    return SUCCESS;
}

int cudaFree(void *address) {
    COUNT(cudaFree);
    (void)address;
    return SUCCESS;
}

int cudaHostAlloc(void **address, size_t size, unsigned flags) {
    COUNT(cudaHostAlloc);
    (void)flags;
    *address = calloc(1, size);
    return *address == NULL ? OUT_OF_MEMORY : SUCCESS;
}

int cudaFreeHost(void *address) {
    COUNT(cudaFreeHost);
    free(address);
    return SUCCESS;
}

int cudaMallocFromPoolAsync(void **address, size_t size, void *pool, void *stream) {
    COUNT(cudaMallocFromPoolAsync);
    (void)pool, (void)stream;
    *address = fresh(size);
    return SUCCESS;
}

int cudaMemPoolCreate(void **pool, const void *properties) {
    COUNT(cudaMemPoolCreate);
    (void)properties;
    *pool = fresh(1);
    return SUCCESS;
}

/* ---- streams and events ------------------------------------------------------------------------ */

int cudaStreamCreateWithFlags(void **stream, unsigned flags) {
    COUNT(cudaStreamCreateWithFlags);
    (void)flags;
    *stream = fresh(1);
    return SUCCESS;
}

int cudaStreamIsCapturing(void *stream, int *status) {
    COUNT(cudaStreamIsCapturing);
    (void)stream;
    *status = 0;
    return SUCCESS;
}

int cudaStreamGetDevice(void *stream, int *device) {
    COUNT(cudaStreamGetDevice);
    (void)stream;
    *device = current_device;
    return SUCCESS;
}

int cudaThreadExchangeStreamCaptureMode(int *mode) {
    COUNT(cudaThreadExchangeStreamCaptureMode);
    *mode = 0;
    return SUCCESS;
}

int cudaEventCreateWithFlags(void **event, unsigned flags) {
    COUNT(cudaEventCreateWithFlags);
    (void)flags;
    *event = fresh(1);
    return SUCCESS;
}

int cudaEventElapsedTime(float *milliseconds, void *start, void *end) {
    COUNT(cudaEventElapsedTime);
    (void)start, (void)end;
    *milliseconds = 0;
    return SUCCESS;
}

#define DONE(function, parameters)                                                                 \
    int function parameters {                                                                      \
        COUNT(function);                                                                           \
        return SUCCESS;                                                                            \
    }

#pragma GCC diagnostic ignored "-Wunused-parameter"
DONE(cudaFreeAsync, (void *address, void *stream))
DONE(cudaMemPoolDestroy, (void *pool))
DONE(cudaMemPoolSetAccess, (void *pool, const void *descriptions, size_t count))
DONE(cudaMemPoolSetAttribute, (void *pool, int attribute, void *value))
DONE(cudaMemPoolTrimTo, (void *pool, size_t keep))
DONE(cudaMemcpyAsync, (void *to, const void *from, size_t size, int kind, void *stream))
DONE(cudaMemcpyPeerAsync, (void *to, int device, const void *from, int peer, size_t size, void *stream))
DONE(cudaMemsetAsync, (void *to, int value, size_t size, void *stream))
DONE(cudaStreamDestroy, (void *stream))
DONE(cudaStreamQuery, (void *stream))
DONE(cudaStreamWaitEvent, (void *stream, void *event, unsigned flags))
DONE(cudaEventDestroy, (void *event))
DONE(cudaEventRecord, (void *event, void *stream))
DONE(cudaEventQuery, (void *event))

/* ---- for tests --------------------------------------------------------------------------------- */

uint64_t cuda_stub_calls(const char *function) {
    return stub_calls(counters, FUNCTION_COUNT, function);
}
