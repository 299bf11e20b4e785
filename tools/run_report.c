#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "run.h"

static int64_t count(const weir_dl_tensor *t) {
  int64_t n = 1;
  for (int i = 0; i < t->ndim; i++) n *= t->shape[i];
  return n;
}

static int64_t count_of(const weir_array *a) { return count(weir_array_tensor(a)); }

static size_t tensor_bytes(const weir_dl_tensor *t) {
  weir_dtype dtype = WEIR_F32;
  (void)weir_dtype_from_dl(t->dtype, &dtype);
  return (size_t)count(t) * weir_dtype_size_bytes(dtype);
}

size_t run_size_bytes(const weir_array *a) { return tensor_bytes(weir_array_tensor(a)); }

/* ---- summaries of values ---- */
typedef struct summary {
  double min, max, mean; /* nan where any element is */
  bool empty;
} summary;

/* Does `value` replace `best` as the smallest or largest so far? nan does, as in NumPy. */
static bool replaces(double value, double best, bool smaller) {
  if (isnan(best)) return false;
  return isnan(value) || (smaller ? value < best : value > best);
}

static int summarise(const weir_array *a, summary *result) {
  weir_array *wide = NULL;
  CLI_CALL(weir_array_convert(a, WEIR_F64, &wide));
  const double *values = weir_array_tensor(wide)->data;
  int64_t n = count_of(a);
  summary s = {INFINITY, -INFINITY, 0, n == 0};
  for (int64_t i = 0; i < n; i++) {
    if (replaces(values[i], s.min, true)) s.min = values[i];
    if (replaces(values[i], s.max, false)) s.max = values[i];
    s.mean += (values[i] - s.mean) / (double)(i + 1);
  }
  if (isinf(s.min) || isinf(s.max)) s.mean = s.min + s.max;
  weir_array_destroy(wide);
  *result = s;
  return 0;
}

/* ---- text ---- */
static void print_type(const run_state *s, const run_tensor *t) {
  int64_t extents[WEIR_MAX_RANK];
  size_t rank = 0;
  (void)weir_shapes_of(s->shapes, t->tensor, extents, &rank);
  (void)printf("%s", weir_dtype_text(t->info.dtype));
  for (size_t i = 0; i < rank; i++) (void)printf("%s%" PRId64, i ? ", " : "[", extents[i]);
  if (rank) (void)printf("]");
}

/* Prints a summary of an output; if it is written as shards, only its files. */
static int print_output(const run_state *s, const run_tensor *t) {
  summary m = {.empty = true};
  if (t->value) CLI_TRY(summarise(t->value, &m));
  (void)printf("%s: ", t->info.name);
  print_type(s, t);
  if (!t->value) (void)printf(" in %s\n", t->pattern);
  else if (m.empty) (void)printf(" empty\n");
  else (void)printf(" min=%.6g max=%.6g mean=%.6g\n", m.min, m.max, m.mean);
  return 0;
}

static void print_check(const run_state *s, const run_tensor *t) {
  const weir_verdict *v = &t->verdict;
  (void)printf("check: %s max_abs=%.3g max_rel=%.3g %s%s%s\n", t->info.name, v->max_abs, v->max_rel,
               cli_colour(stdout, v->ok ? "32" : "31"), v->ok ? "ok" : "FAILED",
               cli_colour(stdout, "0"));
  if (v->ok) return;
  (void)printf("check: %s", t->info.name);
  for (size_t i = 0; i < t->info.rank; i++) (void)printf("%s%" PRId64, i ? ", " : "[", v->index[i]);
  (void)printf("%s is %.9g, but %.9g by its definition; %s %.3g\n", t->info.rank ? "]" : "",
               v->value, v->reference, s->rtol > 0 ? "--rtol allows" : "rounding explains",
               v->tolerance);
  (void)printf("check: %s %" PRId64 " of %" PRId64 " elements are wrong\n", t->info.name,
               v->n_wrong, v->n_elements);
}

typedef struct timing {
  double min, median, max, total;
} timing;

static timing timing_of(const run_state *s) {
  size_t n = s->n_times;
  const double *t = s->times_s; /* sorted */
  timing r = {t[0], 0.5 * (t[(n - 1) / 2] + t[n / 2]), t[n - 1], 0};
  for (size_t i = 0; i < n; i++) r.total += t[i];
  return r;
}

static size_t bytes_of(const run_list *l) {
  size_t bytes = 0;
  for (size_t i = 0; i < l->len; i++) {
    const run_tensor *t = &l->data[i];
    if (!t->sharded) bytes += t->value ? run_size_bytes(t->value) : tensor_bytes(&t->bare);
    for (size_t k = 0; k < t->n_shards; k++)
      if (t->shards[k].value) bytes += run_size_bytes(t->shards[k].value);
  }
  return bytes;
}

static bool profiled(const run_state *s, weir_stats *stats) {
  *stats = (weir_stats){.struct_size = sizeof *stats};
  return weir_profile_filled(s->profile) && weir_profile_stats(s->profile, stats) == WEIR_OK;
}

/* One line per device of this process, if the program has several. */
static void print_ranks(const run_state *s) {
  size_t n = weir_profile_ranks(s->profile);
  for (size_t i = 0; i < n; i++) {
    weir_rank_stats r = {.struct_size = sizeof r};
    if (weir_profile_rank_stats(s->profile, i, &r) != WEIR_OK || (n == 1 && r.posts == 0)) continue;
    (void)printf("stats: on=%" PRId64 " compute_s=%.6g communication_s=%.6g both_s=%.6g "
                 "bytes_sent=%.0f bytes_received=%.0f communications=%" PRId64 "\n",
                 r.device, (double)r.compute_ns * 1e-9, (double)r.comm_ns * 1e-9,
                 (double)r.both_ns * 1e-9, r.sent_bytes, r.received_bytes, r.posts);
  }
}

/* Prints how often something was bound, loaded and so on, in how many runs. */
static void print_counts(const run_state *s) {
  weir_counts n = {.struct_size = sizeof n};
  if (weir_program_counts(s->program, &n) != WEIR_OK) return;
  (void)printf("stats: runs=%" PRId64 " bindings=%" PRId64 " loads=%" PRId64, n.runs, n.bindings,
               n.loads);
  if (n.in_place + n.copied > 0)
    (void)printf(" in_place=%" PRId64 " copied=%" PRId64, n.in_place, n.copied);
  if (s->n_times > 2) (void)printf(" allocations_between_runs=%" PRId64, s->allocations);
  (void)printf("\n");
}

/* Only for devices that compute: runs on the others are predictions themselves. */
int run_bound(run_state *s) {
  const char *device = weir_program_device(s->program);
  if (!cli_flag(s->c, "stats") || !s->computes || strcmp(device, "ref") == 0) return 0;
  s->bound.struct_size = sizeof s->bound;
  return cli_status(weir_program_bound(s->program, s->shapes, &s->bound, NULL, NULL));
}

/* Prints the bound, the prediction of the model, and the time of the last run. */
static void print_bound(const run_state *s, const weir_stats *p) {
  const weir_bound *b = &s->bound;
  double run_s = (double)p->wall_ns * 1e-9;
  if (b->bound_s <= 0 || b->predicted_s <= 0) return;
  (void)printf("stats: bound_s=%.6g predicted_s=%.6g measured_s=%.6g measured/bound=%.2f "
               "measured/predicted=%.2f\n",
               b->bound_s, b->predicted_s, run_s, run_s / b->bound_s, run_s / b->predicted_s);
}

static void print_stats(const run_state *s, double total_s) {
  weir_stats p;
  (void)printf("stats: device=%s wall_s=%.6g input_bytes=%zu output_bytes=%zu "
               "peak_buffer_bytes=%" PRId64 "\n",
               weir_program_device(s->program), total_s, bytes_of(&s->inputs),
               bytes_of(&s->outputs), s->meter.peak_bytes);
  if (!profiled(s, &p)) return;
  print_counts(s);
  int64_t instrs = p.launches + p.waits;
  (void)printf("stats: run_s=%.6g compute_s=%.6g at_once_s=%.6g communication_s=%.6g both_s=%.6g "
               "bytes_sent=%.0f\n",
               (double)p.wall_ns * 1e-9, (double)p.compute_ns * 1e-9, (double)p.overlap_ns * 1e-9,
               (double)p.comm_ns * 1e-9, (double)p.both_ns * 1e-9, p.sent_bytes);
  print_ranks(s);
  print_bound(s, &p);
  (void)printf("stats: launches=%" PRId64 " waits=%" PRId64 " host_ns_per_instruction=%.1f "
               "pool_bytes=%" PRId64 " flops=%.6g bytes=%.6g\n",
               p.launches, p.waits, instrs ? (double)p.host_ns / (double)instrs : 0.0, p.pool_bytes,
               p.flops, p.bytes);
}

/* ---- the critical path of a run on a virtual clock ---- */
enum { PATH_LINES = 20, PATH_HEAD = 10 };

/* If the path is long, only the first and the last steps are shown. */
static bool path_shown(size_t i, size_t n) {
  return n <= PATH_LINES || i < PATH_HEAD || i + (PATH_LINES - 1 - PATH_HEAD) >= n;
}

static bool path_step(const run_state *s, size_t i, weir_path_step *step) {
  *step = (weir_path_step){.struct_size = sizeof *step};
  return weir_profile_path_step(s->profile, i, step) == WEIR_OK;
}

static bool is_virtual(const run_state *s) {
  return strcmp(weir_program_device(s->program), "sim") == 0;
}

static void print_step(const weir_path_step *step) {
  (void)printf("path: %10.3f us to %10.3f us  ", (double)step->start_ns * 1e-3,
               (double)step->end_ns * 1e-3);
  if (step->stream < 0) (void)printf("main      ");
  else (void)printf("stream %-3" PRId64, step->stream);
  (void)printf(" #%" PRId64 " %s\n", step->instr, step->text);
}

/* Prints the time; with --stats also the steps. */
static void print_path(const run_state *s) {
  size_t n = weir_profile_path_count(s->profile);
  weir_stats p;
  weir_path_step step;
  if (!is_virtual(s) || !profiled(s, &p)) return;
  (void)printf("path: virtual_s=%.6g critical_tasks=%zu%s\n", (double)p.wall_ns * 1e-9, n,
               n ? "" : " (the host takes longer to issue than any task)");
  for (size_t i = 0; i < n && cli_flag(s->c, "stats"); i++) {
    if (path_shown(i, n) && path_step(s, i, &step)) print_step(&step);
    else if (i == PATH_HEAD) (void)printf("path: … and %zu more\n", n - (PATH_LINES - 1));
  }
}

static int report_text(const run_state *s) {
  bool check = cli_flag(s->c, "check"), quiet = cli_flag(s->c, "quiet");
  timing t = timing_of(s);
  for (size_t i = 0; i < s->outputs.len; i++) {
    bool wrong = check && !s->outputs.data[i].verdict.ok;
    if (quiet && !wrong) continue;
    if (check) print_check(s, &s->outputs.data[i]);
    else if (s->computes) CLI_TRY(print_output(s, &s->outputs.data[i]));
  }
  if (quiet) return 0;
  if (s->n_times > 1)
    (void)printf("time: min %.6g s, median %.6g s, max %.6g s of %zu runs\n", t.min, t.median,
                 t.max, s->n_times);
  if (cli_flag(s->c, "stats")) print_stats(s, t.total);
  print_path(s);
  return 0;
}

/* ---- JSON ---- */
/* JSON has no infinities: they are strings. */
static void json_number(const char *key, double value) {
  (void)printf("\"%s\": ", key);
  if (isnan(value)) (void)printf("\"nan\"");
  else if (isinf(value)) (void)printf(value < 0 ? "\"-inf\"" : "\"inf\"");
  else (void)printf("%.17g", value);
}

static int json_output(const run_state *state, const run_tensor *t) {
  int64_t extents[WEIR_MAX_RANK];
  size_t rank = 0;
  summary s = {.empty = true};
  CLI_CALL(weir_shapes_of(state->shapes, t->tensor, extents, &rank));
  if (t->value) CLI_TRY(summarise(t->value, &s));
  (void)printf("{");
  cli_json_string("name", t->info.name);
  (void)printf(", ");
  cli_json_string("dtype", weir_dtype_text(t->info.dtype));
  (void)printf(", \"shape\": [");
  for (size_t i = 0; i < rank; i++) (void)printf("%s%" PRId64, i ? ", " : "", extents[i]);
  (void)printf("]");
  const double values[] = {s.min, s.max, s.mean};
  const char *const keys[] = {"min", "max", "mean"};
  for (int i = 0; i < 3 && !s.empty && state->computes; i++) {
    (void)printf(", ");
    json_number(keys[i], values[i]);
  }
  (void)printf("}");
  return 0;
}

static void json_check(const run_tensor *t) {
  const weir_verdict *v = &t->verdict;
  const char *keys[] = {"max_abs", "max_rel", "value", "reference", "tolerance"};
  double numbers[] = {v->max_abs, v->max_rel, v->value, v->reference, v->tolerance};
  (void)printf("{");
  cli_json_string("name", t->info.name);
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    (void)printf(", ");
    json_number(keys[i], numbers[i]);
  }
  (void)printf(", \"index\": [");
  for (size_t i = 0; i < t->info.rank; i++) (void)printf("%s%" PRId64, i ? ", " : "", v->index[i]);
  (void)printf("], \"elements\": %" PRId64 ", \"wrong\": %" PRId64 ", \"ok\": %s}", v->n_elements,
               v->n_wrong, v->ok ? "true" : "false");
}

static void json_times(const run_state *s) {
  timing t = timing_of(s);
  (void)printf(", \"times_s\": {\"runs\": %zu, ", s->n_times);
  json_number("min", t.min);
  (void)printf(", ");
  json_number("median", t.median);
  (void)printf(", ");
  json_number("max", t.max);
  (void)printf("}");
}

static void json_step(const weir_path_step *step, const char *separator) {
  (void)printf("%s{\"instruction\": %" PRId64 ", \"stream\": %" PRId64 ", ", separator, step->instr,
               step->stream);
  json_number("start_s", (double)step->start_ns * 1e-9);
  (void)printf(", ");
  json_number("end_s", (double)step->end_ns * 1e-9);
  (void)printf(", ");
  cli_json_string("text", step->text);
  (void)printf("}");
}

/* Prints the same steps as in the text; `tasks` is how many there are. */
static void json_path(const run_state *s) {
  size_t n = weir_profile_path_count(s->profile);
  weir_stats p;
  weir_path_step step;
  if (!is_virtual(s) || !profiled(s, &p)) return;
  (void)printf(", \"critical_path\": {");
  json_number("virtual_s", (double)p.wall_ns * 1e-9);
  (void)printf(", \"tasks\": %zu, \"steps\": [", n);
  for (size_t i = 0; i < n; i++)
    if (path_shown(i, n) && path_step(s, i, &step)) json_step(&step, i ? ", " : "");
  (void)printf("]}");
}

typedef struct figure {
  const char *key;
  double value;
} figure;

static void json_figures(const figure *list, size_t n, const char *separator) {
  for (size_t i = 0; i < n; i++) {
    (void)fputs(i ? ", " : separator, stdout);
    json_number(list[i].key, list[i].value);
  }
}

static void json_ranks(const run_state *s) {
  const char *separator = "";
  (void)printf(", \"devices\": [");
  for (size_t i = 0; i < weir_profile_ranks(s->profile); i++) {
    weir_rank_stats r = {.struct_size = sizeof r};
    if (weir_profile_rank_stats(s->profile, i, &r) != WEIR_OK) continue;
    const figure all[] = {{"on", (double)r.device},
                          {"compute_s", (double)r.compute_ns * 1e-9},
                          {"communication_s", (double)r.comm_ns * 1e-9},
                          {"both_s", (double)r.both_ns * 1e-9},
                          {"bytes_sent", r.sent_bytes},
                          {"bytes_received", r.received_bytes},
                          {"communications", (double)r.posts}};
    (void)printf("%s{", separator);
    json_figures(all, sizeof all / sizeof *all, "");
    (void)printf("}");
    separator = ", ";
  }
  (void)printf("]");
}

static void json_counts(const run_state *s) {
  weir_counts n = {.struct_size = sizeof n};
  if (weir_program_counts(s->program, &n) != WEIR_OK) return;
  const figure all[] = {{"runs", (double)n.runs},
                        {"bindings", (double)n.bindings},
                        {"loads", (double)n.loads},
                        {"in_place", (double)n.in_place},
                        {"copied", (double)n.copied}};
  json_figures(all, sizeof all / sizeof *all, ", ");
}

static void json_profile(const run_state *s, const weir_stats *p) {
  int64_t instrs = p->launches + p->waits;
  const figure all[] = {
      {"run_s", (double)p->wall_ns * 1e-9},
      {"compute_s", (double)p->compute_ns * 1e-9},
      {"at_once_s", (double)p->overlap_ns * 1e-9},
      {"communication_s", (double)p->comm_ns * 1e-9},
      {"both_s", (double)p->both_ns * 1e-9},
      {"bytes_sent", p->sent_bytes},
      {"bound_s", s->bound.bound_s},
      {"predicted_s", s->bound.predicted_s},
      {"host_s", (double)p->host_ns * 1e-9},
      {"host_ns_per_instruction", instrs ? (double)p->host_ns / (double)instrs : 0},
      {"launches", (double)p->launches},
      {"waits", (double)p->waits},
      {"pool_bytes", (double)p->pool_bytes},
      {"flops", p->flops},
      {"bytes", p->bytes}};
  json_figures(all, sizeof all / sizeof *all, ", ");
  json_counts(s);
  json_ranks(s);
}

/* Prints what the lines `stats:` of the text say. */
static void json_stats(const run_state *s) {
  (void)printf(", \"stats\": {");
  weir_stats p;
  cli_json_string("device", weir_program_device(s->program));
  (void)printf(", ");
  json_number("wall_s", timing_of(s).total);
  if (profiled(s, &p)) json_profile(s, &p);
  (void)printf(", \"input_bytes\": %zu, \"output_bytes\": %zu, \"peak_buffer_bytes\": %" PRId64 "}",
               bytes_of(&s->inputs), bytes_of(&s->outputs), s->meter.peak_bytes);
}

static int report_json(const run_state *s) {
  (void)printf("{");
  cli_json_string("fusion", weir_fusion_name(s->fusion));
  (void)printf(", \"outputs\": [");
  for (size_t i = 0; i < s->outputs.len; i++) {
    (void)fputs(i ? ", " : "", stdout);
    CLI_TRY(json_output(s, &s->outputs.data[i]));
  }
  (void)printf("], \"checks\": [");
  for (size_t i = 0; cli_flag(s->c, "check") && i < s->outputs.len; i++) {
    (void)fputs(i ? ", " : "", stdout);
    json_check(&s->outputs.data[i]);
  }
  (void)printf("]");
  json_times(s);
  json_path(s);
  if (cli_flag(s->c, "stats")) json_stats(s);
  (void)printf("}\n");
  return 0;
}

/* Fails if the report could not be printed; then no file is written either. The command prints the reason at its
 * end. */
int run_report(const run_state *s) {
  CLI_TRY(cli_flag(s->c, "json") ? report_json(s) : report_text(s));
  return fflush(stdout) == 0 && !ferror(stdout) ? 0 : CLI_SYSTEM;
}
