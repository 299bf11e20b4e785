/* NumPy's .npy files, versions 1 to 3: C and Fortran order, either byte order.
 *
 * Files are not trusted: a header that lies about its length or shape, data that is too short or too
 * long, and types that Weir does not have end in STATUS_BAD_INPUT and a message that starts with the
 * path. Memory is allocated only for what the header promises, and for a regular file only after its
 * size has been found to agree. */
#ifndef WEIR_DATA_NPY_H
#define WEIR_DATA_NPY_H

#include <stdio.h>

#include "ir/array.h"

/* Reads a file. Fortran order becomes strides. result->data belongs to the caller and comes from
 * `memory`. */
NODISCARD status data_npy_load(const char *path, const allocator *memory, ir_array *result);

/* Writes all arrays or none: each goes to a temporary file beside its target, and only when all of
 * them are complete are they renamed. bf16 is written as f32. A target that is a device or a pipe is
 * written directly. */
NODISCARD status data_npy_save(const ir_array *const *arrays, const char *const *paths, size_t n,
                               const allocator *memory);

/* The same in two steps: files that are complete under temporary names, then renamed. Destroying them
 * (NULL is accepted) removes those without their name. */
typedef struct data_npy_staged data_npy_staged;
NODISCARD status data_npy_stage(const ir_array *const *arrays, const char *const *paths, size_t n,
                                const allocator *memory, data_npy_staged **result);
NODISCARD status data_npy_commit(data_npy_staged *s);
void data_npy_staged_destroy(data_npy_staged *s);

/* ---- headers (npy_header.c) ---- */
typedef struct data_npy_header {
  ir_dtype dtype;
  bool swapped; /* the byte order is not this machine's */
  bool fortran;
  uint32_t rank;
  int64_t extents[IR_MAX_RANK];
} data_npy_header;

/* Parses the dictionary of a header. `path` is for messages. */
NODISCARD status data_npy_parse_header(const char *path, const char *text, size_t length,
                                       data_npy_header *result);

enum { DATA_NPY_HEADER_MAX = 1024 };
/* Writes magic, version 1, and the dictionary for a dense array; returns the length in bytes, a
 * multiple of 64. */
size_t data_npy_format_header(ir_dtype dtype, const int64_t *extents, uint32_t rank,
                              char out[DATA_NPY_HEADER_MAX]);
/* The type a dtype is written as. */
ir_dtype data_npy_stored_dtype(ir_dtype t);

#endif
