/*
 * The undocumented table of functions that the real nvidia-smi asks the library for. What is in it was found by watching
 * nvidia-smi 535: it calls slot 81 for a GPU's handle, and takes 0 from all others for "nothing to tell".
 */
#include "sim.h"

#include <stdint.h>

#define SLOTS 512
#define SLOT_HANDLE_BY_INDEX 81

nvmlReturn_t nvmlInternalGetExportTable(const void **table, const void *id);

static nvmlReturn_t nothing_to_tell(void)
{
	return NVML_SUCCESS;
}

__attribute__((visibility("default"))) nvmlReturn_t nvmlInternalGetExportTable(const void **table, const void *id)
{
	static uintptr_t slots[SLOTS];

	(void)id; /* there are several tables; one answers for all */
	if (!table)
		return NVML_ERROR_INVALID_ARGUMENT;
	for (int slot = 1; slot < SLOTS; ++slot)
		slots[slot] = (uintptr_t)nothing_to_tell;
	slots[0] = sizeof(slots); /* every table begins with its size in bytes */
	slots[SLOT_HANDLE_BY_INDEX] = (uintptr_t)nvmlDeviceGetHandleByIndex_v2;
	*table = slots;
	return NVML_SUCCESS;
}
