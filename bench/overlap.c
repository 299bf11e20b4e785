/* Overlap of communication and computation between two ranks, for mpirun; bench/overlap/run starts it.
 *
 * AG+matmul: half of the rows of `a` lie on each rank; every rank needs all of them times its columns of
 * `b`.
 * matmul+AR: each rank has half of the inner dimension; the products are added up over the ranks.
 * col: a column-parallel linear, half of the rows and half of the columns on each rank; AG+matmul that
 * follows from marks on the operands. row: a row-parallel linear; matmul+AR that follows from them.
 *
 * Per size, interleaved and repeated: computation alone, communication alone, one after the other
 * (plain), overlapped by a collective per slice (piped), where rows are gathered also by multiplying the
 * own rows first and then the others', slice by slice (own), and what --pipeline auto takes of these. The
 * limit is the longer of the first two. Times are medians on rank 0, of the run itself: handing over
 * inputs and outputs does not count. "cpu" is what threads take that do not compute. "auto" is its time
 * over the best of plain, piped and own, "choice" the same from all runs of the program that it takes, so
 * that only wrong choices count, and not that two runs of one program differ.
 *
 * Without arguments and without mpirun it says how to run it. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <weir/weir.h>

enum { MOST_REPEATS = 51, MOST_TENSORS = 4, REST_NS = 20000000 };

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
  double cpu_ms[MOST_REPEATS]; /* of threads that do not compute */
  int64_t posts;
} program;

static const char *const texts[] = {
    "fusion sync { mesh d = [2]\n a : f32[2, 8]\n c = sum(a, dims=[0])\n return c\n"
    " schedule { a, c on d; a[0] = mesh.x } }",
    "fusion ag_compute { mesh d = [2]\n a : f32[2, m, k]\n b : f32[k, n]\n c = matmul(a, b)\n"
    " return c\n schedule { a, b, c on d } }",
    "fusion ag_comm { mesh d = [2]\n a : f32[2, m, k]\n c = set(a)\n return c\n"
    " schedule { a, c on d; a[0] = mesh.x } }",
    "fusion ag_plain { mesh d = [2]\n a : f32[2, m, k]\n b : f32[k, n]\n c = matmul(a, b)\n"
    " return c\n schedule { a, b, c on d; a[0] = mesh.x; b.outer_split(1, d); b[1] = mesh.x;"
    " c.outer_split(2, d); c[2] = mesh.x } }",
    "fusion ar_compute { mesh d = [2]\n a : f32[2, m, k]\n b : f32[2, k, n]\n c = matmul(a, b)\n"
    " return c\n schedule { a, b, c on d; a[0] = mesh.x; b[0] = mesh.x; c[0] = mesh.x } }",
    "fusion ar_comm { mesh d = [2]\n a : f32[2, m, n]\n c = sum(a, dims=[0])\n return c\n"
    " schedule { a, c on d; a[0] = mesh.x } }",
    "fusion ar_plain { mesh d = [2]\n a : f32[2, m, k]\n b : f32[2, k, n]\n u = matmul(a, b)\n"
    " c = sum(u, dims=[0])\n return c\n schedule { a, b, u, c on d; a[0] = mesh.x; b[0] = mesh.x;"
    " u[0] = mesh.x } }",
    "fusion col_compute { mesh d = [2]\n x : f32[m, k]\n w : f32[n, k]\n y = linear(x, w)\n"
    " return y\n schedule { x, w on d } }",
    "fusion col_comm { mesh d = [2]\n x : f32[m, k]\n y = set(x)\n return y\n"
    " schedule { x, y on d; x.outer_split(0, d); x[0] = mesh.x } }",
    "fusion row_compute { mesh d = [2]\n x : f32[m, k]\n w : f32[n, k]\n y = linear(x, w)\n"
    " return y\n schedule { x, w on d } }",
    "fusion row_comm { mesh d = [2]\n a : f32[2, m, n]\n c = sum(a, dims=[0])\n return c\n"
    " schedule { a, c on d; a[0] = mesh.x } }",
};

/* ---- slices ---- */
typedef struct contest {
  char what[4]; /* ag, ar, col, row */
  bool gathers; /* ag, col: rows come, and are multiplied; else products are made, and added up */
  bool marked;  /* col, row: a linear with marks on its operands */
  /* slices, rows per slice (and rank, where they are gathered), inner dimension (per rank, where it is
   * not), columns per rank */
  int s, m, k, n;
} contest;

/* Of the computation over that of the transfer, with 100 GFLOP/s and a link of so many Mbit/s. */
static double compute_share(const contest *c, double mbits) {
  double flops = 2.0 * (c->gathers ? 2 : 1) * c->k * c->n;
  double bytes = 4.0 * (c->gathers ? c->k : c->n);
  return flops / 100e9 / (bytes / (mbits / 8 * 1e6));
}

/* As a whole, a collective per slice, or the own rows before slices of the others'. */
typedef enum form { WHOLE, SLICES, OWN_FIRST } form;

/* "48, 64, 96, …": slices whose lengths grow, or shrink, by about `GROWTH`, in place of c->s equal ones.
 * The first slice of what comes first overlaps with nothing, and neither does the last slice of what comes
 * last. Which of the two is short depends on which of computation and transfer is the longer one. Behind
 * the own rows the first slice is no longer one that nothing overlaps with. */
static const char *slices_of(const contest *c, double mbits, form wanted) {
  enum { MOST = 64, MULTIPLE = 16 };
  static const double GROWTH = 1.5;
  static char text[512];
  int lengths[MOST], n = c->s * 3 / 4 > 1 ? c->s * 3 / 4 : 2, left = c->s * c->m;
  if (n > MOST) n = MOST;
  double sum = 0, part = 1;
  for (int i = 0; i < n; i++, part *= GROWTH) sum += part;
  part = left / sum;
  for (int i = 0; i < n; i++, part *= GROWTH) {
    int rows = ((int)part + MULTIPLE - 1) / MULTIPLE * MULTIPLE;
    lengths[i] = i == n - 1 ? left : rows;
    left -= lengths[i];
  }
  bool grows = c->gathers == (compute_share(c, mbits) >= 1) && wanted != OWN_FIRST;
  size_t used = 0;
  for (int i = 0; i < n; i++)
    used += (size_t)snprintf(text + used, sizeof text - used, "%s%d", i ? ", " : "",
                             lengths[grows ? i : n - 1 - i]);
  return text;
}

/* A linear with marks on its operands, whole or in slices. Rows that are gathered lie on the ranks slice
 * by slice; those slices are equal. To begin with the own rows, these must lie together, and the result is
 * marked. */
static const char *linear_of(const contest *c, double mbits, form wanted) {
  static char text[2048];
  char cuts[1024];
  const char *stream = wanted == SLICES ? "x[0] = stream;" : "",
             *list = slices_of(c, mbits, wanted);
  if (wanted == OWN_FIRST)
    (void)snprintf(cuts, sizeof cuts,
                   "x.outer_split(0, d); x[0] = mesh.x; w.outer_split(0, d); w[0] = mesh.x;"
                   " y.outer_split(0, d); y.outer_split(1, [%s]); y[0] = stream; y[1] = stream",
                   list);
  else if (c->gathers)
    (void)snprintf(cuts, sizeof cuts,
                   "x.outer_split(0, %d); %s x.outer_split(1, d); x[1] = mesh.x;"
                   " w.outer_split(0, d); w[0] = mesh.x",
                   c->s, stream);
  else
    (void)snprintf(cuts, sizeof cuts,
                   "x.outer_split(0, [%s]); %s x.outer_split(2, d); x[2] = mesh.x;"
                   " w.outer_split(1, d); w[1] = mesh.x",
                   list, stream);
  (void)snprintf(text, sizeof text,
                 "fusion %s { mesh d = [2]\n x : f32[m, k]\n w : f32[n, k]\n y = linear(x, w)\n"
                 " return y\n schedule { x, w on d; %s } }",
                 c->what, cuts);
  return text;
}

/* As ag_plain and ar_plain, with streams. */
static const char *sliced(const contest *c, double mbits, form wanted) {
  static char text[2048];
  const char *list = slices_of(c, mbits, wanted);
  if (c->marked) return linear_of(c, mbits, wanted);
  if (c->gathers)
    (void)snprintf(text, sizeof text,
                   "fusion ag { mesh d = [2]\n a : f32[2, m, k]\n b : f32[k, n]\n"
                   " c = matmul(a, b)\n return c\n schedule { a, b, c on d; a[0] = mesh.x;"
                   " b.outer_split(1, d); b[1] = mesh.x; c.outer_split(2, d); c[2] = mesh.x;"
                   " c.outer_split(1, [%s]); %s c[1] = stream } }",
                   list, wanted == OWN_FIRST ? "c[0] = stream;" : "");
  else
    (void)snprintf(text, sizeof text,
                   "fusion ar { mesh d = [2]\n a : f32[2, m, k]\n b : f32[2, k, n]\n"
                   " u = matmul(a, b)\n c = sum(u, dims=[0])\n return c\n"
                   " schedule { a, b, u, c on d; a[0] = mesh.x; b[0] = mesh.x; u[0] = mesh.x;"
                   " u.outer_split(1, [%s]); u[1] = stream;"
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
  p->posts = stats.posts;
  return (double)stats.wall_ns * 1e-6;
}

/* ---- measuring ---- */
/* Processor time of all threads but this one, which computes: what communication takes. Other work on
 * the machine changes it much less than it changes times. */
static double helpers_ms(void) {
  struct timespec all, own;
  (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &all);
  (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &own);
  return (double)(all.tv_sec - own.tv_sec) * 1e3 + (double)(all.tv_nsec - own.tv_nsec) * 1e-6;
}

static int by_size(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double median(double *times, int n) {
  qsort(times, (size_t)n, sizeof *times, by_size);
  return times[n / 2];
}

/* All programs in turn, so that a slow moment of the machine meets all of them. A link lets some bytes
 * through at once when it has been idle; so that each program gets them, it rests before each. */
static void measure(program **programs, int n, int repeats, program *sync) {
  for (int r = -1; r < repeats; r++) {
    for (int i = 0; i < n; i++) {
      (void)nanosleep(&(struct timespec){.tv_nsec = REST_NS}, NULL);
      (void)run_ms(sync);
      double before_ms = helpers_ms(), ms = run_ms(programs[i]);
      if (r < 0) continue;
      programs[i]->times_ms[r] = ms;
      programs[i]->cpu_ms[r] = helpers_ms() - before_ms;
    }
  }
}

enum { COMPUTE, TRANSFER, PLAIN, PIPED, OWN, AUTO, PROGRAMS };
static const char *const names[] = {"compute", "transfer", "plain", "piped", "own", "auto"};

static program open_variant(const contest *c, const char *variant, const char *defines) {
  char name[32];
  (void)snprintf(name, sizeof name, "%s_%s", c->what, variant);
  return open_text(name, text_of(name), defines, "auto");
}

static bool competes(const program *all, int i) {
  return i >= PLAIN && i < AUTO && all[i].compiled;
}

/* Which program auto runs: they differ in how often they communicate. */
static int taken_by_auto(const program *all) {
  for (int i = PLAIN; i < AUTO; i++) {
    if (competes(all, i) && all[i].posts == all[AUTO].posts) return i;
  }
  return PLAIN;
}

/* Of auto, which runs one of these programs: the median of all runs of that program over that of the
 * best one. 1 if it is the best one; else its own times over those of the best. */
static double judge(program *all, const double *ms, int repeats) {
  int taken = taken_by_auto(all);
  double both[2 * MOST_REPEATS], best = 0;
  for (int i = PLAIN; i < AUTO; i++) {
    if (i != taken && competes(all, i) && (best == 0 || ms[i] < best)) best = ms[i];
  }
  memcpy(both, all[taken].times_ms, (size_t)repeats * sizeof *both);
  memcpy(both + repeats, all[AUTO].times_ms, (size_t)repeats * sizeof *both);
  double ratio = median(both, 2 * repeats) / best;
  return ratio > 1 ? ratio : 1;
}

static void print_row(const contest *c, program *all, int repeats) {
  double ms[PROGRAMS] = {0}, limit, best = 0;
  for (int i = 0; i < PROGRAMS; i++) {
    if (all[i].compiled) ms[i] = median(all[i].times_ms, repeats);
    if (competes(all, i) && (best == 0 || ms[i] < best)) best = ms[i];
  }
  limit = ms[COMPUTE] > ms[TRANSFER] ? ms[COMPUTE] : ms[TRANSFER];
  if (weir_launch_rank() != 0) return;
  (void)printf("%-3s %2d x %4d x %5d x %5d  ", c->what, c->s, c->m, c->k, c->n);
  for (int i = 0; i < PROGRAMS; i++) {
    if (all[i].compiled) (void)printf("%8.1f ", ms[i]);
    else (void)printf("%8s ", "-");
  }
  (void)printf(" %5.2f %5.2f", ms[PIPED] / ms[PLAIN], ms[PIPED] / limit);
  if (all[OWN].compiled) (void)printf(" %5.2f", ms[OWN] / limit);
  else (void)printf(" %5s", "-");
  (void)printf(" %6.1f %6.1f", median(all[PLAIN].cpu_ms, repeats),
               median(all[PIPED].cpu_ms, repeats));
  (void)printf("  %s %5.2f %5.2f\n", names[taken_by_auto(all)], ms[AUTO] / best,
               judge(all, ms, repeats));
  (void)fflush(stdout);
}

/* "m=… k=… n=…" of the whole program, of what a rank multiplies, and of what is transferred. */
static void sizes_of(const contest *c, char *whole, char *alone, char *comm, size_t size) {
  int rows = c->s * c->m, twice = c->marked || c->gathers ? 2 : 1;
  if (c->gathers && c->marked) rows *= 2;
  (void)snprintf(alone, size, "m=%d k=%d n=%d", rows, c->k, c->n);
  (void)snprintf(whole, size, "m=%d k=%d n=%d", rows, c->gathers ? c->k : c->k * twice,
                 c->gathers ? c->n * twice : c->n);
  if (c->gathers) (void)snprintf(comm, size, "m=%d k=%d", rows, c->k);
  else (void)snprintf(comm, size, "m=%d n=%d", rows, c->n);
}

static void run_contest(const contest *c, double mbits, int repeats, program *sync) {
  char whole[128], alone[128], comm[128];
  program all[PROGRAMS] = {0}, *list[PROGRAMS];
  int n = 0;
  sizes_of(c, whole, alone, comm, sizeof whole);
  all[COMPUTE] = open_variant(c, "compute", alone);
  all[TRANSFER] = open_variant(c, "comm", comm);
  all[PLAIN] = c->marked ? open_text("plain", linear_of(c, mbits, WHOLE), whole, "auto")
                         : open_variant(c, "plain", whole);
  all[PIPED] = open_text("sliced", sliced(c, mbits, SLICES), whole, "collective");
  if (c->gathers) all[OWN] = open_text("own", sliced(c, mbits, OWN_FIRST), whole, "p2p-offset");
  all[AUTO] = open_text("auto", sliced(c, mbits, c->gathers ? OWN_FIRST : SLICES), whole, "auto");
  for (int i = 0; i < PROGRAMS; i++) {
    if (all[i].compiled) list[n++] = &all[i];
  }
  measure(list, n, repeats, sync);
  print_row(c, all, repeats);
  for (int i = 0; i < n; i++) close_program(list[i]);
}

static bool read_contest(const char *text, contest *c) {
  static const char *const kinds[] = {"ag", "ar", "col", "row"};
  *c = (contest){0};
  for (size_t i = 0; i < 4; i++) {
    size_t n = strlen(kinds[i]);
    if (strncmp(text, kinds[i], n) != 0 || text[n] != ':') continue;
    memcpy(c->what, kinds[i], n + 1);
    c->gathers = i % 2 == 0;
    c->marked = i >= 2;
    return sscanf(text + n, ":%d:%d:%d:%d", &c->s, &c->m, &c->k, &c->n) == 4;
  }
  return false;
}

/* overlap REPEATS MBITS what:s:m:k:n … */
int main(int argc, char **argv) {
  if (weir_launch_rank() < 0) {
    printf("not under mpirun: bench/overlap/run measures overlap over a slow link\n");
    return 0;
  }
  int repeats = argc > 1 ? atoi(argv[1]) : 9;
  double mbits = argc > 2 ? atof(argv[2]) : 1000;
  if (repeats < 1 || repeats > MOST_REPEATS || mbits <= 0) return 2;
  program sync = open_text("sync", text_of("sync"), "", "auto");
  if (weir_launch_rank() == 0)
    (void)printf("%-29s  %8s %8s %8s %8s %8s %8s  %5s %5s %5s %13s  %5s %5s %5s\n",
                 "slices x rows x inner x columns", "compute", "transfer", "plain", "piped", "own",
                 "auto", "/plain", "/limit", "own", "cpu: plain piped", "takes", "auto", "choice");
  for (int i = 3; i < argc; i++) {
    contest c;
    if (!read_contest(argv[i], &c)) return 2;
    run_contest(&c, mbits, repeats, &sync);
  }
  close_program(&sync);
  return 0;
}
