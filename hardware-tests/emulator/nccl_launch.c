/*
 * Launches: what a group does on one communicator, as one task in each of its streams. It starts when all of these streams
 * have reached it and holds them until its last operation is over. Launches of a communicator run one after the other in the
 * order in which they were made, on whatever streams, as NCCL's kernels do.
 */
#include <stdlib.h>
#include <unistd.h>

#include "nccl_op.h"

typedef struct {
    emu_task task;
    nccl_launch *launch;
    bool reached;
} launch_task;

static void launch_free(nccl_launch *launch) {
    for (nccl_op *op = launch->first, *next; op != NULL; op = next) {
        next = op->next;
        op_free(op);
    }
    free(launch->handles);
    free(launch->streams);
    free(launch);
}

void launch_drop(nccl_launch *launch) {
    launch_free(launch);
}

/* ---- on the device's thread --------------------------------------------------------------------------- */

static void start(nccl_launch *launch) {
    ncclComm_t comm = launch->comm;
    launch->started = true;
    atomic_fetch_add(&comm->running, 1);
    for (nccl_op *op = launch->first; op != NULL; op = op->next) {
        uint64_t *counter = op->kind == OP_SEND   ? &comm->sent[op->root]
                            : op->kind == OP_RECV ? &comm->received[op->root]
                                                  : &comm->collectives;
        op->number = (*counter)++;
    }
}

static void finish(nccl_launch *launch) {
    ncclComm_t comm = launch->comm;
    launch->over = true;
    /* A launch that left without its turn keeps its number: nobody behind it may start, they all leave too. */
    if (!launch->abandoned) {
        atomic_store(&comm->served, launch->number + 1);
    }
    if (launch->started) {
        atomic_fetch_sub(&comm->running, 1);
    }
    atomic_fetch_sub(&comm->pending, 1);
    if (launch->stream_count > 1 || atomic_load(&comm->pending) > 0) {
        comm_wake_self(comm);
    }
}

static emu_progress task_progress(emu_task *task) {
    launch_task *mine = (launch_task *)task;
    nccl_launch *launch = mine->launch;
    ncclComm_t comm = launch->comm;
    if (!mine->reached) {
        mine->reached = true;
        launch->reached++;
    }
    if (launch->over) {
        return EMU_DONE;
    }
    if (emu_device_fault(comm->device) != 0) {
        atomic_store(&comm->broken, 1);
    }
    if (atomic_load(&comm->abort) || atomic_load(&comm->cancelled) || atomic_load(&comm->broken)) {
        launch->abandoned = true;
        finish(launch);
        return EMU_DONE;
    }
    if (launch->reached < launch->stream_count || atomic_load(&comm->served) != launch->number) {
        return EMU_BLOCKED;
    }
    if (!launch->started) {
        start(launch);
    }
    bool rest = false;
    for (nccl_op *op = launch->first; op != NULL; op = op->next) {
        if (op->phase == OP_OVER) {
            continue;
        }
        emu_progress progress = op_progress(comm, op);
        if (progress == EMU_WORKED) {
            return EMU_WORKED;
        }
        rest |= progress == EMU_BLOCKED;
    }
    if (rest) {
        /* A fault that an operation just met ends the launch in the next round. */
        return emu_device_fault(comm->device) != 0 ? EMU_WORKED : EMU_BLOCKED;
    }
    finish(launch);
    return EMU_DONE;
}

static void task_release(emu_task *task) {
    launch_task *mine = (launch_task *)task;
    nccl_launch *launch = mine->launch;
    ncclComm_t comm = launch->comm;
    free(mine);
    if (atomic_fetch_sub(&launch->references, 1) == 1) {
        if (launch->captured) {
            pthread_mutex_destroy(&launch->repeating);
            atomic_fetch_sub(&comm->graphs, 1);
        }
        launch_free(launch);
        comm_release_clique(comm);
    }
}

/* Gives a launch its turn. */
static void number(nccl_launch *launch) {
    ncclComm_t comm = launch->comm;
    launch->number = atomic_fetch_add(&comm->launched, 1);
    atomic_fetch_add(&comm->pending, 1);
}

static emu_task *task_clone(const emu_task *task);

static launch_task *task_of(nccl_launch *launch) {
    launch_task *task = calloc(1, sizeof *task);
    if (task != NULL) {
        task->task.progress = task_progress;
        task->task.release = task_release;
        task->task.clone = task_clone;
        task->launch = launch;
    }
    return task;
}

/* The same operations again, of the same communicator, for another run. */
static nccl_launch *copy_of(const nccl_launch *launch) {
    nccl_launch *copy = calloc(1, sizeof *copy);
    if (copy == NULL) {
        abort();
    }
    copy->comm = launch->comm;
    copy->stream_count = launch->stream_count;
    copy->ops = launch->ops;
    for (const nccl_op *op = launch->first; op != NULL; op = op->next) {
        nccl_op *again = malloc(sizeof *again);
        if (again == NULL) {
            abort();
        }
        *again = *op; /* a captured operation has never run: it holds nothing of a run */
        again->next = NULL;
        if (copy->last == NULL) {
            copy->first = again;
        } else {
            copy->last->next = again;
        }
        copy->last = again;
    }
    atomic_init(&copy->references, launch->stream_count);
    atomic_fetch_add(&launch->comm->clique_users, 1);
    number(copy);
    return copy;
}

/* A launch of the graph asks each of the tasks for a clone, once: together they are one launch. */
static emu_task *task_clone(const emu_task *task) {
    nccl_launch *captured = ((const launch_task *)task)->launch;
    pthread_mutex_lock(&captured->repeating);
    if (captured->repeat_rest == 0) {
        captured->repeat = copy_of(captured);
        captured->repeat_rest = captured->stream_count;
    }
    captured->repeat_rest--;
    launch_task *clone = task_of(captured->repeat);
    pthread_mutex_unlock(&captured->repeating);
    if (clone == NULL) {
        abort();
    }
    return &clone->task;
}

/* ---- on the launching thread --------------------------------------------------------------------------- */

/* Connections of collectives are made at their first use since 2.22, and at init before; those of send and receive have always
   been made at first use. Until then the ranks concerned wait for each other on the CPU. */
#define COLLECTIVES_CONNECT_LATE (EMU_NCCL_VERSION >= 22203)

void launch_announce(nccl_launch *launch) {
    ncclComm_t comm = launch->comm;
    clique *c = comm->clique;
    for (nccl_op *op = launch->first; op != NULL; op = op->next) {
        if (op->kind == OP_SEND) {
            atomic_store(&clique_channel_of(c, comm->rank, op->root)->sender_connected, 1);
        } else if (op->kind == OP_RECV) {
            atomic_store(&clique_channel_of(c, op->root, comm->rank)->receiver_connected, 1);
        } else {
            atomic_store(&c->ranks[comm->rank].connected, 1);
        }
    }
    clique_wake(c);
}

static bool all_connected(ncclComm_t comm, void *argument) {
    (void)argument;
    for (int r = 0; r < comm->count; r++) {
        if (!atomic_load(&comm->clique->ranks[r].connected)) {
            return false;
        }
    }
    return true;
}

static bool sender_connected(ncclComm_t comm, void *peer) {
    return atomic_load(&clique_channel_of(comm->clique, *(int *)peer, comm->rank)->sender_connected);
}

static bool receiver_connected(ncclComm_t comm, void *peer) {
    return atomic_load(&clique_channel_of(comm->clique, comm->rank, *(int *)peer)->receiver_connected);
}

ncclResult_t launch_connect(nccl_launch *launch) {
    ncclComm_t comm = launch->comm;
    for (nccl_op *op = launch->first; op != NULL; op = op->next) {
        ncclResult_t result = ncclSuccess;
        if (op->kind == OP_SEND) {
            if (!comm->connected_to[op->root]) {
                result = comm_wait(comm, receiver_connected, &op->root, "the first receive of a peer");
                comm->connected_to[op->root] = result == ncclSuccess;
            }
        } else if (op->kind == OP_RECV) {
            if (!comm->connected_from[op->root]) {
                result = comm_wait(comm, sender_connected, &op->root, "the first send of a peer");
                comm->connected_from[op->root] = result == ncclSuccess;
            }
        } else if (COLLECTIVES_CONNECT_LATE && !comm->connected) {
            result = comm_wait(comm, all_connected, NULL, "the first collective of all ranks");
            comm->connected = result == ncclSuccess;
        }
        if (result != ncclSuccess) {
            return result;
        }
    }
    return ncclSuccess;
}

static emu_stream *stream_of(cudaStream_t handle, int device) {
    int current = emu_current_device();
    if (current == device) {
        return emu_stream_of(handle);
    }
    /* NCCL launches on the communicator's device; there lies the default stream that is meant. */
    emu_set_current_device(device);
    emu_stream *stream = emu_stream_of(handle);
    emu_set_current_device(current);
    return stream;
}

/* Notices that some ranks have destroyed the communicator while others go on: then these wait for ever. */
static void look_for_destroyed_ranks(const nccl_launch *launch) {
    ncclComm_t comm = launch->comm;
    for (int r = 0; r < comm->count; r++) {
        if (atomic_load(&comm->clique->ranks[r].closing) < 2) {
            continue;
        }
        for (const nccl_op *op = launch->first; op != NULL; op = op->next) {
            bool pair = op->kind == OP_SEND || op->kind == OP_RECV;
            if (!pair || op->root == r) {
                emu_misuse("rank %d launches an operation that needs rank %d, which has destroyed its communicator", comm->rank, r);
                return;
            }
        }
    }
}

ncclResult_t launch_enqueue(nccl_launch *launch) {
    ncclComm_t comm = launch->comm;
    if (emu_device_fault(comm->device) != 0) {
        nccl_warn("Cuda failure %d on device %d: its context is lost", emu_device_fault(comm->device), comm->device);
        launch_free(launch);
        return ncclUnhandledCudaError;
    }
    look_for_destroyed_ranks(launch);
    int count = launch->stream_count, capturing = 0;
    launch_task **tasks = calloc((size_t)count, sizeof *tasks);
    ncclResult_t result = tasks == NULL ? ncclSystemError : ncclSuccess;
    for (int s = 0; s < count && result == ncclSuccess; s++) {
        launch->streams[s] = stream_of(launch->handles[s], comm->device);
        tasks[s] = task_of(launch);
        if (launch->streams[s] == NULL) {
            result = REFUSE(ncclUnhandledCudaError, "a stream of rank %d was destroyed before its group ended", comm->rank);
        } else if (tasks[s] == NULL) {
            result = ncclSystemError;
        } else {
            capturing += emu_stream_capturing(launch->streams[s]);
        }
    }
    if (result == ncclSuccess && capturing > 0 && capturing < count) {
        result = REFUSE(ncclInvalidUsage, "the streams of rank %d in one group: %d of %d are being captured", comm->rank,
                        capturing, count);
    }
    if (result != ncclSuccess) {
        for (int s = 0; tasks != NULL && s < count; s++) {
            free(tasks[s]);
        }
        free(tasks);
        launch_free(launch);
        return result;
    }
    launch->captured = capturing > 0;
    if (launch->captured) {
        pthread_mutex_init(&launch->repeating, NULL);
        atomic_fetch_add(&comm->graphs, 1);
    } else {
        number(launch);
    }
    atomic_fetch_add(&comm->clique_users, 1);
    atomic_store(&launch->references, count);
    /* The array is taken out: the launch may be over, and freed, when the last of its tasks has just been enqueued. */
    emu_stream **streams = launch->streams;
    launch->streams = NULL;
    for (int s = 0; s < count; s++) {
        emu_enqueue(streams[s], &tasks[s]->task);
    }
    free(streams);
    free(tasks);
    return ncclSuccess;
}
