/* What NCCL says: version, names of results, the last warning, NCCL_DEBUG. */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#include "nccl_comm.h"

typedef enum { LEVEL_NONE, LEVEL_VERSION, LEVEL_WARN, LEVEL_INFO } level;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool ready;
static level debug;
static FILE *file;
static char last_error[1024];
static bool version_shown;

/* NCCL_DEBUG_FILE, with %h for the host and %p for the process. */
static FILE *open_file(const char *pattern) {
    char path[4096];
    size_t length = 0;
    for (const char *at = pattern; *at != 0 && length < sizeof path - 300; at++) {
        if (at[0] == '%' && at[1] == 'h') {
            gethostname(path + length, 256);
            path[length + 255] = 0;
            length += strcspn(path + length, ".");
            at++;
        } else if (at[0] == '%' && at[1] == 'p') {
            length += (size_t)snprintf(path + length, 32, "%d", (int)getpid());
            at++;
        } else if (at[0] == '%' && at[1] == '%') {
            path[length++] = '%';
            at++;
        } else {
            path[length++] = *at;
        }
    }
    path[length] = 0;
    FILE *opened = fopen(path, "w");
    if (opened != NULL) {
        setlinebuf(opened);
    }
    return opened;
}

static void prepare(void) {
    if (ready) {
        return;
    }
    ready = true;
    const char *wanted = getenv("NCCL_DEBUG");
    debug = wanted == NULL                       ? LEVEL_NONE
            : strcasecmp(wanted, "VERSION") == 0 ? LEVEL_VERSION
            : strcasecmp(wanted, "WARN") == 0    ? LEVEL_WARN
            : strcasecmp(wanted, "INFO") == 0 || strcasecmp(wanted, "ABORT") == 0 || strcasecmp(wanted, "TRACE") == 0
                ? LEVEL_INFO
                : LEVEL_NONE;
    const char *pattern = getenv("NCCL_DEBUG_FILE");
    if (file != NULL && file != stdout) {
        fclose(file);
    }
    file = NULL;
    /* As NCCL does it: the version alone goes to standard output whatever file there is. */
    if (debug > LEVEL_VERSION && pattern != NULL && pattern[0] != 0) {
        file = open_file(pattern);
    }
    if (file == NULL) {
        file = stdout;
    }
}

static void print(const char *kind, const char *text) {
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    host[strcspn(host, ".")] = 0;
    fprintf(file, "%s:%d:%d [%d] NCCL %s %s\n", host, (int)getpid(), (int)gettid(), emu_current_device(), kind, text);
    fflush(file);
}

void nccl_warn(const char *format, ...) {
    char text[sizeof last_error];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    pthread_mutex_lock(&lock);
    prepare();
    memcpy(last_error, text, sizeof text); /* kept whether or not anyone wants to read it now */
    if (debug >= LEVEL_WARN) {
        print("WARN", text);
    }
    pthread_mutex_unlock(&lock);
}

void nccl_info(const char *format, ...) {
    pthread_mutex_lock(&lock);
    prepare();
    if (debug >= LEVEL_INFO) {
        char text[sizeof last_error];
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(text, sizeof text, format, arguments);
        va_end(arguments);
        print("INFO", text);
    }
    pthread_mutex_unlock(&lock);
}

void nccl_show_version(void) {
    pthread_mutex_lock(&lock);
    prepare();
    if (debug >= LEVEL_VERSION && !version_shown) {
        version_shown = true;
        fprintf(file, "NCCL version %d.%d.%d+emulator\n", EMU_NCCL_VERSION / 10000, EMU_NCCL_VERSION / 100 % 100,
                EMU_NCCL_VERSION % 100);
        fflush(file);
    }
    pthread_mutex_unlock(&lock);
}

API(ncclResult_t, ncclGetVersion, int *version) {
    emu_fault fault = emu_enter("ncclGetVersion");
    if (fault.kind == EMU_FAULT_CODE) {
        return (ncclResult_t)fault.code;
    }
    if (version == NULL) {
        return ncclInvalidArgument;
    }
    *version = EMU_NCCL_VERSION;
    return ncclSuccess;
}

API(const char *, ncclGetErrorString, ncclResult_t code) {
    emu_enter("ncclGetErrorString");
    switch ((int)code) {
    case ncclSuccess:
        return "no error";
    case ncclUnhandledCudaError:
        return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case ncclSystemError:
        return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case ncclInternalError:
        return "internal error";
    case ncclInvalidArgument:
        return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case ncclInvalidUsage:
        return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    case ncclRemoteError:
        return "remote process exited or there was a network error";
    case ncclInProgress:
        return "NCCL operation in progress";
#if EMU_NCCL_VERSION >= 23003
    case ncclTimeout:
        return "operation timed out";
#endif
    default:
        return "unknown result code";
    }
}

API(const char *, ncclGetLastError, ncclComm_t comm) {
    (void)comm; /* it is the process' */
    emu_enter("ncclGetLastError");
    return last_error;
}

#if EMU_NCCL_VERSION >= 22403
API(void, ncclResetDebugInit, void) {
    emu_enter("ncclResetDebugInit");
    pthread_mutex_lock(&lock);
    ready = false;
    pthread_mutex_unlock(&lock);
}
#endif
