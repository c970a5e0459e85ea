/* What the cards are: two RTX 4090s, unless the configuration says otherwise. */
#include "sim.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const unsigned int memory_clocks_mhz[MEMORY_CLOCKS] = {10501, 10251, 5001, 810, 405};

static void read_config(struct text *config)
{
	char path[4096];

	text_read(config, sim_path(path, sizeof(path), "config"));
}

static long number(const struct text *config, int gpu, const char *key, long otherwise)
{
	char name[64];

	snprintf(name, sizeof(name), "gpu%d.%s", gpu, key);
	const char *value = text_get(config, name);
	return value ? strtol(value, NULL, 0) : otherwise;
}

int card_count(void)
{
	struct text config;

	read_config(&config);
	const char *value = text_get(&config, "gpus");
	long count = value ? strtol(value, NULL, 0) : 2;
	text_free(&config);
	return count < 0 ? 0 : count > SIM_MAX_GPUS ? SIM_MAX_GPUS : (int)count;
}

/*
 * A machine's cards keep their UUIDs over reboots and differ from every other machine's, so they follow from the
 * machine's id. A container that is given cards is given the machine's /etc/machine-id as well.
 */
static void machine_id(char *id, size_t size)
{
	const char *given = getenv("SIM_NVML_MACHINE_ID");

	if (given && *given)
		snprintf(id, size, "%s", given);
	else if (!sim_read_line("/etc/machine-id", id, size))
		snprintf(id, size, "unknown");
}

static uint64_t fnv1a(const char *text, uint64_t hash)
{
	for (; *text; ++text)
		hash = (hash ^ (unsigned char)*text) * 1099511628211ULL;
	/* FNV's last characters (here the GPU's index) reach its high bits only after a few more rounds. */
	for (int round = 0; round < 8; ++round)
		hash = (hash ^ (hash >> 29)) * 1099511628211ULL;
	return hash;
}

static void make_uuid(int gpu, char *uuid, size_t size)
{
	char id[128], seed[160];

	machine_id(id, sizeof(id));
	snprintf(seed, sizeof(seed), "%s/gpu%d", id, gpu);
	uint64_t high = fnv1a(seed, 14695981039346656037ULL), low = fnv1a(seed, high);
	snprintf(uuid, size, "GPU-%08x-%04x-%04x-%04x-%012llx", (unsigned)(high >> 32), (unsigned)(high >> 16) & 0xffff,
		 (unsigned)high & 0xffff, (unsigned)(low >> 48), (unsigned long long)(low & 0xffffffffffffULL));
}

void card_read(int gpu, struct card *card)
{
	static const unsigned int buses[SIM_MAX_GPUS] = {0x01, 0x41, 0x81, 0xc1, 0x21, 0x61, 0xa1, 0xe1};
	struct text config;
	char key[32];

	read_config(&config);
	memset(card, 0, sizeof(*card));
	card->gpu = gpu;

	snprintf(key, sizeof(key), "gpu%d.name", gpu);
	const char *name = text_get(&config, key);
	snprintf(card->name, sizeof(card->name), "%s", name ? name : "NVIDIA GeForce RTX 4090");

	snprintf(key, sizeof(key), "gpu%d.uuid", gpu);
	const char *uuid = text_get(&config, key);
	if (uuid)
		snprintf(card->uuid, sizeof(card->uuid), "%s", uuid);
	else
		make_uuid(gpu, card->uuid, sizeof(card->uuid));

	card->bus = (unsigned)number(&config, gpu, "bus", buses[gpu]);
	card->memory_mib = (unsigned)number(&config, gpu, "memory_mib", 24564);
	card->power_min_mw = (unsigned)number(&config, gpu, "power_min_w", 150) * 1000;
	card->power_default_mw = (unsigned)number(&config, gpu, "power_default_w", 450) * 1000;
	card->power_max_mw = (unsigned)number(&config, gpu, "power_max_w", 600) * 1000;
	card->boost_mhz = card_round_clock((unsigned)number(&config, gpu, "boost_mhz", 2520));
	card->lost = number(&config, gpu, "lost", 0) != 0;
	card->lock_held = number(&config, gpu, "lock_held", 1) != 0;
	card->display_active = number(&config, gpu, "display_active", 0) != 0;
	card->reasons = (unsigned long long)number(&config, gpu, "event_reasons", 0);
	card->display_mib = (unsigned)number(&config, gpu, "display_mib", 0);
	text_free(&config);
}

unsigned int card_round_clock(unsigned int mhz)
{
	/* Callers may pass limit ids instead of frequencies (nvmlClockLimitId_t). */
	if (mhz == NVML_CLOCK_LIMIT_ID_TDP)
		return CLOCK_BASE_MHZ;
	if (mhz >= CLOCK_MAX_MHZ)
		return CLOCK_MAX_MHZ;
	if (mhz <= CLOCK_MIN_MHZ)
		return CLOCK_MIN_MHZ;
	return (mhz + CLOCK_STEP_MHZ / 2) / CLOCK_STEP_MHZ * CLOCK_STEP_MHZ;
}

unsigned int card_round_memory_clock(unsigned int mhz)
{
	unsigned int best = memory_clocks_mhz[0];

	for (int i = 0; i < MEMORY_CLOCKS; ++i)
		if (llabs((long long)memory_clocks_mhz[i] - mhz) < llabs((long long)best - mhz))
			best = memory_clocks_mhz[i];
	return best;
}
