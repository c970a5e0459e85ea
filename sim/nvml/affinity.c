/* Which CPUs and NUMA nodes are near a card: all that are online, as on a machine with one socket. */
#include "sim.h"

#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define BITS (8 * sizeof(unsigned long))

/* The numbers of a list such as 0-3,8, as the kernel writes them, as a mask; those beyond its end are left out. */
static nvmlReturn_t give_mask(const char *path, unsigned int size, unsigned long *mask)
{
	char line[4096];

	if (!size || !mask)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (!sim_read_line(path, line, sizeof(line)))
		return NVML_ERROR_NOT_SUPPORTED;
	memset(mask, 0, size * sizeof(*mask));
	for (char *at = line; *at;) {
		unsigned long first = strtoul(at, &at, 10), last = *at == '-' ? strtoul(at + 1, &at, 10) : first;

		for (unsigned long bit = first; bit <= last && bit < size * BITS; ++bit)
			mask[bit / BITS] |= 1UL << bit % BITS;
		if (*at)
			++at;
	}
	return NVML_SUCCESS;
}

nvmlReturn_t impl_nvmlDeviceGetCpuAffinityWithinScope(nvmlDevice_t device, unsigned int size, unsigned long *cpus, nvmlAffinityScope_t scope)
{
	(void)device;
	if (scope > NVML_AFFINITY_SCOPE_SOCKET)
		return NVML_ERROR_INVALID_ARGUMENT;
	return give_mask("/sys/devices/system/cpu/online", size, cpus);
}

nvmlReturn_t impl_nvmlDeviceGetCpuAffinity(nvmlDevice_t device, unsigned int size, unsigned long *cpus)
{
	return impl_nvmlDeviceGetCpuAffinityWithinScope(device, size, cpus, NVML_AFFINITY_SCOPE_NODE);
}

nvmlReturn_t impl_nvmlDeviceGetMemoryAffinity(nvmlDevice_t device, unsigned int size, unsigned long *nodes, nvmlAffinityScope_t scope)
{
	(void)device;
	if (scope > NVML_AFFINITY_SCOPE_SOCKET)
		return NVML_ERROR_INVALID_ARGUMENT;
	return give_mask("/sys/devices/system/node/online", size, nodes);
}

nvmlReturn_t impl_nvmlDeviceSetCpuAffinity(nvmlDevice_t device)
{
	unsigned long cpus[1024 / BITS];
	nvmlReturn_t result = impl_nvmlDeviceGetCpuAffinity(device, sizeof(cpus) / sizeof(cpus[0]), cpus);

	if (result == NVML_SUCCESS && syscall(SYS_sched_setaffinity, 0, sizeof(cpus), cpus) != 0)
		return NVML_ERROR_UNKNOWN;
	return result;
}

nvmlReturn_t impl_nvmlDeviceClearCpuAffinity(nvmlDevice_t device)
{
	return impl_nvmlDeviceSetCpuAffinity(device);
}
