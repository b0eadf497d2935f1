/* One operation in a launch. */
#ifndef NCCL4J_EMULATOR_NCCL_OP_H
#define NCCL4J_EMULATOR_NCCL_OP_H

#include "nccl_comm.h"

#pragma GCC visibility push(hidden)

struct nccl_op {
    nccl_op *next;
    op_kind kind;
    ncclDataType_t type;
    int op;
    bool premultiplied;
    uint64_t device_scalar, factor; /* of a pre-multiplied sum */
    int root;                       /* or the peer */
    uint64_t count;
    uint64_t send, recv; /* addresses; 0 where the rank has none */
    bool hang;           /* ordered by a test */

    /* below: the device's thread, while it runs */
    enum { OP_NEW, OP_WAITING, OP_SHARING, OP_DRAINING, OP_STUCK, OP_OVER } phase;
    uint64_t number;
    uint64_t position, end;
    emu_place send_place, recv_place;
    void *send_staging, *recv_staging;
    void **inputs, **outputs;
    uint64_t *factors;
    void *scratch;
};

/* Does a piece of it, on the thread of the communicator's device. */
emu_progress op_progress(ncclComm_t comm, nccl_op *op);
void op_free(nccl_op *op);

#pragma GCC visibility pop

#endif
