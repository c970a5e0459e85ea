/*
 * Processes that compute on the cards. Each has a file `holders/NAME`, what it uses, and a POSIX lock on `holders/NAME.lock`,
 * which the kernel takes back when the process dies, and whose owner it names in the reader's own pid namespace (0 where
 * that cannot see it: a container sees only its own processes, as with the real driver).
 */
#include "sim.h"

#include <dirent.h>
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

/* True while the file's writer lives; its pid then, 0 where this namespace does not see it. */
static bool held(const char *path, unsigned int *pid)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	int fd = open(path, O_RDWR | O_CLOEXEC);

	if (fd < 0)
		return false;
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
