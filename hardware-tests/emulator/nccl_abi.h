/*
 * NCCL's host interface as its documentation gives it: names, numbers and layouts, declared anew. Functions are
 * declared where they are defined, by API, which also exports the twin whose name begins with p.
 */
#ifndef NCCL4J_EMULATOR_NCCL_ABI_H
#define NCCL4J_EMULATOR_NCCL_ABI_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

#ifndef EMU_NCCL_VERSION
#define EMU_NCCL_VERSION 23007
#endif

#define EXPORT __attribute__((visibility("default")))

/* Opens the definition of an exported function. */
#define API(returns, name, ...)                                                                                       \
    EXPORT returns name(__VA_ARGS__);                                                                                 \
    EXPORT returns p##name(__VA_ARGS__) __attribute__((alias(#name)));                                                \
    returns name(__VA_ARGS__)

typedef struct ncclComm *ncclComm_t;
typedef void *ncclWindow_t;
typedef void *ncclParamHandle_t;
typedef void *cudaStream_t;

typedef struct {
    char internal[128];
} ncclUniqueId;

typedef enum {
    ncclSuccess = 0,
    ncclUnhandledCudaError = 1,
    ncclSystemError = 2,
    ncclInternalError = 3,
    ncclInvalidArgument = 4,
    ncclInvalidUsage = 5,
    ncclRemoteError = 6,
    ncclInProgress = 7,
    ncclTimeout = 8 /* from 2.30.3 */
} ncclResult_t;

typedef enum {
    ncclInt8 = 0,
    ncclUint8 = 1,
    ncclInt32 = 2,
    ncclUint32 = 3,
    ncclInt64 = 4,
    ncclUint64 = 5,
    ncclFloat16 = 6,
    ncclFloat32 = 7,
    ncclFloat64 = 8,
    ncclBfloat16 = 9,
    ncclFloat8e4m3 = 10, /* from 2.24 */
    ncclFloat8e5m2 = 11
} ncclDataType_t;

#if EMU_NCCL_VERSION >= 22403
#define NCCL_TYPES 12
#else
#define NCCL_TYPES 10
#endif

typedef enum {
    ncclSum = 0,
    ncclProd = 1,
    ncclMax = 2,
    ncclMin = 3,
    ncclAvg = 4,
    ncclNumOps = 5, /* from here on operators made at run time */
    ncclMaxRedOp = 0x7fffffff
} ncclRedOp_t;

typedef enum { ncclScalarDevice = 0, ncclScalarHostImmediate = 1 } ncclScalarResidence_t;

typedef enum {
    ncclStatGpuMemSuspend = 0,
    ncclStatGpuMemSuspended = 1,
    ncclStatGpuMemPersist = 2,
    ncclStatGpuMemTotal = 3
} ncclCommMemStat_t;

#define NCCL_UNDEFINED INT_MIN
#define NCCL_MAGIC 0xcafebeefu
#define NCCL_SIMULATION_MAGIC 0x74685283u
#define NCCL_SPLIT_NOCOLOR (-1)
#define NCCL_SHRINK_DEFAULT 0
#define NCCL_SHRINK_ABORT 1
#define NCCL_SUSPEND_MEM 1
#define NCCL_WIN_ALIGNMENT 4096

/* What a library of this version knows of a configuration: a caller's may be longer or shorter. */
typedef struct {
    size_t size;
    unsigned magic;
    unsigned version;
    int blocking;
    int cgaClusterSize;
    int minCTAs;
    int maxCTAs;
    const char *netName;
    int splitShare;
#if EMU_NCCL_VERSION >= 22602
    int trafficClass;
#endif
#if EMU_NCCL_VERSION >= 22703
    const char *commName;
    int collnetEnable;
    int CTAPolicy;
    int shrinkShare;
    int nvlsCTAs;
#endif
#if EMU_NCCL_VERSION >= 22803
    int nChannelsPerNetPeer;
    int nvlinkCentricSched;
#endif
#if EMU_NCCL_VERSION >= 22902
    int graphUsageMode;
    int numRmaCtx;
#endif
#if EMU_NCCL_VERSION >= 23003
    int maxP2pPeers;
    int graphStreamOrdering; /* in the padding until 2.30.7 */
#endif
} ncclConfig_t;

#if EMU_NCCL_VERSION >= 23003
_Static_assert(sizeof(ncclConfig_t) == 96, "ncclConfig_t of 2.30 has 96 bytes");
#elif EMU_NCCL_VERSION < 22703
_Static_assert(sizeof(ncclConfig_t) == 48, "ncclConfig_t of 2.18 to 2.26 has 48 bytes");
#endif

typedef struct {
    size_t size;
    unsigned magic;
    unsigned version;
    float estimatedTime;
} ncclSimInfo_t;

typedef struct {
    int opCnt;
    int peer;
    int sigIdx;
    int ctx;
} ncclWaitSignalDesc_t;

#endif
