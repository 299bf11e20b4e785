/* Communications of pipelined programs that fail, are late, or are overtaken: the Nth post of each rank,
 * for N = 0, 1, 2, … until there is none. A failed one ends the run on all ranks with one message; a late
 * one changes nothing, whether the others wait behind it or overtake it where they may. */
#include "conform/rig.h"
#include "device_kit.h"
#include "test.h"

typedef struct program {
  const char *text;
  uint32_t devices;
  host_pipeline pipeline;
} program;

#define FUSION(mesh, body, marks)                                                                  \
  "fusion f {\n  mesh d = [" mesh "]\n" body "  schedule { " marks " }\n}\n"
#define LINEAR                                                                                     \
  FUSION("3", "  x : f32[6, 4]\n  w : f32[5, 4]\n  y = linear(x, w)\n  return y\n",                \
         "x, w, y on d; x.outer_split(0, d); x[0] = mesh.x; y.outer_split(0, d); y[0] = stream")

/* Each rank sends its rows to both others without groups, and looks at its sends last: the waits for them
 * stand at the end of the iteration, under the condition of the posts. */
#define UNGROUPED                                                                                  \
  "fusion f {\n  mesh d = [3]\n  x : f32[3, 4]\n  y = set(x)\n  return y\n}\n"                     \
  "host f(mesh d = [3], x : f32[3@x, 4] on d) -> (y) {\n"                                          \
  "  y : f32[3, 4] on d = allocate()\n"                                                            \
  "  main = current_stream()\n"                                                                    \
  "  for i in 3 {\n    set_stream(i % streams)\n    wait_stream(main)\n"                           \
  "    y$1 = shard(y, dim=0, index=i, parts=3)\n"                                                  \
  "    if i == me(d.x) {\n      y$1 <- set(x)\n    } else {\n"                                     \
  "      s = send(x, to=i, team=d.x)\n"                                                            \
  "      r = recv(y$1, from=i, team=d.x)\n"                                                        \
  "      wait(r)\n    }\n"                                                                         \
  "    y$1 <- neg(y$1)\n    y$1 <- neg(y$1)\n"                                                     \
  "    if i != me(d.x) {\n      wait(s)\n    }\n"                                                  \
  "  }\n  set_stream(main)\n  for i in min(3, streams) {\n    wait_stream(i)\n  }\n}\n"

static const program programs[] = {
    {FUSION("2", "  a : f32[4, 2, 3, 5]\n  b : f32[5, 3]\n  c = matmul(a, b)\n  return c\n",
            "a, b, c on d; a[1] = mesh.x; c[0] = stream"),
     2, HOST_COLLECTIVE},
    {LINEAR, 3, HOST_P2P},
    {LINEAR, 3, HOST_RING},
    {FUSION("3", "  a : f32[3, 5, 4]\n  b : f32[4, 6]\n  c = matmul(a, b)\n  return c\n",
            "a, b, c on d; a[0] = mesh.x; b.outer_split(1, d); b[1] = mesh.x; c.outer_split(2, d); "
            "c[2] = mesh.x; c.outer_split(1, 2); c[0] = stream; c[1] = stream"),
     3, HOST_P2P_OFFSET},
    {LINEAR, 3, HOST_BROADCAST},
    {FUSION("2", "  a : f32[6, 8]\n  b : f32[8, 5]\n  c = matmul(a, b)\n  return c\n",
            "a, b, c on d; a.outer_split(1, d); a[1] = mesh.x; b.outer_split(0, d); "
            "b[0] = mesh.x; c.outer_split(0, 3); c[0] = stream"),
     2, HOST_AUTO},
    {UNGROUPED, 3, HOST_AUTO},
    {NULL, 0, HOST_AUTO},
};

static uint32_t runs;

typedef enum fault { FAILS, LATE, OVERTAKEN, FAULT_COUNT } fault;

/* ---- one run ---- */
static bool is_right(const team *x) {
  for (uint32_t i = 0; i < x->s->n_out; i++)
    if (!kit_same(&x->s->out[i], &x->s->expected[i])) return false;
  return true;
}

static uint32_t posts_of(const rt_plan *plan, uint32_t rank) {
  uint32_t n = 0;
  for (uint32_t p = 0; p < plan->n_posts; p++) n += plan->posts[p].rank == rank;
  return n;
}

/* threads 0: the adversary. */
static void run_faulty(team *x, const rt_plan *plan, uint32_t threads, uint32_t rank,
                       uint64_t number, fault what) {
  rig g;
  rt_comm_faults f = {.fail_at = what == FAILS ? number : UINT64_MAX,
                      .fail_with = STATUS_SYSTEM,
                      .delay_at = what == FAILS ? UINT64_MAX : number,
                      .delay_ns = SECONDS / 500,
                      .reorders = what == OVERTAKEN};
  rig_open(&g, threads, x->n, 60 * SECONDS);
  rt_comm *inner = g.endpoints[rank];
  EXPECT_INT(rt_comm_faulty_open(inner, &f, &memory_default, &g.endpoints[rank]), STATUS_OK);
  rig_attach(&g, 60 * SECONDS);
  rig_load(&g, plan);
  team_cut(x);
  runs++;
  if (what == FAILS) {
    rig_expect_failure(&g, x->in, x->out, STATUS_SYSTEM, "injected: post ");
  } else if (EXPECT_INT(rt_run(g.loaded, x->in, x->out, NULL, NULL), STATUS_OK)) {
    EXPECT(team_assemble(x) && is_right(x));
  } else {
    fprintf(stderr, "%s\n", status_message());
    status_clear();
  }
  rig_close(&g);
}

static void run_all(team *x) {
  rt_plan *plan = NULL;
  if (!EXPECT(kit_ok(rt_plan_join(x->plans, x->n, &memory_default, &plan), "join"))) return;
  for (uint32_t threads = 0; threads <= 2; threads += 2)
    for (uint32_t rank = 0; rank < x->n; rank++)
      for (uint64_t n = 0; n < posts_of(plan, rank); n++)
        for (int what = 0; what < FAULT_COUNT; what++)
          run_faulty(x, plan, threads, rank, n, (fault)what);
  EXPECT(plan->n_posts >= x->n);
  rt_plan_destroy(plan);
}

/* ---- programs ---- */
static void fill(subject *s) {
  uint64_t draws = 0;
  for (uint32_t k = 0; k < s->n_in; k++) {
    int64_t n = 0;
    (void)ir_array_count(&s->in[k], &n);
    for (int64_t i = 0; i < n; i++, draws++) ((float *)s->in[k].data)[i] = (float)(draws % 31) - 15;
  }
}

static status try_program(void *context) {
  const program *p = context;
  subject s;
  team x = {0};
  host_options options = {.pipeline = p->pipeline};
  bool ready = subject_parse(&s, p->text);
  ir_func *h = ready && s.func->host ? s.func : NULL;
  if (ready) s.func = s.module.funcs.data[0];
  ready = ready && schedule_apply(s.func);
  if (ready) ir_env_init(&s.env, s.func, &s.memory);
  ready = ready && ir_bind_complete(&s.env) && subject_values(&s);
  if (ready) fill(&s);
  ready = ready && subject_reference(&s, s.in, s.expected, false);
  ready = ready && (h || kit_lower(s.func, &options, &h) == STATUS_OK);
  ready = ready && team_open(&x, &s, h, 2, p->devices);
  if (EXPECT(ready)) run_all(&x);
  else fprintf(stderr, "%s\n%s\n", kit_reason, p->text);
  team_close(&x);
  subject_close(&s);
  return STATUS_OK;
}

int main(void) {
  for (const program *p = programs; p->text; p++)
    EXPECT_INT(memory_guard(try_program, (void *)p), STATUS_OK);
  printf("%u runs\n", runs);
  return test_finish();
}
