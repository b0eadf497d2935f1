/*
 * The few functions of the CUDA driver's library that one needs to see contexts: which is current, and
 * whether it is a device's primary one, which the runtime and NCCL use. Our own declarations.
 */
#include "machine_cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define API __attribute__((visibility("default")))
#define DRIVER_VERSION 13000

#define REQUIRE(condition, code)  \
    do {                          \
        if (!(condition)) {       \
            return code;          \
        }                         \
    } while (0)

/* Codes of the driver are the runtime's, where both have one, except these names. */
enum { CUDA_NOT_INITIALIZED = 3 };

static atomic_bool initialized;

static int enter(const char *function) {
    emu_fault fault = emu_enter(function);
    REQUIRE(fault.kind != EMU_FAULT_CODE, fault.code);
    REQUIRE(!emu_configured()->no_driver, CUDA_NO_DEVICE);
    return atomic_load(&initialized) ? 0 : CUDA_NOT_INITIALIZED;
}

#define ENTER()                     \
    do {                            \
        int entered_ = enter(__func__); \
        REQUIRE(entered_ == 0, entered_); \
    } while (0)

static bool is_device(int device) {
    return device >= 0 && device < emu_device_count();
}

static emu_context *context_of(const void *handle) {
    return emu_object_of(EMU_CONTEXT, handle);
}

API int cuInit(unsigned flags) {
    emu_fault fault = emu_enter(__func__);
    REQUIRE(fault.kind != EMU_FAULT_CODE, fault.code);
    REQUIRE(flags == 0, CUDA_INVALID_VALUE);
    REQUIRE(!emu_configured()->no_driver && emu_device_count() > 0, CUDA_NO_DEVICE);
    REQUIRE(!emu_forked(), CUDA_NOT_INITIALIZED);
    atomic_store(&initialized, true);
    return 0;
}

API int cuDriverGetVersion(int *version) {
    emu_fault fault = emu_enter(__func__);
    REQUIRE(fault.kind != EMU_FAULT_CODE, fault.code);
    REQUIRE(version != NULL, CUDA_INVALID_VALUE);
    *version = DRIVER_VERSION;
    return 0;
}

API int cuDeviceGetCount(int *count) {
    ENTER();
    REQUIRE(count != NULL, CUDA_INVALID_VALUE);
    *count = emu_device_count();
    return 0;
}

API int cuDeviceGet(int *device, int ordinal) {
    ENTER();
    REQUIRE(device != NULL, CUDA_INVALID_VALUE);
    REQUIRE(is_device(ordinal), CUDA_INVALID_DEVICE);
    *device = ordinal;
    return 0;
}

API int cuDeviceGetName(char *name, int length, int device) {
    ENTER();
    REQUIRE(name != NULL && length > 0, CUDA_INVALID_VALUE);
    REQUIRE(is_device(device), CUDA_INVALID_DEVICE);
    snprintf(name, (size_t)length, "nccl4j emulator device %d", device);
    return 0;
}

/* ---- contexts ------------------------------------------------------------------------------------ */

/* Each thread has a stack of contexts, whose top is current. */
#define STACK 64
static _Thread_local emu_context *stack[STACK];
static _Thread_local int depth;

API int cuCtxCreate_v2(void **handle, unsigned flags, int device) {
    (void)flags;
    ENTER();
    REQUIRE(handle != NULL, CUDA_INVALID_VALUE);
    REQUIRE(is_device(device), CUDA_INVALID_DEVICE);
    REQUIRE(depth < STACK, CUDA_OUT_OF_MEMORY);
    emu_context *context = emu_object_create(EMU_CONTEXT, sizeof *context);
    context->device = device;
    stack[depth++] = emu_context_current();
    emu_context_make_current(context);
    *handle = emu_object_handle(&context->object);
    return 0;
}

API int cuCtxCreate(void **handle, unsigned flags, int device) {
    return cuCtxCreate_v2(handle, flags, device);
}

/* CUDA 13's form, with a pointer to parameters that may be NULL. */
API int cuCtxCreate_v4(void **handle, const void *parameters, unsigned flags, int device) {
    (void)parameters;
    return cuCtxCreate_v2(handle, flags, device);
}

API int cuCtxDestroy_v2(void *handle) {
    ENTER();
    emu_context *context = context_of(handle);
    REQUIRE(context != NULL && !context->primary, CUDA_INVALID_CONTEXT);
    if (emu_context_current() == context) {
        emu_context_make_current(depth > 0 ? stack[--depth] : NULL);
    }
    /* Not used again: another thread may have it current. */
    emu_object_kill(&context->object);
    return 0;
}

API int cuCtxDestroy(void *handle) {
    return cuCtxDestroy_v2(handle);
}

API int cuCtxPushCurrent_v2(void *handle) {
    ENTER();
    emu_context *context = context_of(handle);
    REQUIRE(context != NULL && depth < STACK, CUDA_INVALID_CONTEXT);
    stack[depth++] = emu_context_current();
    emu_context_make_current(context);
    return 0;
}

API int cuCtxPopCurrent_v2(void **handle) {
    ENTER();
    emu_context *context = emu_context_current();
    REQUIRE(context != NULL, CUDA_INVALID_CONTEXT);
    if (handle != NULL) {
        *handle = emu_object_handle(&context->object);
    }
    emu_context_make_current(depth > 0 ? stack[--depth] : NULL);
    return 0;
}

API int cuCtxPushCurrent(void *handle) {
    return cuCtxPushCurrent_v2(handle);
}

API int cuCtxPopCurrent(void **handle) {
    return cuCtxPopCurrent_v2(handle);
}

API int cuCtxSetCurrent(void *handle) {
    ENTER();
    emu_context *context = handle == NULL ? NULL : context_of(handle);
    REQUIRE(handle == NULL || context != NULL, CUDA_INVALID_CONTEXT);
    emu_context_make_current(context);
    return 0;
}

API int cuCtxGetCurrent(void **handle) {
    ENTER();
    REQUIRE(handle != NULL, CUDA_INVALID_VALUE);
    emu_context *context = emu_context_current();
    *handle = context == NULL ? NULL : emu_object_handle(&context->object);
    return 0;
}

API int cuCtxGetDevice(int *device) {
    ENTER();
    REQUIRE(device != NULL, CUDA_INVALID_VALUE);
    emu_context *context = emu_context_current();
    REQUIRE(context != NULL, CUDA_INVALID_CONTEXT);
    *device = context->device;
    return 0;
}

API int cuCtxSynchronize(void) {
    ENTER();
    emu_context *context = emu_context_current();
    REQUIRE(context != NULL, CUDA_INVALID_CONTEXT);
    return emu_device_wait(context->device, -1);
}

API int cuDevicePrimaryCtxRetain(void **handle, int device) {
    ENTER();
    REQUIRE(handle != NULL, CUDA_INVALID_VALUE);
    REQUIRE(is_device(device), CUDA_INVALID_DEVICE);
    emu_context *context = emu_primary_context(device);
    atomic_fetch_add(&context->retained, 1);
    *handle = emu_object_handle(&context->object);
    return 0;
}

API int cuDevicePrimaryCtxRelease_v2(int device) {
    ENTER();
    REQUIRE(is_device(device), CUDA_INVALID_DEVICE);
    atomic_int *retained = &emu_primary_context(device)->retained;
    int count = atomic_load(retained);
    while (count > 0 && !atomic_compare_exchange_weak(retained, &count, count - 1)) {
    }
    return count > 0 ? 0 : CUDA_INVALID_CONTEXT;
}

API int cuDevicePrimaryCtxRelease(int device) {
    return cuDevicePrimaryCtxRelease_v2(device);
}

API int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) {
    ENTER();
    REQUIRE(flags != NULL && active != NULL, CUDA_INVALID_VALUE);
    REQUIRE(is_device(device), CUDA_INVALID_DEVICE);
    *flags = 0;
    *active = atomic_load(&emu_primary_context(device)->retained) > 0;
    return 0;
}

API int cuStreamGetCtx(void *stream, void **handle) {
    ENTER();
    REQUIRE(handle != NULL, CUDA_INVALID_VALUE);
    /* The default streams are the current context's. */
    emu_context *context = emu_context_current();
    if ((uintptr_t)stream > 2) {
        emu_stream *found = emu_stream_of(stream);
        REQUIRE(found != NULL, CUDA_INVALID_HANDLE);
        context = found->context;
    }
    REQUIRE(context != NULL, CUDA_INVALID_CONTEXT);
    *handle = emu_object_handle(&context->object);
    return 0;
}

/* ---- pointers and errors ------------------------------------------------------------------------- */

API int cuPointerGetAttribute(void *value, int attribute, uint64_t address) {
    ENTER();
    REQUIRE(value != NULL, CUDA_INVALID_VALUE);
    emu_range range;
    emu_find(address, &range);
    REQUIRE(range.kind == EMU_DEVICE || range.kind == EMU_PINNED, CUDA_INVALID_VALUE);
    unsigned type = range.kind == EMU_DEVICE ? 2 : 1;
    uint64_t size = range.size;
    void *pointer = (void *)(uintptr_t)address;
    bool synchronous = false;
    switch (attribute) {
        case 1: { /* context */
            void *context = emu_object_handle(&emu_primary_context(range.device)->object);
            memcpy(value, &context, sizeof context);
            return 0;
        }
        case 2: /* memory type */
            memcpy(value, &type, sizeof type);
            return 0;
        case 3: /* device pointer */
            memcpy(value, &pointer, sizeof pointer);
            return 0;
        case 4: /* host pointer */
            REQUIRE(range.kind == EMU_PINNED, CUDA_INVALID_VALUE);
            memcpy(value, &pointer, sizeof pointer);
            return 0;
        case 6: /* whether synchronous copies are forced */
        case 8: /* managed */
            memcpy(value, &synchronous, sizeof synchronous);
            return 0;
        case 9: /* device ordinal */
            memcpy(value, &range.device, sizeof range.device);
            return 0;
        case 11: /* start of the allocation */
            memcpy(value, &range.base, sizeof range.base);
            return 0;
        case 12: /* its size */
            memcpy(value, &size, sizeof size);
            return 0;
        default:
            return CUDA_NOT_SUPPORTED;
    }
}

/* The driver's names are the runtime's in capitals; the most used, which a message shows. */
API int cuGetErrorName(int code, const char **name) {
    static const struct {
        int code;
        const char *name;
    } names[] = {
        {0, "CUDA_SUCCESS"}, {1, "CUDA_ERROR_INVALID_VALUE"}, {2, "CUDA_ERROR_OUT_OF_MEMORY"},
        {3, "CUDA_ERROR_NOT_INITIALIZED"}, {4, "CUDA_ERROR_DEINITIALIZED"}, {34, "CUDA_ERROR_STUB_LIBRARY"},
        {100, "CUDA_ERROR_NO_DEVICE"}, {101, "CUDA_ERROR_INVALID_DEVICE"}, {201, "CUDA_ERROR_INVALID_CONTEXT"},
        {400, "CUDA_ERROR_INVALID_HANDLE"}, {600, "CUDA_ERROR_NOT_READY"}, {700, "CUDA_ERROR_ILLEGAL_ADDRESS"},
        {709, "CUDA_ERROR_CONTEXT_IS_DESTROYED"}, {719, "CUDA_ERROR_LAUNCH_FAILED"},
        {800, "CUDA_ERROR_NOT_PERMITTED"}, {801, "CUDA_ERROR_NOT_SUPPORTED"}, {999, "CUDA_ERROR_UNKNOWN"},
    };
    emu_enter(__func__);
    REQUIRE(name != NULL, CUDA_INVALID_VALUE);
    *name = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (names[i].code == code) {
            *name = names[i].name;
            return 0;
        }
    }
    return CUDA_INVALID_VALUE;
}

API int cuGetErrorString(int code, const char **text) {
    emu_enter(__func__);
    REQUIRE(text != NULL, CUDA_INVALID_VALUE);
    *text = emu_error_text(code);
    return 0;
}
