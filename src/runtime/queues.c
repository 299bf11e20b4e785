#include "runtime/queues.h"

#include <string.h>

rt_entry rt_queue_find(const rt_queue *q, uint32_t number) {
  uint32_t low = 0, n = q->n_loops;
  while (n > 0) { /* loops below `low` begin at or before it */
    uint32_t half = n / 2;
    bool later = q->loops[low + half].first <= number;
    low += later ? half + 1 : 0;
    n = later ? n - half - 1 : half;
  }
  if (low == 0) return q->entries[number];
  const rt_queue_loop *l = &q->loops[low - 1];
  uint32_t past = number - l->first;
  if (past >= l->n * l->times) return q->entries[l->at + l->n + (past - l->n * l->times)];
  rt_entry e = q->entries[l->at + past % l->n];
  e.turn = past / l->n;
  e.instr += e.turn * l->instrs;
  e.launch += e.turn * (e.kind == RT_POST ? l->posts : l->launches);
  if (e.kind == RT_WAIT) e.target += e.turn * e.others;
  if (e.kind == RT_JOIN && e.others && e.turn) {
    e.task = e.others - 1;
    e.turn--;
  }
  return e;
}

/* ---- building ---- */
typedef struct building {
  const rt_plan *plan;
  arena *memory;
  rt_queues q;
  uint32_t *len; /* by stream: entries in memory */
  uint32_t *begin,
      *number;   /* by stream: where those of the loop begin, in memory and as they are done */
  uint32_t done; /* instructions */
} building;

static void make_room(building *b) {
  const rt_plan *plan = b->plan;
  uint32_t n = b->q.n_streams;
  b->q.streams = ARENA_ARRAY(b->memory, n, rt_queue);
  b->len = ARENA_ARRAY(b->memory, n, uint32_t);
  b->begin = ARENA_ARRAY(b->memory, n, uint32_t);
  b->number = ARENA_ARRAY(b->memory, n, uint32_t);
  for (uint32_t i = 0; i < plan->n_instrs; i++) {
    check(plan->instrs[i].stream < plan->n_streams);
    b->len[plan->instrs[i].stream]++;
  }
  for (uint32_t s = 0; s < n; s++) {
    b->q.streams[s].entries = ARENA_ARRAY(b->memory, b->len[s], rt_entry);
    b->len[s] = 0;
  }
}

/* Counts the loops that each stream is in, and makes room for them. */
static void make_loops(building *b) {
  const rt_plan *plan = b->plan;
  uint32_t *last = b->begin; /* + 1, while they are counted */
  for (uint32_t k = 0; k < plan->n_loops; k++)
    for (uint32_t i = plan->loops[k].first; i < plan->loops[k].first + plan->loops[k].n; i++) {
      uint32_t s = plan->instrs[i].stream;
      b->q.streams[s].n_loops += last[s] != k + 1;
      last[s] = k + 1;
    }
  for (uint32_t s = 0; s < b->q.n_streams && plan->n_loops; s++) {
    rt_queue *q = &b->q.streams[s];
    q->loops = ARENA_ARRAY(b->memory, q->n_loops, rt_queue_loop);
    q->n_loops = 0;
  }
}

/* A stream that waits for itself waits for nothing. */
static void set_target(building *b, const rt_instr *instr, rt_entry *e) {
  check(instr->other < b->q.n_streams);
  rt_queue *other = &b->q.streams[instr->other];
  e->other = instr->other;
  e->target = instr->other == instr->stream ? 0 : other->n;
  if (e->target) other->entries[b->len[instr->other] - 1].signals = true;
}

static void add(building *b, uint32_t i) {
  const rt_instr *instr = &b->plan->instrs[i];
  rt_entry e = {.instr = b->done++, .kind = instr->kind};
  switch ((rt_instr_kind)instr->kind) {
  case RT_WAIT: set_target(b, instr, &e); break;
  case RT_LAUNCH:
    check(instr->task < b->plan->n_tasks);
    e.task = instr->task;
    e.launch = b->q.n_launches++;
    break;
  case RT_POST:
  case RT_JOIN:
    check(instr->task < b->plan->n_posts);
    e.task = instr->task;
    if (instr->kind == RT_POST) e.launch = b->q.n_posts++;
    else {
      e.turn = rt_post_last_turn(b->plan, e.task);
      e.others = b->plan->posts[e.task].next + 1;
    }
    break;
  }
  b->q.streams[instr->stream].entries[b->len[instr->stream]++] = e;
  b->q.streams[instr->stream].n++;
}

/* In a later repetition a wait may be for the last entry of the one before. */
static void set_repeated_target(building *b, uint32_t s, rt_entry *e) {
  if (e->kind != RT_WAIT || e->other == s) return;
  e->others = b->len[e->other] - b->begin[e->other];
  if (e->others) b->q.streams[e->other].entries[b->len[e->other] - 1].signals = true;
}

static void end_loop(building *b, const rt_loop *l, uint32_t launches, uint32_t posts) {
  for (uint32_t s = 0; s < b->q.n_streams; s++) {
    rt_queue *q = &b->q.streams[s];
    uint32_t n = b->len[s] - b->begin[s];
    if (n == 0) continue;
    for (uint32_t k = b->begin[s]; k < b->len[s]; k++) set_repeated_target(b, s, &q->entries[k]);
    q->loops[q->n_loops++] =
        (rt_queue_loop){b->number[s], n, l->times, b->begin[s], l->n, launches, posts};
    q->n += n * (l->times - 1);
  }
  b->done += l->n * (l->times - 1);
  b->q.n_launches += launches * (l->times - 1);
  b->q.n_posts += posts * (l->times - 1);
}

static void add_loop(building *b, const rt_loop *l) {
  uint32_t launches = b->q.n_launches, posts = b->q.n_posts;
  memcpy(b->begin, b->len, b->q.n_streams * sizeof *b->begin);
  for (uint32_t s = 0; s < b->q.n_streams; s++) b->number[s] = b->q.streams[s].n;
  for (uint32_t i = l->first; i < l->first + l->n; i++) add(b, i);
  end_loop(b, l, b->q.n_launches - launches, b->q.n_posts - posts);
}

void rt_queues_build(const rt_plan *plan, arena *memory, rt_queues *result) {
  check(plan->n_streams <= RT_MAX_STREAMS);
  building b = {.plan = plan, .memory = memory, .q = {.n_streams = plan->n_streams}};
  make_room(&b);
  make_loops(&b);
  uint32_t at = 0;
  for (uint32_t k = 0; k <= plan->n_loops; k++) {
    uint32_t end = k < plan->n_loops ? plan->loops[k].first : plan->n_instrs;
    for (; at < end; at++) add(&b, at);
    if (k == plan->n_loops) break;
    add_loop(&b, &plan->loops[k]);
    at += plan->loops[k].n;
  }
  *result = b.q;
}
