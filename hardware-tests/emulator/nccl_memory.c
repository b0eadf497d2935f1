/* Memory, registration, windows, one-sided operations and parameters. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "machine_cuda.h" /* ncclMemAlloc takes memory of the device, as NCCL does by the driver */
#include "nccl_comm.h"

/* An order of a test that a local call can carry out at its head. */
#define OBEY(fault, comm, function)                                                                                    \
    if ((fault).kind == EMU_FAULT_CODE) {                                                                              \
        nccl_warn("%s fails by order of a test", function);                                                            \
        return (ncclResult_t)(fault).code;                                                                             \
    }                                                                                                                  \
    if ((fault).kind == EMU_FAULT_HANG) {                                                                              \
        return comm_hang(comm, function);                                                                              \
    }

#if EMU_NCCL_VERSION >= 21903

API(ncclResult_t, ncclMemAlloc, void **memory, size_t size) {
    emu_fault fault = emu_enter("ncclMemAlloc");
    OBEY(fault, NULL, "ncclMemAlloc")
    if (memory == NULL) {
        return REFUSE(ncclInvalidArgument, "ncclMemAlloc: ptr argument is NULL");
    }
    *memory = NULL;
    if (size == 0) {
        return ncclSuccess;
    }
    int device = emu_current_device();
    uint64_t address = 0;
    if (emu_device_count() == 0 || emu_device_fault(device) != 0) {
        nccl_warn("ncclMemAlloc: Cuda failure %d on device %d", emu_device_count() == 0 ? 100 : emu_device_fault(device), device);
        return ncclUnhandledCudaError;
    }
    int code = emu_device_allocate(device, size, EMU_LIVE, NULL, &address);
    if (code != 0) {
        nccl_warn("ncclMemAlloc: Cuda failure %d: %zu bytes on device %d", code, size, device);
        return ncclUnhandledCudaError;
    }
    *memory = (void *)(uintptr_t)address;
    return ncclSuccess;
}

API(ncclResult_t, ncclMemFree, void *memory) {
    emu_fault fault = emu_enter("ncclMemFree");
    OBEY(fault, NULL, "ncclMemFree")
    if (memory == NULL) {
        return ncclSuccess;
    }
    emu_allocation *allocation = emu_device_allocation((uint64_t)(uintptr_t)memory);
    if (allocation == NULL) {
        return REFUSE(ncclUnhandledCudaError, "ncclMemFree: %p is no allocation of a device", memory);
    }
    emu_device_release(allocation);
    return ncclSuccess;
}

API(ncclResult_t, ncclCommRegister, const ncclComm_t comm, void *buffer, size_t size, void **handle) {
    emu_fault fault = emu_enter("ncclCommRegister");
    OBEY(fault, comm, "ncclCommRegister")
    ncclResult_t result = comm_ready(comm, "ncclCommRegister");
    if (result != ncclSuccess) {
        return result;
    }
    if (buffer == NULL || size == 0 || handle == NULL) {
        return REFUSE(ncclInvalidArgument, "ncclCommRegister: %s", buffer == NULL ? "buff argument is NULL" : size == 0 ? "size is 0" : "handle argument is NULL");
    }
    emu_range range;
    emu_find((uint64_t)(uintptr_t)buffer, &range);
    if (range.kind == EMU_PINNED || range.kind == EMU_PAGEABLE) {
        return ncclSuccess; /* memory of the host: NCCL does not even write the handle */
    }
    if (range.kind == EMU_FREED) {
        return REFUSE(ncclInvalidArgument, "ncclCommRegister: nothing is allocated at %p", buffer);
    }
    const char *registers = getenv("NCCL_LOCAL_REGISTER");
    if (registers != NULL && strcmp(registers, "0") == 0) {
        *handle = NULL;
        return ncclSuccess;
    }
    bool outermost = comm_enter(comm, "ncclCommRegister");
    /* By whole pages, as NCCL counts. */
    uint64_t address = (uint64_t)(uintptr_t)buffer & ~UINT64_C(4095);
    uint64_t end = ((uint64_t)(uintptr_t)buffer + size + 4095) & ~UINT64_C(4095);
    nccl_registration *found = comm->registrations;
    while (found != NULL && (found->address != address || found->size != end - address)) {
        found = found->next;
    }
    if (found == NULL) {
        found = calloc(1, sizeof *found);
        if (found != NULL) {
            found->address = address;
            found->size = end - address;
            found->next = comm->registrations;
            comm->registrations = found;
        }
    }
    if (found == NULL) {
        result = ncclSystemError;
    } else {
        found->references++;
        *handle = found;
    }
    comm_leave(comm, outermost);
    return result;
}

API(ncclResult_t, ncclCommDeregister, const ncclComm_t comm, void *handle) {
    emu_fault fault = emu_enter("ncclCommDeregister");
    OBEY(fault, comm, "ncclCommDeregister")
    ncclResult_t result = comm_check(comm, "ncclCommDeregister");
    if (result != ncclSuccess || handle == NULL) {
        return result;
    }
    bool outermost = comm_enter(comm, "ncclCommDeregister");
    nccl_registration **link = &comm->registrations;
    while (*link != NULL && *link != handle) {
        link = &(*link)->next;
    }
    if (*link == NULL) {
        result = REFUSE(ncclInvalidUsage, "ncclCommDeregister: unknown handle %p", handle);
    } else if (--(*link)->references == 0) {
        nccl_registration *dead = *link;
        *link = dead->next;
        free(dead);
    }
    comm_leave(comm, outermost);
    return result;
}

#endif

/* ---- windows: symmetric memory is not supported here, for which NCCL answers a NULL window with success ---------------------- */

#if EMU_NCCL_VERSION >= 22703

API(ncclResult_t, ncclCommWindowRegister, ncclComm_t comm, void *buffer, size_t size, ncclWindow_t *window, int flags) {
    emu_fault fault = emu_enter("ncclCommWindowRegister");
    OBEY(fault, comm, "ncclCommWindowRegister")
    ncclResult_t result = comm_ready(comm, "ncclCommWindowRegister");
    if (result != ncclSuccess) {
        return result;
    }
    if (window == NULL || buffer == NULL || size == 0 || (flags & ~3) != 0) {
        return REFUSE(ncclInvalidArgument, "ncclCommWindowRegister: window %p, buffer %p, %zu bytes, flags %d", (void *)window, buffer,
                      size, flags);
    }
    *window = NULL;
    return ncclSuccess;
}

API(ncclResult_t, ncclCommWindowDeregister, ncclComm_t comm, ncclWindow_t window) {
    emu_fault fault = emu_enter("ncclCommWindowDeregister");
    OBEY(fault, comm, "ncclCommWindowDeregister")
    ncclResult_t result = comm_check(comm, "ncclCommWindowDeregister");
    if (result == ncclSuccess && window != NULL) {
        result = REFUSE(ncclInvalidArgument, "ncclCommWindowDeregister: %p is no window", window);
    }
    return result;
}

#endif

#if EMU_NCCL_VERSION >= 22902

API(ncclResult_t, ncclWinGetUserPtr, ncclComm_t comm, ncclWindow_t window, void **pointer) {
    emu_fault fault = emu_enter("ncclWinGetUserPtr");
    OBEY(fault, comm, "ncclWinGetUserPtr")
    ncclResult_t result = comm_ready(comm, "ncclWinGetUserPtr");
    if (result != ncclSuccess) {
        return result;
    }
    if (pointer == NULL || window != NULL) {
        return REFUSE(ncclInvalidArgument, "ncclWinGetUserPtr: %s", pointer == NULL ? "outUserPtr argument is NULL" : "no such window");
    }
    *pointer = NULL;
    return ncclSuccess;
}

/* One-sided operations need windows, so communicators here have none: the answer is what NCCL gives for such a one. */
static ncclResult_t no_rma(const char *function, ncclComm_t comm, bool arguments) {
    emu_fault fault = emu_enter(function);
    group_start();
    if (fault.kind == EMU_FAULT_CODE) {
        return group_end((ncclResult_t)fault.code);
    }
    ncclResult_t result = comm_ready(comm, function);
    if (result == ncclSuccess) {
        nccl_warn("%s: %s", function, arguments ? "the communicator of this machine does not support host RMA" : "invalid argument");
        result = ncclInvalidArgument;
    }
    return group_end(result);
}

API(ncclResult_t, ncclPutSignal, const void *local, size_t count, ncclDataType_t type, int peer, ncclWindow_t window, size_t offset,
    int signal, int context, unsigned flags, ncclComm_t comm, cudaStream_t stream) {
    (void)count;
    (void)type;
    (void)peer;
    (void)offset;
    (void)stream;
    return no_rma("ncclPutSignal", comm, local != NULL && window != NULL && signal == 0 && context == 0 && flags == 0);
}

API(ncclResult_t, ncclSignal, int peer, int signal, int context, unsigned flags, ncclComm_t comm, cudaStream_t stream) {
    (void)peer;
    (void)stream;
    return no_rma("ncclSignal", comm, signal == 0 && context == 0 && flags == 0);
}

API(ncclResult_t, ncclWaitSignal, int count, ncclWaitSignalDesc_t *descriptors, ncclComm_t comm, cudaStream_t stream) {
    (void)stream;
    return no_rma("ncclWaitSignal", comm, count > 0 && descriptors != NULL);
}

/* nccl_device.h's one call that a host may want: what a communicator can do. */
typedef struct {
    size_t size;
    unsigned magic, version;
    int rank, nRanks, cudaDev, nvmlDev;
    bool deviceApiSupport, multimemSupport;
    int ginType, nLsaTeams;
    bool hostRmaSupport;
    int railedGinType;
} ncclCommProperties_t;

_Static_assert(sizeof(ncclCommProperties_t) == 56, "ncclCommProperties_t has 56 bytes");

API(ncclResult_t, ncclCommQueryProperties, ncclComm_t comm, ncclCommProperties_t *properties) {
    emu_fault fault = emu_enter("ncclCommQueryProperties");
    OBEY(fault, comm, "ncclCommQueryProperties")
    ncclResult_t result = comm_ready(comm, "ncclCommQueryProperties");
    if (result != ncclSuccess) {
        return result;
    }
    if (properties == NULL) {
        return REFUSE(ncclInvalidArgument, "ncclCommQueryProperties: props argument is NULL");
    }
    const char *check = getenv("NCCL_ENABLE_VERSION_CHECK");
    bool newer = properties->version > EMU_NCCL_VERSION && (check == NULL || strcmp(check, "0") != 0);
    if (properties->magic != NCCL_MAGIC || newer) {
        nccl_warn("ncclCommQueryProperties: %s", newer ? "the caller's header is newer than the library" : "the struct was not initialised");
        return ncclInvalidUsage;
    }
    properties->rank = comm->rank;
    properties->nRanks = comm->count;
    properties->cudaDev = comm->device;
    properties->nvmlDev = comm->device;
    properties->deviceApiSupport = false;
    properties->multimemSupport = false;
    properties->ginType = 0;
    properties->nLsaTeams = 1;
    if (properties->version > 22903) {
        properties->hostRmaSupport = false;
        properties->railedGinType = 0;
    }
    return ncclSuccess;
}

#endif

/* ---- parameters ----------------------------------------------------------------------------------------------------------------- */

#if EMU_NCCL_VERSION >= 23003

/* What this library reads from the environment and can be asked for; the real one's registry is as patchy. */
typedef struct {
    const char *key;
    bool text;
    int64_t otherwise;
} parameter;

static const parameter parameters[] = {
    {"NCCL_CHECK_MODE", true, 0},
    {"NCCL_MULTI_RANK_GPU_ENABLE", false, 0},
    {"NCCL_COMM_BLOCKING", false, NCCL_UNDEFINED},
};

enum { PARAMETERS = sizeof parameters / sizeof *parameters };

/* Strings live in a buffer of the thread until the next call of the same function. */
static _Thread_local char text_of_get[256], text_of_parameter[256];
static _Thread_local const char *keys[PARAMETERS];

static const parameter *find_parameter(const char *key) {
    for (int i = 0; key != NULL && i < PARAMETERS; i++) {
        if (strcmp(parameters[i].key, key) == 0) {
            return &parameters[i];
        }
    }
    return NULL;
}

static int64_t number_of(const parameter *p) {
    const char *value = getenv(p->key);
    return value == NULL || value[0] == 0 ? p->otherwise : strtoll(value, NULL, 0);
}

static void print_value(const parameter *p, char *text, size_t size) {
    const char *value = getenv(p->key);
    if (p->text) {
        snprintf(text, size, "%s", value == NULL ? "DEFAULT" : value);
    } else {
        snprintf(text, size, "%lld", (long long)number_of(p));
    }
}

API(ncclResult_t, ncclParamBind, ncclParamHandle_t *out, const char *key) {
    emu_fault fault = emu_enter("ncclParamBind");
    OBEY(fault, NULL, "ncclParamBind")
    const parameter *found = find_parameter(key);
    if (out == NULL || found == NULL) {
        nccl_warn("ncclParamBind: unknown parameter %s", key == NULL ? "NULL" : key);
        return ncclInvalidArgument;
    }
    memcpy(out, &found, sizeof found);
    return ncclSuccess;
}

static ncclResult_t get_number(const char *function, ncclParamHandle_t handle, int64_t *out) {
    emu_fault fault = emu_enter(function);
    OBEY(fault, NULL, function)
    const parameter *p = handle;
    if (p == NULL || out == NULL || p->text) {
        nccl_warn("%s: not the parameter's type", function);
        return ncclInvalidArgument;
    }
    *out = number_of(p);
    return ncclSuccess;
}

API(ncclResult_t, ncclParamGetI64, ncclParamHandle_t handle, int64_t *out) {
    return get_number("ncclParamGetI64", handle, out);
}

/* All numbers here are int64, and nothing is widened or narrowed. */
#define OTHER_TYPE(name, T)                                                                                            \
    API(ncclResult_t, name, ncclParamHandle_t handle, T *out) {                                                        \
        (void)out;                                                                                                     \
        return get_number(#name, handle, NULL);                                                                        \
    }
OTHER_TYPE(ncclParamGetI8, int8_t)
OTHER_TYPE(ncclParamGetI16, int16_t)
OTHER_TYPE(ncclParamGetI32, int32_t)
OTHER_TYPE(ncclParamGetU8, uint8_t)
OTHER_TYPE(ncclParamGetU16, uint16_t)
OTHER_TYPE(ncclParamGetU32, uint32_t)
OTHER_TYPE(ncclParamGetU64, uint64_t)

API(ncclResult_t, ncclParamGetStr, ncclParamHandle_t handle, const char **out) {
    emu_fault fault = emu_enter("ncclParamGetStr");
    OBEY(fault, NULL, "ncclParamGetStr")
    const parameter *p = handle;
    if (p == NULL || out == NULL || !p->text) {
        nccl_warn("ncclParamGetStr: not a parameter of text");
        return ncclInvalidArgument;
    }
    print_value(p, text_of_get, sizeof text_of_get);
    *out = text_of_get;
    return ncclSuccess;
}

API(ncclResult_t, ncclParamGet, ncclParamHandle_t handle, void *out, int most, int *length) {
    emu_fault fault = emu_enter("ncclParamGet");
    OBEY(fault, NULL, "ncclParamGet")
    const parameter *p = handle;
    if (p == NULL || out == NULL || length == NULL) {
        return ncclInvalidArgument;
    }
    char text[256];
    int64_t number = number_of(p);
    print_value(p, text, sizeof text);
    int needed = p->text ? (int)strlen(text) + 1 : (int)sizeof number;
    *length = needed;
    if (most < needed) {
        nccl_warn("ncclParamGet: %d bytes for a value of %d", most, needed);
        return ncclInvalidArgument;
    }
    memcpy(out, p->text ? (const void *)text : (const void *)&number, (size_t)needed);
    return ncclSuccess;
}

API(ncclResult_t, ncclParamGetParameter, const char *key, const char **value, int *length) {
    emu_fault fault = emu_enter("ncclParamGetParameter");
    OBEY(fault, NULL, "ncclParamGetParameter")
    const parameter *found = find_parameter(key);
    if (value == NULL || found == NULL) {
        if (value != NULL) {
            *value = NULL;
        }
        return ncclInvalidArgument;
    }
    print_value(found, text_of_parameter, sizeof text_of_parameter);
    *value = text_of_parameter;
    if (length != NULL) {
        *length = (int)strlen(text_of_parameter);
    }
    return ncclSuccess;
}

API(ncclResult_t, ncclParamGetAllParameterKeys, const char ***table, int *count) {
    emu_fault fault = emu_enter("ncclParamGetAllParameterKeys");
    OBEY(fault, NULL, "ncclParamGetAllParameterKeys")
    if (table == NULL || count == NULL) {
        return ncclInvalidArgument;
    }
    for (int i = 0; i < PARAMETERS; i++) {
        keys[i] = parameters[i].key;
    }
    *table = keys;
    *count = PARAMETERS;
    return ncclSuccess;
}

API(void, ncclParamDumpAll, void) {
    emu_enter("ncclParamDumpAll");
    for (int i = 0; i < PARAMETERS; i++) {
        char text[256];
        print_value(&parameters[i], text, sizeof text);
        printf("%s=%s\n", parameters[i].key, text);
    }
    fflush(stdout);
}

#endif
