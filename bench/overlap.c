/* Overlap of communication and computation between two ranks, for mpirun; bench/overlap/run starts it.
 *
 * AG+matmul: half of the rows of `a` lie on each rank; every rank needs all of them times `b`.
 * matmul+AR: each rank has half of the inner dimension; the products are added up over the ranks.
 *
 * Per size, interleaved and repeated: computation alone, communication alone, one after the other
 * (plain), overlapped (pipelined), and what --pipeline auto takes. The limit is the longer of the first
 * two. Times are medians on rank 0, of the run itself: handing over inputs and outputs does not count.
 *
 * Without arguments and without mpirun it says how to run it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <weir/weir.h>

enum { MOST_REPEATS = 51, MOST_TENSORS = 4 };

static void must(weir_status status) {
  if (status == WEIR_OK) return;
  fprintf(stderr, "%s\n", weir_error());
  exit(weir_exit_code(status));
}

/* ---- programs ---- */
typedef struct program {
  weir_module *module;
  weir_fusion *fusion;
  weir_program *compiled;
  weir_profile *profile;
  weir_array *arrays[2 * MOST_TENSORS];
  const weir_dl_tensor *inputs[MOST_TENSORS], *outputs[MOST_TENSORS];
  size_t n_inputs, n_outputs;
  double times_ms[MOST_REPEATS];
} program;

/* For every program: `dims` are the extents of a (slices, ranks, rows, inner) and of b. */
static const char *const texts[] = {
    "fusion sync { mesh d = [2]\n a : f32[2, 8]\n c = sum(a, dims=[0])\n return c\n"
    " schedule { a, c on d; a[0] = mesh.x } }",
    "fusion ag_compute { mesh d = [2]\n a : f32[s, 2, m, k]\n b : f32[k, n]\n c = matmul(a, b)\n"
    " return c\n schedule { a, b, c on d } }",
    "fusion ag_comm { mesh d = [2]\n a : f32[2, r, k]\n c = set(a)\n return c\n"
    " schedule { a, c on d; a[0] = mesh.x } }",
    "fusion ag { mesh d = [2]\n a : f32[s, 2, m, k]\n b : f32[k, n]\n c = matmul(a, b)\n return c\n"
    " schedule { a, b, c on d; a[1] = mesh.x; c[0] = stream } }",
    "fusion ag_plain { mesh d = [2]\n a : f32[2, r, k]\n b : f32[k, n]\n c = matmul(a, b)\n return "
    "c\n"
    " schedule { a, b, c on d; a[0] = mesh.x } }",
    "fusion ar_compute { mesh d = [2]\n a : f32[2, m, k]\n b : f32[2, k, n]\n c = matmul(a, b)\n"
    " return c\n schedule { a, b, c on d; a[0] = mesh.x; b[0] = mesh.x; c[0] = mesh.x } }",
    "fusion ar_comm { mesh d = [2]\n a : f32[2, m, n]\n c = sum(a, dims=[0])\n return c\n"
    " schedule { a, c on d; a[0] = mesh.x } }",
    "fusion ar_plain { mesh d = [2]\n a : f32[2, m, k]\n b : f32[2, k, n]\n u = matmul(a, b)\n"
    " c = sum(u, dims=[0])\n return c\n schedule { a, b, u, c on d; a[0] = mesh.x; b[0] = mesh.x;"
    " u[0] = mesh.x } }",
};

/* matmul+AR with slices that get shorter at the end: what comes last overlaps with nothing. */
static const char *sliced_ar(int slices, int rows) {
  static char text[2048];
  char list[512];
  int left = slices * rows, last = rows / 2, used = 0;
  int each = (left - last - last / 2) / (slices - 2);
  for (int i = 0; i < slices; i++) {
    int n = i < slices - 2 ? each : i < slices - 1 ? last : left;
    used += snprintf(list + used, sizeof list - (size_t)used, "%s%d", i ? ", " : "", n);
    left -= n;
  }
  (void)snprintf(
      text, sizeof text,
      "fusion ar { mesh d = [2]\n a : f32[2, m, k]\n b : f32[2, k, n]\n u = matmul(a, b)\n"
      " c = sum(u, dims=[0])\n return c\n schedule { a, b, u, c on d; a[0] = mesh.x;"
      " b[0] = mesh.x; u[0] = mesh.x; u.outer_split(1, [%s]); u[1] = stream;"
      " c.outer_split(1, [%s]); c[1] = stream } }",
      list, list);
  return text;
}

static const char *text_of(const char *name) {
  char begin[64];
  (void)snprintf(begin, sizeof begin, "fusion %s ", name);
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    if (strncmp(texts[i], begin, strlen(begin)) == 0) return texts[i];
  }
  abort();
}

static weir_array *make_array(const weir_shapes *shapes, weir_tensor t) {
  int64_t extents[16];
  size_t rank = 16;
  weir_array *a;
  must(weir_shapes_of(shapes, t, extents, &rank));
  must(weir_array_create(WEIR_F32, extents, rank, NULL, &a));
  must(weir_array_fill(a, "int", 1, "a"));
  return a;
}

static void make_tensors(program *p, const weir_shapes *shapes) {
  weir_tensor t;
  p->n_inputs = weir_fusion_input_count(p->fusion);
  p->n_outputs = weir_fusion_output_count(p->fusion);
  for (size_t i = 0; i < p->n_inputs + p->n_outputs; i++) {
    bool in = i < p->n_inputs;
    must(in ? weir_fusion_input_at(p->fusion, i, &t)
            : weir_fusion_output_at(p->fusion, i - p->n_inputs, &t));
    p->arrays[i] = make_array(shapes, t);
    *(in ? &p->inputs[i] : &p->outputs[i - p->n_inputs]) = weir_array_tensor(p->arrays[i]);
  }
}

/* `defines`: "s=8 m=128 …", only those that the program knows. */
static program open_text(const char *name, const char *text, const char *defines,
                         const char *pipeline) {
  program p = {0};
  weir_options *o;
  weir_shapes *shapes;
  char list[256];
  must(weir_module_parse(name, text, strlen(text), NULL, &p.module));
  must(weir_module_find(p.module, NULL, &p.fusion));
  must(weir_shapes_create(p.fusion, &shapes));
  (void)snprintf(list, sizeof list, "%s", defines);
  for (char *word = strtok(list, " "); word; word = strtok(NULL, " "))
    must(weir_shapes_define(shapes, word));
  must(weir_shapes_complete(shapes));
  must(weir_options_create(&o));
  must(weir_options_set(o, "pipeline", pipeline));
  must(weir_options_set(o, "threads", "1"));
  must(weir_compile(p.fusion, o, NULL, &p.compiled));
  must(weir_profile_create(&p.profile));
  make_tensors(&p, shapes);
  weir_options_destroy(o);
  weir_shapes_destroy(shapes);
  return p;
}

static program open_program(const char *name, const char *defines, const char *pipeline) {
  return open_text(name, text_of(name), defines, pipeline);
}

static void close_program(program *p) {
  for (size_t i = 0; i < p->n_inputs + p->n_outputs; i++) weir_array_destroy(p->arrays[i]);
  weir_profile_destroy(p->profile);
  weir_program_destroy(p->compiled);
  weir_module_destroy(p->module);
}

static double run_ms(program *p) {
  weir_run_args args = {.struct_size = sizeof args,
                        .inputs = p->inputs,
                        .n_inputs = p->n_inputs,
                        .outputs = p->outputs,
                        .n_outputs = p->n_outputs,
                        .profile = p->profile};
  weir_stats stats = {.struct_size = sizeof stats};
  must(weir_run(p->compiled, &args));
  must(weir_profile_stats(p->profile, &stats));
  return (double)stats.wall_ns * 1e-6;
}

/* ---- measuring ---- */
static int by_size(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double median(double *times, int n) {
  qsort(times, (size_t)n, sizeof *times, by_size);
  return times[n / 2];
}

/* All programs in turn, so that a slow moment of the machine meets all of them. */
static void measure(program **programs, int n, int repeats, program *sync) {
  for (int r = -1; r < repeats; r++) {
    for (int i = 0; i < n; i++) {
      (void)run_ms(sync);
      double ms = run_ms(programs[i]);
      if (r >= 0) programs[i]->times_ms[r] = ms;
    }
  }
}

typedef struct contest {
  const char *what; /* ag or ar */
  int s, m, k, n; /* slices, rows per slice (ag: and rank), inner dimension per rank (ag: whole) */
} contest;

static void defines_of(const contest *c, bool whole, char *text, size_t size) {
  if (strcmp(c->what, "ag") == 0) {
    if (whole) (void)snprintf(text, size, "r=%d k=%d n=%d", c->s * c->m, c->k, c->n);
    else (void)snprintf(text, size, "s=%d m=%d k=%d n=%d", c->s, c->m, c->k, c->n);
  } else {
    if (whole) (void)snprintf(text, size, "m=%d k=%d n=%d", c->s * c->m, c->k, c->n);
    else (void)snprintf(text, size, "s=%d m=%d k=%d n=%d", c->s, c->m, c->k, c->n);
  }
}

static void run_contest(const contest *c, int repeats, program *sync) {
  char whole[128], sliced[128], comm[128], name[32];
  defines_of(c, true, whole, sizeof whole);
  defines_of(c, false, sliced, sizeof sliced);
  bool ag = strcmp(c->what, "ag") == 0;
  if (ag) (void)snprintf(comm, sizeof comm, "r=%d k=%d", c->s * c->m, c->k);
  else (void)snprintf(comm, sizeof comm, "m=%d n=%d", c->s * c->m, c->n);
  program all[5];
  program *list[5] = {&all[0], &all[1], &all[2], &all[3], &all[4]};
  (void)snprintf(name, sizeof name, "%s_compute", c->what);
  all[0] = open_program(name, ag ? sliced : whole, "auto");
  (void)snprintf(name, sizeof name, "%s_comm", c->what);
  all[1] = open_program(name, comm, "auto");
  (void)snprintf(name, sizeof name, "%s_plain", c->what);
  all[2] = open_program(name, whole, "auto");
  const char *text = ag ? text_of("ag") : sliced_ar(c->s, c->m);
  all[3] = open_text(c->what, text, ag ? sliced : whole, "collective");
  all[4] = open_text(c->what, text, ag ? sliced : whole, "auto");
  measure(list, 5, repeats, sync);
  double compute = median(all[0].times_ms, repeats), transfer = median(all[1].times_ms, repeats);
  double plain = median(all[2].times_ms, repeats), pipelined = median(all[3].times_ms, repeats);
  double automatic = median(all[4].times_ms, repeats),
         limit = compute > transfer ? compute : transfer;
  double better = plain < pipelined ? plain : pipelined;
  if (weir_launch_rank() == 0)
    (void)printf("%s %2d x %4d x %5d x %5d  %8.1f %8.1f %8.1f %8.1f %8.1f   %5.2f %5.2f %5.2f\n",
                 c->what, c->s, c->m, c->k, c->n, compute, transfer, plain, pipelined, automatic,
                 pipelined / plain, pipelined / limit, automatic / better);
  (void)fflush(stdout);
  for (int i = 0; i < 5; i++) close_program(&all[i]);
}

/* overlap REPEATS what:s:m:k:n … */
int main(int argc, char **argv) {
  if (weir_launch_rank() < 0) {
    printf("not under mpirun: bench/overlap/run measures overlap over a slow link\n");
    return 0;
  }
  int repeats = argc > 1 ? atoi(argv[1]) : 9;
  if (repeats < 1 || repeats > MOST_REPEATS) return 2;
  program sync = open_program("sync", "", "auto");
  if (weir_launch_rank() == 0)
    (void)printf("%-29s  %8s %8s %8s %8s %8s   %5s %5s %5s\n", "slices x rows x inner x columns",
                 "compute", "transfer", "plain", "piped", "auto", "/plain", "/limit", "auto");
  for (int i = 2; i < argc; i++) {
    contest c = {.what = strncmp(argv[i], "ag", 2) == 0 ? "ag" : "ar"};
    if (sscanf(argv[i] + 2, ":%d:%d:%d:%d", &c.s, &c.m, &c.k, &c.n) != 4) return 2;
    run_contest(&c, repeats, &sync);
  }
  close_program(&sync);
  return 0;
}
