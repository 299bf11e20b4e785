#include "run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- measuring ---- */
enum { HEADER_BYTES = 16 }; /* keeps blocks aligned */

static void *meter_alloc(void *context, size_t size_bytes) {
  run_meter *m = context;
  if (size_bytes > SIZE_MAX - HEADER_BYTES) return NULL;
  char *block = malloc(size_bytes + HEADER_BYTES);
  if (!block) return NULL;
  memcpy(block, &size_bytes, sizeof size_bytes);
  m->live_bytes += (int64_t)size_bytes;
  if (m->live_bytes > m->peak_bytes) m->peak_bytes = m->live_bytes;
  return block + HEADER_BYTES;
}

static void meter_free(void *context, void *block) {
  run_meter *m = context;
  if (!block) return;
  char *start = (char *)block - HEADER_BYTES;
  size_t size_bytes;
  memcpy(&size_bytes, start, sizeof size_bytes);
  m->live_bytes -= (int64_t)size_bytes;
  free(start);
}

static double now_s(void) {
  struct timespec t;
  (void)clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- running ---- */
static weir_array **slot_value(run_tensor *t) { return &t->value; }
static weir_array **slot_again(run_tensor *t) { return &t->again; }

static const weir_dl_tensor *whole_of(const run_tensor *t, const weir_array *value) {
  return value || !t->bare.dtype.bits ? weir_array_tensor(value) : &t->bare;
}

static const weir_dl_tensor **tensors_of(const run_list *l, weir_array **(*slot)(run_tensor *)) {
  const weir_dl_tensor **list = calloc(l->len + 1, sizeof(const weir_dl_tensor *));
  for (size_t i = 0; list && i < l->len; i++) list[i] = whole_of(&l->data[i], *slot(&l->data[i]));
  return list;
}

/* With `rtol` whole outputs are compared with the definition; NULL: they are computed. */
static weir_status run_or_check(run_state *s, weir_run_args *args, const double *rtol) {
  if (!rtol) return weir_run(s->program, args);
  weir_verdict *verdicts = calloc(s->outputs.len + 1, sizeof *verdicts);
  weir_status st = verdicts ? weir_check(s->program, args, *rtol, verdicts) : WEIR_OUT_OF_MEMORY;
  for (size_t i = 0; st == WEIR_OK && i < s->outputs.len; i++)
    s->outputs.data[i].verdict = verdicts[i];
  free(verdicts);
  return st;
}

static int run_into(run_state *s, weir_array **(*slot)(run_tensor *), const double *rtol) {
  const weir_dl_tensor **inputs = tensors_of(&s->inputs, slot_value);
  const weir_dl_tensor **outputs = tensors_of(&s->outputs, slot);
  run_shard_lists in = {0}, out = {0};
  int64_t *donated = rtol ? NULL : run_donated_list(s);
  bool made = rtol || (run_shard_lists_make(&s->inputs, false, &in) &&
                       run_shard_lists_make(&s->outputs, slot == slot_again, &out) && donated);
  for (size_t i = 0; i < s->outputs.len && made && inputs && outputs && !rtol; i++) {
    if (donated[i] < 0) continue;
    inputs[donated[i]] = outputs[i];
    if (in.lists && in.lists[donated[i]])
      memcpy((void *)in.lists[donated[i]], out.lists[i],
             s->outputs.data[i].n_shards * sizeof(void *));
  }
  weir_run_args args = {.struct_size = sizeof args,
                        .inputs = inputs,
                        .n_inputs = s->inputs.len,
                        .outputs = outputs,
                        .n_outputs = s->outputs.len,
                        .seed = (uint64_t)cli_int(s->c, "seed"),
                        .check_rows = cli_int(s->c, "sample"),
                        .profile = rtol || !s->is_last ? NULL : s->profile,
                        .input_shards = in.lists,
                        .output_shards = out.lists,
                        .donated = donated,
                        .shapes = s->shapes};
  int code =
      inputs && outputs && made ? cli_status(run_or_check(s, &args, rtol)) : run_out_of_memory();
  free((void *)inputs);
  free((void *)outputs);
  free(donated);
  run_shard_lists_free(&in);
  run_shard_lists_free(&out);
  return code;
}

/* ---- repeating ---- */
static bool same_bytes(const weir_array *a, const weir_array *b) {
  if (!a || !b) return true; /* the device has no shard */
  return memcmp(weir_array_tensor(a)->data, weir_array_tensor(b)->data, run_size_bytes(a)) == 0;
}

static bool same_output(const run_tensor *t) {
  bool same = t->sharded || !t->value || same_bytes(t->value, t->again);
  for (size_t k = 0; k < t->n_shards; k++)
    same = same && same_bytes(t->shards[k].value, t->shards[k].again);
  return same;
}

static int same_again(const run_state *s, size_t run) {
  for (size_t i = 0; i < s->outputs.len; i++) {
    const run_tensor *t = &s->outputs.data[i];
    if (same_output(t)) continue;
    (void)fprintf(stderr, "weir: error: run %zu gave another %s than the first run\n", run + 1,
                  t->info.name);
    return CLI_FAILED;
  }
  return 0;
}

static int by_size(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static int64_t allocations_of(const run_state *s) {
  weir_counts n = {.struct_size = sizeof n};
  return weir_program_counts(s->program, &n) == WEIR_OK ? n.allocations : 0;
}

static int run_repeats(run_state *s) {
  size_t n = (size_t)cli_int(s->c, "repeat");
  s->times_s = calloc(n, sizeof *s->times_s);
  if (!s->times_s) return run_out_of_memory();
  CLI_TRY(run_allocate(s, slot_value));
  if (n > 1) CLI_TRY(run_allocate(s, slot_again));
  for (size_t i = 0; i < n; i++) {
    s->is_last = i + 1 == n;
    if (i == 1) s->allocations = -allocations_of(s);
    if (i > 1 && s->is_last) s->allocations += allocations_of(s);
    run_fill_donated(s, i == 0 ? slot_value : slot_again, i > 0);
    double start = now_s();
    CLI_TRY(run_into(s, i == 0 ? slot_value : slot_again, NULL));
    s->times_s[s->n_times++] = now_s() - start;
    if (i > 0) CLI_TRY(same_again(s, i));
  }
  qsort(s->times_s, n, sizeof *s->times_s, by_size);
  return run_check_donated(s);
}

/* ---- checking ---- */
static int check_outputs(run_state *s) {
  if (!cli_flag(s->c, "check")) return 0;
  int64_t peak_bytes = s->meter.peak_bytes; /* the check's own memory does not count */
  int code = run_into(s, slot_value, &s->rtol);
  s->meter.peak_bytes = peak_bytes;
  CLI_TRY(code);
  for (size_t i = 0; i < s->outputs.len; i++)
    if (!s->outputs.data[i].verdict.ok) s->check_failed = true;
  return 0;
}

/* Takes the tolerance; 0: what rounding explains. */
static int take_rtol(run_state *s) {
  const char *text = cli_text(s->c, "rtol", 0);
  char *end = NULL;
  if (cli_int(s->c, "sample") && !cli_flag(s->c, "check"))
    return cli_usage("--sample is for --check, which is not given");
  if (!text[0]) return 0;
  s->rtol = strtod(text, &end);
  if (*end || !(s->rtol > 0) || s->rtol > 1e300)
    return cli_usage("--rtol needs a number above 0, as in 1e-3; not '%s'", text);
  if (!cli_flag(s->c, "check")) return cli_usage("--rtol is for --check, which is not given");
  return 0;
}

/* ---- the command ---- */
static int compile(run_state *s) {
  weir_allocator memory = {meter_alloc, meter_free, &s->meter};
  CLI_CALL(weir_compile(s->fusion, s->c->options, &memory, &s->program));
  s->meter = (run_meter){0}; /* measure only what running needs */
  const char *device = weir_program_device(s->program);
  bool wants_values = cli_flag(s->c, "check") || cli_text(s->c, "output", 0);
  if (!s->computes && wants_values)
    return cli_usage("--device %s computes no values to check or write", device);
  if (cli_text(s->c, "trace", 0)[0] && strcmp(device, "ref") == 0)
    return cli_usage("there is nothing to trace: the reference evaluator executes this program");
  if (cli_flag(s->c, "stats") || cli_text(s->c, "trace", 0)[0] || strcmp(device, "sim") == 0)
    CLI_CALL(weir_profile_create(&s->profile));
  return 0;
}

/* ---- traces ---- */
/* Is there one file per device, x.%r.html? */
static bool trace_is_per_rank(const run_state *s) {
  bool per_rank = false;
  (void)run_check_pattern("trace", cli_text(s->c, "trace", 0), &per_rank);
  return per_rank;
}

/* Gathers the trace of all processes, which rank 0 writes to one file. */
static int gather_trace(const run_state *s) {
  if (!cli_text(s->c, "trace", 0)[0] || trace_is_per_rank(s)) return 0;
  return cli_status(weir_profile_gather(s->program, s->profile));
}

static int write_rank(const run_state *s, size_t i) {
  weir_rank_stats r = {.struct_size = sizeof r};
  CLI_CALL(weir_profile_rank_stats(s->profile, i, &r));
  char *path = run_expand(cli_text(s->c, "trace", 0), r.device);
  if (!path) return run_out_of_memory();
  int code = cli_status(weir_profile_write_rank(s->profile, i, weir_fusion_name(s->fusion), path));
  free(path);
  return code;
}

static int write_trace(const run_state *s) {
  const char *pattern = cli_text(s->c, "trace", 0);
  if (!pattern[0]) return 0;
  if (trace_is_per_rank(s)) {
    for (size_t i = 0; i < weir_profile_ranks(s->profile); i++) CLI_TRY(write_rank(s, i));
    return 0;
  }
  char *path = run_expand(pattern, 0);
  if (!path) return run_out_of_memory();
  int code = cli_status(weir_profile_write(s->profile, weir_fusion_name(s->fusion), path));
  free(path);
  return code;
}

/* Under a launcher, rank 0 prints for all: it has the whole outputs. */
static int conclude(run_state *s) {
  if (weir_launch_rank() > 0) return trace_is_per_rank(s) ? write_trace(s) : 0;
  CLI_TRY(cli_notes(s->c, s->program));
  CLI_TRY(check_outputs(s));
  CLI_TRY(run_report(s));
  return s->check_failed ? CLI_FAILED : write_trace(s);
}

/* Files are written when everything else is done: a failure leaves none. From compiling on, other
 * processes may wait for this one, so it says that it is busy. */
static int execute(run_state *s, const char *path) {
  const char *fusion = cli_text(s->c, "fusion", 0);
  const char *device = cli_text(s->c, "device", 0);
  s->computes = strcmp(device, "sim") != 0 && strcmp(device, "null") != 0;
  CLI_TRY(take_rtol(s));
  CLI_TRY(cli_load(path, &s->module));
  CLI_CALL(weir_module_find(s->module, fusion[0] ? fusion : NULL, &s->fusion));
  CLI_TRY(cli_check_devices(s->c, s->fusion));
  CLI_TRY(run_prepare(s));
  CLI_TRY(run_take_donations(s));
  CLI_TRY(compile(s));
  weir_program_busy(s->program, true);
  CLI_TRY(run_take_shards(s));
  CLI_TRY(run_repeats(s));
  CLI_TRY(run_join_outputs(s));
  CLI_TRY(gather_trace(s));
  CLI_TRY(run_bound(s));
  return run_save(s, conclude(s));
}

static void free_state(run_state *s) {
  run_list_free(&s->inputs);
  run_list_free(&s->outputs);
  free(s->times_s);
  weir_profile_destroy(s->profile);
  weir_program_destroy(s->program);
  weir_shapes_destroy(s->shapes);
  weir_module_destroy(s->module);
}

int cli_run(const cli *c) {
  const char *path;
  CLI_TRY(cli_file(c, &path));
  run_state s = {.c = c, .repeats = cli_int(c, "repeat") > 1};
  cli_show_progress(c);
  int code = execute(&s, path);
  free_state(&s);
  return code;
}
