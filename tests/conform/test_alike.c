/* Ranks that are alike, of programs on 2 to 64 devices: what the checker finds by one of them is
 * what it finds by all, for the plans as they are and with each wait, join and post changed on all
 * ranks; and waits that one of them can do without are those that each can do without. */
#include "alike_kit.h"
#include "session/ranks.h"
#include "stream_kit.h"
#include "test.h"

enum { MOST = 64 };

typedef struct program {
  const char *name, *text; /* every @ becomes the number of devices */
  host_pipeline pipeline;
  bool alike;
} program;

#define AG_MATMUL                                                                                  \
  "fusion f {\n  mesh d = [@]\n  a : f32[@, 3, 5]\n  b : f32[5, 2]\n  c = matmul(a, b)\n"          \
  "  return c\n  schedule { a, b, c on d; a[0] = mesh.x; c[0] = stream }\n}\n"

static const program programs[] = {
    {"ring", AG_MATMUL, HOST_RING, true},
    {"p2p-offset", AG_MATMUL, HOST_P2P_OFFSET, true},
    {"p2p", AG_MATMUL, HOST_P2P, false},
    {"broadcasts", AG_MATMUL, HOST_COLLECTIVE, true},
    {"slices",
     "fusion f {\n  mesh d = [@]\n  a : f32[4, @, 2, 5]\n  b : f32[5, 2]\n  c = matmul(a, b)\n"
     "  return c\n  schedule { a, b, c on d; a[1] = mesh.x; c[0] = stream }\n}\n",
     HOST_AUTO, true},
    {"gathered weights",
     "fusion f {\n  mesh d = [@]\n  x : f32[@, @]\n  w : f32[@, 8]\n  g = set(w)\n"
     "  y = relu(matmul(x, g))\n  dw = matmul(transpose(x), y)\n  return y, dw\n"
     "  schedule { x, w, g, dw on d; x.outer_split(0, d); x[0] = mesh.x; w.outer_split(0, d);\n"
     "    w[0] = mesh.x; dw.outer_split(0, d); dw[0] = mesh.x }\n}\n",
     HOST_AUTO, true},
    {"row-parallel",
     "fusion f {\n  mesh d = [@]\n  x : f32[4, @]\n  w : f32[@, 3]\n  y = relu(matmul(x, w))\n"
     "  return y\n  schedule { x, w on d; x.outer_split(1, d); x[1] = mesh.x;\n"
     "    w.outer_split(0, d); w[0] = mesh.x }\n}\n",
     HOST_AUTO, true},
    {"uneven pieces",
     "fusion f {\n  mesh d = [@]\n  x : f32[2, 67]\n  y = sum(neg(x), dims=[1])\n  return y\n"
     "  schedule { x on d; x.outer_split(1, d); x[1] = mesh.x }\n}\n",
     HOST_AUTO, false},
    {"gathered uneven pieces",
     "fusion f {\n  mesh d = [@]\n  a : f32[67, 3]\n  b : f32[3, 2]\n  c = matmul(a, b)\n  return "
     "c\n"
     "  schedule { a, b, c on d; a.outer_split(0, d); a[0] = mesh.x }\n}\n",
     HOST_AUTO, false},
    /* Two kinds: the last rank waits for something else, sends more, or does not send. */
    {"one waits",
     "host f(mesh d = [@], a : f32[@@x, 3] on d) -> (c) {\n  c : f32[@@x, 3] on d = allocate()\n"
     "  t : f32[3] on d = allocate()\n  main = current_stream()\n  set_stream(0)\n  "
     "wait_stream(main)\n"
     "  q = select(a, dim=0, index=0)\n  t <- neg(q)\n  set_stream(main)\n"
     "  if me(d.x) == 1 {\n    wait_stream(0)\n  }\n  p = select(c, dim=0, index=0)\n  p <- "
     "neg(t)\n"
     "  wait_stream(0)\n  deallocate(t)\n}\n",
     HOST_AUTO, false},
    {"one is absent",
     "host f(mesh d = [@], a : f32[@@x, 3] on d) -> (c) {\n  c : f32[@@x, 3] on d = allocate()\n"
     "  t : f32[3] on d = allocate()\n  q = select(a, dim=0, index=0)\n  p = select(c, dim=0, "
     "index=0)\n"
     "  p <- neg(q)\n  if me(d.x) == 1 {\n    t <- neg(q)\n  } else {\n"
     "    r = allreduce(q -> t, team=d.x, op=sum)\n    wait(r)\n  }\n  deallocate(t)\n}\n",
     HOST_AUTO, false},
    /* Memory that turns, and is read where it does not. */
    {"read in order",
     "host f(mesh d = [@], a : f32[@@x, 3] on d) -> (c) {\n  all : f32[@, 3] on d = allocate()\n"
     "  c : f32[@, 3] on d = allocate()\n  for i in @ {\n"
     "    p = select(all, dim=0, index=(me(d.x) + i) % @)\n    q = select(a, dim=0, index=0)\n"
     "    p <- set(q)\n  }\n  for i in @ {\n    p$1 = select(all, dim=0, index=i)\n"
     "    r = select(c, dim=0, index=i)\n    r <- set(p$1)\n  }\n  deallocate(all)\n}\n",
     HOST_AUTO, false},
    {"turns and is read whole",
     "host f(mesh d = [@], a : f32[@@x, 3] on d) -> (c) {\n  all : f32[@, 3] on d = allocate()\n"
     "  c : f32[@, 3] on d = allocate()\n  for i in @ {\n"
     "    p = select(all, dim=0, index=(me(d.x) + i) % @)\n    q = select(a, dim=0, index=0)\n"
     "    p <- set(q)\n  }\n  c <- neg(all)\n  deallocate(all)\n}\n",
     HOST_AUTO, true},
    /* Roots: each rank in turn, one for ever; what they receive is read, or lacks a wait. */
    {"reduces",
     "host f(mesh d = [@], a : f32[@, @@x, 3] on d) -> (c) {\n  c : f32[3] on d = allocate()\n"
     "  t : f32[3] on d = allocate()\n  for i in @ {\n    set_stream(i % streams)\n"
     "    p = select(a, dim=0, index=i)\n    q = select(p, dim=0, index=0)\n"
     "    r = reduce(q -> t, team=d.x, op=sum, root=i)\n    wait(r)\n  }\n  main = "
     "current_stream()\n"
     "  c <- neg(t)\n  deallocate(t)\n}\n",
     HOST_AUTO, true},
    {"reduced on one",
     "host f(mesh d = [@], a : f32[@@x, 3] on d) -> (c) {\n  c : f32[3] on d = allocate()\n"
     "  t : f32[3] on d = allocate()\n  q = select(a, dim=0, index=0)\n"
     "  r = reduce(q -> t, team=d.x, op=sum, root=1)\n  wait(r)\n"
     "  s = broadcast(t -> c, team=d.x, root=1)\n  wait(s)\n  deallocate(t)\n}\n",
     HOST_AUTO, true},
    {"gathered and scattered",
     "host f(mesh d = [@], a : f32[@@x, 3] on d) -> (c) {\n  c : f32[@@x, 3] on d = allocate()\n"
     "  t : f32[@, 3] on d = allocate()\n  for i in @ {\n"
     "    r = gather(a -> t, team=d.x, root=i)\n    wait(r)\n  }\n"
     "  s = scatter(t -> c, team=d.x, root=1)\n  wait(s)\n  deallocate(t)\n}\n",
     HOST_AUTO, true},
    /* Only the root writes it, all read it. */
    {"read by all",
     "host f(mesh d = [@], a : f32[@@x, 3] on d) -> (c) {\n  c : f32[3] on d = allocate()\n"
     "  t : f32[3] on d = allocate()\n  q = select(a, dim=0, index=0)\n"
     "  r = reduce(q -> t, team=d.x, op=sum, root=0)\n  wait(r)\n  c <- neg(t)\n  "
     "deallocate(t)\n}\n",
     HOST_AUTO, true},
    /* The root overwrites what it sends, on another stream. */
    {"overwritten",
     "host f(mesh d = [@], a : f32[@@x, 3] on d) -> (c) {\n  c : f32[3] on d = allocate()\n"
     "  t : f32[3] on d = allocate()\n  q = select(a, dim=0, index=0)\n  t <- neg(q)\n"
     "  s = broadcast(t -> c, team=d.x, root=1)\n  t <- set(q)\n  wait(s)\n  deallocate(t)\n}\n",
     HOST_AUTO, true},
    /* Nobody receives before it has sent, and nobody gets there. */
    {"deadlock",
     "host f(mesh d = [@], a : f32[@@x, 3] on d) -> (c) {\n  c : f32[@@x, 3] on d = allocate()\n"
     "  r = recv(c, from=(me(d.x) + 1) % @, team=d.x)\n  wait(r)\n"
     "  s = send(a, to=(me(d.x) + @ - 1) % @, team=d.x)\n  wait(s)\n}\n",
     HOST_AUTO, true},
    /* What is sent one step is received by nobody. */
    {"absent",
     "host f(mesh d = [@], a : f32[@@x, 3] on d) -> (c) {\n  c : f32[@@x, 3] on d = allocate()\n"
     "  group_start()\n  recv(c, from=(me(d.x) + 1) % @, team=d.x)\n"
     "  send(a, to=(me(d.x) + 1) % @, team=d.x)\n  s = group_end()\n  wait(s)\n}\n",
     HOST_AUTO, true},
};

typedef struct trial {
  const program *p;
  uint32_t devices, streams;
  alike_counts *counts;
} trial;

static const char *text_of(const program *p, uint32_t devices, arena *memory) {
  strbuf out;
  strbuf_init(&out, memory);
  for (const char *c = p->text; *c; c++) {
    bool mark = c[0] == '@' && c[1] == 'x'; /* @x marks an axis */
    if (*c == '@' && !mark) strbuf_printf(&out, "%u", devices);
    else strbuf_putc(&out, *c);
  }
  return out.data;
}

static bool bind_all(const trial *t, ir_func *h, arena *memory, rt_plan **plans) {
  ir_env env;
  ir_env_init(&env, h, memory);
  bind_options options = {.streams = t->streams, .world = t->devices};
  options.lends = true;
  for (uint32_t r = 0; r < t->devices; r++) {
    options.rank = r;
    if (bind_plan(&env, &options, &memory_default, &plans[r]) != STATUS_OK) return false;
  }
  return true;
}

static bool same_instrs(const rt_plan *a, const rt_plan *b) {
  if (a->n_instrs != b->n_instrs) return false;
  for (uint32_t i = 0; i < a->n_instrs; i++) {
    const rt_instr *x = &a->instrs[i], *y = &b->instrs[i];
    if (x->kind != y->kind || x->stream != y->stream || x->other != y->other || x->task != y->task)
      return false;
  }
  for (uint32_t i = 0; i < a->n_buffers; i++)
    if (a->buffers[i].allocated_at != b->buffers[i].allocated_at ||
        a->buffers[i].freed_at != b->buffers[i].freed_at)
      return false;
  return true;
}

static uint32_t n_pruned, n_like;

/* Each rank's waits are taken out by itself, and as those of the first. The plans are of no use
 * afterwards. */
static void judge_waits(const trial *t, ir_func *h, arena *memory, rt_plan **plans) {
  rt_plan *again[MOST] = {0};
  uint32_t removed = 0;
  bool ready = bind_all(t, h, memory, again);
  for (uint32_t r = 0; ready && r < t->devices; r++) {
    ready = check_prune_waits(plans[r], &memory_default, &removed) == STATUS_OK;
    bool like = check_prune_like(again[r], plans[0]);
    EXPECT_INT(like, plans[0]->alike && plans[0]->passed && !rt_plan_has_roots(plans[0]));
    if (like && !EXPECT(same_instrs(plans[r], again[r])))
      fprintf(stderr, "%s on %u devices, rank %u\n", t->p->name, t->devices, r);
    n_like += like;
    n_pruned += like && removed > 0;
  }
  EXPECT(ready);
  for (uint32_t r = 0; r < t->devices; r++) rt_plan_destroy(again[r]);
}

static status judge_trial(void *context) {
  const trial *t = context;
  subject s;
  arena memory;
  rt_plan *plans[MOST] = {0};
  host_options options = {.pipeline = t->p->pipeline};
  arena_init(&memory, &memory_default);
  bool ready = subject_parse(&s, text_of(t->p, t->devices, &memory));
  ir_func *h = ready && s.func->host ? s.func : NULL;
  ready = ready && (h || (schedule_apply(s.func) && kit_lower(s.func, &options, &h) == STATUS_OK));
  ready = ready && bind_all(t, h, &memory, plans);
  if (!EXPECT(ready)) fprintf(stderr, "%s on %u: %s\n", t->p->name, t->devices, status_message());
  if (ready) {
    bool is_alike = alike_one(plans, t->devices) != NULL;
    if (!EXPECT_INT(is_alike, t->p->alike || t->devices == 1))
      fprintf(stderr, "%s on %u devices\n", t->p->name, t->devices);
    uint32_t every = 1 + plans[0]->n_instrs * t->devices / 3000;
    if (!EXPECT(alike_judge(plans, t->devices, every, t->counts)))
      fprintf(stderr, "%s on %u devices\n", t->p->name, t->devices);
    judge_waits(t, h, &memory, plans);
  }
  for (uint32_t r = 0; r < t->devices; r++) rt_plan_destroy(plans[r]);
  subject_close(&s);
  arena_destroy(&memory);
  return STATUS_OK;
}

int main(void) {
  static const uint32_t devices[] = {2, 3, 8, 64};
  alike_counts counts = {0};
  for (uint32_t i = 0; i < sizeof programs / sizeof *programs; i++)
    for (uint32_t k = 0; k < 4; k++)
      for (uint32_t streams = 1; streams <= 3; streams += 2) {
        trial t = {&programs[i], devices[k], streams, &counts};
        EXPECT(memory_guard(judge_trial, &t) == STATUS_OK);
        status_clear();
      }
  printf("%u worlds, %u alike, %u of a few kinds; %u changes on all ranks, %u found, %u in doubt\n",
         counts.worlds, counts.alike, counts.kinds, counts.mutants, counts.killed, counts.doubts);
  printf("%u plans with the waits of another rank, of which %u lost some\n", n_like, n_pruned);
  EXPECT(n_pruned > 100 && n_pruned < n_like);
  EXPECT(counts.kinds > 10);
  EXPECT(counts.mutants > 1000 && counts.killed > 500 && counts.killed < counts.mutants);
  return test_finish();
}
