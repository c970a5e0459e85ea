/*
 * The undocumented table of functions that the real nvidia-smi asks the library for. What is in it was found by watching
 * Debian's nvidia-smi 535.261.03 and 550.163.01 call it, and by reading which functions are in the same slots of the real
 * library of those releases: both have the same. A slot that is not known says NOT_SUPPORTED, which nvidia-smi shows as N/A.
 */
#include "sim.h"

#include <stdint.h>
#include <string.h>

#define SLOTS 512 /* 245 in 535, 251 in 550 */
#define SLOT_TOPOLOGY 23
#define SLOT_LOG 26
#define SLOT_HAS_PROCESSES 72
#define SLOT_HANDLE_BY_INDEX 81
#define SLOT_PROCESS_SAMPLES 145
#define SLOT_COMPUTE_PROCESSES 213
#define SLOT_GRAPHICS_PROCESSES 214
#define SLOT_MPS_PROCESSES 215

/* A process as nvidia-smi reads it: 4128 bytes. */
struct detail {
	unsigned int pid;
	unsigned long long bytes;
	unsigned int gpu_instance, compute_instance;
	unsigned long long unknown;
	char name[4096];
};
_Static_assert(sizeof(struct detail) == 4128, "nvidia-smi steps through the list in steps of this size");

nvmlReturn_t nvmlInternalGetExportTable(const void **table, const void *id);

static nvmlReturn_t not_supported(void)
{
	return NVML_ERROR_NOT_SUPPORTED;
}

/* nvidia-smi's own messages, as a format and its values. */
static void nothing(void)
{
}

static nvmlReturn_t has_processes(nvmlDevice_t device, unsigned int *has)
{
	(void)device;
	*has = 1;
	return NVML_SUCCESS;
}

static nvmlReturn_t compute_processes(nvmlDevice_t device, unsigned int *count, struct detail *list)
{
	nvmlProcessInfo_t infos[64];
	unsigned int found = sizeof(infos) / sizeof(infos[0]);
	nvmlReturn_t result = nvmlDeviceGetComputeRunningProcesses_v3(device, &found, infos);

	if (result != NVML_SUCCESS)
		return result;
	if (found > *count) {
		*count = found;
		return NVML_ERROR_INSUFFICIENT_SIZE;
	}
	*count = found;
	memset(list, 0, found * sizeof(*list));
	for (unsigned int i = 0; i < found; ++i) {
		list[i].pid = infos[i].pid;
		list[i].bytes = infos[i].usedGpuMemory;
		list[i].gpu_instance = infos[i].gpuInstanceId;
		list[i].compute_instance = infos[i].computeInstanceId;
		nvmlSystemGetProcessName(infos[i].pid, list[i].name, sizeof(list[i].name));
	}
	return NVML_SUCCESS;
}

static nvmlReturn_t no_processes(nvmlDevice_t device, unsigned int *count, struct detail *list)
{
	(void)device;
	(void)list;
	*count = 0;
	return NVML_SUCCESS;
}

/* Each process's share of the card cannot be told apart here: pmon then shows the processes with a dash each. */
static nvmlReturn_t no_samples(void)
{
	return NVML_ERROR_NOT_FOUND;
}

/* 0 one bridge, 1 several, 2 the host's bridge (PHB), 3 within a NUMA node, 4 over sockets. */
static nvmlReturn_t topology(const nvmlPciInfo_t *one, const nvmlPciInfo_t *other, int *level)
{
	(void)one;
	(void)other;
	*level = 2;
	return NVML_SUCCESS;
}

__attribute__((visibility("default"))) nvmlReturn_t nvmlInternalGetExportTable(const void **table, const void *id)
{
	static uintptr_t slots[SLOTS];

	(void)id; /* both releases ask for one table only */
	if (!table)
		return NVML_ERROR_INVALID_ARGUMENT;
	for (int slot = 1; slot < SLOTS; ++slot)
		slots[slot] = (uintptr_t)not_supported;
	slots[0] = sizeof(slots); /* every table begins with its size in bytes */
	slots[SLOT_TOPOLOGY] = (uintptr_t)topology;
	slots[SLOT_LOG] = (uintptr_t)nothing;
	slots[SLOT_HAS_PROCESSES] = (uintptr_t)has_processes;
	slots[SLOT_HANDLE_BY_INDEX] = (uintptr_t)nvmlDeviceGetHandleByIndex_v2;
	slots[SLOT_PROCESS_SAMPLES] = (uintptr_t)no_samples;
	slots[SLOT_COMPUTE_PROCESSES] = (uintptr_t)compute_processes;
	slots[SLOT_GRAPHICS_PROCESSES] = slots[SLOT_MPS_PROCESSES] = (uintptr_t)no_processes;
	*table = slots;
	return NVML_SUCCESS;
}
