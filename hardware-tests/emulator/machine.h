/*
 * The emulated machine: devices in host memory, with real streams. The CUDA runtime, the CUDA driver's
 * library and NCCL of this folder stand on it; it is one shared library, so that all of a process see
 * the same devices. Nothing here is a GPU, and no result of it may be called one.
 *
 * Names: emu_ is this machine's; cuda*, cu* and nccl* are the interfaces that it stands in for.
 */
#ifndef NCCL4J_EMULATOR_MACHINE_H
#define NCCL4J_EMULATOR_MACHINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- devices ----------------------------------------------------------------------------------- */

/* NCCL4J_EMULATOR_DEVICES, default 8. */
int emu_device_count(void);
/* The calling OS thread's current device, 0 at first. The same for CUDA and NCCL. */
int emu_current_device(void);
void emu_set_current_device(int device);

/* A sticky error of the device's context: every later CUDA call of it answers this code. 0 if none. It is
   recorded as misuse with `why`, unless that is NULL: a fault that a test has ordered. */
int emu_device_fault(int device);
void emu_set_device_fault(int device, int cuda_error, const char *why);

/* ---- memory ------------------------------------------------------------------------------------ */

/*
 * Device addresses lie in a window of the address space that nobody may touch (PROT_NONE): Java, or C
 * that takes one for host memory, crashes. What they stand for lies in files without a name (memfd),
 * which other processes of the job can map. Addresses are not given out again soon, so that memory
 * that was freed is noticed.
 */
typedef enum {
    EMU_PAGEABLE, /* host memory that CUDA does not know */
    EMU_PINNED,   /* host memory from cudaHostAlloc or cudaHostRegister */
    EMU_DEVICE,   /* device memory that is allocated now */
    EMU_FREED     /* an address of a device's window where nothing is allocated */
} emu_memory_kind;

typedef struct {
    emu_memory_kind kind;
    int device;      /* of device memory; of pinned memory the device that was current */
    uint64_t base;   /* of the allocation */
    uint64_t size;
} emu_range;

/* What lies at an address; never fails. */
void emu_find(uint64_t address, emu_range *range);

/* Where memory can be found by every process of the job. */
typedef struct {
    int32_t pid;
    int32_t space;   /* which file of that process; -1: memory that only that process can reach */
    uint64_t offset; /* in the file; for space -1 the address */
    uint64_t size;
} emu_place;

/*
 * The place of [address, address + size), which must lie in one allocation. Answers 0, or CUDA's code
 * for what a kernel of `device` would meet there: 700 (illegal address) for freed or pageable memory,
 * memory of another device, or a range beyond its allocation; `why` (of 200 bytes) says it in words. To be
 * asked when the work runs, not when it is enqueued: memory of cudaMallocAsync is there from its turn on.
 */
int emu_place_of(uint64_t address, uint64_t size, int device, emu_place *place, char *why);

/* Where this process can read and write a place; NULL if the process that owns it is gone. Cached. */
void *emu_map(const emu_place *place);

/* Memory of this process that every process of the job can reach, for staging; never counted as a
   device's. */
void *emu_shared_allocate(uint64_t size, emu_place *place);
void emu_shared_free(void *memory);

/* ---- streams ----------------------------------------------------------------------------------- */

typedef struct emu_stream emu_stream;

typedef enum {
    EMU_BLOCKED, /* cannot go on now; will be asked again when the device is woken */
    EMU_WORKED,  /* did a piece; ask again soon */
    EMU_DONE     /* the stream goes on to the next task */
} emu_progress;

/*
 * Work in a stream. `progress` is called without locks held by the device's own thread, again and again
 * while the task heads its stream, and must never wait. `release` is called once, after EMU_DONE.
 */
typedef struct emu_task emu_task;
struct emu_task {
    emu_progress (*progress)(emu_task *);
    void (*release)(emu_task *);
    emu_task *next;     /* the machine's */
    emu_stream *stream; /* the machine's: where it was enqueued */
    /* Another task that does the same, for a stream that is captured: the task given to emu_enqueue is then
       never run, each launch of the graph runs a clone, and `release` is called when the graph and all
       executables of it are destroyed. NULL: cannot be captured, and emu_enqueue spoils the capture. */
    emu_task *(*clone)(const emu_task *);
};

/* The stream behind a cudaStream_t (NULL and 1: the legacy default stream of the current device), or
   NULL if it is none or destroyed. */
emu_stream *emu_stream_of(void *cuda_stream);
int emu_stream_device(const emu_stream *stream);
/* Appends; returns at once. */
void emu_enqueue(emu_stream *stream, emu_task *task);
/* Whether all of it is done. */
bool emu_stream_idle(emu_stream *stream);
/* NCCL launches on it in the background (non-blocking communicators): CUDA work put on it before the
   launch is over is misuse. Counts. */
void emu_stream_launch_begins(emu_stream *stream);
void emu_stream_launch_ends(emu_stream *stream);
/* Whether it is captured into a graph now. */
bool emu_stream_capturing(emu_stream *stream);

/* Has a device's thread look at its streams again; `pid` may be another process of the job. Cheap, may
   be called from anywhere, and wakes across processes (a futex in a shared page). */
void emu_wake(int pid, int device);
/* Sleeps until this process' machine is woken for `device`, or `timeout_ns` has passed; for threads that
   are not a device's (a blocking ncclCommInit). Spurious returns are normal: check and call again. */
void emu_wait(int device, int64_t timeout_ns);

/* ---- what tests see ---------------------------------------------------------------------------- */

/* Records misuse in one line; tests want the list empty. */
void emu_misuse(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Counts of what lives, by kind: "device bytes", "device allocations", "pinned allocations", "streams",
   "events", "communicators", "graphs", "reduction operators". */
void emu_count(const char *kind, int64_t change);

typedef enum {
    EMU_NO_FAULT,
    EMU_FAULT_CODE,  /* return `code` instead of doing it */
    EMU_FAULT_DELAY, /* already waited for: go on */
    EMU_FAULT_HANG,  /* never completes: a call of the host blocks until the communicator is aborted, an
                        operation of a stream until then too */
    EMU_FAULT_ASYNC, /* the call succeeds, then `code` becomes the communicator's asynchronous error */
    EMU_FAULT_LOST   /* from now on this rank's process counts as gone for its peers */
} emu_fault_kind;

typedef struct {
    emu_fault_kind kind;
    int code;
} emu_fault;

/*
 * To be called once at the head of every exported function with its own name. Counts the call and says
 * what the tests have ordered for it.
 */
emu_fault emu_enter(const char *function);

/* ---- exported for tests (Java: EmulatorControls) ------------------------------------------------ */

/*
 * Orders faults, separated by semicolons: FUNCTION[:CALL]=KIND[:VALUE], CALL counted from 1 since the
 * process began or nccl4j_emulator_forget, default 1, * for every call; KIND is code:N, delay:MILLISECONDS, hang,
 * async:N, lost. Also read from NCCL4J_EMULATOR_FAULTS at the start. Returns 0, or the position of the
 * first mistake.
 */
int nccl4j_emulator_inject(const char *faults);
/* Copies the recorded misuse, a line each, and returns how many lines there are. */
int nccl4j_emulator_misuse(char *text, int size);
/* How many of a kind live (see emu_count), or of "primary contexts": devices on which this process has one,
   which costs memory there; -1 for an unknown kind. */
int64_t nccl4j_emulator_live(const char *kind);
/* How often a function has been called; 0 for one never called. */
int64_t nccl4j_emulator_calls(const char *function);
/* Forgets misuse, faults and counts of calls. */
void nccl4j_emulator_forget(void);

#endif
