/* Where things are. */
#include "sim.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const char *sim_path(char *buffer, size_t size, const char *name)
{
	const char *directory = getenv("SIM_NVML_DIR");

	snprintf(buffer, size, "%s/%s", directory && *directory ? directory : "/run/sim-nvml", name);
	return buffer;
}

const char *sim_machine_path(char *buffer, size_t size, const char *path)
{
	const char *root = getenv("SIM_NVML_ROOT");

	snprintf(buffer, size, "%s%s", root ? root : "", path);
	return buffer;
}

bool sim_read_line(const char *path, char *line, size_t size)
{
	FILE *file = fopen(path, "re");

	if (!file)
		return false;
	bool read = fgets(line, (int)size, file) != NULL;
	fclose(file);
	if (read)
		line[strcspn(line, "\r\n")] = '\0';
	return read;
}

void sim_open_directory(void)
{
	char path[4096];

	/* The real driver's device files are open to every user, whatever the umask was. The sticky bit would not do:
	   with it a user cannot replace a state file that another one wrote. Fails for all but the owner, who did it. */
	(void)!chmod(sim_path(path, sizeof(path), ""), 0777);
}

int sim_open(const char *name, int flags)
{
	char path[4096];
	int fd = open(sim_path(path, sizeof(path), name), flags | O_CLOEXEC);

	if (fd >= 0 || errno != ENOENT || !(flags & (O_WRONLY | O_RDWR)))
		return fd;

	char directory[4096];
	sim_path(directory, sizeof(directory), "");
	mkdir(directory, 0777);
	sim_open_directory();
	fd = open(path, flags | O_CREAT | O_CLOEXEC, 0666);
	if (fd >= 0)
		(void)!fchmod(fd, 0666); /* fails where another user made it a moment ago: then it is done */
	return fd;
}
