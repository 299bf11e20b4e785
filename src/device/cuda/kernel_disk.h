/* Compiled programs on disk, so that the next process need not compile them again.
 *
 * There is one file per program, in a folder that only its user can write. The files are machine code that
 * will run, so a folder or file that another user could have written is not used. A program may have been
 * made of several texts: its file then has a name for each of them (hard links, or copies if these are not
 * possible). A file contains the texts it was made of and a checksum: a file that does not match, or is
 * damaged, counts as missing and is written again. Files are renamed when they are complete, so any number
 * of processes may read and write at the same time. Nothing here is an error: without a cache, programs are
 * compiled. */
#ifndef WEIR_DEVICE_CUDA_KERNEL_DISK_H
#define WEIR_DEVICE_CUDA_KERNEL_DISK_H

#include "base/memory.h"

typedef struct cuda_disk {
  int folder; /* a file descriptor; -1: there is none */
} cuda_disk;

/* A text, and what it is compiled for. */
typedef struct cuda_disk_key {
  const char *source; /* ends in NUL */
  size_t source_bytes;
  const char *target; /* "sm_90a-nvrtc-13.0-2", fit for a file's name */
} cuda_disk_key;

/* A program with its texts, each of which ends in NUL. */
typedef struct cuda_disk_program {
  const void *image; /* if the program was read, also the start of its block, for memory_free() */
  size_t image_bytes;
  const char *texts;
  size_t texts_bytes;
} cuda_disk_program;

/* folder: as in cuda_programs_options. */
void cuda_disk_open(cuda_disk *disk, const char *folder);
void cuda_disk_close(cuda_disk *disk);

/* The program that has the text, allocated from `memory`; false: there is none. */
bool cuda_disk_read(const cuda_disk *disk, const cuda_disk_key *key, const allocator *memory,
                    cuda_disk_program *program);
void cuda_disk_write(const cuda_disk *disk, const char *target, const cuda_disk_program *program);

#endif
