/* Files of `key value` lines; a line that begins with # is a comment. */
#include "sim.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char blanks[] = " \t\r";

void text_read(struct text *text, const char *path)
{
	struct stat info;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	text->bytes = NULL;
	text->lines = 0;
	if (fd < 0)
		return;
	if (fstat(fd, &info) == 0 && (text->bytes = malloc((size_t)info.st_size + 1))) {
		ssize_t got = read(fd, text->bytes, (size_t)info.st_size);
		text->bytes[got > 0 ? got : 0] = '\0';
	}
	close(fd);

	char *rest = text->bytes, *line;
	while (rest && (line = strsep(&rest, "\n")) && text->lines < TEXT_MAX_LINES) {
		line += strspn(line, blanks);
		if (*line == '\0' || *line == '#')
			continue;
		for (char *end = line + strlen(line); strchr(blanks, end[-1]); --end)
			end[-1] = '\0';
		char *value = line + strcspn(line, blanks);
		if (*value) {
			*value++ = '\0';
			value += strspn(value, blanks);
		}
		text->key[text->lines] = line;
		text->value[text->lines++] = value;
	}
}

void text_free(struct text *text)
{
	free(text->bytes);
	text->bytes = NULL;
	text->lines = 0;
}

const char *text_get(const struct text *text, const char *key)
{
	for (int line = text->lines - 1; line >= 0; --line)
		if (strcmp(text->key[line], key) == 0)
			return text->value[line];
	return NULL;
}
