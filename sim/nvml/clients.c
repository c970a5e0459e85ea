/*
 * Who uses the driver. A client holds a shared lock on the file `clients`, which the kernel takes back from a killed
 * one; whoever could have it alone knows that nobody else is there. With persistence mode off the last client's
 * leaving ends the GPU's initialisation, and with it its locks, its power limit and its energy counter.
 */
#include "sim.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int references;
static int clients_fd = -1;
static pid_t owner;

static nvmlReturn_t check_driver(void)
{
	char path[4096], version[64];

	if (!sim_read_line(sim_machine_path(path, sizeof(path), "/sys/module/nvidia/version"), version, sizeof(version)))
		return NVML_ERROR_DRIVER_NOT_LOADED;
	return strcmp(version, SIM_DRIVER_VERSION) == 0 ? NVML_SUCCESS : NVML_ERROR_LIB_RM_VERSION_MISMATCH;
}

/* Under the state's lock: ends the initialisations that nobody keeps, as when the last client left. */
static void settle(struct state *state)
{
	int fd = sim_open("clients", O_RDWR);

	if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) != 0) {
		if (fd >= 0)
			close(fd);
		return;
	}
	for (int gpu = 0; gpu < SIM_MAX_GPUS; ++gpu)
		if (!state->gpu[gpu].persistence_mode)
			state_deinitialise(&state->gpu[gpu]);
	close(fd);
}

static nvmlReturn_t first_join(void)
{
	struct state state;
	nvmlReturn_t result = check_driver();

	if (result != NVML_SUCCESS)
		return result;
	if (!state_begin(&state)) {
		state_end(&state, false);
		return NVML_ERROR_OPERATING_SYSTEM;
	}
	sim_open_directory();
	trace_rotate();
	settle(&state);
	clients_fd = sim_open("clients", O_RDWR);
	if (clients_fd < 0 || flock(clients_fd, LOCK_SH) != 0) {
		state_end(&state, false);
		return NVML_ERROR_OPERATING_SYSTEM;
	}
	int count = card_count();
	for (int i = 0; i < count; ++i) {
		struct gpu_state *gpu = &state.gpu[i];
		struct card card;

		card_read(i, &card);
		if (!gpu->initialised)
			gpu->initialisations++;
		gpu->initialised = 1;
		physics_count_energy(&card, gpu);
	}
	state_end(&state, true);
	return NVML_SUCCESS;
}

nvmlReturn_t client_join(void)
{
	nvmlReturn_t result = NVML_SUCCESS;

	pthread_mutex_lock(&mutex);
	if (owner != getpid() && references) {
		/* A forked child has its parent's memory: it is no client until it joins itself. */
		close(clients_fd);
		references = 0;
	}
	if (references == 0)
		result = first_join();
	if (result == NVML_SUCCESS) {
		references++;
		owner = getpid();
	}
	pthread_mutex_unlock(&mutex);
	return result;
}

nvmlReturn_t client_leave(void)
{
	struct state state;

	pthread_mutex_lock(&mutex);
	if (references > 0 && --references == 0) {
		bool locked = state_begin(&state);
		close(clients_fd);
		clients_fd = -1;
		if (locked)
			settle(&state);
		state_end(&state, locked);
	}
	pthread_mutex_unlock(&mutex);
	return NVML_SUCCESS;
}

bool client_initialised(void)
{
	pthread_mutex_lock(&mutex);
	bool initialised = references > 0;
	pthread_mutex_unlock(&mutex);
	return initialised;
}
