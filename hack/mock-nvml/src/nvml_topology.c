/* Where a GPU sits: NUMA, PCIe, NVLink, fabric. */
#include <string.h>

#include "call.h"

enum { SAME_BOARD = 0, HOST_BRIDGE = 30, SAME_NODE = 40, SYSTEM = 50 };
enum { P2P_OK = 0, P2P_NOT_SUPPORTED = 5 };
enum { HEALTHY = 1 };

static const struct numa_node *node_of(const struct call *call)
{
    for (unsigned i = 0; i < call->machine->numa_count; i++)
        if ((int32_t)call->machine->numa[i].id == call->gpu->numa_node)
            return &call->machine->numa[i];
    return NULL;
}

EXPORT nvmlReturn_t nvmlDeviceGetCpuAffinity(nvmlDevice_t device, unsigned int words, unsigned long *set)
{
    BEGIN(call_gpu, READS, device);
    const struct numa_node *node = node_of(&call);
    for (unsigned i = 0; i < words; i++)
        set[i] = node && i < CPU_WORDS ? node->cpus[i] : 0;
    END(node ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED);
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryAffinity(nvmlDevice_t device, unsigned int words, unsigned long *set, unsigned int scope)
{
    (void)scope;
    BEGIN(call_gpu, READS, device);
    if (call.gpu->numa_node < 0)
        END(NVML_ERROR_NOT_SUPPORTED);
    for (unsigned i = 0; i < words; i++)
        set[i] = i == (unsigned)call.gpu->numa_node / 64 ? 1ul << call.gpu->numa_node % 64 : 0;
    END(NVML_SUCCESS);
}

/* The NUMA node that the GPU's own memory forms; which number coherent boards get was not seen, so none reports one. */
EXPORT nvmlReturn_t nvmlDeviceGetNumaNodeId(nvmlDevice_t device, int *node)
{
    BEGIN(call_gpu, READS, device);
    (void)node;
    END(NVML_ERROR_NOT_SUPPORTED);
}

/* The peer's GPU, under the lock of `call`; NULL when the handle is none of a whole GPU. */
static const struct gpu *peer_of(const struct call *call, nvmlDevice_t device)
{
    for (unsigned i = 0; i < call->machine->gpu_count; i++)
        if (handle_gpu(call, &call->machine->gpus[i]) == device)
            return &call->machine->gpus[i];
    return NULL;
}

EXPORT nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t device, nvmlDevice_t other, unsigned int *level)
{
    BEGIN(call_gpu, READS, device);
    const struct gpu *peer = peer_of(&call, other);
    if (!peer)
        END(NVML_ERROR_INVALID_ARGUMENT);
    *level = peer == call.gpu                                        ? SAME_BOARD
           : strcmp(peer->pcie_root, call.gpu->pcie_root) == 0       ? HOST_BRIDGE
           : peer->numa_node == call.gpu->numa_node                  ? SAME_NODE
                                                                     : SYSTEM;
    END(NVML_SUCCESS);
}

/* NVLink between instances is off while either GPU is partitioned. */
EXPORT nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t device, nvmlDevice_t other, unsigned int capability, unsigned int *status)
{
    (void)capability;
    BEGIN(call_gpu, READS, device);
    const struct gpu *peer = peer_of(&call, other);
    if (!peer)
        END(NVML_ERROR_INVALID_ARGUMENT);
    bool linked = call.board->nvlinks && !call.gpu->mig_current && !peer->mig_current;
    *status = linked ? P2P_OK : P2P_NOT_SUPPORTED;
    END(NVML_SUCCESS);
}

static nvmlReturn_t check_link(const struct call *call, unsigned link)
{
    if (!call->board->nvlinks)
        return NVML_ERROR_NOT_SUPPORTED;
    return link < call->board->nvlinks ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned int link, unsigned int *active)
{
    BEGIN(call_gpu, READS, device);
    nvmlReturn_t result = check_link(&call, link);
    if (result == NVML_SUCCESS)
        *active = !call.gpu->mig_current;
    END(result);
}

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkCapability(nvmlDevice_t device, unsigned int link, unsigned int capability, unsigned int *has)
{
    (void)capability; /* 0-5: P2P, system memory access, both atomics, SLI, valid; all there on a server board */
    BEGIN(call_gpu, READS, device);
    nvmlReturn_t result = check_link(&call, link);
    if (result == NVML_SUCCESS)
        *has = 1;
    END(result);
}

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device, unsigned int link, unsigned int *type)
{
    BEGIN(call_gpu, READS, device);
    nvmlReturn_t result = check_link(&call, link);
    if (result == NVML_SUCCESS)
        *type = call.machine->nvswitches ? NVML_NVLINK_REMOTE_SWITCH : NVML_NVLINK_REMOTE_UNKNOWN;
    END(result);
}

/* The bus ids of switches are no part of a profile: nobody can say what is at the other end. */
EXPORT nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned int link, nvmlPciInfo_t *info)
{
    (void)info;
    BEGIN(call_gpu, READS, device);
    nvmlReturn_t result = check_link(&call, link);
    END(result == NVML_SUCCESS ? NVML_ERROR_NOT_SUPPORTED : result);
}

/* Every pair of a healthy link: "not degraded", "no recovery", … (value 2), and no wrong configuration (value 1). */
static uint32_t healthy_mask(void)
{
    return 2u | 2u << 2 | 2u << 4 | 2u << 6 | 1u << 8;
}

static bool in_cluster(const struct call *call)
{
    return call->machine->fabric_present && call->board->nvlinks;
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuFabricInfo(nvmlDevice_t device, nvmlGpuFabricInfo_t *info)
{
    BEGIN(call_gpu, READS, device);
    if (!in_cluster(&call))
        END(NVML_ERROR_NOT_SUPPORTED);
    memcpy(info->clusterUuid, call.machine->cluster_uuid, sizeof(info->clusterUuid));
    info->status = call.gpu->fabric_status;
    info->cliqueId = call.machine->fabric_clique;
    info->state = call.gpu->fabric_state;
    END(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, nvmlGpuFabricInfo_v3_t *info)
{
    BEGIN(call_gpu, READS, device);
    bool third = info->version == NVML_STRUCT_VERSION(nvmlGpuFabricInfo_v3_t, 3);
    if (!third && info->version != NVML_STRUCT_VERSION(nvmlGpuFabricInfo_v2_t, 2))
        END(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    if (!in_cluster(&call))
        END(NVML_ERROR_NOT_SUPPORTED);
    memcpy(info->clusterUuid, call.machine->cluster_uuid, sizeof(info->clusterUuid));
    info->status = call.gpu->fabric_status;
    info->cliqueId = call.machine->fabric_clique;
    info->state = call.gpu->fabric_state;
    info->healthMask = healthy_mask();
    if (third)
        info->healthSummary = HEALTHY;
    END(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuFabricInfo_v4(nvmlDevice_t device, nvmlGpuFabricInfo_v4_t *info)
{
    BEGIN(call_gpu, READS, device);
    if (!in_cluster(&call))
        END(NVML_ERROR_NOT_SUPPORTED);
    memset(info, 0, sizeof(*info));
    memcpy(info->clusterUuid, call.machine->cluster_uuid, sizeof(info->clusterUuid));
    info->status = call.gpu->fabric_status;
    info->cliques[0].id = call.machine->fabric_clique;
    info->numCliques = 1;
    info->state = (uint8_t)call.gpu->fabric_state;
    info->healthMask = healthy_mask();
    info->healthSummary = HEALTHY;
    END(NVML_SUCCESS);
}
