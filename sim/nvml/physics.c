/*
 * What a card does: an outline to test against, not a measurement. From the field report (August 2026, two RTX 4090s):
 * unlocked cards boost to about 2500 MHz in spikes of 450 W; at a lock of 2100 MHz a prefill peaks at 250 W. 2520 MHz is
 * the boost clock that NVIDIA states for an RTX 4090. The rest is assumed: that the spikes are the power of full load,
 * 20 W for an idle card, and 3.5, the exponent that leads through the two points.
 */
#include "sim.h"

#include <math.h>
#include <time.h>

#define IDLE_MW 20000.0
#define FULL_MW 430000.0 /* above idle, at FULL_MHZ under full load: 450 W in all */
#define FULL_MHZ 2520.0
#define IDLE_MEMORY_MHZ 405U
#define LOADED_MEMORY_MHZ 10251U /* GeForce cards compute in P2, one step below their highest memory clock */

static double power_at(unsigned int mhz, unsigned int load)
{
	/* Dynamic power goes with frequency times voltage squared, and voltage rises with frequency. */
	return IDLE_MW + FULL_MW * pow(mhz / FULL_MHZ, 3.5) * load / 100.0;
}

static unsigned int clamp(unsigned int value, long long low, long long high)
{
	if (high != UNLOCKED && value > high)
		value = (unsigned int)high;
	return low != UNLOCKED && value < low ? (unsigned int)low : value;
}

void physics_read(const struct card *card, const struct gpu_state *gpu, struct reading *reading)
{
	struct holders holders;
	long long low = card->lock_held ? gpu->gpu_lock_min_mhz : UNLOCKED;
	long long high = card->lock_held ? gpu->gpu_lock_max_mhz : UNLOCKED;

	holders_read(card->gpu, &holders);
	unsigned int load = (unsigned)(gpu->load > holders.load ? gpu->load : holders.load);
	unsigned int limit = gpu->power_limit_mw ? (unsigned)gpu->power_limit_mw : card->power_default_mw;
	unsigned int wish = load ? card->boost_mhz : CLOCK_MIN_MHZ;
	unsigned int mhz = clamp(wish, low, high);

	reading->reasons = load ? 0 : nvmlClocksEventReasonGpuIdle;
	if (load && power_at(mhz, load) > limit) {
		/* The limiter goes below a lock's lower bound too: the limit protects, the lock asks. */
		while (mhz > CLOCK_MIN_MHZ && power_at(mhz, load) > limit)
			mhz -= CLOCK_STEP_MHZ;
		reading->reasons |= nvmlClocksEventReasonSwPowerCap;
	}
	if (load)
		reading->reasons |= card->reasons;
	reading->load = load;
	reading->sm_mhz = mhz;
	reading->memory_mhz = clamp(load ? LOADED_MEMORY_MHZ : IDLE_MEMORY_MHZ, gpu->memory_lock_min_mhz, gpu->memory_lock_max_mhz);
	reading->power_limit_mw = limit;
	/* A card that idles at a high lower bound takes a little more. */
	reading->power_mw = (unsigned)(load ? power_at(mhz, load) : IDLE_MW + (mhz - CLOCK_MIN_MHZ) * 10.0);
	reading->temperature_c = 33 + reading->power_mw / 11000;
	reading->fan_percent = reading->power_mw > 60000 ? 30 + reading->power_mw / 11000 : 0; /* fans stand still when idle */
	reading->memory_used = holders.bytes + card->display_mib * MIB;
	reading->pstate = load ? NVML_PSTATE_2 : NVML_PSTATE_8;
}

void physics_count_energy(const struct card *card, struct gpu_state *gpu)
{
	struct timespec time;
	struct reading reading;

	clock_gettime(CLOCK_BOOTTIME, &time);
	long long now = time.tv_sec * 1000000000LL + time.tv_nsec;
	if (gpu->energy_at_ns && now > gpu->energy_at_ns) {
		physics_read(card, gpu, &reading);
		gpu->energy_uj += (long long)((double)(now - gpu->energy_at_ns) * reading.power_mw / 1e6);
	}
	gpu->energy_at_ns = now;
}
