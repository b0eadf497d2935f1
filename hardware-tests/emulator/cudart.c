/*
 * The CUDA runtime's functions on the emulated machine: argument checks, codes, order. Written from the
 * public documentation of the runtime; the declarations are our own. EMU_CUDART_VERSION says which
 * release it stands in for.
 */
#define _GNU_SOURCE
#include "machine_cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifndef EMU_CUDART_VERSION
#define EMU_CUDART_VERSION 13000
#endif
#define DRIVER_VERSION 13000

/* All functions answer an int with a code; handles are addresses. What is exported is said at link time. */
#define API __attribute__((visibility("default")))

/* ---- the frame of every call --------------------------------------------------------------------- */

static _Thread_local int last_error;
static _Thread_local int ordered_fault; /* by a test: the call succeeds, then the device fails */

static int fail(int code) {
    last_error = code;
    return code;
}

static int finish(int code) {
    if (ordered_fault != 0) {
        emu_set_device_fault(emu_current_device(), ordered_fault, NULL);
        ordered_fault = 0;
    }
    return code == 0 ? 0 : fail(code);
}

/* What a test has ordered. */
static int enter_anywhere(const char *function) {
    emu_fault fault = emu_enter(function);
    switch (fault.kind) {
        case EMU_FAULT_CODE:
            return fault.code;
        case EMU_FAULT_HANG: {
            unsigned generation = emu_generation();
            struct timespec rest = {0, 1000000};
            while (emu_generation() == generation) {
                nanosleep(&rest, NULL);
            }
            return 0;
        }
        case EMU_FAULT_ASYNC:
            ordered_fault = fault.code;
            return 0;
        default:
            return 0;
    }
}

/* And whether there are devices. */
static int enter_driver(const char *function) {
    int code = enter_anywhere(function);
    if (code != 0) {
        return code;
    }
    const emu_configuration *configured = emu_configured();
    return emu_forked()          ? CUDA_INITIALIZATION
            : configured->no_driver ? CUDA_INSUFFICIENT_DRIVER
            : configured->devices == 0 ? CUDA_NO_DEVICE
                                       : 0;
}

/* And has the thread a context, which is in order. */
static int enter_context(const char *function) {
    int code = enter_driver(function);
    if (code != 0) {
        return code;
    }
    if (emu_context_current() == NULL) {
        emu_set_current_device(0);
    }
    return emu_device_fault(emu_current_device());
}

/*
 * For calls that release something: whether the code of enter_context keeps them from it. The device's fault
 * does not: its context is gone and what it held with it, so that the caller is done with it, and is told.
 */
static bool refused(int code) {
    return code != 0 && (emu_context_current() == NULL || code != emu_device_fault(emu_current_device()));
}

#define ENTER(how)                          \
    do {                                    \
        int entered_ = how(__func__);       \
        if (entered_ != 0) {                \
            return fail(entered_);          \
        }                                   \
    } while (0)

#define REQUIRE(condition, code)            \
    do {                                    \
        if (!(condition)) {                 \
            return finish(code);            \
        }                                   \
    } while (0)

static bool is_device(int device) {
    return device >= 0 && device < emu_device_count();
}

/* A synchronising call that never returns is what misuse of CUDA looks like; here it returns after a while. */
static void synchronise(const char *function, int device) {
    if (!emu_device_idle(device) && emu_device_wait(device, emu_configured()->deadlock_ns) == -1) {
        emu_misuse("%s: synchronises with device %d, whose work has not ended in %lld ms (a deadlock, unless others end it)", function,
                device, (long long)(emu_configured()->deadlock_ns / 1000000));
    }
}

/* ---- errors and versions ------------------------------------------------------------------------- */

API const char *cudaGetErrorName(int code) {
    emu_enter(__func__);
    return emu_error_name(code);
}

API const char *cudaGetErrorString(int code) {
    emu_enter(__func__);
    return emu_error_text(code);
}

static int current_fault(void) {
    return emu_context_current() == NULL ? 0 : emu_device_fault(emu_current_device());
}

API int cudaGetLastError(void) {
    int ordered = enter_anywhere(__func__);
    int code = ordered != 0 ? ordered : current_fault();
    if (code == 0) {
        code = last_error;
    }
    last_error = 0;
    return code;
}

API int cudaPeekAtLastError(void) {
    int ordered = enter_anywhere(__func__);
    int code = ordered != 0 ? ordered : current_fault();
    return code != 0 ? code : last_error;
}

API int cudaRuntimeGetVersion(int *version) {
    ENTER(enter_anywhere);
    REQUIRE(version != NULL, CUDA_INVALID_VALUE);
    *version = EMU_CUDART_VERSION;
    return finish(0);
}

API int cudaDriverGetVersion(int *version) {
    ENTER(enter_anywhere);
    REQUIRE(version != NULL, CUDA_INVALID_VALUE);
    *version = emu_configured()->no_driver ? 0 : DRIVER_VERSION;
    return finish(0);
}

/* ---- devices ------------------------------------------------------------------------------------- */

API int cudaGetDeviceCount(int *count) {
    if (count != NULL) {
        *count = 0;
    }
    ENTER(enter_driver);
    REQUIRE(count != NULL, CUDA_INVALID_VALUE);
    *count = emu_device_count();
    return finish(0);
}

API int cudaGetDevice(int *device) {
    ENTER(enter_driver);
    REQUIRE(device != NULL, CUDA_INVALID_VALUE);
    *device = emu_current_device();
    return finish(0);
}

API int cudaSetDevice(int device) {
    ENTER(enter_driver);
    REQUIRE(is_device(device), CUDA_INVALID_DEVICE);
    emu_set_current_device(device);
    return finish(emu_device_fault(device));
}

API int cudaInitDevice(int device, unsigned device_flags, unsigned flags) {
    ENTER(enter_driver);
    REQUIRE(is_device(device), CUDA_INVALID_DEVICE);
    REQUIRE(flags <= 1 && device_flags <= 0x3F, CUDA_INVALID_VALUE);
    int none = 0;
    atomic_compare_exchange_strong(&emu_primary_context(device)->retained, &none, 1);
    return finish(0);
}

API int cudaDeviceSynchronize(void) {
    ENTER(enter_context);
    REQUIRE(emu_capture_forbids() == 0, CUDA_CAPTURE_UNSUPPORTED);
    return finish(emu_device_wait(emu_current_device(), -1));
}

API int cudaDeviceReset(void) {
    ENTER(enter_driver);
    int device = emu_current_device();
    emu_device_reset(device);
    atomic_store(&emu_primary_context(device)->retained, 0);
    last_error = 0;
    return finish(0);
}

static _Atomic(unsigned) device_flags;

API int cudaSetDeviceFlags(unsigned flags) {
    ENTER(enter_driver);
    REQUIRE(flags <= 0x3F && (flags & 7) != 3 && (flags & 7) < 5, CUDA_INVALID_VALUE);
    atomic_store(&device_flags, flags);
    return finish(0);
}

API int cudaGetDeviceFlags(unsigned *flags) {
    ENTER(enter_driver);
    REQUIRE(flags != NULL, CUDA_INVALID_VALUE);
    *flags = atomic_load(&device_flags);
    return finish(0);
}

#define PCI_DOMAIN 0
#define MULTIPROCESSORS 132

static int pci_bus(int device) {
    return 0xE0 + device;
}

API int cudaDeviceGetAttribute(int *value, int attribute, int device) {
    ENTER(enter_driver);
    REQUIRE(value != NULL, CUDA_INVALID_VALUE);
    REQUIRE(is_device(device), CUDA_INVALID_DEVICE);
    REQUIRE(attribute > 0 && attribute <= 150, CUDA_INVALID_VALUE);
    static const struct {
        int attribute, value;
    } fixed[] = {
        {1, 1024}, {2, 1024}, {3, 1024}, {4, 64}, {5, 2147483647}, {6, 65535}, {7, 65535}, /* threads, blocks, grid */
        {8, 49152}, {9, 65536}, {10, 32}, {11, 2147483647}, {12, 65536}, {14, 512},      /* memory, warp */
        {15, 1}, {16, MULTIPROCESSORS}, {19, 1}, {31, 1}, {34, 0}, {39, 2048}, {40, 3}, {41, 1},
        {78, 1}, {81, 233472}, {82, 65536}, {83, 0}, {88, 0}, {89, 0}, {90, 1}, {91, 1}, {95, 1}, {97, 232448},
        {99, 1}, {115, 1}, {119, 0}, {50, PCI_DOMAIN},
    };
    *value = attribute == 33 ? pci_bus(device)
            : attribute == 75 ? emu_configured()->capability_major
            : attribute == 76 ? emu_configured()->capability_minor
                              : 0;
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) {
        if (fixed[i].attribute == attribute) {
            *value = fixed[i].value;
        }
    }
    return finish(0);
}

API int cudaDeviceGetPCIBusId(char *id, int length, int device) {
    ENTER(enter_driver);
    REQUIRE(id != NULL && length >= 13, CUDA_INVALID_VALUE);
    REQUIRE(is_device(device), CUDA_INVALID_DEVICE);
    snprintf(id, (size_t)length, "%04X:%02X:00.0", PCI_DOMAIN, (unsigned)pci_bus(device) & 0xFF);
    return finish(0);
}

API int cudaDeviceGetByPCIBusId(int *device, const char *id) {
    ENTER(enter_driver);
    REQUIRE(device != NULL && id != NULL, CUDA_INVALID_VALUE);
    unsigned domain = 0, bus, slot;
    REQUIRE(sscanf(id, "%x:%x:%x", &domain, &bus, &slot) == 3 || sscanf(id, "%x:%x", &bus, &slot) == 2, CUDA_INVALID_VALUE);
    REQUIRE(domain == PCI_DOMAIN && slot == 0 && is_device((int)bus - pci_bus(0)), CUDA_INVALID_DEVICE);
    *device = (int)bus - pci_bus(0);
    return finish(0);
}

API int cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    ENTER(enter_context);
    if (least != NULL) {
        *least = 0;
    }
    if (greatest != NULL) {
        *greatest = -5;
    }
    return finish(0);
}

/* Only what a program asks of it; the layout of that release, the rest stays as it is. */
API int cudaGetDeviceProperties(void *properties, int device) {
    ENTER(enter_driver);
    REQUIRE(properties != NULL, CUDA_INVALID_VALUE);
    REQUIRE(is_device(device), CUDA_INVALID_DEVICE);
    uint8_t *at = properties;
    memset(at, 0, EMU_CUDART_VERSION >= 13000 ? 1008 : 392);
    snprintf((char *)at, 256, "nccl4j emulator device %d", device);
    at[256] = (uint8_t)(device + 1); /* uuid */
    size_t memory = emu_configured()->device_memory;
    memcpy(at + 288, &memory, sizeof memory);
    int warp = 32, processors = MULTIPROCESSORS, bus = pci_bus(device);
    memcpy(at + 308, &warp, sizeof warp);
    memcpy(at + 360, &emu_configured()->capability_major, sizeof(int));
    memcpy(at + 364, &emu_configured()->capability_minor, sizeof(int));
    memcpy(at + (EMU_CUDART_VERSION >= 13000 ? 384 : 388), &processors, sizeof processors);
    if (EMU_CUDART_VERSION >= 13000) {
        memcpy(at + 568, &bus, sizeof bus);
    }
    return finish(0);
}

/* ---- peer access --------------------------------------------------------------------------------- */

static _Atomic(uint64_t) peers[EMU_DEVICES_AT_MOST];

API int cudaDeviceCanAccessPeer(int *can, int device, int peer) {
    ENTER(enter_driver);
    REQUIRE(can != NULL, CUDA_INVALID_VALUE);
    REQUIRE(is_device(device) && is_device(peer), CUDA_INVALID_DEVICE);
    *can = device != peer;
    return finish(0);
}

API int cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
    ENTER(enter_context);
    REQUIRE(flags == 0, CUDA_INVALID_VALUE);
    REQUIRE(is_device(peer) && peer != emu_current_device(), CUDA_INVALID_DEVICE);
    synchronise(__func__, emu_current_device());
    uint64_t bit = (uint64_t)1 << peer;
    return finish((atomic_fetch_or(&peers[emu_current_device()], bit) & bit) != 0 ? CUDA_PEER_ALREADY_ENABLED : 0);
}

API int cudaDeviceDisablePeerAccess(int peer) {
    ENTER(enter_context);
    REQUIRE(is_device(peer) && peer != emu_current_device(), CUDA_INVALID_DEVICE);
    synchronise(__func__, emu_current_device());
    uint64_t bit = (uint64_t)1 << peer;
    return finish((atomic_fetch_and(&peers[emu_current_device()], ~bit) & bit) == 0 ? CUDA_PEER_NOT_ENABLED : 0);
}

API int cudaDeviceGetP2PAttribute(int *value, int attribute, int source, int destination) {
    ENTER(enter_driver);
    REQUIRE(value != NULL && attribute >= 1 && attribute <= 4, CUDA_INVALID_VALUE);
    REQUIRE(is_device(source) && is_device(destination) && source != destination, CUDA_INVALID_DEVICE);
    *value = attribute == 2 || attribute == 3;
    return finish(0);
}

/* ---- streams ------------------------------------------------------------------------------------- */

/* A stream that is asked about. Answers 400 for one that is none, or the fault of its device. */
static int find_stream(void *handle, emu_stream **stream) {
    *stream = emu_stream_of(handle);
    return *stream == NULL ? CUDA_INVALID_HANDLE : emu_device_fault((*stream)->device);
}

/* A stream that gets work. */
static int work_stream(const char *function, void *handle, emu_stream **stream) {
    int code = find_stream(handle, stream);
    if (*stream != NULL && atomic_load(&(*stream)->launches) != 0) {
        emu_misuse("%s: the stream 0x%llx has an NCCL launch in progress; wait until ncclCommGetAsyncError says it is over", function,
                (unsigned long long)(uintptr_t)handle);
    }
    if (code == 0 && (uintptr_t)handle <= 1) {
        code = emu_capture_forbids_legacy((*stream)->device);
    }
    return code;
}

/* Puts work on a stream, or into its capture; `ticket` is 0 then. */
static int put(emu_stream *stream, const emu_operation *operation, uint64_t *ticket) {
    *ticket = 0;
    if (emu_stream_capturing(stream)) {
        return emu_capture_operation(stream, operation);
    }
    *ticket = emu_submit(stream, operation);
    return 0;
}

static int create_stream(void **stream, unsigned flags, int priority) {
    REQUIRE(stream != NULL && flags <= 1, CUDA_INVALID_VALUE);
    priority = priority > 0 ? 0 : priority < -5 ? -5 : priority;
    emu_stream *created = emu_stream_create(emu_current_device(), flags, priority);
    emu_count("streams", 1);
    *stream = emu_object_handle(&created->object);
    return finish(0);
}

API int cudaStreamCreate(void **stream) {
    ENTER(enter_context);
    return create_stream(stream, 0, 0);
}

API int cudaStreamCreateWithFlags(void **stream, unsigned flags) {
    ENTER(enter_context);
    return create_stream(stream, flags, 0);
}

API int cudaStreamCreateWithPriority(void **stream, unsigned flags, int priority) {
    ENTER(enter_context);
    return create_stream(stream, flags, priority);
}

API int cudaStreamDestroy(void *handle) {
    int code = enter_context(__func__);
    emu_stream *stream = (uintptr_t)handle <= 2 ? NULL : emu_stream_of(handle);
    if (code == 0 && stream == NULL) {
        code = CUDA_INVALID_HANDLE;
        emu_misuse("%s: 0x%llx is no stream, or is destroyed already", __func__, (unsigned long long)(uintptr_t)handle);
    }
    if (stream == NULL || refused(code)) {
        return fail(code);
    }
    emu_stream *checked;
    int of_stream = work_stream(__func__, handle, &checked);
    if (emu_stream_capturing(stream)) {
        return fail(emu_capture_spoil(stream, CUDA_CAPTURE_UNSUPPORTED));
    }
    if (emu_object_kill(&stream->object)) {
        emu_count("streams", -1);
        emu_stream_destroy(stream);
    }
    return finish(code != 0 ? code : of_stream);
}

/* A call that a stream does not allow while it is captured. */
static int not_capturing(emu_stream *stream) {
    return emu_stream_capturing(stream) ? emu_capture_spoil(stream, CUDA_CAPTURE_UNSUPPORTED) : 0;
}

API int cudaStreamSynchronize(void *handle) {
    ENTER(enter_context);
    emu_stream *stream;
    int code = find_stream(handle, &stream);
    if (code == 0 && (uintptr_t)handle <= 1) {
        code = emu_capture_forbids_legacy(stream->device);
    }
    code = code != 0 ? code : not_capturing(stream);
    REQUIRE(code == 0, code);
    uint64_t ticket = atomic_load(&stream->enqueued);
    if ((uintptr_t)handle <= 1 && !emu_stream_settled(stream)) {
        emu_operation nothing = {.kind = EMU_OP_NOTHING, .function = __func__}; /* behind all that it waits for */
        ticket = emu_submit(stream, &nothing);
    }
    return finish(emu_stream_wait(stream, ticket, -1));
}

API int cudaStreamQuery(void *handle) {
    ENTER(enter_context);
    emu_stream *stream;
    int code = find_stream(handle, &stream);
    if (code == 0 && (uintptr_t)handle <= 1) {
        code = emu_capture_forbids_legacy(stream->device);
    }
    code = code != 0 ? code : not_capturing(stream);
    code = code != 0 ? code : emu_capture_forbids();
    REQUIRE(code == 0, code);
    bool settled = emu_stream_settled(stream);
    int fault = emu_device_fault(stream->device); /* of the work that was just seen done */
    return finish(fault != 0 ? fault : settled ? 0 : CUDA_NOT_READY);
}

API int cudaStreamGetFlags(void *handle, unsigned *flags) {
    ENTER(enter_context);
    emu_stream *stream;
    int code = find_stream(handle, &stream);
    REQUIRE(code == 0, code);
    REQUIRE(flags != NULL, CUDA_INVALID_VALUE);
    *flags = stream->flags;
    return finish(0);
}

API int cudaStreamGetPriority(void *handle, int *priority) {
    ENTER(enter_context);
    emu_stream *stream;
    int code = find_stream(handle, &stream);
    REQUIRE(code == 0, code);
    REQUIRE(priority != NULL, CUDA_INVALID_VALUE);
    *priority = stream->priority;
    return finish(0);
}

API int cudaStreamGetId(void *handle, unsigned long long *id) {
    ENTER(enter_context);
    emu_stream *stream;
    int code = find_stream(handle, &stream);
    REQUIRE(code == 0, code);
    REQUIRE(id != NULL, CUDA_INVALID_VALUE);
    *id = stream->id;
    return finish(0);
}

API int cudaStreamGetDevice(void *handle, int *device) {
    ENTER(enter_context);
    emu_stream *stream;
    int code = find_stream(handle, &stream);
    REQUIRE(code == 0, code);
    REQUIRE(device != NULL, CUDA_INVALID_VALUE);
    *device = stream->device;
    return finish(0);
}

API int cudaLaunchHostFunc(void *handle, void (*call)(void *), void *argument) {
    ENTER(enter_context);
    REQUIRE(call != NULL, CUDA_INVALID_VALUE);
    emu_stream *stream;
    int code = work_stream(__func__, handle, &stream);
    REQUIRE(code == 0, code);
    emu_operation operation = {.kind = EMU_OP_CALL, .function = __func__, .call = call, .argument = argument};
    uint64_t ticket;
    return finish(put(stream, &operation, &ticket));
}

API int cudaStreamAddCallback(void *handle, void (*callback)(void *, int, void *), void *argument, unsigned flags) {
    ENTER(enter_context);
    REQUIRE(callback != NULL && flags == 0, CUDA_INVALID_VALUE);
    emu_stream *stream;
    int code = work_stream(__func__, handle, &stream);
    code = code != 0 ? code : not_capturing(stream);
    REQUIRE(code == 0, code);
    emu_operation operation = {.kind = EMU_OP_CALL, .function = __func__, .callback = callback, .argument = argument};
    uint64_t ticket;
    return finish(put(stream, &operation, &ticket));
}

/* ---- events -------------------------------------------------------------------------------------- */

static emu_event *event_of(const void *handle) {
    return emu_object_of(EMU_EVENT, handle);
}

static int create_event(void **event, unsigned flags) {
    REQUIRE(event != NULL && flags <= 7, CUDA_INVALID_VALUE);
    REQUIRE((flags & 4) == 0, CUDA_NOT_SUPPORTED); /* interprocess */
    emu_event *created = emu_event_create(emu_current_device(), flags);
    emu_count("events", 1);
    *event = emu_object_handle(&created->object);
    return finish(0);
}

API int cudaEventCreate(void **event) {
    ENTER(enter_context);
    return create_event(event, 0);
}

API int cudaEventCreateWithFlags(void **event, unsigned flags) {
    ENTER(enter_context);
    return create_event(event, flags);
}

API int cudaEventDestroy(void *handle) {
    int code = enter_context(__func__);
    emu_event *event = event_of(handle);
    if (event == NULL && code == 0) {
        code = CUDA_INVALID_HANDLE;
        emu_misuse("%s: 0x%llx is no event, or is destroyed already", __func__, (unsigned long long)(uintptr_t)handle);
    }
    if (event == NULL || refused(code)) {
        return fail(code);
    }
    if (emu_object_kill(&event->object)) {
        emu_count("events", -1);
        emu_event_retire(event);
    }
    return finish(code);
}

static int record(const char *function, void *handle, void *on, unsigned flags) {
    emu_event *event = event_of(handle);
    REQUIRE(event != NULL, CUDA_INVALID_HANDLE);
    REQUIRE(flags <= 1, CUDA_INVALID_VALUE);
    emu_stream *stream;
    int code = work_stream(function, on, &stream);
    REQUIRE(code == 0, code);
    REQUIRE(stream->device == event->device, CUDA_INVALID_HANDLE);
    if (emu_stream_capturing(stream)) {
        return finish(flags == 1 ? CUDA_NOT_SUPPORTED : emu_capture_record(stream, event));
    }
    emu_mark *mark = emu_mark_create(stream->device);
    pthread_mutex_lock(&event->lock);
    emu_mark *before = event->mark;
    event->mark = emu_mark_keep(mark);
    atomic_store(&event->captured_in, 0);
    pthread_mutex_unlock(&event->lock);
    if (before != NULL) {
        emu_mark_drop(before);
    }
    emu_operation operation = {.kind = EMU_OP_RECORD, .function = function, .mark = mark};
    emu_submit(stream, &operation);
    return finish(0);
}

API int cudaEventRecord(void *event, void *stream) {
    ENTER(enter_context);
    return record(__func__, event, stream, 0);
}

API int cudaEventRecordWithFlags(void *event, void *stream, unsigned flags) {
    ENTER(enter_context);
    return record(__func__, event, stream, flags);
}

/* The mark of an event as it is now, to be dropped; NULL if it has none. */
static emu_mark *mark_of(emu_event *event) {
    pthread_mutex_lock(&event->lock);
    emu_mark *mark = event->mark == NULL ? NULL : emu_mark_keep(event->mark);
    pthread_mutex_unlock(&event->lock);
    return mark;
}

API int cudaStreamWaitEvent(void *on, void *handle, unsigned flags) {
    ENTER(enter_context);
    emu_event *event = event_of(handle);
    REQUIRE(event != NULL, CUDA_INVALID_HANDLE);
    REQUIRE(flags <= 1, CUDA_INVALID_VALUE);
    emu_stream *stream;
    int code = work_stream(__func__, on, &stream);
    REQUIRE(code == 0, code);
    if (emu_stream_capturing(stream) || atomic_load(&event->captured_in) != 0) {
        bool captured;
        code = flags == 1 ? CUDA_NOT_SUPPORTED : emu_capture_await(stream, event, &captured);
        REQUIRE(code == 0, code);
        if (captured) {
            return finish(0);
        }
    }
    emu_mark *mark = mark_of(event);
    if (mark == NULL) {
        return finish(0);
    }
    emu_operation operation = {.kind = EMU_OP_AWAIT, .function = __func__, .mark = mark};
    emu_submit(stream, &operation);
    return finish(0);
}

API int cudaEventQuery(void *handle) {
    ENTER(enter_context);
    emu_event *event = event_of(handle);
    REQUIRE(event != NULL, CUDA_INVALID_HANDLE);
    REQUIRE(atomic_load(&event->captured_in) == 0, CUDA_CAPTURED_EVENT);
    int forbidden = emu_capture_forbids();
    REQUIRE(forbidden == 0, forbidden);
    emu_mark *mark = mark_of(event);
    bool reached = mark == NULL || atomic_load(&mark->reached_ns) != 0;
    if (mark != NULL) {
        emu_mark_drop(mark);
    }
    int fault = emu_device_fault(event->device);
    return finish(fault != 0 ? fault : reached ? 0 : CUDA_NOT_READY);
}

API int cudaEventSynchronize(void *handle) {
    ENTER(enter_context);
    emu_event *event = event_of(handle);
    REQUIRE(event != NULL, CUDA_INVALID_HANDLE);
    REQUIRE(atomic_load(&event->captured_in) == 0, CUDA_CAPTURED_EVENT);
    emu_mark *mark = mark_of(event);
    if (mark == NULL) {
        return finish(emu_device_fault(event->device));
    }
    int code = emu_mark_wait(mark, -1);
    emu_mark_drop(mark);
    return finish(code);
}

static int elapsed(float *milliseconds, void *from, void *to) {
    REQUIRE(milliseconds != NULL, CUDA_INVALID_VALUE);
    emu_event *start = event_of(from), *end = event_of(to);
    REQUIRE(start != NULL && end != NULL, CUDA_INVALID_HANDLE);
    REQUIRE(((start->flags | end->flags) & 2) == 0 && start->device == end->device, CUDA_INVALID_HANDLE);
    int code = emu_device_fault(start->device);
    REQUIRE(code == 0, code);
    REQUIRE(atomic_load(&start->captured_in) == 0 && atomic_load(&end->captured_in) == 0, CUDA_CAPTURED_EVENT);
    emu_mark *first = mark_of(start), *second = mark_of(end);
    if (first == NULL || second == NULL) {
        code = CUDA_INVALID_HANDLE;
    } else {
        int64_t began = atomic_load(&first->reached_ns), ended = atomic_load(&second->reached_ns);
        code = began == 0 || ended == 0 ? CUDA_NOT_READY : 0;
        if (code == 0) {
            *milliseconds = (float)((double)(ended - began) / 1e6);
        }
    }
    if (first != NULL) {
        emu_mark_drop(first);
    }
    if (second != NULL) {
        emu_mark_drop(second);
    }
    return finish(code);
}

API int cudaEventElapsedTime(float *milliseconds, void *start, void *end) {
    ENTER(enter_context);
    return elapsed(milliseconds, start, end);
}

/* ---- memory -------------------------------------------------------------------------------------- */

/* Whether a call that may synchronise is allowed now; if so it does. */
static int allocation_begins(const char *function, int device) {
    int code = emu_capture_forbids();
    if (code == 0 && emu_configured()->allocation_waits) {
        synchronise(function, device);
        code = emu_device_fault(device);
    }
    return code;
}

API int cudaMalloc(void **memory, size_t size) {
    ENTER(enter_context);
    REQUIRE(memory != NULL, CUDA_INVALID_VALUE);
    int code = allocation_begins(__func__, emu_current_device());
    REQUIRE(code == 0, code);
    *memory = NULL;
    if (size == 0) {
        return finish(0);
    }
    uint64_t address;
    code = emu_device_allocate(emu_current_device(), size, EMU_LIVE, NULL, &address);
    if (code == 0) {
        *memory = (void *)(uintptr_t)address;
    }
    return finish(code);
}

API int cudaFree(void *memory) {
    int code = enter_context(__func__);
    if (memory == NULL || refused(code)) {
        return code == 0 ? finish(0) : fail(code);
    }
    emu_allocation *allocation = emu_device_allocation((uint64_t)(uintptr_t)memory);
    int life = allocation == NULL ? EMU_DEAD : atomic_load(&allocation->life);
    if (allocation == NULL || life == EMU_DYING || life == EMU_DEAD) {
        emu_misuse("cudaFree: 0x%llx is not allocated, or is freed already", (unsigned long long)(uintptr_t)memory);
        return fail(code != 0 ? code : CUDA_INVALID_VALUE);
    }
    int device = atomic_load(&allocation->device);
    if (code == 0) {
        code = emu_capture_forbids();
        REQUIRE(code == 0, code);
        synchronise(__func__, device);
        code = emu_device_fault(device);
    }
    if (!atomic_compare_exchange_strong(&allocation->life, &life, EMU_DYING)) {
        emu_misuse("cudaFree: 0x%llx is freed by two threads", (unsigned long long)(uintptr_t)memory);
        return fail(CUDA_INVALID_VALUE);
    }
    emu_device_release(allocation);
    return finish(code);
}

API int cudaMallocManaged(void **memory, size_t size, unsigned flags) {
    (void)size;
    (void)flags;
    ENTER(enter_context);
    REQUIRE(memory != NULL, CUDA_INVALID_VALUE);
    return finish(CUDA_NOT_SUPPORTED);
}

API int cudaMemPrefetchAsync(void) {
    ENTER(enter_context);
    return finish(CUDA_NOT_SUPPORTED);
}

API int cudaMemAdvise(void) {
    ENTER(enter_context);
    return finish(CUDA_NOT_SUPPORTED);
}

API int cudaMemGetInfo(size_t *available, size_t *total) {
    ENTER(enter_context);
    REQUIRE(available != NULL && total != NULL, CUDA_INVALID_VALUE);
    uint64_t used = emu_device_used(emu_current_device());
    *total = emu_configured()->device_memory;
    *available = *total > used ? *total - used : 0;
    return finish(0);
}

static int allocate_host(const char *function, void **memory, size_t size, unsigned flags) {
    REQUIRE(memory != NULL && flags <= 7, CUDA_INVALID_VALUE);
    int code = allocation_begins(function, emu_current_device());
    REQUIRE(code == 0, code);
    *memory = NULL;
    return finish(size == 0 ? 0 : emu_host_allocate(emu_current_device(), size, flags, memory));
}

API int cudaMallocHost(void **memory, size_t size) {
    ENTER(enter_context);
    return allocate_host(__func__, memory, size, 0);
}

API int cudaHostAlloc(void **memory, size_t size, unsigned flags) {
    ENTER(enter_context);
    return allocate_host(__func__, memory, size, flags);
}

API int cudaFreeHost(void *memory) {
    int code = enter_context(__func__);
    if (memory == NULL || refused(code)) {
        return code == 0 ? finish(0) : fail(code);
    }
    unsigned flags;
    bool registered;
    if (!emu_host_flags(memory, &flags, &registered) || registered) {
        emu_misuse("cudaFreeHost: 0x%llx is not from cudaHostAlloc, or is freed already", (unsigned long long)(uintptr_t)memory);
        return fail(code != 0 ? code : CUDA_INVALID_VALUE);
    }
    if (code == 0) {
        code = emu_capture_forbids();
        REQUIRE(code == 0, code);
        emu_range range;
        emu_find((uint64_t)(uintptr_t)memory, &range);
        synchronise(__func__, range.device);
    }
    int freed = emu_host_free(memory);
    return finish(code != 0 ? code : freed);
}

API int cudaHostRegister(void *memory, size_t size, unsigned flags) {
    ENTER(enter_context);
    REQUIRE(memory != NULL && size != 0 && flags <= 15, CUDA_INVALID_VALUE);
    REQUIRE((flags & 4) == 0, CUDA_NOT_SUPPORTED);
    int code = emu_capture_forbids();
    return finish(code != 0 ? code : emu_host_register(emu_current_device(), memory, size, flags));
}

API int cudaHostUnregister(void *memory) {
    int code = enter_context(__func__);
    if (memory == NULL || refused(code)) {
        return fail(code == 0 ? CUDA_INVALID_VALUE : code);
    }
    if (code == 0) {
        code = emu_capture_forbids();
        REQUIRE(code == 0, code);
        synchronise(__func__, emu_current_device());
    }
    int unregistered = emu_host_unregister(memory);
    return finish(code != 0 ? code : unregistered);
}

API int cudaHostGetDevicePointer(void **device_pointer, void *memory, unsigned flags) {
    ENTER(enter_context);
    REQUIRE(device_pointer != NULL && flags == 0, CUDA_INVALID_VALUE);
    unsigned ignored;
    bool registered;
    *device_pointer = NULL;
    REQUIRE(emu_host_flags(memory, &ignored, &registered), CUDA_INVALID_VALUE);
    *device_pointer = memory; /* one address space for all */
    return finish(0);
}

API int cudaHostGetFlags(unsigned *flags, void *memory) {
    ENTER(enter_context);
    REQUIRE(flags != NULL, CUDA_INVALID_VALUE);
    bool registered;
    REQUIRE(emu_host_flags(memory, flags, &registered), CUDA_INVALID_VALUE);
    *flags |= 2; /* mapped, as everywhere with one address space */
    return finish(0);
}

typedef struct {
    int type; /* 0 unregistered, 1 host, 2 device */
    int device;
    void *device_pointer;
    void *host_pointer;
} pointer_attributes; /* a longer one since CUDA 13, whose rest is reserved */

API int cudaPointerGetAttributes(pointer_attributes *attributes, const void *memory) {
    ENTER(enter_context);
    REQUIRE(attributes != NULL, CUDA_INVALID_VALUE);
    emu_range range;
    emu_find((uint64_t)(uintptr_t)memory, &range);
    void *address = (void *)(uintptr_t)memory;
    *attributes = range.kind == EMU_DEVICE ? (pointer_attributes){2, range.device, address, NULL}
            : range.kind == EMU_PINNED     ? (pointer_attributes){1, range.device, address, address}
                                           : (pointer_attributes){0, -2, NULL, address};
    return finish(0);
}

/* ---- copies -------------------------------------------------------------------------------------- */

static bool on_device(const emu_range *range) {
    return range->kind == EMU_DEVICE || range->kind == EMU_FREED;
}

/* Whether [address, + size) stays inside what lies there; what is freed is found out when the copy runs. */
static bool inside(const emu_range *range, uint64_t address, uint64_t size) {
    return range->kind == EMU_PAGEABLE || range->kind == EMU_FREED
            || (size <= range->size && address - range->base <= range->size - size);
}

/* Waits for work whose memory is the caller's: on a fault nothing touches it any more when this returns. */
static int await_own(emu_stream *stream, uint64_t ticket, emu_mark *mark) {
    int code = emu_stream_wait(stream, ticket, -1);
    int unclaimed = 0;
    if (code != 0 && !atomic_compare_exchange_strong(&mark->claim, &unclaimed, 2)) {
        while (atomic_load(&stream->completed) < ticket) {
            struct timespec rest = {0, 100000};
            nanosleep(&rest, NULL);
        }
    }
    emu_mark_drop(mark);
    return code;
}

enum { HOST_TO_HOST, HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE, BY_ADDRESS };

static int copy(const char *function, void *to, const void *from, size_t size, int kind, void *handle, bool asynchronous) {
    REQUIRE(kind >= HOST_TO_HOST && kind <= BY_ADDRESS, CUDA_INVALID_DIRECTION);
    emu_stream *stream;
    int code = work_stream(function, handle, &stream);
    REQUIRE(code == 0, code);
    if (size == 0) {
        return finish(0);
    }
    REQUIRE(to != NULL && from != NULL, CUDA_INVALID_VALUE);
    if (!asynchronous) {
        code = emu_capture_forbids();
        REQUIRE(code == 0, code);
    }
    uint64_t to_address = (uint64_t)(uintptr_t)to, from_address = (uint64_t)(uintptr_t)from;
    emu_range target, source;
    emu_find(to_address, &target);
    emu_find(from_address, &source);
    bool wrong = (kind == HOST_TO_HOST && (on_device(&target) || on_device(&source)))
            || (kind == HOST_TO_DEVICE && (target.kind == EMU_PAGEABLE || on_device(&source)))
            || (kind == DEVICE_TO_HOST && (source.kind == EMU_PAGEABLE || on_device(&target)))
            || (kind == DEVICE_TO_DEVICE && (target.kind == EMU_PAGEABLE || source.kind == EMU_PAGEABLE));
    REQUIRE(!wrong && inside(&target, to_address, size) && inside(&source, from_address, size), CUDA_INVALID_VALUE);
    emu_operation operation = {.kind = EMU_OP_COPY, .function = function, .to = to_address, .from = from_address, .size = size};
    uint64_t ticket;
    if (emu_stream_capturing(stream)) {
        return finish(put(stream, &operation, &ticket));
    }
    bool both_host = !on_device(&target) && !on_device(&source);
    bool both_device = on_device(&target) && on_device(&source);
    /* Host memory that CUDA does not know: a source is taken at once, a target is waited for. */
    bool waits = asynchronous ? both_host || target.kind == EMU_PAGEABLE : !both_device;
    if (source.kind == EMU_PAGEABLE && !waits) {
        operation.staged = malloc(size);
        REQUIRE(operation.staged != NULL, CUDA_OUT_OF_MEMORY);
        memcpy(operation.staged, from, size);
    }
    if (!waits) {
        return finish(put(stream, &operation, &ticket));
    }
    emu_mark *mark = emu_mark_create(stream->device);
    operation.mark = emu_mark_keep(mark);
    ticket = emu_submit(stream, &operation);
    return finish(await_own(stream, ticket, mark));
}

API int cudaMemcpy(void *to, const void *from, size_t size, int kind) {
    ENTER(enter_context);
    return copy(__func__, to, from, size, kind, NULL, false);
}

API int cudaMemcpyAsync(void *to, const void *from, size_t size, int kind, void *stream) {
    ENTER(enter_context);
    return copy(__func__, to, from, size, kind, stream, true);
}

static int copy_peer(const char *function, void *to, int to_device, const void *from, int from_device, size_t size, void *stream,
        bool asynchronous) {
    REQUIRE(is_device(to_device) && is_device(from_device), CUDA_INVALID_DEVICE);
    emu_range target, source;
    emu_find((uint64_t)(uintptr_t)to, &target);
    emu_find((uint64_t)(uintptr_t)from, &source);
    bool right = size == 0
            || ((on_device(&target) ? target.device == to_device : target.kind == EMU_PINNED)
                    && (on_device(&source) ? source.device == from_device : source.kind == EMU_PINNED));
    REQUIRE(right, CUDA_INVALID_VALUE);
    return copy(function, to, from, size, BY_ADDRESS, stream, asynchronous);
}

API int cudaMemcpyPeer(void *to, int to_device, const void *from, int from_device, size_t size) {
    ENTER(enter_context);
    return copy_peer(__func__, to, to_device, from, from_device, size, NULL, false);
}

API int cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device, size_t size, void *stream) {
    ENTER(enter_context);
    return copy_peer(__func__, to, to_device, from, from_device, size, stream, true);
}

static int fill(const char *function, void *memory, int value, size_t size, void *handle, bool asynchronous) {
    emu_stream *stream;
    int code = work_stream(function, handle, &stream);
    REQUIRE(code == 0, code);
    if (size == 0) {
        return finish(0);
    }
    if (!asynchronous) {
        code = emu_capture_forbids();
        REQUIRE(code == 0, code);
    }
    /* A kernel of the current device does it; a copy may be given to any device's stream. */
    REQUIRE(stream->device == emu_current_device(), CUDA_INVALID_HANDLE);
    emu_range range;
    uint64_t address = (uint64_t)(uintptr_t)memory;
    emu_find(address, &range);
    REQUIRE(range.kind != EMU_PAGEABLE && inside(&range, address, size), CUDA_INVALID_VALUE);
    emu_operation operation = {.kind = EMU_OP_FILL, .function = function, .to = address, .size = size, .value = value};
    uint64_t ticket;
    if (!asynchronous && range.kind == EMU_PINNED) {
        emu_mark *mark = emu_mark_create(stream->device);
        operation.mark = emu_mark_keep(mark);
        ticket = emu_submit(stream, &operation);
        return finish(await_own(stream, ticket, mark));
    }
    return finish(put(stream, &operation, &ticket));
}

API int cudaMemset(void *memory, int value, size_t size) {
    ENTER(enter_context);
    return fill(__func__, memory, value, size, NULL, false);
}

API int cudaMemsetAsync(void *memory, int value, size_t size, void *stream) {
    ENTER(enter_context);
    return fill(__func__, memory, value, size, stream, true);
}

/* ---- stream-ordered memory ----------------------------------------------------------------------- */

typedef struct {
    emu_object object;
    int device;
    bool is_default;
    _Atomic(uint64_t) threshold;
    _Atomic(uint64_t) used;
    _Atomic(uint64_t) highest;
    atomic_int reuse[4];
    _Atomic(uint64_t) readable, writable; /* a bit for each device beside its own */
} pool;

static _Atomic(pool *) default_pools[EMU_DEVICES_AT_MOST];
static _Atomic(pool *) current_pools[EMU_DEVICES_AT_MOST];

static pool *create_pool(int device) {
    pool *created = emu_object_create(EMU_POOL, sizeof *created);
    created->device = device;
    for (int i = 1; i < 4; i++) {
        atomic_store(&created->reuse[i], 1);
    }
    return created;
}

static pool *default_pool(int device) {
    pool *found = atomic_load(&default_pools[device]);
    if (found == NULL) {
        pool *created = create_pool(device);
        created->is_default = true;
        if (atomic_compare_exchange_strong(&default_pools[device], &found, created)) {
            return created;
        }
        emu_object_kill(&created->object);
        emu_object_recycle(&created->object);
    }
    return found;
}

static pool *current_pool(int device) {
    pool *chosen = atomic_load(&current_pools[device]);
    return chosen == NULL ? default_pool(device) : chosen;
}

static pool *pool_of(const void *handle) {
    return emu_object_of(EMU_POOL, handle);
}

static int allocate_async(const char *function, void **memory, size_t size, pool *from, void *handle) {
    REQUIRE(memory != NULL, CUDA_INVALID_VALUE);
    emu_stream *stream;
    int code = work_stream(function, handle, &stream);
    code = code != 0 ? code : not_capturing(stream);
    REQUIRE(code == 0, code);
    pool *chosen = from != NULL ? from : current_pool(stream->device);
    REQUIRE(chosen->device == stream->device, CUDA_INVALID_VALUE);
    *memory = NULL;
    if (size == 0) {
        return finish(0);
    }
    uint64_t address;
    code = emu_device_allocate(stream->device, size, EMU_UNBORN, chosen, &address);
    if (code == CUDA_OUT_OF_MEMORY && !emu_device_idle(stream->device)) {
        /* What is on its way to be freed counts, if it comes soon. */
        emu_device_wait(stream->device, 1000000000);
        code = emu_device_allocate(stream->device, size, EMU_UNBORN, chosen, &address);
    }
    REQUIRE(code == 0, code);
    uint64_t used = atomic_fetch_add(&chosen->used, size) + size;
    uint64_t highest = atomic_load(&chosen->highest);
    while (highest < used && !atomic_compare_exchange_weak(&chosen->highest, &highest, used)) {
    }
    emu_operation operation = {.kind = EMU_OP_BORN, .function = function, .to = address};
    emu_submit(stream, &operation);
    *memory = (void *)(uintptr_t)address;
    return finish(0);
}

API int cudaMallocAsync(void **memory, size_t size, void *stream) {
    ENTER(enter_context);
    return allocate_async(__func__, memory, size, NULL, stream);
}

API int cudaMallocFromPoolAsync(void **memory, size_t size, void *handle, void *stream) {
    ENTER(enter_context);
    pool *from = pool_of(handle);
    REQUIRE(from != NULL, CUDA_INVALID_VALUE);
    return allocate_async(__func__, memory, size, from, stream);
}

API int cudaFreeAsync(void *memory, void *handle) {
    ENTER(enter_context);
    emu_stream *stream;
    int code = work_stream(__func__, handle, &stream);
    code = code != 0 ? code : not_capturing(stream);
    REQUIRE(code == 0, code);
    emu_allocation *allocation = emu_device_allocation((uint64_t)(uintptr_t)memory);
    int life = allocation == NULL ? EMU_DEAD : atomic_load(&allocation->life);
    if (life == EMU_DEAD || life == EMU_DYING) {
        emu_misuse("cudaFreeAsync: 0x%llx is not allocated, or is freed already", (unsigned long long)(uintptr_t)memory);
        return finish(CUDA_INVALID_VALUE);
    }
    pool *from = allocation->pool;
    REQUIRE(from != NULL && stream->device == atomic_load(&allocation->device), CUDA_INVALID_VALUE);
    emu_operation operation = {.kind = EMU_OP_DIE, .function = __func__, .to = (uint64_t)(uintptr_t)memory};
    uint64_t size = atomic_load(&allocation->size);
    while (!atomic_compare_exchange_weak(&allocation->life, &life, EMU_DYING)) {
        if (life == EMU_DEAD || life == EMU_DYING) {
            emu_misuse("cudaFreeAsync: 0x%llx is freed by two threads", (unsigned long long)(uintptr_t)memory);
            return finish(CUDA_INVALID_VALUE);
        }
    }
    atomic_fetch_sub(&from->used, size);
    emu_submit(stream, &operation);
    return finish(0);
}

typedef struct {
    int type; /* 1: a device */
    int id;
} memory_location;

typedef struct {
    int allocation_type; /* 1: pinned */
    int handle_types;
    memory_location location;
} pool_properties; /* and more that is not looked at */

typedef struct {
    memory_location location;
    int flags; /* 0 none, 1 read, 3 read and write */
} memory_access;

API int cudaMemPoolCreate(void **handle, const pool_properties *properties) {
    ENTER(enter_context);
    REQUIRE(handle != NULL && properties != NULL && properties->allocation_type == 1, CUDA_INVALID_VALUE);
    REQUIRE(properties->location.type == 1 && is_device(properties->location.id), CUDA_INVALID_VALUE);
    REQUIRE(properties->handle_types == 0, CUDA_NOT_SUPPORTED);
    *handle = emu_object_handle(&create_pool(properties->location.id)->object);
    return finish(0);
}

API int cudaMemPoolDestroy(void *handle) {
    ENTER(enter_context);
    pool *p = pool_of(handle);
    REQUIRE(p != NULL && !p->is_default, CUDA_INVALID_VALUE);
    pool *chosen = p;
    atomic_compare_exchange_strong(&current_pools[p->device], &chosen, NULL);
    emu_object_kill(&p->object); /* not used again: memory of it may live on */
    return finish(0);
}

API int cudaMemPoolTrimTo(void *handle, size_t keep) {
    (void)keep; /* nothing is kept that is not in use */
    ENTER(enter_context);
    return finish(pool_of(handle) == NULL ? CUDA_INVALID_VALUE : 0);
}

API int cudaMemPoolSetAttribute(void *handle, int attribute, void *value) {
    ENTER(enter_context);
    pool *p = pool_of(handle);
    REQUIRE(p != NULL && value != NULL, CUDA_INVALID_VALUE);
    if (attribute >= 1 && attribute <= 3) {
        atomic_store(&p->reuse[attribute], *(int *)value != 0);
        return finish(0);
    }
    uint64_t number;
    memcpy(&number, value, sizeof number);
    switch (attribute) {
        case 4:
            atomic_store(&p->threshold, number);
            return finish(0);
        case 6:
        case 8:
            REQUIRE(number == 0, CUDA_INVALID_VALUE);
            atomic_store(&p->highest, atomic_load(&p->used));
            return finish(0);
        default:
            return finish(CUDA_INVALID_VALUE);
    }
}

API int cudaMemPoolGetAttribute(void *handle, int attribute, void *value) {
    ENTER(enter_context);
    pool *p = pool_of(handle);
    REQUIRE(p != NULL && value != NULL && attribute >= 1 && attribute <= 8, CUDA_INVALID_VALUE);
    if (attribute <= 3) {
        *(int *)value = atomic_load(&p->reuse[attribute]);
        return finish(0);
    }
    uint64_t number = attribute == 4 ? atomic_load(&p->threshold)
            : attribute == 5 || attribute == 7 ? atomic_load(&p->used)
                                               : atomic_load(&p->highest);
    memcpy(value, &number, sizeof number);
    return finish(0);
}

API int cudaMemPoolSetAccess(void *handle, const memory_access *accesses, size_t count) {
    ENTER(enter_context);
    pool *p = pool_of(handle);
    REQUIRE(p != NULL && (accesses != NULL || count == 0), CUDA_INVALID_VALUE);
    for (size_t i = 0; i < count; i++) {
        const memory_access *a = &accesses[i];
        REQUIRE(a->location.type == 1 && (a->flags == 0 || a->flags == 1 || a->flags == 3), CUDA_INVALID_VALUE);
        REQUIRE(is_device(a->location.id), CUDA_INVALID_DEVICE);
        REQUIRE(a->location.id != p->device || a->flags == 3, CUDA_INVALID_VALUE);
    }
    for (size_t i = 0; i < count; i++) {
        uint64_t bit = (uint64_t)1 << accesses[i].location.id;
        atomic_fetch_and(&p->readable, ~bit);
        atomic_fetch_and(&p->writable, ~bit);
        atomic_fetch_or(&p->readable, accesses[i].flags >= 1 ? bit : 0);
        atomic_fetch_or(&p->writable, accesses[i].flags == 3 ? bit : 0);
    }
    return finish(0);
}

API int cudaMemPoolGetAccess(int *flags, void *handle, const memory_location *location) {
    ENTER(enter_context);
    pool *p = pool_of(handle);
    REQUIRE(flags != NULL && p != NULL && location != NULL && location->type == 1, CUDA_INVALID_VALUE);
    REQUIRE(is_device(location->id), CUDA_INVALID_DEVICE);
    uint64_t bit = (uint64_t)1 << location->id;
    *flags = location->id == p->device || (atomic_load(&p->writable) & bit) != 0 ? 3 : (atomic_load(&p->readable) & bit) != 0;
    return finish(0);
}

API int cudaDeviceGetDefaultMemPool(void **handle, int device) {
    ENTER(enter_context);
    REQUIRE(handle != NULL, CUDA_INVALID_VALUE);
    REQUIRE(is_device(device), CUDA_INVALID_DEVICE);
    *handle = emu_object_handle(&default_pool(device)->object);
    return finish(0);
}

API int cudaDeviceGetMemPool(void **handle, int device) {
    ENTER(enter_context);
    REQUIRE(handle != NULL, CUDA_INVALID_VALUE);
    REQUIRE(is_device(device), CUDA_INVALID_DEVICE);
    *handle = emu_object_handle(&current_pool(device)->object);
    return finish(0);
}

API int cudaDeviceSetMemPool(int device, void *handle) {
    ENTER(enter_context);
    REQUIRE(is_device(device), CUDA_INVALID_DEVICE);
    pool *p = pool_of(handle);
    REQUIRE(p != NULL && p->device == device, CUDA_INVALID_VALUE);
    atomic_store(&current_pools[device], p);
    return finish(0);
}

/* ---- capture and graphs -------------------------------------------------------------------------- */

API int cudaStreamBeginCapture(void *handle, int mode) {
    ENTER(enter_context);
    REQUIRE(mode >= 0 && mode <= 2, CUDA_INVALID_VALUE);
    emu_stream *stream;
    int code = find_stream(handle, &stream);
    REQUIRE(code == 0, code);
    REQUIRE((uintptr_t)handle > 1, CUDA_CAPTURE_UNSUPPORTED);
    return finish(emu_capture_begin(stream, mode));
}

API int cudaStreamEndCapture(void *handle, void **graph) {
    ENTER(enter_context);
    REQUIRE(graph != NULL, CUDA_INVALID_VALUE);
    *graph = NULL;
    emu_stream *stream;
    int code = find_stream(handle, &stream);
    REQUIRE(code == 0, code);
    emu_recording *recording;
    code = emu_capture_end(stream, &recording);
    REQUIRE(code == 0, code);
    emu_graph *created = emu_object_create(EMU_GRAPH, sizeof *created);
    created->recording = recording;
    emu_count("graphs", 1);
    *graph = emu_object_handle(&created->object);
    return finish(0);
}

API int cudaStreamIsCapturing(void *handle, int *status) {
    ENTER(enter_context);
    REQUIRE(status != NULL, CUDA_INVALID_VALUE);
    emu_stream *stream;
    int code = find_stream(handle, &stream);
    REQUIRE(code == 0, code);
    if ((uintptr_t)handle <= 1) {
        code = emu_capture_forbids_legacy(stream->device);
    }
    *status = emu_capture_status(stream);
    return finish(code);
}

API int cudaThreadExchangeStreamCaptureMode(int *mode) {
    ENTER(enter_context);
    REQUIRE(mode != NULL && *mode >= 0 && *mode <= 2, CUDA_INVALID_VALUE);
    *mode = emu_capture_exchange_mode(*mode);
    return finish(0);
}

static int instantiate(void **executable, void *handle) {
    emu_graph *graph = emu_object_of(EMU_GRAPH, handle);
    REQUIRE(executable != NULL && graph != NULL, CUDA_INVALID_VALUE);
    emu_executable *created = emu_object_create(EMU_EXECUTABLE, sizeof *created);
    created->recording = emu_recording_keep(graph->recording);
    created->device = emu_current_device();
    pthread_mutex_init(&created->lock, NULL);
    emu_count("graphs", 1);
    *executable = emu_object_handle(&created->object);
    return finish(0);
}

API int cudaGraphInstantiate(void **executable, void *graph, unsigned long long flags) {
    ENTER(enter_context);
    REQUIRE(flags == 0 || flags == 1 || flags == 8, CUDA_INVALID_VALUE);
    return instantiate(executable, graph);
}

API int cudaGraphInstantiateWithFlags(void **executable, void *graph, unsigned long long flags) {
    ENTER(enter_context);
    REQUIRE(flags == 0 || flags == 1 || flags == 8, CUDA_INVALID_VALUE);
    return instantiate(executable, graph);
}

API int cudaGraphUpload(void *handle, void *on) {
    ENTER(enter_context);
    REQUIRE(emu_object_of(EMU_EXECUTABLE, handle) != NULL, CUDA_INVALID_VALUE);
    emu_stream *stream;
    return finish(work_stream(__func__, on, &stream));
}

API int cudaGraphLaunch(void *handle, void *on) {
    ENTER(enter_context);
    emu_executable *executable = emu_object_of(EMU_EXECUTABLE, handle);
    REQUIRE(executable != NULL, CUDA_INVALID_VALUE);
    emu_stream *stream;
    int code = work_stream(__func__, on, &stream);
    code = code != 0 ? code : not_capturing(stream); /* graphs in graphs are not emulated */
    REQUIRE(code == 0, code);
    return finish(emu_executable_launch(executable, stream));
}

API int cudaGraphExecDestroy(void *handle) {
    int code = enter_context(__func__);
    emu_executable *executable = emu_object_of(EMU_EXECUTABLE, handle);
    if (executable == NULL || refused(code) || !emu_object_kill(&executable->object)) {
        return fail(code != 0 ? code : CUDA_INVALID_VALUE);
    }
    emu_count("graphs", -1);
    emu_executable_retire(executable);
    return code == 0 ? finish(0) : fail(code);
}

API int cudaGraphDestroy(void *handle) {
    int code = enter_context(__func__);
    emu_graph *graph = emu_object_of(EMU_GRAPH, handle);
    if (graph == NULL || refused(code) || !emu_object_kill(&graph->object)) {
        return fail(code != 0 ? code : CUDA_INVALID_VALUE);
    }
    emu_count("graphs", -1);
    emu_recording_drop(graph->recording);
    emu_object_recycle(&graph->object);
    return code == 0 ? finish(0) : fail(code);
}

API int cudaGraphExecUpdate(void) {
    ENTER(enter_context);
    return finish(CUDA_NOT_SUPPORTED);
}

API int cudaStreamGetCaptureInfo(void *handle, int *status, unsigned long long *id) {
    ENTER(enter_context);
    REQUIRE(status != NULL, CUDA_INVALID_VALUE);
    emu_stream *stream;
    int code = find_stream(handle, &stream);
    REQUIRE(code == 0, code);
    *status = emu_capture_status(stream);
    if (id != NULL && *status == 1) {
        *id = emu_capture_id(stream);
    }
    return finish(0);
}

/* ---- between processes: not emulated (the emulated NCCL does it by itself) -------------------------- */

API int cudaIpcGetMemHandle(void) {
    ENTER(enter_context);
    return finish(CUDA_NOT_SUPPORTED);
}

API int cudaIpcOpenMemHandle(void) {
    ENTER(enter_context);
    return finish(CUDA_NOT_SUPPORTED);
}

API int cudaIpcCloseMemHandle(void) {
    ENTER(enter_context);
    return finish(CUDA_NOT_SUPPORTED);
}
