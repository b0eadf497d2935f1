/* Communicators of this process, groups of this thread, and the work that they launch. */
#ifndef NCCL4J_EMULATOR_NCCL_COMM_H
#define NCCL4J_EMULATOR_NCCL_COMM_H

#include <pthread.h>

#include "nccl_clique.h"
#include "nccl_reduce.h"

#pragma GCC visibility push(hidden)

/* ---- log ----------------------------------------------------------------------------------------- */

/* A warning: kept as the process' last error, and printed where NCCL_DEBUG asks for it. */
void nccl_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));
void nccl_info(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* NCCL_DEBUG=VERSION and above: one line, once. */
void nccl_show_version(void);

/* Refuses a call that a correct caller never makes: a warning, and misuse. */
#define REFUSE(code, ...) (nccl_warn(__VA_ARGS__), emu_misuse(__VA_ARGS__), (code))

/* ---- communicators -------------------------------------------------------------------------------- */

typedef struct nccl_operator {
    struct nccl_operator *next;
    int handle;
    ncclDataType_t type;
    uint64_t device_scalar; /* where the scalar lies; 0: `factor` holds it */
    uint64_t factor;
} nccl_operator;

typedef struct nccl_registration {
    struct nccl_registration *next;
    uint64_t address, size;
    int references;
} nccl_registration;

struct ncclComm {
    _Atomic uint64_t magic; /* a dead communicator keeps its memory, so that its handle is known to be dead */
    ncclComm_t next;        /* of those alive, or of the dead */
    int rank, count, device;
    ncclConfig_t config;
    bool blocking;

    _Atomic int state;      /* what ncclCommGetAsyncError answers */
    _Atomic int abort;      /* its kernels and waiting calls leave */
    _Atomic int cancelled;  /* revoked: its kernels leave, new ones are refused */
    _Atomic int broken;     /* its device was lost under it: nothing of it runs any more, whatever becomes of the device */
    _Atomic int ended;      /* destroyed, aborted or failed: set by who frees it */
    _Atomic int finalized;
    _Atomic int users;      /* calls and background threads inside, which an abort waits for */
    _Atomic int inside;     /* the thread whose call is inside, to notice a second one */
    bool suspended;
    bool shares;            /* resources with its parent or child */
    ncclComm_t parent;      /* while it is made: an abort of that one ends it too */

    clique *clique;
    _Atomic int clique_users;
    _Atomic int joined; /* holds its rank's place in the clique */

    /* Launches are numbered and run in that order, on whatever streams they are. */
    _Atomic uint64_t launched, served;
    _Atomic int running; /* launches that touch memory now */
    _Atomic int pending; /* launches that are not over */
    _Atomic int graphs;  /* captured launches that a graph still holds */

    /* Touched by the device's thread alone. */
    uint64_t collectives;
    uint64_t *sent, *received;
    /* Touched by the launching thread alone. */
    bool connected;
    bool *connected_to, *connected_from;
    uint64_t meetings, shrinks, growths;
    nccl_operator *operators;
    nccl_registration *registrations;
};

#define COMM_MAGIC 0x6e63636c34636f6dULL
#define COMM_DEAD 0x6465616463636c21ULL

/* ncclInvalidArgument for a handle that is none, or is dead. */
ncclResult_t comm_check(ncclComm_t comm, const char *function);
/* Also whether it may be used now: the code of its state if not. */
ncclResult_t comm_ready(ncclComm_t comm, const char *function);
/* Brackets a call, to notice two threads in one communicator; returns whether it is the outermost. */
bool comm_enter(ncclComm_t comm, const char *function);
void comm_leave(ncclComm_t comm, bool outermost);
/* Sets the asynchronous error unless there is one. */
void comm_fail(ncclComm_t comm, ncclResult_t code);
/* From now on the rank counts as dead for its peers. */
void comm_lose(ncclComm_t comm);
/* Drops a use of the clique's block. */
void comm_release_clique(ncclComm_t comm);
/* Waits until `reached` says so. Answers success, the aborted communicator's internal error, or ncclRemoteError when a rank
   that the clique knows has gone. */
ncclResult_t comm_wait(ncclComm_t comm, bool (*reached)(ncclComm_t, void *), void *argument, const char *what);
/* All ranks meet: true when all have come as often as this one. */
ncclResult_t comm_meet(ncclComm_t comm, int color, int key, const char *what);
void comm_wake_self(ncclComm_t comm);
/* For a call of the host that tests have ordered to hang. */
ncclResult_t comm_hang(ncclComm_t comm, const char *function);
int64_t nccl_now_ns(void);

/* ---- groups ---------------------------------------------------------------------------------------- */

/* Work of a call that creates, changes or ends communicators; run when the group ends, each in a thread of its own if there
   are several. */
typedef struct nccl_job nccl_job;
struct nccl_job {
    nccl_job *next;
    ncclResult_t (*run)(nccl_job *);
    void (*drop)(nccl_job *, ncclResult_t); /* instead of run, when the group failed */
    ncclComm_t comm;                        /* whose state says when it is over */
    bool blocking;
    bool creates;                           /* an ncclCommInit* */
    ncclResult_t result;
    pthread_t thread;
};

/* Whether what this thread waits for has been called off. */
bool group_cancelled(void);
void group_start(void);
/* Ends a level; the outermost launches. `result` of the call that opened it sticks. */
ncclResult_t group_end(ncclResult_t result);
/* Only the start's level is left standing: the leak that ncclCommDestroy has. */
int group_depth(void);
/* Refuses to mix blocking and non-blocking communicators. */
ncclResult_t group_mode(bool blocking);
void group_add_job(nccl_job *job);

/* ---- operations ------------------------------------------------------------------------------------ */

typedef enum { OP_ALL_REDUCE, OP_REDUCE, OP_BROADCAST, OP_REDUCE_SCATTER, OP_ALL_GATHER, OP_SEND, OP_RECV } op_kind;

typedef struct nccl_op nccl_op;

typedef struct nccl_launch nccl_launch;
/* What a group does on one communicator. */
struct nccl_launch {
    nccl_launch *next;
    ncclComm_t comm;
    nccl_op *first, *last;
    cudaStream_t *handles;
    emu_stream **streams;
    int stream_count;
    int ops;
    /* below: the device's thread */
    uint64_t number;
    int reached;
    bool started, over, abandoned;
    _Atomic int references;
    /* below: of a captured one, which is never run itself */
    bool captured;
    pthread_mutex_t repeating;
    nccl_launch *repeat; /* being made by a launch of the graph, a task after the other */
    int repeat_rest;
};

/* Of this thread's group. */
nccl_launch *group_launch_of(ncclComm_t comm);

/* Says to the peers that this rank has come to where it needs them, then waits until they have too. */
void launch_announce(nccl_launch *launch);
ncclResult_t launch_connect(nccl_launch *launch);
ncclResult_t launch_enqueue(nccl_launch *launch);
void launch_drop(nccl_launch *launch);

#pragma GCC visibility pop

#endif
