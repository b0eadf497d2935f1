/*
 * The clique: what the ranks of one communicator share, whatever processes they live in. A block of POSIX shared
 * memory, found by the unique id's key. It is all zero at first, which means that nobody has come; every field is
 * written by one rank, or counted up; nobody holds a lock in it, so a rank that is killed leaves nothing held.
 */
#ifndef NCCL4J_EMULATOR_NCCL_CLIQUE_H
#define NCCL4J_EMULATOR_NCCL_CLIQUE_H

#include <stdatomic.h>
#include <stdbool.h>

#include "machine.h"
#include "nccl_abi.h"

#pragma GCC visibility push(hidden)

enum {
    CLIQUE_SLOTS = 64,   /* collectives in flight */
    CLIQUE_MESSAGES = 16, /* sends in flight between two ranks */
    CLIQUE_RANKS = 1024
};

/* Names a clique; the first bytes of a unique id. */
typedef struct {
    uint64_t tag;   /* tells a unique id from other bytes */
    int64_t pid;    /* of the process that must live until all have come; 0: none must */
    uint64_t birth; /* when that process began, since numbers of processes come again */
    uint64_t hash[2];
} clique_key;

typedef struct {
    _Alignas(64) _Atomic int32_t pid; /* 0: has not come */
    uint64_t birth;
    int32_t device;
    int32_t version;
    _Atomic int32_t joined;    /* the fields above may be read */
    _Atomic int32_t gone;      /* left by force: aborted, revoked, failed */
    _Atomic int32_t lost;      /* counts as dead */
    _Atomic int32_t closing;   /* 1: finalizing, 2: destroyed */
    _Atomic int32_t busy;      /* touches memory of others now */
    _Atomic int32_t connected; /* has come to its first collective */
    struct {
        _Atomic uint64_t number;
        int32_t color, key;
    } meetings[2]; /* the rank's latest two: nobody is more than one ahead */
} clique_rank;

/* A collective is over when all have arrived and all shares of the work are done. Both counts only grow, by the
   number of ranks each time the slot is used. */
typedef struct {
    _Alignas(64) _Atomic uint64_t arrivals;
    _Alignas(64) _Atomic uint64_t shares;
} clique_slot;

typedef struct {
    int32_t kind, type, op, root;
    uint64_t count;
    emu_place send, recv;
    uint64_t factor;
} clique_arrival;

typedef struct {
    _Atomic uint64_t posted, copied; /* number of the message, from 1 */
    emu_place from;
    uint64_t count;
    int32_t type;
} clique_message;

typedef struct {
    _Alignas(64) _Atomic int32_t sender_connected;
    _Atomic int32_t receiver_connected;
    clique_message messages[CLIQUE_MESSAGES];
} clique_channel;

typedef struct {
    _Atomic int32_t ranks;    /* set by who comes first */
    _Atomic int32_t mismatch; /* ranks that disagree about it */
    _Atomic int32_t joined;
    _Atomic int32_t left;     /* how many are gone: from the first on no operation goes on */
    _Atomic int32_t suspended;
    _Atomic uint64_t growth;  /* number of the latest id for growing */
    ncclUniqueId growth_id;
} clique_head;

typedef struct {
    clique_key key;
    char name[96];
    int count;
    size_t bytes;
    clique_head *head;
    clique_rank *ranks;
    clique_slot *slots;
    clique_arrival *arrivals; /* [slot][rank] */
    clique_channel *channels; /* [sender][receiver] */
} clique;

/* A new key, from chance; or, when others derive the same one, from what they all know. */
bool clique_new_key(clique_key *key);
void clique_derive_key(clique_key *key, const clique_key *parent, int64_t pid, uint64_t birth, uint64_t what,
                       const void *detail, size_t detail_bytes);
uint64_t clique_hash(uint64_t seed, const void *bytes, size_t size);

/* Maps the block, making it if this is the first. NULL with errno. */
clique *clique_open(const clique_key *key, int count);
void clique_close(clique *c);
/* Takes the name away, so that nothing of the clique outlives its processes. */
void clique_unlink(const clique *c);
/* Takes away what jobs left behind whose processes were killed. */
void clique_sweep(void);

/* Whether a process lives; `birth` 0 to ask by number alone. */
bool process_lives(int64_t pid, uint64_t birth);
uint64_t process_birth(int64_t pid);

static inline clique_arrival *clique_arrival_of(const clique *c, uint64_t number, int rank) {
    return &c->arrivals[(number % CLIQUE_SLOTS) * (uint64_t)c->count + (uint64_t)rank];
}

static inline clique_channel *clique_channel_of(const clique *c, int sender, int receiver) {
    return &c->channels[(size_t)sender * (size_t)c->count + (size_t)receiver];
}

/* Has the devices of all ranks look again. */
void clique_wake(const clique *c);

#pragma GCC visibility pop

#endif
