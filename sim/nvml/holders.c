/*
 * Processes that compute on the cards. Each has a file `holders/NAME`, what it uses, and a POSIX lock on `holders/NAME.lock`,
 * which the kernel takes back when the process dies, and whose owner it names in the reader's own pid namespace (0 where
 * that cannot see it: a container sees only its own processes, as with the real driver).
 */
#include "sim.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static long number(const struct text *text, int gpu, const char *key)
{
	char name[64];

	snprintf(name, sizeof(name), "gpu%d.%s", gpu, key);
	const char *value = text_get(text, name);
	return value ? strtol(value, NULL, 10) : 0;
}

/*
 * Is this process itself the holder? It must not look at its own lock file then: a process's POSIX locks on a file go with
 * the first descriptor of that file that it closes.
 */
static bool own(const char *path)
{
	const char *holder = getenv("SIM_NVML_HOLDER");
	const char *name = holder ? strrchr(holder, '/') : NULL;

	/* The variable is inherited by children, who are not the holder: names begin with the holder's pid. */
	return name && strtol(name + 1, NULL, 10) == getpid() && strncmp(path, holder, strlen(holder)) == 0;
}

/* True while the file's writer lives; its pid then, 0 where this namespace does not see it. */
static bool held(const char *path, unsigned int *pid)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

	*pid = (unsigned)getpid();
	if (own(path))
		return true;
	*pid = 0;
	int fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return errno != ENOENT; /* a file that cannot be looked at is not taken for a dead one */
	bool alive = fcntl(fd, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
	close(fd);
	*pid = alive && lock.l_pid > 0 ? (unsigned)lock.l_pid : 0;
	return alive;
}

void holders_read(int gpu, struct holders *holders)
{
	char directory[4096], path[sizeof(directory) + NAME_MAX + 2];
	DIR *entries = opendir(sim_path(directory, sizeof(directory), "holders"));
	struct dirent *entry;

	memset(holders, 0, sizeof(*holders));
	while (entries && (entry = readdir(entries))) {
		unsigned int pid;
		struct text text;

		char *suffix = strrchr(entry->d_name, '.');
		if (entry->d_name[0] == '.' || !suffix || strcmp(suffix, ".lock") != 0)
			continue;
		snprintf(path, sizeof(path), "%s/%s", directory, entry->d_name);
		bool alive = held(path, &pid);
		if (!alive)
			unlink(path);
		path[strlen(path) - strlen(".lock")] = '\0';
		if (!alive) {
			unlink(path);
			continue;
		}
		text_read(&text, path);
		unsigned long long bytes = (unsigned long long)number(&text, gpu, "memory_mib") * MIB;
		holders->load += (int)number(&text, gpu, "load");
		text_free(&text);
		holders->bytes += bytes;
		if (bytes && pid && holders->count < (int)(sizeof(holders->process) / sizeof(holders->process[0])))
			holders->process[holders->count++] = (struct process){pid, bytes};
	}
	if (entries)
		closedir(entries);
	if (holders->load > 100)
		holders->load = 100;
}
