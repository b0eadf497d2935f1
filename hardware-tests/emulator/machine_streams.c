/*
 * Devices as threads. A device's thread runs the heads of all its streams, a piece at a time, and sleeps
 * when none can go on. It is woken through its doorbell, a counter in a page that every process of the
 * job can map (/proc/PID/fd, by the file's name).
 */
#define _GNU_SOURCE
#include "machine_cuda.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PIECE ((uint64_t)1 << 20) /* bytes of a copy that are done before other streams have their turn */
#define TASKS_IN_A_ROW 16
#define YIELDS_BEFORE_SLEEP 8
#define RELOOK_NS 20000000 /* a device with blocked work looks again, woken or not */

static void futex_wait(atomic_uint *word, uint32_t value, int64_t timeout_ns) {
    struct timespec timeout = {timeout_ns / 1000000000, timeout_ns % 1000000000};
    syscall(SYS_futex, word, FUTEX_WAIT, value, timeout_ns < 0 ? NULL : &timeout, NULL, 0);
}

static void futex_wake(atomic_uint *word) {
    syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static void die(const char *what) {
    fprintf(stderr, "nccl4j emulator: %s: %s\n", what, strerror(errno));
    abort();
}

/* ---- doorbells ----------------------------------------------------------------------------------- */

#define DOORBELL_NAME "nccl4j-emulator-doorbells"

typedef struct {
    _Alignas(64) atomic_uint rings;
    atomic_uint sleepers;
} doorbell;

static doorbell *own_doorbells;
static pthread_once_t doorbells_once = PTHREAD_ONCE_INIT;

static void create_doorbells(void) {
    size_t size = EMU_DEVICES_AT_MOST * sizeof(doorbell);
    int fd = memfd_create(DOORBELL_NAME, MFD_CLOEXEC); /* stays open: others find it by its name */
    if (fd < 0 || ftruncate(fd, (off_t)size) != 0) {
        die("a memory file for doorbells");
    }
    void *page = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (page == MAP_FAILED) {
        die("doorbells");
    }
    own_doorbells = page;
}

static doorbell *doorbells(void) {
    pthread_once(&doorbells_once, create_doorbells);
    return own_doorbells;
}

static void ring(doorbell *bell) {
    atomic_fetch_add(&bell->rings, 1);
    if (atomic_load(&bell->sleepers) != 0) {
        futex_wake(&bell->rings);
    }
}

static void sleep_on(doorbell *bell, uint32_t rings, int64_t timeout_ns) {
    atomic_fetch_add(&bell->sleepers, 1);
    if (atomic_load(&bell->rings) == rings) {
        futex_wait(&bell->rings, rings, timeout_ns);
    }
    atomic_fetch_sub(&bell->sleepers, 1);
}

/* NULL if the process is gone or has no doorbells yet. */
static doorbell *open_doorbells(int pid) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd", pid);
    DIR *folder = opendir(path);
    if (folder == NULL) {
        return NULL;
    }
    doorbell *found = NULL;
    for (struct dirent *entry; found == NULL && (entry = readdir(folder)) != NULL;) {
        char name[64];
        ssize_t length = readlinkat(dirfd(folder), entry->d_name, name, sizeof name - 1);
        if (length < 0 || (name[length] = 0, strncmp(name, "/memfd:" DOORBELL_NAME, strlen("/memfd:" DOORBELL_NAME))) != 0) {
            continue;
        }
        int fd = openat(dirfd(folder), entry->d_name, O_RDWR | O_CLOEXEC);
        if (fd >= 0) {
            void *page = mmap(NULL, EMU_DEVICES_AT_MOST * sizeof(doorbell), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
            close(fd);
            found = page == MAP_FAILED ? NULL : page;
        }
    }
    closedir(folder);
    return found;
}

#define PROCESSES 1024 /* of a job, whose doorbells are mapped here; a power of two */

static doorbell *doorbells_of(int pid) {
    static struct {
        atomic_int pid;
        doorbell *bells;
    } known[PROCESSES];
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    bool locked = false;
    doorbell *result = NULL;
    for (int i = 0; i < PROCESSES; i++) {
        int index = (pid + i) & (PROCESSES - 1);
        int found = atomic_load_explicit(&known[index].pid, memory_order_acquire);
        if (found == 0 && !locked) {
            pthread_mutex_lock(&lock);
            locked = true;
            found = atomic_load_explicit(&known[index].pid, memory_order_acquire);
        }
        if (found == 0) {
            result = open_doorbells(pid);
            if (result != NULL) {
                known[index].bells = result;
                atomic_store_explicit(&known[index].pid, pid, memory_order_release);
            }
            break;
        }
        if (found == pid) {
            result = known[index].bells;
            break;
        }
    }
    if (locked) {
        pthread_mutex_unlock(&lock);
    }
    return result;
}

void emu_wake(int pid, int device) {
    if (device < 0 || device >= EMU_DEVICES_AT_MOST) {
        return;
    }
    doorbell *bells = pid == emu_configured()->pid ? doorbells() : doorbells_of(pid);
    if (bells != NULL) {
        ring(&bells[device]);
    }
}

void emu_wait(int device, int64_t timeout_ns) {
    static _Thread_local uint32_t seen[EMU_DEVICES_AT_MOST];
    doorbell *bell = &doorbells()[device];
    uint32_t rings = atomic_load(&bell->rings);
    if (rings == seen[device] && timeout_ns != 0) {
        sleep_on(bell, rings, timeout_ns);
        rings = atomic_load(&bell->rings);
    }
    seen[device] = rings;
}

/* ---- devices ------------------------------------------------------------------------------------- */

typedef struct machine_task machine_task;
struct machine_task {
    emu_task task;
    emu_operation operation;
    uint64_t done;        /* COPY, FILL: bytes */
    atomic_int called;    /* CALL: 1 handed over, 2 returned */
    emu_stream *behind;   /* implicit order: waits for `ticket` of it */
    uint64_t ticket;
    machine_task *next_call;
};

typedef struct {
    pthread_mutex_t lock;
    int index;
    bool started;
    emu_stream *busy; /* streams with work */
    emu_stream *all;
    _Atomic(emu_stream *) legacy;
    machine_task *free;
    /* for threads that wait until something is done */
    atomic_uint completions;
    atomic_uint waiters;
    /* host functions run on a thread of their own, so that one that waits holds up its stream only */
    pthread_mutex_t call_lock;
    pthread_cond_t call_ready;
    machine_task *calls, *last_call;
    bool caller_started;
    atomic_int fault;
    char why[300];
} device;

static device devices[EMU_DEVICES_AT_MOST];
static pthread_once_t devices_once = PTHREAD_ONCE_INIT;
static _Thread_local bool in_host_function;

bool emu_in_host_function(void) {
    return in_host_function;
}

static void create_devices(void) {
    for (int i = 0; i < EMU_DEVICES_AT_MOST; i++) {
        devices[i].index = i;
        pthread_mutex_init(&devices[i].lock, NULL);
        pthread_mutex_init(&devices[i].call_lock, NULL);
        pthread_cond_init(&devices[i].call_ready, NULL);
    }
}

static device *device_of(int index) {
    pthread_once(&devices_once, create_devices);
    return &devices[index];
}

int emu_device_fault(int index) {
    return atomic_load_explicit(&device_of(index)->fault, memory_order_acquire);
}

/* Has those look again who wait for a device's work. */
static void tell_waiters(device *d) {
    atomic_fetch_add(&d->completions, 1);
    if (atomic_load(&d->waiters) != 0) {
        futex_wake(&d->completions);
    }
}

void emu_set_device_fault(int index, int code, const char *why) {
    device *d = device_of(index);
    int none = 0;
    if (atomic_compare_exchange_strong(&d->fault, &none, code) && why != NULL) {
        emu_misuse("device %d: error %d, which every later call answers: %s", index, code, why);
    }
    tell_waiters(d);
    ring(&doorbells()[index]);
}

/* Threads of the machine take no signals that are meant for the program. */
static void start_thread(void *(*body)(void *), device *d, const char *name) {
    sigset_t none, before;
    sigfillset(&none);
    sigdelset(&none, SIGSEGV);
    sigdelset(&none, SIGBUS);
    sigdelset(&none, SIGFPE);
    sigdelset(&none, SIGILL);
    pthread_sigmask(SIG_SETMASK, &none, &before);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_t thread;
    int error = pthread_create(&thread, &attributes, body, d);
    if (error != 0) {
        errno = error;
        die("a device's thread");
    }
    char full[16];
    snprintf(full, sizeof full, "%s-%d", name, d->index);
    pthread_setname_np(thread, full);
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* ---- a device's thread --------------------------------------------------------------------------- */

/* Under the lock. */
static void retire(device *d, emu_stream *s) {
    if (s->all_previous != NULL) {
        s->all_previous->all_next = s->all_next;
    } else {
        d->all = s->all_next;
    }
    if (s->all_next != NULL) {
        s->all_next->all_previous = s->all_previous;
    }
    emu_object_recycle(&s->object);
}

/* Runs the head of a stream and what follows it; whether anything was done. */
static bool run_stream(device *d, emu_stream *s, emu_task *task) {
    bool worked = false;
    for (int i = 0; i < TASKS_IN_A_ROW; i++) {
        emu_progress progress = task->progress(task);
        if (progress == EMU_BLOCKED) {
            return worked;
        }
        worked = true;
        if (progress == EMU_WORKED) {
            return true;
        }
        pthread_mutex_lock(&d->lock);
        emu_task *next = s->head = task->next;
        if (next == NULL) {
            s->tail = NULL;
        }
        pthread_mutex_unlock(&d->lock);
        task->release(task);
        pthread_mutex_lock(&d->lock);
        atomic_fetch_add(&s->completed, 1);
        next = s->head;
        if (next == NULL) {
            s->busy = false;
            if (s->busy_previous != NULL) {
                s->busy_previous->busy_next = s->busy_next;
            } else {
                d->busy = s->busy_next;
            }
            if (s->busy_next != NULL) {
                s->busy_next->busy_previous = s->busy_previous;
            }
            if (s->destroyed) {
                retire(d, s);
            }
        }
        pthread_mutex_unlock(&d->lock);
        tell_waiters(d);
        if (next == NULL) {
            return true;
        }
        task = next;
    }
    return true;
}

static void *device_main(void *argument) {
    device *d = argument;
    doorbell *bell = &doorbells()[d->index];
    size_t capacity = 0, count = 0;
    struct {
        emu_stream *stream;
        emu_task *head;
    } *work = NULL;
    int idle_rounds = 0;
    for (;;) {
        uint32_t rings = atomic_load(&bell->rings);
        count = 0;
        pthread_mutex_lock(&d->lock);
        for (emu_stream *s = d->busy; s != NULL; s = s->busy_next) {
            if (count == capacity) {
                capacity = capacity == 0 ? 16 : capacity * 2;
                work = realloc(work, capacity * sizeof *work);
                if (work == NULL) {
                    die("memory");
                }
            }
            work[count].stream = s;
            work[count++].head = s->head;
        }
        pthread_mutex_unlock(&d->lock);
        bool worked = false;
        for (size_t i = 0; i < count; i++) {
            worked |= run_stream(d, work[i].stream, work[i].head);
        }
        if (worked) {
            idle_rounds = 0;
            continue;
        }
        /* Something may come at once; but where devices outnumber cores they rather leave the core to each other. */
        if (idle_rounds++ < YIELDS_BEFORE_SLEEP && atomic_load(&bell->rings) == rings) {
            sched_yield();
            continue;
        }
        sleep_on(bell, rings, count == 0 ? -1 : RELOOK_NS);
        idle_rounds = 0;
    }
    return NULL;
}

static void *caller_main(void *argument) {
    device *d = argument;
    in_host_function = true;
    for (;;) {
        pthread_mutex_lock(&d->call_lock);
        while (d->calls == NULL) {
            pthread_cond_wait(&d->call_ready, &d->call_lock);
        }
        machine_task *t = d->calls;
        d->calls = t->next_call;
        pthread_mutex_unlock(&d->call_lock);
        if (t->operation.call != NULL) {
            t->operation.call(t->operation.argument);
        } else {
            t->operation.callback(emu_object_handle(&t->task.stream->object), emu_device_fault(d->index), t->operation.argument);
        }
        atomic_store(&t->called, 2);
        ring(&doorbells()[d->index]);
    }
    return NULL;
}

/* ---- the runtime's own work ---------------------------------------------------------------------- */

/* Where a copy finds an address when its turn has come; NULL, with the device's fault set, for a wrong one. */
static void *reach(const machine_task *t, uint64_t address) {
    int index = t->task.stream->device;
    emu_range range;
    emu_find(address, &range);
    char why[200];
    emu_place place;
    if (range.kind == EMU_PAGEABLE || range.kind == EMU_PINNED) {
        return (void *)(uintptr_t)address; /* pageable: the call itself has seen to it that it is there until now */
    }
    if (emu_place_of(address, t->operation.size, range.device, &place, why) != 0) {
        char full[300];
        snprintf(full, sizeof full, "%s: %s", t->operation.function, why);
        emu_set_device_fault(index, CUDA_ILLEGAL_ADDRESS, full);
        return NULL;
    }
    return emu_map(&place);
}

static emu_progress move(machine_task *t) {
    emu_operation *o = &t->operation;
    int unclaimed = 0;
    if (emu_device_fault(t->task.stream->device) != 0) {
        return EMU_DONE;
    }
    if (o->mark != NULL && t->done == 0 && !atomic_compare_exchange_strong(&o->mark->claim, &unclaimed, 1) && unclaimed == 2) {
        return EMU_DONE;
    }
    uint64_t left = o->size - t->done, piece = left < PIECE ? left : PIECE;
    uint8_t *to = reach(t, o->to);
    if (to == NULL) {
        return EMU_DONE;
    }
    if (o->kind == EMU_OP_FILL) {
        memset(to + t->done, o->value, piece);
    } else {
        const uint8_t *from = o->staged != NULL ? o->staged : reach(t, o->from);
        if (from == NULL) {
            return EMU_DONE;
        }
        memmove(to + t->done, from + t->done, piece);
    }
    t->done += piece;
    return t->done == o->size ? EMU_DONE : EMU_WORKED;
}

static emu_progress progress_task(emu_task *task) {
    machine_task *t = (machine_task *)task;
    emu_operation *o = &t->operation;
    device *d = device_of(task->stream->device);
    if (t->behind != NULL) {
        return atomic_load(&t->behind->completed) >= t->ticket ? EMU_DONE : EMU_BLOCKED;
    }
    switch (o->kind) {
        case EMU_OP_COPY:
        case EMU_OP_FILL:
            return move(t);
        case EMU_OP_CALL: {
            int state = atomic_load(&t->called);
            if (state == 0) {
                if (o->call != NULL && emu_device_fault(d->index) != 0) {
                    return EMU_DONE; /* CUDA calls host functions no more when the context has failed */
                }
                atomic_store(&t->called, 1);
                pthread_mutex_lock(&d->call_lock);
                t->next_call = NULL;
                if (d->calls == NULL) {
                    d->calls = t;
                } else {
                    d->last_call->next_call = t;
                }
                d->last_call = t;
                if (!d->caller_started) {
                    d->caller_started = true;
                    start_thread(caller_main, d, "emu-call");
                }
                pthread_cond_signal(&d->call_ready);
                pthread_mutex_unlock(&d->call_lock);
            }
            return state == 2 ? EMU_DONE : EMU_BLOCKED;
        }
        case EMU_OP_RECORD: {
            int64_t now = emu_now_ns();
            atomic_store(&o->mark->reached_ns, now);
            uint64_t waiting = atomic_load(&o->mark->waiting_devices);
            for (int i = 0; waiting != 0; i++, waiting >>= 1) {
                if ((waiting & 1) != 0) {
                    ring(&doorbells()[i]);
                }
            }
            return EMU_DONE;
        }
        case EMU_OP_AWAIT:
            if (atomic_load(&o->mark->reached_ns) != 0) {
                return EMU_DONE;
            }
            atomic_fetch_or(&o->mark->waiting_devices, (uint64_t)1 << d->index);
            return atomic_load(&o->mark->reached_ns) != 0 ? EMU_DONE : EMU_BLOCKED;
        case EMU_OP_BORN:
        case EMU_OP_DIE: {
            /* By the address, for cudaDeviceReset may have taken it away. */
            emu_allocation *allocation = emu_device_allocation(o->to);
            int unborn = EMU_UNBORN;
            if (allocation != NULL && o->kind == EMU_OP_DIE) {
                emu_device_release(allocation);
            } else if (allocation != NULL) {
                atomic_compare_exchange_strong(&allocation->life, &unborn, EMU_LIVE);
            }
            return EMU_DONE;
        }
        case EMU_OP_NOTHING:
            return EMU_DONE;
    }
    return EMU_DONE;
}

static void release_task(emu_task *task) {
    machine_task *t = (machine_task *)task;
    device *d = device_of(task->stream->device);
    if (t->operation.mark != NULL) {
        emu_mark_drop(t->operation.mark);
    }
    free(t->operation.staged);
    pthread_mutex_lock(&d->lock);
    t->next_call = d->free;
    d->free = t;
    pthread_mutex_unlock(&d->lock);
}

/* Under the lock. */
static machine_task *new_task(device *d) {
    machine_task *t = d->free;
    if (t != NULL) {
        d->free = t->next_call;
        memset(t, 0, sizeof *t);
    } else if ((t = calloc(1, sizeof *t)) == NULL) {
        die("memory");
    }
    t->task.progress = progress_task;
    t->task.release = release_task;
    return t;
}

/* ---- enqueueing ---------------------------------------------------------------------------------- */

/* Under the lock. */
static void append(device *d, emu_stream *s, emu_task *task) {
    task->stream = s;
    task->next = NULL;
    if (s->tail == NULL) {
        s->head = task;
    } else {
        s->tail->next = task;
    }
    s->tail = task;
    atomic_fetch_add(&s->enqueued, 1);
    if (!s->busy) {
        s->busy = true;
        s->busy_previous = NULL;
        s->busy_next = d->busy;
        if (d->busy != NULL) {
            d->busy->busy_previous = s;
        }
        d->busy = s;
    }
}

static void append_behind(device *d, emu_stream *s, emu_stream *behind) {
    machine_task *t = new_task(d);
    t->behind = behind;
    t->ticket = atomic_load(&behind->enqueued);
    append(d, s, &t->task);
}

/*
 * CUDA's legacy default stream: its work waits for all that blocking streams of the device hold, and what
 * they get later waits for it. Under the lock.
 */
static void order_with_legacy(device *d, emu_stream *s) {
    emu_stream *legacy = atomic_load_explicit(&d->legacy, memory_order_relaxed);
    if (s == legacy) {
        for (emu_stream *other = d->all; other != NULL; other = other->all_next) {
            if (other != s && (other->flags & 1) == 0 && other->busy) {
                append_behind(d, s, other);
            }
        }
    } else if (legacy != NULL && legacy->busy && (s->flags & 1) == 0) {
        uint64_t ticket = atomic_load(&legacy->enqueued);
        if (s->legacy_seen != ticket) {
            s->legacy_seen = ticket;
            append_behind(d, s, legacy);
        }
    }
}

/* Under the lock; lets it go. */
static void start_work(device *d) {
    if (!d->started) {
        d->started = true;
        doorbells();
        start_thread(device_main, d, "emu-device");
    }
    pthread_mutex_unlock(&d->lock);
    ring(&doorbells()[d->index]);
}

void emu_enqueue(emu_stream *s, emu_task *task) {
    if (emu_stream_capturing(s)) {
        task->stream = s;
        emu_capture_task(s, task);
        return;
    }
    device *d = device_of(s->device);
    pthread_mutex_lock(&d->lock);
    order_with_legacy(d, s);
    append(d, s, task);
    start_work(d);
}

uint64_t emu_submit(emu_stream *s, const emu_operation *operation) {
    device *d = device_of(s->device);
    pthread_mutex_lock(&d->lock);
    order_with_legacy(d, s);
    machine_task *t = new_task(d);
    t->operation = *operation;
    append(d, s, &t->task);
    uint64_t ticket = atomic_load(&s->enqueued);
    start_work(d);
    return ticket;
}

/* ---- streams ------------------------------------------------------------------------------------- */

emu_stream *emu_stream_create(int index, unsigned flags, int priority) {
    static _Atomic(uint64_t) ids;
    device *d = device_of(index);
    emu_stream *s = emu_object_create(EMU_STREAM, sizeof *s);
    s->device = index;
    s->context = emu_context_current() != NULL && emu_context_current()->device == index ? emu_context_current() : emu_primary_context(index);
    s->flags = flags;
    s->priority = priority;
    s->id = atomic_fetch_add(&ids, 1) + 1;
    pthread_mutex_lock(&d->lock);
    s->all_next = d->all;
    if (d->all != NULL) {
        d->all->all_previous = s;
    }
    d->all = s;
    pthread_mutex_unlock(&d->lock);
    return s;
}

void emu_stream_destroy(emu_stream *s) {
    device *d = device_of(s->device);
    pthread_mutex_lock(&d->lock);
    s->destroyed = true;
    if (!s->busy) {
        retire(d, s);
    }
    pthread_mutex_unlock(&d->lock);
}

emu_stream *emu_stream_legacy(int index) {
    device *d = device_of(index);
    emu_stream *legacy = atomic_load_explicit(&d->legacy, memory_order_acquire);
    if (legacy == NULL) {
        static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
        pthread_mutex_lock(&lock);
        legacy = atomic_load(&d->legacy);
        if (legacy == NULL) {
            legacy = emu_stream_create(index, 0, 0);
            legacy->context = emu_primary_context(index);
            legacy->implicit = true;
            atomic_store(&d->legacy, legacy);
        }
        pthread_mutex_unlock(&lock);
    }
    return legacy;
}

static pthread_key_t per_thread_key;
static pthread_once_t per_thread_once = PTHREAD_ONCE_INIT;

static void destroy_per_thread(void *argument) {
    void **handles = argument;
    for (int i = 0; i < EMU_DEVICES_AT_MOST; i++) {
        emu_stream *s = handles[i] == NULL ? NULL : emu_object_of(EMU_STREAM, handles[i]);
        if (s != NULL && emu_object_kill(&s->object)) {
            emu_stream_destroy(s);
        }
    }
    free(handles);
}

static void create_per_thread_key(void) {
    pthread_key_create(&per_thread_key, destroy_per_thread);
}

emu_stream *emu_stream_per_thread(int index) {
    pthread_once(&per_thread_once, create_per_thread_key);
    void **handles = pthread_getspecific(per_thread_key);
    if (handles == NULL) {
        handles = calloc(EMU_DEVICES_AT_MOST, sizeof *handles);
        if (handles == NULL) {
            die("memory");
        }
        pthread_setspecific(per_thread_key, handles);
    }
    emu_stream *s = handles[index] == NULL ? NULL : emu_object_of(EMU_STREAM, handles[index]);
    if (s == NULL) {
        s = emu_stream_create(index, 0, 0);
        s->implicit = true;
        handles[index] = emu_object_handle(&s->object);
    }
    return s;
}

emu_stream *emu_stream_of(void *handle) {
    uintptr_t value = (uintptr_t)handle;
    if (value <= 1) {
        return emu_device_count() == 0 ? NULL : emu_stream_legacy(emu_current_device());
    }
    if (value == 2) {
        return emu_device_count() == 0 ? NULL : emu_stream_per_thread(emu_current_device());
    }
    return emu_object_of(EMU_STREAM, handle);
}

int emu_stream_device(const emu_stream *stream) {
    return stream->device;
}

bool emu_stream_idle(emu_stream *s) {
    return atomic_load(&s->completed) >= atomic_load(&s->enqueued);
}

bool emu_stream_settled(emu_stream *s) {
    device *d = device_of(s->device);
    if (s != atomic_load(&d->legacy)) {
        return emu_stream_idle(s);
    }
    bool settled = true;
    pthread_mutex_lock(&d->lock);
    for (emu_stream *other = d->busy; other != NULL; other = other->busy_next) {
        settled &= (other->flags & 1) != 0;
    }
    pthread_mutex_unlock(&d->lock);
    return settled;
}

void emu_stream_launch_begins(emu_stream *s) {
    atomic_fetch_add(&s->launches, 1);
}

void emu_stream_launch_ends(emu_stream *s) {
    atomic_fetch_sub(&s->launches, 1);
}

bool emu_stream_capturing(emu_stream *s) {
    return atomic_load(&s->capture) != NULL;
}

/* ---- waiting ------------------------------------------------------------------------------------- */

typedef bool (*condition)(const void *);

/* Until it holds: 0; the device has a fault: that; the time is over: -1. */
static int wait_for(device *d, condition holds, const void *argument, int64_t timeout_ns) {
    int64_t deadline = timeout_ns < 0 ? 0 : emu_now_ns() + timeout_ns;
    for (int round = 0;; round++) {
        uint32_t completions = atomic_load(&d->completions);
        if (holds(argument)) {
            return atomic_load(&d->fault);
        }
        int fault = atomic_load(&d->fault);
        if (fault != 0) {
            return fault;
        }
        if (round < YIELDS_BEFORE_SLEEP) {
            sched_yield();
            continue;
        }
        int64_t rest = -1;
        if (timeout_ns >= 0 && (rest = deadline - emu_now_ns()) <= 0) {
            return -1;
        }
        atomic_fetch_add(&d->waiters, 1);
        if (atomic_load(&d->completions) == completions) {
            futex_wait(&d->completions, completions, rest);
        }
        atomic_fetch_sub(&d->waiters, 1);
    }
}

typedef struct {
    emu_stream *stream;
    uint64_t ticket;
} point;

static bool passed(const void *argument) {
    const point *p = argument;
    return atomic_load(&p->stream->completed) >= p->ticket;
}

int emu_stream_wait(emu_stream *s, uint64_t ticket, int64_t timeout_ns) {
    point p = {s, ticket};
    return wait_for(device_of(s->device), passed, &p, timeout_ns);
}

static bool reached(const void *argument) {
    return atomic_load(&((emu_mark *)(uintptr_t)argument)->reached_ns) != 0;
}

int emu_mark_wait(emu_mark *mark, int64_t timeout_ns) {
    return wait_for(device_of(mark->device), reached, mark, timeout_ns);
}

bool emu_device_idle(int index) {
    device *d = device_of(index);
    pthread_mutex_lock(&d->lock);
    bool idle = d->busy == NULL;
    pthread_mutex_unlock(&d->lock);
    return idle;
}

int emu_device_wait(int index, int64_t timeout_ns) {
    device *d = device_of(index);
    int64_t deadline = emu_now_ns() + timeout_ns;
    size_t count = 0, capacity = 0;
    point *points = NULL;
    pthread_mutex_lock(&d->lock);
    for (emu_stream *s = d->busy; s != NULL; s = s->busy_next) {
        if (count == capacity) {
            capacity = capacity == 0 ? 16 : capacity * 2;
            points = realloc(points, capacity * sizeof *points);
            if (points == NULL) {
                die("memory");
            }
        }
        points[count++] = (point){s, atomic_load(&s->enqueued)};
    }
    pthread_mutex_unlock(&d->lock);
    int code = atomic_load(&d->fault);
    for (size_t i = 0; i < count && code == 0; i++) {
        int64_t rest = deadline - emu_now_ns();
        code = wait_for(d, passed, &points[i], timeout_ns < 0 ? -1 : rest < 0 ? 0 : rest);
    }
    free(points);
    return code;
}

/* ---- marks --------------------------------------------------------------------------------------- */

static struct {
    pthread_mutex_t lock;
    emu_mark *free;
} marks = {.lock = PTHREAD_MUTEX_INITIALIZER};

emu_mark *emu_mark_create(int index) {
    pthread_mutex_lock(&marks.lock);
    emu_mark *mark = marks.free;
    if (mark != NULL) {
        marks.free = mark->next;
    }
    pthread_mutex_unlock(&marks.lock);
    if (mark == NULL && (mark = calloc(1, sizeof *mark)) == NULL) {
        die("memory");
    }
    atomic_store(&mark->references, 1);
    atomic_store(&mark->claim, 0);
    atomic_store(&mark->reached_ns, 0);
    atomic_store(&mark->waiting_devices, 0);
    mark->device = index;
    return mark;
}

emu_mark *emu_mark_keep(emu_mark *mark) {
    atomic_fetch_add(&mark->references, 1);
    return mark;
}

void emu_mark_drop(emu_mark *mark) {
    if (atomic_fetch_sub(&mark->references, 1) == 1) {
        pthread_mutex_lock(&marks.lock);
        mark->next = marks.free;
        marks.free = mark;
        pthread_mutex_unlock(&marks.lock);
    }
}

/* ---- events --------------------------------------------------------------------------------------- */

emu_event *emu_event_create(int index, unsigned flags) {
    emu_event *event = emu_object_create(EMU_EVENT, sizeof *event);
    pthread_mutex_init(&event->lock, NULL);
    event->device = index;
    event->flags = flags;
    return event;
}

void emu_event_retire(emu_event *event) {
    pthread_mutex_lock(&event->lock);
    emu_mark *mark = event->mark;
    event->mark = NULL;
    pthread_mutex_unlock(&event->lock);
    if (mark != NULL) {
        emu_mark_drop(mark);
    }
    emu_object_recycle(&event->object);
}

/* ---- reset --------------------------------------------------------------------------------------- */

static void reset_stream(emu_object *object, int index) {
    emu_stream *s = (emu_stream *)object;
    if (s->device == index && s != atomic_load(&device_of(index)->legacy)) {
        bool counted = !s->implicit;
        emu_capture_abandon(s);
        if (emu_object_kill(object)) {
            emu_count("streams", counted ? -1 : 0);
            emu_stream_destroy(s);
        }
    }
}

static void reset_event(emu_object *object, int index) {
    emu_event *event = (emu_event *)object;
    if (event->device == index && emu_object_kill(object)) {
        emu_count("events", -1);
        emu_event_retire(event);
    }
}

void emu_device_reset(int index) {
    device *d = device_of(index);
    emu_device_wait(index, emu_configured()->deadlock_ns);
    emu_object_each(EMU_STREAM, reset_stream, index);
    emu_object_each(EMU_EVENT, reset_event, index);
    emu_device_release_all(index);
    atomic_store(&d->fault, 0);
}
