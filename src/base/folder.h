/* The user's cache folder, and the files in it.
 *
 * A folder or file that another user could have written is not used. No failure is an error: what is not
 * found is made again. */
#ifndef WEIR_BASE_FOLDER_H
#define WEIR_BASE_FOLDER_H

#include <stdbool.h>
#include <stddef.h>

/* Opens the folder, which is created if it is missing: a file descriptor, or -1. `path` NULL: the default,
 * $XDG_CACHE_HOME/weir or ~/.cache/weir; "": no folder. */
int folder_open(const char *path);
/* The default path; false: the environment names none. */
bool folder_default(char *path, size_t size);

/* Opens a file for reading; *size_bytes is its length. -1: there is no file that can be used. */
int folder_open_file(int folder, const char *name, size_t *size_bytes);
/* All of the bytes, or false. */
bool folder_read(int fd, void *to, size_t size_bytes);
bool folder_write(int fd, const void *from, size_t size_bytes);
/* A new file with these bytes; false: it could not be written, or is there already. */
bool folder_create_file(int folder, const char *name, const void *bytes, size_t size_bytes);

#endif
