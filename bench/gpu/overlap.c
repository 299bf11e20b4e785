/* Overlap over the host link: two devices on one GPU whose data go through the host's memory.
 *
 *   overlap ag M K N | ar M K N [OVERLAP.py]     bf16; a of M x K, b of K x N
 *
 * AG+matmul: each device has half of the rows of `a` and half of the columns of `b`; it needs all
 * rows. matmul+AR: each device has half of the inner dimension; the products are added up.
 *
 * All contenders run in turns, round by round, for a link that others use too is not always as
 * fast, and each begins after a rest, since a GPU that has just multiplied a lot runs at lower
 * clocks. Medians in ms. The limit is the longer of the whole product (both devices' work, alone)
 * and the fastest of several ways to move all bytes that must cross, both ways at once. The
 * programs by hand are in overlap_hand.h; the one in PyTorch is OVERLAP.py, which runs when it is
 * told to. */
#define _POSIX_C_SOURCE 200809L
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#include "gpu/overlap_hand.h"
#include "gpu/peer.h"

enum { ROUNDS = 11, RUNS = 5, MOST_CONTENDERS = 64, REST_NS = 20000000 };

typedef enum group { PRODUCT, TRANSFER, HAND, TORCH, WEIR, WEIR_GRAPH, GROUPS } group;
static const char *const group_names[GROUPS] = {"product",  "transfer", "by hand",
                                                "pytorch,", "weir,",    "weir, graph,"};

/* run() says how long it took, in ms. */
typedef struct contender {
  group group;
  char name[32];
  double (*run)(void *context);
  void *context;
  void (*call)(void *context);
  double ms[ROUNDS + 1];
} contender;

static contender contenders[MOST_CONTENDERS];
static int n_contenders;

static void enter(group g, const char *name, void (*call)(void *), double (*run)(void *),
                  void *context) {
  if (n_contenders == MOST_CONTENDERS) exit(3);
  contender *c = &contenders[n_contenders++];
  *c = (contender){.group = g, .run = run, .context = context, .call = call};
  (void)snprintf(c->name, sizeof c->name, "%s", name);
}

/* A turn is a few runs, so that nobody suffers from what ran before; the middle one counts. */
static double take_turn(const contender *c) {
  double ms[RUNS];
  (void)nanosleep(&(struct timespec){.tv_nsec = REST_NS}, NULL);
  for (int i = 0; i < RUNS; i++) {
    int64_t start = rt_clock_ns();
    if (c->call) c->call(c->context);
    ms[i] = c->run ? c->run(c->context) : (double)(rt_clock_ns() - start) * 1e-6;
  }
  return median(ms, RUNS);
}

static double of(const contender *c) {
  double sorted[ROUNDS];
  memcpy(sorted, c->ms + 1, sizeof sorted); /* the first round warms up */
  return median(sorted, ROUNDS);
}

/* ---- PyTorch ---- */
static peer torch;

/* A round of slices, carried out by the other process; it answers with the time. */
static double run_torch(void *context) {
  char order[16];
  (void)snprintf(order, sizeof order, "%d", *(const int *)context);
  return peer_run(&torch, order);
}

static bool start_torch(char *program, char **argv) {
  char *args[] = {"python3", program, argv[1], argv[2], argv[3], argv[4], NULL};
  return peer_start(&torch, args);
}

/* ---- Weir ---- */
/* Slices in 32nds of the rows. */
typedef struct cutting {
  const char *name;
  bool own_first;   /* AG alone */
  int n, parts[32]; /* they add up to 32 */
} cutting;

static const cutting cuttings[] = {
    {"4 equal", true, 4, {8, 8, 8, 8}},
    {"8 equal", true, 8, {4, 4, 4, 4, 4, 4, 4, 4}},
    {"16 equal", true, 16, {2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2}},
    {"short end", true, 9, {4, 4, 4, 4, 4, 4, 4, 2, 2}},
    {"falling", true, 9, {6, 6, 5, 4, 4, 3, 2, 1, 1}},
    {"rising", false, 10, {1, 1, 2, 3, 3, 4, 4, 4, 5, 5}},
    {"rising fast", false, 7, {1, 1, 2, 4, 8, 8, 8}},
    {"8 gathered", false, 8, {4, 4, 4, 4, 4, 4, 4, 4}},
};

static char *text_of(size s, const cutting *c) {
  static char text[2048];
  char list[512];
  int64_t rows = s.ar ? s.m : s.m / 2;
  int used = 0;
  for (int i = 0; i < c->n; i++)
    used += snprintf(list + used, sizeof list - (size_t)used, "%s%lld", i ? ", " : "",
                     (long long)(rows / 32 * c->parts[i]));
  if (s.ar)
    (void)snprintf(text, sizeof text,
                   "fusion ar { mesh d = [2]\n a : bf16[2, %lld, %lld]\n b : bf16[2, %lld, %lld]\n"
                   " u = matmul(a, b)\n c = sum(u, dims=[0])\n return c\n"
                   " schedule { a, b, u, c on d; a[0] = mesh.x; b[0] = mesh.x; u[0] = mesh.x;"
                   " u.outer_split(1, [%s]); u[1] = stream; c.outer_split(1, [%s]);"
                   " c[1] = stream } }",
                   (long long)s.m, (long long)(s.k / 2), (long long)(s.k / 2), (long long)s.n, list,
                   list);
  else
    (void)snprintf(text, sizeof text,
                   "fusion ag { mesh d = [2]\n a : bf16[2, %lld, %lld]\n b : bf16[%lld, %lld]\n"
                   " c = matmul(a, b)\n return c\n"
                   " schedule { a, b, c on d; a[0] = mesh.x; b.outer_split(1, d); b[1] = mesh.x;"
                   " c.outer_split(1, [%s]); %s c[1] = stream; c.outer_split(3, d);"
                   " c[3] = mesh.x } }",
                   (long long)rows, (long long)s.k, (long long)s.k, (long long)s.n, list,
                   c->own_first ? "c[0] = stream;" : "");
  return text;
}

/* When slices had arrived and when they were computed, in us from the start of the run. */
static void print_times(const bench *b) {
  const rt_plan *plan = b->plan;
  uint32_t n = plan->n_tasks + plan->n_posts;
  rt_span *spans = calloc(n, sizeof *spans);
  if (!spans) exit(3);
  for (int i = 0; i < 2; i++) must(rt_run(b->loaded, b->inputs, b->outputs, spans, NULL));
  for (uint32_t i = 0; i < n; i++)
    printf("    %s rank %u stream %2u  %8.1f to %8.1f\n", i < plan->n_tasks ? "task" : "post",
           rt_plan_rank(plan, spans[i].stream), spans[i].stream, (double)spans[i].start_ns * 1e-3,
           (double)spans[i].end_ns * 1e-3);
  free(spans);
}

static void enter_weir(size s, rt_device *d, group g) {
  static bench benches[2][sizeof cuttings / sizeof *cuttings];
  for (size_t i = 0; i < sizeof cuttings / sizeof *cuttings; i++) {
    bench *b = &benches[g == WEIR_GRAPH][i];
    bench_args args = {.text = text_of(s, &cuttings[i]), .ranks = 2, .streams = 16, .fill = true};
    args.pipeline = cuttings[i].own_first ? HOST_P2P_OFFSET : HOST_COLLECTIVE;
    if (s.ar && strstr(cuttings[i].name, "gathered")) continue;
    bench_open(b, d, &args);
    enter(g, cuttings[i].name, bench_run, NULL, b);
    if (g == WEIR && getenv("TIMES") && strcmp(getenv("TIMES"), cuttings[i].name) == 0)
      print_times(b);
  }
}

/* ---- the contest ---- */
static double best_of(group g, const char **name) {
  double best = 1e9;
  for (int i = 0; i < n_contenders; i++) {
    if (contenders[i].group != g || of(&contenders[i]) >= best) continue;
    best = of(&contenders[i]);
    *name = contenders[i].name;
  }
  return best;
}

static void report(void) {
  const char *name = "";
  double compute = best_of(PRODUCT, &name), move = best_of(TRANSFER, &name);
  double limit = compute > move ? compute : move;
  printf("product %.3f ms, transfer %.3f ms, limit %.3f ms\n", compute, move, limit);
  for (int i = 0; i < n_contenders; i++) {
    const contender *c = &contenders[i];
    printf("  %-12s %-12s %7.3f ms  %.3f x limit\n", group_names[c->group], c->name, of(c),
           of(c) / limit);
  }
  printf("best:");
  for (group g = HAND; g < GROUPS; g++) {
    double ms = best_of(g, &name);
    if (ms < 1e9) printf(" %s %s %.3f (%.3f)", group_names[g], name, ms, ms / limit);
  }
  printf("\n");
}

static void enter_limits(size s) {
  static whole all;
  static transfer transfers[4];
  static const char *const names[] = {"whole", "halves", "4 MiB", "8 MiB"};
  static const size_t pieces[] = {0, 0, 4 << 20, 8 << 20};
  whole_open(&all, s);
  enter(PRODUCT, "whole", whole_run, NULL, &all);
  for (size_t i = 0; i < 4; i++) {
    transfer_open(&transfers[i], s, pieces[i], i == 1 ? 2 : 1);
    enter(TRANSFER, names[i], transfer_run, NULL, &transfers[i]);
  }
}

static void enter_hands(size s) {
  static hand hands[8];
  CUfunction adds = s.ar ? hand_adds() : NULL;
  int n = 0;
  char name[32];
  for (int own = 0; own < (s.ar ? 1 : 2); own++)
    for (int slices = 4; slices <= 32; slices *= 2, n++) {
      hand_open(&hands[n], s, slices, own, adds);
      (void)snprintf(name, sizeof name, "%d%s", slices, own ? " own first" : " equal");
      enter(HAND, name, hand_run, NULL, &hands[n]);
    }
}

static void enter_torch(char **argv, char *program) {
  static int slices[] = {4, 8, 16, 32};
  char name[32];
  if (!program || !start_torch(program, argv)) return;
  for (size_t i = 0; i < sizeof slices / sizeof *slices; i++) {
    (void)snprintf(name, sizeof name, "%d equal", slices[i]);
    enter(TORCH, name, NULL, run_torch, &slices[i]);
  }
}

int main(int argc, char **argv) {
  if (argc != 5 && argc != 6) {
    printf("usage: overlap ag|ar M K N [OVERLAP.py]\n");
    return 0;
  }
  size s = {strcmp(argv[1], "ar") == 0, atoll(argv[2]), atoll(argv[3]), atoll(argv[4])};
  rt_device *d = bench_device(&(rt_device_options){.link_host = true});
  rt_device *graphs = bench_device(&(rt_device_options){.link_host = true, .graph = true});
  enter_limits(s);
  enter_hands(s);
  enter_torch(argv, argc == 6 ? argv[5] : NULL);
  enter_weir(s, d, WEIR);
  enter_weir(s, graphs, WEIR_GRAPH);
  for (int r = 0; r <= ROUNDS; r++)
    for (int i = 0; i < n_contenders; i++) contenders[i].ms[r] = take_turn(&contenders[i]);
  printf("%s %lld x %lld x %lld: ", argv[1], (long long)s.m, (long long)s.k, (long long)s.n);
  report();
  if (torch.orders) (void)fclose(torch.orders);
  return 0;
}
