/*
 * What the two CUDA libraries of this folder need of the machine beyond machine.h. NCCL's half does not
 * include it: the real NCCL has no more than CUDA's public interface either.
 */
#ifndef NCCL4J_EMULATOR_MACHINE_CUDA_H
#define NCCL4J_EMULATOR_MACHINE_CUDA_H

#include "machine.h"

#include <pthread.h>
#include <stdatomic.h>

#define EMU_DEVICES_AT_MOST 64
#define EMU_CAPTURED_STREAMS 32 /* of one capture, at most */

/* CUDA's codes that the machine itself answers. */
enum {
    CUDA_SUCCESS_ = 0,
    CUDA_INVALID_VALUE = 1,
    CUDA_OUT_OF_MEMORY = 2,
    CUDA_INITIALIZATION = 3,
    CUDA_INVALID_DIRECTION = 21,
    CUDA_INSUFFICIENT_DRIVER = 35,
    CUDA_NO_DEVICE = 100,
    CUDA_INVALID_DEVICE = 101,
    CUDA_INVALID_CONTEXT = 201,
    CUDA_PEER_UNSUPPORTED = 217,
    CUDA_INVALID_HANDLE = 400,
    CUDA_NOT_READY = 600,
    CUDA_ILLEGAL_ADDRESS = 700,
    CUDA_PEER_ALREADY_ENABLED = 704,
    CUDA_PEER_NOT_ENABLED = 705,
    CUDA_HOST_ALREADY_REGISTERED = 712,
    CUDA_HOST_NOT_REGISTERED = 713,
    CUDA_NOT_PERMITTED = 800,
    CUDA_NOT_SUPPORTED = 801,
    CUDA_CAPTURE_UNSUPPORTED = 900,
    CUDA_CAPTURE_INVALIDATED = 901,
    CUDA_CAPTURE_MERGE = 902,
    CUDA_CAPTURE_UNMATCHED = 903,
    CUDA_CAPTURE_UNJOINED = 904,
    CUDA_CAPTURE_ISOLATION = 905,
    CUDA_CAPTURE_IMPLICIT = 906,
    CUDA_CAPTURED_EVENT = 907,
    CUDA_CAPTURE_WRONG_THREAD = 908
};

/* ---- how the machine is set up ------------------------------------------------------------------- */

typedef struct {
    int devices;
    bool no_driver;
    int capability_major;
    int capability_minor;
    uint64_t device_memory; /* bytes that one device can hand out */
    int64_t deadlock_ns;    /* how long a synchronising call waits before it says that it never ends */
    bool allocation_waits;  /* whether cudaMalloc and cudaHostAlloc synchronise with the device */
    int cores;              /* of the host that this process may use */
    int pid;
} emu_configuration;

/* Read from the environment at the first call. */
const emu_configuration *emu_configured(void);
int64_t emu_now_ns(void);
/* Whether this process is a child, by fork, of one that used the machine: CUDA does not work there. */
bool emu_forked(void);

/* ---- objects that have a handle ------------------------------------------------------------------ */

typedef enum { EMU_STREAM = 1, EMU_EVENT, EMU_GRAPH, EMU_EXECUTABLE, EMU_POOL, EMU_CONTEXT, EMU_KINDS } emu_kind;

typedef struct emu_object emu_object;
struct emu_object {
    _Atomic(uint64_t) handle; /* 0 while it is in no one's hands */
    emu_kind kind;
    emu_object *next; /* of those that wait to be used again */
};

/* A zeroed object with a handle that lies in memory which nobody may touch. Dead objects stay mapped. */
void *emu_object_create(emu_kind kind, size_t size);
/* NULL for a handle that is none of this kind or is dead. */
void *emu_object_of(emu_kind kind, const void *handle);
/* Calls `visit` for each living one, which it may kill. */
void emu_object_each(emu_kind kind, void (*visit)(emu_object *, int), int argument);
/* The handle is dead from now on; false if it was already. The object itself stays until emu_object_recycle. */
bool emu_object_kill(emu_object *object);
void emu_object_recycle(emu_object *object);
void *emu_object_handle(const emu_object *object);

/* ---- contexts ------------------------------------------------------------------------------------ */

typedef struct {
    emu_object object;
    int device;
    bool primary;
    atomic_int retained; /* of a primary one; active while > 0 */
} emu_context;

emu_context *emu_primary_context(int device);
/* The calling thread's; NULL if it has none yet. */
emu_context *emu_context_current(void);
void emu_context_make_current(emu_context *context);

/* ---- memory -------------------------------------------------------------------------------------- */

typedef enum {
    EMU_UNBORN, /* its cudaMallocAsync has not had its turn */
    EMU_LIVE,
    EMU_DYING,  /* its cudaFreeAsync is in a stream */
    EMU_DEAD
} emu_life;

typedef struct emu_allocation {
    _Atomic(uint64_t) base;
    _Atomic(uint64_t) size;
    _Atomic(int) life;
    _Atomic(int) device;
    unsigned flags; /* of cudaHostAlloc */
    void *pool;     /* emu_pool it came from, or NULL */
    struct emu_allocation *next;
} emu_allocation;

/* Answers 0 or 2. */
int emu_device_allocate(int device, uint64_t size, emu_life life, void *pool, uint64_t *address);
/* The allocation that begins at an address of a device, alive or to be; NULL if there is none. */
emu_allocation *emu_device_allocation(uint64_t address);
void emu_device_release(emu_allocation *allocation);
/* All that is left of a device: cudaDeviceReset. */
void emu_device_release_all(int device);
uint64_t emu_device_used(int device);

int emu_host_allocate(int device, uint64_t size, unsigned flags, void **memory);
int emu_host_free(void *memory);
int emu_host_register(int device, void *memory, uint64_t size, unsigned flags);
int emu_host_unregister(void *memory);
/* The flags of pinned memory; false if it is none. */
bool emu_host_flags(const void *memory, unsigned *flags, bool *registered);

/* ---- streams and events -------------------------------------------------------------------------- */

/* A point of a stream: when all before it is done it is reached. Shared by all who look at it. */
typedef struct emu_mark emu_mark;
struct emu_mark {
    atomic_int references;
    atomic_int claim;                   /* for a copy that the caller waits for: 1 it runs, 2 it must not any more */
    _Atomic(int64_t) reached_ns;        /* 0 until then */
    _Atomic(uint64_t) waiting_devices;  /* a bit for each device whose streams wait */
    int device;
    emu_mark *next;
};

emu_mark *emu_mark_create(int device);
emu_mark *emu_mark_keep(emu_mark *mark);
void emu_mark_drop(emu_mark *mark);

typedef struct emu_capture emu_capture;

struct emu_stream {
    emu_object object;
    int device;
    emu_context *context;
    unsigned flags;
    int priority;
    uint64_t id;
    bool implicit; /* a default stream, which nobody created */
    /* below: under the device's lock unless atomic */
    emu_task *head;
    emu_task *tail;
    _Atomic(uint64_t) enqueued;
    _Atomic(uint64_t) completed;
    bool busy; /* in the device's list of streams with work */
    bool destroyed;
    uint64_t legacy_seen; /* up to which task of the legacy stream it already waits */
    emu_stream *busy_next, *busy_previous;
    emu_stream *all_next, *all_previous;
    atomic_int launches; /* of NCCL, in the background */
    _Atomic(emu_capture *) capture;
};

typedef struct {
    emu_object object;
    int device;
    unsigned flags;
    pthread_mutex_t lock;
    emu_mark *mark;       /* the last record's; NULL before the first */
    /* below: of a record in a capture, under the lock of captures */
    _Atomic(uint64_t) captured_in; /* the capture's id; 0 if the last record was a real one */
    int captured_mark;
    uint32_t captured_clock[EMU_CAPTURED_STREAMS];
} emu_event;

emu_stream *emu_stream_create(int device, unsigned flags, int priority);
/* Its pending work goes on. */
void emu_stream_destroy(emu_stream *stream);
emu_event *emu_event_create(int device, unsigned flags);
/* Its handle is dead; what waits for its mark goes on. */
void emu_event_retire(emu_event *event);
/* The stream of this thread: cudaStreamPerThread. */
emu_stream *emu_stream_per_thread(int device);
emu_stream *emu_stream_legacy(int device);

/* Waits until the stream has done `ticket` tasks. Answers 0, the device's fault, or -1 after `timeout_ns` (< 0: no limit). */
int emu_stream_wait(emu_stream *stream, uint64_t ticket, int64_t timeout_ns);
int emu_mark_wait(emu_mark *mark, int64_t timeout_ns);
/* Waits for all that has been put on the device. */
int emu_device_wait(int device, int64_t timeout_ns);
bool emu_device_idle(int device);
/* Destroys all streams and events of a device and forgets its fault. */
void emu_device_reset(int device);

/* Work of the CUDA runtime. What is captured is kept in the same form. */
typedef enum { EMU_OP_COPY, EMU_OP_FILL, EMU_OP_CALL, EMU_OP_RECORD, EMU_OP_AWAIT, EMU_OP_BORN, EMU_OP_DIE, EMU_OP_NOTHING } emu_operation_kind;

typedef struct {
    emu_operation_kind kind;
    const char *function; /* for messages */
    uint64_t to, from, size; /* COPY, FILL; `to` of BORN and DIE */
    int value;
    void *staged;            /* COPY: freed afterwards */
    emu_mark *mark;          /* RECORD, AWAIT; COPY and FILL: of a caller that waits, or NULL. Owned by the operation. */
    void (*call)(void *);    /* CALL */
    void (*callback)(void *, int, void *); /* CALL: cudaStreamAddCallback's form */
    void *argument;
} emu_operation;

/* Appends and returns the ticket to wait for. */
uint64_t emu_submit(emu_stream *stream, const emu_operation *operation);

const char *emu_error_name(int code);
const char *emu_error_text(int code);

/* Grows with each nccl4j_emulator_forget, which ends what was ordered to hang. */
unsigned emu_generation(void);

/* Whether all of it is done; for the legacy default stream also what it waits for implicitly. */
bool emu_stream_settled(emu_stream *stream);

/* Whether the calling thread runs a host function of a stream now. */
bool emu_in_host_function(void);

/* ---- capture ------------------------------------------------------------------------------------- */

/* What streams did between the beginning and the end of a capture, in order; launched by doing it again. */
typedef struct emu_recording emu_recording;

typedef struct {
    emu_object object;
    emu_recording *recording;
} emu_graph;

typedef struct {
    emu_object object;
    emu_recording *recording;
    int device;
    pthread_mutex_t lock;
    emu_stream **streams; /* of the recording's streams but the first, made at the first launch */
} emu_executable;

/* All answer 0 or CUDA's code. */
int emu_capture_begin(emu_stream *stream, int mode);
int emu_capture_end(emu_stream *stream, emu_recording **recording);
/* 0 none, 1 active, 2 invalidated. */
int emu_capture_status(emu_stream *stream);
uint64_t emu_capture_id(emu_stream *stream);
/* `code` comes back, and the capture is spoilt. */
int emu_capture_spoil(emu_stream *stream, int code);
/* Takes a stream out of its capture, which comes to nothing. */
void emu_capture_abandon(emu_stream *stream);
/* The operation is the capture's now. */
int emu_capture_operation(emu_stream *stream, const emu_operation *operation);
void emu_capture_task(emu_stream *stream, emu_task *task);
int emu_capture_record(emu_stream *stream, emu_event *event);
/* Also takes a stream into the capture of the event. `*captured`: whether it was a matter of a capture at all. */
int emu_capture_await(emu_stream *stream, emu_event *event, bool *captured);
/* For calls that are not allowed while a capture goes on: 0 or 900, which spoils the captures in question. */
int emu_capture_forbids(void);
/* Whether work on the legacy stream of a device would break into a capture: 0 or 906. */
int emu_capture_forbids_legacy(int device);
int emu_capture_exchange_mode(int mode);

emu_recording *emu_recording_keep(emu_recording *recording);
void emu_recording_drop(emu_recording *recording);
int emu_executable_launch(emu_executable *executable, emu_stream *stream);
void emu_executable_retire(emu_executable *executable);

#endif
