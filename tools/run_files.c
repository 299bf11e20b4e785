#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "run.h"

int run_out_of_memory(void) {
  (void)cli_usage("out of memory");
  return CLI_SYSTEM;
}

/* ---- the tensors of the fusion ---- */
static int list_tensors(const weir_fusion *f, size_t n,
                        weir_status (*at)(const weir_fusion *, size_t, weir_tensor *),
                        run_list *result) {
  result->data = calloc(n + 1, sizeof *result->data);
  if (!result->data) return run_out_of_memory();
  result->len = n;
  for (size_t i = 0; i < n; i++) {
    run_tensor *t = &result->data[i];
    CLI_CALL(at(f, i, &t->tensor));
    CLI_CALL(weir_tensor_describe(f, t->tensor, &t->info));
  }
  return 0;
}

void run_list_free(run_list *l) {
  for (size_t i = 0; i < l->len; i++) {
    weir_array_destroy(l->data[i].value);
    weir_array_destroy(l->data[i].again);
    for (size_t k = 0; k < l->data[i].n_shards && l->data[i].shards; k++) {
      free(l->data[i].shards[k].path);
      weir_array_destroy(l->data[i].shards[k].value);
      weir_array_destroy(l->data[i].shards[k].again);
    }
    free(l->data[i].shards);
    free(l->data[i].path);
  }
  free(l->data);
}

/* ---- NAME=FILE ---- */
static int unknown_name(const run_list *l, const char *option, const char *text, size_t length) {
  (void)fprintf(stderr, "weir: error: --%s: there is no %s '%.*s'; ", option, option, (int)length,
                text);
  if (l->len == 0) (void)fprintf(stderr, "the fusion has none\n");
  for (size_t i = 0; i < l->len; i++)
    (void)fprintf(stderr, "%s%s%s",
                  i             ? ", "
                  : l->len == 1 ? "there is "
                                : "there are ",
                  l->data[i].info.name, i + 1 < l->len ? "" : "\n");
  return CLI_USAGE;
}

static int assign_path(const run_list *l, const char *option, const char *text) {
  const char *equals = strchr(text, '=');
  if (!equals || equals[1] == '\0' || equals == text)
    return cli_usage("--%s takes NAME=FILE.npy, not '%s'", option, text);
  size_t length = (size_t)(equals - text);
  for (size_t i = 0; i < l->len; i++) {
    run_tensor *t = &l->data[i];
    if (strlen(t->info.name) != length || memcmp(t->info.name, text, length) != 0) continue;
    if (t->pattern) return cli_usage("--%s gives '%s' twice", option, t->info.name);
    t->pattern = equals + 1;
    CLI_TRY(run_check_pattern(option, t->pattern, &t->sharded));
    if (!t->sharded) t->path = run_expand(t->pattern, 0);
    return t->sharded || t->path ? 0 : run_out_of_memory();
  }
  return unknown_name(l, option, text, length);
}

static int assign_paths(const cli *c, const char *option, const run_list *l) {
  const char *text;
  for (size_t i = 0; (text = cli_text(c, option, i)) != NULL; i++)
    CLI_TRY(assign_path(l, option, text));
  return 0;
}

/* ---- files to be written ---- */
/* A run can take long: what would fail at its end is refused before it begins. */
static bool refused(char *to, size_t size_bytes, const char *path, const char *why) {
  (void)snprintf(to, size_bytes, "%s: cannot write: %s", path, why);
  return false;
}

/* Several outputs may go to /dev/null. */
static bool is_device(const char *path) {
  struct stat info;
  return stat(path, &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode);
}

/* The folder that a file beside `path` would be in. */
static const char *folder_of(const char *path, char folder[PATH_MAX]) {
  if (!realpath(path, folder)) (void)snprintf(folder, PATH_MAX, "%s", path);
  char *slash = strrchr(folder, '/');
  if (!slash) return ".";
  slash[slash == folder ? 1 : 0] = '\0';
  return folder;
}

bool run_may_write(const char *path, char *why, size_t n) {
  struct stat info;
  char folder[PATH_MAX];
  bool there = stat(path, &info) == 0;
  if ((!there && errno == ENAMETOOLONG) || strlen(path) >= PATH_MAX)
    return refused(why, n, path, strerror(ENAMETOOLONG));
  if (there && S_ISDIR(info.st_mode)) return refused(why, n, path, "it is a directory");
  if (there && access(path, W_OK) != 0) return refused(why, n, path, strerror(errno));
  if (there && !S_ISREG(info.st_mode)) return true; /* a device or a pipe is written as it is */
  if (access(folder_of(path, folder), W_OK | X_OK) != 0)
    return refused(why, n, path, strerror(errno));
  return true;
}

static int check_target(const char *path) {
  char why[PATH_MAX + 128];
  return run_may_write(path, why, sizeof why) ? 0 : cli_usage("%s", why);
}

static bool ends_in(const char *text, const char *ending) {
  size_t n = strlen(text), m = strlen(ending);
  return n >= m && strcmp(text + n - m, ending) == 0;
}

static int check_trace(const char *path) {
  bool per_rank;
  if (!path[0]) return 0;
  CLI_TRY(run_check_pattern("trace", path, &per_rank));
  if (!ends_in(path, ".json") && !ends_in(path, ".html") && !ends_in(path, ".svg"))
    return cli_usage("%s: a trace is written to a file ending in .json, .html or .svg", path);
  char *first = run_expand(path, 0);
  if (!first) return run_out_of_memory();
  int code = check_target(first);
  free(first);
  return code;
}

bool run_same_target(const char *a, const char *b) {
  char x[PATH_MAX], y[PATH_MAX];
  if (strcmp(a, b) == 0) return true;
  if (realpath(a, x) && realpath(b, y)) return strcmp(x, y) == 0;
  const char *last_a = strrchr(a, '/'), *last_b = strrchr(b, '/');
  if (strcmp(last_a ? last_a + 1 : a, last_b ? last_b + 1 : b) != 0) return false;
  struct stat one, other;
  return stat(folder_of(a, x), &one) == 0 && stat(folder_of(b, y), &other) == 0 &&
         one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

static int check_targets(const run_list *l, const char *trace) {
  for (size_t i = 0; i < l->len; i++) {
    const char *path = l->data[i].path, *name = l->data[i].info.name;
    if (!path) continue;
    for (size_t k = 0; k < i; k++)
      if (l->data[k].path && !is_device(path) && run_same_target(path, l->data[k].path))
        return cli_usage("--output writes both '%s' and '%s' to %s", l->data[k].info.name, name,
                         path);
    if (trace[0] && run_same_target(path, trace))
      return cli_usage("--output and --trace both write to %s", path);
    CLI_TRY(check_target(path));
  }
  return check_trace(trace);
}

/* ---- inputs from files ---- */
/* .npy has no type for bf16: an f32 file is accepted and rounded. */
static int fit_dtype(run_tensor *t) {
  weir_dtype file = weir_array_dtype(t->value);
  if (file == t->info.dtype) return 0;
  if (file != WEIR_F32 || t->info.dtype != WEIR_BF16)
    return cli_usage("%s holds %s, but input '%s' is %s", t->path, weir_dtype_text(file),
                     t->info.name, weir_dtype_text(t->info.dtype));
  weir_array *rounded = NULL;
  CLI_CALL(weir_array_convert(t->value, WEIR_BF16, &rounded));
  weir_array_destroy(t->value);
  t->value = rounded;
  return 0;
}

static int load_input(const run_state *s, run_tensor *t) {
  if (!t->path) return 0;
  CLI_CALL(weir_array_load_npy(t->path, NULL, &t->value));
  CLI_TRY(fit_dtype(t));
  const weir_dl_tensor *dl = weir_array_tensor(t->value);
  return cli_status(weir_shapes_input(s->shapes, t->tensor, dl->shape, (size_t)dl->ndim, t->path));
}

/* ---- inputs without a file ---- */
int run_allocate_one(const run_state *s, const run_tensor *t, weir_array **result) {
  int64_t extents[WEIR_MAX_RANK];
  size_t rank;
  CLI_CALL(weir_shapes_of(s->shapes, t->tensor, extents, &rank));
  return cli_status(weir_array_create(t->info.dtype, extents, rank, NULL, result));
}

static int shape_only(const run_state *s, run_tensor *t) {
  size_t rank;
  CLI_CALL(weir_shapes_of(s->shapes, t->tensor, t->extents, &rank));
  t->bare = (weir_dl_tensor){.device = {1, 0}, .ndim = (int32_t)rank, .shape = t->extents};
  t->bare.dtype = weir_dtype_to_dl(t->info.dtype);
  return 0;
}

static bool has_elements(const weir_array *a) { return run_size_bytes(a) > 0; }

static int fill_input(const run_state *s, run_tensor *t) {
  if (t->value || t->sharded) return 0;
  uint64_t seed = (uint64_t)cli_int(s->c, "seed");
  int64_t bound;
  if (!s->computes) return shape_only(s, t);
  CLI_TRY(run_allocate_one(s, t, &t->value));
  CLI_CALL(weir_shapes_index_bound(s->shapes, t->tensor, &bound));
  if (bound > 0 && has_elements(t->value))
    return cli_status(weir_array_fill_index(t->value, bound, seed, t->info.name));
  return cli_status(weir_array_fill(t->value, cli_text(s->c, "fill", 0), seed, t->info.name));
}

static int complete(const run_state *s) {
  weir_status st = weir_shapes_complete(s->shapes);
  int code = cli_status(st);
  if (st != WEIR_OK && weir_shapes_unbound(s->shapes) && run_any_sharded(&s->inputs) &&
      weir_launch_rank() <= 0)
    (void)fputs("weir: note: files of shards fix no extents: give them with -D\n", stderr);
  return code;
}

int run_prepare(run_state *s) {
  const cli *c = s->c;
  const char *definition;
  CLI_TRY(list_tensors(s->fusion, weir_fusion_input_count(s->fusion), weir_fusion_input_at,
                       &s->inputs));
  CLI_TRY(list_tensors(s->fusion, weir_fusion_output_count(s->fusion), weir_fusion_output_at,
                       &s->outputs));
  CLI_TRY(assign_paths(c, "input", &s->inputs));
  CLI_TRY(assign_paths(c, "output", &s->outputs));
  CLI_TRY(check_targets(&s->outputs, cli_text(c, "trace", 0)));
  CLI_CALL(weir_shapes_create(s->fusion, &s->shapes));
  for (size_t i = 0; (definition = cli_text(c, "define", i)) != NULL; i++)
    CLI_CALL(weir_shapes_define(s->shapes, definition));
  for (size_t i = 0; i < s->inputs.len; i++) CLI_TRY(load_input(s, &s->inputs.data[i]));
  CLI_TRY(complete(s));
  for (size_t i = 0; i < s->inputs.len; i++) CLI_TRY(fill_input(s, &s->inputs.data[i]));
  return 0;
}

/* ---- outputs ---- */
int run_allocate(const run_state *s, weir_array **(*slot)(run_tensor *t)) {
  for (size_t i = 0; i < s->outputs.len; i++) {
    run_tensor *t = &s->outputs.data[i];
    if (t->sharded) continue;
    CLI_TRY(s->computes ? run_allocate_one(s, t, slot(t)) : shape_only(s, t));
  }
  return 0;
}

/* Lists the files to write: whole outputs in the process that prints for all, shards in each process. */
static size_t files_of(const run_state *s, const weir_array **arrays, const char **paths) {
  size_t n = 0;
  for (size_t i = 0; i < s->outputs.len; i++) {
    const run_tensor *t = &s->outputs.data[i];
    if (t->path && weir_launch_rank() <= 0) {
      if (arrays) arrays[n] = t->value, paths[n] = t->path;
      n++;
    }
    for (size_t k = 0; k < t->n_shards; k++) {
      if (!t->shards[k].path) continue;
      if (arrays) arrays[n] = t->shards[k].value, paths[n] = t->shards[k].path;
      n++;
    }
  }
  return n;
}

static weir_status stage(const run_state *s, weir_saving **result) {
  size_t n = files_of(s, NULL, NULL);
  const weir_array **arrays = calloc(n + 1, sizeof(const weir_array *));
  const char **paths = calloc(n + 1, sizeof *paths);
  weir_status st = WEIR_OUT_OF_MEMORY;
  if (arrays && paths) {
    (void)files_of(s, arrays, paths);
    st = weir_arrays_stage_npy(arrays, paths, n, result);
  }
  free((void *)arrays);
  free((void *)paths);
  return st;
}

/* The status for weir_program_agree(): other processes write their files only if this one succeeded. */
static weir_status status_of(int code) {
  return code == 0            ? WEIR_OK
         : code == CLI_FAILED ? WEIR_CHECK_FAILED
         : code == CLI_USAGE  ? WEIR_BAD_USAGE
                              : WEIR_SYSTEM;
}

static weir_status agree(const run_state *s, bool together, weir_status st, const char *message) {
  char text[1000];
  if (!together) return st;
  (void)snprintf(text, sizeof text, "%s", message);
  return weir_program_agree(s->program, st, text);
}

int run_save(const run_state *s, int code) {
  bool together = s->devices.count < s->devices.world && run_any_sharded(&s->outputs);
  weir_saving *saving = NULL;
  weir_status st = code == 0 ? stage(s, &saving) : status_of(code);
  st = agree(s, together, st, code == 0 ? weir_error() : "the run has failed");
  if (st == WEIR_OK) {
    st = weir_saving_commit(saving);
    st = agree(s, together, st, weir_error());
  }
  if (code == 0) code = cli_status(st);
  weir_saving_destroy(saving);
  return code;
}
