/* The life of communicators: made, split, shrunk, grown, asked, ended. */
#define _GNU_SOURCE
#include "nccl_comm.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

enum { PATIENCE_SECONDS = 20 }; /* where NCCL would hang because of its caller's mistake */

static pthread_mutex_t alive_lock = PTHREAD_MUTEX_INITIALIZER;
static ncclComm_t alive, dead;

int64_t nccl_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* ---- checks --------------------------------------------------------------------------------------------- */

ncclResult_t comm_check(ncclComm_t comm, const char *function) {
    if (comm == NULL) {
        return REFUSE(ncclInvalidArgument, "%s: comm argument is NULL", function);
    }
    if (comm->magic != COMM_MAGIC) {
        return REFUSE(ncclInvalidArgument, "%s: the communicator is %s", function,
                      comm->magic == COMM_DEAD ? "destroyed or aborted" : "none, or its memory was overwritten");
    }
    return ncclSuccess;
}

ncclResult_t comm_ready(ncclComm_t comm, const char *function) {
    ncclResult_t result = comm_check(comm, function);
    if (result != ncclSuccess) {
        return result;
    }
    int state = atomic_load(&comm->state);
    if (state == ncclInProgress) {
        return REFUSE(ncclInvalidArgument, "%s: rank %d's communicator is used before its last operation is over: poll "
                      "ncclCommGetAsyncError until it is no longer in progress", function, comm->rank);
    }
    return (ncclResult_t)state;
}

bool comm_enter(ncclComm_t comm, const char *function) {
    int self = (int)gettid(), nobody = 0;
    if (atomic_compare_exchange_strong(&comm->inside, &nobody, self)) {
        return true;
    }
    if (nobody != self) {
        emu_misuse("%s: two threads use the communicator of rank %d at once", function, comm->rank);
    }
    return false;
}

void comm_leave(ncclComm_t comm, bool outermost) {
    if (outermost) {
        atomic_store(&comm->inside, 0);
    }
}

void comm_fail(ncclComm_t comm, ncclResult_t code) {
    int success = ncclSuccess;
    if (!atomic_compare_exchange_strong(&comm->state, &success, code) && success == ncclInProgress) {
        atomic_compare_exchange_strong(&comm->state, &success, code);
    }
}

void comm_wake_self(ncclComm_t comm) {
    emu_wake(getpid(), comm->device);
}

void comm_lose(ncclComm_t comm) {
    if (atomic_load(&comm->joined) && atomic_exchange(&comm->clique->ranks[comm->rank].lost, 1) == 0) {
        atomic_fetch_add(&comm->clique->head->left, 1);
        clique_wake(comm->clique);
    }
}

/* ---- waiting --------------------------------------------------------------------------------------------- */

static bool rank_is_gone(ncclComm_t comm, int r, bool ask_the_system) {
    clique_rank *rank = &comm->clique->ranks[r];
    if (r == comm->rank || !atomic_load(&rank->joined)) {
        return false;
    }
    /* Ranks have no connections to each other before all have come, so that none notices another that gives up. */
    if ((atomic_load(&rank->gone) && atomic_load(&comm->clique->head->joined) == comm->count) || atomic_load(&rank->lost)) {
        return true;
    }
    int pid = atomic_load(&rank->pid);
    return ask_the_system && pid != getpid() && atomic_load(&rank->closing) == 0 && !process_lives(pid, rank->birth);
}

ncclResult_t comm_wait(ncclComm_t comm, bool (*reached)(ncclComm_t, void *), void *argument, const char *what) {
    int64_t asked = nccl_now_ns(), pause = 200000;
    for (;;) {
        if (reached(comm, argument)) {
            return ncclSuccess;
        }
        if (atomic_load(&comm->abort) || (comm->parent != NULL && atomic_load(&comm->parent->abort)) || group_cancelled()) {
            nccl_warn("rank %d stops waiting for %s: aborted", comm->rank, what);
            return ncclInternalError;
        }
        bool ask = nccl_now_ns() - asked > 100000000;
        if (ask) {
            asked = nccl_now_ns();
            const clique_key *key = &comm->clique->key;
            if (key->pid != 0 && atomic_load(&comm->clique->head->joined) < comm->count &&
                !process_lives(key->pid, key->birth)) {
                nccl_warn("rank %d waits for %s, but the process that made the unique id has ended", comm->rank, what);
                return ncclRemoteError;
            }
        }
        for (int r = 0; r < comm->count; r++) {
            if (rank_is_gone(comm, r, ask)) {
                nccl_warn("rank %d waits for %s, but rank %d has gone", comm->rank, what, r);
                return ncclRemoteError;
            }
        }
        emu_wait(comm->device, pause);
        pause = pause < 5000000 ? pause * 2 : 5000000;
    }
}

/* Until `reached`, the abort, or the end of patience: false then. */
static bool wait_patiently(ncclComm_t comm, bool (*reached)(ncclComm_t, void *)) {
    int64_t deadline = nccl_now_ns() + PATIENCE_SECONDS * INT64_C(1000000000);
    while (!reached(comm, NULL)) {
        if (atomic_load(&comm->abort)) {
            return true;
        }
        if (nccl_now_ns() > deadline) {
            return false;
        }
        emu_wait(comm->device, 1000000);
    }
    return true;
}

ncclResult_t comm_hang(ncclComm_t comm, const char *function) {
    /* Ends with the abort; or when the tests forget what they ordered, which forgets the counts of calls too. */
    while ((comm == NULL || !atomic_load(&comm->abort)) && nccl4j_emulator_calls(function) > 0) {
        emu_wait(comm == NULL ? 0 : comm->device, 2000000);
    }
    return ncclInternalError;
}

typedef struct {
    uint64_t number;
} meeting;

static bool all_met(ncclComm_t comm, void *argument) {
    uint64_t number = ((meeting *)argument)->number;
    for (int r = 0; r < comm->count; r++) {
        if (atomic_load(&comm->clique->ranks[r].meetings[number % 2].number) < number) {
            return false;
        }
    }
    return true;
}

ncclResult_t comm_meet(ncclComm_t comm, int color, int key, const char *what) {
    meeting now = {++comm->meetings};
    clique_rank *mine = &comm->clique->ranks[comm->rank];
    mine->meetings[now.number % 2].color = color;
    mine->meetings[now.number % 2].key = key;
    atomic_store(&mine->meetings[now.number % 2].number, now.number);
    clique_wake(comm->clique);
    return comm_wait(comm, all_met, &now, what);
}

/* ---- watching the others ------------------------------------------------------------------------------------ */

static void *watch(void *unused) {
    (void)unused;
    for (int tick = 0;; tick++) {
        nanosleep(&(struct timespec){0, 100000000}, NULL);
        pthread_mutex_lock(&alive_lock);
        for (ncclComm_t comm = alive; comm != NULL; comm = comm->next) {
            if (atomic_load(&comm->state) != ncclSuccess || atomic_load(&comm->abort)) {
                continue;
            }
            for (int r = 0; r < comm->count; r++) {
                /* A rank that was aborted is not noticed: its peers hang until they are aborted too. */
                clique_rank *rank = &comm->clique->ranks[r];
                int pid = atomic_load(&rank->pid);
                bool dead = tick % 3 == 0 && pid != getpid() && atomic_load(&rank->closing) == 0 &&
                            !process_lives(pid, rank->birth);
                if (r != comm->rank && (atomic_load(&rank->lost) || dead)) {
                    nccl_warn("rank %d: rank %d (process %d) has gone", comm->rank, r, pid);
                    comm_fail(comm, ncclRemoteError);
                    break;
                }
            }
        }
        pthread_mutex_unlock(&alive_lock);
    }
    return NULL;
}

static void begin_watching(void) {
    clique_sweep();
    pthread_t thread;
    pthread_attr_t detached;
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    if (pthread_create(&thread, &detached, watch, NULL) != 0) {
        nccl_warn("no thread to watch the other ranks: one that dies will not be noticed");
    }
    pthread_attr_destroy(&detached);
}

static pthread_once_t watching = PTHREAD_ONCE_INIT;

/* ---- making and ending --------------------------------------------------------------------------------------- */

static ncclComm_t comm_create(int count, int rank, int device, const ncclConfig_t *config) {
    pthread_once(&watching, begin_watching);
    ncclComm_t comm = calloc(1, sizeof *comm);
    if (comm == NULL) {
        return NULL;
    }
    comm->magic = COMM_MAGIC;
    comm->count = count;
    comm->rank = rank;
    comm->device = device;
    comm->config = *config;
    comm->blocking = config->blocking != 0;
    atomic_store(&comm->state, ncclInProgress);
    emu_count("communicators", 1);
    return comm;
}

void comm_release_clique(ncclComm_t comm) {
    if (atomic_fetch_sub(&comm->clique_users, 1) == 1) {
        clique_close(comm->clique);
        free(comm->sent);
        free(comm->received);
    }
}

/* No operation of the clique goes on from here, and the ranks that wait for this one learn it. */
static void leave_by_force(ncclComm_t comm) {
    if (!atomic_load(&comm->joined)) {
        return;
    }
    clique *c = comm->clique;
    if (atomic_exchange(&c->ranks[comm->rank].gone, 1) != 0) {
        return;
    }
    atomic_fetch_add(&c->head->left, 1);
    if (atomic_load(&c->head->joined) < c->count) {
        clique_unlink(c);
    }
    clique_wake(c);
}

static void comm_dispose(ncclComm_t comm) {
    if (atomic_exchange(&comm->ended, 1) != 0) {
        return;
    }
    pthread_mutex_lock(&alive_lock);
    for (ncclComm_t *link = &alive; *link != NULL; link = &(*link)->next) {
        if (*link == comm) {
            *link = comm->next;
            break;
        }
    }
    comm->next = dead;
    dead = comm;
    pthread_mutex_unlock(&alive_lock);
    comm->magic = COMM_DEAD;
    for (nccl_operator *op = comm->operators, *next; op != NULL; op = next) {
        next = op->next;
        free(op);
        emu_count("reduction operators", -1);
    }
    for (nccl_registration *r = comm->registrations, *next; r != NULL; r = next) {
        next = r->next;
        free(r);
    }
    comm->operators = NULL;
    comm->registrations = NULL;
    free(comm->connected_to);
    free(comm->connected_from);
    if (comm->clique != NULL) {
        comm_release_clique(comm);
    }
    emu_count("communicators", -1);
}

static bool all_joined(ncclComm_t comm, void *unused) {
    (void)unused;
    return atomic_load(&comm->clique->head->joined) == comm->count || atomic_load(&comm->clique->head->mismatch);
}

/* Takes the rank's place in the clique and waits for all others. */
static ncclResult_t join(ncclComm_t comm, const clique_key *key) {
    clique *c = clique_open(key, comm->count);
    if (c == NULL) {
        nccl_warn("rank %d cannot reach the root of the unique id: %s", comm->rank,
                  errno == EDESTADDRREQ ? "these bytes are no unique id"
                  : errno == E2BIG      ? "too many ranks for the emulator"
                                        : strerror(errno));
        return ncclSystemError;
    }
    size_t n = (size_t)comm->count;
    comm->sent = calloc(n, sizeof *comm->sent);
    comm->received = calloc(n, sizeof *comm->received);
    comm->connected_to = calloc(n, sizeof *comm->connected_to);
    comm->connected_from = calloc(n, sizeof *comm->connected_from);
    atomic_store(&comm->clique_users, 1);
    comm->clique = c;
    if (comm->sent == NULL || comm->received == NULL || comm->connected_to == NULL || comm->connected_from == NULL) {
        return ncclSystemError;
    }
    int32_t nobody = 0;
    if (!atomic_compare_exchange_strong(&c->head->ranks, &nobody, comm->count) && nobody != comm->count) {
        atomic_store(&c->head->mismatch, 1);
        clique_wake(c);
        nccl_warn("rank %d was given %d ranks, another rank %d", comm->rank, comm->count, nobody);
        return ncclInvalidUsage;
    }
    clique_rank *mine = &c->ranks[comm->rank];
    nobody = 0;
    if (!atomic_compare_exchange_strong(&mine->pid, &nobody, (int32_t)getpid())) {
        nccl_warn("rank %d of %d has already come (process %d)", comm->rank, comm->count, nobody);
        return ncclInvalidArgument;
    }
    mine->birth = process_birth(getpid());
    mine->device = comm->device;
    mine->version = EMU_NCCL_VERSION;
    atomic_store(&mine->joined, 1);
    atomic_store(&comm->joined, 1);
    if (atomic_fetch_add(&c->head->joined, 1) + 1 == comm->count) {
        clique_unlink(c);
    }
    clique_wake(c);
    ncclResult_t result = comm_wait(comm, all_joined, NULL, "the other ranks of its communicator");
    if (result != ncclSuccess) {
        return result;
    }
    if (atomic_load(&c->head->mismatch)) {
        nccl_warn("rank %d was given %d ranks, another rank another number", comm->rank, comm->count);
        return ncclInvalidUsage;
    }
    const char *several = getenv("NCCL_MULTI_RANK_GPU_ENABLE");
    bool several_allowed = EMU_NCCL_VERSION >= 23003 && several != NULL && atoi(several) != 0;
    for (int r = 0; r < comm->count; r++) {
        if (c->ranks[r].version != EMU_NCCL_VERSION) {
            nccl_warn("Mismatched NCCL version detected: rank %d runs %d, rank %d runs %d", comm->rank, EMU_NCCL_VERSION, r,
                      c->ranks[r].version);
            return ncclInvalidUsage;
        }
        for (int other = 0; other < r && !several_allowed; other++) {
            if (c->ranks[r].device == c->ranks[other].device) {
                nccl_warn("Duplicate GPU detected : rank %d and rank %d both on device %d", other, r, c->ranks[r].device);
                return ncclInvalidUsage;
            }
        }
    }
    pthread_mutex_lock(&alive_lock);
    comm->next = alive;
    alive = comm;
    pthread_mutex_unlock(&alive_lock);
    nccl_info("comm %p rank %d nranks %d cudaDev %d - Init COMPLETE", (void *)comm, comm->rank, comm->count, comm->device);
    return ncclSuccess;
}

/* What became of a new communicator: its state, and, if it failed where the caller waits, the end of it. */
static void conclude(ncclComm_t comm, ncclComm_t *out, ncclResult_t result, bool keep_failed) {
    if (result == ncclSuccess) {
        int in_progress = ncclInProgress;
        atomic_compare_exchange_strong(&comm->state, &in_progress, ncclSuccess);
        return;
    }
    leave_by_force(comm);
    if (keep_failed) {
        comm_fail(comm, result); /* the caller has the handle, and aborts it */
        return;
    }
    *out = NULL;
    if (!atomic_load(&comm->abort)) { /* else the aborting thread ends it */
        comm_dispose(comm);
    }
}

/* ---- configuration --------------------------------------------------------------------------------------------- */

static ncclConfig_t default_config(void) {
    ncclConfig_t config;
    memset(&config, 0, sizeof config);
    config.size = sizeof config;
    config.magic = NCCL_MAGIC;
    config.version = EMU_NCCL_VERSION;
    config.blocking = NCCL_UNDEFINED;
    config.cgaClusterSize = NCCL_UNDEFINED;
    config.minCTAs = NCCL_UNDEFINED;
    config.maxCTAs = NCCL_UNDEFINED;
    config.splitShare = NCCL_UNDEFINED;
#if EMU_NCCL_VERSION >= 22602
    config.trafficClass = NCCL_UNDEFINED;
#endif
#if EMU_NCCL_VERSION >= 22703
    config.collnetEnable = NCCL_UNDEFINED;
    config.CTAPolicy = NCCL_UNDEFINED;
    config.shrinkShare = NCCL_UNDEFINED;
    config.nvlsCTAs = NCCL_UNDEFINED;
#endif
#if EMU_NCCL_VERSION >= 22803
    config.nChannelsPerNetPeer = NCCL_UNDEFINED;
    config.nvlinkCentricSched = NCCL_UNDEFINED;
#endif
#if EMU_NCCL_VERSION >= 22902
    config.graphUsageMode = NCCL_UNDEFINED;
    config.numRmaCtx = NCCL_UNDEFINED;
#endif
#if EMU_NCCL_VERSION >= 23003
    config.maxP2pPeers = NCCL_UNDEFINED;
    config.graphStreamOrdering = NCCL_UNDEFINED;
#endif
    return config;
}

/* Drops what the caller's header did not have. */
static void forget_newer_fields(ncclConfig_t *config) {
    ncclConfig_t fresh = default_config();
    unsigned version = config->version;
    if (version < 21400) {
        config->blocking = fresh.blocking;
    }
    if (version < 21700) {
        config->cgaClusterSize = fresh.cgaClusterSize;
        config->minCTAs = fresh.minCTAs;
        config->maxCTAs = fresh.maxCTAs;
        config->netName = NULL;
    }
#if EMU_NCCL_VERSION >= 22602
    if (version < 22500) {
        config->trafficClass = fresh.trafficClass;
    }
#endif
#if EMU_NCCL_VERSION >= 22703
    if (version < 22700) {
        config->collnetEnable = fresh.collnetEnable;
        config->CTAPolicy = fresh.CTAPolicy;
        config->shrinkShare = fresh.shrinkShare;
        config->nvlsCTAs = fresh.nvlsCTAs;
    }
#endif
#if EMU_NCCL_VERSION >= 22803
    if (version < 22800) {
        config->nChannelsPerNetPeer = fresh.nChannelsPerNetPeer;
        config->nvlinkCentricSched = fresh.nvlinkCentricSched;
    }
#endif
#if EMU_NCCL_VERSION >= 22902
    if (version < 22900) {
        config->graphUsageMode = fresh.graphUsageMode;
        config->numRmaCtx = fresh.numRmaCtx;
    }
#endif
#if EMU_NCCL_VERSION >= 23003
    if (version < 23000) {
        config->maxP2pPeers = fresh.maxP2pPeers;
    }
    if (version < 23005) {
        config->graphStreamOrdering = fresh.graphStreamOrdering;
    }
#endif
}

static bool in_range(const char *name, int value, int least, int most) {
    if (value == NCCL_UNDEFINED || (value >= least && value <= most)) {
        return true;
    }
    nccl_warn("Invalid config %s attribute value %d", name, value);
    return false;
}

static int settled(int value, int otherwise) {
    return value == NCCL_UNDEFINED ? otherwise : value;
}

static ncclResult_t read_config(const ncclConfig_t *given, ncclConfig_t *config) {
    *config = default_config();
    if (given != NULL) {
        memcpy(config, given, given->size < sizeof *config ? given->size : sizeof *config);
        if (config->magic != NCCL_MAGIC) {
            nccl_warn("ncclConfig_t argument not initialized via NCCL_CONFIG_INITIALIZER");
            return ncclInvalidArgument;
        }
        forget_newer_fields(config);
        config->size = sizeof *config;
        config->version = EMU_NCCL_VERSION;
    }
    bool right = in_range("blocking", config->blocking, 0, 1) &&
                 in_range("cgaClusterSize", config->cgaClusterSize, 0, INT_MAX) &&
                 in_range("minCTAs", config->minCTAs, 1, INT_MAX) && in_range("maxCTAs", config->maxCTAs, 1, INT_MAX) &&
                 in_range("splitShare", config->splitShare, 0, 1);
    if (right && settled(config->minCTAs, 1) > settled(config->maxCTAs, INT_MAX)) {
        nccl_warn("Invalid config min/max channels attribute value %d/%d", config->minCTAs, config->maxCTAs);
        right = false;
    }
    if (right && config->netName != NULL && strcasecmp(config->netName, "Socket") != 0 &&
        strcasecmp(config->netName, "IB") != 0) {
        nccl_warn("Invalid config netName %s: the emulator knows Socket and IB", config->netName);
        right = false;
    }
#if EMU_NCCL_VERSION >= 22703
    right = right && in_range("collnetEnable", config->collnetEnable, 0, 1) &&
            in_range("CTAPolicy", config->CTAPolicy, 0, 3) && in_range("shrinkShare", config->shrinkShare, 0, 1) &&
            in_range("nvlsCTAs", config->nvlsCTAs, 1, INT_MAX);
#endif
#if EMU_NCCL_VERSION >= 22803
    right = right && in_range("nChannelsPerNetPeer", config->nChannelsPerNetPeer, 1, 64) &&
            in_range("nvlinkCentricSched", config->nvlinkCentricSched, 0, 1);
#endif
#if EMU_NCCL_VERSION >= 22902
    right = right && in_range("graphUsageMode", config->graphUsageMode, 0, 2) &&
            in_range("numRmaCtx", config->numRmaCtx, 0, INT_MAX);
#endif
#if EMU_NCCL_VERSION >= 23003
    right = right && in_range("maxP2pPeers", config->maxP2pPeers, 1, INT_MAX) &&
            in_range("graphStreamOrdering", config->graphStreamOrdering, 0, 1);
#endif
    if (!right) {
        return ncclInvalidArgument;
    }
    config->blocking = settled(config->blocking, 1);
    config->splitShare = settled(config->splitShare, 0);
#if EMU_NCCL_VERSION >= 22703
    config->shrinkShare = settled(config->shrinkShare, 0);
#endif
    const char *blocking = getenv("NCCL_COMM_BLOCKING");
    if (blocking != NULL && (strcmp(blocking, "0") == 0 || strcmp(blocking, "1") == 0)) {
        config->blocking = blocking[0] - '0';
    }
    const char *share = getenv("NCCL_COMM_SPLIT_SHARE_RESOURCES");
    if (share != NULL && (strcmp(share, "0") == 0 || strcmp(share, "1") == 0)) {
        config->splitShare = share[0] - '0';
    }
    return ncclSuccess;
}

/* ---- unique ids --------------------------------------------------------------------------------------------------- */

_Static_assert(sizeof(clique_key) <= sizeof(ncclUniqueId), "a unique id holds a key");

API(ncclResult_t, ncclGetUniqueId, ncclUniqueId *id) {
    emu_fault fault = emu_enter("ncclGetUniqueId");
    if (fault.kind == EMU_FAULT_CODE) {
        return (ncclResult_t)fault.code;
    }
    if (fault.kind == EMU_FAULT_HANG) {
        return comm_hang(NULL, "ncclGetUniqueId");
    }
    if (id == NULL) {
        return REFUSE(ncclInvalidArgument, "ncclGetUniqueId: out argument is NULL");
    }
    clique_key key;
    memset(id, 0, sizeof *id);
    if (!clique_new_key(&key)) {
        nccl_warn("no random numbers: %s", strerror(errno));
        return ncclSystemError;
    }
    memcpy(id->internal, &key, sizeof key);
    return ncclSuccess;
}

/* ---- init ----------------------------------------------------------------------------------------------------------- */

typedef struct {
    nccl_job job;
    ncclComm_t *out;
    clique_key key;
    emu_fault fault;
    const char *function;
} init_job;

static ncclResult_t init_run(nccl_job *job) {
    init_job *init = (init_job *)job;
    ncclComm_t comm = job->comm;
    if (init->fault.kind == EMU_FAULT_HANG) {
        return comm_hang(comm, init->function);
    }
    if (comm->rank == 0) {
        nccl_show_version();
    }
    ncclResult_t result = join(comm, &init->key);
    if (result == ncclSuccess && init->fault.kind == EMU_FAULT_LOST) {
        comm_lose(comm);
    }
    if (result == ncclSuccess && job->blocking) {
        conclude(comm, init->out, ncclSuccess, false);
    }
    if (result == ncclSuccess && init->fault.kind == EMU_FAULT_ASYNC) {
        comm_fail(comm, (ncclResult_t)init->fault.code);
    }
    return result;
}

static void init_drop(nccl_job *job, ncclResult_t result) {
    conclude(job->comm, ((init_job *)job)->out, result, !job->blocking && atomic_load(&job->comm->users) > 0);
}

static bool machine_works(int device) {
    if (emu_device_count() == 0) {
        nccl_warn("Cuda failure 100: no device");
        return false;
    }
    if (emu_device_fault(device) != 0) {
        nccl_warn("Cuda failure %d on device %d: its context is lost", emu_device_fault(device), device);
        return false;
    }
    return true;
}

/* Records the making of a communicator; the handle is there at once, so that it can be aborted. `here`: whatever the
   communicator's mode, the calling thread makes it. */
static ncclResult_t init_record(const char *function, emu_fault fault, ncclComm_t *out, int count, const clique_key *key,
                                int rank, const ncclConfig_t *config, bool here) {
    if (fault.kind == EMU_FAULT_CODE) {
        nccl_warn("%s fails by order of a test", function);
        return (ncclResult_t)fault.code;
    }
    if (out == NULL) {
        nccl_warn("%s: newcomm argument is NULL", function);
        return ncclInvalidArgument;
    }
    if (count < 1 || rank < 0 || rank >= count) {
        nccl_warn("Invalid rank requested : %d/%d", rank, count);
        return ncclInvalidArgument;
    }
    ncclConfig_t settings;
    ncclResult_t result = read_config(config, &settings);
    if (result != ncclSuccess) {
        return result;
    }
    int device = emu_current_device();
    if (!machine_works(device)) {
        return ncclUnhandledCudaError;
    }
    result = group_mode(here || settings.blocking != 0);
    if (result != ncclSuccess) {
        return result;
    }
    init_job *job = calloc(1, sizeof *job);
    ncclComm_t comm = job == NULL ? NULL : comm_create(count, rank, device, &settings);
    if (comm == NULL) {
        free(job);
        return ncclSystemError;
    }
    job->job.run = init_run;
    job->job.drop = init_drop;
    job->job.comm = comm;
    job->job.blocking = here || comm->blocking;
    job->job.creates = true;
    job->out = out;
    job->key = *key;
    job->fault = fault;
    job->function = function;
    __atomic_store_n(out, comm, __ATOMIC_RELEASE); /* another thread may abort it from here on */
    group_add_job(&job->job);
    return ncclSuccess;
}

static ncclResult_t init(const char *function, emu_fault fault, ncclComm_t *out, int count, const ncclUniqueId *id, int rank,
                         const ncclConfig_t *config, bool here) {
    clique_key key;
    memcpy(&key, id->internal, sizeof key);
    group_start();
    ncclResult_t result = init_record(function, fault, out, count, &key, rank, config, here);
    if (result != ncclSuccess && out != NULL) {
        *out = NULL;
    }
    bool recorded = result == ncclSuccess;
    ncclComm_t comm = recorded ? *out : NULL;
    result = group_end(result);
    if (recorded && !comm->blocking && result == ncclInProgress) {
        return (ncclResult_t)atomic_load(&comm->state);
    }
    return result;
}

API(ncclResult_t, ncclCommInitRank, ncclComm_t *comm, int nranks, ncclUniqueId id, int rank) {
    /* Outside of a group it runs here to the end, whatever NCCL_COMM_BLOCKING says. */
    return init("ncclCommInitRank", emu_enter("ncclCommInitRank"), comm, nranks, &id, rank, NULL, group_depth() == 0);
}

API(ncclResult_t, ncclCommInitRankConfig, ncclComm_t *comm, int nranks, ncclUniqueId id, int rank, ncclConfig_t *config) {
    return init("ncclCommInitRankConfig", emu_enter("ncclCommInitRankConfig"), comm, nranks, &id, rank, config, false);
}

#if EMU_NCCL_VERSION >= 22304
API(ncclResult_t, ncclCommInitRankScalable, ncclComm_t *comm, int nranks, int rank, int ids, ncclUniqueId *id,
    ncclConfig_t *config) {
    emu_fault fault = emu_enter("ncclCommInitRankScalable");
    if (id == NULL || ids < 1 || ids > nranks) {
        nccl_warn("ncclCommInitRankScalable: improper usage of %d unique ids for %d ranks", ids, nranks);
        if (comm != NULL) {
            *comm = NULL;
        }
        group_start();
        return group_end(ncclInvalidArgument);
    }
    return init("ncclCommInitRankScalable", fault, comm, nranks, &id[0], rank, config, false);
}
#endif

API(ncclResult_t, ncclCommInitAll, ncclComm_t *comms, int count, const int *devices) {
    emu_fault fault = emu_enter("ncclCommInitAll");
    clique_key key;
    if (fault.kind == EMU_FAULT_CODE) {
        return (ncclResult_t)fault.code;
    }
    if (comms == NULL || count < 1) {
        nccl_warn("ncclCommInitAll: %s", comms == NULL ? "comms argument is NULL" : "invalid device count requested");
        return ncclInvalidArgument;
    }
    if (devices == NULL && count > emu_device_count()) {
        nccl_warn("ncclCommInitAll: %d communicators wanted, but there are %d devices", count, emu_device_count());
        return ncclInvalidArgument;
    }
    const char *several = getenv("NCCL_MULTI_RANK_GPU_ENABLE");
    for (int i = 0; devices != NULL && i < count; i++) {
        if (devices[i] < 0 || devices[i] >= emu_device_count()) {
            nccl_warn("ncclCommInitAll: there is no device %d", devices[i]);
            return ncclInvalidArgument;
        }
        for (int j = 0; j < i; j++) {
            if (devices[i] == devices[j] && (EMU_NCCL_VERSION < 23003 || several == NULL || atoi(several) == 0)) {
                nccl_warn("ncclCommInitAll: device %d is given twice", devices[i]);
                return ncclInvalidUsage;
            }
        }
    }
    if (!clique_new_key(&key)) {
        return ncclSystemError;
    }
    int current = emu_current_device();
    ncclResult_t result = ncclSuccess;
    group_start();
    for (int i = 0; i < count && result == ncclSuccess; i++) {
        emu_set_current_device(devices == NULL ? i : devices[i]);
        result = init_record("ncclCommInitAll", fault, &comms[i], count, &key, i, NULL, true);
    }
    emu_set_current_device(current);
    return group_end(result);
}

/* ---- split, shrink, grow ------------------------------------------------------------------------------------------------ */

typedef enum { CHILD_SPLIT, CHILD_SHRINK, CHILD_GROW } child_kind;

typedef struct {
    nccl_job job;
    child_kind kind;
    ncclComm_t parent, child;
    ncclComm_t *out;
    ncclConfig_t config;
    int color, key;        /* split */
    int *excluded, count;  /* shrink: the list; grow: how many ranks there will be */
    bool by_force;         /* shrink */
    emu_fault fault;
    const char *function;
} child_job;

static ncclResult_t child_join(child_job *job, int count, int rank, const clique_key *key) {
    job->child = comm_create(count, rank, job->parent->device, &job->config);
    if (job->child == NULL) {
        return ncclSystemError;
    }
    job->child->parent = job->parent;
    ncclResult_t result = join(job->child, key);
    job->child->parent = NULL;
    return result;
}

static ncclResult_t split(child_job *job) {
    ncclComm_t parent = job->parent;
    ncclResult_t result = comm_meet(parent, job->color, job->key, "all ranks' ncclCommSplit");
    if (result != ncclSuccess || job->color == NCCL_SPLIT_NOCOLOR) {
        return result;
    }
    uint64_t number = parent->meetings;
    int count = 0, rank = 0, first = -1, first_key = 0;
    for (int r = 0; r < parent->count; r++) {
        int color = parent->clique->ranks[r].meetings[number % 2].color;
        int key = parent->clique->ranks[r].meetings[number % 2].key;
        if (color != job->color) {
            continue;
        }
        count++;
        if (key < job->key || (key == job->key && r < parent->rank)) {
            rank++;
        }
        if (first < 0 || key < first_key) {
            first = r;
            first_key = key;
        }
    }
    clique_key key;
    clique_derive_key(&key, &parent->clique->key, atomic_load(&parent->clique->ranks[first].pid),
                      parent->clique->ranks[first].birth, number, &job->color, sizeof job->color);
    result = child_join(job, count, rank, &key);
    if (result == ncclSuccess && job->config.splitShare == 1) {
        parent->shares = true;
        job->child->shares = true;
    }
    return result;
}

#if EMU_NCCL_VERSION >= 22703
static bool nothing_runs(ncclComm_t comm, void *unused) {
    (void)unused;
    return atomic_load(&comm->running) == 0;
}

static ncclResult_t shrink(child_job *job) {
    ncclComm_t parent = job->parent;
    if (job->by_force) {
        atomic_store(&parent->cancelled, 1);
        leave_by_force(parent);
        comm_wake_self(parent);
        wait_patiently(parent, nothing_runs);
    }
    int rank = parent->rank, first = 0, next = 0;
    for (int r = 0, i = 0; r < parent->count; r++) {
        while (i < job->count && job->excluded[i] < r) {
            i++;
        }
        bool out = i < job->count && job->excluded[i] == r;
        if (out && r < parent->rank) {
            rank--;
        }
        if (!out && next++ == 0) {
            first = r;
        }
    }
    clique_key key;
    clique_derive_key(&key, &parent->clique->key, atomic_load(&parent->clique->ranks[first].pid),
                      parent->clique->ranks[first].birth, UINT64_C(1) << 40 | ++parent->shrinks, job->excluded,
                      (size_t)job->count * sizeof *job->excluded);
    return child_join(job, next, rank, &key);
}
#endif

#if EMU_NCCL_VERSION >= 22902
static bool id_has_come(ncclComm_t comm, void *number) {
    return atomic_load(&comm->clique->head->growth) >= *(uint64_t *)number;
}

static ncclResult_t grow(child_job *job) {
    ncclComm_t parent = job->parent;
    uint64_t number = parent->growths + 1;
    ncclResult_t result = comm_wait(parent, id_has_come, &number, "the unique id of ncclCommGetUniqueId");
    if (result != ncclSuccess) {
        return result;
    }
    parent->growths = number;
    clique_key key;
    memcpy(&key, parent->clique->head->growth_id.internal, sizeof key);
    return child_join(job, job->count, parent->rank, &key);
}
#endif

static ncclResult_t child_run(nccl_job *base) {
    child_job *job = (child_job *)base;
    if (job->fault.kind == EMU_FAULT_HANG) {
        return comm_hang(job->parent, job->function);
    }
    if (job->fault.kind == EMU_FAULT_LOST) {
        comm_lose(job->parent);
    }
    ncclResult_t result = ncclInternalError;
    switch (job->kind) {
    case CHILD_SPLIT:
        result = split(job);
        break;
#if EMU_NCCL_VERSION >= 22703
    case CHILD_SHRINK:
        result = shrink(job);
        break;
#endif
#if EMU_NCCL_VERSION >= 22902
    case CHILD_GROW:
        result = grow(job);
        break;
#endif
    default:
        break;
    }
    free(job->excluded);
    job->excluded = NULL;
    if (result == ncclSuccess) {
        if (job->child != NULL) {
            conclude(job->child, &job->child, ncclSuccess, false);
            *job->out = job->child;
        }
        if (job->fault.kind == EMU_FAULT_ASYNC) {
            comm_fail(job->parent, (ncclResult_t)job->fault.code);
        }
    }
    return result;
}

static void child_drop(nccl_job *base, ncclResult_t result) {
    child_job *job = (child_job *)base;
    free(job->excluded);
    *job->out = NULL;
    if (job->child != NULL) {
        conclude(job->child, &job->child, result, false);
    }
}

static ncclResult_t child_record(child_job *given, const ncclConfig_t *config) {
    ncclComm_t parent = given->parent;
    if (given->fault.kind == EMU_FAULT_CODE) {
        nccl_warn("%s fails by order of a test", given->function);
        return (ncclResult_t)given->fault.code;
    }
    if (given->out == NULL) {
        return REFUSE(ncclInvalidArgument, "%s: newcomm argument is NULL", given->function);
    }
    *given->out = NULL;
    if (config == NULL) {
        given->config = parent->config;
    } else {
        ncclResult_t result = read_config(config, &given->config);
        if (result != ncclSuccess) {
            return result;
        }
    }
    if (atomic_load(&parent->pending) > 0 && !given->by_force) {
        emu_misuse("%s of rank %d while operations of the parent are outstanding: this can deadlock", given->function,
                   parent->rank);
    }
    ncclResult_t result = group_mode(parent->blocking);
    if (result != ncclSuccess) {
        return result;
    }
    child_job *job = malloc(sizeof *job);
    if (job == NULL) {
        return ncclSystemError;
    }
    *job = *given;
    job->job.run = child_run;
    job->job.drop = child_drop;
    job->job.comm = parent; /* the child is not there until the parent is done */
    job->job.blocking = parent->blocking;
    group_add_job(&job->job);
    return ncclSuccess;
}

/* The new communicator's handle comes later, so success stands for "goes on" too. */
static ncclResult_t child_end(ncclResult_t result) {
    result = group_end(result);
    return result == ncclInProgress ? ncclSuccess : result;
}

API(ncclResult_t, ncclCommSplit, ncclComm_t comm, int color, int key, ncclComm_t *out, ncclConfig_t *config) {
    child_job job = {.kind = CHILD_SPLIT, .parent = comm, .out = out, .color = color, .key = key,
                     .fault = emu_enter("ncclCommSplit"), .function = "ncclCommSplit"};
    group_start();
    ncclResult_t result = comm_ready(comm, job.function);
    if (result != ncclSuccess) {
        return group_end(result);
    }
    bool outermost = comm_enter(comm, job.function);
    result = child_record(&job, config);
    comm_leave(comm, outermost);
    return child_end(result);
}

#if EMU_NCCL_VERSION >= 22703
static int by_number(const void *x, const void *y) {
    return (*(const int *)x > *(const int *)y) - (*(const int *)x < *(const int *)y);
}

static ncclResult_t shrink_record(child_job *job, int *excluded, int count, int flags, const ncclConfig_t *config) {
    ncclComm_t comm = job->parent;
    if (excluded == NULL || count <= 0) {
        return REFUSE(ncclInvalidArgument, "ncclCommShrink: the list of ranks to leave out is empty");
    }
    if (flags != NCCL_SHRINK_DEFAULT && flags != NCCL_SHRINK_ABORT) {
        return REFUSE(ncclInvalidArgument, "ncclCommShrink: flags %d", flags);
    }
    qsort(excluded, (size_t)count, sizeof *excluded, by_number); /* the caller's own array, as NCCL does */
    for (int i = 0; i < count; i++) {
        if (excluded[i] < 0 || excluded[i] >= comm->count || excluded[i] == comm->rank ||
            (i > 0 && excluded[i] == excluded[i - 1])) {
            return REFUSE(ncclInvalidArgument, "ncclCommShrink: rank %d cannot be left out by rank %d", excluded[i], comm->rank);
        }
    }
    job->by_force = flags == NCCL_SHRINK_ABORT;
    job->count = count;
    job->excluded = malloc((size_t)count * sizeof *excluded);
    if (job->excluded == NULL) {
        return ncclSystemError;
    }
    memcpy(job->excluded, excluded, (size_t)count * sizeof *excluded);
    ncclResult_t result = child_record(job, config);
    if (result != ncclSuccess) {
        free(job->excluded);
    }
    return result;
}

API(ncclResult_t, ncclCommShrink, ncclComm_t comm, int *excluded, int count, ncclComm_t *out, ncclConfig_t *config, int flags) {
    child_job job = {.kind = CHILD_SHRINK, .parent = comm, .out = out, .fault = emu_enter("ncclCommShrink"),
                     .function = "ncclCommShrink"};
    group_start();
    ncclResult_t result = comm_check(comm, job.function);
    if (result == ncclSuccess && flags != NCCL_SHRINK_ABORT) {
        result = comm_ready(comm, job.function);
    } else if (result == ncclSuccess && atomic_load(&comm->state) == ncclInProgress) {
        result = comm_ready(comm, job.function);
    }
    if (result != ncclSuccess) {
        return group_end(result);
    }
    bool outermost = comm_enter(comm, job.function);
    result = shrink_record(&job, excluded, count, flags, config);
    comm_leave(comm, outermost);
    return child_end(result);
}
#endif

#if EMU_NCCL_VERSION >= 22902
API(ncclResult_t, ncclCommGetUniqueId, ncclComm_t comm, ncclUniqueId *id) {
    emu_fault fault = emu_enter("ncclCommGetUniqueId");
    if (fault.kind == EMU_FAULT_CODE) {
        return (ncclResult_t)fault.code;
    }
    ncclResult_t result = comm_ready(comm, "ncclCommGetUniqueId");
    if (result != ncclSuccess) {
        return result;
    }
    if (id == NULL) {
        return REFUSE(ncclInvalidArgument, "ncclCommGetUniqueId: out argument is NULL");
    }
    const char *address = getenv("NCCL_COMM_ID");
    clique_head *head = comm->clique->head;
    if ((address != NULL && address[0] != 0) || atomic_load(&head->growth) > comm->growths) {
        nccl_warn("ncclCommGetUniqueId: %s", address != NULL ? "not together with NCCL_COMM_ID"
                                                              : "an id of this communicator is not used yet");
        return ncclInvalidUsage;
    }
    clique_key key;
    if (!clique_new_key(&key)) {
        return ncclSystemError;
    }
    memset(id, 0, sizeof *id);
    memcpy(id->internal, &key, sizeof key);
    head->growth_id = *id;
    atomic_fetch_add(&head->growth, 1);
    clique_wake(comm->clique);
    return ncclSuccess;
}

API(ncclResult_t, ncclCommGrow, ncclComm_t comm, int count, const ncclUniqueId *id, int rank, ncclComm_t *out,
    ncclConfig_t *config) {
    emu_fault fault = emu_enter("ncclCommGrow");
    if (comm == NULL) {
        if (id == NULL) {
            nccl_warn("ncclCommGrow: a new rank needs the unique id");
            group_start();
            return group_end(ncclInvalidArgument);
        }
        return init("ncclCommGrow", fault, out, count, id, rank, config, false);
    }
    child_job job = {.kind = CHILD_GROW, .parent = comm, .out = out, .count = count, .fault = fault, .function = "ncclCommGrow"};
    group_start();
    ncclResult_t result = comm_ready(comm, job.function);
    if (result == ncclSuccess && (rank != -1 || count <= comm->count)) {
        result = REFUSE(ncclInvalidArgument, "ncclCommGrow: an existing rank passes -1 (not %d) and more ranks than %d (not %d)", rank,
                        comm->count, count);
    }
    if (result != ncclSuccess) {
        return group_end(result);
    }
    bool outermost = comm_enter(comm, job.function);
    result = child_record(&job, config);
    comm_leave(comm, outermost);
    return child_end(result);
}
#endif

/* ---- questions ---------------------------------------------------------------------------------------------------------- */

API(ncclResult_t, ncclCommGetAsyncError, ncclComm_t comm, ncclResult_t *state) {
    emu_fault fault = emu_enter("ncclCommGetAsyncError");
    if (fault.kind == EMU_FAULT_CODE) {
        return (ncclResult_t)fault.code;
    }
    ncclResult_t result = comm_check(comm, "ncclCommGetAsyncError");
    if (result != ncclSuccess) {
        return result;
    }
    if (fault.kind == EMU_FAULT_HANG) {
        return comm_hang(comm, "ncclCommGetAsyncError");
    }
    if (state == NULL) {
        return REFUSE(ncclInvalidArgument, "ncclCommGetAsyncError: asyncError argument is NULL");
    }
    if (fault.kind == EMU_FAULT_ASYNC) {
        comm_fail(comm, (ncclResult_t)fault.code);
    } else if (fault.kind == EMU_FAULT_LOST) {
        comm_lose(comm);
    }
    *state = (ncclResult_t)atomic_load(&comm->state);
    return ncclSuccess;
}

static ncclResult_t ask(const char *function, ncclComm_t comm, int *out, int (*answer)(ncclComm_t)) {
    emu_fault fault = emu_enter(function);
    if (fault.kind == EMU_FAULT_CODE) {
        return (ncclResult_t)fault.code;
    }
    ncclResult_t result = comm_ready(comm, function);
    if (result != ncclSuccess) {
        return result;
    }
    if (fault.kind == EMU_FAULT_HANG) {
        return comm_hang(comm, function);
    }
    if (out == NULL) {
        return REFUSE(ncclInvalidArgument, "%s: out argument is NULL", function);
    }
    bool outermost = comm_enter(comm, function);
    *out = answer(comm);
    comm_leave(comm, outermost);
    return ncclSuccess;
}

static int count_of(ncclComm_t comm) {
    return comm->count;
}

static int device_of(ncclComm_t comm) {
    return comm->device;
}

static int rank_of(ncclComm_t comm) {
    return comm->rank;
}

API(ncclResult_t, ncclCommCount, const ncclComm_t comm, int *count) {
    return ask("ncclCommCount", comm, count, count_of);
}

API(ncclResult_t, ncclCommCuDevice, const ncclComm_t comm, int *device) {
    return ask("ncclCommCuDevice", comm, device, device_of);
}

API(ncclResult_t, ncclCommUserRank, const ncclComm_t comm, int *rank) {
    return ask("ncclCommUserRank", comm, rank, rank_of);
}

/* ---- the end --------------------------------------------------------------------------------------------------------------- */

typedef struct {
    nccl_job job;
    ncclComm_t comm; /* not job.comm: this call does not keep it alive, it ends it */
    emu_fault fault;
} end_job;

static bool nothing_pending(ncclComm_t comm, void *unused) {
    (void)unused;
    return atomic_load(&comm->pending) == 0;
}

static bool graphs_destroyed(ncclComm_t comm, void *unused) {
    (void)unused;
    return atomic_load(&comm->graphs) == 0;
}

static bool others_close(ncclComm_t comm, void *unused) {
    (void)unused;
    for (int r = 0; r < comm->count; r++) {
        clique_rank *rank = &comm->clique->ranks[r];
        int pid = atomic_load(&rank->pid);
        if (pid != getpid() && atomic_load(&rank->closing) == 0 && !atomic_load(&rank->gone) && !atomic_load(&rank->lost) &&
            process_lives(pid, rank->birth)) {
            return false;
        }
    }
    return true;
}

/* Whether this is the last rank of its process to close: only that one waits for other processes. */
static bool closes_last(ncclComm_t comm) {
    for (int r = 0; r < comm->count; r++) {
        clique_rank *rank = &comm->clique->ranks[r];
        if (atomic_load(&rank->pid) == getpid() && atomic_load(&rank->closing) == 0 && !atomic_load(&rank->gone)) {
            return false;
        }
    }
    return true;
}

static void close_with_others(ncclComm_t comm, const char *function) {
    int32_t open = 0;
    atomic_compare_exchange_strong(&comm->clique->ranks[comm->rank].closing, &open, 1);
    clique_wake(comm->clique);
    if (closes_last(comm) && !wait_patiently(comm, others_close)) {
        emu_misuse("%s of rank %d: ranks in other processes have not closed theirs in %d s; NCCL may wait for ever", function,
                   comm->rank, PATIENCE_SECONDS);
    }
}

/* Captured graphs hold the communicator: NCCL waits for them without limit. */
static void wait_for_graphs(ncclComm_t comm, const char *function) {
    int64_t deadline = nccl_now_ns() + PATIENCE_SECONDS * INT64_C(1000000000);
    while (!graphs_destroyed(comm, NULL)) {
        if (nccl_now_ns() > deadline) {
            emu_misuse("%s of rank %d while a graph with its operations exists: NCCL waits for ever", function, comm->rank);
            return;
        }
        emu_wait(comm->device, 1000000);
    }
}

static ncclResult_t finalize_run(nccl_job *job) {
    ncclComm_t comm = job->comm;
    end_job *end = (end_job *)job;
    if (end->fault.kind == EMU_FAULT_HANG) {
        return comm_hang(comm, "ncclCommFinalize");
    }
    if (end->fault.kind == EMU_FAULT_LOST) {
        comm_lose(comm);
    }
    ncclResult_t result = comm_wait(comm, nothing_pending, NULL, "its own operations");
    if (result != ncclSuccess) {
        return result;
    }
    wait_for_graphs(comm, "ncclCommFinalize");
    close_with_others(comm, "ncclCommFinalize");
    if (end->fault.kind == EMU_FAULT_ASYNC) {
        comm_fail(comm, (ncclResult_t)end->fault.code);
    }
    return ncclSuccess;
}

static void nothing_to_drop(nccl_job *job, ncclResult_t result) {
    (void)job;
    (void)result;
}

static ncclResult_t finalize_record(ncclComm_t comm, emu_fault fault) {
    if (fault.kind == EMU_FAULT_CODE) {
        nccl_warn("ncclCommFinalize fails by order of a test");
        return (ncclResult_t)fault.code;
    }
    if (atomic_load(&comm->cancelled)) {
        nccl_warn("ncclCommFinalize: the communicator of rank %d is revoked", comm->rank);
        return ncclInvalidArgument;
    }
    if (atomic_exchange(&comm->finalized, 1) != 0) {
        return REFUSE(ncclInvalidArgument, "ncclCommFinalize: called before for rank %d", comm->rank);
    }
    ncclResult_t result = group_mode(comm->blocking);
    end_job *job = result == ncclSuccess ? calloc(1, sizeof *job) : NULL;
    if (job == NULL) {
        return result == ncclSuccess ? ncclSystemError : result;
    }
    job->job.run = finalize_run;
    job->job.drop = nothing_to_drop;
    job->job.comm = comm;
    job->job.blocking = comm->blocking;
    job->fault = fault;
    group_add_job(&job->job);
    return ncclSuccess;
}

API(ncclResult_t, ncclCommFinalize, ncclComm_t comm) {
    emu_fault fault = emu_enter("ncclCommFinalize");
    if (comm == NULL) {
        return ncclSuccess;
    }
    group_start();
    ncclResult_t result = comm_ready(comm, "ncclCommFinalize");
    if (result != ncclSuccess) {
        return group_end(result);
    }
    bool outermost = comm_enter(comm, "ncclCommFinalize");
    result = finalize_record(comm, fault);
    comm_leave(comm, outermost);
    result = group_end(result);
    return result == ncclInProgress ? (ncclResult_t)atomic_load(&comm->state) : result;
}

static bool nobody_inside(ncclComm_t comm) {
    return atomic_load(&comm->users) == 0 && atomic_load(&comm->running) == 0;
}

/* Whether another rank works on this one's memory now. */
static bool somebody_touches(ncclComm_t comm) {
    clique *c = comm->clique;
    for (int r = 0; c != NULL && r < c->count; r++) {
        if (atomic_load(&c->ranks[r].busy) && !rank_is_gone(comm, r, true)) {
            return true;
        }
    }
    return false;
}

static void end_by_force(ncclComm_t comm, const char *function) {
    atomic_store(&comm->abort, 1);
    leave_by_force(comm);
    int64_t deadline = nccl_now_ns() + PATIENCE_SECONDS * INT64_C(1000000000);
    while (!nobody_inside(comm) || somebody_touches(comm)) {
        comm_wake_self(comm);
        if (nccl_now_ns() > deadline) {
            emu_misuse("%s of rank %d: %d calls inside and %d launches running do not leave; NCCL may wait for ever", function,
                       comm->rank, atomic_load(&comm->users), atomic_load(&comm->running));
            break;
        }
        nanosleep(&(struct timespec){0, 200000}, NULL);
    }
    leave_by_force(comm); /* a rank that was about to join when it was aborted */
    wait_for_graphs(comm, function);
    comm_dispose(comm);
}

static ncclResult_t destroy_run(nccl_job *job) {
    end_job *end = (end_job *)job;
    ncclComm_t comm = end->comm;
    if (end->fault.kind == EMU_FAULT_HANG) {
        return comm_hang(comm, "ncclCommDestroy");
    }
    if (atomic_load(&comm->ended) || atomic_load(&comm->abort)) {
        return ncclInvalidArgument; /* aborted in the same group */
    }
    if (atomic_load(&comm->pending) > 0) {
        emu_misuse("ncclCommDestroy of rank %d with %d launches that are not over", comm->rank, atomic_load(&comm->pending));
        if (!wait_patiently(comm, nothing_pending)) {
            emu_misuse("ncclCommDestroy of rank %d: its operations have not ended in %d s; NCCL would wait for ever", comm->rank,
                       PATIENCE_SECONDS);
            end_by_force(comm, "ncclCommDestroy");
            return ncclSuccess;
        }
    }
    wait_for_graphs(comm, "ncclCommDestroy");
    if (!atomic_load(&comm->finalized) && !atomic_load(&comm->cancelled)) {
        close_with_others(comm, "ncclCommDestroy");
    }
    atomic_store(&comm->clique->ranks[comm->rank].closing, 2);
    clique_wake(comm->clique);
    comm_dispose(comm);
    return ncclSuccess;
}

static ncclResult_t end_record(ncclComm_t comm, emu_fault fault, ncclResult_t (*run)(nccl_job *), const char *function) {
    if (EMU_NCCL_VERSION < 22203 && group_depth() > 1) {
        emu_misuse("%s in a group, which needs NCCL 2.22", function);
    }
    end_job *job = calloc(1, sizeof *job);
    if (job == NULL) {
        return ncclSystemError;
    }
    job->job.run = run;
    job->job.drop = nothing_to_drop;
    job->job.blocking = true;
    job->comm = comm;
    job->fault = fault;
    group_add_job(&job->job);
    return ncclSuccess;
}

API(ncclResult_t, ncclCommDestroy, ncclComm_t comm) {
    emu_fault fault = emu_enter("ncclCommDestroy");
    if (comm == NULL) {
        return ncclSuccess;
    }
    group_start();
    ncclResult_t result = comm_ready(comm, "ncclCommDestroy");
    if (result != ncclSuccess) {
#if EMU_NCCL_VERSION >= 22602
        return result; /* NCCL's own leak: the thread stays inside a group */
#else
        return group_end(result);
#endif
    }
    if (fault.kind == EMU_FAULT_CODE) {
        nccl_warn("ncclCommDestroy fails by order of a test");
        return group_end((ncclResult_t)fault.code);
    }
    return group_end(end_record(comm, fault, destroy_run, "ncclCommDestroy"));
}

static ncclResult_t abort_run(nccl_job *job) {
    end_job *end = (end_job *)job;
    if (end->fault.kind == EMU_FAULT_HANG) {
        comm_hang(NULL, "ncclCommAbort"); /* then it goes on */
    }
    if (!atomic_load(&end->comm->ended)) {
        end_by_force(end->comm, "ncclCommAbort");
    }
    return ncclSuccess;
}

API(ncclResult_t, ncclCommAbort, ncclComm_t comm) {
    emu_fault fault = emu_enter("ncclCommAbort");
    if (comm == NULL) {
        return ncclSuccess;
    }
    if (fault.kind == EMU_FAULT_CODE) {
        nccl_warn("ncclCommAbort fails by order of a test");
        return (ncclResult_t)fault.code;
    }
    ncclResult_t result = comm_check(comm, "ncclCommAbort");
    if (result != ncclSuccess) {
        return result;
    }
    /* At once, even in a group: what waits or runs leaves. */
    atomic_store(&comm->abort, 1);
    leave_by_force(comm);
    comm_wake_self(comm);
    group_start();
    return group_end(end_record(comm, fault, abort_run, "ncclCommAbort"));
}

#if EMU_NCCL_VERSION >= 22807
static ncclResult_t revoke_run(nccl_job *job) {
    ncclComm_t comm = job->comm;
    if (((end_job *)job)->fault.kind == EMU_FAULT_HANG) {
        return comm_hang(comm, "ncclCommRevoke");
    }
    while (atomic_load(&comm->running) > 0 && !atomic_load(&comm->abort)) {
        comm_wake_self(comm);
        emu_wait(comm->device, 500000);
    }
    return ncclSuccess;
}

static ncclResult_t revoke_record(ncclComm_t comm, int flags, emu_fault fault) {
    if (fault.kind == EMU_FAULT_CODE) {
        return (ncclResult_t)fault.code;
    }
    if (flags != 0) {
        return REFUSE(ncclInvalidArgument, "ncclCommRevoke: flags %d", flags);
    }
    if (atomic_load(&comm->finalized) || atomic_exchange(&comm->cancelled, 1) != 0) {
        nccl_warn("ncclCommRevoke: rank %d is finalized or revoked already", comm->rank);
        return ncclInvalidArgument;
    }
    leave_by_force(comm);
    ncclResult_t result = group_mode(comm->blocking);
    end_job *job = result == ncclSuccess ? calloc(1, sizeof *job) : NULL;
    if (job == NULL) {
        return result == ncclSuccess ? ncclSystemError : result;
    }
    job->job.run = revoke_run;
    job->job.drop = nothing_to_drop;
    job->job.comm = comm;
    job->job.blocking = comm->blocking;
    job->fault = fault;
    group_add_job(&job->job);
    return ncclSuccess;
}

API(ncclResult_t, ncclCommRevoke, ncclComm_t comm, int flags) {
    emu_fault fault = emu_enter("ncclCommRevoke");
    if (comm == NULL) {
        return ncclSuccess;
    }
    group_start();
    ncclResult_t result = comm_ready(comm, "ncclCommRevoke");
    if (result != ncclSuccess) {
        return group_end(result);
    }
    bool outermost = comm_enter(comm, "ncclCommRevoke");
    result = revoke_record(comm, flags, fault);
    comm_leave(comm, outermost);
    result = group_end(result);
    return result == ncclInProgress ? (ncclResult_t)atomic_load(&comm->state) : result;
}
#endif

/* ---- suspend ------------------------------------------------------------------------------------------------------------------ */

#if EMU_NCCL_VERSION >= 22907
typedef struct {
    nccl_job job;
    emu_fault fault;
    bool suspend;
} suspend_job;

static ncclResult_t suspend_run(nccl_job *job) {
    suspend_job *s = (suspend_job *)job;
    const char *function = s->suspend ? "ncclCommSuspend" : "ncclCommResume";
    ncclComm_t comm = job->comm;
    if (s->fault.kind == EMU_FAULT_HANG) {
        return comm_hang(comm, function);
    }
    ncclResult_t result = comm_wait(comm, nothing_pending, NULL, "its own operations");
    if (result == ncclSuccess) {
        result = comm_meet(comm, 0, 0, function);
    }
    if (result == ncclSuccess) {
        comm->suspended = s->suspend;
    }
    return result;
}

static ncclResult_t suspend_record(ncclComm_t comm, bool suspend, emu_fault fault) {
    const char *function = suspend ? "ncclCommSuspend" : "ncclCommResume";
    if (fault.kind == EMU_FAULT_CODE) {
        return (ncclResult_t)fault.code;
    }
    if (suspend == comm->suspended || (suspend && comm->shares)) {
        nccl_warn("%s: rank %d %s", function, comm->rank,
                  suspend == comm->suspended ? "is in that state already" : "shares resources by a split");
        return ncclInvalidUsage;
    }
    ncclResult_t result = group_mode(comm->blocking);
    suspend_job *job = result == ncclSuccess ? calloc(1, sizeof *job) : NULL;
    if (job == NULL) {
        return result == ncclSuccess ? ncclSystemError : result;
    }
    job->job.run = suspend_run;
    job->job.drop = nothing_to_drop;
    job->job.comm = comm;
    job->job.blocking = comm->blocking;
    job->fault = fault;
    job->suspend = suspend;
    group_add_job(&job->job);
    return ncclSuccess;
}

static ncclResult_t suspend(ncclComm_t comm, bool suspend, bool nothing, emu_fault fault) {
    const char *function = suspend ? "ncclCommSuspend" : "ncclCommResume";
    group_start();
    ncclResult_t result = comm_ready(comm, function);
    if (result != ncclSuccess || nothing) {
        return group_end(result);
    }
    bool outermost = comm_enter(comm, function);
    result = suspend_record(comm, suspend, fault);
    comm_leave(comm, outermost);
    result = group_end(result);
    return result == ncclInProgress ? (ncclResult_t)atomic_load(&comm->state) : result;
}

API(ncclResult_t, ncclCommSuspend, ncclComm_t comm, int flags) {
    return suspend(comm, true, (flags & NCCL_SUSPEND_MEM) == 0, emu_enter("ncclCommSuspend"));
}

API(ncclResult_t, ncclCommResume, ncclComm_t comm) {
    return suspend(comm, false, false, emu_enter("ncclCommResume"));
}

API(ncclResult_t, ncclCommMemStats, ncclComm_t comm, ncclCommMemStat_t stat, uint64_t *value) {
    emu_fault fault = emu_enter("ncclCommMemStats");
    if (fault.kind == EMU_FAULT_CODE) {
        return (ncclResult_t)fault.code;
    }
    ncclResult_t result = comm_ready(comm, "ncclCommMemStats");
    if (result != ncclSuccess) {
        return result;
    }
    if (value == NULL || (int)stat < ncclStatGpuMemSuspend || stat > ncclStatGpuMemTotal) {
        return REFUSE(ncclInvalidArgument, "ncclCommMemStats: %s", value == NULL ? "value argument is NULL" : "no such statistic");
    }
    const char *disabled = getenv("NCCL_DISABLE_MEM_MANAGER");
    if (disabled != NULL && strcmp(disabled, "1") == 0) {
        nccl_warn("ncclCommMemStats: NCCL_DISABLE_MEM_MANAGER is set");
        return ncclInvalidUsage;
    }
    /* All that a communicator takes here is its block, which stays when it is suspended. */
    *value = stat == ncclStatGpuMemSuspended ? comm->suspended : stat == ncclStatGpuMemSuspend ? 0 : comm->clique->bytes;
    return ncclSuccess;
}
#endif
