/* Any bytes are an array or are refused with the file's name; an array that was read, written and
 * read again is the same. */
#include "data/npy.h"
#include "ir/array.h"
#include "target.h"

#include <sys/stat.h>
#include <unistd.h>

/* Files of this process; where files are memory if there is such a place. */
static char path[64], back[64];

static void remove_files(void) {
  (void)unlink(path);
  (void)unlink(back);
}

static void name_files(void) {
  const char *folder = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
  (void)snprintf(path, sizeof path, "%s/weir-fuzz-%ld.npy", folder, (long)getpid());
  (void)snprintf(back, sizeof back, "%s/weir-fuzz-%ld-back.npy", folder, (long)getpid());
  (void)atexit(remove_files);
}

static void write_file(const uint8_t *data, size_t size) {
  FILE *f = fopen(path, "wb");
  require(f && fwrite(data, 1, size, f) == size && fclose(f) == 0, "cannot write", path);
}

static bool same_shape(const ir_array *a, const ir_array *b) {
  if (a->dtype != b->dtype || a->rank != b->rank) return false;
  for (uint32_t i = 0; i < a->rank; i++)
    if (a->extents[i] != b->extents[i]) return false;
  return true;
}

/* Element by element: orders may differ. */
static bool same(const ir_array *a, const ir_array *b) {
  int64_t n = 0, index[IR_MAX_RANK] = {0};
  if (!same_shape(a, b) || !ir_array_count(a, &n)) return false;
  if (n == 0) return true;
  size_t size = ir_dtype_size_bytes(a->dtype);
  do {
    if (memcmp(ir_array_at(a, index), ir_array_at(b, index), size) != 0) return false;
  } while (ir_array_next(a, index));
  return true;
}

static void check_back(const ir_array *a) {
  const ir_array *arrays[] = {a};
  const char *paths[] = {back};
  ir_array again = {0};
  require(data_npy_save(arrays, paths, 1, &memory_default) == STATUS_OK, "cannot be written",
          status_message());
  require(data_npy_load(back, &memory_default, &again) == STATUS_OK, "cannot be read back",
          status_message());
  require(same(a, &again), "is not the same when it is read back", "");
  memory_free(&memory_default, again.data);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  ir_array a = {0};
  if (!path[0]) name_files();
  write_file(data, size);
  status_clear();
  status st = data_npy_load(path, &memory_default, &a);
  require(st == STATUS_OK || st == STATUS_BAD_INPUT, "neither read nor refused", status_message());
  if (st == STATUS_BAD_INPUT)
    require(strstr(status_message(), path) != NULL, "refused without a name", status_message());
  if (st == STATUS_OK) check_back(&a);
  memory_free(&memory_default, a.data);
  return 0;
}
