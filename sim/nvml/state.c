/* The GPUs' state, shared by all processes: a small text file, replaced as a whole, under a lock of its own. */
#include "sim.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

void state_deinitialise(struct gpu_state *gpu)
{
	/* The count goes on, and so does the load: it stands for processes, which are not the driver's to end. */
	struct gpu_state kept = {.initialisations = gpu->initialisations, .load = gpu->load};

	*gpu = kept;
	gpu->gpu_lock_min_mhz = gpu->gpu_lock_max_mhz = UNLOCKED;
	gpu->memory_lock_min_mhz = gpu->memory_lock_max_mhz = UNLOCKED;
}

static void load(struct state *state)
{
	struct text text;
	char path[4096], key[64];

	text_read(&text, sim_path(path, sizeof(path), "state"));
	for (int gpu = 0; gpu < SIM_MAX_GPUS; ++gpu) {
		const char *value;

		memset(&state->gpu[gpu], 0, sizeof(state->gpu[gpu]));
		state_deinitialise(&state->gpu[gpu]);
#define READ(name)                                             \
	snprintf(key, sizeof(key), "gpu%d." #name, gpu);       \
	if ((value = text_get(&text, key)))                    \
		state->gpu[gpu].name = strtoll(value, NULL, 10);
		GPU_FIELDS(READ)
#undef READ
	}
	text_free(&text);
}

static bool save(const struct state *state)
{
	char path[4096], next[4096];
	int count = card_count();

	sim_path(path, sizeof(path), "state");
	sim_path(next, sizeof(next), "state.next"); /* one name is enough: the lock is held */
	unlink(next);				    /* a killed writer's, maybe another user's */
	FILE *file = fopen(next, "we");
	if (!file)
		return false;
	(void)!fchmod(fileno(file), 0666);
	for (int gpu = 0; gpu < count; ++gpu) {
#define WRITE(name) fprintf(file, "gpu%d." #name " %lld\n", gpu, state->gpu[gpu].name);
		GPU_FIELDS(WRITE)
#undef WRITE
	}
	return fclose(file) == 0 && rename(next, path) == 0;
}

bool state_begin(struct state *state)
{
	/* The lock is a file of its own: the state file is replaced, and a lock on it would go with the old one. */
	state->lock_fd = sim_open("state.lock", O_RDWR);
	while (state->lock_fd >= 0 && flock(state->lock_fd, LOCK_EX) != 0)
		if (errno != EINTR) {
			close(state->lock_fd);
			state->lock_fd = -1;
		}
	if (state->lock_fd < 0) {
		char path[4096];

		fprintf(stderr, "simulated NVML: cannot lock %s: %s\n", sim_path(path, sizeof(path), "state.lock"), strerror(errno));
		return false;
	}
	load(state);
	return true;
}

void state_end(struct state *state, bool changed)
{
	if (state->lock_fd < 0)
		return;
	if (changed && !save(state)) {
		char path[4096];

		fprintf(stderr, "simulated NVML: cannot write %s: %s\n", sim_path(path, sizeof(path), "state"), strerror(errno));
	}
	close(state->lock_fd);
}
