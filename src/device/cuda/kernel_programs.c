/* Turns texts into functions of the GPU: compiled by NVRTC, kept in memory and on disk, found by their text. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/table.h"
#include "device/cuda/kernel.h"
#include "device/cuda/kernel_compile.h"
#include "device/cuda/kernel_disk.h"

enum { BUCKETS = 256 };

/* A program that one or more texts were compiled into. */
typedef struct program {
  struct program *next;
  void *module;
} program;

typedef struct cuda_entry entry;
struct cuda_entry {
  entry *next;
  uint64_t hash;
  program *program; /* NULL: it is being made */
  void *function;   /* NULL: not looked up yet */
  /* While it is made: a launch that needs it, and the next entry in the list of all that are made, and in its unit. */
  const cg_launch *launch;
  entry *next_missing, *next_joined;
  size_t source_bytes;
  char source[]; /* ends in NUL */
};

struct cuda_programs {
  const allocator *memory;
  pthread_mutex_t lock;
  cuda_disk disk;
  char arch[48], target[64];
  cuda_compile_options options;
  cuda_programs_counts counts;
  program *programs;
  entry *buckets[BUCKETS];
  entry *missing, **missing_end;
};

/* ---- opening and closing ---- */
/* The suffix of the architecture: only this capability has products of four warps and copies of tiles. */
static const char *own_instructions(const cuda_programs_options *o) {
  return o->major == 9 && o->minor == 0 ? "a" : "";
}

status cuda_programs_open(const cuda_programs_options *options, const allocator *memory,
                          cuda_programs **result) {
  int major, minor;
  if (options->compiler->nvrtcVersion(&major, &minor) != 0)
    return fail(STATUS_UNAVAILABLE, "cuda: NVRTC does not tell its version");
  cuda_programs *p = memory_alloc(memory, sizeof *p);
  if (!p) return STATUS_OUT_OF_MEMORY;
  memset(p, 0, sizeof *p);
  p->memory = memory;
  p->options = (cuda_compile_options){options->compiler, p->arch, major};
  (void)snprintf(p->arch, sizeof p->arch, "--gpu-architecture=sm_%d%d%s", options->major,
                 options->minor, own_instructions(options));
  (void)snprintf(p->target, sizeof p->target, "sm_%d%d%s-nvrtc-%d.%d-%d", options->major,
                 options->minor, own_instructions(options), major, minor, CUDA_COMPILED);
  if (pthread_mutex_init(&p->lock, NULL) != 0) {
    memory_free(memory, p);
    return fail(STATUS_SYSTEM, "cuda: cannot make a lock");
  }
  cuda_disk_open(&p->disk, options->folder);
  *result = p;
  return STATUS_OK;
}

static void unload(cuda_programs *p, void *module) {
  if (module) (void)p->options.compiler->cuModuleUnload(module);
}

void cuda_programs_close(cuda_programs *p) {
  if (!p) return;
  for (uint32_t i = 0; i < BUCKETS; i++)
    for (entry *e = p->buckets[i], *next; e; e = next) {
      next = e->next;
      memory_free(p->memory, e);
    }
  for (program *x = p->programs, *next; x; x = next) {
    next = x->next;
    unload(p, x->module);
    memory_free(p->memory, x);
  }
  cuda_disk_close(&p->disk);
  (void)pthread_mutex_destroy(&p->lock);
  memory_free(p->memory, p);
}

cuda_programs_counts cuda_programs_count(const cuda_programs *p) { return p->counts; }

/* ---- in memory ---- */
static entry *find(const cuda_programs *p, const char *text, size_t bytes, uint64_t hash) {
  for (entry *e = p->buckets[hash % BUCKETS]; e; e = e->next)
    if (e->hash == hash && e->source_bytes == bytes && memcmp(e->source, text, bytes) == 0)
      return e;
  return NULL;
}

static entry *add(cuda_programs *p, const char *text, size_t bytes, uint64_t hash) {
  entry *e = memory_alloc(p->memory, sizeof *e + bytes + 1);
  if (!e) return NULL;
  *e = (entry){.next = p->buckets[hash % BUCKETS], .hash = hash, .source_bytes = bytes};
  memcpy(e->source, text, bytes);
  e->source[bytes] = '\0';
  p->buckets[hash % BUCKETS] = e;
  return e;
}

static void drop(cuda_programs *p, entry *e) {
  entry **at = &p->buckets[e->hash % BUCKETS];
  while (*at != e) at = &(*at)->next;
  *at = e->next;
  memory_free(p->memory, e);
}

static status find_entry(cuda_programs *p, cuda_wanted *w) {
  const cg_launch *l = w->launch;
  uint64_t hash = hash_bytes(l->source, l->source_bytes);
  w->entry = find(p, l->source, l->source_bytes, hash);
  if (w->entry) {
    if (!w->entry->launch) w->entry->launch = l;
    p->counts.from_memory++;
    return STATUS_OK;
  }
  w->entry = add(p, l->source, l->source_bytes, hash);
  if (!w->entry) return STATUS_OUT_OF_MEMORY;
  w->entry->launch = l;
  *p->missing_end = w->entry;
  p->missing_end = &w->entry->next_missing;
  return STATUS_OK;
}

/* ---- modules ---- */
static status load(const cuda_programs *p, const char *name, const void *image, void **module) {
  const cuda_compiler *c = p->options.compiler;
  *module = NULL;
  if (!c->cuModuleLoadData) return STATUS_OK;
  int rc = c->cuModuleLoadData(module, image);
  if (rc == 0) return STATUS_OK;
  *module = NULL;
  return fail(STATUS_SYSTEM, "cuda: cannot load the kernel %s (error %d)", name, rc);
}

/* Allows more shared memory than the default, and lets it take most of the first-level cache. */
static status allow_shared(const cuda_programs *p, entry *e) {
  enum { MOST_BYTES = 8, CARVEOUT = 9, ALL = 100 }; /* of CUfunction_attribute */
  const cuda_compiler *c = p->options.compiler;
  int bytes = (int)e->launch->shared_bytes;
  if (bytes == 0) return STATUS_OK;
  int rc = c->cuFuncSetAttribute(e->function, MOST_BYTES, bytes);
  if (rc == 0) rc = c->cuFuncSetAttribute(e->function, CARVEOUT, ALL);
  if (rc == 0) return STATUS_OK;
  e->function = NULL;
  return fail(STATUS_SYSTEM, "cuda: the kernel %s needs %d bytes of shared memory (error %d)",
              e->launch->entry, bytes, rc);
}

static status find_function(const cuda_programs *p, void *module, entry *e) {
  if (!module || e->function) return STATUS_OK;
  if (p->options.compiler->cuModuleGetFunction(&e->function, module, e->launch->entry) == 0)
    return allow_shared(p, e);
  e->function = NULL;
  return fail(STATUS_SYSTEM, "cuda: the kernel %s has no entry", e->launch->entry);
}

static program *add_program(cuda_programs *p, void *module) {
  program *x = memory_alloc(p->memory, sizeof *x);
  if (!x) return NULL;
  *x = (program){p->programs, module};
  p->programs = x;
  return x;
}

/* ---- on disk ---- */
/* Adds entries for all texts of the program, also those that are not wanted yet. */
static void add_texts(cuda_programs *p, const cuda_disk_program *d, program *x) {
  for (const char *at = d->texts; at < d->texts + d->texts_bytes; at += strlen(at) + 1) {
    size_t bytes = strlen(at);
    uint64_t hash = hash_bytes(at, bytes);
    entry *e = find(p, at, bytes, hash);
    if (e && !e->program) p->counts.from_disk++;
    if (!e) e = add(p, at, bytes, hash);
    if (!e) return; /* no memory: the text will be found on disk again */
    if (!e->program) e->program = x;
  }
}

static status install_read(cuda_programs *p, entry *e, const cuda_disk_program *d) {
  void *module;
  TRY(load(p, e->launch->entry, d->image, &module));
  status st = find_function(p, module, e);
  program *x = st == STATUS_OK ? add_program(p, module) : NULL;
  if (x) add_texts(p, d, x);
  if (x) return STATUS_OK;
  e->function = NULL;
  unload(p, module);
  return STATUS_SYSTEM;
}

/* Reads missing programs from disk. If one does not load, as after a change of the driver, it is compiled. */
static void read_missing(cuda_programs *p) {
  for (entry *e = p->missing; e; e = e->next_missing) {
    cuda_disk_key key = {e->source, e->source_bytes, p->target};
    cuda_disk_program d;
    if (e->program || !cuda_disk_read(&p->disk, &key, p->memory, &d)) continue;
    if (install_read(p, e, &d) != STATUS_OK) status_clear();
    memory_free(p->memory, (void *)(uintptr_t)d.image);
  }
}

/* ---- compiling ---- */
/* Texts that are compiled together. */
typedef struct unit {
  entry *first, **end;
  char *texts; /* contiguous */
  size_t texts_bytes;
  cuda_job job;
} unit;

static void unit_add(unit *u, entry *e) {
  if (!u->first) u->end = &u->first;
  *u->end = e;
  u->end = &e->next_joined;
  e->next_joined = NULL;
  u->texts_bytes += e->source_bytes + 1;
}

/* Joins the texts, separated by newlines for the compiler, which later become NULs. */
static status unit_join(cuda_programs *p, unit *u) {
  u->texts = memory_alloc(p->memory, u->texts_bytes);
  if (!u->texts) return STATUS_OUT_OF_MEMORY;
  char *at = u->texts;
  for (const entry *e = u->first; e; e = e->next_joined) {
    memcpy(at, e->source, e->source_bytes);
    at += e->source_bytes;
    *at++ = e->next_joined ? '\n' : '\0';
  }
  u->job.source = u->texts;
  return STATUS_OK;
}

static void unit_part(unit *u) {
  char *at = u->texts;
  for (const entry *e = u->first; e; e = e->next_joined, at++) {
    at += e->source_bytes;
    *at = '\0';
  }
}

static void unit_destroy(cuda_programs *p, unit *u) {
  cuda_compile_end(&p->options, &u->job);
  memory_free(p->memory, u->texts);
}

static status install_compiled(cuda_programs *p, unit *u, const void *image) {
  void *module;
  program *x = NULL;
  TRY(load(p, u->first->launch->entry, image, &module));
  status st = STATUS_OK;
  for (entry *e = u->first; e && st == STATUS_OK; e = e->next_joined)
    st = find_function(p, module, e);
  if (st == STATUS_OK && !(x = add_program(p, module))) st = STATUS_OUT_OF_MEMORY;
  if (st != STATUS_OK) unload(p, module);
  for (entry *e = u->first; e; e = e->next_joined) {
    e->program = x;
    if (x) p->counts.compiled++;
    else e->function = NULL;
  }
  if (x) p->counts.programs++;
  return st;
}

static status finish(cuda_programs *p, unit *u);

/* The compiler refused a program of several texts: compiles them one by one to find which one it refuses. */
static status one_by_one(cuda_programs *p, unit *all) {
  for (entry *e = all->first, *next; e; e = next) {
    unit u = {.first = NULL};
    next = e->next_joined;
    unit_add(&u, e);
    status st = unit_join(p, &u);
    if (st == STATUS_OK) cuda_compile_all(&p->options, &u.job, 1);
    if (st == STATUS_OK) st = finish(p, &u);
    unit_destroy(p, &u);
    TRY(st);
  }
  return STATUS_OK;
}

static status finish(cuda_programs *p, unit *u) {
  void *image = NULL;
  size_t size_bytes = 0;
  bool good = u->job.program && u->job.result == 0;
  if (!good && u->first->next_joined) return one_by_one(p, u);
  TRY(cuda_compile_take(&p->options, &u->job, u->first->launch->entry, p->memory, &image,
                        &size_bytes));
  status st = install_compiled(p, u, image);
  if (st == STATUS_OK) {
    unit_part(u);
    cuda_disk_write(&p->disk, p->target,
                    &(cuda_disk_program){image, size_bytes, u->texts, u->texts_bytes});
  }
  memory_free(p->memory, image);
  return st;
}

/* Deals texts out to units in turn, so that long ones that follow each other are in different units. */
static void deal_out(const cuda_programs *p, unit *units, uint32_t n_joined) {
  uint32_t joined = 0, alone = n_joined;
  for (entry *e = p->missing; e; e = e->next_missing)
    if (!e->program) unit_add(&units[e->launch->joins ? joined++ % n_joined : alone++], e);
}

static status compile_missing(cuda_programs *p) {
  uint32_t joins = 0, alone = 0;
  for (const entry *e = p->missing; e; e = e->next_missing) {
    joins += !e->program && e->launch->joins;
    alone += !e->program && !e->launch->joins;
  }
  uint32_t n_joined = joins ? cuda_compile_programs(joins, cuda_compile_threads()) : 0;
  uint32_t n = n_joined + alone;
  if (n == 0) return STATUS_OK;
  unit *units = memory_alloc(p->memory, n * sizeof *units);
  cuda_job *jobs = memory_alloc(p->memory, n * sizeof *jobs);
  status st = units && jobs ? STATUS_OK : STATUS_OUT_OF_MEMORY;
  if (units) memset(units, 0, n * sizeof *units);
  if (st == STATUS_OK) deal_out(p, units, n_joined);
  for (uint32_t i = 0; i < n && st == STATUS_OK; i++) {
    st = unit_join(p, &units[i]);
    jobs[i] = units[i].job;
  }
  if (st == STATUS_OK) {
    cuda_compile_all(&p->options, jobs, n);
    for (uint32_t i = 0; i < n; i++) units[i].job = jobs[i];
  }
  for (uint32_t i = 0; i < n && st == STATUS_OK; i++) st = finish(p, &units[i]);
  for (uint32_t i = 0; units && i < n; i++) unit_destroy(p, &units[i]);
  memory_free(p->memory, jobs);
  memory_free(p->memory, units);
  return st;
}

/* ---- all of it ---- */
static status make_missing(cuda_programs *p) {
  read_missing(p);
  return compile_missing(p);
}

/* Removes entries that could not be made. */
static void forget_missing(cuda_programs *p) {
  for (entry *e = p->missing, *next; e; e = next) {
    next = e->next_missing;
    e->next_missing = NULL;
    if (!e->program) drop(p, e);
  }
}

status cuda_programs_get_all(cuda_programs *p, cuda_wanted *wanted, uint32_t n) {
  status st = STATUS_OK;
  uint32_t found = 0;
  (void)pthread_mutex_lock(&p->lock);
  p->missing = NULL;
  p->missing_end = &p->missing;
  for (; found < n && st == STATUS_OK; found++) st = find_entry(p, &wanted[found]);
  if (st == STATUS_OK) st = make_missing(p);
  for (uint32_t i = 0; i < n && st == STATUS_OK; i++) {
    entry *e = wanted[i].entry;
    st = find_function(p, e->program->module, e);
    wanted[i].function = e->function;
  }
  for (uint32_t i = 0; i < found; i++)
    if (wanted[i].entry) wanted[i].entry->launch = NULL;
  forget_missing(p);
  (void)pthread_mutex_unlock(&p->lock);
  return st;
}

status cuda_programs_get(cuda_programs *p, const cg_launch *l, void **function) {
  cuda_wanted wanted = {.launch = l};
  TRY(cuda_programs_get_all(p, &wanted, 1));
  *function = wanted.function;
  return STATUS_OK;
}
