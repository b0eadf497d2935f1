/*
 * The CUDA driver's library as far as contexts are looked at and made current: a primary one for each
 * device, and which is current, by thread.
 */
#include "stub.h"

#include <stdio.h>

#define SUCCESS 0
#define INVALID_VALUE 1
#define INVALID_DEVICE 101
#define INVALID_CONTEXT 201

/* Their addresses are the contexts. */
static char primary[STUB_DEVICES];
static _Thread_local void *current;

static int is_device(int device) {
    return device >= 0 && device < STUB_DEVICES;
}

int cuInit(unsigned flags) {
    return flags == 0 ? SUCCESS : INVALID_VALUE;
}

int cuDriverGetVersion(int *version) {
    *version = 13000;
    return SUCCESS;
}

int cuDeviceGet(int *device, int ordinal) {
    *device = ordinal;
    return is_device(ordinal) ? SUCCESS : INVALID_DEVICE;
}

int cuDeviceGetName(char *name, int length, int device) {
    snprintf(name, (size_t)length, "nccl4j stub device %d", device);
    return SUCCESS;
}

int cuCtxGetCurrent(void **context) {
    *context = current;
    return SUCCESS;
}

int cuCtxSetCurrent(void *context) {
    current = context;
    return SUCCESS;
}

int cuCtxGetDevice(int *device) {
    if (current == NULL)
        return INVALID_CONTEXT;
    *device = (int)((char *)current - primary);
    return SUCCESS;
}

int cuDevicePrimaryCtxRetain(void **context, int device) {
    if (!is_device(device))
        return INVALID_DEVICE;
    *context = &primary[device];
    return SUCCESS;
}

int cuDevicePrimaryCtxRelease_v2(int device) {
    return is_device(device) ? SUCCESS : INVALID_DEVICE;
}

int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) {
    *flags = 0;
    *active = 1;
    return is_device(device) ? SUCCESS : INVALID_DEVICE;
}

/* Of no device: nothing wraps a stream here. */
int cuStreamGetCtx(void *stream, void **context) {
    (void)stream;
    *context = current;
    return current == NULL ? INVALID_CONTEXT : SUCCESS;
}
