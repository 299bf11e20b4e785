/* Text into functions of the GPU: compiled by NVRTC, kept in memory by source and on disk. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/table.h"
#include "device/cuda/kernel.h"
#include "device/cuda/kernel_disk.h"

enum { BUCKETS = 256 };

typedef struct entry {
  struct entry *next;
  uint64_t hash;
  void *module, *function;
  size_t source_bytes;
  char source[];
} entry;

struct cuda_programs {
  const allocator *memory;
  const cuda_compiler *compiler;
  pthread_mutex_t lock;
  cuda_disk disk;
  char arch[48], target[64];
  cuda_programs_counts counts;
  entry *buckets[BUCKETS];
};

/* ---- opening and closing ---- */
status cuda_programs_open(const cuda_programs_options *options, const allocator *memory,
                          cuda_programs **result) {
  int major, minor;
  if (options->compiler->nvrtcVersion(&major, &minor) != 0)
    return fail(STATUS_UNAVAILABLE, "cuda: NVRTC does not tell its version");
  cuda_programs *p = memory_alloc(memory, sizeof *p);
  if (!p) return STATUS_OUT_OF_MEMORY;
  memset(p, 0, sizeof *p);
  p->memory = memory;
  p->compiler = options->compiler;
  (void)snprintf(p->arch, sizeof p->arch, "--gpu-architecture=sm_%d%d", options->major,
                 options->minor);
  (void)snprintf(p->target, sizeof p->target, "sm_%d%d-nvrtc-%d.%d", options->major, options->minor,
                 major, minor);
  if (pthread_mutex_init(&p->lock, NULL) != 0) {
    memory_free(memory, p);
    return fail(STATUS_SYSTEM, "cuda: cannot make a lock");
  }
  cuda_disk_open(&p->disk, options->folder);
  *result = p;
  return STATUS_OK;
}

static void drop(cuda_programs *p, entry *e) {
  if (e->module) (void)p->compiler->cuModuleUnload(e->module);
  memory_free(p->memory, e);
}

void cuda_programs_close(cuda_programs *p) {
  if (!p) return;
  for (uint32_t i = 0; i < BUCKETS; i++)
    for (entry *e = p->buckets[i], *next; e; e = next) {
      next = e->next;
      drop(p, e);
    }
  cuda_disk_close(&p->disk);
  (void)pthread_mutex_destroy(&p->lock);
  memory_free(p->memory, p);
}

cuda_programs_counts cuda_programs_count(const cuda_programs *p) { return p->counts; }

/* ---- compiling ---- */
/* Of what the compiler has to say the first error is enough. */
static status compile_failed(const cuda_programs *p, void *program, const char *name) {
  size_t size = 0;
  char *log = NULL;
  if (p->compiler->nvrtcGetProgramLogSize(program, &size) == 0 && size > 0)
    log = memory_alloc(p->memory, size + 1);
  bool told = log && p->compiler->nvrtcGetProgramLog(program, log) == 0;
  if (told) log[size] = '\0';
  const char *text = told ? log : "it does not say why";
  const char *first = told ? strstr(log, "error: ") : NULL;
  if (first) text = first + strlen("error: ");
  (void)fail(STATUS_SYSTEM, "cuda: NVRTC refuses the kernel %s (%s): %.*s", name, p->arch,
             (int)strcspn(text, "\n"), text);
  memory_free(p->memory, log);
  return STATUS_SYSTEM;
}

static status take_cubin(const cuda_programs *p, void *program, void **image, size_t *size_bytes) {
  if (p->compiler->nvrtcGetCUBINSize(program, size_bytes) != 0 || *size_bytes == 0)
    return fail(STATUS_SYSTEM, "cuda: NVRTC made no machine code for %s", p->arch);
  *image = memory_alloc(p->memory, *size_bytes);
  if (!*image) return STATUS_OUT_OF_MEMORY;
  if (p->compiler->nvrtcGetCUBIN(program, *image) == 0) return STATUS_OK;
  memory_free(p->memory, *image);
  *image = NULL;
  return fail(STATUS_SYSTEM, "cuda: NVRTC does not give its machine code");
}

/* No contraction of products and sums: results as on the CPU, whatever is fused. */
static status compile(const cuda_programs *p, const cg_launch *l, void **image,
                      size_t *size_bytes) {
  const char *options[] = {p->arch, "--fmad=false", "--std=c++17", "--disable-warnings"};
  void *program = NULL;
  if (p->compiler->nvrtcCreateProgram(&program, l->source, "kernel.cu", 0, NULL, NULL) != 0)
    return fail(STATUS_SYSTEM, "cuda: NVRTC takes no program");
  int rc = p->compiler->nvrtcCompileProgram(program, sizeof options / sizeof *options, options);
  status st =
      rc == 0 ? take_cubin(p, program, image, size_bytes) : compile_failed(p, program, l->entry);
  (void)p->compiler->nvrtcDestroyProgram(&program);
  return st;
}

/* ---- finding and loading ---- */
static status load(const cuda_programs *p, const cg_launch *l, const void *image, entry *e) {
  if (!p->compiler->cuModuleLoadData) return STATUS_OK;
  int rc = p->compiler->cuModuleLoadData(&e->module, image);
  if (rc != 0)
    return fail(STATUS_SYSTEM, "cuda: cannot load the kernel %s (error %d)", l->entry, rc);
  rc = p->compiler->cuModuleGetFunction(&e->function, e->module, l->entry);
  if (rc != 0) return fail(STATUS_SYSTEM, "cuda: the kernel %s has no entry", l->entry);
  return STATUS_OK;
}

/* What lies on disk may still not load, say after a change of the driver; then it is compiled. */
static status make(cuda_programs *p, const cg_launch *l, entry *e) {
  cuda_disk_key key = {l->source, l->source_bytes, p->target};
  void *image = NULL;
  size_t size_bytes = 0;
  if (cuda_disk_read(&p->disk, &key, p->memory, &image, &size_bytes)) {
    status st = load(p, l, image, e);
    memory_free(p->memory, image);
    if (st == STATUS_OK) {
      p->counts.from_disk++;
      return STATUS_OK;
    }
    if (e->module) (void)p->compiler->cuModuleUnload(e->module);
    e->module = NULL;
    status_clear();
  }
  TRY(compile(p, l, &image, &size_bytes));
  status st = load(p, l, image, e);
  if (st == STATUS_OK) {
    p->counts.compiled++;
    cuda_disk_write(&p->disk, &key, image, size_bytes);
  }
  memory_free(p->memory, image);
  return st;
}

static entry *find(const cuda_programs *p, const cg_launch *l, uint64_t hash) {
  for (entry *e = p->buckets[hash % BUCKETS]; e; e = e->next)
    if (e->hash == hash && e->source_bytes == l->source_bytes &&
        memcmp(e->source, l->source, l->source_bytes) == 0)
      return e;
  return NULL;
}

static status add(cuda_programs *p, const cg_launch *l, uint64_t hash, entry **result) {
  entry *e = memory_alloc(p->memory, sizeof *e + l->source_bytes);
  if (!e) return STATUS_OUT_OF_MEMORY;
  *e = (entry){.hash = hash, .source_bytes = l->source_bytes};
  memcpy(e->source, l->source, l->source_bytes);
  status st = make(p, l, e);
  if (st != STATUS_OK) {
    drop(p, e);
    return st;
  }
  e->next = p->buckets[hash % BUCKETS];
  p->buckets[hash % BUCKETS] = e;
  *result = e;
  return STATUS_OK;
}

status cuda_programs_get(cuda_programs *p, const cg_launch *l, void **function) {
  uint64_t hash = hash_bytes(l->source, l->source_bytes);
  status st = STATUS_OK;
  (void)pthread_mutex_lock(&p->lock);
  entry *e = find(p, l, hash);
  if (e) p->counts.from_memory++;
  else st = add(p, l, hash, &e);
  if (st == STATUS_OK) *function = e->function;
  (void)pthread_mutex_unlock(&p->lock);
  return st;
}
