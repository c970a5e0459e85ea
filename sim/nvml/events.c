/* Event sets: they can be made and waited on, and nothing ever happens in them (Xids are told in the kernel log). */
#include "sim.h"

#include <errno.h>
#include <time.h>

struct nvmlEventSet_st {
	int unused;
};

static struct nvmlEventSet_st the_set; /* a set holds nothing, so one serves all */

nvmlReturn_t impl_nvmlEventSetCreate(nvmlEventSet_t *set)
{
	if (!set)
		return NVML_ERROR_INVALID_ARGUMENT;
	*set = &the_set;
	return NVML_SUCCESS;
}

nvmlReturn_t impl_nvmlEventSetFree(nvmlEventSet_t set)
{
	return set == &the_set ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t impl_nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long *types)
{
	(void)device;
	if (!types)
		return NVML_ERROR_INVALID_ARGUMENT;
	*types = nvmlEventTypeXidCriticalError | nvmlEventTypePState | nvmlEventTypeClock;
	return NVML_SUCCESS;
}

nvmlReturn_t impl_nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types, nvmlEventSet_t set)
{
	unsigned long long supported;

	impl_nvmlDeviceGetSupportedEventTypes(device, &supported);
	if (set != &the_set)
		return NVML_ERROR_INVALID_ARGUMENT;
	return types & ~supported ? NVML_ERROR_NOT_SUPPORTED : NVML_SUCCESS;
}

nvmlReturn_t impl_nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeout_ms)
{
	struct timespec left = {timeout_ms / 1000, (long)(timeout_ms % 1000) * 1000000};

	if (set != &the_set || !data)
		return NVML_ERROR_INVALID_ARGUMENT;
	while (nanosleep(&left, &left) != 0 && errno == EINTR)
		;
	return NVML_ERROR_TIMEOUT;
}

nvmlReturn_t impl_nvmlEventSetWait(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeout_ms)
{
	return impl_nvmlEventSetWait_v2(set, data, timeout_ms);
}
