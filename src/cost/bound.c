#include "cost/bound.h"

#include <math.h>
#include <stdlib.h>

#include "cost/needs.h"
#include "runtime/machine.h"

/* ---- the bound ---- */
/* The least number of steps: a tree's, and one for a message. */
static double steps(const rt_post *p) {
  return p->n_team <= 1 ? 0 : ir_comm_is_message(p->kind) ? 1 : ceil(log2(p->n_team));
}

/* Steps of communications one after the other, by stream; tasks may be as short as one likes. */
static double chain_ns(const rt_plan *plan, const rt_speed *m, arena *scratch) {
  double *streams = ARENA_ARRAY(scratch, plan->n_streams, double), most = 0;
  double *posts = ARENA_ARRAY(scratch, (size_t)plan->n_posts + 1, double);
  for (uint32_t k = 0; k < plan->n_instrs; k++) {
    const rt_instr *i = &plan->instrs[k];
    double *stream = &streams[i->stream];
    switch ((rt_instr_kind)i->kind) {
    case RT_LAUNCH: break;
    case RT_WAIT: *stream = fmax(*stream, streams[i->other]); break;
    case RT_POST: {
      const rt_post *p = &plan->posts[i->task];
      posts[i->task] = *stream + steps(p) * rt_machine_link(m, p).latency_ns;
      most = fmax(most, posts[i->task]);
      break;
    }
    case RT_JOIN: *stream = fmax(*stream, posts[i->task]); break;
    }
  }
  return most;
}

static double task_ns(const rt_plan *plan, const rt_speed *machine) {
  double sum = 0;
  for (uint32_t t = 0; t < plan->n_tasks; t++)
    sum += cost_arithmetic_ns(plan, &plan->tasks[t], machine);
  return sum;
}

typedef struct transfer {
  double after, receive, send, burst;
} transfer;

static int by_start(const void *pa, const void *pb) {
  const transfer *a = pa, *b = pb;
  return (a->after < b->after) - (a->after > b->after);
}

/* What cannot begin before some time takes the link that long after it. */
static double late_ns(const rt_plan *plan, const rt_speed *m, double threads, arena *scratch) {
  transfer *all = ARENA_ARRAY(scratch, (size_t)plan->n_posts + 1, transfer);
  double *after = ARENA_ARRAY(scratch, (size_t)plan->n_posts + 1, double);
  double receive = 0, send = 0, most = 0;
  cost_needs(plan, m, scratch, after);
  for (uint32_t p = 0; p < plan->n_posts; p++) {
    rt_link link = rt_machine_link(m, &plan->posts[p]);
    all[p] = (transfer){after[p] / threads, rt_post_bytes_in(&plan->posts[p]) / link.bytes_per_ns,
                        rt_post_bytes(&plan->posts[p]) / link.bytes_per_ns, link.burst_ns};
  }
  qsort(all, plan->n_posts, sizeof *all, by_start);
  for (uint32_t p = 0; p < plan->n_posts && all[p].after > 0; p++) {
    receive += all[p].receive;
    send += all[p].send;
    most = fmax(most, all[p].after + fmax(receive, send) - all[p].burst);
  }
  return most;
}

static double caller_bytes(const rt_plan *plan) {
  double sum = 0;
  for (uint32_t b = 0; b < plan->n_buffers; b++)
    if (plan->buffers[b].kind != RT_BUFFER_POOL) sum += (double)plan->buffers[b].size_bytes;
  return sum;
}

void cost_bound_add(cost_bound *b, const rt_plan *plan, const rt_speed *m, arena *scratch) {
  double receive = 0, send = 0, burst = 0;
  for (uint32_t p = 0; p < plan->n_posts; p++) {
    rt_link link = rt_machine_link(m, &plan->posts[p]);
    receive += rt_post_bytes_in(&plan->posts[p]) / link.bytes_per_ns;
    send += rt_post_bytes(&plan->posts[p]) / link.bytes_per_ns;
    burst = fmax(burst, link.burst_ns);
  }
  double threads = m->threads ? m->threads : 1; /* the rates are of one */
  double compute = task_ns(plan, m);
  b->all_compute += compute;
  b->n++;
  b->compute = fmax(b->compute, compute / threads);
  b->memory = fmax(b->memory, caller_bytes(plan) / m->bytes_per_ns / threads);
  b->receive = fmax(b->receive, receive - burst);
  b->send = fmax(b->send, send - burst);
  b->chain = fmax(b->chain, fmax(chain_ns(plan, m, scratch), late_ns(plan, m, threads, scratch)));
}

void cost_bound_share_cores(cost_bound *b, const rt_speed *m, uint32_t devices) {
  if (m->cores <= 0 || b->n == 0) return;
  double hosts = m->per_host > 0 ? ceil(devices / m->per_host) : 1;
  double all = b->all_compute * devices / b->n;
  b->compute = fmax(b->compute, all / (m->cores * hosts));
}

double cost_bound_ns(const cost_bound *b) {
  return fmax(fmax(b->compute, b->memory), fmax(fmax(b->receive, b->send), b->chain));
}

/* ---- where time went ---- */
typedef struct interval {
  int64_t start_ns, end_ns;
  uint32_t post;
} interval;

typedef struct intervals {
  interval *data;
  uint32_t len;
} intervals;

static int compare_starts(const void *pa, const void *pb) {
  const interval *a = pa, *b = pb;
  if (a->start_ns != b->start_ns) return a->start_ns < b->start_ns ? -1 : 1;
  return a->post < b->post ? -1 : a->post > b->post;
}

static uint32_t last_rank(const rt_plan *plan, const rt_span *spans) {
  uint32_t n = plan->n_tasks + plan->n_posts, last = 0;
  for (uint32_t i = 1; i < n; i++)
    if (spans[i].end_ns > spans[last].end_ns) last = i;
  return n ? rt_plan_rank(plan, spans[last].stream) : 0;
}

static intervals collect(const rt_plan *plan, const rt_span *spans, uint32_t first, uint32_t n,
                         uint32_t rank, arena *memory) {
  intervals l = {ARENA_ARRAY(memory, (size_t)n + 1, interval), 0};
  for (uint32_t i = 0; i < n; i++) {
    const rt_span *s = &spans[first + i];
    if (s->end_ns > s->start_ns && rt_plan_rank(plan, s->stream) == rank)
      l.data[l.len++] = (interval){s->start_ns, s->end_ns, i};
  }
  if (l.len) qsort(l.data, l.len, sizeof *l.data, compare_starts);
  return l;
}

/* Overlapping ones become one. */
static void merge(intervals *l) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < l->len; i++) {
    if (n && l->data[i].start_ns <= l->data[n - 1].end_ns) {
      if (l->data[i].end_ns > l->data[n - 1].end_ns) l->data[n - 1].end_ns = l->data[i].end_ns;
    } else l->data[n++] = l->data[i];
  }
  l->len = n;
}

/* Of [from, to), what no task covers. `first` goes along: `from` never comes back. */
static int64_t bare_ns(const intervals *tasks, uint32_t *first, int64_t from, int64_t to) {
  int64_t sum = 0;
  while (*first < tasks->len && tasks->data[*first].end_ns <= from) ++*first;
  for (uint32_t k = *first; from < to; k++) {
    bool any = k < tasks->len && tasks->data[k].start_ns < to;
    int64_t until = any ? tasks->data[k].start_ns : to;
    if (until > from) sum += until - from;
    from = any ? tasks->data[k].end_ns : to;
  }
  return sum;
}

void cost_spend(const rt_plan *plan, const rt_span *spans, int64_t total_ns, arena *memory,
                cost_spent *result) {
  uint32_t rank = last_rank(plan, spans), first = 0;
  intervals tasks = collect(plan, spans, 0, plan->n_tasks, rank, memory);
  intervals comms = collect(plan, spans, plan->n_tasks, plan->n_posts, rank, memory);
  *result = (cost_spent){.rank = rank, .total_ns = total_ns};
  result->by_post = ARENA_ARRAY(memory, (size_t)plan->n_posts + 1, int64_t);
  merge(&tasks);
  for (uint32_t i = 0; i < tasks.len; i++)
    result->computing_ns += tasks.data[i].end_ns - tasks.data[i].start_ns;
  int64_t told_ns = 0; /* up to here */
  for (uint32_t i = 0; i < comms.len; i++) {
    const interval *c = &comms.data[i];
    int64_t from = c->start_ns > told_ns ? c->start_ns : told_ns;
    if (from >= c->end_ns) continue;
    result->by_post[c->post] = bare_ns(&tasks, &first, from, c->end_ns);
    result->exposed_ns += result->by_post[c->post];
    told_ns = c->end_ns;
  }
}
