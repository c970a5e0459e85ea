/* What happens around every call: the trace, and the faults that the configuration asks for. */
#include "sim.h"

#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static void add(struct call *call, const char *format, ...)
{
	size_t used = strlen(call->arguments);
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(call->arguments + used, sizeof(call->arguments) - used, format, arguments);
	va_end(arguments);
}

void call_number(struct call *call, const char *name, long long value)
{
	add(call, " %s=%lld", name, value);
}

void call_string(struct call *call, const char *name, const char *value)
{
	add(call, " %s=%s", name, value ? value : "NULL");
}

void call_device(struct call *call, const char *name, nvmlDevice_t device)
{
	int gpu = device_gpu(device);

	if (gpu < 0)
		add(call, " %s=invalid", name);
	else
		add(call, " gpu=%d", gpu);
}

static void trace(const struct call *call, const char *result)
{
	char line[1024];
	struct timespec now;
	int fd = sim_open("trace", O_WRONLY | O_APPEND);

	if (fd < 0)
		return; /* a trace that cannot be written must not change what the caller sees */
	clock_gettime(CLOCK_REALTIME, &now);
	int length = snprintf(line, sizeof(line), "%lld.%06ld %d %s%s -> %s\n", (long long)now.tv_sec, now.tv_nsec / 1000, (int)getpid(),
			      call->function, call->arguments, result);
	(void)!write(fd, line, (size_t)length); /* one write, so that lines of several processes do not mix */
	close(fd);
}

#define TRACE_BYTES (8 * MIB)

void trace_rotate(void)
{
	char path[4096], old[4096];
	struct stat info;

	if (stat(sim_path(path, sizeof(path), "trace"), &info) == 0 && (unsigned long long)info.st_size > TRACE_BYTES)
		rename(path, sim_path(old, sizeof(old), "trace.1"));
}

static bool is_init(const char *function)
{
	return strncmp(function, "nvmlInit", 8) == 0;
}

/* `error.nvmlInit_v2`, `error.gpu1.nvmlDeviceSet*`: does this line speak of this function on this GPU? */
static bool speaks_of(const char *key, const char *kind, const char *function, int gpu)
{
	size_t length = strlen(kind);
	int named;

	if (strncmp(key, kind, length) != 0 || key[length] != '.')
		return false;
	key += length + 1;
	if (sscanf(key, "gpu%d.", &named) == 1) {
		if (named != gpu)
			return false;
		key = strchr(key, '.') + 1;
	}
	/* A function's versions are one function to its users: nvmlInit speaks of nvmlInit_v2 and nvmlInitWithFlags too. */
	char plain[128];
	snprintf(plain, sizeof(plain), "%s", is_init(function) ? "nvmlInit" : function);
	char *version = strstr(plain, "_v");
	if (version)
		*version = '\0';
	return fnmatch(key, function, 0) == 0 || fnmatch(key, plain, 0) == 0;
}

/* The value of the last line of that kind that speaks of the function; false where none does. */
static bool configured(const char *kind, const char *function, int gpu, double *value)
{
	struct text config;
	char path[4096];
	bool found = false;

	text_read(&config, sim_path(path, sizeof(path), "config"));
	for (int line = 0; line < config.lines; ++line)
		if (speaks_of(config.key[line], kind, function, gpu)) {
			*value = strtod(config.value[line], NULL);
			found = true;
		}
	text_free(&config);
	return found;
}

nvmlReturn_t call_injected(const char *function, int gpu)
{
	double value;

	return configured("error", function, gpu, &value) ? (nvmlReturn_t)value : NVML_SUCCESS;
}

nvmlReturn_t call_begin(struct call *call, bool has_device, nvmlDevice_t device)
{
	int gpu = has_device ? device_gpu(device) : -1;
	double seconds;

	if (configured("hang", call->function, gpu, &seconds)) {
		struct timespec left = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};

		trace(call, "hangs");
		/* A call that hangs in the kernel does not come back for a signal: only kill ends it. */
		while (nanosleep(&left, &left) != 0 && errno == EINTR)
			;
	}
	if (!is_init(call->function) && !client_initialised())
		return NVML_ERROR_UNINITIALIZED;
	if (has_device) {
		struct card card;

		if (gpu < 0)
			return NVML_ERROR_INVALID_ARGUMENT;
		card_read(gpu, &card);
		if (card.lost)
			return NVML_ERROR_GPU_IS_LOST;
	}
	return call_injected(call->function, gpu);
}

nvmlReturn_t call_end(const struct call *call, nvmlReturn_t result)
{
	char text[16];

	snprintf(text, sizeof(text), "%d", (int)result);
	trace(call, text);
	return result;
}
