/*
 * The part of NVML's binary interface that this library answers: codes, enums and struct layouts.
 *
 * Written from the layouts nvidia-ml-py 13.615.71 uses (sizes are checked below) and from NVML's public documentation.
 * Handles are opaque pointers to the caller; here they are encoded numbers, see call.h.
 */
#ifndef MOCK_NVML_NVML_H
#define MOCK_NVML_NVML_H

#include <assert.h>
#include <stdint.h>

typedef enum {
    NVML_SUCCESS = 0,
    NVML_ERROR_UNINITIALIZED = 1,
    NVML_ERROR_INVALID_ARGUMENT = 2,
    NVML_ERROR_NOT_SUPPORTED = 3,
    NVML_ERROR_NO_PERMISSION = 4,
    NVML_ERROR_NOT_FOUND = 6,
    NVML_ERROR_INSUFFICIENT_SIZE = 7,
    NVML_ERROR_DRIVER_NOT_LOADED = 9,
    NVML_ERROR_TIMEOUT = 10,
    NVML_ERROR_FUNCTION_NOT_FOUND = 13,
    NVML_ERROR_GPU_IS_LOST = 15,
    NVML_ERROR_RESET_REQUIRED = 16,
    NVML_ERROR_LIB_RM_VERSION_MISMATCH = 18,
    NVML_ERROR_IN_USE = 19,
    NVML_ERROR_MEMORY = 20,
    NVML_ERROR_INSUFFICIENT_RESOURCES = 23,
    NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
    NVML_ERROR_UNKNOWN = 999,
} nvmlReturn_t;

typedef struct nvmlDevice_st *nvmlDevice_t;
typedef struct nvmlGpuInstance_st *nvmlGpuInstance_t;
typedef struct nvmlComputeInstance_st *nvmlComputeInstance_t;
typedef struct nvmlEventSet_st *nvmlEventSet_t;

/* A version word is the struct's version in the top byte and its size below. */
#define NVML_STRUCT_VERSION(type, version) ((uint32_t)(sizeof(type) | ((uint32_t)(version) << 24)))

#define NVML_INIT_FLAG_NO_GPUS 1u
#define NVML_GPU_INSTANCE_PROFILE_COUNT 0x12u
#define NVML_COMPUTE_INSTANCE_PROFILE_COUNT 9u
#define NVML_NO_INSTANCE 0xFFFFFFFFu
#define NVML_FIELD_GPU_RECOVERY_ACTION 230u
#define NVML_VALUE_TYPE_UNSIGNED_INT 1u

#define NVML_EVENT_SINGLE_BIT_ECC 0x1ull
#define NVML_EVENT_DOUBLE_BIT_ECC 0x2ull
#define NVML_EVENT_XID 0x8ull
#define NVML_EVENT_GPU_UNAVAILABLE 0x4000ull
#define NVML_EVENT_RECOVERY_ACTION 0x8000ull

#define NVML_FABRIC_STATE_COMPLETED 3u
#define NVML_NVLINK_REMOTE_SWITCH 2u
#define NVML_NVLINK_REMOTE_UNKNOWN 0xFFu

typedef struct { uint64_t total, free, used; } nvmlMemory_t;
typedef struct { uint32_t version; uint64_t total, reserved, free, used; } nvmlMemory_v2_t;
typedef struct { uint64_t total, free, used; } nvmlBAR1Memory_t;

typedef struct {
    char busIdLegacy[16];
    uint32_t domain, bus, device, pciDeviceId, pciSubSystemId;
    char busId[32];
} nvmlPciInfo_t;

typedef struct { uint32_t version, value; } nvmlDeviceAddressingMode_t;

typedef struct {
    uint32_t version;
    uint8_t ibGuid[16];
    char chassisSerialNumber[16];
    uint8_t slotNumber, trayIndex, hostId, peerType, moduleId;
} nvmlPlatformInfo_t;

typedef struct { uint8_t clusterUuid[16]; uint32_t status, cliqueId, state; } nvmlGpuFabricInfo_t;

typedef struct {
    uint32_t version;
    uint8_t clusterUuid[16];
    uint32_t status, cliqueId, state, healthMask;
} nvmlGpuFabricInfo_v2_t;

typedef struct {
    uint32_t version;
    uint8_t clusterUuid[16];
    uint32_t status, cliqueId, state, healthMask;
    uint8_t healthSummary;
} nvmlGpuFabricInfo_v3_t;

typedef struct { uint8_t type; uint32_t id; } nvmlGpuFabricClique_t;

typedef struct {
    uint8_t clusterUuid[16];
    uint32_t status;
    nvmlGpuFabricClique_t cliques[64];
    uint32_t numCliques;
    uint8_t state;
    uint32_t healthMask;
    uint8_t healthSummary;
} nvmlGpuFabricInfo_v4_t;

typedef struct { uint32_t start, size; } nvmlPlacement_t;

typedef struct {
    uint32_t id, isP2pSupported, sliceCount, instanceCount, multiprocessorCount;
    uint32_t copyEngineCount, decoderCount, encoderCount, jpegCount, ofaCount;
    uint64_t memorySizeMB;
} nvmlGpuInstanceProfileInfo_t;

typedef struct {
    uint32_t version, id, isP2pSupported, sliceCount, instanceCount, multiprocessorCount;
    uint32_t copyEngineCount, decoderCount, encoderCount, jpegCount, ofaCount;
    uint64_t memorySizeMB;
    char name[96];
} nvmlGpuInstanceProfileInfo_v2_t;

typedef struct {
    nvmlDevice_t device;
    uint32_t id, profileId;
    nvmlPlacement_t placement;
} nvmlGpuInstanceInfo_t;

typedef struct {
    uint32_t id, sliceCount, instanceCount, multiprocessorCount;
    uint32_t sharedCopyEngineCount, sharedDecoderCount, sharedEncoderCount, sharedJpegCount, sharedOfaCount;
} nvmlComputeInstanceProfileInfo_t;

typedef struct {
    uint32_t version, id, sliceCount, instanceCount, multiprocessorCount;
    uint32_t sharedCopyEngineCount, sharedDecoderCount, sharedEncoderCount, sharedJpegCount, sharedOfaCount;
    char name[96];
} nvmlComputeInstanceProfileInfo_v2_t;

typedef struct {
    nvmlDevice_t device;
    nvmlGpuInstance_t gpuInstance;
    uint32_t id, profileId;
    nvmlPlacement_t placement;
} nvmlComputeInstanceInfo_t;

typedef struct {
    uint32_t multiprocessorCount, sharedCopyEngineCount, sharedDecoderCount, sharedEncoderCount;
    uint32_t sharedJpegCount, sharedOfaCount, gpuInstanceSliceCount, computeInstanceSliceCount;
    uint64_t memorySizeMB;
} nvmlDeviceAttributes_t;

typedef struct {
    nvmlDevice_t device;
    uint64_t eventType, eventData;
    uint32_t gpuInstanceId, computeInstanceId;
} nvmlEventData_t;

typedef struct {
    uint32_t fieldId, scopeId;
    int64_t timestamp, latencyUsec;
    uint32_t valueType, nvmlReturn;
    uint64_t value;
} nvmlFieldValue_t;

typedef struct {
    uint32_t pid;
    uint64_t usedGpuMemory;
    uint32_t gpuInstanceId, computeInstanceId;
} nvmlProcessInfo_t;

static_assert(sizeof(nvmlMemory_v2_t) == 40, "nvmlMemory_v2_t");
static_assert(sizeof(nvmlPciInfo_t) == 68, "nvmlPciInfo_t");
static_assert(sizeof(nvmlPlatformInfo_t) == 44, "nvmlPlatformInfo_t");
static_assert(sizeof(nvmlGpuFabricInfo_t) == 28, "nvmlGpuFabricInfo_t");
static_assert(sizeof(nvmlGpuFabricInfo_v2_t) == 36, "nvmlGpuFabricInfo_v2_t");
static_assert(sizeof(nvmlGpuFabricInfo_v3_t) == 40, "nvmlGpuFabricInfo_v3_t");
static_assert(sizeof(nvmlGpuFabricInfo_v4_t) == 548, "nvmlGpuFabricInfo_v4_t");
static_assert(sizeof(nvmlGpuInstanceProfileInfo_t) == 48, "nvmlGpuInstanceProfileInfo_t");
static_assert(sizeof(nvmlGpuInstanceProfileInfo_v2_t) == 152, "nvmlGpuInstanceProfileInfo_v2_t");
static_assert(sizeof(nvmlGpuInstanceInfo_t) == 24, "nvmlGpuInstanceInfo_t");
static_assert(sizeof(nvmlComputeInstanceProfileInfo_t) == 36, "nvmlComputeInstanceProfileInfo_t");
static_assert(sizeof(nvmlComputeInstanceProfileInfo_v2_t) == 136, "nvmlComputeInstanceProfileInfo_v2_t");
static_assert(sizeof(nvmlComputeInstanceInfo_t) == 32, "nvmlComputeInstanceInfo_t");
static_assert(sizeof(nvmlDeviceAttributes_t) == 40, "nvmlDeviceAttributes_t");
static_assert(sizeof(nvmlEventData_t) == 32, "nvmlEventData_t");
static_assert(sizeof(nvmlFieldValue_t) == 40, "nvmlFieldValue_t");
static_assert(sizeof(nvmlProcessInfo_t) == 24, "nvmlProcessInfo_t");

#endif
