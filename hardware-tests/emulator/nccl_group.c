/*
 * Groups. Their state is the thread's: how deep it is, the first error, and what has been recorded. Calls inside only record;
 * the outermost ncclGroupEnd launches, or, if any call has failed, drops everything and answers that failure.
 */
#include <stdlib.h>
#include <string.h>

#include "nccl_comm.h"

typedef struct {
    nccl_launch *launches;
    nccl_job *jobs;
} work;

typedef struct {
    int depth;
    ncclResult_t error;
    bool has_mode, blocking;
    work work;
} group_state;

static _Thread_local group_state group;
static _Atomic int open_groups; /* threads that are inside one */

static pthread_key_t thread_end;
static pthread_once_t thread_end_made = PTHREAD_ONCE_INIT;

/* Of the job whose thread this is: a failing one tells its siblings to leave. */
static _Thread_local _Atomic int *cancel_flag;
/* What this thread launches now: an abort of one of its communicators ends the group's wait for any. */
static _Thread_local const nccl_launch *launching;

bool group_cancelled(void) {
    for (const nccl_launch *launch = launching; launch != NULL; launch = launch->next) {
        if (atomic_load(&launch->comm->abort)) {
            return true;
        }
    }
    return cancel_flag != NULL && atomic_load(cancel_flag) != 0;
}

static void drop_work(work *w, ncclResult_t error) {
    for (nccl_launch *launch = w->launches, *next; launch != NULL; launch = next) {
        next = launch->next;
        if (!launch->comm->blocking) {
            comm_fail(launch->comm, error);
        }
        launch_drop(launch);
    }
    for (nccl_job *job = w->jobs, *next; job != NULL; job = next) {
        next = job->next;
        job->drop(job, error);
        free(job);
    }
    memset(w, 0, sizeof *w);
}

static void at_thread_end(void *value) {
    (void)value;
    if (group.depth > 0) {
        emu_misuse("a thread ends inside a group of depth %d: what it recorded is lost", group.depth);
        atomic_fetch_sub(&open_groups, 1);
        drop_work(&group.work, ncclInvalidUsage);
        group.depth = 0;
    }
}

static void make_thread_end(void) {
    pthread_key_create(&thread_end, at_thread_end);
}

int group_depth(void) {
    return group.depth;
}

void group_start(void) {
    if (group.depth++ == 0) {
        pthread_once(&thread_end_made, make_thread_end);
        pthread_setspecific(thread_end, &group);
        atomic_fetch_add(&open_groups, 1);
    }
}

ncclResult_t group_mode(bool blocking) {
    if (group.has_mode && group.blocking != blocking) {
        return REFUSE(ncclInvalidArgument, "blocking and non-blocking communicators in one group");
    }
    group.has_mode = true;
    group.blocking = blocking;
    return ncclSuccess;
}

void group_add_job(nccl_job *job) {
    nccl_job **end = &group.work.jobs;
    while (*end != NULL) {
        end = &(*end)->next;
    }
    *end = job;
}

nccl_launch *group_launch_of(ncclComm_t comm) {
    nccl_launch **end = &group.work.launches;
    for (; *end != NULL; end = &(*end)->next) {
        if ((*end)->comm == comm) {
            return *end;
        }
    }
    *end = calloc(1, sizeof **end);
    if (*end != NULL) {
        (*end)->comm = comm;
    }
    return *end;
}

/* ---- running what was recorded ------------------------------------------------------------------------- */

typedef struct {
    nccl_job *job;
    _Atomic int *cancel;
} job_thread;

static void run_job(nccl_job *job, _Atomic int *cancel) {
    cancel_flag = cancel;
    job->result = job->run(job);
    cancel_flag = NULL;
    if (job->result != ncclSuccess) {
        atomic_store(cancel, 1); /* the others wait for a rank that will not come */
    }
}

static void *job_thread_main(void *argument) {
    job_thread *thread = argument;
    run_job(thread->job, thread->cancel);
    return NULL;
}

static ncclResult_t run_jobs(nccl_job *jobs) {
    _Atomic int cancel = 0;
    int count = 0;
    for (nccl_job *job = jobs; job != NULL; job = job->next) {
        count++;
    }
    job_thread *threads = calloc((size_t)count, sizeof *threads);
    bool *started = calloc((size_t)count, sizeof *started);
    if (threads == NULL || started == NULL) {
        free(threads);
        free(started);
        return ncclSystemError;
    }
    int number = 0;
    for (nccl_job *job = jobs; job != NULL; job = job->next, number++) {
        threads[number] = (job_thread){job, &cancel};
        /* The last one runs here. */
        started[number] =
            number < count - 1 && pthread_create(&job->thread, NULL, job_thread_main, &threads[number]) == 0;
        if (!started[number]) {
            run_job(job, &cancel);
        }
    }
    ncclResult_t result = ncclSuccess;
    number = 0;
    for (nccl_job *job = jobs; job != NULL; job = job->next, number++) {
        if (started[number]) {
            pthread_join(job->thread, NULL);
        }
        /* A rank that was told to leave is not the cause. */
        if (job->result != ncclSuccess && (result == ncclSuccess || result == ncclInternalError)) {
            result = job->result;
        }
    }
    free(threads);
    free(started);
    return result;
}

static ncclResult_t run_launches(nccl_launch *launches) {
    ncclResult_t result = ncclSuccess;
    for (nccl_launch *launch = launches; launch != NULL; launch = launch->next) {
        launch_announce(launch);
    }
    launching = launches;
    for (nccl_launch *launch = launches; launch != NULL && result == ncclSuccess; launch = launch->next) {
        result = launch_connect(launch);
    }
    launching = NULL;
    for (nccl_launch *launch = launches, *next; launch != NULL; launch = next) {
        next = launch->next;
        if (result == ncclSuccess) {
            result = launch_enqueue(launch);
        } else {
            launch_drop(launch);
        }
    }
    return result;
}

/* Which communicators a piece of work keeps busy: they are not freed under it. */
typedef struct {
    ncclComm_t *comms;
    bool *entered;
    int count;
} involved;

static bool collect(const work *w, involved *all) {
    int most = 0;
    for (const nccl_launch *launch = w->launches; launch != NULL; launch = launch->next) {
        most++;
    }
    for (const nccl_job *job = w->jobs; job != NULL; job = job->next) {
        most++;
    }
    all->count = 0;
    all->comms = calloc((size_t)most + 1, sizeof *all->comms);
    all->entered = calloc((size_t)most + 1, sizeof *all->entered);
    if (all->comms == NULL || all->entered == NULL) {
        return false;
    }
    for (const nccl_launch *launch = w->launches; launch != NULL; launch = launch->next) {
        all->comms[all->count++] = launch->comm;
    }
    for (const nccl_job *job = w->jobs; job != NULL; job = job->next) {
        if (job->comm != NULL) {
            all->comms[all->count++] = job->comm;
        }
    }
    for (int i = 0; i < all->count; i++) {
        atomic_fetch_add(&all->comms[i]->users, 1);
    }
    return true;
}

static void release(involved *all) {
    for (int i = 0; i < all->count; i++) {
        atomic_fetch_sub(&all->comms[i]->users, 1);
    }
    free(all->comms);
    free(all->entered);
}

static ncclResult_t run_work(work *w) {
    ncclResult_t result = w->jobs != NULL ? run_jobs(w->jobs) : ncclSuccess;
    for (nccl_job *job = w->jobs, *next; job != NULL; job = next) {
        next = job->next;
        if (result != ncclSuccess) {
            job->drop(job, result);
        }
        free(job);
    }
    if (w->launches != NULL) {
        if (result == ncclSuccess) {
            result = run_launches(w->launches);
        } else {
            work rest = {w->launches, NULL};
            drop_work(&rest, result);
        }
    }
    return result;
}

typedef struct {
    work work;
    involved all;
    emu_stream **streams;
    int stream_count;
} background;

static void *background_main(void *argument) {
    background *b = argument;
    if (b->all.count > 0) {
        emu_set_current_device(b->all.comms[0]->device); /* a thread of NCCL's makes no context but of its communicators */
    }
    ncclResult_t result = run_work(&b->work);
    for (int s = 0; s < b->stream_count; s++) {
        emu_stream_launch_ends(b->streams[s]);
    }
    for (int i = 0; i < b->all.count; i++) {
        int expected = ncclInProgress;
        atomic_compare_exchange_strong(&b->all.comms[i]->state, &expected, result);
    }
    release(&b->all);
    free(b->streams);
    free(b);
    return NULL;
}

/* Non-blocking: a thread of NCCL's does it, and until it has, communicators and streams may not be touched. */
static ncclResult_t run_in_background(work *w) {
    background *b = calloc(1, sizeof *b);
    if (b == NULL || !collect(w, &b->all)) {
        free(b);
        drop_work(w, ncclSystemError);
        return ncclSystemError;
    }
    b->work = *w;
    int streams = 0;
    for (nccl_launch *launch = w->launches; launch != NULL; launch = launch->next) {
        streams += launch->stream_count;
    }
    b->streams = calloc((size_t)streams + 1, sizeof(emu_stream *));
    for (nccl_launch *launch = w->launches; launch != NULL && b->streams != NULL; launch = launch->next) {
        for (int s = 0; s < launch->stream_count; s++) {
            b->streams[b->stream_count++] = launch->streams[s];
            emu_stream_launch_begins(launch->streams[s]);
        }
    }
    for (int i = 0; i < b->all.count; i++) {
        int expected = ncclSuccess;
        atomic_compare_exchange_strong(&b->all.comms[i]->state, &expected, ncclInProgress);
    }
    pthread_t thread;
    pthread_attr_t detached;
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    int failure = pthread_create(&thread, &detached, background_main, b);
    pthread_attr_destroy(&detached);
    if (failure != 0) {
        background_main(b);
    }
    return ncclInProgress;
}

ncclResult_t group_end(ncclResult_t result) {
    if (result != ncclSuccess && result != ncclInProgress && group.error == ncclSuccess) {
        group.error = result;
    }
    if (--group.depth > 0) {
        return result;
    }
    atomic_fetch_sub(&open_groups, 1);
    group_state ended = group;
    memset(&group, 0, sizeof group);
    if (ended.error != ncclSuccess) {
        drop_work(&ended.work, ended.error);
        return ended.error;
    }
    if (ended.work.launches == NULL && ended.work.jobs == NULL) {
        return ncclSuccess;
    }
    for (const nccl_job *job = ended.work.jobs; job != NULL; job = job->next) {
        if (job->creates && ended.work.launches != NULL) {
            emu_misuse("ncclGroupEnd: a group makes communicators and holds operations too, which NCCL does not allow");
            break;
        }
    }
    if (ended.has_mode && !ended.blocking) {
        return run_in_background(&ended.work);
    }
    involved all;
    if (!collect(&ended.work, &all)) {
        drop_work(&ended.work, ncclSystemError);
        return ncclSystemError;
    }
    for (int i = 0; i < all.count; i++) {
        all.entered[i] = comm_enter(all.comms[i], "ncclGroupEnd");
    }
    result = run_work(&ended.work);
    for (int i = 0; i < all.count; i++) {
        comm_leave(all.comms[i], all.entered[i]);
    }
    release(&all);
    return result;
}

/* ---- the calls ------------------------------------------------------------------------------------------ */

API(ncclResult_t, ncclGroupStart, void) {
    emu_fault fault = emu_enter("ncclGroupStart");
    if (fault.kind == EMU_FAULT_CODE) {
        return (ncclResult_t)fault.code;
    }
    if (fault.kind == EMU_FAULT_HANG) {
        return comm_hang(NULL, "ncclGroupStart");
    }
    group_start();
    return ncclSuccess;
}

static bool work_aborted(const work *w) {
    bool aborted = false;
    for (const nccl_launch *launch = w->launches; launch != NULL; launch = launch->next) {
        aborted |= atomic_load(&launch->comm->abort) != 0;
    }
    for (const nccl_job *job = w->jobs; job != NULL; job = job->next) {
        aborted |= job->comm != NULL && atomic_load(&job->comm->abort) != 0;
    }
    return aborted;
}

static ncclResult_t end(emu_fault fault, const char *function) {
    if (group.depth == 0) {
        nccl_warn("%s: there is no ncclGroupStart before it on this thread", function);
        if (atomic_load(&open_groups) > 0) {
            emu_misuse("%s on a thread without a group, while another thread has one open: groups belong to threads",
                       function);
        }
        return ncclInvalidUsage;
    }
    ncclResult_t result = ncclSuccess;
    ncclComm_t comm = group.work.launches != NULL ? group.work.launches->comm
                      : group.work.jobs != NULL   ? group.work.jobs->comm
                                                  : NULL;
    if (fault.kind == EMU_FAULT_CODE) {
        nccl_warn("%s fails by order of a test", function);
        result = (ncclResult_t)fault.code;
    } else if (fault.kind == EMU_FAULT_HANG) {
        while (!work_aborted(&group.work) && nccl4j_emulator_calls(function) > 0) {
            emu_wait(comm == NULL ? 0 : comm->device, 2000000);
        }
        result = ncclInternalError;
    }
    bool outermost = group.depth == 1;
    result = group_end(result);
    if (outermost && comm != NULL && fault.kind == EMU_FAULT_ASYNC) {
        comm_fail(comm, (ncclResult_t)fault.code);
    } else if (outermost && comm != NULL && fault.kind == EMU_FAULT_LOST) {
        comm_lose(comm);
    }
    return result;
}

API(ncclResult_t, ncclGroupEnd, void) {
    return end(emu_enter("ncclGroupEnd"), "ncclGroupEnd");
}

#if EMU_NCCL_VERSION >= 22203
API(ncclResult_t, ncclGroupSimulateEnd, ncclSimInfo_t *info) {
    emu_fault fault = emu_enter("ncclGroupSimulateEnd");
    if (group.depth == 1 && info != NULL && fault.kind == EMU_NO_FAULT) {
        if (info->magic != NCCL_SIMULATION_MAGIC) {
            nccl_warn("ncclGroupSimulateEnd: the ncclSimInfo_t was not initialised");
            return group_end(ncclInvalidArgument);
        }
        if (!group.has_mode || group.blocking) {
            /* Planned, not launched. There is no model of a machine here, so no estimate is written. */
            for (nccl_launch *launch = group.work.launches, *next; launch != NULL; launch = next) {
                next = launch->next;
                launch_drop(launch);
            }
            group.work.launches = NULL;
        }
    }
    return end(fault, "ncclGroupSimulateEnd");
}
#endif
