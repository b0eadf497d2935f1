/*
 * How operations run. Every rank's device thread brings its own part: it says that its stream has reached the operation
 * (arrives), and when all have, does its share of the work on the memory of all, which every process can reach. An
 * operation is over on a rank when all shares are done. What ranks disagree about is never noticed, as in NCCL: then it does
 * not end until it is aborted.
 */
#include "nccl_op.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    PIECE_BYTES = 256 * 1024, /* at most, in one go */
    SMALL_BYTES = 32 * 1024   /* up to this the last rank to arrive does everyone's share */
};

static const char *const kinds[] = {"all-reduce", "reduce", "broadcast", "reduce-scatter", "all-gather", "send", "receive"};

static bool mismatches_are_recorded(void) {
    const char *order = getenv("NCCL4J_EMULATOR_MISMATCH");
    return order != NULL && strcmp(order, "record") == 0;
}

/* ---- memory --------------------------------------------------------------------------------------- */

static uint64_t send_elements(const nccl_op *op, ncclComm_t comm) {
    switch (op->kind) {
    case OP_REDUCE_SCATTER:
        return op->count * (uint64_t)comm->count;
    case OP_BROADCAST:
        return comm->rank == op->root ? op->count : 0;
    case OP_RECV:
        return 0;
    default:
        return op->count;
    }
}

static uint64_t recv_elements(const nccl_op *op, ncclComm_t comm) {
    switch (op->kind) {
    case OP_ALL_GATHER:
        return op->count * (uint64_t)comm->count;
    case OP_REDUCE:
        return comm->rank == op->root ? op->count : 0;
    case OP_SEND:
        return 0;
    default:
        return op->count;
    }
}

static void *mapped(const emu_place *place) {
    if (place->space < 0) {
        return place->pid == getpid() ? (void *)(uintptr_t)place->offset : NULL;
    }
    return emu_map(place);
}

/* A kernel that touches what it may not: the device's context is lost from then on. */
static bool fault(ncclComm_t comm, const nccl_op *op, const char *which, uint64_t address, int code, const char *why) {
    char text[320];
    snprintf(text, sizeof text, "%s of rank %d on device %d: %s buffer 0x%llx: %s", kinds[op->kind], comm->rank, comm->device,
             which, (unsigned long long)address, why);
    emu_misuse("%s", text);
    emu_set_device_fault(comm->device, code, text);
    return false;
}

static bool clique_is_local(ncclComm_t comm) {
    for (int r = 0; r < comm->count; r++) {
        if (atomic_load(&comm->clique->ranks[r].pid) != getpid()) {
            return false;
        }
    }
    return true;
}

/* Finds this rank's memory; what other processes cannot reach is given a place that they can. */
static bool find_memory(ncclComm_t comm, nccl_op *op) {
    uint64_t size = nccl_type_size(op->type);
    uint64_t send = send_elements(op, comm) * size, recv = recv_elements(op, comm) * size;
    char why[200] = "";
    memset(&op->send_place, 0, sizeof op->send_place);
    memset(&op->recv_place, 0, sizeof op->recv_place);
    if (send > 0) {
        int code = emu_place_of(op->send, send, comm->device, &op->send_place, why);
        if (code != 0) {
            return fault(comm, op, "send", op->send, code, why);
        }
    }
    if (recv > 0) {
        int code = emu_place_of(op->recv, recv, comm->device, &op->recv_place, why);
        if (code != 0) {
            return fault(comm, op, "receive", op->recv, code, why);
        }
    }
    if (op->premultiplied && op->device_scalar != 0) {
        emu_place scalar;
        int code = emu_place_of(op->device_scalar, size, comm->device, &scalar, why);
        void *value = code == 0 ? mapped(&scalar) : NULL;
        if (value == NULL) {
            return fault(comm, op, "scalar", op->device_scalar, code == 0 ? 700 : code, why);
        }
        op->factor = nccl_scalar_factor(op->type, value);
    } else if (!op->premultiplied && op->op == ncclAvg) {
        op->factor = nccl_average_factor(op->type, comm->count);
    }
    if ((op->send_place.space < 0 && send > 0) || (op->recv_place.space < 0 && recv > 0)) {
        if (op->kind == OP_RECV || clique_is_local(comm)) {
            return true;
        }
        if (op->send_place.space < 0 && send > 0) {
            op->send_staging = emu_shared_allocate(send, &op->send_place);
            if (op->send_staging == NULL) {
                return fault(comm, op, "send", op->send, 2, "no memory for staging");
            }
            memcpy(op->send_staging, (const void *)(uintptr_t)op->send, send);
        }
        if (op->recv_place.space < 0 && recv > 0) {
            op->recv_staging = emu_shared_allocate(recv, &op->recv_place);
            if (op->recv_staging == NULL) {
                return fault(comm, op, "receive", op->recv, 2, "no memory for staging");
            }
        }
    }
    return true;
}

/* Brackets work on the memory of others, which ends for all as soon as one rank has left by force. */
static bool begin_touching(ncclComm_t comm) {
    clique *c = comm->clique;
    atomic_store(&c->ranks[comm->rank].busy, 1);
    if (atomic_load(&c->head->left) > 0) {
        atomic_store(&c->ranks[comm->rank].busy, 0);
        return false;
    }
    return true;
}

static void end_touching(ncclComm_t comm) {
    atomic_store(&comm->clique->ranks[comm->rank].busy, 0);
}

/* ---- collectives ------------------------------------------------------------------------------------ */

static uint64_t goal(const clique *c, uint64_t number) {
    return (number / CLIQUE_SLOTS + 1) * (uint64_t)c->count;
}

static bool agrees(ncclComm_t comm, const nccl_op *op) {
    const clique *c = comm->clique;
    const clique_arrival *first = clique_arrival_of(c, op->number, 0);
    for (int r = 1; r < c->count; r++) {
        const clique_arrival *other = clique_arrival_of(c, op->number, r);
        if (other->kind != first->kind || other->type != first->type || other->op != first->op ||
            other->root != first->root || other->count != first->count) {
            if (mismatches_are_recorded()) {
                emu_misuse("mismatch in operation %llu: rank 0 calls %s of %llu elements of type %d, op %d, root %d; rank %d "
                           "calls %s of %llu elements of type %d, op %d, root %d",
                           (unsigned long long)op->number, kinds[first->kind], (unsigned long long)first->count,
                           first->type, first->op, first->root, r, kinds[other->kind], (unsigned long long)other->count,
                           other->type, other->op, other->root);
            }
            return false;
        }
    }
    return true;
}

static bool map_all(ncclComm_t comm, nccl_op *op) {
    const clique *c = comm->clique;
    size_t n = (size_t)c->count;
    op->inputs = calloc(n, sizeof *op->inputs);
    op->outputs = calloc(n, sizeof *op->outputs);
    op->factors = calloc(n, sizeof *op->factors);
    uint64_t bytes = op->count * nccl_type_size(op->type);
    op->scratch = malloc(bytes < PIECE_BYTES ? bytes : PIECE_BYTES);
    if (op->inputs == NULL || op->outputs == NULL || op->factors == NULL || op->scratch == NULL) {
        return false;
    }
    for (int r = 0; r < c->count; r++) {
        const clique_arrival *arrival = clique_arrival_of(c, op->number, r);
        bool gives = op->kind != OP_BROADCAST || r == op->root;
        bool takes = op->kind != OP_REDUCE || r == op->root;
        op->inputs[r] = gives ? mapped(&arrival->send) : NULL;
        op->outputs[r] = takes ? mapped(&arrival->recv) : NULL;
        op->factors[r] = arrival->factor;
        if ((gives && op->inputs[r] == NULL) || (takes && op->outputs[r] == NULL)) {
            return false; /* its process is gone */
        }
    }
    return true;
}

/* Which elements a rank's share covers. */
static void set_share(ncclComm_t comm, nccl_op *op, int rank) {
    if (op->kind == OP_REDUCE_SCATTER || op->kind == OP_ALL_GATHER) {
        op->position = 0;
        op->end = op->count;
        return;
    }
    uint64_t n = (uint64_t)comm->count;
    uint64_t part = ((op->count + n - 1) / n + 63) & ~63ULL;
    op->position = part * (uint64_t)rank < op->count ? part * (uint64_t)rank : op->count;
    op->end = op->position + part < op->count ? op->position + part : op->count;
}

static void copy_unless_same(void *to, const void *from, uint64_t size) {
    if (to != from) {
        memmove(to, from, size);
    }
}

static void do_piece(ncclComm_t comm, nccl_op *op, int rank, uint64_t from, uint64_t count) {
    int n = comm->count;
    uint64_t size = nccl_type_size(op->type), bytes = count * size;
    bool copies = op->kind == OP_BROADCAST || op->kind == OP_ALL_GATHER || (n == 1 && !op->premultiplied);
    if (copies) {
        uint64_t to = op->kind == OP_ALL_GATHER ? op->count * (uint64_t)rank + from : from;
        int source = op->kind == OP_BROADCAST ? op->root : rank;
        for (int r = 0; r < n; r++) {
            if (op->outputs[r] != NULL) {
                copy_unless_same((char *)op->outputs[r] + to * size, (char *)op->inputs[source] + from * size, bytes);
            }
        }
        return;
    }
    uint64_t at = op->kind == OP_REDUCE_SCATTER ? op->count * (uint64_t)rank + from : from;
    const void *inputs[CLIQUE_RANKS];
    for (int r = 0; r < n; r++) {
        inputs[r] = (char *)op->inputs[r] + at * size;
    }
    nccl_reduction reduction = nccl_reduction_of(op->type, op->op, op->premultiplied, n);
    nccl_reduce(&reduction, op->scratch, inputs, op->factors, n, count);
    for (int r = 0; r < n; r++) {
        if (op->outputs[r] != NULL && (op->kind != OP_REDUCE_SCATTER || r == rank)) {
            memcpy((char *)op->outputs[r] + from * size, op->scratch, bytes);
        }
    }
}

/* A piece of a rank's share; true when the share is done. */
static bool share_piece(ncclComm_t comm, nccl_op *op, int rank) {
    uint64_t most = PIECE_BYTES / nccl_type_size(op->type);
    uint64_t count = op->end - op->position < most ? op->end - op->position : most;
    if (count > 0) {
        do_piece(comm, op, rank, op->position, count);
        op->position += count;
    }
    return op->position == op->end;
}

static emu_progress stuck(nccl_op *op) {
    op->phase = OP_STUCK;
    return EMU_BLOCKED;
}

static emu_progress finish_collective(ncclComm_t comm, nccl_op *op) {
    if (op->recv_staging != NULL) {
        memcpy((void *)(uintptr_t)op->recv, op->recv_staging, recv_elements(op, comm) * nccl_type_size(op->type));
    }
    op->phase = OP_OVER;
    return EMU_DONE;
}

static emu_progress collective_progress(ncclComm_t comm, nccl_op *op) {
    clique *c = comm->clique;
    clique_slot *slot = &c->slots[op->number % CLIQUE_SLOTS];
    uint64_t all = goal(c, op->number), n = (uint64_t)c->count;
    bool small = op->count * nccl_type_size(op->type) <= SMALL_BYTES;
    switch (op->phase) {
    case OP_NEW: {
        if (atomic_load(&slot->shares) < all - n) {
            return EMU_BLOCKED; /* the slot's last operation is not over */
        }
        if (!find_memory(comm, op)) {
            return stuck(op);
        }
        clique_arrival *arrival = clique_arrival_of(c, op->number, comm->rank);
        arrival->kind = op->kind;
        arrival->type = op->type;
        arrival->op = op->premultiplied ? ncclNumOps : op->op;
        arrival->root = op->root;
        arrival->count = op->count;
        arrival->send = op->send_place;
        arrival->recv = op->recv_place;
        arrival->factor = op->factor;
        bool last = atomic_fetch_add(&slot->arrivals, 1) + 1 == all;
        op->phase = OP_WAITING;
        if (!last) {
            return EMU_WORKED;
        }
        if (small) {
            if (!agrees(comm, op)) {
                return stuck(op);
            }
            if (!begin_touching(comm)) {
                return stuck(op);
            }
            bool there = map_all(comm, op);
            for (int r = 0; there && r < c->count; r++) {
                set_share(comm, op, r);
                while (!share_piece(comm, op, r)) {
                }
            }
            end_touching(comm);
            if (!there) {
                return stuck(op);
            }
            atomic_fetch_add(&slot->shares, n);
        }
        clique_wake(c);
        return small ? finish_collective(comm, op) : EMU_WORKED;
    }
    case OP_WAITING:
        if (atomic_load(&slot->arrivals) < all) {
            return EMU_BLOCKED;
        }
        if (small) {
            return atomic_load(&slot->shares) >= all ? finish_collective(comm, op) : EMU_BLOCKED;
        }
        if (!agrees(comm, op) || !map_all(comm, op)) {
            return stuck(op);
        }
        set_share(comm, op, comm->rank);
        op->phase = OP_SHARING;
        return EMU_WORKED;
    case OP_SHARING: {
        if (!begin_touching(comm)) {
            return stuck(op);
        }
        bool done = share_piece(comm, op, comm->rank);
        end_touching(comm);
        if (done) {
            op->phase = OP_DRAINING;
            if (atomic_fetch_add(&slot->shares, 1) + 1 == all) {
                clique_wake(c);
            }
        }
        return EMU_WORKED;
    }
    case OP_DRAINING:
        return atomic_load(&slot->shares) >= all ? finish_collective(comm, op) : EMU_BLOCKED;
    default:
        return op->phase == OP_OVER ? EMU_DONE : EMU_BLOCKED;
    }
}

/* ---- send and receive ------------------------------------------------------------------------------- */

static void wake_peer(ncclComm_t comm, int peer) {
    clique_rank *rank = &comm->clique->ranks[peer];
    emu_wake(atomic_load(&rank->pid), rank->device);
}

static emu_progress send_progress(ncclComm_t comm, nccl_op *op) {
    clique_message *message =
        &clique_channel_of(comm->clique, comm->rank, op->root)->messages[op->number % CLIQUE_MESSAGES];
    switch (op->phase) {
    case OP_NEW:
        if (op->number >= CLIQUE_MESSAGES && atomic_load(&message->copied) != op->number + 1 - CLIQUE_MESSAGES) {
            return EMU_BLOCKED;
        }
        if (!find_memory(comm, op)) {
            return stuck(op);
        }
        message->from = op->send_place;
        message->count = op->count;
        message->type = (int32_t)op->type;
        atomic_store(&message->posted, op->number + 1);
        wake_peer(comm, op->root);
        op->phase = OP_WAITING;
        return EMU_WORKED;
    case OP_WAITING:
        if (atomic_load(&message->copied) < op->number + 1) {
            return EMU_BLOCKED;
        }
        op->phase = OP_OVER;
        return EMU_DONE;
    default:
        return op->phase == OP_OVER ? EMU_DONE : EMU_BLOCKED;
    }
}

static emu_progress receive_progress(ncclComm_t comm, nccl_op *op) {
    clique_message *message =
        &clique_channel_of(comm->clique, op->root, comm->rank)->messages[op->number % CLIQUE_MESSAGES];
    uint64_t size = nccl_type_size(op->type);
    switch (op->phase) {
    case OP_NEW:
        if (!find_memory(comm, op)) {
            return stuck(op);
        }
        op->phase = OP_WAITING;
        return EMU_WORKED;
    case OP_WAITING:
        if (atomic_load(&message->posted) < op->number + 1) {
            return EMU_BLOCKED;
        }
        if (message->count != op->count || message->type != (int32_t)op->type) {
            if (mismatches_are_recorded()) {
                emu_misuse("mismatch in message %llu from rank %d to rank %d: sent %llu elements of type %d, received %llu of type %d",
                           (unsigned long long)op->number, op->root, comm->rank, (unsigned long long)message->count,
                           message->type, (unsigned long long)op->count, (int)op->type);
            }
            return stuck(op);
        }
        op->inputs = calloc(1, sizeof *op->inputs);
        op->outputs = calloc(1, sizeof *op->outputs);
        if (op->inputs == NULL || op->outputs == NULL) {
            return stuck(op);
        }
        op->inputs[0] = mapped(&message->from);
        op->outputs[0] = mapped(&op->recv_place);
        if (op->inputs[0] == NULL || op->outputs[0] == NULL) {
            return stuck(op);
        }
        op->position = 0;
        op->end = op->count * size;
        op->phase = OP_SHARING;
        return EMU_WORKED;
    case OP_SHARING: {
        if (!begin_touching(comm)) {
            return stuck(op);
        }
        uint64_t rest = op->end - op->position, bytes = rest < PIECE_BYTES ? rest : PIECE_BYTES;
        copy_unless_same((char *)op->outputs[0] + op->position, (char *)op->inputs[0] + op->position, bytes);
        end_touching(comm);
        op->position += bytes;
        if (op->position < op->end) {
            return EMU_WORKED;
        }
        atomic_store(&message->copied, op->number + 1);
        wake_peer(comm, op->root);
        op->phase = OP_OVER;
        return EMU_DONE;
    }
    default:
        return op->phase == OP_OVER ? EMU_DONE : EMU_BLOCKED;
    }
}

emu_progress op_progress(ncclComm_t comm, nccl_op *op) {
    if (op->hang) {
        return EMU_BLOCKED;
    }
    switch (op->kind) {
    case OP_SEND:
        return send_progress(comm, op);
    case OP_RECV:
        return receive_progress(comm, op);
    default:
        return collective_progress(comm, op);
    }
}

void op_free(nccl_op *op) {
    if (op->send_staging != NULL) {
        emu_shared_free(op->send_staging);
    }
    if (op->recv_staging != NULL) {
        emu_shared_free(op->recv_staging);
    }
    free(op->inputs);
    free(op->outputs);
    free(op->factors);
    free(op->scratch);
    free(op);
}
