/* Training steps of eight layers without marks for streams, on two devices of one GPU over the host link: Weir through
 * the public interface, with parts of tensors in device memory, beside the same steps in PyTorch with streams by hand.
 *
 *   steps STEPS.weir STEPS.py [STEP:B:H[:F]...]     bf16; without steps: sizes at which both take about as long
 *
 * All contenders run in turns after a rest, as in overlap.c. Medians in ms. The limit is the longer of the computation
 * alone and the transfer alone, both by PyTorch; the bound is what weir_program_bound() says of the measured machine.
 * ROUNDS: how many; PYTHON: another python3. */
#define _POSIX_C_SOURCE 200809L
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#include "gpu/kit.h"
#include "gpu/peer.h"
#include "weir/weir.h"

enum {
  MOST_ROUNDS = 64,
  RUNS = 3,
  REST_NS = 20000000,
  MOST_TENSORS = 40,
  DEVICES = 2,
  DL_CUDA = 2
};

static void must_weir(weir_status st) {
  if (st == WEIR_OK) return;
  fprintf(stderr, "%s\n", weir_error());
  exit(1);
}

typedef struct step {
  char name[16];
  int64_t b, h, f; /* f: tp alone */
} step;

/* ---- PyTorch ---- */
static peer torch;

static double run_torch(const char *order) { return peer_run(&torch, order); }

static void start_torch(char *program, const step *s) {
  char numbers[3][24], *named = getenv("PYTHON");
  char *args[8] = {named ? named : "python3", program, (char *)s->name};
  const int64_t sizes[] = {s->b, s->h, s->f};
  for (int i = 0; i < 3; i++)
    (void)snprintf(numbers[i], sizeof numbers[i], "%lld", (long long)sizes[i]);
  for (int i = 0; i < (s->f ? 3 : 2); i++) args[3 + i] = numbers[i];
  if (peer_start(&torch, args)) return;
  fprintf(stderr, "there is no PyTorch, or %s does not work\n", program);
  exit(3);
}

static void end_torch(void) {
  (void)fclose(torch.orders);
  (void)fclose(torch.answers);
}

/* ---- Weir ---- */
typedef struct subject {
  weir_module *module;
  weir_fusion *fusion;
  weir_program *program;
  weir_shapes *shapes;
  size_t n;
  weir_dl_tensor tensors[MOST_TENSORS][DEVICES];
  int64_t extents[MOST_TENSORS][DEVICES][4];
  const weir_dl_tensor *parts[MOST_TENSORS][DEVICES];
  const weir_dl_tensor *const *by_tensor[MOST_TENSORS];
  const weir_dl_tensor *none[MOST_TENSORS];
  weir_run_args args;
} subject;

static void set_extent(weir_shapes *shapes, const char *name, int64_t value) {
  char text[64];
  (void)snprintf(text, sizeof text, "%s=%lld", name, (long long)value);
  must_weir(weir_shapes_define(shapes, text));
}

static void open_part(subject *s, weir_side side, size_t i, size_t at, int device) {
  weir_shard shard = {.struct_size = sizeof shard};
  size_t bytes = 2;
  must_weir(weir_program_shard(s->program, s->shapes, side, i, device, &shard));
  for (size_t k = 0; k < shard.rank; k++) {
    s->extents[at][device][k] = shard.extents[k];
    bytes *= (size_t)shard.extents[k];
  }
  CUdeviceptr memory = device_memory(bytes);
  if (side == WEIR_INPUT) fill_bf16(memory, bytes);
  s->tensors[at][device] = (weir_dl_tensor){.data = (void *)(uintptr_t)memory,
                                            .device = {DL_CUDA, 0},
                                            .ndim = (int32_t)shard.rank,
                                            .dtype = weir_dtype_to_dl(WEIR_BF16),
                                            .shape = s->extents[at][device]};
  s->parts[at][device] = &s->tensors[at][device];
}

static void open_tensors(subject *s) {
  size_t n_inputs = weir_fusion_input_count(s->fusion);
  s->n = n_inputs + weir_fusion_output_count(s->fusion);
  if (s->n > MOST_TENSORS) exit(3);
  for (size_t i = 0; i < s->n; i++) {
    bool in = i < n_inputs;
    for (int d = 0; d < DEVICES; d++)
      open_part(s, in ? WEIR_INPUT : WEIR_OUTPUT, in ? i : i - n_inputs, i, d);
    s->by_tensor[i] = s->parts[i];
  }
  s->args = (weir_run_args){.struct_size = sizeof s->args,
                            .inputs = s->none,
                            .n_inputs = n_inputs,
                            .input_shards = s->by_tensor,
                            .outputs = s->none,
                            .n_outputs = s->n - n_inputs,
                            .output_shards = s->by_tensor + n_inputs,
                            .shapes = s->shapes};
}

typedef struct form {
  const char *name, *options; /* "key value key value" */
} form;

/* With the extents, so that buckets are for these. */
static void set_options(weir_options *o, const step *z, const char *text) {
  char all[256], f[32] = "", *rest = NULL;
  if (z->f) (void)snprintf(f, sizeof f, ",f=%lld", (long long)z->f);
  (void)snprintf(all, sizeof all, "device cuda link host define b=%lld,h=%lld%s %s",
                 (long long)z->b, (long long)z->h, f, text);
  for (char *key = strtok_r(all, " ", &rest); key; key = strtok_r(NULL, " ", &rest))
    must_weir(weir_options_set(o, key, strtok_r(NULL, " ", &rest)));
}

static void open_subject(subject *s, const char *file, const step *z, const char *options) {
  weir_options *o = NULL;
  *s = (subject){0};
  must_weir(weir_module_load(file, NULL, &s->module));
  must_weir(weir_module_find(s->module, z->name, &s->fusion));
  must_weir(weir_options_create(&o));
  set_options(o, z, options);
  must_weir(weir_compile(s->fusion, o, NULL, &s->program));
  weir_options_destroy(o);
  must_weir(weir_shapes_create(s->fusion, &s->shapes));
  set_extent(s->shapes, "b", z->b);
  set_extent(s->shapes, "h", z->h);
  if (z->f) set_extent(s->shapes, "f", z->f);
  must_weir(weir_shapes_complete(s->shapes));
  open_tensors(s);
}

static void close_subject(subject *s) {
  for (size_t i = 0; i < s->n; i++)
    for (int d = 0; d < DEVICES; d++)
      (void)cu->cuMemFree((CUdeviceptr)(uintptr_t)s->tensors[i][d].data);
  weir_shapes_destroy(s->shapes);
  weir_program_destroy(s->program);
  weir_module_destroy(s->module);
}

static double run_weir(subject *s) {
  int64_t start = rt_clock_ns();
  must_weir(weir_run(s->program, &s->args));
  return (double)(rt_clock_ns() - start) * 1e-6;
}

/* ---- contenders ---- */
typedef enum group { COMPUTE, TRANSFER, TORCH, WEIR } group;
static const char *const group_names[] = {"compute", "transfer", "pytorch", "weir"};

static const form forms[] = {
    {"unoverlapped", "pipeline marked disable order,buckets"},
    {"ordered", "pipeline marked"},
    {"sliced", "pipeline marked enable slice-products"},
    {"auto", "pipeline auto"},
    {"auto, graph", "pipeline auto graph true"},
};
enum { N_FORMS = sizeof forms / sizeof *forms, NONE = 0, AUTO = 3, GRAPH = 4 };

static const struct {
  group group;
  const char *order;
  bool slices; /* tp alone */
} peers[] = {{COMPUTE, "compute", false},     {TRANSFER, "transfer 2", false},
             {TRANSFER, "transfer 4", false}, {TRANSFER, "transfer 8", false},
             {TORCH, "hand 1 1", false},      {TORCH, "hand 2 1", false},
             {TORCH, "hand 4 1", false},      {TORCH, "hand 8 1", false},
             {TORCH, "hand 1 2", true},       {TORCH, "hand 2 2", true},
             {TORCH, "hand 4 2", true},       {TORCH, "hand 1 4", true},
             {TORCH, "hand 2 4", true},       {TORCH, "hand 1 8", true}};
enum { N_PEERS = sizeof peers / sizeof *peers, MOST = N_PEERS + N_FORMS };

typedef struct contender {
  group group;
  const char *name;
  subject *weir; /* or PyTorch's */
  double ms[MOST_ROUNDS];
  double median;
} contender;

/* A turn is a few runs, so that nobody suffers from what ran before; the middle one counts. */
static double take_turn(const contender *c) {
  double ms[RUNS];
  (void)nanosleep(&(struct timespec){.tv_nsec = REST_NS}, NULL);
  for (int i = 0; i < RUNS; i++) ms[i] = c->weir ? run_weir(c->weir) : run_torch(c->name);
  return median(ms, RUNS);
}

static const contender *best_of(const contender *all, int n, group g) {
  const contender *best = NULL;
  for (int i = 0; i < n; i++)
    if (all[i].group == g && (!best || all[i].median < best->median)) best = &all[i];
  return best;
}

/* ---- the table ---- */
static void report(const contender *all, int n, const weir_bound *bound) {
  const contender *weir = &all[n - N_FORMS];
  double compute = best_of(all, n, COMPUTE)->median, move = best_of(all, n, TRANSFER)->median;
  double limit = compute > move ? compute : move, chosen = weir[AUTO].median;
  const contender *hand = best_of(all, n, TORCH);
  printf("compute alone %.3f ms, transfer alone %.3f (%.2f of it), limit %.3f; bound %.3f (compute "
         "%.3f, link %.3f), predicted %.3f\n",
         compute, move, move / compute, limit, bound->bound_s * 1e3, bound->compute_s * 1e3,
         bound->receive_s * 1e3, bound->predicted_s * 1e3);
  for (int i = 0; i < n; i++)
    printf("  %-9s %-14s %8.3f ms  %.3f x bound  %.3f x limit\n", group_names[all[i].group],
           all[i].name, all[i].median, all[i].median / (bound->bound_s * 1e3),
           all[i].median / limit);
  printf(
      "verdict: auto %.3f ms: %.3f of the unoverlapped program; %.3f of PyTorch's best (%s; goal "
      "< 1); %.3f of the bound (goal 1.12); %.3f of the limit; graph %.3f of PyTorch's best\n",
      chosen, chosen / weir[NONE].median, chosen / hand->median, hand->name,
      chosen / (bound->bound_s * 1e3), chosen / limit, weir[GRAPH].median / hand->median);
}

static void explain(const subject *s) {
  char *note = NULL;
  must_weir(weir_program_note(s->program, &note));
  if (note) printf("  %s\n", note);
  weir_string_free(note);
}

static void contest(const char *file, char *script, const step *z, int rounds) {
  static subject subjects[N_FORMS];
  static contender all[MOST];
  int n = 0;
  weir_bound bound = {.struct_size = sizeof bound};
  start_torch(script, z);
  for (int i = 0; i < N_PEERS; i++)
    if (!peers[i].slices || z->f)
      all[n++] = (contender){.group = peers[i].group, .name = peers[i].order};
  for (int i = 0; i < N_FORMS; i++) {
    open_subject(&subjects[i], file, z, forms[i].options);
    all[n++] = (contender){.group = WEIR, .name = forms[i].name, .weir = &subjects[i]};
  }
  must_weir(weir_program_bound(subjects[AUTO].program, subjects[AUTO].shapes, &bound, NULL, NULL));
  for (int r = -1; r < rounds; r++) /* the first round warms up */
    for (int i = 0; i < n; i++) all[i].ms[r < 0 ? 0 : r] = take_turn(&all[i]);
  for (int i = 0; i < n; i++) all[i].median = median(all[i].ms, rounds);
  printf("%s %lld x %lld: ", z->name, (long long)z->b, (long long)z->h);
  report(all, n, &bound);
  explain(&subjects[AUTO]);
  for (int i = 0; i < N_FORMS; i++) close_subject(&subjects[i]);
  end_torch();
  (void)fflush(stdout);
}

static step step_read(const char *text) {
  step s = {.f = 0};
  long long b = 0, h = 0, f = 0;
  int n = sscanf(text, "%15[a-z]:%lld:%lld:%lld", s.name, &b, &h, &f);
  if (n < 3 || (strcmp(s.name, "tp") == 0) != (n == 4)) {
    fprintf(stderr, "no step: %s (fsdp:B:H, dp:B:H or tp:B:H:F)\n", text);
    exit(2);
  }
  s.b = b, s.h = h, s.f = f;
  return s;
}

int main(int argc, char **argv) {
  static char *sizes[] = {"fsdp:14336:4096", "dp:10240:4096", "tp:8192:3584:14336"};
  const char *asked = getenv("ROUNDS");
  int rounds = asked ? atoi(asked) : 9;
  if (argc < 3) {
    printf("usage: steps STEPS.weir STEPS.py [STEP:B:H[:F]...]\n");
    return 0;
  }
  if (rounds < 1 || rounds > MOST_ROUNDS) rounds = 9;
  rt_device *device = bench_device(&(rt_device_options){.link_host = true});
  char **wanted = argc > 3 ? argv + 3 : sizes;
  for (int i = 0; i < (argc > 3 ? argc - 3 : 3); i++) {
    step s = step_read(wanted[i]);
    contest(argv[1], argv[2], &s, rounds);
  }
  device->ops->close(device);
  return 0;
}
