/* Which GPUs there are, and what does not change about them. */
#include "sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COPY(pointer, expression)                              \
	do {                                                   \
		if (!(pointer))                                \
			return NVML_ERROR_INVALID_ARGUMENT;    \
		*(pointer) = (expression);                     \
		return NVML_SUCCESS;                           \
	} while (0)

/* A handle is the address of its GPU's entry: callers cannot look into it, and a wild one is recognised. */
struct nvmlDevice_st {
	int gpu;
};

static struct nvmlDevice_st handles[SIM_MAX_GPUS] = {{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}};

int device_gpu(nvmlDevice_t device)
{
	for (int gpu = 0; gpu < SIM_MAX_GPUS; ++gpu)
		if (device == &handles[gpu])
			return gpu < card_count() ? gpu : -1;
	return -1;
}

static struct card card_of(nvmlDevice_t device)
{
	struct card card;

	card_read(device_gpu(device), &card);
	return card;
}

/*
 * A container sees the cards whose device files it was given. A simulated box may have no device files at all: without
 * the control device, all cards are seen.
 */
static bool visible(int gpu)
{
	char path[4096], node[32];

	if (access(sim_machine_path(path, sizeof(path), "/dev/nvidiactl"), F_OK) != 0)
		return true;
	snprintf(node, sizeof(node), "/dev/nvidia%d", gpu);
	return access(sim_machine_path(path, sizeof(path), node), F_OK) == 0;
}

static nvmlReturn_t give_handle(int gpu, const char *function, nvmlDevice_t *device)
{
	struct card card;

	card_read(gpu, &card);
	if (card.lost)
		return NVML_ERROR_GPU_IS_LOST;
	nvmlReturn_t result = call_injected(function, gpu);
	if (result == NVML_SUCCESS)
		*device = &handles[gpu];
	return result;
}

nvmlReturn_t impl_nvmlDeviceGetCount_v2(unsigned int *count)
{
	if (!count)
		return NVML_ERROR_INVALID_ARGUMENT;
	*count = 0;
	for (int gpu = 0; gpu < card_count(); ++gpu)
		*count += visible(gpu);
	return NVML_SUCCESS;
}

nvmlReturn_t impl_nvmlDeviceGetCount(unsigned int *count)
{
	return impl_nvmlDeviceGetCount_v2(count);
}

nvmlReturn_t impl_nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
	unsigned int seen = 0;

	if (!device)
		return NVML_ERROR_INVALID_ARGUMENT;
	for (int gpu = 0; gpu < card_count(); ++gpu)
		if (visible(gpu) && seen++ == index)
			return give_handle(gpu, "nvmlDeviceGetHandleByIndex_v2", device);
	return NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t impl_nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *device)
{
	return impl_nvmlDeviceGetHandleByIndex_v2(index, device);
}

nvmlReturn_t impl_nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
	struct card card;

	if (!uuid || !device)
		return NVML_ERROR_INVALID_ARGUMENT;
	for (int gpu = 0; gpu < card_count(); ++gpu) {
		card_read(gpu, &card);
		if (visible(gpu) && strcmp(card.uuid, uuid) == 0)
			return give_handle(gpu, "nvmlDeviceGetHandleByUUID", device);
	}
	return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t impl_nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvmlDevice_t *device)
{
	unsigned int domain = 0, bus, slot, function = 0;
	struct card card;

	if (!bus_id || !device ||
	    (sscanf(bus_id, "%x:%x:%x.%x", &domain, &bus, &slot, &function) < 3 &&
	     sscanf(bus_id, "%x:%x.%x", &bus, &slot, &function) < 2))
		return NVML_ERROR_INVALID_ARGUMENT;
	for (int gpu = 0; gpu < card_count(); ++gpu) {
		card_read(gpu, &card);
		if (visible(gpu) && domain == 0 && card.bus == bus && slot == 0 && function == 0)
			return give_handle(gpu, "nvmlDeviceGetHandleByPciBusId_v2", device);
	}
	return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t impl_nvmlDeviceGetHandleByPciBusId(const char *bus_id, nvmlDevice_t *device)
{
	return impl_nvmlDeviceGetHandleByPciBusId_v2(bus_id, device);
}

nvmlReturn_t impl_nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index)
{
	unsigned int before = 0;

	for (int gpu = 0; gpu < device_gpu(device); ++gpu)
		before += visible(gpu);
	COPY(index, before);
}

nvmlReturn_t impl_nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int *minor)
{
	COPY(minor, (unsigned)device_gpu(device));
}

nvmlReturn_t impl_nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length)
{
	return copy_string(card_of(device).name, name, length);
}

nvmlReturn_t impl_nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length)
{
	return copy_string(card_of(device).uuid, uuid, length);
}

nvmlReturn_t impl_nvmlDeviceGetBrand(nvmlDevice_t device, nvmlBrandType_t *brand)
{
	(void)device;
	COPY(brand, NVML_BRAND_GEFORCE);
}

nvmlReturn_t impl_nvmlDeviceGetArchitecture(nvmlDevice_t device, nvmlDeviceArchitecture_t *architecture)
{
	(void)device;
	COPY(architecture, NVML_DEVICE_ARCH_ADA);
}

nvmlReturn_t impl_nvmlDeviceGetVbiosVersion(nvmlDevice_t device, char *version, unsigned int length)
{
	(void)device;
	return copy_string("95.02.00.00.00 (simulated)", version, length);
}

nvmlReturn_t impl_nvmlDeviceGetBoardId(nvmlDevice_t device, unsigned int *board)
{
	COPY(board, card_of(device).bus << 8);
}

nvmlReturn_t impl_nvmlDeviceGetMultiGpuBoard(nvmlDevice_t device, unsigned int *multi)
{
	(void)device;
	COPY(multi, 0);
}

nvmlReturn_t impl_nvmlDeviceOnSameBoard(nvmlDevice_t one, nvmlDevice_t other, int *same)
{
	COPY(same, one == other);
}

nvmlReturn_t impl_nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor)
{
	(void)device;
	if (!major || !minor)
		return NVML_ERROR_INVALID_ARGUMENT;
	*major = 8;
	*minor = 9;
	return NVML_SUCCESS;
}

nvmlReturn_t impl_nvmlDeviceGetNumGpuCores(nvmlDevice_t device, unsigned int *cores)
{
	(void)device;
	COPY(cores, 16384);
}

nvmlReturn_t impl_nvmlDeviceGetMemoryBusWidth(nvmlDevice_t device, unsigned int *bits)
{
	(void)device;
	COPY(bits, 384);
}

/* ---- PCI ---- */

#define PCI_DEVICE_ID 0x268410DE
#define PCI_SUBSYSTEM_ID 0x167C10DE

nvmlReturn_t impl_nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
	if (!pci)
		return NVML_ERROR_INVALID_ARGUMENT;
	memset(pci, 0, sizeof(*pci));
	pci->bus = card_of(device).bus;
	pci->pciDeviceId = PCI_DEVICE_ID;
	pci->pciSubSystemId = PCI_SUBSYSTEM_ID;
	snprintf(pci->busId, sizeof(pci->busId), "00000000:%02X:00.0", pci->bus & 0xff);
	snprintf(pci->busIdLegacy, sizeof(pci->busIdLegacy), "0000:%02X:00.0", pci->bus & 0xff);
	return NVML_SUCCESS;
}

/* The older versions know the legacy bus id and no subsystem: their structure is the head of the newer one. */
nvmlReturn_t impl_nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
	nvmlPciInfo_t full;

	if (!pci)
		return NVML_ERROR_INVALID_ARGUMENT;
	impl_nvmlDeviceGetPciInfo_v3(device, &full);
	memcpy(pci, &full, offsetof(nvmlPciInfo_t, busId));
	return NVML_SUCCESS;
}

nvmlReturn_t impl_nvmlDeviceGetPciInfo(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
	return impl_nvmlDeviceGetPciInfo_v2(device, pci);
}

nvmlReturn_t impl_nvmlDeviceGetPciInfoExt(nvmlDevice_t device, nvmlPciInfoExt_t *pci)
{
	nvmlPciInfo_t full;

	if (!pci)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (pci->version != nvmlPciInfoExt_v1)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	impl_nvmlDeviceGetPciInfo_v3(device, &full);
	pci->domain = full.domain;
	pci->bus = full.bus;
	pci->device = full.device;
	pci->pciDeviceId = full.pciDeviceId;
	pci->pciSubSystemId = full.pciSubSystemId;
	pci->baseClass = 0x03; /* display controller, VGA */
	pci->subClass = 0x00;
	memcpy(pci->busId, full.busId, sizeof(pci->busId));
	return NVML_SUCCESS;
}

nvmlReturn_t impl_nvmlDeviceGetMaxPcieLinkGeneration(nvmlDevice_t device, unsigned int *generation)
{
	(void)device;
	COPY(generation, 4);
}

nvmlReturn_t impl_nvmlDeviceGetGpuMaxPcieLinkGeneration(nvmlDevice_t device, unsigned int *generation)
{
	(void)device;
	COPY(generation, 4);
}

nvmlReturn_t impl_nvmlDeviceGetMaxPcieLinkWidth(nvmlDevice_t device, unsigned int *width)
{
	(void)device;
	COPY(width, 16);
}

nvmlReturn_t impl_nvmlDeviceGetCurrPcieLinkWidth(nvmlDevice_t device, unsigned int *width)
{
	(void)device;
	COPY(width, 16);
}

nvmlReturn_t impl_nvmlDeviceGetPcieReplayCounter(nvmlDevice_t device, unsigned int *count)
{
	(void)device;
	COPY(count, 0);
}

nvmlReturn_t impl_nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t one, nvmlDevice_t other, nvmlGpuTopologyLevel_t *level)
{
	COPY(level, one == other ? NVML_TOPOLOGY_INTERNAL : NVML_TOPOLOGY_HOSTBRIDGE);
}

nvmlReturn_t impl_nvmlDeviceGetP2PStatus(nvmlDevice_t one, nvmlDevice_t other, nvmlGpuP2PCapsIndex_t index, nvmlGpuP2PStatus_t *status)
{
	(void)one;
	(void)other;
	(void)index;
	COPY(status, NVML_P2P_STATUS_CHIPSET_NOT_SUPPORTED); /* the 4090 has neither NVLink nor, officially, PCIe peer access */
}

/* ---- Modes ---- */

nvmlReturn_t impl_nvmlDeviceGetDisplayMode(nvmlDevice_t device, nvmlEnableState_t *mode)
{
	COPY(mode, card_of(device).display_active ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED);
}

nvmlReturn_t impl_nvmlDeviceGetDisplayActive(nvmlDevice_t device, nvmlEnableState_t *active)
{
	return impl_nvmlDeviceGetDisplayMode(device, active);
}

nvmlReturn_t impl_nvmlDeviceGetComputeMode(nvmlDevice_t device, nvmlComputeMode_t *mode)
{
	(void)device;
	COPY(mode, NVML_COMPUTEMODE_DEFAULT);
}

/* The 4090 can do ECC; it is off as delivered, and then it counts no errors (those functions: NOT_SUPPORTED). */
nvmlReturn_t impl_nvmlDeviceGetEccMode(nvmlDevice_t device, nvmlEnableState_t *current, nvmlEnableState_t *pending)
{
	(void)device;
	if (!current || !pending)
		return NVML_ERROR_INVALID_ARGUMENT;
	*current = *pending = NVML_FEATURE_DISABLED;
	return NVML_SUCCESS;
}

/* A GeForce card has no MIG: nvmlDeviceGetMigMode says NOT_SUPPORTED, these two answer. */
nvmlReturn_t impl_nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count)
{
	(void)device;
	COPY(count, 0);
}

nvmlReturn_t impl_nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int *is_mig)
{
	(void)device;
	COPY(is_mig, 0);
}
