#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "run.h"

/* ---- the tensors of the fusion ---- */
static int list_tensors(const weir_fusion *f, size_t n,
                        weir_status (*at)(const weir_fusion *, size_t, weir_tensor *),
                        run_list *result) {
  result->data = calloc(n + 1, sizeof *result->data);
  if (!result->data) {
    (void)cli_usage("out of memory");
    return CLI_SYSTEM;
  }
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
    weir_array_destroy(l->data[i].reference);
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
    if (t->path) return cli_usage("--%s gives '%s' twice", option, t->info.name);
    t->path = equals + 1;
    return 0;
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
/* A run can take long: what is known to fail at its end is refused before it begins. */
static int refused(const char *path, const char *why) {
  return cli_usage("%s: cannot write: %s", path, why);
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

static int check_target(const char *path) {
  struct stat info;
  char folder[PATH_MAX];
  bool there = stat(path, &info) == 0;
  if (strlen(path) >= PATH_MAX) return refused(path, strerror(ENAMETOOLONG));
  if (there && S_ISDIR(info.st_mode)) return refused(path, "it is a directory");
  if (there && access(path, W_OK) != 0) return refused(path, strerror(errno));
  if (there && !S_ISREG(info.st_mode)) return 0; /* a device or a pipe is written as it is */
  if (access(folder_of(path, folder), W_OK | X_OK) != 0) return refused(path, strerror(errno));
  return 0;
}

static bool ends_in(const char *text, const char *ending) {
  size_t n = strlen(text), m = strlen(ending);
  return n >= m && strcmp(text + n - m, ending) == 0;
}

static int check_trace(const char *path) {
  if (!path[0]) return 0;
  if (!ends_in(path, ".json") && !ends_in(path, ".html"))
    return cli_usage("%s: a trace is written to a file ending in .json or .html", path);
  return check_target(path);
}

/* Names of one file; links are followed. */
static bool same_target(const char *a, const char *b) {
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
      if (l->data[k].path && !is_device(path) && same_target(path, l->data[k].path))
        return cli_usage("--output writes both '%s' and '%s' to %s", l->data[k].info.name, name,
                         path);
    if (trace[0] && same_target(path, trace))
      return cli_usage("--output and --trace both write to %s", path);
    CLI_TRY(check_target(path));
  }
  return check_trace(trace);
}

/* ---- inputs from files ---- */
/* bf16 has no type in .npy: an f32 file is accepted and rounded. */
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
static int allocate(const run_state *s, const run_tensor *t, weir_array **result) {
  int64_t extents[WEIR_MAX_RANK];
  size_t rank;
  CLI_CALL(weir_shapes_of(s->shapes, t->tensor, extents, &rank));
  return cli_status(weir_array_create(t->info.dtype, extents, rank, NULL, result));
}

static bool has_elements(const weir_array *a) { return run_size_bytes(a) > 0; }

static int fill_input(const run_state *s, run_tensor *t) {
  if (t->value) return 0;
  uint64_t seed = (uint64_t)cli_int(s->c, "seed");
  int64_t bound;
  CLI_TRY(allocate(s, t, &t->value));
  CLI_CALL(weir_shapes_index_bound(s->shapes, t->tensor, &bound));
  if (bound > 0 && has_elements(t->value))
    return cli_status(weir_array_fill_index(t->value, bound, seed, t->info.name));
  return cli_status(weir_array_fill(t->value, cli_text(s->c, "fill", 0), seed, t->info.name));
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
  CLI_CALL(weir_shapes_complete(s->shapes));
  for (size_t i = 0; i < s->inputs.len; i++) CLI_TRY(fill_input(s, &s->inputs.data[i]));
  return 0;
}

/* ---- outputs ---- */
int run_allocate(const run_state *s, weir_array **(*slot)(run_tensor *t)) {
  for (size_t i = 0; i < s->outputs.len; i++) {
    run_tensor *t = &s->outputs.data[i];
    CLI_TRY(allocate(s, t, slot(t)));
  }
  return 0;
}

int run_save(const run_state *s) {
  const weir_array **arrays = calloc(s->outputs.len + 1, sizeof(const weir_array *));
  const char **paths = calloc(s->outputs.len + 1, sizeof *paths);
  int code = 0;
  size_t n = 0;
  for (size_t i = 0; arrays && paths && i < s->outputs.len; i++) {
    if (!s->outputs.data[i].path) continue;
    arrays[n] = s->outputs.data[i].value;
    paths[n++] = s->outputs.data[i].path;
  }
  if (arrays && paths) {
    code = cli_status(weir_arrays_save_npy(arrays, paths, n));
  } else {
    (void)cli_usage("out of memory");
    code = CLI_SYSTEM;
  }
  free((void *)arrays);
  free((void *)paths);
  return code;
}
