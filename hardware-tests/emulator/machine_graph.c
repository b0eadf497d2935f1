/*
 * Stream capture. A capture keeps what its streams would have done, in the order of the calls; a launch
 * does it again, on the launch's stream and one stream for each other that was captured. So a graph has
 * exactly the order that its streams and events had.
 */
#include "machine_cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    int stream; /* which of the recording's */
    bool is_task;
    int mark; /* RECORD and AWAIT: which of the recording's, else -1 */
    emu_operation operation;
    emu_task *task;
} step;

struct emu_recording {
    atomic_int references;
    int streams;
    int devices[EMU_CAPTURED_STREAMS];
    int marks;
    step *steps;
    size_t count, capacity;
};

struct emu_capture {
    uint64_t id;
    int mode;
    pthread_t thread;
    bool spoilt;
    emu_stream *members[EMU_CAPTURED_STREAMS]; /* the first began it */
    /* What each has seen of the others, in steps; its own entry counts its steps. */
    uint32_t clocks[EMU_CAPTURED_STREAMS][EMU_CAPTURED_STREAMS];
    emu_recording *recording;
    emu_capture *next;
};

enum { GLOBAL = 0, THREAD_LOCAL = 1, RELAXED = 2 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static emu_capture *captures;
static atomic_int open_captures;
static _Thread_local int thread_mode = GLOBAL;

static void *allocated(void *memory) {
    if (memory == NULL) {
        fprintf(stderr, "nccl4j emulator: out of memory\n");
        abort();
    }
    return memory;
}

/* ---- recordings ---------------------------------------------------------------------------------- */

emu_recording *emu_recording_keep(emu_recording *recording) {
    atomic_fetch_add(&recording->references, 1);
    return recording;
}

void emu_recording_drop(emu_recording *recording) {
    if (atomic_fetch_sub(&recording->references, 1) != 1) {
        return;
    }
    for (size_t i = 0; i < recording->count; i++) {
        step *s = &recording->steps[i];
        if (s->is_task) {
            s->task->release(s->task);
        }
        free(s->operation.staged);
    }
    free(recording->steps);
    free(recording);
}

static void add(emu_capture *c, const step *s) {
    emu_recording *r = c->recording;
    if (r->count == r->capacity) {
        r->capacity = r->capacity == 0 ? 32 : r->capacity * 2;
        r->steps = allocated(realloc(r->steps, r->capacity * sizeof *r->steps));
    }
    r->steps[r->count++] = *s;
    c->clocks[s->stream][s->stream]++;
}

/* ---- capturing ----------------------------------------------------------------------------------- */

/* Under the lock, like all that follow; -1 if it is none. */
static int member(const emu_capture *c, const emu_stream *stream) {
    for (int i = 0; i < c->recording->streams; i++) {
        if (c->members[i] == stream) {
            return i;
        }
    }
    return -1;
}

static int join(emu_capture *c, emu_stream *stream) {
    int index = c->recording->streams++;
    c->members[index] = stream;
    c->recording->devices[index] = stream->device;
    c->clocks[index][index] = 1;
    atomic_store(&stream->capture, c);
    return index;
}

int emu_capture_begin(emu_stream *stream, int mode) {
    static uint64_t ids;
    int code = 0;
    pthread_mutex_lock(&lock);
    if (atomic_load(&stream->capture) != NULL) {
        code = 401; /* cudaErrorIllegalState */
    } else {
        emu_capture *c = allocated(calloc(1, sizeof *c));
        c->recording = allocated(calloc(1, sizeof *c->recording));
        atomic_store(&c->recording->references, 1);
        c->id = ++ids;
        c->mode = mode;
        c->thread = pthread_self();
        c->next = captures;
        captures = c;
        join(c, stream);
        atomic_fetch_add(&open_captures, 1);
    }
    pthread_mutex_unlock(&lock);
    return code;
}

/* Its streams are as before it. */
static void close_capture(emu_capture *c) {
    for (int i = 0; i < c->recording->streams; i++) {
        atomic_store(&c->members[i]->capture, NULL);
    }
    for (emu_capture **link = &captures; *link != NULL; link = &(*link)->next) {
        if (*link == c) {
            *link = c->next;
            break;
        }
    }
    atomic_fetch_sub(&open_captures, 1);
}

int emu_capture_end(emu_stream *stream, emu_recording **recording) {
    pthread_mutex_lock(&lock);
    emu_capture *c = atomic_load(&stream->capture);
    if (c == NULL) {
        pthread_mutex_unlock(&lock);
        return 401;
    }
    if (c->members[0] != stream) {
        c->spoilt = true;
        pthread_mutex_unlock(&lock);
        return CUDA_CAPTURE_UNMATCHED;
    }
    if (c->mode != RELAXED && !pthread_equal(c->thread, pthread_self())) {
        pthread_mutex_unlock(&lock);
        return CUDA_CAPTURE_WRONG_THREAD;
    }
    int code = c->spoilt ? CUDA_CAPTURE_INVALIDATED : 0;
    for (int i = 0; i < c->recording->streams; i++) {
        if (code == 0 && c->clocks[0][i] < c->clocks[i][i]) {
            code = CUDA_CAPTURE_UNJOINED;
        }
    }
    close_capture(c);
    pthread_mutex_unlock(&lock);
    if (code == 0) {
        *recording = c->recording;
    } else {
        emu_recording_drop(c->recording);
    }
    free(c);
    return code;
}

int emu_capture_status(emu_stream *stream) {
    pthread_mutex_lock(&lock);
    emu_capture *c = atomic_load(&stream->capture);
    int status = c == NULL ? 0 : c->spoilt ? 2 : 1;
    pthread_mutex_unlock(&lock);
    return status;
}

uint64_t emu_capture_id(emu_stream *stream) {
    pthread_mutex_lock(&lock);
    emu_capture *c = atomic_load(&stream->capture);
    uint64_t id = c == NULL ? 0 : c->id;
    pthread_mutex_unlock(&lock);
    return id;
}

int emu_capture_spoil(emu_stream *stream, int code) {
    pthread_mutex_lock(&lock);
    emu_capture *c = atomic_load(&stream->capture);
    if (c != NULL) {
        c->spoilt = true;
    }
    pthread_mutex_unlock(&lock);
    return code;
}

void emu_capture_abandon(emu_stream *stream) {
    pthread_mutex_lock(&lock);
    emu_capture *c = atomic_load(&stream->capture);
    if (c != NULL) {
        close_capture(c);
    }
    pthread_mutex_unlock(&lock);
    if (c != NULL) {
        emu_recording_drop(c->recording);
        free(c);
    }
}

/* The capture that a stream adds to; NULL, with the code, if it cannot. */
static emu_capture *adding(emu_stream *stream, int *code) {
    emu_capture *c = atomic_load(&stream->capture);
    *code = c == NULL ? 401 : c->spoilt ? CUDA_CAPTURE_INVALIDATED : 0;
    return *code == 0 ? c : NULL;
}

int emu_capture_operation(emu_stream *stream, const emu_operation *operation) {
    int code;
    pthread_mutex_lock(&lock);
    emu_capture *c = adding(stream, &code);
    if (c != NULL) {
        step s = {.stream = member(c, stream), .mark = -1, .operation = *operation};
        add(c, &s);
    }
    pthread_mutex_unlock(&lock);
    return code;
}

void emu_capture_task(emu_stream *stream, emu_task *task) {
    int code;
    pthread_mutex_lock(&lock);
    emu_capture *c = adding(stream, &code);
    if (c != NULL && task->clone == NULL) {
        c->spoilt = true;
        c = NULL;
    }
    if (c != NULL) {
        step s = {.stream = member(c, stream), .mark = -1, .is_task = true, .task = task};
        add(c, &s);
    }
    pthread_mutex_unlock(&lock);
    if (c == NULL) {
        task->release(task);
    }
}

int emu_capture_record(emu_stream *stream, emu_event *event) {
    int code;
    pthread_mutex_lock(&lock);
    emu_capture *c = adding(stream, &code);
    if (c != NULL) {
        step s = {.stream = member(c, stream), .mark = c->recording->marks++, .operation = {.kind = EMU_OP_RECORD}};
        add(c, &s);
        atomic_store(&event->captured_in, c->id);
        event->captured_mark = s.mark;
        memcpy(event->captured_clock, c->clocks[s.stream], sizeof event->captured_clock);
    }
    pthread_mutex_unlock(&lock);
    return code;
}

int emu_capture_await(emu_stream *stream, emu_event *event, bool *captured) {
    int code = 0;
    pthread_mutex_lock(&event->lock);
    bool recorded = event->mark != NULL;
    pthread_mutex_unlock(&event->lock);
    pthread_mutex_lock(&lock);
    emu_capture *own = atomic_load(&stream->capture);
    uint64_t id = atomic_load(&event->captured_in);
    *captured = own != NULL || id != 0;
    if (own != NULL && id == 0) {
        /* Work outside of the capture cannot be waited for inside; an event without any can. */
        if (own->spoilt) {
            code = CUDA_CAPTURE_INVALIDATED;
        } else if (recorded) {
            own->spoilt = true;
            code = CUDA_CAPTURE_ISOLATION;
        }
    } else if (id != 0) {
        emu_capture *of_event = captures;
        while (of_event != NULL && of_event->id != id) {
            of_event = of_event->next;
        }
        if (of_event == NULL) {
            code = CUDA_CAPTURED_EVENT; /* that capture is over: the event stands for nothing */
        } else if (own != NULL && own != of_event) {
            own->spoilt = of_event->spoilt = true;
            code = CUDA_CAPTURE_MERGE;
        } else if (of_event->spoilt) {
            code = CUDA_CAPTURE_INVALIDATED;
        } else if (own == NULL && of_event->recording->streams == EMU_CAPTURED_STREAMS) {
            of_event->spoilt = true;
            code = CUDA_NOT_SUPPORTED;
        } else {
            int index = own == NULL ? join(of_event, stream) : member(of_event, stream);
            step s = {.stream = index, .mark = event->captured_mark, .operation = {.kind = EMU_OP_AWAIT}};
            add(of_event, &s);
            for (int i = 0; i < EMU_CAPTURED_STREAMS; i++) {
                uint32_t seen = event->captured_clock[i];
                if (i != index && of_event->clocks[index][i] < seen) {
                    of_event->clocks[index][i] = seen;
                }
            }
        }
    }
    pthread_mutex_unlock(&lock);
    return code;
}

int emu_capture_forbids(void) {
    if (atomic_load_explicit(&open_captures, memory_order_acquire) == 0 || thread_mode == RELAXED) {
        return 0;
    }
    int code = 0;
    pthread_mutex_lock(&lock);
    for (emu_capture *c = captures; c != NULL; c = c->next) {
        bool own = pthread_equal(c->thread, pthread_self()) && c->mode != RELAXED;
        if (own || (c->mode == GLOBAL && thread_mode == GLOBAL)) {
            c->spoilt = true;
            code = CUDA_CAPTURE_UNSUPPORTED;
        }
    }
    pthread_mutex_unlock(&lock);
    return code;
}

int emu_capture_forbids_legacy(int device) {
    if (atomic_load_explicit(&open_captures, memory_order_acquire) == 0) {
        return 0;
    }
    int code = 0;
    pthread_mutex_lock(&lock);
    for (emu_capture *c = captures; c != NULL; c = c->next) {
        for (int i = 0; i < c->recording->streams; i++) {
            if (c->members[i]->device == device && (c->members[i]->flags & 1) == 0) {
                c->spoilt = true;
                code = CUDA_CAPTURE_IMPLICIT;
            }
        }
    }
    pthread_mutex_unlock(&lock);
    return code;
}

int emu_capture_exchange_mode(int mode) {
    int before = thread_mode;
    thread_mode = mode;
    return before;
}

/* ---- launching ----------------------------------------------------------------------------------- */

int emu_executable_launch(emu_executable *executable, emu_stream *stream) {
    emu_recording *r = executable->recording;
    emu_mark **marks = r->marks == 0 ? NULL : allocated(calloc((size_t)r->marks, sizeof *marks));
    pthread_mutex_lock(&executable->lock);
    if (executable->streams == NULL) {
        executable->streams = allocated(calloc(EMU_CAPTURED_STREAMS, sizeof *executable->streams));
        for (int i = 1; i < r->streams; i++) {
            executable->streams[i] = emu_stream_create(r->devices[i], 1, 0);
            executable->streams[i]->implicit = true;
        }
    }
    for (size_t i = 0; i < r->count; i++) {
        const step *s = &r->steps[i];
        emu_stream *at = s->stream == 0 ? stream : executable->streams[s->stream];
        if (s->is_task) {
            emu_enqueue(at, s->task->clone(s->task));
            continue;
        }
        emu_operation operation = s->operation;
        if (operation.kind == EMU_OP_RECORD) {
            marks[s->mark] = emu_mark_create(at->device);
            operation.mark = emu_mark_keep(marks[s->mark]);
        } else if (operation.kind == EMU_OP_AWAIT) {
            operation.mark = emu_mark_keep(marks[s->mark]);
        }
        emu_submit(at, &operation);
    }
    pthread_mutex_unlock(&executable->lock);
    for (int i = 0; i < r->marks; i++) {
        emu_mark_drop(marks[i]);
    }
    free(marks);
    return 0;
}

void emu_executable_retire(emu_executable *executable) {
    for (int i = 1; executable->streams != NULL && i < executable->recording->streams; i++) {
        if (emu_object_kill(&executable->streams[i]->object)) {
            emu_stream_destroy(executable->streams[i]);
        }
    }
    free(executable->streams);
    emu_recording_drop(executable->recording);
    emu_object_recycle(&executable->object);
}
