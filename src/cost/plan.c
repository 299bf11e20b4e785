#include "cost/cost.h"

#include <math.h>

#include "runtime/machine.h"

double cost_post_bytes(const rt_post *post) {
  double piece = (double)post->count * (double)ir_dtype_size_bytes(post->dtype);
  bool nothing = post->kind == IR_COMM_PERMUTE && post->to == RT_COMM_NOBODY;
  return nothing ? 0 : ir_comm_link_bytes(post->kind, piece, post->n_team);
}

/* While a thread is idle because what comes next waits. Work of other streams, which a program
 * writes later, is done then. */
typedef struct gap {
  double from, to;
} gap;
enum { MOST_GAPS = 32 };

typedef struct model {
  const rt_plan *plan;
  const rt_speed *m;
  double *streams;     /* when each is done with what it has */
  double *threads;     /* when each is free */
  double *posts;       /* when each communication is done */
  double link[2];      /* when it is free, out and in */
  double recovered[2]; /* when it has rested from what went through (rt_link) */
  double host;         /* when it has issued what came so far */
  gap *gaps;           /* the latest, in a ring */
  uint32_t n_gaps;
} model;

/* Messages of a member, out and in. A reduction by more than two sends its result on. */
static double messages(const rt_post *post) {
  const ir_comm_info *info = ir_comm_info_of(post->kind);
  double n = post->n_team;
  if (info->way == IR_WAY_PAIR) return post->kind == IR_COMM_PERMUTE ? 2 : 1;
  if (info->way == IR_WAY_TWICE) return n > 2 ? 3 * n - 2 : n;
  if (info->root == IR_ROOT_NO) return info->in == IR_PIECES_ONE ? n : 2 * (n - 1);
  if (info->way == IR_WAY_CHAIN && !info->combines) return 1;
  return post->root == post->me ? n - 1 : 1;
}

/* A message is a copy between a wait and a record; so is what reduces. */
static double issue_post_ns(const rt_post *post, const rt_speed *m) {
  enum { STEPS = 3 };
  bool reduces = ir_comm_combines(post->kind);
  return m->call_ns * STEPS * (reduces + (reduces && m->reads_peers ? 0 : messages(post)));
}

/* Which ways the bytes go that the model counts. */
static void directions(ir_comm_kind kind, bool *out, bool *in) {
  *out = kind != IR_COMM_RECV;
  *in = kind != IR_COMM_SEND;
}

/* Does the work fit a gap? It takes as much of the earliest. */
static bool fill_gap(model *x, double ready, double takes, double *start) {
  uint32_t n = x->n_gaps < MOST_GAPS ? x->n_gaps : MOST_GAPS;
  gap *best = NULL;
  for (uint32_t i = 0; i < n; i++) {
    gap *g = &x->gaps[i];
    if (fmax(g->from, ready) + takes <= g->to && (!best || g->from < best->from)) best = g;
  }
  if (!best) return false;
  *start = fmax(best->from, ready);
  gap after = {*start + takes, best->to};
  best->to = *start;
  if (after.to > after.from) x->gaps[x->n_gaps++ % MOST_GAPS] = after;
  return true;
}

static void launch(model *x, const rt_instr *i) {
  uint32_t best = 0;
  for (uint32_t t = 1; t < x->m->threads; t++) {
    if (x->threads[t] < x->threads[best]) best = t;
  }
  x->host += x->m->issue_ns;
  double *stream = &x->streams[i->stream], start = fmax(*stream, x->host);
  double takes = rt_task_ns(x->plan, &x->plan->tasks[i->task], x->m);
  if (!fill_gap(x, start, takes, &start)) {
    if (start > x->threads[best]) x->gaps[x->n_gaps++ % MOST_GAPS] = (gap){x->threads[best], start};
    start = fmax(start, x->threads[best]);
    x->threads[best] = start + takes;
  }
  *stream = start + takes;
}

static void post(model *x, const rt_instr *i) {
  const rt_post *p = &x->plan->posts[i->task];
  x->host += issue_post_ns(p, x->m);
  double start = fmax(x->streams[i->stream], x->host);
  bool ways[2];
  directions(p->kind, &ways[0], &ways[1]);
  for (int k = 0; k < 2; k++) {
    if (ways[k] && x->link[k] > start) start = x->link[k];
  }
  rt_link link = rt_machine_link(x->m, p);
  double bytes_ns = cost_post_bytes(p) / link.bytes_per_ns, through = start;
  for (int k = 0; k < 2; k++) {
    if (ways[k])
      through = fmax(through, rt_link_through_ns(link, start, bytes_ns, &x->recovered[k]));
  }
  double end = through + x->m->post_ns;
  for (int k = 0; k < 2; k++) {
    if (ways[k]) x->link[k] = end;
  }
  x->posts[i->task] = end + link.latency_ns;
}

double cost_plan_ns(const rt_plan *plan, const rt_speed *m, arena *scratch) {
  model x = {.plan = plan, .m = m};
  x.streams = ARENA_ARRAY(scratch, plan->n_streams, double);
  x.threads = ARENA_ARRAY(scratch, m->threads, double);
  x.gaps = ARENA_ARRAY(scratch, MOST_GAPS, gap);
  x.posts = ARENA_ARRAY(scratch, plan->n_posts, double);
  for (uint32_t k = 0; k < plan->n_instrs; k++) {
    const rt_instr *i = &plan->instrs[k];
    double *stream = &x.streams[i->stream];
    switch ((rt_instr_kind)i->kind) {
    case RT_LAUNCH: launch(&x, i); break;
    case RT_WAIT:
      if (x.streams[i->other] > *stream) *stream = x.streams[i->other];
      break;
    case RT_POST: post(&x, i); break;
    case RT_JOIN:
      if (x.posts[i->task] > *stream) *stream = x.posts[i->task];
      break;
    }
  }
  double end = x.host;
  for (uint32_t s = 0; s < plan->n_streams; s++) end = x.streams[s] > end ? x.streams[s] : end;
  return end;
}

typedef struct estimate_call {
  const rt_plan *plan;
  const rt_speed *speed;
  arena scratch;
  double ns;
} estimate_call;

static status estimate(void *context) {
  estimate_call *c = context;
  c->ns = cost_plan_ns(c->plan, c->speed, &c->scratch);
  return STATUS_OK;
}

status cost_plan_estimate(const rt_plan *plan, const rt_speed *s, const allocator *memory,
                          double *ns) {
  estimate_call c = {.plan = plan, .speed = s};
  arena_init(&c.scratch, memory);
  status st = memory_guard(estimate, &c);
  arena_destroy(&c.scratch);
  *ns = c.ns;
  return st;
}
