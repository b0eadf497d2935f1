/* The operations as they are called: checked in NCCL's order, then recorded in the thread's group. */
#include <stdlib.h>
#include <string.h>

#include "nccl_op.h"

/* NCCL_CHECK_POINTERS=1, and since 2.29.7 NCCL_CHECK_MODE other than DEFAULT. */
static bool pointers_are_checked(void) {
    const char *pointers = getenv("NCCL_CHECK_POINTERS");
    if (pointers != NULL && atoi(pointers) != 0) {
        return true;
    }
#if EMU_NCCL_VERSION >= 22907
    const char *mode = getenv("NCCL_CHECK_MODE");
    return mode != NULL && (strcmp(mode, "DEBUG_LOCAL") == 0 || strcmp(mode, "DEBUG_GLOBAL") == 0);
#else
    return false;
#endif
}

static ncclResult_t check_pointer(const char *function, const char *name, const void *pointer, ncclComm_t comm) {
    emu_range range;
    if (pointer == NULL) {
        return REFUSE(ncclInvalidArgument, "%s : %s argument is NULL", function, name);
    }
    emu_find((uint64_t)(uintptr_t)pointer, &range);
    if (range.kind == EMU_PAGEABLE || range.kind == EMU_FREED) {
        return REFUSE(ncclInvalidArgument, "%s : %s %p is not a valid pointer", function, name, pointer);
    }
    if (range.kind == EMU_DEVICE && range.device != comm->device) {
        return REFUSE(ncclInvalidArgument, "%s : %s allocated on device %d mismatchs with NCCL device %d", function, name,
                      range.device, comm->device);
    }
    return ncclSuccess;
}

static int compute_capability_major(void) {
    const char *given = getenv("NCCL4J_EMULATOR_COMPUTE_CAPABILITY");
    return given != NULL && given[0] != 0 ? atoi(given) : 9;
}

static bool reduces(op_kind kind) {
    return kind == OP_ALL_REDUCE || kind == OP_REDUCE || kind == OP_REDUCE_SCATTER;
}

static nccl_operator *find_operator(ncclComm_t comm, int handle) {
    nccl_operator *found = comm->operators;
    while (found != NULL && found->handle != handle) {
        found = found->next;
    }
    return found;
}

/* What a call gives. `times` is how many times the count its larger buffer holds. */
typedef struct {
    const char *function;
    op_kind kind;
    const void *send;
    void *recv;
    size_t count;
    ncclDataType_t type;
    ncclRedOp_t op;
    int root;
    ncclComm_t comm;
    cudaStream_t stream;
    bool rooted;
    enum { SHAPE_ONE, SHAPE_ALL_TO_ALL, SHAPE_GATHER, SHAPE_SCATTER } shape;
} call;

static ncclResult_t check(const call *c, const nccl_operator **operator) {
    ncclComm_t comm = c->comm;
    if (atomic_load(&comm->cancelled)) {
        nccl_warn("%s: the communicator of rank %d is revoked", c->function, comm->rank);
        return ncclInvalidUsage;
    }
    if (atomic_load(&comm->finalized)) {
        return REFUSE(ncclInvalidArgument, "%s: the communicator of rank %d is finalized", c->function, comm->rank);
    }
    bool pair = c->kind == OP_SEND || c->kind == OP_RECV;
    if (c->rooted && (c->root < 0 || c->root >= comm->count)) {
        return REFUSE(ncclInvalidArgument, "%s : invalid %s %d (%s should be in the 0..%d range)", c->function,
                      pair ? "peer" : "root", c->root, pair ? "peer" : "root", comm->count - 1);
    }
    if ((int)c->type < 0 || (int)c->type >= NCCL_TYPES) {
        return REFUSE(ncclInvalidArgument, "%s : invalid type %d", c->function, (int)c->type);
    }
    *operator = NULL;
    if (reduces(c->kind)) {
        if ((int)c->op < 0) {
            return REFUSE(ncclInvalidArgument, "%s : invalid reduction operation %d", c->function, (int)c->op);
        }
        if (c->op >= ncclNumOps) {
            *operator = find_operator(comm, (int)c->op);
            if (*operator == NULL) {
                return REFUSE(ncclInvalidArgument, "%s : reduction operation %d unknown to this communicator", c->function, (int)c->op);
            }
            if ((*operator)->type != c->type) {
                return REFUSE(ncclInvalidArgument, "%s : reduction operation type %d differs from the datatype %d", c->function,
                              (int)(*operator)->type, (int)c->type);
            }
        }
        if (c->type >= ncclFloat8e4m3 && compute_capability_major() < 9) {
            nccl_warn("%s: FP8 reduction support begins with sm90 capable devices", c->function);
            return ncclInvalidArgument;
        }
    }
    uint64_t bytes;
    if (__builtin_mul_overflow((uint64_t)c->count, (uint64_t)nccl_type_size(c->type) * (uint64_t)comm->count, &bytes) ||
        bytes > INT64_MAX) {
        return REFUSE(ncclInvalidArgument, "%s : count %zu is too large", c->function, c->count);
    }
    if (c->count > 0 && pointers_are_checked()) {
        bool at_root = !c->rooted || comm->rank == c->root;
        bool sends = c->kind == OP_SEND || (c->kind != OP_RECV && (c->kind != OP_BROADCAST || at_root || c->shape == SHAPE_GATHER));
        bool receives = c->kind == OP_RECV || (c->kind != OP_SEND && (c->kind != OP_REDUCE || at_root));
        if (c->shape == SHAPE_GATHER) {
            receives = at_root;
        }
        ncclResult_t result = sends ? check_pointer(c->function, "sendbuff", c->send, comm) : ncclSuccess;
        if (result == ncclSuccess && receives) {
            result = check_pointer(c->function, "recvbuff", c->recv, comm);
        }
        if (result != ncclSuccess) {
            return result;
        }
    }
    return ncclSuccess;
}

/* Where a launch runs, a stream once. */
static ncclResult_t add_stream(nccl_launch *launch, const call *c, int device) {
    for (int s = 0; s < launch->stream_count; s++) {
        if (launch->handles[s] == c->stream) {
            return ncclSuccess;
        }
    }
    int current = emu_current_device();
    if (current != device) {
        emu_set_current_device(device);
    }
    emu_stream *stream = emu_stream_of(c->stream);
    if (current != device) {
        emu_set_current_device(current);
    }
    if (stream == NULL) {
        return REFUSE(ncclUnhandledCudaError, "%s: Cuda failure 400: the stream does not exist", c->function);
    }
    if (emu_stream_device(stream) != device) {
        return REFUSE(ncclUnhandledCudaError, "%s: Cuda failure 400: the stream is of device %d, the communicator of rank %d is on device %d",
                      c->function, emu_stream_device(stream), launch->comm->rank, device);
    }
    size_t count = (size_t)launch->stream_count + 1;
    cudaStream_t *handles = realloc(launch->handles, count * sizeof *handles);
    if (handles == NULL) {
        return ncclSystemError;
    }
    launch->handles = handles;
    emu_stream **streams = realloc(launch->streams, count * sizeof(emu_stream *));
    if (streams == NULL) {
        return ncclSystemError;
    }
    launch->streams = streams;
    handles[count - 1] = c->stream;
    streams[count - 1] = stream;
    launch->stream_count++;
    return ncclSuccess;
}

static ncclResult_t add_op(nccl_launch *launch, op_kind kind, const call *c, const void *send, const void *recv, int root,
                           const nccl_operator *operator, bool hang) {
    nccl_op *op = calloc(1, sizeof *op);
    if (op == NULL) {
        return ncclSystemError;
    }
    op->kind = kind;
    op->type = c->type;
    op->op = (int)c->op;
    op->root = root;
    op->count = c->count;
    op->send = (uint64_t)(uintptr_t)send;
    op->recv = (uint64_t)(uintptr_t)recv;
    op->hang = hang;
    if (operator != NULL) { /* its content is copied: it may be destroyed as soon as the call has returned */
        op->premultiplied = true;
        op->device_scalar = operator->device_scalar;
        op->factor = operator->factor;
    }
    if (launch->last == NULL) {
        launch->first = op;
    } else {
        launch->last->next = op;
    }
    launch->last = op;
    launch->ops++;
    return ncclSuccess;
}

/* The sends and receives that all-to-all, gather and scatter are, those to itself included. */
static ncclResult_t add_pairs(nccl_launch *launch, const call *c, bool hang) {
    ncclComm_t comm = launch->comm;
    size_t block = c->count * nccl_type_size(c->type);
    ncclResult_t result = ncclSuccess;
    for (int r = 0; r < comm->count && result == ncclSuccess; r++) {
        bool sends = c->shape == SHAPE_ALL_TO_ALL || (c->shape == SHAPE_SCATTER ? comm->rank == c->root : r == c->root);
        bool receives = c->shape == SHAPE_ALL_TO_ALL || (c->shape == SHAPE_GATHER ? comm->rank == c->root : r == c->root);
        if (sends) {
            size_t from = c->shape == SHAPE_GATHER ? 0 : (size_t)r * block;
            result = add_op(launch, OP_SEND, c, (const char *)c->send + from, NULL, r, NULL, hang);
        }
        if (receives && result == ncclSuccess) {
            size_t to = c->shape == SHAPE_SCATTER ? 0 : (size_t)r * block;
            result = add_op(launch, OP_RECV, c, NULL, (char *)c->recv + to, r, NULL, hang);
        }
    }
    return result;
}

static ncclResult_t record(const call *c, emu_fault fault) {
    ncclComm_t comm = c->comm;
    if (fault.kind == EMU_FAULT_CODE) {
        nccl_warn("%s fails by order of a test", c->function);
        return (ncclResult_t)fault.code;
    }
    const nccl_operator *operator;
    ncclResult_t result = check(c, &operator);
    if (result != ncclSuccess || c->count == 0) {
        return result;
    }
    if (comm->suspended) {
        emu_misuse("%s on the suspended communicator of rank %d, which NCCL does not notice", c->function, comm->rank);
    }
    if (fault.kind == EMU_FAULT_LOST) {
        comm_lose(comm);
    }
    bool hang = fault.kind == EMU_FAULT_HANG;
    bool pair = c->kind == OP_SEND || c->kind == OP_RECV;
    if (comm->count == 1 && !pair) {
        /* One rank: a copy or a scaling, issued at once, even in a group, and without a look at the device. */
        if (emu_current_device() != comm->device) {
            emu_misuse("%s on a communicator of one rank: device %d is current, the communicator is on device %d", c->function,
                       emu_current_device(), comm->device);
        }
        nccl_launch *launch = calloc(1, sizeof *launch);
        if (launch == NULL) {
            return ncclSystemError;
        }
        launch->comm = comm;
        result = add_stream(launch, c, comm->device);
        if (result == ncclSuccess) {
            result = add_op(launch, c->kind, c, c->send, c->recv, c->rooted ? c->root : 0, operator, hang);
        }
        if (result != ncclSuccess) {
            launch_drop(launch);
            return result;
        }
        return launch_enqueue(launch);
    }
    result = group_mode(comm->blocking);
    if (result != ncclSuccess) {
        return result;
    }
    nccl_launch *launch = group_launch_of(comm);
    if (launch == NULL) {
        return ncclSystemError;
    }
    result = add_stream(launch, c, comm->device);
    if (result != ncclSuccess) {
        return result;
    }
    if (c->shape != SHAPE_ONE) {
        return add_pairs(launch, c, hang);
    }
    return add_op(launch, c->kind, c, c->send, c->recv, c->root, operator, hang);
}

static ncclResult_t submit(const call *c) {
    emu_fault fault = emu_enter(c->function);
    ncclComm_t comm = c->comm;
    group_start();
    ncclResult_t result = comm_ready(comm, c->function);
    if (result != ncclSuccess) {
        return group_end(result);
    }
    bool outermost = comm_enter(comm, c->function);
    result = group_end(record(c, fault));
    if (outermost && comm->magic == COMM_MAGIC) {
        comm_leave(comm, outermost);
    }
    if (fault.kind == EMU_FAULT_ASYNC && (result == ncclSuccess || result == ncclInProgress)) {
        comm_fail(comm, (ncclResult_t)fault.code);
    }
    if (result == ncclInProgress) {
        result = (ncclResult_t)atomic_load(&comm->state);
    }
    return result;
}

API(ncclResult_t, ncclAllReduce, const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
    ncclComm_t comm, cudaStream_t stream) {
    return submit(&(call){.function = "ncclAllReduce", .kind = OP_ALL_REDUCE, .send = send, .recv = recv, .count = count,
                          .type = type, .op = op, .comm = comm, .stream = stream});
}

API(ncclResult_t, ncclReduce, const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
    ncclComm_t comm, cudaStream_t stream) {
    return submit(&(call){.function = "ncclReduce", .kind = OP_REDUCE, .send = send, .recv = recv, .count = count, .type = type,
                          .op = op, .root = root, .rooted = true, .comm = comm, .stream = stream});
}

API(ncclResult_t, ncclBroadcast, const void *send, void *recv, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
    cudaStream_t stream) {
    return submit(&(call){.function = "ncclBroadcast", .kind = OP_BROADCAST, .send = send, .recv = recv, .count = count,
                          .type = type, .root = root, .rooted = true, .comm = comm, .stream = stream});
}

API(ncclResult_t, ncclBcast, void *buffer, size_t count, ncclDataType_t type, int root, ncclComm_t comm, cudaStream_t stream) {
    return submit(&(call){.function = "ncclBcast", .kind = OP_BROADCAST, .send = buffer, .recv = buffer, .count = count,
                          .type = type, .root = root, .rooted = true, .comm = comm, .stream = stream});
}

API(ncclResult_t, ncclReduceScatter, const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
    ncclComm_t comm, cudaStream_t stream) {
    return submit(&(call){.function = "ncclReduceScatter", .kind = OP_REDUCE_SCATTER, .send = send, .recv = recv, .count = count,
                          .type = type, .op = op, .comm = comm, .stream = stream});
}

API(ncclResult_t, ncclAllGather, const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm,
    cudaStream_t stream) {
    return submit(&(call){.function = "ncclAllGather", .kind = OP_ALL_GATHER, .send = send, .recv = recv, .count = count,
                          .type = type, .comm = comm, .stream = stream});
}

API(ncclResult_t, ncclSend, const void *send, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
    return submit(&(call){.function = "ncclSend", .kind = OP_SEND, .send = send, .count = count, .type = type, .root = peer,
                          .rooted = true, .comm = comm, .stream = stream});
}

API(ncclResult_t, ncclRecv, void *recv, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
    return submit(&(call){.function = "ncclRecv", .kind = OP_RECV, .recv = recv, .count = count, .type = type, .root = peer,
                          .rooted = true, .comm = comm, .stream = stream});
}

#if EMU_NCCL_VERSION >= 22803
API(ncclResult_t, ncclAlltoAll, const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm,
    cudaStream_t stream) {
    if (send == recv && count > 0) {
        emu_misuse("ncclAlltoAll in place, which NCCL does not support");
    }
    return submit(&(call){.function = "ncclAlltoAll", .kind = OP_BROADCAST, .shape = SHAPE_ALL_TO_ALL, .send = send, .recv = recv,
                          .count = count, .type = type, .comm = comm, .stream = stream});
}

API(ncclResult_t, ncclGather, const void *send, void *recv, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
    cudaStream_t stream) {
    return submit(&(call){.function = "ncclGather", .kind = OP_BROADCAST, .shape = SHAPE_GATHER, .send = send, .recv = recv,
                          .count = count, .type = type, .root = root, .rooted = true, .comm = comm, .stream = stream});
}

API(ncclResult_t, ncclScatter, const void *send, void *recv, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
    cudaStream_t stream) {
    return submit(&(call){.function = "ncclScatter", .kind = OP_BROADCAST, .shape = SHAPE_SCATTER, .send = send, .recv = recv,
                          .count = count, .type = type, .root = root, .rooted = true, .comm = comm, .stream = stream});
}
#endif

/* ---- pre-multiplied sums ------------------------------------------------------------------------------------------------- */

static _Atomic int operators_made;

API(ncclResult_t, ncclRedOpCreatePreMulSum, ncclRedOp_t *op, void *scalar, ncclDataType_t type, ncclScalarResidence_t residence,
    ncclComm_t comm) {
    emu_fault fault = emu_enter("ncclRedOpCreatePreMulSum");
    if (fault.kind == EMU_FAULT_CODE) {
        nccl_warn("ncclRedOpCreatePreMulSum fails by order of a test");
        return (ncclResult_t)fault.code;
    }
    ncclResult_t result = comm_ready(comm, "ncclRedOpCreatePreMulSum");
    if (result != ncclSuccess) {
        return result;
    }
    if (fault.kind == EMU_FAULT_HANG) {
        return comm_hang(comm, "ncclRedOpCreatePreMulSum");
    }
    if (op == NULL || scalar == NULL) {
        return REFUSE(ncclInvalidArgument, "ncclRedOpCreatePreMulSum : %s argument is NULL", op == NULL ? "op" : "scalar");
    }
    if ((int)type < 0 || (int)type >= NCCL_TYPES || (residence != ncclScalarDevice && residence != ncclScalarHostImmediate)) {
        return REFUSE(ncclInvalidArgument, "ncclRedOpCreatePreMulSum : invalid type %d or residence %d", (int)type, (int)residence);
    }
    bool outermost = comm_enter(comm, "ncclRedOpCreatePreMulSum");
    nccl_operator *made = calloc(1, sizeof *made);
    if (made == NULL) {
        result = ncclSystemError;
    } else {
        made->type = type;
        /* No handle is given out twice in a process, so that one of another communicator is known to be wrong. */
        made->handle = ncclNumOps + (int)((unsigned)atomic_fetch_add(&operators_made, 1) % (INT_MAX - ncclNumOps));
        if (residence == ncclScalarDevice) {
            made->device_scalar = (uint64_t)(uintptr_t)scalar;
        } else {
            made->factor = nccl_scalar_factor(type, scalar);
        }
        made->next = comm->operators;
        comm->operators = made;
        *op = (ncclRedOp_t)made->handle;
        emu_count("reduction operators", 1);
        if (fault.kind == EMU_FAULT_ASYNC) {
            comm_fail(comm, (ncclResult_t)fault.code);
        }
    }
    comm_leave(comm, outermost);
    return result;
}

API(ncclResult_t, ncclRedOpDestroy, ncclRedOp_t op, ncclComm_t comm) {
    emu_fault fault = emu_enter("ncclRedOpDestroy");
    if (fault.kind == EMU_FAULT_CODE) {
        nccl_warn("ncclRedOpDestroy fails by order of a test");
        return (ncclResult_t)fault.code;
    }
    ncclResult_t result = comm_check(comm, "ncclRedOpDestroy");
    if (result != ncclSuccess) {
        return result;
    }
    if (fault.kind == EMU_FAULT_HANG) {
        return comm_hang(comm, "ncclRedOpDestroy");
    }
    bool outermost = comm_enter(comm, "ncclRedOpDestroy");
    nccl_operator **link = &comm->operators;
    while (*link != NULL && (*link)->handle != (int)op) {
        link = &(*link)->next;
    }
    if (*link == NULL) {
        result = REFUSE(ncclInvalidArgument, "ncclRedOpDestroy : operator %d %s", (int)op,
                        (int)op >= 0 && op < ncclNumOps ? "is a NCCL builtin operator" : "unknown to this communicator");
    } else {
        nccl_operator *dead = *link;
        *link = dead->next;
        free(dead);
        emu_count("reduction operators", -1);
    }
    comm_leave(comm, outermost);
    return result;
}
