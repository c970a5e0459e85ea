/*
 * What the parts of the simulated NVML share.
 *
 * The exported nvml* functions are generated (generate.py): each one is traced, can be made to fail or to
 * hang, and then calls the function of the same name with the prefix impl_, where one is written here.
 */
#ifndef SIM_H
#define SIM_H

/* Nothing but the NVML functions themselves may be visible outside the library. */
#pragma GCC visibility push(default)
#include <nvml.h>
#pragma GCC visibility pop

#include <stdbool.h>
#include <stddef.h>

#define SIM_MAX_GPUS 8
#define MIB (1024ULL * 1024ULL)

/* ---- paths.c ---- */

/* The path of `name` in the directory of the simulated driver, SIM_NVML_DIR or /run/sim-nvml. */
const char *sim_path(char *buffer, size_t size, const char *name);
/* A path of the machine; SIM_NVML_ROOT, which only tests set, stands before it. */
const char *sim_machine_path(char *buffer, size_t size, const char *path);
/* The first line of a file, without its newline; false where it cannot be read. */
bool sim_read_line(const char *path, char *line, size_t size);
/* Opens (makes) a file of the simulated driver that every user may write. -1 and errno on failure. */
int sim_open(const char *name, int flags);
void sim_open_directory(void);

/* ---- text.c: files of `key value` lines ---- */

#define TEXT_MAX_LINES 256

struct text {
	char *bytes; /* the whole file, cut at line ends and after keys; NULL where there is none */
	int lines;
	const char *key[TEXT_MAX_LINES];
	const char *value[TEXT_MAX_LINES]; /* "" where a line has only a key */
};

void text_read(struct text *text, const char *path);
void text_free(struct text *text);
/* The last value of `key`, or NULL. */
const char *text_get(const struct text *text, const char *key);

/* ---- card.c: what the cards are ---- */

struct card {
	int gpu; /* index on the machine */
	char name[NVML_DEVICE_NAME_V2_BUFFER_SIZE];
	char uuid[NVML_DEVICE_UUID_V2_BUFFER_SIZE];
	unsigned int bus;
	unsigned int memory_mib;
	unsigned int power_min_mw, power_default_mw, power_max_mw;
	unsigned int boost_mhz; /* where an unlocked card under load goes */
	bool lost;
	bool lock_held; /* false: Set returns SUCCESS and the clocks do not care */
	bool display_active;
	unsigned long long reasons; /* event reasons that it has under load, whatever the lock and the limit */
	unsigned int display_mib; /* what the display's programs have */
};

#define CLOCK_MIN_MHZ 210U
#define CLOCK_MAX_MHZ 3105U
#define CLOCK_STEP_MHZ 15U
#define CLOCK_BASE_MHZ 2235U
#define MEMORY_CLOCKS 5
extern const unsigned int memory_clocks_mhz[MEMORY_CLOCKS]; /* highest first */

int card_count(void);
void card_read(int gpu, struct card *card);
unsigned int card_round_clock(unsigned int mhz);
unsigned int card_round_memory_clock(unsigned int mhz);

/* ---- state.c: what lasts between calls and processes ---- */

#define UNLOCKED (-1)

/* Everything is a number, so that one list makes the structure, the reader and the writer. */
#define GPU_FIELDS(X)                                                                              \
	X(initialised)      /* 1 while the GPU is initialised                                  */  \
	X(initialisations)  /* how often it was, since the driver was loaded                   */  \
	X(persistence_mode)                                                                        \
	X(power_limit_mw)   /* requested; 0: the card's default                                */  \
	X(gpu_lock_min_mhz) /* UNLOCKED, or on the grid; 0 means no lower bound                */  \
	X(gpu_lock_max_mhz)                                                                        \
	X(memory_lock_min_mhz)                                                                     \
	X(memory_lock_max_mhz)                                                                     \
	X(energy_uj)        /* up to energy_at_ns, a CLOCK_BOOTTIME                            */  \
	X(energy_at_ns)                                                                            \
	X(load)             /* 0..100, set by hand; holders may add to it                      */

struct gpu_state {
#define FIELD(name) long long name;
	GPU_FIELDS(FIELD)
#undef FIELD
};

struct state {
	struct gpu_state gpu[SIM_MAX_GPUS];
	int lock_fd;
};

/* Takes the lock and reads. Every begin needs an end, also where begin failed. */
bool state_begin(struct state *state);
void state_end(struct state *state, bool save);
/* The GPU's initialisation ends: what it kept is gone. */
void state_deinitialise(struct gpu_state *gpu);

/* ---- clients.c: who uses the driver, and what ends with the last one ---- */

nvmlReturn_t client_join(void);
nvmlReturn_t client_leave(void);
bool client_initialised(void);

/* ---- holders.c: processes that compute on the cards ---- */

struct process {
	unsigned int pid;
	unsigned long long bytes;
};

struct holders {
	int count; /* processes this pid namespace can see */
	struct process process[64];
	unsigned long long bytes; /* of all, seen or not */
	int load;                 /* sum, at most 100 */
};

void holders_read(int gpu, struct holders *holders);

/* ---- physics.c: what a card does under its load, lock and limit ---- */

struct reading {
	unsigned int sm_mhz, memory_mhz;
	unsigned int power_mw, power_limit_mw;
	unsigned int temperature_c, fan_percent;
	unsigned int load;
	unsigned long long memory_used; /* bytes, by processes */
	unsigned long long reasons;     /* nvmlClocksEventReason... */
	nvmlPstates_t pstate;
};

void physics_read(const struct card *card, const struct gpu_state *gpu, struct reading *reading);
/* Adds what the card took since the last time. */
void physics_count_energy(const struct card *card, struct gpu_state *gpu);

/* ---- calls.c: what happens around every call ---- */

struct call {
	const char *function;
	char arguments[512];
};

void call_number(struct call *call, const char *name, long long value);
void call_string(struct call *call, const char *name, const char *value);
void call_device(struct call *call, const char *name, nvmlDevice_t device);
/* Hangs or fails where the configuration says so; `device` NULL where the function has none. */
nvmlReturn_t call_begin(struct call *call, bool has_device, nvmlDevice_t device);
nvmlReturn_t call_end(const struct call *call, nvmlReturn_t result);
/* Keeps the trace from filling the memory that it is in. */
void trace_rotate(void);
/* The error that the configuration asks of this function on this GPU (-1: of no GPU in particular). */
nvmlReturn_t call_injected(const char *function, int gpu);

/* ---- devices.c ---- */

/* The machine's index of the GPU behind a handle, -1 for anything else. */
int device_gpu(nvmlDevice_t device);
nvmlReturn_t copy_string(const char *text, char *buffer, unsigned int length);

/* Hidden, so that the linker settles within the library which of them there are. */
#pragma GCC visibility push(hidden)
#include "impl.h" /* generated: impl_ prototypes of all functions */
#pragma GCC visibility pop

#endif
