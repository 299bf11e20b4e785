/* The folder where one user's things are kept between processes, and files in it.
 *
 * What another user could have written is not used: neither a folder nor a file. Nothing here is an error:
 * without the folder, things are made again. */
#ifndef WEIR_BASE_FOLDER_H
#define WEIR_BASE_FOLDER_H

#include <stdbool.h>
#include <stddef.h>

/* A file descriptor, or -1: there is none. The path is made where it is missing; NULL:
 * $XDG_CACHE_HOME/weir, or ~/.cache/weir; "": none. */
int folder_open(const char *path);
/* The default path; false: the environment names none. */
bool folder_default(char *path, size_t size);

/* A file of that name, to be read, and how long it is; -1: there is none that can be used. */
int folder_open_file(int folder, const char *name, size_t *size_bytes);
/* All of the bytes, or false. */
bool folder_read(int fd, void *to, size_t size_bytes);
bool folder_write(int fd, const void *from, size_t size_bytes);
/* A new file with these bytes; false: it could not be written, or is there already. */
bool folder_create_file(int folder, const char *name, const void *bytes, size_t size_bytes);

#endif
