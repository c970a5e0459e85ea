/* The library and the driver as a whole. */
#include "sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

nvmlReturn_t copy_string(const char *text, char *buffer, unsigned int length)
{
	if (!buffer)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (strlen(text) >= length)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	strcpy(buffer, text);
	return NVML_SUCCESS;
}

nvmlReturn_t impl_nvmlInit(void)
{
	return client_join();
}

nvmlReturn_t impl_nvmlInit_v2(void)
{
	return client_join();
}

nvmlReturn_t impl_nvmlInitWithFlags(unsigned int flags)
{
	(void)flags; /* they only say what missing GPUs mean; here none is missing */
	return client_join();
}

nvmlReturn_t impl_nvmlShutdown(void)
{
	return client_leave();
}

static int driver_major(void)
{
	return atoi(SIM_DRIVER_VERSION);
}

/* What the driver's branch speaks, as in NVIDIA's table of CUDA and driver versions. */
static int cuda_version(void)
{
	static const struct {
		int driver, cuda;
	} table[] = {{595, 13020}, {590, 13010}, {580, 13000}, {575, 12090}, {570, 12080}, {565, 12070}, {560, 12060},
		     {555, 12050}, {550, 12040}, {545, 12030}, {535, 12020}, {530, 12010}, {525, 12000}};

	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); ++i)
		if (driver_major() >= table[i].driver)
			return table[i].cuda;
	return 11040;
}

nvmlReturn_t impl_nvmlSystemGetDriverVersion(char *version, unsigned int length)
{
	return copy_string(SIM_DRIVER_VERSION, version, length);
}

nvmlReturn_t impl_nvmlSystemGetNVMLVersion(char *version, unsigned int length)
{
	char text[64];

	snprintf(text, sizeof(text), "%d.%s", cuda_version() / 1000, SIM_DRIVER_VERSION);
	return copy_string(text, version, length);
}

nvmlReturn_t impl_nvmlSystemGetCudaDriverVersion_v2(int *version)
{
	if (!version)
		return NVML_ERROR_INVALID_ARGUMENT;
	*version = cuda_version();
	return NVML_SUCCESS;
}

nvmlReturn_t impl_nvmlSystemGetCudaDriverVersion(int *version)
{
	return impl_nvmlSystemGetCudaDriverVersion_v2(version);
}

nvmlReturn_t impl_nvmlSystemGetDriverBranch(nvmlSystemDriverBranchInfo_t *info, unsigned int length)
{
	char text[16];

	if (!info || length == 0)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (info->version != nvmlSystemDriverBranchInfo_v1)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	snprintf(text, sizeof(text), "r%d", driver_major());
	return copy_string(text, info->branch, length < sizeof(info->branch) ? length : sizeof(info->branch));
}

nvmlReturn_t impl_nvmlSystemGetProcessName(unsigned int pid, char *name, unsigned int length)
{
	char path[64], text[4096];

	if (!name || length == 0)
		return NVML_ERROR_INVALID_ARGUMENT;
	snprintf(path, sizeof(path), "/proc/%u/cmdline", pid);
	/* Arguments end with NUL, so the line read ends with the program's name. */
	if (!sim_read_line(path, text, sizeof(text)))
		return NVML_ERROR_NOT_FOUND;
	snprintf(name, length, "%s", text);
	return NVML_SUCCESS;
}

nvmlReturn_t impl_nvmlUnitGetCount(unsigned int *count)
{
	if (!count)
		return NVML_ERROR_INVALID_ARGUMENT;
	*count = 0; /* S-class racks only */
	return NVML_SUCCESS;
}

nvmlReturn_t impl_nvmlGetExcludedDeviceCount(unsigned int *count)
{
	if (!count)
		return NVML_ERROR_INVALID_ARGUMENT;
	*count = 0;
	return NVML_SUCCESS;
}

/*
 * Not traced and never made to fail: it only names a code. The texts are those of NVIDIA's own library, which answers this
 * without a driver (libnvidia-ml1 535.261.03 and 550.163.01; test_nvml_witnesses.py asks it).
 */
const char *impl_nvmlErrorString(nvmlReturn_t result)
{
	static const struct {
		nvmlReturn_t code;
		int since; /* the driver's branch; of those between the two that were asked nobody knows */
		const char *text;
	} texts[] = {
		{NVML_SUCCESS, 0, "Success"},
		{NVML_ERROR_UNINITIALIZED, 0, "Uninitialized"},
		{NVML_ERROR_INVALID_ARGUMENT, 0, "Invalid Argument"},
		{NVML_ERROR_NOT_SUPPORTED, 0, "Not Supported"},
		{NVML_ERROR_NO_PERMISSION, 0, "Insufficient Permissions"},
		{NVML_ERROR_ALREADY_INITIALIZED, 0, "Already Initialized"},
		{NVML_ERROR_NOT_FOUND, 0, "Not Found"},
		{NVML_ERROR_INSUFFICIENT_SIZE, 0, "Insufficient Size"},
		{NVML_ERROR_INSUFFICIENT_POWER, 0, "Insufficient External Power"},
		{NVML_ERROR_DRIVER_NOT_LOADED, 0, "Driver Not Loaded"},
		{NVML_ERROR_TIMEOUT, 0, "Timeout"},
		{NVML_ERROR_IRQ_ISSUE, 0, "Interrupt Request Issue"},
		{NVML_ERROR_LIBRARY_NOT_FOUND, 0, "NVML Shared Library Not Found"},
		{NVML_ERROR_FUNCTION_NOT_FOUND, 0, "Function Not Found"},
		{NVML_ERROR_CORRUPTED_INFOROM, 0, "Corrupted infoROM"},
		{NVML_ERROR_GPU_IS_LOST, 0, "GPU is lost"},
		{NVML_ERROR_RESET_REQUIRED, 0, "GPU requires reset"},
		{NVML_ERROR_OPERATING_SYSTEM, 0, "GPU access blocked by the operating system"},
		{NVML_ERROR_LIB_RM_VERSION_MISMATCH, 0, "Driver/library version mismatch"},
		{NVML_ERROR_IN_USE, 0, "In use by another client"},
		{NVML_ERROR_MEMORY, 0, "Insufficient Memory"},
		{NVML_ERROR_NO_DATA, 0, "No data"},
		{NVML_ERROR_VGPU_ECC_NOT_SUPPORTED, 0, "vGPU ECC not supported"},
		{NVML_ERROR_INSUFFICIENT_RESOURCES, 0, "Insufficient Resources"},
		{NVML_ERROR_FREQ_NOT_SUPPORTED, 0, "Invalid Frequency"},
		{NVML_ERROR_ARGUMENT_VERSION_MISMATCH, 0, "Argument version mismatch"},
		{NVML_ERROR_DEPRECATED, 0, "Requested functionality has been deprecated"},
		{NVML_ERROR_NOT_READY, 0, "System is not in ready state"},
		{NVML_ERROR_GPU_NOT_FOUND, 550, "No supported GPUs were found"},
		{NVML_ERROR_INVALID_STATE, 550, "Resource not in correct state to perform requested operation"},
	};

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); ++i)
		if (texts[i].code == result && driver_major() >= texts[i].since)
			return texts[i].text;
	return "Unknown Error";
}
