/* What a caller can set, and read back: persistence mode, power limit. And what none can read back: clock locks. */
#include "sim.h"

#include <unistd.h>

struct change {
	struct card card;
	struct state state;
	struct gpu_state *gpu;
};

/* The energy so far was taken under the old settings: it is counted before they change. */
static nvmlReturn_t change_begin(struct change *change, nvmlDevice_t device)
{
	int gpu = device_gpu(device);

	change->state.lock_fd = -1;
	if (geteuid() != 0)
		return NVML_ERROR_NO_PERMISSION;
	if (!state_begin(&change->state))
		return NVML_ERROR_OPERATING_SYSTEM;
	card_read(gpu, &change->card);
	change->gpu = &change->state.gpu[gpu];
	physics_count_energy(&change->card, change->gpu);
	return NVML_SUCCESS;
}

static nvmlReturn_t change_end(struct change *change, nvmlReturn_t result)
{
	state_end(&change->state, result == NVML_SUCCESS);
	return result;
}

nvmlReturn_t impl_nvmlDeviceGetPersistenceMode(nvmlDevice_t device, nvmlEnableState_t *mode)
{
	struct state state;

	if (!mode)
		return NVML_ERROR_INVALID_ARGUMENT;
	bool locked = state_begin(&state);
	if (locked)
		*mode = state.gpu[device_gpu(device)].persistence_mode ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED;
	state_end(&state, false);
	return locked ? NVML_SUCCESS : NVML_ERROR_OPERATING_SYSTEM;
}

nvmlReturn_t impl_nvmlDeviceSetPersistenceMode(nvmlDevice_t device, nvmlEnableState_t mode)
{
	struct change change;
	nvmlReturn_t result = change_begin(&change, device);

	if (result == NVML_SUCCESS && mode != NVML_FEATURE_ENABLED && mode != NVML_FEATURE_DISABLED)
		result = NVML_ERROR_INVALID_ARGUMENT;
	if (result == NVML_SUCCESS)
		change.gpu->persistence_mode = mode == NVML_FEATURE_ENABLED;
	return change_end(&change, result);
}

nvmlReturn_t impl_nvmlDeviceSetPowerManagementLimit(nvmlDevice_t device, unsigned int mw)
{
	struct change change;
	nvmlReturn_t result = change_begin(&change, device);

	if (result == NVML_SUCCESS && (mw < change.card.power_min_mw || mw > change.card.power_max_mw))
		result = NVML_ERROR_INVALID_ARGUMENT;
	if (result == NVML_SUCCESS)
		change.gpu->power_limit_mw = mw;
	return change_end(&change, result);
}

nvmlReturn_t impl_nvmlDeviceSetPowerManagementLimit_v2(nvmlDevice_t device, nvmlPowerValue_v2_t *value)
{
	if (!value)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (value->version != nvmlPowerValue_v2)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	if (value->powerScope != NVML_POWER_SCOPE_GPU)
		return NVML_ERROR_NOT_SUPPORTED;
	return impl_nvmlDeviceSetPowerManagementLimit(device, value->powerValueMw);
}

/* SUCCESS says that the request was taken. What was asked is rounded to what the card can do, without a word. */
nvmlReturn_t impl_nvmlDeviceSetGpuLockedClocks(nvmlDevice_t device, unsigned int low, unsigned int high)
{
	struct change change;
	nvmlReturn_t result = change_begin(&change, device);

	if (result == NVML_SUCCESS && low > high)
		result = NVML_ERROR_INVALID_ARGUMENT;
	if (result == NVML_SUCCESS) {
		change.gpu->gpu_lock_min_mhz = low ? card_round_clock(low) : 0;
		change.gpu->gpu_lock_max_mhz = card_round_clock(high);
	}
	return change_end(&change, result);
}

nvmlReturn_t impl_nvmlDeviceResetGpuLockedClocks(nvmlDevice_t device)
{
	struct change change;
	nvmlReturn_t result = change_begin(&change, device);

	if (result == NVML_SUCCESS)
		change.gpu->gpu_lock_min_mhz = change.gpu->gpu_lock_max_mhz = UNLOCKED;
	return change_end(&change, result);
}

nvmlReturn_t impl_nvmlDeviceSetMemoryLockedClocks(nvmlDevice_t device, unsigned int low, unsigned int high)
{
	struct change change;
	nvmlReturn_t result = change_begin(&change, device);

	if (result == NVML_SUCCESS && low > high)
		result = NVML_ERROR_INVALID_ARGUMENT;
	if (result == NVML_SUCCESS) {
		change.gpu->memory_lock_min_mhz = low ? card_round_memory_clock(low) : 0;
		change.gpu->memory_lock_max_mhz = card_round_memory_clock(high);
	}
	return change_end(&change, result);
}

nvmlReturn_t impl_nvmlDeviceResetMemoryLockedClocks(nvmlDevice_t device)
{
	struct change change;
	nvmlReturn_t result = change_begin(&change, device);

	if (result == NVML_SUCCESS)
		change.gpu->memory_lock_min_mhz = change.gpu->memory_lock_max_mhz = UNLOCKED;
	return change_end(&change, result);
}
