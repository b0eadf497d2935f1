/*
 * The emulated CUDA runtime's own test. Each check is a process of its own with the environment that it
 * asks for, and is killed when it takes too long. Prints a line for each that fails and one at the end.
 *
 * usage: cudart_test            all checks
 *        cudart_test NAME       one, in this process
 *        cudart_test measure    what a few calls cost here
 */
#define _GNU_SOURCE
#include "../machine.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define DEADLINE_SECONDS 60

/* ---- the functions under test, declared as CUDA's documentation has them ------------------------- */

int cudaGetDeviceCount(int *);
int cudaGetDevice(int *);
int cudaSetDevice(int);
int cudaDeviceSynchronize(void);
int cudaDeviceReset(void);
int cudaDeviceGetAttribute(int *, int, int);
int cudaDeviceGetPCIBusId(char *, int, int);
int cudaDeviceGetByPCIBusId(int *, const char *);
int cudaDeviceCanAccessPeer(int *, int, int);
int cudaDeviceEnablePeerAccess(int, unsigned);
int cudaDeviceDisablePeerAccess(int);
int cudaStreamCreate(void **);
int cudaStreamCreateWithFlags(void **, unsigned);
int cudaStreamCreateWithPriority(void **, unsigned, int);
int cudaStreamGetPriority(void *, int *);
int cudaStreamDestroy(void *);
int cudaStreamSynchronize(void *);
int cudaStreamQuery(void *);
int cudaStreamWaitEvent(void *, void *, unsigned);
int cudaLaunchHostFunc(void *, void (*)(void *), void *);
int cudaEventCreate(void **);
int cudaEventCreateWithFlags(void **, unsigned);
int cudaEventRecord(void *, void *);
int cudaEventQuery(void *);
int cudaEventSynchronize(void *);
int cudaEventElapsedTime(float *, void *, void *);
int cudaEventDestroy(void *);
int cudaMalloc(void **, size_t);
int cudaFree(void *);
int cudaMallocManaged(void **, size_t, unsigned);
int cudaMemGetInfo(size_t *, size_t *);
int cudaHostAlloc(void **, size_t, unsigned);
int cudaFreeHost(void *);
int cudaHostRegister(void *, size_t, unsigned);
int cudaHostUnregister(void *);
int cudaPointerGetAttributes(void *, const void *);
int cudaMemcpy(void *, const void *, size_t, int);
int cudaMemcpyAsync(void *, const void *, size_t, int, void *);
int cudaMemcpyPeerAsync(void *, int, const void *, int, size_t, void *);
int cudaMemset(void *, int, size_t);
int cudaMemsetAsync(void *, int, size_t, void *);
int cudaMallocAsync(void **, size_t, void *);
int cudaFreeAsync(void *, void *);
int cudaDeviceGetDefaultMemPool(void **, int);
int cudaMemPoolSetAttribute(void *, int, void *);
int cudaMemPoolGetAttribute(void *, int, void *);
int cudaMemPoolSetAccess(void *, const void *, size_t);
int cudaStreamBeginCapture(void *, int);
int cudaStreamEndCapture(void *, void **);
int cudaStreamIsCapturing(void *, int *);
int cudaThreadExchangeStreamCaptureMode(int *);
int cudaGraphInstantiateWithFlags(void **, void *, unsigned long long);
int cudaGraphLaunch(void *, void *);
int cudaGraphExecDestroy(void *);
int cudaGraphDestroy(void *);
int cudaGetLastError(void);
int cudaPeekAtLastError(void);
const char *cudaGetErrorName(int);
int cudaRuntimeGetVersion(int *);
int cudaDriverGetVersion(int *);
int cuInit(unsigned);
int cuCtxCreate_v2(void **, unsigned, int);
int cuCtxDestroy_v2(void *);
int cuCtxGetCurrent(void **);
int cuCtxSetCurrent(void *);
int cuDevicePrimaryCtxRetain(void **, int);
int cuDevicePrimaryCtxGetState(int, unsigned *, int *);
int cuStreamGetCtx(void *, void **);
int cuDeviceGetName(char *, int, int);

/* ---- means --------------------------------------------------------------------------------------- */

static const char *check_name = "";

static void expect(long got, long expected, const char *text, int line) {
    if (got != expected) {
        char misuse[4000];
        nccl4j_emulator_misuse(misuse, sizeof misuse);
        printf("FAILED %s, line %d: %s: %ld, expected %ld\nmisuse so far:\n%s", check_name, line, text, got, expected, misuse);
        fflush(stdout);
        _exit(1);
    }
}

#define EXPECT(expression, expected) expect((long)(expression), (long)(expected), #expression, __LINE__)
#define OK(expression) EXPECT(expression, 0)
#define MISUSES(count) EXPECT(nccl4j_emulator_misuse(NULL, 0), count)

/* A host function that waits until the test lets it go: a stream that is busy for as long as one likes. */
typedef struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool open, entered;
} gate;

#define GATE {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, false}

static void pass(void *argument) {
    gate *g = argument;
    pthread_mutex_lock(&g->lock);
    g->entered = true;
    pthread_cond_broadcast(&g->changed);
    while (!g->open) {
        pthread_cond_wait(&g->changed, &g->lock);
    }
    pthread_mutex_unlock(&g->lock);
}

static void open_gate(gate *g) {
    pthread_mutex_lock(&g->lock);
    g->open = true;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
}

static void *stream_on(int device, unsigned flags) {
    void *stream;
    OK(cudaSetDevice(device));
    OK(cudaStreamCreateWithFlags(&stream, flags));
    return stream;
}

static void *memory_on(int device, size_t size) {
    void *memory;
    OK(cudaSetDevice(device));
    OK(cudaMalloc(&memory, size));
    return memory;
}

static void *pinned(size_t size) {
    void *memory;
    OK(cudaHostAlloc(&memory, size, 0));
    return memory;
}

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int first_int(const void *device_memory) {
    int value = -1;
    OK(cudaMemcpy(&value, device_memory, sizeof value, 2));
    return value;
}

/* ---- checks -------------------------------------------------------------------------------------- */

static void *default_device(void *result) {
    OK(cudaGetDevice(result));
    return NULL;
}

static void devices(void) {
    int value = -1;
    OK(cudaGetDeviceCount(&value));
    EXPECT(value, 8);
    OK(cudaSetDevice(5));
    OK(cudaGetDevice(&value));
    EXPECT(value, 5);
    EXPECT(cudaSetDevice(8), 101);
    EXPECT(cudaSetDevice(-1), 101);
    pthread_t thread;
    OK(pthread_create(&thread, NULL, default_device, &value));
    OK(pthread_join(thread, NULL));
    EXPECT(value, 0);
    OK(cudaDeviceGetAttribute(&value, 75, 0));
    EXPECT(value, 9);
    EXPECT(cudaDeviceGetAttribute(&value, 0, 0), 1);
    char id[32];
    OK(cudaDeviceGetPCIBusId(id, sizeof id, 3));
    OK(cudaDeviceGetByPCIBusId(&value, id));
    EXPECT(value, 3);
    EXPECT(cudaDeviceGetPCIBusId(id, 5, 3), 1);
    OK(cudaDeviceCanAccessPeer(&value, 0, 1));
    EXPECT(value, 1);
    EXPECT(cudaDeviceEnablePeerAccess(5, 0), 101);
    OK(cudaDeviceEnablePeerAccess(1, 0));
    EXPECT(cudaDeviceEnablePeerAccess(1, 0), 704);
    OK(cudaDeviceDisablePeerAccess(1));
    EXPECT(cudaDeviceDisablePeerAccess(1), 705);
    OK(cudaRuntimeGetVersion(&value));
    EXPECT(value, 13000);
    MISUSES(0);
}

static void last_error(void) {
    int value;
    OK(cudaGetLastError());
    EXPECT(cudaSetDevice(99), 101);
    OK(cudaGetDevice(&value)); /* a success does not clear it */
    EXPECT(cudaPeekAtLastError(), 101);
    EXPECT(cudaGetLastError(), 101);
    OK(cudaGetLastError());
    EXPECT(strcmp(cudaGetErrorName(700), "cudaErrorIllegalAddress"), 0);
}

static void memory(void) {
    size_t available, total, after;
    OK(cudaMemGetInfo(&available, &total));
    void *a = memory_on(0, 1000), *b = memory_on(0, 100000);
    EXPECT((uintptr_t)a % 256, 0);
    EXPECT(a == b, 0);
    OK(cudaMemGetInfo(&after, &total));
    EXPECT(after < available, 1);
    EXPECT(nccl4j_emulator_live("device bytes"), 101000);
    EXPECT(nccl4j_emulator_live("device allocations"), 2);
    /* Not the host's: the kernel finds it unreadable. */
    int null = open("/dev/zero", O_RDONLY);
    EXPECT(read(null, a, 1), -1);
    EXPECT(errno, EFAULT);
    int attributes[22] = {0};
    OK(cudaPointerGetAttributes(attributes, (char *)b + 17));
    EXPECT(attributes[0], 2);
    EXPECT(attributes[1], 0);
    OK(cudaPointerGetAttributes(attributes, &available));
    EXPECT(attributes[0], 0);
    OK(cudaFree(a));
    OK(cudaFree(b));
    OK(cudaFree(NULL));
    OK(cudaPointerGetAttributes(attributes, a));
    EXPECT(attributes[0], 0);
    void *nothing = &available;
    OK(cudaMalloc(&nothing, 0));
    EXPECT(nothing == NULL, 1);
    EXPECT(cudaMalloc(NULL, 1), 1);
    EXPECT(cudaMallocManaged(&nothing, 1, 1), 801);
    OK(cudaMemGetInfo(&after, &total));
    EXPECT(after, available);
    MISUSES(0);
    EXPECT(cudaFree(a), 1);
    EXPECT(cudaFree(&available), 1);
    MISUSES(2);
    EXPECT(nccl4j_emulator_live("device bytes"), 0);
    EXPECT(nccl4j_emulator_live("unheard of"), -1);
}

static void memory_limit(void) {
    void *a, *b, *c;
    OK(cudaMalloc(&a, 600 << 10));
    EXPECT(cudaMalloc(&b, 600 << 10), 2);
    OK(cudaSetDevice(1));
    OK(cudaMalloc(&b, 600 << 10)); /* each device has its own */
    OK(cudaSetDevice(0));
    OK(cudaFree(a));
    OK(cudaMalloc(&a, 1 << 20));
    EXPECT(cudaMallocAsync(&c, 1, NULL), 2);
    /* Many times the limit, one after the other: freed memory is given back, and not at the same address soon. */
    OK(cudaFree(a));
    void *before = NULL;
    for (int i = 0; i < 1000; i++) {
        OK(cudaMalloc(&a, 1 << 20));
        EXPECT(a == before, 0);
        OK(cudaMemset(a, i, 1 << 20));
        OK(cudaFree(before = a));
    }
    MISUSES(0);
}

static void copies(void) {
    enum { N = 3 << 20 };
    uint8_t *source = malloc(N), *back = malloc(N), *host = pinned(N);
    for (int i = 0; i < N; i++) {
        source[i] = (uint8_t)(i * 7 + i / 251);
    }
    char *on0 = memory_on(0, N), *on1 = memory_on(1, N);
    void *stream = stream_on(0, 1);
    OK(cudaMemcpyAsync(on0, source, N, 1, stream));
    OK(cudaMemcpyAsync(on1, on0, N, 3, stream));
    OK(cudaMemcpyAsync(host, on1, N, 2, stream));
    OK(cudaStreamSynchronize(stream));
    EXPECT(memcmp(source, host, N), 0);
    OK(cudaMemcpyAsync(back, on1 + 1, N - 1, 4, stream));
    EXPECT(memcmp(source + 1, back, N - 1), 0);
    OK(cudaMemset(on0, 9, N));
    OK(cudaMemcpy(back, on0, N, 2));
    EXPECT(back[0] + back[N - 1], 18);
    OK(cudaMemcpyPeerAsync(on0, 0, on1, 1, N, stream));
    OK(cudaStreamSynchronize(stream));
    EXPECT(cudaMemcpyPeerAsync(on0, 1, on1, 0, N, stream), 1);
    EXPECT(cudaMemcpyPeerAsync(on0, 0, on1, 99, N, stream), 101);
    /* Directions, bounds, nothing. */
    EXPECT(cudaMemcpy(back, source, N, 7), 21);
    EXPECT(cudaMemcpy(back, on0, 1, 1), 1);
    EXPECT(cudaMemcpy(on0, source, 1, 2), 1);
    EXPECT(cudaMemcpy(on0, source, 1, 3), 1);
    EXPECT(cudaMemcpy(on0, source, 1, 0), 1);
    EXPECT(cudaMemcpy(on0 + 1, source, N, 1), 1);
    EXPECT(cudaMemcpy(NULL, source, 1, 1), 1);
    OK(cudaMemcpy(NULL, NULL, 0, 1));
    OK(cudaMemcpy(back, source, N, 0));
    EXPECT(memcmp(back, source, N), 0);
    EXPECT(cudaMemset(back, 1, 1), 1);
    EXPECT(cudaMemsetAsync(on0 + N - 1, 1, 2, stream), 1);
    OK(cudaStreamDestroy(stream));
    OK(cudaFree(on0));
    OK(cudaFree(on1));
    OK(cudaFreeHost(host));
    MISUSES(0);
    EXPECT(cudaFreeHost(host), 1);
    EXPECT(nccl4j_emulator_live("pinned allocations"), 0);
    free(source);
    free(back);
}

static void order_of_streams(void) {
    static gate held = GATE;
    int *memory = memory_on(0, 4);
    void *busy = stream_on(0, 1), *other = stream_on(0, 1);
    OK(cudaMemset(memory, 0, 4));
    OK(cudaDeviceSynchronize());
    OK(cudaLaunchHostFunc(busy, pass, &held));
    OK(cudaMemsetAsync(memory, 1, 4, busy));
    EXPECT(cudaStreamQuery(busy), 600);
    EXPECT(cudaGetLastError(), 600);
    /* The other stream runs meanwhile; the default stream waits for blocking streams only. */
    OK(cudaStreamQuery(other));
    OK(cudaMemsetAsync(memory, 2, 4, other));
    OK(cudaStreamSynchronize(other));
    EXPECT(first_int(memory), 0x02020202);
    EXPECT(cudaStreamQuery(busy), 600);
    open_gate(&held);
    OK(cudaStreamSynchronize(busy));
    EXPECT(first_int(memory), 0x01010101);
    OK(cudaStreamQuery(busy));
    int priority;
    void *urgent;
    OK(cudaStreamCreateWithPriority(&urgent, 1, -99));
    OK(cudaStreamGetPriority(urgent, &priority));
    EXPECT(priority, -5);
    MISUSES(0);
}

/* The value stays what it is for a while: nobody runs who must wait. */
static void expect_kept(const _Atomic(int) *value, int expected) {
    for (int64_t began = now(); now() - began < 20000000;) {
        EXPECT(atomic_load(value), expected);
    }
}

static void legacy_stream(void) {
    static gate held = GATE, held2 = GATE;
    void *blocking = stream_on(0, 0), *free_of_it = stream_on(0, 1);
    int *memory = pinned(8);
    OK(cudaLaunchHostFunc(blocking, pass, &held));
    OK(cudaMemsetAsync(memory, 1, 4, NULL)); /* waits for the blocking stream */
    EXPECT(cudaStreamQuery(NULL), 600);
    OK(cudaMemsetAsync(memory, 2, 4, free_of_it));
    OK(cudaStreamSynchronize(free_of_it));
    expect_kept((_Atomic(int) *)memory, 0x02020202);
    open_gate(&held);
    OK(cudaStreamSynchronize(NULL));
    EXPECT(*memory, 0x01010101);
    /* And what a blocking stream gets later waits for the default stream. */
    OK(cudaLaunchHostFunc(NULL, pass, &held2));
    OK(cudaMemsetAsync(memory, 3, 4, blocking));
    OK(cudaMemsetAsync(memory, 4, 4, free_of_it));
    OK(cudaStreamSynchronize(free_of_it));
    expect_kept((_Atomic(int) *)memory, 0x04040404);
    EXPECT(cudaStreamQuery(blocking), 600);
    open_gate(&held2);
    OK(cudaStreamSynchronize(blocking));
    EXPECT(*memory, 0x03030303);
    /* Handle 1 is the same; 2 is the thread's own, which the default stream waits for. */
    OK(cudaMemsetAsync(memory, 5, 4, (void *)2));
    OK(cudaStreamSynchronize((void *)1));
    EXPECT(*memory, 0x05050505);
    MISUSES(0);
}

static void pageable_source(void) {
    static gate held = GATE;
    int source = 11, *memory = memory_on(0, 4);
    void *stream = stream_on(0, 1);
    OK(cudaLaunchHostFunc(stream, pass, &held));
    OK(cudaMemcpyAsync(memory, &source, 4, 1, stream)); /* has taken it when it returns */
    source = 12;
    EXPECT(cudaStreamQuery(stream), 600);
    open_gate(&held);
    OK(cudaStreamSynchronize(stream));
    EXPECT(first_int(memory), 11);
    /* Pinned memory is read when the copy's turn comes. */
    static gate held2 = GATE;
    int *host = pinned(4);
    *host = 21;
    OK(cudaLaunchHostFunc(stream, pass, &held2));
    OK(cudaMemcpyAsync(memory, host, 4, 1, stream));
    *host = 22;
    open_gate(&held2);
    OK(cudaStreamSynchronize(stream));
    EXPECT(first_int(memory), 22);
    MISUSES(0);
}

typedef struct {
    void *stream, *memory;
    int value;
    atomic_bool returned;
} pageable_copy;

static void *copy_to_pageable(void *argument) {
    pageable_copy *c = argument;
    OK(cudaMemcpyAsync(&c->value, c->memory, 4, 2, c->stream));
    atomic_store(&c->returned, true);
    return NULL;
}

static void pageable_target(void) {
    static gate held = GATE;
    static pageable_copy c;
    c.memory = memory_on(0, 4);
    c.stream = stream_on(0, 1);
    OK(cudaMemsetAsync(c.memory, 6, 4, c.stream));
    OK(cudaLaunchHostFunc(c.stream, pass, &held));
    pthread_t thread;
    OK(pthread_create(&thread, NULL, copy_to_pageable, &c));
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 100000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    EXPECT(pthread_timedjoin_np(thread, NULL, &until), ETIMEDOUT); /* the call waits for the copy */
    EXPECT(atomic_load(&c.returned), 0);
    open_gate(&held);
    OK(pthread_join(thread, NULL));
    EXPECT(c.value, 0x06060606);
}

static void events(void) {
    static gate held = GATE;
    void *stream0 = stream_on(0, 1), *stream1 = stream_on(1, 1), *timed, *end, *plain, *on1;
    int *memory = memory_on(1, 4);
    OK(cudaEventCreate(&on1));
    OK(cudaSetDevice(0));
    OK(cudaEventCreate(&timed));
    OK(cudaEventCreate(&end));
    OK(cudaEventCreateWithFlags(&plain, 2));
    OK(cudaEventQuery(timed)); /* never recorded: nothing to wait for */
    OK(cudaEventSynchronize(timed));
    OK(cudaStreamWaitEvent(stream0, timed, 0));
    float milliseconds;
    EXPECT(cudaEventElapsedTime(&milliseconds, timed, end), 400);
    EXPECT(cudaEventRecord(on1, stream0), 400); /* of another device */
    OK(cudaEventRecord(timed, stream0));
    OK(cudaLaunchHostFunc(stream0, pass, &held));
    OK(cudaEventRecord(end, stream0));
    OK(cudaEventRecord(plain, stream0));
    EXPECT(cudaEventQuery(end), 600);
    OK(cudaEventSynchronize(timed));
    EXPECT(cudaEventElapsedTime(&milliseconds, timed, end), 600);
    /* Across devices; and a later record does not change what is waited for. */
    EXPECT(cudaMemsetAsync(memory, 0, 4, stream1), 400); /* of a device that is not current */
    OK(cudaSetDevice(1));
    OK(cudaMemsetAsync(memory, 0, 4, stream1));
    OK(cudaStreamWaitEvent(stream1, end, 0));
    OK(cudaMemsetAsync(memory, 1, 4, stream1));
    EXPECT(cudaStreamQuery(stream1), 600);
    int64_t began = now();
    while (now() - began < 20000000) {
        EXPECT(cudaStreamQuery(stream1), 600);
    }
    open_gate(&held);
    OK(cudaStreamSynchronize(stream1));
    EXPECT(first_int(memory), 0x01010101);
    OK(cudaEventSynchronize(end));
    OK(cudaEventElapsedTime(&milliseconds, timed, end));
    EXPECT(milliseconds >= 19 && milliseconds < 60000, 1);
    OK(cudaEventSynchronize(plain));
    EXPECT(cudaEventElapsedTime(&milliseconds, timed, plain), 400);
    /* Recorded again on a busy stream it is not ready again. */
    static gate held2 = GATE;
    OK(cudaLaunchHostFunc(stream0, pass, &held2));
    OK(cudaEventRecord(end, stream0));
    EXPECT(cudaEventQuery(end), 600);
    OK(cudaStreamWaitEvent(stream1, end, 0));
    OK(cudaEventDestroy(end)); /* what waits for it goes on */
    EXPECT(cudaEventQuery(end), 400);
    EXPECT(cudaStreamQuery(stream1), 600);
    open_gate(&held2);
    OK(cudaStreamSynchronize(stream1));
    OK(cudaEventDestroy(timed));
    OK(cudaEventDestroy(plain));
    OK(cudaEventDestroy(on1));
    EXPECT(nccl4j_emulator_live("events"), 0);
    MISUSES(0);
    EXPECT(cudaEventDestroy(on1), 400);
    MISUSES(1);
}

static void handles(void) {
    static gate held = GATE;
    int *memory = memory_on(0, 4);
    void *stream = stream_on(0, 1);
    OK(cudaMemset(memory, 0, 4));
    OK(cudaDeviceSynchronize());
    OK(cudaLaunchHostFunc(stream, pass, &held));
    OK(cudaMemsetAsync(memory, 1, 4, stream));
    EXPECT(nccl4j_emulator_live("streams"), 1);
    OK(cudaStreamDestroy(stream)); /* its work goes on */
    EXPECT(nccl4j_emulator_live("streams"), 0);
    EXPECT(cudaStreamQuery(stream), 400);
    EXPECT(cudaStreamSynchronize(stream), 400);
    EXPECT(cudaMemsetAsync(memory, 1, 4, stream), 400);
    EXPECT(cudaStreamQuery(&held), 400);
    MISUSES(0);
    EXPECT(cudaStreamDestroy(stream), 400);
    EXPECT(cudaStreamDestroy(NULL), 400);
    MISUSES(2);
    open_gate(&held);
    OK(cudaDeviceSynchronize());
    EXPECT(first_int(memory), 0x01010101);
    /* A handle does not come again soon. */
    for (int i = 0; i < 100000; i++) {
        void *again = NULL;
        OK(cudaStreamCreateWithFlags(&again, 1));
        EXPECT(again == stream, 0);
        OK(cudaStreamDestroy(again));
    }
}

static void illegal_address(void) {
    static gate held = GATE;
    void *stream = stream_on(0, 1), *other = stream_on(1, 1), *event;
    int *memory = memory_on(0, 4), *other_memory = memory_on(1, 4), *kept = memory_on(0, 4);
    OK(cudaSetDevice(0));
    OK(cudaEventCreate(&event));
    OK(cudaFree(memory));
    OK(cudaMemsetAsync(memory, 1, 4, stream)); /* found when it runs */
    EXPECT(cudaStreamSynchronize(stream), 700);
    EXPECT(cudaStreamQuery(stream), 700);
    EXPECT(cudaGetLastError(), 700);
    EXPECT(cudaGetLastError(), 700); /* for good */
    void *more;
    EXPECT(cudaMalloc(&more, 4), 700);
    EXPECT(cudaEventRecord(event, stream), 700);
    EXPECT(cudaLaunchHostFunc(stream, pass, &held), 700);
    EXPECT(cudaEventDestroy(event), 700);
    /* Other devices are well. */
    OK(cudaSetDevice(1));
    OK(cudaMemsetAsync(other_memory, 1, 4, other));
    OK(cudaStreamSynchronize(other));
    EXPECT(cudaStreamSynchronize(stream), 700);
    EXPECT(cudaSetDevice(0), 700);
    EXPECT(cudaFree(kept), 700);
    MISUSES(1);
    OK(cudaDeviceReset());
    OK(cudaGetLastError());
    EXPECT(cudaStreamQuery(stream), 400);
    void *fresh = stream_on(0, 1), *ordered;
    OK(cudaMallocAsync(&ordered, 4, fresh));
    OK(cudaStreamBeginCapture(fresh, 0));
    EXPECT(cudaFree(ordered), 900); /* would spoil the capture */
    OK(cudaDeviceReset());          /* which takes all away */
    OK(cudaMalloc(&more, 4));
    OK(cudaMemset(more, 1, 4));
    OK(cudaDeviceSynchronize());
    OK(cudaFree(more));
    EXPECT(nccl4j_emulator_live("device bytes"), 4);
    EXPECT(nccl4j_emulator_live("events"), 0);
}

static void stream_ordered_memory(void) {
    static gate held = GATE;
    void *stream = stream_on(0, 1), *other = stream_on(0, 1), *event;
    int *memory;
    OK(cudaEventCreate(&event));
    OK(cudaMallocAsync((void **)&memory, 4096, stream));
    OK(cudaMemsetAsync(memory, 1, 4096, stream));
    OK(cudaEventRecord(event, stream));
    OK(cudaStreamWaitEvent(other, event, 0));
    OK(cudaMemsetAsync(memory, 2, 4096, other));
    OK(cudaStreamSynchronize(other));
    EXPECT(first_int(memory), 0x02020202);
    OK(cudaLaunchHostFunc(stream, pass, &held));
    OK(cudaMemsetAsync(memory, 3, 4096, stream));
    OK(cudaFreeAsync(memory, stream));
    EXPECT(nccl4j_emulator_live("device allocations"), 1); /* not yet its turn */
    open_gate(&held);
    OK(cudaStreamSynchronize(stream));
    EXPECT(nccl4j_emulator_live("device bytes"), 0);
    MISUSES(0);
    EXPECT(cudaFreeAsync(memory, stream), 1);
    MISUSES(1);
    nccl4j_emulator_forget();
    void *pool;
    uint64_t threshold = UINT64_MAX, got = 0;
    OK(cudaDeviceGetDefaultMemPool(&pool, 0));
    OK(cudaMemPoolSetAttribute(pool, 4, &threshold));
    OK(cudaMemPoolGetAttribute(pool, 4, &got));
    EXPECT(got == threshold, 1);
    int access[] = {1, 1, 3};
    OK(cudaMemPoolSetAccess(pool, access, 1));
    OK(cudaMalloc((void **)&memory, 4));
    EXPECT(cudaFreeAsync(memory, stream), 1); /* not from a pool */
    OK(cudaFree(memory));
    MISUSES(0);
}

static void memory_before_its_turn(void) {
    static gate held = GATE;
    void *stream = stream_on(0, 1), *other = stream_on(0, 1), *memory;
    OK(cudaLaunchHostFunc(stream, pass, &held));
    OK(cudaMallocAsync(&memory, 4096, stream));
    OK(cudaMemsetAsync(memory, 2, 4096, other));
    EXPECT(cudaStreamSynchronize(other), 700);
    MISUSES(1);
    open_gate(&held);
}

static void memory_after_its_turn(void) {
    void *stream = stream_on(0, 1), *memory;
    OK(cudaMallocAsync(&memory, 4096, stream));
    OK(cudaFreeAsync(memory, stream));
    OK(cudaMemsetAsync(memory, 2, 4096, stream));
    EXPECT(cudaStreamSynchronize(stream), 700);
    MISUSES(1);
}

static void free_synchronises(void) {
    static gate held = GATE;
    void *stream = stream_on(0, 1);
    void *memory = memory_on(0, 4), *other = memory_on(1, 4), *more;
    OK(cudaLaunchHostFunc(stream, pass, &held));
    OK(cudaFree(other)); /* another device's */
    MISUSES(0);
    int64_t began = now();
    OK(cudaFree(memory)); /* would wait for ever */
    EXPECT(now() - began >= 200000000, 1);
    MISUSES(1);
    OK(cudaSetDevice(0));
    OK(cudaMalloc(&more, 4));
    MISUSES(2);
    open_gate(&held);
    OK(cudaStreamSynchronize(stream));
    OK(cudaFree(more));
    MISUSES(2);
}

static void call_cuda(void *result) {
    int *codes = result, ignored;
    codes[0] = cudaGetDevice(&ignored);
    codes[1] = cudaStreamQuery(NULL);
}

static void host_function(void) {
    static int codes[2];
    void *stream = stream_on(0, 1);
    OK(cudaLaunchHostFunc(stream, call_cuda, codes));
    OK(cudaStreamSynchronize(stream));
    EXPECT(codes[0], 800);
    EXPECT(codes[1], 800);
    MISUSES(2);
}

static void launch_in_progress(void) {
    void *stream = stream_on(0, 1);
    int *memory = memory_on(0, 4);
    emu_stream *inside = emu_stream_of(stream);
    emu_stream_launch_begins(inside);
    OK(cudaMemsetAsync(memory, 1, 4, stream));
    MISUSES(1);
    int status = cudaStreamQuery(stream); /* asking is allowed */
    EXPECT(status == 0 || status == 600, 1);
    MISUSES(1);
    emu_stream_launch_ends(inside);
    OK(cudaMemsetAsync(memory, 1, 4, stream));
    MISUSES(1);
}

static void host_memory(void) {
    char *block = malloc(4096);
    OK(cudaHostRegister(block, 1024, 0));
    EXPECT(cudaHostRegister(block + 512, 1024, 0), 712);
    OK(cudaHostRegister(block + 1024, 1024, 0));
    emu_range range;
    emu_find((uint64_t)(uintptr_t)(block + 1030), &range);
    EXPECT(range.kind, EMU_PINNED);
    EXPECT(range.size, 1024);
    EXPECT(cudaHostUnregister(block + 1), 713);
    OK(cudaHostUnregister(block));
    EXPECT(cudaHostUnregister(block), 713);
    emu_find((uint64_t)(uintptr_t)block, &range);
    EXPECT(range.kind, EMU_PAGEABLE);
    EXPECT(nccl4j_emulator_live("pinned allocations"), 1);
    OK(cudaHostUnregister(block + 1024));
    EXPECT(cudaFreeHost(block), 1);
    MISUSES(1);
    emu_place place;
    char why[200];
    EXPECT(emu_place_of((uint64_t)(uintptr_t)block, 1, 0, &place, why), 700);
    int *host = pinned(8);
    *host = 77;
    OK(emu_place_of((uint64_t)(uintptr_t)host, 8, 3, &place, why));
    EXPECT(*(int *)emu_map(&place), 77);
    EXPECT(emu_place_of((uint64_t)(uintptr_t)host, 9, 3, &place, why), 700);
    void *on0 = memory_on(0, 4);
    OK(emu_place_of((uint64_t)(uintptr_t)on0, 4, 0, &place, why));
    EXPECT(emu_place_of((uint64_t)(uintptr_t)on0, 4, 1, &place, why), 700);
}

/* ---- capture ------------------------------------------------------------------------------------- */

static void count_up(void *argument) {
    atomic_fetch_add((atomic_int *)argument, 1);
}

static void capture(void) {
    static atomic_int called;
    int *memory0 = memory_on(0, 4), *memory1 = memory_on(1, 4), *host = pinned(8);
    void *stream0 = stream_on(0, 1), *stream1 = stream_on(1, 1), *fork, *joined, *graph, *executable;
    OK(cudaEventCreateWithFlags(&joined, 2));
    OK(cudaSetDevice(0));
    OK(cudaEventCreateWithFlags(&fork, 2));
    OK(cudaStreamBeginCapture(stream0, 1));
    int status;
    OK(cudaStreamIsCapturing(stream0, &status));
    EXPECT(status, 1);
    OK(cudaMemsetAsync(memory0, 1, 4, stream0));
    OK(cudaEventRecord(fork, stream0));
    OK(cudaStreamWaitEvent(stream1, fork, 0)); /* takes the other device's stream in */
    OK(cudaMemcpyAsync(memory1, memory0, 4, 3, stream1));
    OK(cudaLaunchHostFunc(stream0, count_up, &called));
    OK(cudaEventRecord(joined, stream1));
    OK(cudaStreamWaitEvent(stream0, joined, 0));
    OK(cudaMemcpyAsync(host, memory1, 4, 2, stream0));
    OK(cudaStreamEndCapture(stream0, &graph));
    OK(cudaStreamIsCapturing(stream1, &status));
    EXPECT(status, 0);
    EXPECT(atomic_load(&called), 0); /* nothing has run */
    OK(cudaGraphInstantiateWithFlags(&executable, graph, 0));
    OK(cudaGraphDestroy(graph));
    for (int i = 1; i <= 50; i++) {
        *host = 0;
        OK(cudaGraphLaunch(executable, stream0));
        OK(cudaStreamSynchronize(stream0));
        EXPECT(*host, 0x01010101);
        EXPECT(atomic_load(&called), i);
    }
    EXPECT(cudaEventQuery(fork), 907);
    EXPECT(cudaStreamWaitEvent(stream0, fork, 0), 907);
    OK(cudaEventRecord(fork, stream0));
    OK(cudaEventSynchronize(fork));
    OK(cudaGraphExecDestroy(executable));
    EXPECT(cudaGraphExecDestroy(executable), 1);
    EXPECT(cudaGraphLaunch(executable, stream0), 1);
    EXPECT(nccl4j_emulator_live("graphs"), 0);
    EXPECT(nccl4j_emulator_live("streams"), 2);
    MISUSES(0);
}

static void capture_errors(void) {
    void *stream = stream_on(0, 1), *other = stream_on(0, 1), *blocking = stream_on(0, 0), *event, *outside, *graph, *memory;
    OK(cudaEventCreate(&event));
    OK(cudaEventCreate(&outside));
    OK(cudaMalloc(&memory, 4));
    OK(cudaEventRecord(outside, other));
    EXPECT(cudaStreamBeginCapture(NULL, 1), 900);
    EXPECT(cudaStreamBeginCapture(stream, 5), 1);
    EXPECT(cudaStreamEndCapture(stream, &graph), 401);
    /* A call that waits spoils it. */
    OK(cudaStreamBeginCapture(stream, 1));
    EXPECT(cudaStreamBeginCapture(stream, 1), 401);
    EXPECT(cudaStreamSynchronize(stream), 900);
    EXPECT(cudaMemsetAsync(memory, 1, 4, stream), 901);
    EXPECT(cudaStreamEndCapture(stream, &graph), 901);
    /* So does an allocation, unless this thread is relaxed. */
    OK(cudaStreamBeginCapture(stream, 1));
    int mode = 2;
    OK(cudaThreadExchangeStreamCaptureMode(&mode));
    void *more;
    OK(cudaMalloc(&more, 4));
    OK(cudaThreadExchangeStreamCaptureMode(&mode));
    EXPECT(cudaMalloc(&more, 4), 900);
    EXPECT(cudaStreamEndCapture(stream, &graph), 901);
    /* A stream that is not joined; work outside; another stream's end; the legacy stream. */
    OK(cudaStreamBeginCapture(stream, 1));
    OK(cudaEventRecord(event, stream));
    OK(cudaStreamWaitEvent(other, event, 0));
    OK(cudaMemsetAsync(memory, 1, 4, other));
    EXPECT(cudaStreamEndCapture(stream, &graph), 904);
    OK(cudaStreamBeginCapture(stream, 1));
    EXPECT(cudaStreamWaitEvent(stream, outside, 0), 905);
    EXPECT(cudaStreamEndCapture(stream, &graph), 901);
    OK(cudaStreamBeginCapture(stream, 1));
    OK(cudaEventRecord(event, stream));
    OK(cudaStreamWaitEvent(other, event, 0));
    EXPECT(cudaStreamEndCapture(other, &graph), 903);
    EXPECT(cudaStreamEndCapture(stream, &graph), 901);
    OK(cudaStreamBeginCapture(blocking, 1));
    EXPECT(cudaMemsetAsync(memory, 1, 4, NULL), 906);
    EXPECT(cudaStreamEndCapture(blocking, &graph), 901);
    /* Two captures do not merge. */
    OK(cudaStreamBeginCapture(stream, 1));
    OK(cudaStreamBeginCapture(other, 1));
    OK(cudaEventRecord(event, stream));
    EXPECT(cudaStreamWaitEvent(other, event, 0), 902);
    EXPECT(cudaStreamEndCapture(stream, &graph), 901);
    EXPECT(cudaStreamEndCapture(other, &graph), 901);
    OK(cudaMemsetAsync(memory, 1, 4, stream));
    OK(cudaStreamSynchronize(stream));
    OK(cudaFree(memory));
    EXPECT(nccl4j_emulator_live("graphs"), 0);
}

/* A task that is captured by its clones. */
typedef struct {
    emu_task task;
    atomic_int *ran, *released;
} counted_task;

static emu_progress run_counted(emu_task *task) {
    atomic_fetch_add(((counted_task *)task)->ran, 1);
    return EMU_DONE;
}

static void release_counted(emu_task *task) {
    atomic_fetch_add(((counted_task *)task)->released, 1);
    free(task);
}

static emu_task *clone_counted(const emu_task *task) {
    counted_task *clone = malloc(sizeof *clone);
    *clone = *(const counted_task *)task;
    return &clone->task;
}

static counted_task *new_counted(atomic_int *ran, atomic_int *released, bool cloneable) {
    counted_task *t = calloc(1, sizeof *t);
    t->task.progress = run_counted;
    t->task.release = release_counted;
    t->task.clone = cloneable ? clone_counted : NULL;
    t->ran = ran;
    t->released = released;
    return t;
}

static void captured_tasks(void) {
    static atomic_int ran, released;
    void *stream = stream_on(0, 1), *graph, *executable;
    emu_stream *inside = emu_stream_of(stream);
    OK(cudaStreamBeginCapture(stream, 1));
    EXPECT(emu_stream_capturing(inside), 1);
    emu_enqueue(inside, &new_counted(&ran, &released, true)->task);
    OK(cudaStreamEndCapture(stream, &graph));
    OK(cudaGraphInstantiateWithFlags(&executable, graph, 0));
    for (int i = 0; i < 10; i++) {
        OK(cudaGraphLaunch(executable, stream));
    }
    OK(cudaStreamSynchronize(stream));
    EXPECT(ran, 10);
    EXPECT(released, 10);
    OK(cudaGraphDestroy(graph));
    EXPECT(released, 10);
    OK(cudaGraphExecDestroy(executable));
    EXPECT(released, 11);
    OK(cudaStreamBeginCapture(stream, 1));
    emu_enqueue(inside, &new_counted(&ran, &released, false)->task);
    EXPECT(released, 12);
    EXPECT(cudaStreamEndCapture(stream, &graph), 901);
}

/* ---- faults, contexts, processes ----------------------------------------------------------------- */

static void *hang(void *argument) {
    void *memory;
    *(int *)argument = cudaMalloc(&memory, 4);
    return NULL;
}

static void injection(void) {
    void *memory;
    int value;
    OK(nccl4j_emulator_inject("cudaMalloc:2=code:2;cudaGetDevice:*=code:999; cudaFree=delay:30"));
    OK(cudaMalloc(&memory, 4));
    int64_t began = now();
    OK(cudaFree(memory));
    EXPECT(now() - began >= 29000000, 1);
    EXPECT(cudaMalloc(&memory, 4), 2);
    OK(cudaMalloc(&memory, 4));
    EXPECT(cudaGetDevice(&value), 999);
    EXPECT(cudaGetDevice(&value), 999);
    EXPECT(nccl4j_emulator_calls("cudaMalloc"), 3);
    EXPECT(nccl4j_emulator_calls("cudaNothing"), 0);
    nccl4j_emulator_forget();
    EXPECT(nccl4j_emulator_calls("cudaMalloc"), 0);
    OK(cudaGetDevice(&value));
    EXPECT(nccl4j_emulator_inject("cudaMalloc"), 11);
    EXPECT(nccl4j_emulator_inject("cudaMalloc=code"), 16);
    EXPECT(nccl4j_emulator_inject("cudaMalloc:0=hang"), 12);
    EXPECT(nccl4j_emulator_inject("cudaFree=hang;cudaMalloc=nonsense"), 26);
    OK(cudaFree(memory)); /* of a text with a mistake nothing is taken */
    OK(nccl4j_emulator_inject("cudaMalloc=hang"));
    pthread_t thread;
    OK(pthread_create(&thread, NULL, hang, &value));
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 1;
    EXPECT(pthread_timedjoin_np(thread, NULL, &until), ETIMEDOUT);
    nccl4j_emulator_forget();
    OK(pthread_join(thread, NULL));
    OK(value);
    OK(nccl4j_emulator_inject("cudaGetDevice=async:719"));
    OK(cudaGetDevice(&value));
    EXPECT(cudaMalloc(&memory, 4), 719);
    MISUSES(0); /* what a test has ordered is none */
}

static void ordered_by_environment(void) {
    void *memory;
    EXPECT(cudaMalloc(&memory, 4), 46);
    OK(cudaMalloc(&memory, 4));
}

static void contexts(void) {
    void *foreign, *current, *primary, *stream, *of_stream;
    int value, active;
    unsigned flags;
    EXPECT(cuDevicePrimaryCtxGetState(2, &flags, &active), 3); /* cuInit comes first */
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxGetState(2, &flags, &active));
    EXPECT(active, 0);
    OK(cuCtxGetCurrent(&current));
    EXPECT(current == NULL, 1);
    OK(cuCtxCreate_v2(&foreign, 0, 2));
    OK(cudaGetDevice(&value)); /* the runtime goes by the current context */
    EXPECT(value, 2);
    OK(cudaStreamCreate(&stream));
    OK(cuStreamGetCtx(stream, &of_stream));
    EXPECT(of_stream == foreign, 1);
    OK(cudaSetDevice(2)); /* replaces it by the primary one */
    OK(cuCtxGetCurrent(&current));
    EXPECT(current == foreign, 0);
    OK(cuDevicePrimaryCtxRetain(&primary, 2));
    EXPECT(current == primary, 1);
    OK(cuDevicePrimaryCtxGetState(2, &flags, &active));
    EXPECT(active, 1);
    OK(cuCtxSetCurrent(foreign));
    OK(cuCtxDestroy_v2(foreign));
    EXPECT(cuCtxSetCurrent(foreign), 201);
    char name[64];
    OK(cuDeviceGetName(name, sizeof name, 3));
    EXPECT(strcmp(name, "nccl4j emulator device 3"), 0);
}

static void no_devices(void) {
    int value = 7;
    EXPECT(cudaGetDeviceCount(&value), 100);
    EXPECT(value, 0);
    EXPECT(cudaSetDevice(0), 100);
    EXPECT(cudaStreamSynchronize(NULL), 100);
    EXPECT(cuInit(0), 100);
}

static void no_driver(void) {
    int value = 7;
    EXPECT(cudaGetDeviceCount(&value), 35);
    OK(cudaDriverGetVersion(&value));
    EXPECT(value, 0);
    EXPECT(cudaMalloc(NULL, 0), 35);
}

static char *self;

typedef struct {
    emu_place device, host, shared;
} places;

/* A child that is told by a pipe where its parent's memory is, and changes it. */
static void other_process(void) {
    places p;
    EXPECT(read(0, &p, sizeof p), sizeof p);
    int *device = emu_map(&p.device), *host = emu_map(&p.host), *shared = emu_map(&p.shared);
    EXPECT(device[0], 0x05050505);
    EXPECT(host[0], 6);
    EXPECT(shared[0], 7);
    device[0] = 15;
    host[0] = 16;
    shared[0] = 17;
    atomic_thread_fence(memory_order_seq_cst);
    emu_wake(p.device.pid, 1);
    emu_place gone = p.device;
    gone.pid = 0x3FFFFFF;
    EXPECT(emu_map(&gone) == NULL, 1);
    emu_wake(gone.pid, 0);
}

static void processes(void) {
    int *memory = memory_on(1, 4), *host = pinned(4);
    places p;
    int *shared = emu_shared_allocate(100, &p.shared);
    OK(cudaMemset(memory, 5, 4));
    OK(cudaDeviceSynchronize());
    *host = 6;
    *shared = 7;
    char why[200];
    OK(emu_place_of((uint64_t)(uintptr_t)memory, 4, 1, &p.device, why));
    OK(emu_place_of((uint64_t)(uintptr_t)host, 4, 1, &p.host, why));
    int pipe_ends[2];
    OK(pipe(pipe_ends));
    pid_t child = fork();
    if (child == 0) {
        dup2(pipe_ends[0], 0);
        execl(self, self, "other_process", (char *)NULL);
        _exit(9);
    }
    EXPECT(write(pipe_ends[1], &p, sizeof p), sizeof p);
    int64_t began = now();
    while (*(_Atomic(int) *)shared != 17) {
        emu_wait(1, 5000000000);
        EXPECT(now() - began < 30000000000, 1);
    }
    EXPECT(*host, 16);
    EXPECT(first_int(memory), 15);
    int status;
    EXPECT(waitpid(child, &status, 0), child);
    EXPECT(status, 0);
    emu_shared_free(shared);
}

static void forked_child(void) {
    void *memory = memory_on(0, 4);
    OK(cudaMemset(memory, 0, 4));
    pid_t child = fork();
    if (child == 0) {
        void *more;
        _exit(cudaMalloc(&more, 4) == 3 ? 0 : 1);
    }
    int status;
    EXPECT(waitpid(child, &status, 0), child);
    EXPECT(status, 0);
    OK(cudaFree(memory));
}

/* The process ends while devices work, as a JVM's does. */
static void exit_at_work(void) {
    static gate held = GATE;
    for (int device = 0; device < 8; device++) {
        void *stream = stream_on(device, 1), *memory = memory_on(device, 8 << 20);
        for (int i = 0; i < 200; i++) {
            OK(cudaMemsetAsync(memory, i, 8 << 20, stream));
        }
        OK(cudaLaunchHostFunc(stream, pass, &held));
    }
    exit(0);
}

/* ---- many threads -------------------------------------------------------------------------------- */

/* A ring of devices: each thread copies from its left neighbour's memory when an event says that it is there. */
#define ROUNDS 300
static void *ring_events[8][2];
static int *ring_memory[8];
static void *ring_streams[8];
static pthread_barrier_t ring_barrier;

static void *ring_thread(void *argument) {
    int device = (int)(intptr_t)argument, left = (device + 7) % 8;
    OK(cudaSetDevice(device));
    void *stream = ring_streams[device];
    for (int round = 0; round < ROUNDS; round++) {
        OK(cudaMemsetAsync(ring_memory[device], device + round, 4, stream));
        OK(cudaEventRecord(ring_events[device][0], stream));
        pthread_barrier_wait(&ring_barrier);
        OK(cudaStreamWaitEvent(stream, ring_events[left][0], 0));
        OK(cudaMemcpyAsync(ring_memory[device] + 1, ring_memory[left], 4, 3, stream));
        OK(cudaEventRecord(ring_events[device][1], stream));
        pthread_barrier_wait(&ring_barrier);
        /* Nobody overwrites what the right neighbour reads. */
        OK(cudaStreamWaitEvent(stream, ring_events[(device + 1) % 8][1], 0));
        void *temporary;
        OK(cudaMallocAsync(&temporary, 1000, stream));
        OK(cudaMemsetAsync(temporary, 1, 1000, stream));
        OK(cudaFreeAsync(temporary, stream));
        int values[2];
        OK(cudaMemcpyAsync(values, ring_memory[device], 8, 2, stream));
        EXPECT(values[0] & 0xFF, (device + round) & 0xFF);
        EXPECT(values[1] & 0xFF, (left + round) & 0xFF);
        pthread_barrier_wait(&ring_barrier);
    }
    return NULL;
}

static void many_threads(void) {
    OK(pthread_barrier_init(&ring_barrier, NULL, 8));
    pthread_t threads[8];
    for (int i = 0; i < 8; i++) {
        ring_memory[i] = memory_on(i, 8);
        ring_streams[i] = stream_on(i, i % 2);
        OK(cudaEventCreateWithFlags(&ring_events[i][0], 2));
        OK(cudaEventCreateWithFlags(&ring_events[i][1], 2));
    }
    for (int i = 0; i < 8; i++) {
        OK(pthread_create(&threads[i], NULL, ring_thread, (void *)(intptr_t)i));
    }
    for (int i = 0; i < 8; i++) {
        OK(pthread_join(threads[i], NULL));
    }
    MISUSES(0);
    EXPECT(nccl4j_emulator_live("device allocations"), 8);
}

/* ---- a random program ---------------------------------------------------------------------------- */

/*
 * Host functions on streams of several devices, ordered by streams, events and default streams at random.
 * Each looks, as it runs, whether all that must be done before it is done.
 */
enum { PROGRAM = 4000, STREAMS = 12, EVENTS = 16, PREDECESSORS = 16 };

typedef struct {
    atomic_bool done;
    int predecessors[PREDECESSORS];
    int count;
} program_step;

static program_step program[PROGRAM];
static atomic_int program_errors;

static void run_step(void *argument) {
    program_step *s = argument;
    for (long i = (s - program) % 7; i > 0; i--) {
        sched_yield(); /* some take longer */
    }
    for (int i = 0; i < s->count; i++) {
        if (!atomic_load(&program[s->predecessors[i]].done)) {
            atomic_fetch_add(&program_errors, 1);
        }
    }
    atomic_store(&s->done, true);
}

static void random_program(void) {
    unsigned seed = getenv("SEED") != NULL ? (unsigned)atoi(getenv("SEED")) : (unsigned)now();
    printf("random_program: SEED=%u\n", seed);
    /* Streams 0 to 8: of devices 0 to 2, the first of each its default stream, then a blocking, then a free one. */
    void *streams[STREAMS], *program_events[EVENTS];
    int device[STREAMS], last[STREAMS], recorded[EVENTS];
    /* What the next step of a stream has to come after, beside its last. */
    int pending[STREAMS][PREDECESSORS], pending_count[STREAMS] = {0};
    for (int i = 0; i < STREAMS; i++) {
        device[i] = i / 3;
        streams[i] = i % 3 == 0 ? NULL : stream_on(device[i], i % 3 == 1 ? 0 : 1);
        last[i] = -1;
    }
    for (int i = 0; i < EVENTS; i++) {
        OK(cudaSetDevice(i % (STREAMS / 3)));
        OK(cudaEventCreateWithFlags(&program_events[i], 2));
        recorded[i] = -2;
    }
    for (int next = 0; next < PROGRAM;) {
        int s = rand_r(&seed) % STREAMS, e = rand_r(&seed) % EVENTS;
        OK(cudaSetDevice(device[s]));
        switch (rand_r(&seed) % 4) {
            case 0:
                e = e - e % (STREAMS / 3) + device[s]; /* an event of the device */
                /* Only where what is before it is a step: so that a wait means one step. */
                if (last[s] >= 0 && pending_count[s] == 0 && s % 3 == 2) {
                    OK(cudaEventRecord(program_events[e], streams[s]));
                    recorded[e] = last[s];
                }
                break;
            case 1:
                OK(cudaStreamWaitEvent(streams[s], program_events[e], 0));
                if (recorded[e] >= 0 && pending_count[s] < PREDECESSORS - 8) {
                    pending[s][pending_count[s]++] = recorded[e];
                }
                break;
            default: {
                program_step *step = &program[next];
                step->count = 0;
                for (int i = 0; i < pending_count[s]; i++) {
                    step->predecessors[step->count++] = pending[s][i];
                }
                pending_count[s] = 0;
                int first = s - s % 3;
                /* The default stream comes after the blocking one, and that after the default stream. */
                if (last[s] >= 0) {
                    step->predecessors[step->count++] = last[s];
                }
                if (s % 3 < 2 && last[first + 1 - s % 3] >= 0) {
                    step->predecessors[step->count++] = last[first + 1 - s % 3];
                }
                OK(cudaLaunchHostFunc(streams[s], run_step, step));
                last[s] = next++;
            }
        }
    }
    for (int i = 0; i < STREAMS / 3; i++) {
        OK(cudaSetDevice(i));
        OK(cudaDeviceSynchronize());
    }
    for (int i = 0; i < PROGRAM; i++) {
        EXPECT(atomic_load(&program[i].done), 1);
    }
    EXPECT(atomic_load(&program_errors), 0);
    MISUSES(0);
}

/* ---- figures ------------------------------------------------------------------------------------- */

static void measure(void) {
    enum { N = 200000 };
    void *stream = stream_on(0, 1), *memory = memory_on(0, 1 << 20), *event;
    OK(cudaEventCreateWithFlags(&event, 2));
    int64_t began = now();
    for (int i = 0; i < N; i++) {
        OK(cudaMemsetAsync(memory, i, 16, stream));
    }
    printf("enqueue a fill of 16 bytes: %lld ns\n", (long long)(now() - began) / N);
    OK(cudaStreamSynchronize(stream));
    printf("enqueue and run it: %lld ns\n", (long long)(now() - began) / N);
    began = now();
    for (int i = 0; i < N / 10; i++) {
        OK(cudaMemsetAsync(memory, i, 16, stream));
        OK(cudaStreamSynchronize(stream));
    }
    printf("enqueue and wait for it: %lld ns\n", (long long)(now() - began) / (N / 10));
    began = now();
    for (int i = 0; i < N; i++) {
        OK(cudaStreamQuery(stream));
    }
    printf("query: %lld ns\n", (long long)(now() - began) / N);
    began = now();
    for (int i = 0; i < N / 10; i++) {
        void *more;
        OK(cudaMalloc(&more, 4096));
        OK(cudaFree(more));
    }
    printf("allocate and free: %lld ns\n", (long long)(now() - began) / (N / 10));
    began = now();
    emu_place place;
    char why[200];
    for (int i = 0; i < N; i++) {
        OK(emu_place_of((uint64_t)(uintptr_t)memory + (uint64_t)i, 1, 0, &place, why));
        EXPECT(emu_map(&place) == NULL, 0);
    }
    printf("find and map an address: %lld ns\n", (long long)(now() - began) / N);
}

/* ---- running ------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    void (*run)(void);
    const char *environment;
} checks[] = {
    {"devices", devices, NULL},
    {"last_error", last_error, NULL},
    {"memory", memory, NULL},
    {"memory_limit", memory_limit, "NCCL4J_EMULATOR_DEVICE_MEMORY=1M"},
    {"copies", copies, NULL},
    {"order_of_streams", order_of_streams, NULL},
    {"legacy_stream", legacy_stream, NULL},
    {"pageable_source", pageable_source, NULL},
    {"pageable_target", pageable_target, NULL},
    {"events", events, NULL},
    {"handles", handles, NULL},
    {"illegal_address", illegal_address, NULL},
    {"stream_ordered_memory", stream_ordered_memory, NULL},
    {"memory_before_its_turn", memory_before_its_turn, NULL},
    {"memory_after_its_turn", memory_after_its_turn, NULL},
    {"free_synchronises", free_synchronises, "NCCL4J_EMULATOR_DEADLOCK_MILLISECONDS=200"},
    {"host_function", host_function, NULL},
    {"launch_in_progress", launch_in_progress, NULL},
    {"host_memory", host_memory, NULL},
    {"capture", capture, NULL},
    {"capture_errors", capture_errors, NULL},
    {"captured_tasks", captured_tasks, NULL},
    {"injection", injection, NULL},
    {"ordered_by_environment", ordered_by_environment, "NCCL4J_EMULATOR_FAULTS=cudaMalloc=code:46"},
    {"contexts", contexts, NULL},
    {"no_devices", no_devices, "NCCL4J_EMULATOR_DEVICES=0"},
    {"no_driver", no_driver, "NCCL4J_EMULATOR_NO_DRIVER=1"},
    {"processes", processes, NULL},
    {"forked_child", forked_child, NULL},
    {"exit_at_work", exit_at_work, NULL},
    {"many_threads", many_threads, NULL},
    {"random_program", random_program, NULL},
};
#define CHECKS (sizeof checks / sizeof *checks)

static int run_one(const char *name) {
    check_name = name;
    alarm(DEADLINE_SECONDS);
    if (strcmp(name, "measure") == 0) {
        measure();
        return 0;
    }
    if (strcmp(name, "other_process") == 0) {
        other_process();
        return 0;
    }
    for (size_t i = 0; i < CHECKS; i++) {
        if (strcmp(name, checks[i].name) == 0) {
            checks[i].run();
            return 0;
        }
    }
    printf("no check is called %s\n", name);
    return 2;
}

int main(int count, char **arguments) {
    self = realpath("/proc/self/exe", NULL);
    if (count > 1) {
        return run_one(arguments[1]);
    }
    int failed = 0;
    for (size_t i = 0; i < CHECKS; i++) {
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            if (checks[i].environment != NULL) {
                putenv(strdup(checks[i].environment));
            }
            execl(self, self, checks[i].name, (char *)NULL);
            _exit(9);
        }
        int status;
        waitpid(child, &status, 0);
        if (status != 0) {
            failed++;
            if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM) {
                printf("FAILED %s: not over after %d s\n", checks[i].name, DEADLINE_SECONDS);
            } else if (WIFSIGNALED(status)) {
                printf("FAILED %s: signal %d\n", checks[i].name, WTERMSIG(status));
            } else {
                printf("FAILED %s: exit code %d\n", checks[i].name, WEXITSTATUS(status));
            }
        }
    }
    printf("cudart_test: %zu checks, %d failed\n", CHECKS, failed);
    return failed == 0 ? 0 : 1;
}
