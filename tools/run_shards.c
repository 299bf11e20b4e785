/* Files of shards: x.%r.npy is one file for each device that holds a part of x.
 *
 * Under mpirun each process reads and writes only the files of its own device. After each step that may
 * fail on one rank alone, all ranks agree on whether it did, before any of them goes on. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "run.h"

/* ---- names ---- */
int run_check_pattern(const char *option, const char *text, bool *sharded) {
  *sharded = false;
  for (const char *c = strchr(text, '%'); c; c = strchr(c + 2, '%')) {
    if (c[1] == 'r') *sharded = true;
    else if (c[1] != '%')
      return cli_usage("--%s %s: %%r stands for the rank and %%%% for a percent sign; there is "
                       "nothing else",
                       option, text);
  }
  return 0;
}

char *run_expand(const char *pattern, int64_t rank) {
  char number[24];
  int digits = snprintf(number, sizeof number, "%" PRId64, rank);
  size_t room = 1, used = 0;
  for (const char *c = pattern; *c; c++) room += *c == '%' ? (size_t)digits : 1;
  char *text = malloc(room);
  for (const char *c = pattern; text && *c; c++) {
    bool escape = c[0] == '%' && (c[1] == '%' || c[1] == 'r');
    if (escape && c[1] == 'r') {
      memcpy(text + used, number, (size_t)digits);
      used += (size_t)digits;
    } else text[used++] = *c;
    c += escape;
  }
  if (text) text[used] = '\0';
  return text;
}

/* ---- what goes wrong on this rank ---- */
static weir_status problem(run_state *s, weir_status st, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static weir_status problem(run_state *s, weir_status st, const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  (void)vsnprintf(s->problem, sizeof s->problem, fmt, args);
  va_end(args);
  return st;
}

static weir_status from_library(run_state *s, weir_status st) {
  return st == WEIR_OK ? st : problem(s, st, "%s", weir_error());
}

static weir_status no_memory(run_state *s) {
  return problem(s, WEIR_OUT_OF_MEMORY, "out of memory");
}

/* ---- arrays ---- */
static const char *shape_text(char text[256], const int64_t *extents, size_t rank) {
  size_t used = 1;
  (void)snprintf(text, 256, "[");
  for (size_t i = 0; i < rank && used < 200; i++)
    used += (size_t)snprintf(text + used, 256 - used, "%s%" PRId64, i ? ", " : "", extents[i]);
  (void)snprintf(text + used, 256 - used, "]");
  return text;
}

static weir_status wrong_shape(run_state *s, const run_tensor *t, const run_shard *file,
                               const weir_shard *part, int64_t rank) {
  char found[256], wanted[256], whole[256];
  const weir_dl_tensor *dl = weir_array_tensor(file->value);
  return problem(s, WEIR_BAD_INPUT,
                 "%s has shape %s, but rank %" PRId64 " holds %s of input '%s', which is %s",
                 file->path, shape_text(found, dl->shape, (size_t)dl->ndim), rank,
                 shape_text(wanted, part->extents, part->rank), t->info.name,
                 shape_text(whole, part->whole, part->rank));
}

static weir_status load(run_state *s, const run_tensor *t, run_shard *file, const weir_shard *part,
                        int64_t rank) {
  weir_status st = weir_array_load_npy(file->path, NULL, &file->value);
  if (st != WEIR_OK) return from_library(s, st);
  weir_dtype found = weir_array_dtype(file->value);
  if (found != t->info.dtype && !(found == WEIR_F32 && t->info.dtype == WEIR_BF16))
    return problem(s, WEIR_BAD_INPUT, "%s holds %s, but input '%s' is %s on rank %" PRId64,
                   file->path, weir_dtype_text(found), t->info.name, weir_dtype_text(t->info.dtype),
                   rank);
  const weir_dl_tensor *dl = weir_array_tensor(file->value);
  if ((size_t)dl->ndim != part->rank ||
      memcmp(dl->shape, part->extents, part->rank * sizeof *part->extents) != 0)
    return wrong_shape(s, t, file, part, rank);
  if (found == t->info.dtype) return WEIR_OK;
  weir_array *rounded = NULL;
  st = weir_array_convert(file->value, WEIR_BF16, &rounded);
  if (st != WEIR_OK) return from_library(s, st);
  weir_array_destroy(file->value);
  file->value = rounded;
  return WEIR_OK;
}

static weir_status make_output(run_state *s, const run_tensor *t, run_shard *file,
                               const weir_shard *part) {
  char why[512];
  if (!run_may_write(file->path, why, sizeof why)) return problem(s, WEIR_BAD_INPUT, "%s", why);
  weir_status st = weir_array_create(t->info.dtype, part->extents, part->rank, NULL, &file->value);
  if (st == WEIR_OK && s->repeats)
    st = weir_array_create(t->info.dtype, part->extents, part->rank, NULL, &file->again);
  return from_library(s, st);
}

static weir_status take(run_state *s, weir_side side, size_t i, run_tensor *t) {
  t->n_shards = (size_t)s->devices.count;
  t->shards = calloc(t->n_shards, sizeof *t->shards);
  if (!t->shards) return no_memory(s);
  for (size_t k = 0; k < t->n_shards; k++) {
    int64_t rank = s->devices.first + (int64_t)k;
    run_shard *file = &t->shards[k];
    weir_shard part = {.struct_size = sizeof part};
    weir_status st = weir_program_shard(s->program, s->shapes, side, i, rank, &part);
    if (st != WEIR_OK) return from_library(s, st);
    if (!part.present) continue;
    file->path = run_expand(t->pattern, rank);
    if (!file->path) return no_memory(s);
    st = side == WEIR_INPUT ? load(s, t, file, &part, rank) : make_output(s, t, file, &part);
    if (st != WEIR_OK) return st;
  }
  return WEIR_OK;
}

/* ---- names that must differ ---- */
/* Does a device's file have the name of another output, or of the trace? */
static weir_status check_name(run_state *s, const run_tensor *t, const char *path) {
  const char *trace = cli_text(s->c, "trace", 0);
  if (trace[0] && run_same_target(path, trace))
    return problem(s, WEIR_BAD_USAGE, "--output and --trace both write to %s", path);
  for (size_t i = 0; i < s->outputs.len; i++) {
    const run_tensor *o = &s->outputs.data[i];
    if (o != t && o->path && run_same_target(path, o->path))
      return problem(s, WEIR_BAD_USAGE, "--output writes both '%s' and '%s' to %s", o->info.name,
                     t->info.name, path);
    for (size_t k = 0; o < t && k < o->n_shards; k++)
      if (o->shards[k].path && run_same_target(path, o->shards[k].path))
        return problem(s, WEIR_BAD_USAGE, "--output writes both '%s' and '%s' to %s", o->info.name,
                       t->info.name, path);
  }
  return WEIR_OK;
}

static weir_status check_names(run_state *s) {
  for (size_t i = 0; i < s->outputs.len; i++) {
    const run_tensor *t = &s->outputs.data[i];
    for (size_t k = 0; k < t->n_shards; k++) {
      weir_status st = t->shards[k].path ? check_name(s, t, t->shards[k].path) : WEIR_OK;
      if (st != WEIR_OK) return st;
    }
  }
  return WEIR_OK;
}

/* ---- taking ---- */
static weir_status take_all(run_state *s) {
  weir_status st = WEIR_OK;
  for (size_t i = 0; i < s->inputs.len && st == WEIR_OK; i++)
    if (s->inputs.data[i].sharded) st = take(s, WEIR_INPUT, i, &s->inputs.data[i]);
  for (size_t i = 0; i < s->outputs.len && st == WEIR_OK; i++)
    if (s->outputs.data[i].sharded) st = take(s, WEIR_OUTPUT, i, &s->outputs.data[i]);
  return st == WEIR_OK ? check_names(s) : st;
}

bool run_any_sharded(const run_list *l) {
  for (size_t i = 0; i < l->len; i++)
    if (l->data[i].sharded) return true;
  return false;
}

/* The arrays of a tensor's shards, one per device, as a list to be freed; NULL: no memory. */
static const weir_dl_tensor **shard_tensors(const run_tensor *t, bool again) {
  const weir_dl_tensor **list = calloc(t->n_shards + 1, sizeof *list);
  for (size_t k = 0; list && k < t->n_shards; k++) {
    const run_shard *f = &t->shards[k];
    list[k] = weir_array_tensor(again ? f->again : f->value);
  }
  return list;
}

/* Compares replicas; with --check assembles the whole tensor on the rank that checks. */
static int join(const run_state *s, weir_side side, size_t i, run_tensor *t) {
  if (!t->sharded) return 0;
  bool whole = cli_flag(s->c, "check"), here = whole && s->devices.first == 0;
  if (here && !t->value) CLI_TRY(run_allocate_one(s, t, &t->value));
  const weir_dl_tensor **list = shard_tensors(t, false);
  if (!list) return run_out_of_memory();
  weir_status st = weir_program_join(s->program, s->shapes, side, i, list, whole,
                                     here ? weir_array_tensor(t->value) : NULL);
  free((void *)list);
  return cli_status(st);
}

int run_take_shards(run_state *s) {
  s->devices.struct_size = sizeof s->devices;
  CLI_CALL(weir_program_devices(s->program, &s->devices));
  if (!run_any_sharded(&s->inputs) && !run_any_sharded(&s->outputs)) return 0;
  if (strcmp(weir_program_device(s->program), "ref") == 0)
    return cli_usage("--device ref takes whole tensors: %%r stands for the rank of a device");
  weir_status st = take_all(s);
  CLI_CALL(weir_program_agree(s->program, st, s->problem));
  for (size_t i = 0; i < s->inputs.len; i++) CLI_TRY(join(s, WEIR_INPUT, i, &s->inputs.data[i]));
  return 0;
}

int run_join_outputs(run_state *s) {
  for (size_t i = 0; i < s->outputs.len; i++) CLI_TRY(join(s, WEIR_OUTPUT, i, &s->outputs.data[i]));
  return 0;
}

/* ---- lists for the library ---- */
void run_shard_lists_free(const run_shard_lists *lists) {
  for (size_t i = 0; lists->lists && i < lists->len; i++) free((void *)lists->lists[i]);
  free((void *)lists->lists);
}

bool run_shard_lists_make(const run_list *l, bool again, run_shard_lists *result) {
  *result = (run_shard_lists){.len = l->len};
  if (!run_any_sharded(l)) return true;
  result->lists = calloc(l->len, sizeof *result->lists);
  if (!result->lists) return false;
  for (size_t i = 0; i < l->len; i++) {
    if (!l->data[i].sharded) continue;
    result->lists[i] = shard_tensors(&l->data[i], again);
    if (!result->lists[i]) return false;
  }
  return true;
}
