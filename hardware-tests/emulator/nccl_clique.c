#define _GNU_SOURCE
#include "nccl_clique.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define TAG 0x6a346c63636e756dULL
#define PREFIX "nccl4j-nccl-"

/* ---- processes ---------------------------------------------------------------------------------- */

/* When a process began, in ticks since the host started; 0 if it has ended, waited for by its parent or not. */
uint64_t process_birth(int64_t pid) {
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%lld/stat", (long long)pid);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) {
        return 0;
    }
    ssize_t length = read(file, text, sizeof text - 1);
    close(file);
    if (length <= 0) {
        return 0;
    }
    text[length] = 0;
    char *field = strrchr(text, ')'); /* the second field is a name that may hold anything */
    if (field == NULL || field[1] == 0 || field[2] == 'Z' || field[2] == 'X') {
        return 0;
    }
    field += 2;
    for (int number = 3; number < 22; number++) {
        field = strchr(field, ' ');
        if (field == NULL) {
            return 0;
        }
        field++;
    }
    return strtoull(field, NULL, 10);
}

bool process_lives(int64_t pid, uint64_t birth) {
    uint64_t now = process_birth(pid);
    return now != 0 && (birth == 0 || birth == now);
}

/* ---- keys --------------------------------------------------------------------------------------- */

uint64_t clique_hash(uint64_t seed, const void *bytes, size_t size) {
    uint64_t hash = 0xcbf29ce484222325ULL ^ seed;
    for (size_t i = 0; i < size; i++) {
        hash = (hash ^ ((const unsigned char *)bytes)[i]) * 0x100000001b3ULL;
    }
    hash = (hash ^ hash >> 32) * 0x9e3779b97f4a7c15ULL;
    return hash ^ hash >> 29;
}

bool clique_new_key(clique_key *key) {
    memset(key, 0, sizeof *key);
    key->tag = TAG;
    const char *address = getenv("NCCL_COMM_ID");
    if (address != NULL && address[0] != 0) {
        key->hash[0] = clique_hash(1, address, strlen(address));
        key->hash[1] = clique_hash(2, address, strlen(address));
        return true;
    }
    key->pid = getpid();
    key->birth = process_birth(key->pid);
    return getrandom(key->hash, sizeof key->hash, 0) == (ssize_t)sizeof key->hash;
}

void clique_derive_key(clique_key *key, const clique_key *parent, int64_t pid, uint64_t birth, uint64_t what,
                       const void *detail, size_t detail_bytes) {
    clique_key made = {TAG, pid, birth, {0, 0}};
    for (int i = 0; i < 2; i++) {
        made.hash[i] = clique_hash(what * 2 + (uint64_t)i, parent, sizeof *parent) ^
                       clique_hash((uint64_t)i + 7, detail, detail_bytes);
    }
    *key = made;
}

/* ---- the block ----------------------------------------------------------------------------------- */

static size_t rounded(size_t bytes) {
    return (bytes + 4095) & ~(size_t)4095;
}

clique *clique_open(const clique_key *key, int count) {
    if (key->tag != TAG) {
        errno = EDESTADDRREQ;
        return NULL;
    }
    if (count > CLIQUE_RANKS) {
        errno = E2BIG;
        return NULL;
    }
    size_t n = (size_t)count;
    size_t ranks_at = rounded(sizeof(clique_head));
    size_t slots_at = ranks_at + rounded(n * sizeof(clique_rank));
    size_t arrivals_at = slots_at + rounded(CLIQUE_SLOTS * sizeof(clique_slot));
    size_t channels_at = arrivals_at + rounded(CLIQUE_SLOTS * n * sizeof(clique_arrival));
    size_t bytes = channels_at + rounded(n * n * sizeof(clique_channel));

    clique *c = calloc(1, sizeof *c);
    if (c == NULL) {
        return NULL;
    }
    c->key = *key;
    c->count = count;
    c->bytes = bytes;
    snprintf(c->name, sizeof c->name, "/" PREFIX "%lld-%llx-%016llx%016llx", (long long)key->pid,
             (unsigned long long)key->birth, (unsigned long long)key->hash[0], (unsigned long long)key->hash[1]);
    int file = shm_open(c->name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0) {
        free(c);
        return NULL;
    }
    struct stat status;
    /* Ranks that disagree about their number must not cut the block of the others. */
    bool sized = fstat(file, &status) == 0 && (status.st_size >= (off_t)bytes || ftruncate(file, (off_t)bytes) == 0);
    char *memory = sized ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
    int error = errno;
    close(file);
    if (memory == MAP_FAILED) {
        free(c);
        errno = error;
        return NULL;
    }
    c->head = (clique_head *)memory;
    c->ranks = (clique_rank *)(memory + ranks_at);
    c->slots = (clique_slot *)(memory + slots_at);
    c->arrivals = (clique_arrival *)(memory + arrivals_at);
    c->channels = (clique_channel *)(memory + channels_at);
    return c;
}

void clique_close(clique *c) {
    munmap(c->head, c->bytes);
    free(c);
}

void clique_unlink(const clique *c) {
    shm_unlink(c->name);
}

void clique_sweep(void) {
    DIR *folder = opendir("/dev/shm");
    if (folder == NULL) {
        return; /* then shm_open lives elsewhere, and nothing can be listed */
    }
    struct dirent *entry;
    while ((entry = readdir(folder)) != NULL) {
        long long pid;
        unsigned long long birth;
        if (sscanf(entry->d_name, PREFIX "%lld-%llx-", &pid, &birth) == 2 && pid != 0 && !process_lives(pid, birth)) {
            char name[300];
            snprintf(name, sizeof name, "/%s", entry->d_name);
            shm_unlink(name);
        }
    }
    closedir(folder);
}

void clique_wake(const clique *c) {
    for (int r = 0; r < c->count; r++) {
        if (atomic_load(&c->ranks[r].joined)) {
            emu_wake(atomic_load(&c->ranks[r].pid), c->ranks[r].device);
        }
    }
}
