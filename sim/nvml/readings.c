/* What changes by itself: clocks, power, temperature, memory, processes. */
#include "sim.h"

#include <string.h>
#include <time.h>

/* Every reading is of one moment: the state and the card are read together. */
static bool read_now(nvmlDevice_t device, struct card *card, struct state *state, struct reading *reading)
{
	int gpu = device_gpu(device);

	card_read(gpu, card);
	bool locked = state_begin(state);
	if (locked)
		physics_read(card, &state->gpu[gpu], reading);
	state_end(state, false);
	return locked;
}

#define READ(pointer, expression)                                     \
	do {                                                          \
		struct card card;                                     \
		struct state state;                                   \
		struct reading now;                                   \
		if (!(pointer))                                       \
			return NVML_ERROR_INVALID_ARGUMENT;           \
		if (!read_now(device, &card, &state, &now))           \
			return NVML_ERROR_OPERATING_SYSTEM;           \
		*(pointer) = (expression);                            \
		return NVML_SUCCESS;                                  \
	} while (0)

/* ---- Clocks ---- */

nvmlReturn_t impl_nvmlDeviceGetClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned int *mhz)
{
	if (type >= NVML_CLOCK_COUNT)
		return NVML_ERROR_INVALID_ARGUMENT;
	READ(mhz, type == NVML_CLOCK_MEM     ? now.memory_mhz
		  : type == NVML_CLOCK_VIDEO ? now.sm_mhz * 4 / 5 / CLOCK_STEP_MHZ * CLOCK_STEP_MHZ
					     : now.sm_mhz);
}

nvmlReturn_t impl_nvmlDeviceGetClock(nvmlDevice_t device, nvmlClockType_t type, nvmlClockId_t id, unsigned int *mhz)
{
	if (id >= NVML_CLOCK_ID_COUNT)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (id != NVML_CLOCK_ID_CURRENT)
		return NVML_ERROR_NOT_SUPPORTED; /* application clocks and customer boost: not on GeForce */
	return impl_nvmlDeviceGetClockInfo(device, type, mhz);
}

nvmlReturn_t impl_nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned int *mhz)
{
	(void)device;
	if (!mhz || type >= NVML_CLOCK_COUNT)
		return NVML_ERROR_INVALID_ARGUMENT;
	*mhz = type == NVML_CLOCK_MEM ? memory_clocks_mhz[0] : type == NVML_CLOCK_VIDEO ? 2415 : CLOCK_MAX_MHZ;
	return NVML_SUCCESS;
}

/* NVML's way with lists: `count` comes in as the room there is, and goes out as what is needed. */
static nvmlReturn_t give_list(unsigned int needed, unsigned int *count, const void *list)
{
	unsigned int room = *count;

	*count = needed;
	return room < needed || (needed && !list) ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

nvmlReturn_t impl_nvmlDeviceGetSupportedMemoryClocks(nvmlDevice_t device, unsigned int *count, unsigned int *mhz)
{
	(void)device;
	if (!count)
		return NVML_ERROR_INVALID_ARGUMENT;
	nvmlReturn_t result = give_list(MEMORY_CLOCKS, count, mhz);
	if (result == NVML_SUCCESS)
		memcpy(mhz, memory_clocks_mhz, sizeof(memory_clocks_mhz));
	return result;
}

nvmlReturn_t impl_nvmlDeviceGetSupportedGraphicsClocks(nvmlDevice_t device, unsigned int memory_mhz, unsigned int *count, unsigned int *mhz)
{
	(void)device;
	if (!count)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (card_round_memory_clock(memory_mhz) != memory_mhz)
		return NVML_ERROR_NOT_FOUND;
	/* At the lowest memory clock the core stays low as well. */
	unsigned int highest = memory_mhz == 405 ? 420 : CLOCK_MAX_MHZ;
	nvmlReturn_t result = give_list((highest - CLOCK_MIN_MHZ) / CLOCK_STEP_MHZ + 1, count, mhz);
	for (unsigned int i = 0; result == NVML_SUCCESS && i < *count; ++i)
		mhz[i] = highest - i * CLOCK_STEP_MHZ;
	return result;
}

nvmlReturn_t impl_nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t device, unsigned long long *reasons)
{
	READ(reasons, now.reasons);
}

nvmlReturn_t impl_nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t device, unsigned long long *reasons)
{
	return impl_nvmlDeviceGetCurrentClocksEventReasons(device, reasons);
}

nvmlReturn_t impl_nvmlDeviceGetSupportedClocksEventReasons(nvmlDevice_t device, unsigned long long *reasons)
{
	(void)device;
	if (!reasons)
		return NVML_ERROR_INVALID_ARGUMENT;
	*reasons = nvmlClocksEventReasonGpuIdle | nvmlClocksEventReasonApplicationsClocksSetting | nvmlClocksEventReasonSwPowerCap |
		   nvmlClocksThrottleReasonHwSlowdown | nvmlClocksEventReasonSyncBoost | nvmlClocksEventReasonSwThermalSlowdown |
		   nvmlClocksThrottleReasonHwThermalSlowdown | nvmlClocksThrottleReasonHwPowerBrakeSlowdown |
		   nvmlClocksEventReasonDisplayClockSetting | nvmlClocksEventReasonBoardLimit | nvmlClocksEventReasonReliability;
	return NVML_SUCCESS;
}

nvmlReturn_t impl_nvmlDeviceGetSupportedClocksThrottleReasons(nvmlDevice_t device, unsigned long long *reasons)
{
	return impl_nvmlDeviceGetSupportedClocksEventReasons(device, reasons);
}

nvmlReturn_t impl_nvmlDeviceGetPerformanceState(nvmlDevice_t device, nvmlPstates_t *pstate)
{
	READ(pstate, now.pstate);
}

nvmlReturn_t impl_nvmlDeviceGetPowerState(nvmlDevice_t device, nvmlPstates_t *pstate)
{
	return impl_nvmlDeviceGetPerformanceState(device, pstate);
}

nvmlReturn_t impl_nvmlDeviceGetCurrPcieLinkGeneration(nvmlDevice_t device, unsigned int *generation)
{
	READ(generation, now.load ? 4 : 1); /* the link rests when the card does */
}

/* ---- Power and temperature ---- */

nvmlReturn_t impl_nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned int *mw)
{
	READ(mw, now.power_mw);
}

nvmlReturn_t impl_nvmlDeviceGetPowerManagementMode(nvmlDevice_t device, nvmlEnableState_t *mode)
{
	READ(mode, NVML_FEATURE_ENABLED);
}

nvmlReturn_t impl_nvmlDeviceGetPowerManagementLimit(nvmlDevice_t device, unsigned int *mw)
{
	READ(mw, now.power_limit_mw);
}

nvmlReturn_t impl_nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t device, unsigned int *mw)
{
	READ(mw, now.power_limit_mw);
}

nvmlReturn_t impl_nvmlDeviceGetPowerManagementDefaultLimit(nvmlDevice_t device, unsigned int *mw)
{
	READ(mw, card.power_default_mw);
}

nvmlReturn_t impl_nvmlDeviceGetPowerManagementLimitConstraints(nvmlDevice_t device, unsigned int *low, unsigned int *high)
{
	struct card card;

	if (!low || !high)
		return NVML_ERROR_INVALID_ARGUMENT;
	card_read(device_gpu(device), &card);
	*low = card.power_min_mw;
	*high = card.power_max_mw;
	return NVML_SUCCESS;
}

nvmlReturn_t impl_nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t device, unsigned long long *mj)
{
	int gpu = device_gpu(device);
	struct card card;
	struct state state;

	if (!mj)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (!state_begin(&state)) {
		state_end(&state, false);
		return NVML_ERROR_OPERATING_SYSTEM;
	}
	card_read(gpu, &card);
	physics_count_energy(&card, &state.gpu[gpu]);
	*mj = (unsigned long long)state.gpu[gpu].energy_uj / 1000;
	state_end(&state, true);
	return NVML_SUCCESS;
}

nvmlReturn_t impl_nvmlDeviceGetTemperature(nvmlDevice_t device, nvmlTemperatureSensors_t sensor, unsigned int *celsius)
{
	if (sensor != NVML_TEMPERATURE_GPU)
		return NVML_ERROR_INVALID_ARGUMENT;
	READ(celsius, now.temperature_c);
}

nvmlReturn_t impl_nvmlDeviceGetTemperatureV(nvmlDevice_t device, nvmlTemperature_t *temperature)
{
	if (!temperature || temperature->sensorType != NVML_TEMPERATURE_GPU)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (temperature->version != nvmlTemperature_v1)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	READ(&temperature->temperature, (int)now.temperature_c);
}

nvmlReturn_t impl_nvmlDeviceGetNumFans(nvmlDevice_t device, unsigned int *fans)
{
	READ(fans, 2);
}

nvmlReturn_t impl_nvmlDeviceGetFanSpeed(nvmlDevice_t device, unsigned int *percent)
{
	READ(percent, now.fan_percent);
}

nvmlReturn_t impl_nvmlDeviceGetFanSpeed_v2(nvmlDevice_t device, unsigned int fan, unsigned int *percent)
{
	return fan < 2 ? impl_nvmlDeviceGetFanSpeed(device, percent) : NVML_ERROR_INVALID_ARGUMENT;
}

/* ---- Use ---- */

nvmlReturn_t impl_nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *utilization)
{
	READ(utilization, ((nvmlUtilization_t){.gpu = now.load, .memory = now.load * 3 / 5}));
}

static nvmlReturn_t unused_engine(unsigned int *utilization, unsigned int *period_us)
{
	if (!utilization || !period_us)
		return NVML_ERROR_INVALID_ARGUMENT;
	*utilization = 0;
	*period_us = 167000;
	return NVML_SUCCESS;
}

nvmlReturn_t impl_nvmlDeviceGetEncoderUtilization(nvmlDevice_t device, unsigned int *utilization, unsigned int *period_us)
{
	(void)device;
	return unused_engine(utilization, period_us);
}

nvmlReturn_t impl_nvmlDeviceGetDecoderUtilization(nvmlDevice_t device, unsigned int *utilization, unsigned int *period_us)
{
	(void)device;
	return unused_engine(utilization, period_us);
}

nvmlReturn_t impl_nvmlDeviceGetPcieThroughput(nvmlDevice_t device, nvmlPcieUtilCounter_t counter, unsigned int *kb_per_s)
{
	if (counter >= NVML_PCIE_UTIL_COUNT)
		return NVML_ERROR_INVALID_ARGUMENT;
	READ(kb_per_s, now.load * 10000);
}

/* Each process's share cannot be told apart here: the list is empty, as on a card where nothing was sampled. */
nvmlReturn_t impl_nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t *samples, unsigned int *count,
						  unsigned long long since)
{
	(void)device;
	(void)samples;
	(void)since;
	if (!count)
		return NVML_ERROR_INVALID_ARGUMENT;
	*count = 0;
	return NVML_ERROR_NOT_FOUND;
}

/* The driver keeps some memory to itself; version 1 counts it as used, version 2 apart. */
#define RESERVED_BYTES (395 * MIB)

nvmlReturn_t impl_nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
	struct card card;
	struct state state;
	struct reading now;

	if (!memory)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (memory->version != nvmlMemory_v2)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	if (!read_now(device, &card, &state, &now))
		return NVML_ERROR_OPERATING_SYSTEM;
	memory->total = card.memory_mib * MIB;
	memory->reserved = RESERVED_BYTES;
	unsigned long long usable = memory->total - memory->reserved;
	memory->used = now.memory_used < usable ? now.memory_used : usable;
	memory->free = usable - memory->used;
	return NVML_SUCCESS;
}

nvmlReturn_t impl_nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
	nvmlMemory_v2_t full = {.version = nvmlMemory_v2};

	if (!memory)
		return NVML_ERROR_INVALID_ARGUMENT;
	nvmlReturn_t result = impl_nvmlDeviceGetMemoryInfo_v2(device, &full);
	*memory = (nvmlMemory_t){.total = full.total, .free = full.free, .used = full.used + full.reserved};
	return result;
}

nvmlReturn_t impl_nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t *memory)
{
	(void)device;
	if (!memory)
		return NVML_ERROR_INVALID_ARGUMENT;
	*memory = (nvmlBAR1Memory_t){.bar1Total = 32768 * MIB, .bar1Used = MIB, .bar1Free = 32767 * MIB};
	return NVML_SUCCESS;
}

/* ---- Processes ---- */

#define NO_INSTANCE 0xFFFFFFFFU /* what NVML says of instance ids without MIG */

nvmlReturn_t impl_nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *infos)
{
	struct holders holders;

	if (!count)
		return NVML_ERROR_INVALID_ARGUMENT;
	holders_read(device_gpu(device), &holders);
	nvmlReturn_t result = give_list((unsigned)holders.count, count, infos);
	for (int i = 0; result == NVML_SUCCESS && i < holders.count; ++i)
		infos[i] = (nvmlProcessInfo_t){holders.process[i].pid, holders.process[i].bytes, NO_INSTANCE, NO_INSTANCE};
	return result;
}

nvmlReturn_t impl_nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_v2_t *infos)
{
	return impl_nvmlDeviceGetComputeRunningProcesses_v3(device, count, infos);
}

nvmlReturn_t impl_nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_v1_t *infos)
{
	struct holders holders;

	if (!count)
		return NVML_ERROR_INVALID_ARGUMENT;
	holders_read(device_gpu(device), &holders);
	nvmlReturn_t result = give_list((unsigned)holders.count, count, infos);
	for (int i = 0; result == NVML_SUCCESS && i < holders.count; ++i)
		infos[i] = (nvmlProcessInfo_v1_t){holders.process[i].pid, holders.process[i].bytes};
	return result;
}

static nvmlReturn_t no_processes(unsigned int *count)
{
	if (!count)
		return NVML_ERROR_INVALID_ARGUMENT;
	*count = 0;
	return NVML_SUCCESS;
}

/* Nothing draws on these cards, and nothing goes through MPS. */
#define NO_PROCESSES(function, type)                                                              \
	nvmlReturn_t impl_##function(nvmlDevice_t device, unsigned int *count, type *infos)       \
	{                                                                                         \
		(void)device;                                                                     \
		(void)infos;                                                                      \
		return no_processes(count);                                                       \
	}

NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses, nvmlProcessInfo_v1_t)
NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v2, nvmlProcessInfo_v2_t)
NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3, nvmlProcessInfo_t)
NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses, nvmlProcessInfo_v1_t)
NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v2, nvmlProcessInfo_v2_t)
NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v3, nvmlProcessInfo_t)

/* ---- Field values ---- */

static nvmlReturn_t read_field(nvmlDevice_t device, nvmlFieldValue_t *field)
{
	unsigned int other;

	field->valueType = NVML_VALUE_TYPE_UNSIGNED_INT;
	field->value.ullVal = 0;
	/* Power and energy of the card's module or of its memory alone: GeForce cards do not tell them. */
	if (field->scopeId != NVML_POWER_SCOPE_GPU)
		return NVML_ERROR_NOT_SUPPORTED;
	switch (field->fieldId) {
	case NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION:
	case NVML_FI_DEV_ENERGY:
		field->valueType = NVML_VALUE_TYPE_UNSIGNED_LONG_LONG;
		return impl_nvmlDeviceGetTotalEnergyConsumption(device, &field->value.ullVal);
	case NVML_FI_DEV_POWER_AVERAGE:
	case NVML_FI_DEV_POWER_INSTANT:
		return impl_nvmlDeviceGetPowerUsage(device, &field->value.uiVal);
	case NVML_FI_DEV_POWER_MIN_LIMIT:
		return impl_nvmlDeviceGetPowerManagementLimitConstraints(device, &field->value.uiVal, &other);
	case NVML_FI_DEV_POWER_MAX_LIMIT:
		return impl_nvmlDeviceGetPowerManagementLimitConstraints(device, &other, &field->value.uiVal);
	case NVML_FI_DEV_POWER_DEFAULT_LIMIT:
		return impl_nvmlDeviceGetPowerManagementDefaultLimit(device, &field->value.uiVal);
	case NVML_FI_DEV_POWER_CURRENT_LIMIT:
		return impl_nvmlDeviceGetEnforcedPowerLimit(device, &field->value.uiVal);
	case NVML_FI_DEV_POWER_REQUESTED_LIMIT:
		return impl_nvmlDeviceGetPowerManagementLimit(device, &field->value.uiVal);
	default:
		return NVML_ERROR_NOT_SUPPORTED;
	}
}

nvmlReturn_t impl_nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *values)
{
	struct timespec now;

	if (!values || count < 1)
		return NVML_ERROR_INVALID_ARGUMENT;
	clock_gettime(CLOCK_REALTIME, &now);
	for (int i = 0; i < count; ++i) {
		values[i].timestamp = now.tv_sec * 1000000LL + now.tv_nsec / 1000;
		values[i].latencyUsec = 0;
		values[i].nvmlReturn = read_field(device, &values[i]); /* each field has its own result; the call succeeds */
	}
	return NVML_SUCCESS;
}
