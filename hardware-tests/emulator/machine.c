/*
 * The machine's set-up, its objects and contexts, and what tests see of it: faults, misuse, counts.
 */
#define _GNU_SOURCE
#include "machine_cuda.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* ---- set-up -------------------------------------------------------------------------------------- */

static emu_configuration configuration;
static pthread_once_t configured_once = PTHREAD_ONCE_INIT;
static atomic_bool forked;

int64_t emu_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void read_environment_faults(void);

static void after_fork_in_child(void) {
    atomic_store(&forked, true);
}

bool emu_forked(void) {
    return atomic_load_explicit(&forked, memory_order_relaxed);
}

static void refuse(const char *variable, const char *value, const char *expected) {
    fprintf(stderr, "nccl4j emulator: %s=%s, expected %s\n", variable, value, expected);
    exit(2);
}

static int64_t number(const char *variable, int64_t otherwise, int64_t least, int64_t most) {
    const char *text = getenv(variable);
    if (text == NULL || *text == 0) {
        return otherwise;
    }
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (*end != 0 || errno != 0 || value < least || value > most) {
        char expected[80];
        snprintf(expected, sizeof expected, "a number of %lld to %lld", (long long)least, (long long)most);
        refuse(variable, text, expected);
    }
    return value;
}

/* What this process may use: the machine's memory or its control group's limit. */
static uint64_t host_memory(void) {
    uint64_t bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    FILE *file = fopen("/sys/fs/cgroup/memory.max", "re");
    if (file != NULL) {
        unsigned long long limit;
        if (fscanf(file, "%llu", &limit) == 1 && limit < bytes) {
            bytes = limit;
        }
        fclose(file);
    }
    return bytes;
}

static uint64_t device_memory(int devices) {
    const char *variable = "NCCL4J_EMULATOR_DEVICE_MEMORY";
    const char *text = getenv(variable);
    if (text == NULL || *text == 0) {
        uint64_t share = host_memory() / 2 / (uint64_t)(devices > 0 ? devices : 1);
        return share & ~(uint64_t)0xFFFFF;
    }
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    int shift = *end == 'K' ? 10 : *end == 'M' ? 20 : *end == 'G' ? 30 : 0;
    if (shift != 0) {
        end++;
    }
    if (end == text || *end != 0 || errno != 0 || value > (1ULL << 46 >> shift)) {
        refuse(variable, text, "bytes, or a number with K, M or G");
    }
    return (uint64_t)value << shift;
}

static void configure(void) {
    configuration.devices = (int)number("NCCL4J_EMULATOR_DEVICES", 8, 0, EMU_DEVICES_AT_MOST);
    configuration.no_driver = number("NCCL4J_EMULATOR_NO_DRIVER", 0, 0, 1) != 0;
    configuration.device_memory = device_memory(configuration.devices);
    configuration.deadlock_ns = number("NCCL4J_EMULATOR_DEADLOCK_MILLISECONDS", 20000, 1, 3600000) * 1000000;
    configuration.allocation_waits = number("NCCL4J_EMULATOR_ALLOCATION_WAITS", 1, 0, 1) != 0;
    configuration.capability_major = 9;
    const char *capability = getenv("NCCL4J_EMULATOR_COMPUTE_CAPABILITY");
    if (capability != NULL && *capability != 0) {
        char rest;
        if (sscanf(capability, "%d.%d%c", &configuration.capability_major, &configuration.capability_minor, &rest) != 2
                || configuration.capability_major < 1
                || configuration.capability_minor < 0) {
            refuse("NCCL4J_EMULATOR_COMPUTE_CAPABILITY", capability, "MAJOR.MINOR such as 9.0");
        }
    }
    configuration.pid = (int)getpid();
    cpu_set_t cores;
    configuration.cores = sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : 1;
    pthread_atfork(NULL, NULL, after_fork_in_child);
    read_environment_faults();
}

const emu_configuration *emu_configured(void) {
    pthread_once(&configured_once, configure);
    return &configuration;
}

int emu_device_count(void) {
    return emu_configured()->devices;
}

/* ---- objects ------------------------------------------------------------------------------------- */

/*
 * A handle is an address of a window that nobody may touch: (generation, slot), 16 bytes apart. A handle
 * comes again after 2^14 uses of its slot, and slots are used in turn.
 */
#define SLOT_BITS 20
#define GENERATION_BITS 14
#define SLOTS (1u << SLOT_BITS)
#define KEPT_BEFORE_REUSE 1024

static struct {
    pthread_mutex_t lock;
    uint8_t *window;
    _Atomic(emu_object *) *slots;
    uint32_t *generations;
    uint32_t *free_slots; /* a ring */
    uint32_t free_head, free_count;
    uint32_t used_slots; /* those above have never been used */
    struct {
        emu_object *first, *last;
        int count;
    } waiting[EMU_KINDS]; /* dead objects, the oldest first */
} objects = {.lock = PTHREAD_MUTEX_INITIALIZER};

static pthread_once_t objects_once = PTHREAD_ONCE_INIT;

static void *reserve(size_t size, int protection) {
    void *memory = mmap(NULL, size, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        fprintf(stderr, "nccl4j emulator: %zu bytes of address space: %s\n", size, strerror(errno));
        exit(2);
    }
    return memory;
}

static void create_objects(void) {
    objects.window = reserve((size_t)1 << (SLOT_BITS + GENERATION_BITS + 4), PROT_NONE);
    objects.slots = reserve(SLOTS * sizeof *objects.slots, PROT_READ | PROT_WRITE);
    objects.generations = reserve(SLOTS * sizeof *objects.generations, PROT_READ | PROT_WRITE);
    objects.free_slots = reserve(SLOTS * sizeof *objects.free_slots, PROT_READ | PROT_WRITE);
}

void *emu_object_create(emu_kind kind, size_t size) {
    pthread_once(&objects_once, create_objects);
    pthread_mutex_lock(&objects.lock);
    emu_object *object = NULL;
    if (objects.waiting[kind].count > KEPT_BEFORE_REUSE) {
        object = objects.waiting[kind].first;
        objects.waiting[kind].first = object->next;
        objects.waiting[kind].count--;
    }
    uint32_t slot;
    if (objects.free_count > KEPT_BEFORE_REUSE || objects.used_slots == SLOTS) {
        if (objects.free_count == 0) {
            fprintf(stderr, "nccl4j emulator: more than %u streams, events and graphs live\n", SLOTS);
            abort();
        }
        slot = objects.free_slots[objects.free_head];
        objects.free_head = (objects.free_head + 1) % SLOTS;
        objects.free_count--;
    } else {
        slot = objects.used_slots++;
    }
    uint32_t generation = ++objects.generations[slot] & ((1u << GENERATION_BITS) - 1);
    pthread_mutex_unlock(&objects.lock);
    if (object == NULL) {
        object = calloc(1, size);
        if (object == NULL) {
            fprintf(stderr, "nccl4j emulator: out of memory\n");
            abort();
        }
    } else {
        memset((char *)object + sizeof *object, 0, size - sizeof *object);
    }
    object->kind = kind;
    object->next = NULL;
    uint64_t number = (uint64_t)generation << SLOT_BITS | slot;
    atomic_store(&object->handle, (uint64_t)(uintptr_t)objects.window + (number << 4));
    atomic_store_explicit(&objects.slots[slot], object, memory_order_release);
    return object;
}

static uint64_t slot_of(uint64_t handle) {
    uint64_t offset = handle - (uint64_t)(uintptr_t)objects.window;
    if (objects.window == NULL || (offset & 15) != 0 || offset >> (SLOT_BITS + GENERATION_BITS + 4) != 0) {
        return SLOTS;
    }
    return (offset >> 4) & (SLOTS - 1);
}

void *emu_object_of(emu_kind kind, const void *handle) {
    uint64_t value = (uint64_t)(uintptr_t)handle;
    uint64_t slot = slot_of(value);
    if (slot == SLOTS) {
        return NULL;
    }
    emu_object *object = atomic_load_explicit(&objects.slots[slot], memory_order_acquire);
    return object != NULL && atomic_load(&object->handle) == value && object->kind == kind ? object : NULL;
}

bool emu_object_kill(emu_object *object) {
    uint64_t handle = atomic_exchange(&object->handle, 0);
    if (handle == 0) {
        return false;
    }
    uint64_t slot = slot_of(handle);
    pthread_mutex_lock(&objects.lock);
    atomic_store(&objects.slots[slot], NULL);
    objects.free_slots[(objects.free_head + objects.free_count++) % SLOTS] = (uint32_t)slot;
    pthread_mutex_unlock(&objects.lock);
    return true;
}

void emu_object_each(emu_kind kind, void (*visit)(emu_object *, int), int argument) {
    pthread_mutex_lock(&objects.lock);
    uint32_t count = objects.used_slots;
    pthread_mutex_unlock(&objects.lock);
    for (uint32_t slot = 0; slot < count; slot++) {
        emu_object *object = atomic_load(&objects.slots[slot]);
        if (object != NULL && object->kind == kind) {
            visit(object, argument);
        }
    }
}

void emu_object_recycle(emu_object *object) {
    pthread_mutex_lock(&objects.lock);
    object->next = NULL;
    if (objects.waiting[object->kind].count++ == 0) {
        objects.waiting[object->kind].first = object;
    } else {
        objects.waiting[object->kind].last->next = object;
    }
    objects.waiting[object->kind].last = object;
    pthread_mutex_unlock(&objects.lock);
}

void *emu_object_handle(const emu_object *object) {
    return (void *)(uintptr_t)atomic_load(&object->handle);
}

/* ---- contexts and the current device ------------------------------------------------------------- */

static _Thread_local emu_context *current_context;

emu_context *emu_primary_context(int device) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static emu_context *primary[EMU_DEVICES_AT_MOST];
    pthread_mutex_lock(&lock);
    emu_context *context = primary[device];
    if (context == NULL) {
        context = emu_object_create(EMU_CONTEXT, sizeof *context);
        context->device = device;
        context->primary = true;
        primary[device] = context;
    }
    pthread_mutex_unlock(&lock);
    return context;
}

emu_context *emu_context_current(void) {
    return current_context;
}

void emu_context_make_current(emu_context *context) {
    current_context = context;
}

int emu_current_device(void) {
    return current_context == NULL ? 0 : current_context->device;
}

void emu_set_current_device(int device) {
    if (device < 0 || device >= emu_device_count()) {
        return;
    }
    emu_context *context = emu_primary_context(device);
    int inactive = 0;
    atomic_compare_exchange_strong(&context->retained, &inactive, 1);
    current_context = context;
}

/* ---- misuse -------------------------------------------------------------------------------------- */

#define MISUSE_BYTES_AT_MOST (1 << 20)

static struct {
    pthread_mutex_t lock;
    char *text;
    size_t size, capacity;
    int lines;
} misuse = {.lock = PTHREAD_MUTEX_INITIALIZER};

void emu_misuse(const char *format, ...) {
    char line[1000];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line - 1, format, arguments);
    va_end(arguments);
    for (char *c = line; *c != 0; c++) {
        if (*c == '\n') {
            *c = ' ';
        }
    }
    size_t length = strlen(line);
    line[length++] = '\n';
    pthread_mutex_lock(&misuse.lock);
    misuse.lines++;
    if (misuse.size + length + 1 <= MISUSE_BYTES_AT_MOST) {
        if (misuse.size + length + 1 > misuse.capacity) {
            size_t capacity = misuse.capacity == 0 ? 4096 : misuse.capacity * 2;
            char *text = realloc(misuse.text, capacity);
            if (text == NULL) {
                abort();
            }
            misuse.text = text;
            misuse.capacity = capacity;
        }
        memcpy(misuse.text + misuse.size, line, length);
        misuse.size += length;
        misuse.text[misuse.size] = 0;
    }
    pthread_mutex_unlock(&misuse.lock);
    const char *path = getenv("NCCL4J_EMULATOR_MISUSE_FILE");
    if (path != NULL && *path != 0) {
        int file = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
        if (file >= 0) {
            dprintf(file, "%d %.*s", (int)getpid(), (int)length, line);
            close(file);
        }
    }
}

int nccl4j_emulator_misuse(char *text, int size) {
    pthread_mutex_lock(&misuse.lock);
    if (text != NULL && size > 0) {
        size_t copied = misuse.size < (size_t)size - 1 ? misuse.size : (size_t)size - 1;
        if (copied > 0) {
            memcpy(text, misuse.text, copied);
        }
        text[copied] = 0;
    }
    int lines = misuse.lines;
    pthread_mutex_unlock(&misuse.lock);
    return lines;
}

/* ---- what lives ---------------------------------------------------------------------------------- */

static const char *const live_kinds[] = {
    "device bytes", "device allocations", "pinned allocations", "streams",
    "events", "communicators", "graphs", "reduction operators",
};
#define LIVE_KINDS (sizeof live_kinds / sizeof *live_kinds)

static _Atomic(int64_t) live[LIVE_KINDS];

static int live_index(const char *kind) {
    for (size_t i = 0; i < LIVE_KINDS; i++) {
        if (strcmp(kind, live_kinds[i]) == 0) {
            return (int)i;
        }
    }
    return -1;
}

void emu_count(const char *kind, int64_t change) {
    int index = live_index(kind);
    if (index < 0) {
        emu_misuse("emulator: nothing of the kind '%s' is counted", kind);
        return;
    }
    atomic_fetch_add_explicit(&live[index], change, memory_order_relaxed);
}

int64_t nccl4j_emulator_live(const char *kind) {
    if (strcmp(kind, "primary contexts") == 0) {
        int64_t active = 0;
        for (int device = 0; device < emu_device_count(); device++) {
            active += atomic_load(&emu_primary_context(device)->retained) > 0;
        }
        return active;
    }
    int index = live_index(kind);
    return index < 0 ? -1 : atomic_load(&live[index]);
}

/* ---- calls and faults ---------------------------------------------------------------------------- */

#define FUNCTIONS 1024 /* a power of two, far more than there are functions */
#define ORDERS 64

typedef struct {
    _Atomic(const char *) name;
    _Atomic(int64_t) calls;
    atomic_int ordered; /* how many orders name it */
} function_entry;

typedef enum { ORDER_CODE, ORDER_DELAY, ORDER_HANG, ORDER_ASYNC, ORDER_LOST } order_kind;

typedef struct {
    function_entry *function;
    int64_t call; /* 0: every one */
    order_kind kind;
    int value;
} order;

static struct {
    pthread_mutex_t lock;
    function_entry functions[FUNCTIONS]; /* by hash of the name; never removed */
    order orders[ORDERS];
    int count;
} faults = {.lock = PTHREAD_MUTEX_INITIALIZER};

static uint32_t hash(const char *text) {
    uint32_t value = 2166136261u;
    for (; *text != 0; text++) {
        value = (value ^ (uint8_t)*text) * 16777619u;
    }
    return value;
}

static function_entry *function_named(const char *name, bool create) {
    uint32_t start = hash(name);
    for (uint32_t i = 0; i < FUNCTIONS; i++) {
        function_entry *entry = &faults.functions[(start + i) & (FUNCTIONS - 1)];
        const char *found = atomic_load_explicit(&entry->name, memory_order_acquire);
        if (found == NULL) {
            if (!create) {
                return NULL;
            }
            char *copy = strdup(name);
            if (copy == NULL) {
                abort();
            }
            if (atomic_compare_exchange_strong(&entry->name, &found, copy)) {
                return entry;
            }
            free(copy);
        }
        if (strcmp(found, name) == 0) {
            return entry;
        }
    }
    fprintf(stderr, "nccl4j emulator: more than %d functions\n", FUNCTIONS);
    abort();
}

emu_fault emu_enter(const char *function) {
    emu_configured();
    function_entry *entry = function_named(function, true);
    int64_t call = atomic_fetch_add_explicit(&entry->calls, 1, memory_order_relaxed) + 1;
    emu_fault fault = {EMU_NO_FAULT, 0};
    if (emu_in_host_function()) {
        bool nccl = strncmp(function, "nccl", 4) == 0 || strncmp(function, "pnccl", 5) == 0;
        if (nccl || (strcmp(function, "cudaGetErrorString") != 0 && strcmp(function, "cudaGetErrorName") != 0)) {
            emu_misuse("%s: called in a host function of a stream, which must not call CUDA or NCCL", function);
            fault.kind = EMU_FAULT_CODE;
            fault.code = nccl ? 1 : CUDA_NOT_PERMITTED;
            return fault;
        }
    }
    if (atomic_load_explicit(&entry->ordered, memory_order_acquire) == 0) {
        return fault;
    }
    int delay = 0;
    pthread_mutex_lock(&faults.lock);
    for (int i = 0; i < faults.count; i++) {
        const order *o = &faults.orders[i];
        if (o->function == entry && (o->call == 0 || o->call == call)) {
            fault.code = o->value;
            switch (o->kind) {
                case ORDER_CODE: fault.kind = EMU_FAULT_CODE; break;
                case ORDER_DELAY: fault.kind = EMU_FAULT_DELAY; delay = o->value; break;
                case ORDER_HANG: fault.kind = EMU_FAULT_HANG; break;
                case ORDER_ASYNC: fault.kind = EMU_FAULT_ASYNC; break;
                case ORDER_LOST: fault.kind = EMU_FAULT_LOST; break;
            }
            break;
        }
    }
    pthread_mutex_unlock(&faults.lock);
    if (delay > 0) {
        struct timespec rest = {delay / 1000, (long)(delay % 1000) * 1000000};
        while (nanosleep(&rest, &rest) != 0 && errno == EINTR) {
        }
    }
    return fault;
}

static bool is_name(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/* Reads a number; NULL if there is none. */
static const char *digits(const char *text, int64_t *value) {
    if (*text < '0' || *text > '9') {
        return NULL;
    }
    for (*value = 0; *text >= '0' && *text <= '9'; text++) {
        *value = *value * 10 + (*text - '0');
        if (*value > INT32_MAX) {
            return NULL;
        }
    }
    return text;
}

/* One order; answers what follows it, or NULL with `*at` at the mistake. */
static const char *parse_order(const char *text, order *o, char *name, size_t name_size, const char **at) {
    size_t length = 0;
    for (*at = text; is_name(*text); text++) {
        if (length + 1 >= name_size) {
            return NULL;
        }
        name[length++] = *text;
    }
    if (length == 0) {
        return NULL;
    }
    name[length] = 0;
    o->call = 1;
    if (*text == ':') {
        *at = ++text;
        if (*text == '*') {
            o->call = 0;
            text++;
        } else {
            text = digits(text, &o->call);
            if (text == NULL || o->call == 0) {
                return NULL;
            }
        }
    }
    *at = text;
    if (*text != '=') {
        return NULL;
    }
    *at = ++text;
    static const struct {
        const char *word;
        order_kind kind;
        bool valued;
    } words[] = {
        {"code", ORDER_CODE, true}, {"delay", ORDER_DELAY, true}, {"hang", ORDER_HANG, false},
        {"async", ORDER_ASYNC, true}, {"lost", ORDER_LOST, false},
    };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        size_t size = strlen(words[i].word);
        if (strncmp(text, words[i].word, size) == 0 && !is_name(text[size])) {
            o->kind = words[i].kind;
            o->value = 0;
            text += size;
            if (words[i].valued) {
                *at = text;
                int64_t value = 0;
                if (*text != ':' || (*at = ++text, (text = digits(text, &value)) == NULL)) {
                    return NULL;
                }
                o->value = (int)value;
            }
            return text;
        }
    }
    return NULL;
}

/* Takes all orders of the text or none; answers 0 or the position of the mistake, counted from 1. */
static int take_orders(const char *text) {
    order parsed[ORDERS];
    int count = 0;
    for (const char *rest = text == NULL ? "" : text; *rest != 0;) {
        if (*rest == ';' || *rest == ' ') {
            rest++;
            continue;
        }
        const char *at = rest;
        char name[80];
        order o;
        const char *end = count < ORDERS ? parse_order(rest, &o, name, sizeof name, &at) : NULL;
        if (end != NULL && *end != 0 && *end != ';' && *end != ' ') {
            at = end;
            end = NULL;
        }
        if (end == NULL) {
            return (int)(at - text) + 1;
        }
        o.function = function_named(name, true);
        parsed[count++] = o;
        rest = end;
    }
    pthread_mutex_lock(&faults.lock);
    int position = faults.count + count > ORDERS ? 1 : 0;
    for (int i = 0; i < count && position == 0; i++) {
        faults.orders[faults.count++] = parsed[i];
        atomic_fetch_add(&parsed[i].function->ordered, 1);
    }
    pthread_mutex_unlock(&faults.lock);
    return position;
}

static void read_environment_faults(void) {
    const char *text = getenv("NCCL4J_EMULATOR_FAULTS");
    int position = take_orders(text);
    if (position != 0) {
        char expected[80];
        snprintf(expected, sizeof expected, "something else at position %d (see machine.h)", position);
        refuse("NCCL4J_EMULATOR_FAULTS", text, expected);
    }
}

int nccl4j_emulator_inject(const char *text) {
    emu_configured();
    return take_orders(text);
}

int64_t nccl4j_emulator_calls(const char *function) {
    function_entry *entry = function_named(function, false);
    return entry == NULL ? 0 : atomic_load(&entry->calls);
}

static atomic_uint generation;

unsigned emu_generation(void) {
    return atomic_load(&generation);
}

void nccl4j_emulator_forget(void) {
    emu_configured();
    pthread_mutex_lock(&misuse.lock);
    misuse.size = 0;
    misuse.lines = 0;
    pthread_mutex_unlock(&misuse.lock);
    pthread_mutex_lock(&faults.lock);
    faults.count = 0;
    for (int i = 0; i < FUNCTIONS; i++) {
        atomic_store(&faults.functions[i].ordered, 0);
        atomic_store(&faults.functions[i].calls, 0);
    }
    pthread_mutex_unlock(&faults.lock);
    atomic_fetch_add(&generation, 1);
}
