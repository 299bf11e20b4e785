/* Compiled programs on disk; see kernel_disk.h. */
#include "device/cuda/kernel_disk.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/folder.h"
#include "base/table.h"

/* ---- the folder ---- */
void cuda_disk_open(cuda_disk *disk, const char *folder) { disk->folder = folder_open(folder); }

void cuda_disk_close(cuda_disk *disk) {
  if (disk->folder >= 0) (void)close(disk->folder);
  disk->folder = -1;
}

/* ---- files ---- */
/* The beginning of a file. The program follows, which is then aligned, and then the texts. */
typedef struct head {
  char magic[8];
  uint64_t image_bytes, texts_bytes, checksum;
} head;

static const char magic[8] = {'w', 'e', 'i', 'r', 'g', 'p', 'u', '2'};
enum { MAX_NAME = 128 };

static void name_of(const cuda_disk_key *key, char name[MAX_NAME]) {
  uint64_t hash = hash_bytes(key->source, key->source_bytes);
  (void)snprintf(name, MAX_NAME, "%016llx-%.64s.cubin", (unsigned long long)hash, key->target);
}

static uint64_t checksum(const cuda_disk_program *p) {
  return hash_mix(hash_bytes(p->texts, p->texts_bytes), hash_bytes(p->image, p->image_bytes));
}

static bool fits(const head *h, uint64_t size) {
  return memcmp(h->magic, magic, sizeof magic) == 0 && size > sizeof *h && h->image_bytes > 0 &&
         h->image_bytes < size && h->texts_bytes == size - sizeof *h - h->image_bytes;
}

/* Has the program this text? The last text must end in NUL. */
static bool has_text(const cuda_disk_program *p, const cuda_disk_key *key) {
  if (p->texts_bytes == 0 || p->texts[p->texts_bytes - 1] != '\0') return false;
  for (const char *at = p->texts; at < p->texts + p->texts_bytes; at += strlen(at) + 1)
    if (strcmp(at, key->source) == 0) return true;
  return false;
}

/* If an allocation fails, the program counts as not found: it is then compiled, which may fail. */
static bool read_file(int fd, size_t size_bytes, const cuda_disk_key *key, const allocator *memory,
                      cuda_disk_program *program) {
  head h;
  if (!folder_read(fd, &h, sizeof h) || !fits(&h, size_bytes)) return false;
  size_t image_bytes = (size_t)h.image_bytes, texts_bytes = (size_t)h.texts_bytes;
  char *block = memory->alloc(memory->context, image_bytes + texts_bytes);
  if (!block) return false;
  cuda_disk_program found = {block, image_bytes, block + image_bytes, texts_bytes};
  bool ok = folder_read(fd, block, image_bytes + texts_bytes) && has_text(&found, key) &&
            checksum(&found) == h.checksum;
  if (ok) *program = found;
  else memory_free(memory, block);
  return ok;
}

bool cuda_disk_read(const cuda_disk *disk, const cuda_disk_key *key, const allocator *memory,
                    cuda_disk_program *program) {
  char name[MAX_NAME];
  if (disk->folder < 0) return false;
  name_of(key, name);
  size_t size_bytes;
  int fd = folder_open_file(disk->folder, name, &size_bytes);
  if (fd < 0) return false;
  bool found = read_file(fd, size_bytes, key, memory, program);
  (void)close(fd);
  return found;
}

static bool write_file(const cuda_disk *disk, const char *name, const cuda_disk_program *p) {
  int fd = openat(disk->folder, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                  S_IRUSR | S_IWUSR);
  if (fd < 0) return false;
  head h = {.image_bytes = p->image_bytes, .texts_bytes = p->texts_bytes, .checksum = checksum(p)};
  memcpy(h.magic, magic, sizeof magic);
  bool ok = folder_write(fd, &h, sizeof h) && folder_write(fd, p->image, p->image_bytes) &&
            folder_write(fd, p->texts, p->texts_bytes);
  return close(fd) == 0 && ok;
}

/* Writes a draft, and renames it to the file's name. A draft that is left over is removed. */
void cuda_disk_write(const cuda_disk *disk, const char *target, const cuda_disk_program *p) {
  char name[MAX_NAME], draft[MAX_NAME + 32], first[MAX_NAME] = "";
  if (disk->folder < 0) return;
  for (const char *at = p->texts; at < p->texts + p->texts_bytes; at += strlen(at) + 1) {
    name_of(&(cuda_disk_key){at, strlen(at), target}, name);
    (void)snprintf(draft, sizeof draft, ".%s.%ld.%p", name, (long)getpid(), p->image);
    bool ok = first[0] && linkat(disk->folder, first, disk->folder, draft, 0) == 0;
    if (!ok) ok = write_file(disk, draft, p);
    if (ok && renameat(disk->folder, draft, disk->folder, name) == 0 && !first[0])
      memcpy(first, name, sizeof first);
    (void)unlinkat(disk->folder, draft, 0);
  }
}
