/* Is the checker right about waits and joins of programs on several devices? Each of them is deleted, one
 * at a time, on one rank, and the program is run in hostile orders with all ranks in this process.
 * Where the checker then names a race, some order must give a wrong result; where it finds nothing, none
 * may. Where it only says that the program does not wait for its end, nothing is run: who asks for the
 * result waits for everything. */
#include "device/cpu/adversary.h"
#include "device_kit.h"
#include "test.h"

enum { SEEDS = 48 };

typedef struct tally {
  uint32_t programs, joins, waits, raced, killed, harmless, survived, at_end;
} tally;

static tally total;
static rt_device *hostile;

/* ---- one plan less one instruction ---- */
static void drop(arena *memory, const rt_plan *from, uint32_t gone, rt_plan *to) {
  *to = *from;
  to->instrs = ARENA_ARRAY(memory, from->n_instrs, rt_instr);
  to->buffers = arena_copy(memory, from->buffers, from->n_buffers * sizeof *to->buffers);
  to->n_instrs = 0;
  for (uint32_t i = 0; i < from->n_instrs; i++)
    if (i != gone) to->instrs[to->n_instrs++] = from->instrs[i];
  for (uint32_t b = 0; b < to->n_buffers; b++) {
    rt_buffer *x = &to->buffers[b];
    if (x->allocated_at > gone) x->allocated_at--;
    if (x->freed_at > gone && x->freed_at != UINT32_MAX) x->freed_at--;
  }
}

/* ---- running ---- */
static bool right(const team *x) {
  for (uint32_t i = 0; i < x->s->n_out; i++)
    if (!kit_same(&x->s->out[i], &x->s->expected[i])) return false;
  return true;
}

/* Every stream is starved twice, with communications that come late and at once; then the others. */
static uint64_t nth_seed(uint32_t k, uint32_t n_streams) {
  return k < 2 * n_streams ? 2 * (uint64_t)k : 2 * (uint64_t)(k - 2 * n_streams) + 1;
}

/* How many seeds give the right result, up to the first that does not. */
static uint32_t survives(team *x, rt_plan *const *plans) {
  session_ranks world = {0};
  rt_plan *plan = NULL;
  rt_loaded *loaded = NULL;
  uint32_t k = 0;
  int64_t timeout_ns = INT64_C(20000000000);
  bool ready = kit_ok(rt_plan_join(plans, x->n, &memory_default, &plan), "join") &&
               kit_ok(kit_ranks_open(&world, x->h, x->n, timeout_ns, hostile), "open the world") &&
               kit_ok(hostile->ops->load(hostile, plan, &loaded), "load");
  if (!EXPECT(ready)) fprintf(stderr, "%s\n", kit_reason);
  for (; ready && k < SEEDS; k++) {
    cpu_adversary_reseed(loaded, nth_seed(k, plan->n_streams));
    team_cut(x);
    bool ran = kit_ok(rt_run(loaded, x->in, x->out, NULL, NULL), "run");
    if (!EXPECT(ran)) fprintf(stderr, "%s\n", kit_reason);
    if (!ran) break;
    if (!team_assemble(x) || !right(x)) break;
  }
  status_clear();
  if (loaded) hostile->ops->unload(loaded);
  session_ranks_close(&world, &memory_default);
  rt_plan_destroy(plan);
  return k;
}

/* ---- judging ---- */
static void disagree(const team *x, const rt_plan *plan, uint32_t rank, uint32_t instr,
                     const char *what) {
  strbuf text;
  strbuf_init(&text, &x->s->memory);
  rt_describe(plan, instr, &text);
  fprintf(stderr, "%s: rank %u, instruction %u: %s\n%s\n", what, rank, instr, text.data,
          subject_print(x->s, x->h));
}

static void judge_instr(team *x, uint32_t rank, uint32_t instr) {
  rt_plan *plans[TEAM_MAX], without;
  const rt_plan *whole = x->plans[rank];
  check_report report;
  memcpy(plans, x->plans, sizeof plans);
  drop(&x->s->memory, whole, instr, &without);
  plans[rank] = &without;
  if (!EXPECT(check_plan(&without, NULL, &report) == STATUS_OK)) return;
  uint64_t races =
      report.n_found - report.count[CHECK_UNJOINED] - report.count[CHECK_FREED_IN_FLIGHT];
  bool found = report.n_found > 0, needed = false;
  EXPECT(check_wait_is_needed(whole, instr, NULL, &needed) == STATUS_OK);
  EXPECT_INT(needed, found);
  check_report_destroy(&report);
  if (found && races == 0) {
    total.at_end++;
    return;
  }
  bool survived = survives(x, plans) == SEEDS;
  total.raced += found;
  total.killed += found && !survived;
  total.harmless += !found;
  total.survived += !found && survived;
  if (!EXPECT(!found || !survived)) disagree(x, whole, rank, instr, "a race that no order shows");
  if (!EXPECT(found || survived)) disagree(x, whole, rank, instr, "no race, but a wrong result");
}

static void judge_team(team *x) {
  check_world_report report;
  if (!EXPECT(check_world((const rt_plan *const *)x->plans, x->n, NULL, &report) == STATUS_OK))
    return;
  bool passes = EXPECT_INT(report.n_found, 0);
  check_world_report_destroy(&report);
  if (!passes || !EXPECT_INT(survives(x, x->plans), SEEDS)) return;
  for (uint32_t r = 0; r < x->n; r++) {
    const rt_plan *plan = x->plans[r];
    for (uint32_t i = 0; i < plan->n_instrs; i++) {
      rt_instr_kind kind = (rt_instr_kind)plan->instrs[i].kind;
      if (kind != RT_WAIT && kind != RT_JOIN) continue;
      total.joins += kind == RT_JOIN;
      total.waits += kind == RT_WAIT;
      judge_instr(x, r, i);
    }
  }
}

/* ---- programs ---- */
typedef struct program {
  const char *text;
  uint32_t devices;
} program;

#define FUSION(mesh, body, marks)                                                                  \
  "fusion f {\n  mesh d = [" mesh "]\n" body "  schedule { " marks " }\n}\n"

static const program programs[] = {
    {FUSION("2", "  a : f32[4, 2, 3, 5]\n  b : f32[5, 3]\n  c = matmul(a, b)\n  return c\n",
            "a, b, c on d; a[1] = mesh.x; c[0] = stream"),
     2},
    {FUSION("4", "  a : f32[4, 3, 5]\n  b : f32[5, 2]\n  c = matmul(a, b)\n  return c\n",
            "a, b, c on d; a[0] = mesh.x; c[0] = stream"),
     4},
    {FUSION("2",
            "  a : f32[4, 2, 3, 5]\n  b : f32[2, 5, 3]\n  u = matmul(a, b)\n"
            "  c = sum(u, dims=[1])\n  return c\n",
            "a, b, u, c on d; a[1] = mesh.x; b[0] = mesh.x; u[1] = mesh.x; u[0] = stream; "
            "c[0] = stream"),
     2},
    {FUSION("3", "  x : f32[6, 4]\n  w : f32[4, 2]\n  g = set(x)\n  y = matmul(g, w)\n  return y\n",
            "x, w, g, y on d; x.outer_split(0, d); x[0] = mesh.x; g.outer_split(0, d); "
            "g[0] = stream; y.outer_split(0, d); y[0] = stream"),
     3},
    {FUSION("2", "  x : f32[6, 4]\n  y = neg(x)\n  z = y + x\n  return z\n",
            "x, y, z on d; x.outer_split(0, d); x[0] = mesh.x; y[1] = stream; z[1] = stream"),
     2},
    /* The own piece first: whole, and, where all compute the same, in slices. */
    {FUSION("2",
            "  a : f32[2, 5, 4]\n  b : f32[4, 6]\n  c = matmul(a, b)\n  y = relu(c)\n  return y\n",
            "a, b, c on d; a[0] = mesh.x; b.outer_split(1, d); b[1] = mesh.x; c.outer_split(2, d); "
            "c[2] = mesh.x; c.outer_split(1, 2); c[0] = stream; c[1] = stream"),
     2},
    {FUSION("2", "  a : f32[2, 5, 4]\n  b : f32[4, 3]\n  c = matmul(a, b)\n  return c\n",
            "a, b, c on d; a[0] = mesh.x; c.outer_split(1, [2, 2, 1]); c.reorder(1 -> 0); "
            "c[0] = stream; c[1] = stream"),
     2},
    /* A ring that passes on while it computes, in a ring of two buffers. */
    {"fusion f {\n  mesh d = [3]\n  a : f32[3, 2, 4]\n  b : f32[4, 5]\n  c = matmul(a, b)\n"
     "  return c\n}\n"
     "host f(mesh d = [3], a : f32[3@x, 2, 4] on d, b : f32[4, 5] on d) -> (c) {\n"
     "  all : f32[2, 1, 2, 4] on d = allocate()\n  c : f32[3, 2, 5] on d = allocate()\n"
     "  main = current_stream()\n"
     "  first = select(all, dim=0, index=0)\n  first <- set(a)\n"
     "  for j in 3 {\n"
     "    now = select(all, dim=0, index=j % 2)\n    next = select(all, dim=0, index=(j + 1) % 2)\n"
     "    c$1 = shard(c, dim=0, index=(me(d.x) - j) % 3, parts=3)\n"
     "    if j < 2 {\n      wait_stream(0)\n      group_start()\n"
     "      send(now, to=(me(d.x) + 1) % 3, team=d.x)\n"
     "      recv(next, from=(me(d.x) + 2) % 3, team=d.x)\n      r = group_end()\n    }\n"
     "    set_stream(0)\n    wait_stream(main)\n    c$1 <- matmul(now, b)\n    set_stream(main)\n"
     "    if j < 2 {\n      wait(r)\n    }\n  }\n  wait_stream(0)\n}\n",
     3},
    {NULL, 0},
};

typedef struct trial {
  const program *p;
  uint32_t streams;
  host_pipeline pipeline;
} trial;

static void fill(subject *s) {
  uint64_t draws = 0;
  for (uint32_t k = 0; k < s->n_in; k++) {
    int64_t n;
    if (!ir_array_count(&s->in[k], &n)) continue;
    for (int64_t i = 0; i < n; i++, draws++) ((float *)s->in[k].data)[i] = (float)(draws % 31) - 15;
  }
}

static status judge_trial(void *context) {
  const trial *t = context;
  subject s;
  team x = {0};
  ir_func *h = NULL;
  host_options options = {.pipeline = t->pipeline};
  bool ready = subject_parse(&s, t->p->text);
  ir_func *written = ready && s.func->host ? s.func : NULL;
  if (ready) s.func = s.module.funcs.data[0];
  ready = ready && schedule_apply(s.func);
  if (ready) ir_env_init(&s.env, s.func, &s.memory);
  ready = ready && ir_bind_complete(&s.env) && subject_values(&s);
  if (ready) fill(&s);
  ready = ready && subject_reference(&s, s.in, s.expected, false);
  if (written) h = written;
  bool lowered = ready && (h || kit_lower(s.func, &options, &h) == STATUS_OK);
  if (lowered && EXPECT(team_open(&x, &s, h, t->streams, t->p->devices))) {
    judge_team(&x);
    total.programs++;
  }
  if (!EXPECT(ready)) fprintf(stderr, "%s\n%s\n", kit_reason, t->p->text);
  team_close(&x);
  subject_close(&s);
  return STATUS_OK;
}

int main(void) {
  hostile = kit_device(1, true);
  if (!EXPECT(hostile != NULL)) return test_finish();
  for (const program *p = programs; p->text; p++)
    for (uint32_t streams = 1; streams <= 3; streams++)
      for (int pipeline = 0; pipeline < 6; pipeline++) {
        trial t = {p, streams, (host_pipeline)pipeline};
        EXPECT(memory_guard(judge_trial, &t) == STATUS_OK);
        status_clear();
      }
  printf(
      "%u programs, %u joins and %u waits: %u order something, %u killed (%.1f%%); %u do not, %u "
      "survived; %u only wait for the end\n",
      total.programs, total.joins, total.waits, total.raced, total.killed,
      total.raced ? 100.0 * total.killed / total.raced : 0.0, total.harmless, total.survived,
      total.at_end);
  EXPECT_INT(total.survived, total.harmless);
  EXPECT_INT(total.killed, total.raced);
  EXPECT(total.raced > 500 && total.harmless > 50);
  hostile->ops->close(hostile);
  return test_finish();
}
