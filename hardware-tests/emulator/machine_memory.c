/*
 * Memory. A device is a window of the address space without access, and a file without a name that holds
 * what lies there; this process sees the file at the mirror. An address of the window means the same
 * offset in the file and the mirror. The file's descriptor is the `space` of an emu_place: another process
 * opens /proc/PID/fd/SPACE. Pinned and staging memory are spaces of their own, whose window is the mirror.
 */
#define _GNU_SOURCE
#include "machine_cuda.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/*
 * A page of the table: allocations begin at a multiple of it, so that what is freed can be given back to
 * the host alone. (Only pages that are touched take memory.) CUDA promises 256 bytes.
 */
#define GRANULE_SHIFT 16
#define GRANULE ((uint64_t)1 << GRANULE_SHIFT)
#ifndef EMU_WINDOW_SHIFT
#define EMU_WINDOW_SHIFT 38
#endif
#define SMALLEST_WINDOW_SHIFT 30
#define FILE_NAME "nccl4j-emulator-memory"

typedef struct {
    pthread_mutex_t lock;
    int fd; /* -1 until it is used */
    uint8_t *window;
    uint8_t *mirror;
    uint64_t size;
    uint64_t bump; /* in granules: where the next search begins */
    uint64_t high; /* in granules: beyond it nothing has been given out yet */
    _Atomic(_Atomic(emu_allocation *) *) table; /* by granule */
    _Atomic(uint64_t) used;
    _Atomic(uint64_t) dying;
} space;

static struct {
    int shift; /* of a window's size */
    uint8_t *windows;
    uint64_t size; /* of all windows */
    space device[EMU_DEVICES_AT_MOST];
    space pinned;
    space staging;
    pthread_mutex_t free_lock;
    emu_allocation *free;
} memory = {
    .pinned = {.lock = PTHREAD_MUTEX_INITIALIZER, .fd = -1},
    .staging = {.lock = PTHREAD_MUTEX_INITIALIZER, .fd = -1},
    .free_lock = PTHREAD_MUTEX_INITIALIZER,
};
static pthread_once_t reserved_once = PTHREAD_ONCE_INIT;

static void die(const char *what, uint64_t size) {
    fprintf(stderr, "nccl4j emulator: %s of %llu bytes: %s\n", what, (unsigned long long)size, strerror(errno));
    abort();
}

static void reserve_windows(void) {
    int devices = emu_device_count();
    for (int i = 0; i < devices; i++) {
        pthread_mutex_init(&memory.device[i].lock, NULL);
        memory.device[i].fd = -1;
    }
    for (memory.shift = EMU_WINDOW_SHIFT; memory.shift >= SMALLEST_WINDOW_SHIFT && devices > 0; memory.shift--) {
        uint64_t size = (uint64_t)devices << memory.shift;
        void *windows = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (windows != MAP_FAILED) {
            madvise(windows, size, MADV_DONTDUMP);
            memory.windows = windows;
            memory.size = size;
            return;
        }
    }
    if (devices > 0) {
        die("address space", (uint64_t)devices << SMALLEST_WINDOW_SHIFT);
    }
}

/* Under the space's lock. */
static void open_space(space *s, int device) {
    if (s->fd >= 0) {
        return;
    }
    int fd = memfd_create(FILE_NAME, MFD_CLOEXEC);
    if (fd < 0) {
        die("a memory file", 0);
    }
    /* Halves until the address space (small on some arm64 kernels) or a limit of file sizes allows it. */
    int shift = device >= 0 ? memory.shift : EMU_WINDOW_SHIFT;
    void *mirror = MAP_FAILED;
    for (; shift >= SMALLEST_WINDOW_SHIFT && mirror == MAP_FAILED; shift--) {
        s->size = (uint64_t)1 << shift;
        if (ftruncate(fd, (off_t)s->size) == 0) {
            mirror = mmap(NULL, s->size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
        }
    }
    if (mirror == MAP_FAILED) {
        die("a mapping", s->size);
    }
    madvise(mirror, s->size, MADV_DONTFORK);
    madvise(mirror, s->size, MADV_DONTDUMP);
    size_t table_size = (s->size >> GRANULE_SHIFT) * sizeof(_Atomic(emu_allocation *));
    void *table = mmap(NULL, table_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (table == MAP_FAILED) {
        die("a table", table_size);
    }
    s->mirror = mirror;
    s->window = device >= 0 ? memory.windows + ((uint64_t)device << memory.shift) : s->mirror;
    s->fd = fd;
    atomic_store_explicit(&s->table, table, memory_order_release);
}

static emu_allocation *allocation_new(void) {
    pthread_mutex_lock(&memory.free_lock);
    emu_allocation *a = memory.free;
    if (a != NULL) {
        memory.free = a->next;
    }
    pthread_mutex_unlock(&memory.free_lock);
    if (a == NULL) {
        a = calloc(1, sizeof *a);
        if (a == NULL) {
            die("memory", sizeof *a);
        }
    }
    return a;
}

static void allocation_recycle(emu_allocation *a) {
    pthread_mutex_lock(&memory.free_lock);
    a->next = memory.free;
    memory.free = a;
    pthread_mutex_unlock(&memory.free_lock);
}

/* Finds room after all that was given out before, and from the window's start again when it is used up. NULL if none. */
static emu_allocation *place(space *s, int device, uint64_t size, emu_life life) {
    uint64_t granules = (size + GRANULE - 1) >> GRANULE_SHIFT;
    uint64_t all = s->size >> GRANULE_SHIFT;
    bool wrapped = false;
    uint64_t first = s->bump;
    for (uint64_t run = 0; run < granules;) {
        if (first + granules > all) {
            if (wrapped || granules > all) {
                return NULL;
            }
            wrapped = true;
            first = run = 0;
        }
        emu_allocation *there = atomic_load_explicit(&s->table[first + run], memory_order_relaxed);
        if (there == NULL) {
            run++;
        } else {
            uint64_t base = atomic_load(&there->base) - (uint64_t)(uintptr_t)s->window;
            first = (base + atomic_load(&there->size) + GRANULE - 1) >> GRANULE_SHIFT;
            run = 0;
        }
    }
    s->bump = first + granules;
    s->high = s->bump > s->high ? s->bump : s->high;
    emu_allocation *a = allocation_new();
    atomic_store(&a->base, (uint64_t)(uintptr_t)s->window + (first << GRANULE_SHIFT));
    atomic_store(&a->size, size);
    atomic_store(&a->device, device);
    a->flags = 0;
    a->pool = NULL;
    atomic_store(&a->life, life);
    for (uint64_t i = 0; i < granules; i++) {
        atomic_store_explicit(&s->table[first + i], a, memory_order_release);
    }
    return a;
}

/* Gives the pages back to the host. */
static void displace(space *s, emu_allocation *a) {
    uint64_t offset = atomic_load(&a->base) - (uint64_t)(uintptr_t)s->window;
    uint64_t granules = (atomic_load(&a->size) + GRANULE - 1) >> GRANULE_SHIFT;
    atomic_store(&a->life, EMU_DEAD);
    if (fallocate(s->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)(granules << GRANULE_SHIFT)) != 0) {
        die("giving back memory", granules << GRANULE_SHIFT);
    }
    pthread_mutex_lock(&s->lock);
    for (uint64_t i = 0; i < granules; i++) {
        atomic_store_explicit(&s->table[(offset >> GRANULE_SHIFT) + i], NULL, memory_order_relaxed);
    }
    pthread_mutex_unlock(&s->lock);
    allocation_recycle(a);
}

/* What lies at an offset of a space; NULL if nothing. */
static emu_allocation *at(space *s, uint64_t offset) {
    _Atomic(emu_allocation *) *table = atomic_load_explicit(&s->table, memory_order_acquire);
    return table == NULL || offset >= s->size ? NULL : atomic_load_explicit(&table[offset >> GRANULE_SHIFT], memory_order_acquire);
}

static space *device_space(uint64_t address, int *device, uint64_t *offset) {
    uint64_t in_windows = address - (uint64_t)(uintptr_t)memory.windows;
    if (in_windows >= memory.size) {
        return NULL;
    }
    *device = (int)(in_windows >> memory.shift);
    *offset = in_windows & (((uint64_t)1 << memory.shift) - 1);
    return &memory.device[*device];
}

static bool in_space(space *s, uint64_t address, uint64_t *offset) {
    if (atomic_load_explicit(&s->table, memory_order_acquire) == NULL) {
        return false;
    }
    *offset = address - (uint64_t)(uintptr_t)s->window;
    return *offset < s->size;
}

/* ---- device memory ------------------------------------------------------------------------------- */

int emu_device_allocate(int device, uint64_t size, emu_life life, void *pool, uint64_t *address) {
    pthread_once(&reserved_once, reserve_windows);
    space *s = &memory.device[device];
    uint64_t limit = emu_configured()->device_memory;
    pthread_mutex_lock(&s->lock);
    open_space(s, device);
    emu_allocation *a = NULL;
    uint64_t used = atomic_load(&s->used);
    if (size <= limit && used <= limit - size) {
        a = place(s, device, size, life);
    }
    if (a != NULL) {
        a->pool = pool;
        atomic_fetch_add(&s->used, size);
        *address = atomic_load(&a->base);
    }
    pthread_mutex_unlock(&s->lock);
    if (a == NULL) {
        return CUDA_OUT_OF_MEMORY;
    }
    emu_count("device bytes", (int64_t)size);
    emu_count("device allocations", 1);
    return 0;
}

emu_allocation *emu_device_allocation(uint64_t address) {
    int device;
    uint64_t offset;
    space *s = device_space(address, &device, &offset);
    emu_allocation *a = s == NULL ? NULL : at(s, offset);
    return a != NULL && atomic_load(&a->base) == address && atomic_load(&a->life) != EMU_DEAD ? a : NULL;
}

void emu_device_release(emu_allocation *a) {
    space *s = &memory.device[atomic_load(&a->device)];
    uint64_t size = atomic_load(&a->size);
    if (atomic_exchange(&a->life, EMU_DEAD) == EMU_DEAD) {
        return;
    }
    displace(s, a);
    atomic_fetch_sub(&s->used, size);
    emu_count("device bytes", -(int64_t)size);
    emu_count("device allocations", -1);
}

void emu_device_release_all(int device) {
    space *s = &memory.device[device];
    _Atomic(emu_allocation *) *table = atomic_load_explicit(&s->table, memory_order_acquire);
    if (table == NULL) {
        return;
    }
    for (uint64_t i = 0; i < s->high;) {
        emu_allocation *a = atomic_load_explicit(&table[i], memory_order_acquire);
        if (a == NULL) {
            i++;
            continue;
        }
        i += (atomic_load(&a->size) + GRANULE - 1) >> GRANULE_SHIFT;
        emu_device_release(a);
    }
}

uint64_t emu_device_used(int device) {
    return atomic_load(&memory.device[device].used);
}

/* ---- pinned memory ------------------------------------------------------------------------------- */

typedef struct {
    uint64_t base, size;
    int device;
    unsigned flags;
} registration;

static struct {
    pthread_rwlock_t lock;
    registration *sorted; /* by base */
    size_t capacity;
    _Atomic(size_t) count;
} registered = {.lock = PTHREAD_RWLOCK_INITIALIZER};

/* The first registration that ends after `address`. Under the lock. */
static size_t registration_after(uint64_t address) {
    size_t low = 0, high = registered.count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (registered.sorted[middle].base + registered.sorted[middle].size <= address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static bool find_registered(uint64_t address, registration *found) {
    if (atomic_load_explicit(&registered.count, memory_order_relaxed) == 0) {
        return false;
    }
    pthread_rwlock_rdlock(&registered.lock);
    size_t i = registration_after(address);
    bool there = i < registered.count && registered.sorted[i].base <= address;
    if (there) {
        *found = registered.sorted[i];
    }
    pthread_rwlock_unlock(&registered.lock);
    return there;
}

int emu_host_allocate(int device, uint64_t size, unsigned flags, void **result) {
    space *s = &memory.pinned;
    pthread_mutex_lock(&s->lock);
    open_space(s, -1);
    emu_allocation *a = place(s, device, size, EMU_LIVE);
    if (a != NULL) {
        a->flags = flags;
        *result = (void *)(uintptr_t)atomic_load(&a->base);
    }
    pthread_mutex_unlock(&s->lock);
    if (a == NULL) {
        return CUDA_OUT_OF_MEMORY;
    }
    emu_count("pinned allocations", 1);
    return 0;
}

static emu_allocation *pinned_at(const void *address, bool base) {
    uint64_t offset;
    if (!in_space(&memory.pinned, (uint64_t)(uintptr_t)address, &offset)) {
        return NULL;
    }
    emu_allocation *a = at(&memory.pinned, offset);
    if (a == NULL || atomic_load(&a->life) == EMU_DEAD) {
        return NULL;
    }
    uint64_t inside = (uint64_t)(uintptr_t)address - atomic_load(&a->base);
    return base ? (inside == 0 ? a : NULL) : inside < atomic_load(&a->size) ? a : NULL;
}

int emu_host_free(void *address) {
    emu_allocation *a = pinned_at(address, true);
    if (a == NULL) {
        return CUDA_INVALID_VALUE;
    }
    displace(&memory.pinned, a);
    emu_count("pinned allocations", -1);
    return 0;
}

int emu_host_register(int device, void *address, uint64_t size, unsigned flags) {
    uint64_t base = (uint64_t)(uintptr_t)address, ignored;
    int owner;
    pthread_once(&reserved_once, reserve_windows);
    if (base + size < base || device_space(base, &owner, &ignored) != NULL) {
        return CUDA_INVALID_VALUE;
    }
    if (pinned_at(address, false) != NULL) {
        return CUDA_HOST_ALREADY_REGISTERED;
    }
    int code = 0;
    pthread_rwlock_wrlock(&registered.lock);
    size_t count = registered.count, i = registration_after(base);
    if (i < count && registered.sorted[i].base < base + size) {
        code = CUDA_HOST_ALREADY_REGISTERED;
    } else {
        if (count == registered.capacity) {
            size_t capacity = count == 0 ? 64 : count * 2;
            registration *grown = realloc(registered.sorted, capacity * sizeof *grown);
            if (grown == NULL) {
                die("memory", capacity * sizeof *grown);
            }
            registered.sorted = grown;
            registered.capacity = capacity;
        }
        memmove(&registered.sorted[i + 1], &registered.sorted[i], (count - i) * sizeof *registered.sorted);
        registered.sorted[i] = (registration){base, size, device, flags};
        registered.count = count + 1;
    }
    pthread_rwlock_unlock(&registered.lock);
    if (code == 0) {
        emu_count("pinned allocations", 1);
    }
    return code;
}

int emu_host_unregister(void *address) {
    uint64_t base = (uint64_t)(uintptr_t)address;
    int code = CUDA_HOST_NOT_REGISTERED;
    pthread_rwlock_wrlock(&registered.lock);
    size_t i = registration_after(base);
    if (i < registered.count && registered.sorted[i].base == base) {
        registered.count--;
        memmove(&registered.sorted[i], &registered.sorted[i + 1], (registered.count - i) * sizeof *registered.sorted);
        code = 0;
    }
    pthread_rwlock_unlock(&registered.lock);
    if (code == 0) {
        emu_count("pinned allocations", -1);
    }
    return code;
}

bool emu_host_flags(const void *address, unsigned *flags, bool *is_registered) {
    emu_allocation *a = pinned_at(address, false);
    if (a != NULL) {
        *flags = a->flags;
        *is_registered = false;
        return true;
    }
    registration found;
    if (find_registered((uint64_t)(uintptr_t)address, &found)) {
        *flags = found.flags;
        *is_registered = true;
        return true;
    }
    return false;
}

/* ---- what lies where ----------------------------------------------------------------------------- */

void emu_find(uint64_t address, emu_range *range) {
    pthread_once(&reserved_once, reserve_windows);
    int device;
    uint64_t offset;
    space *s = device_space(address, &device, &offset);
    if (s != NULL) {
        emu_allocation *a = at(s, offset);
        *range = (emu_range){EMU_FREED, device, address, 0};
        if (a != NULL && atomic_load_explicit(&a->life, memory_order_acquire) != EMU_DEAD) {
            uint64_t base = atomic_load_explicit(&a->base, memory_order_relaxed);
            uint64_t size = atomic_load_explicit(&a->size, memory_order_relaxed);
            if (address - base < size) {
                *range = (emu_range){EMU_DEVICE, device, base, size};
            }
        }
        return;
    }
    emu_allocation *a = pinned_at((const void *)(uintptr_t)address, false);
    registration found;
    if (a != NULL) {
        *range = (emu_range){EMU_PINNED, atomic_load(&a->device), atomic_load(&a->base), atomic_load(&a->size)};
    } else if (find_registered(address, &found)) {
        *range = (emu_range){EMU_PINNED, found.device, found.base, found.size};
    } else {
        *range = (emu_range){EMU_PAGEABLE, -1, address, 0};
    }
}

#define WHY 200
#define HEX(x) ((unsigned long long)(x))

int emu_place_of(uint64_t address, uint64_t size, int device, emu_place *result, char *why) {
    emu_range range;
    emu_find(address, &range);
    if (range.kind == EMU_PAGEABLE) {
        snprintf(why, WHY, "0x%llx is host memory that CUDA does not know (neither cudaHostAlloc nor cudaHostRegister)", HEX(address));
        return CUDA_ILLEGAL_ADDRESS;
    }
    if (range.kind == EMU_FREED) {
        snprintf(why, WHY, "0x%llx lies in device %d's addresses, but nothing is allocated there (freed?)", HEX(address), range.device);
        return CUDA_ILLEGAL_ADDRESS;
    }
    if (size > range.size || address - range.base > range.size - size) {
        snprintf(why, WHY, "%llu bytes from 0x%llx go beyond the allocation of %llu bytes at 0x%llx", HEX(size), HEX(address),
                HEX(range.size), HEX(range.base));
        return CUDA_ILLEGAL_ADDRESS;
    }
    result->pid = emu_configured()->pid;
    result->size = size;
    if (range.kind == EMU_PINNED) {
        uint64_t offset;
        if (in_space(&memory.pinned, address, &offset)) {
            result->space = memory.pinned.fd;
            result->offset = offset;
        } else {
            result->space = -1;
            result->offset = address;
        }
        return 0;
    }
    if (range.device != device) {
        snprintf(why, WHY, "0x%llx is memory of device %d, used by device %d", HEX(address), range.device, device);
        return CUDA_ILLEGAL_ADDRESS;
    }
    space *s = &memory.device[range.device];
    uint64_t offset = address - (uint64_t)(uintptr_t)s->window;
    emu_allocation *a = at(s, offset);
    if (a != NULL && atomic_load(&a->life) == EMU_UNBORN) {
        snprintf(why, WHY, "0x%llx is used before its cudaMallocAsync had its turn: the streams are not ordered", HEX(address));
        return CUDA_ILLEGAL_ADDRESS;
    }
    result->space = s->fd;
    result->offset = offset;
    return 0;
}

/* ---- memory of other processes ------------------------------------------------------------------- */

#define REMOTES 4096 /* files of other processes that are mapped here; a power of two */

typedef struct {
    _Atomic(uint64_t) key; /* pid and space; 0: free */
    uint8_t *mirror;
    uint64_t size;
} remote;

static remote remotes[REMOTES];

static void *map_remote(const emu_place *place) {
    uint64_t key = (uint64_t)(uint32_t)place->pid << 32 | (uint32_t)place->space;
    uint64_t start = (key * 0x9E3779B97F4A7C15u) >> 52;
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    bool locked = false;
    void *result = NULL;
    for (uint64_t i = 0; i < REMOTES; i++) {
        remote *r = &remotes[(start + i) & (REMOTES - 1)];
        uint64_t found = atomic_load_explicit(&r->key, memory_order_acquire);
        if (found == 0 && !locked) {
            pthread_mutex_lock(&lock);
            locked = true;
            found = atomic_load_explicit(&r->key, memory_order_acquire);
        }
        if (found == 0) {
            char path[64], name[64];
            snprintf(path, sizeof path, "/proc/%d/fd/%d", place->pid, place->space);
            ssize_t length = readlink(path, name, sizeof name - 1);
            if (length < 0 || (name[length] = 0, strncmp(name, "/memfd:" FILE_NAME, strlen("/memfd:" FILE_NAME))) != 0) {
                break; /* the process is gone */
            }
            int fd = open(path, O_RDWR | O_CLOEXEC);
            struct stat status;
            if (fd < 0 || fstat(fd, &status) != 0) {
                if (fd >= 0) {
                    close(fd);
                }
                break;
            }
            void *mirror = mmap(NULL, (size_t)status.st_size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
            close(fd);
            if (mirror == MAP_FAILED) {
                die("a mapping of another process", (uint64_t)status.st_size);
            }
            madvise(mirror, (size_t)status.st_size, MADV_DONTFORK);
            madvise(mirror, (size_t)status.st_size, MADV_DONTDUMP);
            r->mirror = mirror;
            r->size = (uint64_t)status.st_size;
            atomic_store_explicit(&r->key, key, memory_order_release);
            found = key;
        }
        if (found == key) {
            if (place->offset <= r->size && place->size <= r->size - place->offset) {
                result = r->mirror + place->offset;
            }
            break;
        }
    }
    if (locked) {
        pthread_mutex_unlock(&lock);
    }
    return result;
}

void *emu_map(const emu_place *place) {
    if (place->pid != emu_configured()->pid) {
        return place->space < 0 ? NULL : map_remote(place);
    }
    if (place->space < 0) {
        return (void *)(uintptr_t)place->offset;
    }
    if (place->space == memory.pinned.fd) {
        return memory.pinned.mirror + place->offset;
    }
    if (place->space == memory.staging.fd) {
        return memory.staging.mirror + place->offset;
    }
    for (int i = 0; i < emu_device_count(); i++) {
        if (place->space == memory.device[i].fd) {
            return memory.device[i].mirror + place->offset;
        }
    }
    return NULL;
}

/* ---- staging ------------------------------------------------------------------------------------- */

void *emu_shared_allocate(uint64_t size, emu_place *result) {
    space *s = &memory.staging;
    pthread_mutex_lock(&s->lock);
    open_space(s, -1);
    emu_allocation *a = place(s, -1, size == 0 ? 1 : size, EMU_LIVE);
    pthread_mutex_unlock(&s->lock);
    if (a == NULL) {
        errno = ENOMEM;
        die("staging memory", size);
    }
    uint64_t offset = atomic_load(&a->base) - (uint64_t)(uintptr_t)s->window;
    *result = (emu_place){emu_configured()->pid, s->fd, offset, size};
    return s->mirror + offset;
}

void emu_shared_free(void *address) {
    uint64_t offset;
    emu_allocation *a = in_space(&memory.staging, (uint64_t)(uintptr_t)address, &offset) ? at(&memory.staging, offset) : NULL;
    if (a == NULL || atomic_load(&a->base) != (uint64_t)(uintptr_t)address) {
        emu_misuse("emulator: emu_shared_free of 0x%llx, which is not allocated", HEX(address));
        return;
    }
    displace(&memory.staging, a);
}
