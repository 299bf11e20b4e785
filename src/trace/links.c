#include "trace/links.h"

#include <stdlib.h>
#include <string.h>

/* One side of a meeting. Sides with equal (team, from, to) meet by their order among those of their rank. */
typedef struct side {
  uint32_t team;    /* of a collective */
  int64_t from, to; /* of a message: devices; else -1 */
  uint32_t order;   /* which one of its rank */
  uint32_t rank, post;
  bool sends;
} side;

typedef struct sides {
  side *data;
  uint32_t len;
} sides;

/* Teams are few: a number for each different one. */
typedef struct teams {
  const rt_post **first;
  uint32_t len;
} teams;

static uint32_t team_of(teams *known, const rt_post *p) {
  for (uint32_t k = 0; k < known->len; k++) {
    const rt_post *q = known->first[k];
    bool equal = q->n_team == p->n_team &&
                 (q->team == p->team || !memcmp(q->team, p->team, p->n_team * sizeof *p->team));
    if (equal) return k;
  }
  known->first[known->len] = p;
  return known->len++;
}

static void add_side(sides *list, side s) { list->data[list->len++] = s; }

static void add_post(sides *list, teams *known, const rt_post *p, uint32_t number) {
  side s = {.from = -1, .to = -1, .rank = p->rank, .post = number};
  if (!ir_comm_is_message(p->kind)) {
    s.team = team_of(known, p);
    add_side(list, s);
    return;
  }
  bool gives = p->kind != IR_COMM_RECV && p->to >= 0 && (uint32_t)p->to != p->me;
  bool takes = p->kind != IR_COMM_SEND && p->from >= 0 && (uint32_t)p->from != p->me;
  side out = s, in = s;
  out.from = in.to = p->team[p->me];
  out.sends = true;
  if (gives) out.to = p->team[p->to], add_side(list, out);
  if (takes) in.from = p->team[p->from], add_side(list, in);
}

#define COMPARE(field)                                                                             \
  if (a->field != b->field) return a->field < b->field ? -1 : 1

static int compare_queues(const void *pa, const void *pb) {
  const side *a = pa, *b = pb;
  COMPARE(team);
  COMPARE(from);
  COMPARE(to);
  COMPARE(rank);
  COMPARE(post);
  return 0;
}

static int compare_meetings(const void *pa, const void *pb) {
  const side *a = pa, *b = pb;
  COMPARE(team);
  COMPARE(from);
  COMPARE(to);
  COMPARE(order);
  COMPARE(rank);
  return 0;
}

static bool same_queue(const side *a, const side *b) {
  return a->team == b->team && a->from == b->from && a->to == b->to && a->rank == b->rank;
}

static bool same_meeting(const side *a, const side *b) {
  return a->team == b->team && a->from == b->from && a->to == b->to && a->order == b->order;
}

/* Posts of a rank are numbered in the order in which it posts them. */
static void order_sides(sides *s) {
  if (s->len) qsort(s->data, s->len, sizeof *s->data, compare_queues);
  for (uint32_t i = 1; i < s->len; i++)
    s->data[i].order = same_queue(&s->data[i - 1], &s->data[i]) ? s->data[i - 1].order + 1 : 0;
  if (s->len) qsort(s->data, s->len, sizeof *s->data, compare_meetings);
}

/* Must `other` be posted before the data of `mine` moves? In a broadcast the root must; in a reduction to a
 * root, all must for the root; and so on. */
static bool needs(const rt_post *mine, const rt_post *other) {
  if (!ir_comm_has_root(mine->kind)) return true;
  return mine->me == mine->root || other->me == other->root;
}

typedef struct linking {
  const rt_plan *plan;
  const rt_span *spans;
  trace_link *links;
  int64_t *ready_ns;
  uint32_t *last;
  uint32_t len, n_groups;
} linking;

/* A span that ended before the other side began did not wait for it: the data was buffered. */
static void wait_for(linking *l, uint32_t mine, uint32_t other) {
  int64_t start_ns = l->spans[other].start_ns;
  if (start_ns <= l->ready_ns[mine] || start_ns >= l->spans[mine].end_ns) return;
  l->ready_ns[mine] = start_ns;
  l->last[mine] = other;
}

static void link_group(linking *l, const side *group, uint32_t n) {
  const rt_post *posts = l->plan->posts;
  bool message = group[0].from >= 0;
  if (n < 2 || n != (message ? 2 : posts[group[0].post].n_team)) return;
  for (uint32_t i = 0; i < n; i++) {
    uint32_t mine = group[i].post;
    for (uint32_t k = 0; k < n; k++)
      if (k != i && needs(&posts[mine], &posts[group[k].post])) wait_for(l, mine, group[k].post);
    l->links[l->len++] = (trace_link){mine, l->n_groups, group[i].sends};
  }
  l->n_groups++;
}

trace_links trace_link_posts(const rt_plan *plan, const rt_span *spans, uint32_t n_spans,
                             arena *memory) {
  uint32_t n = n_spans < plan->n_posts ? n_spans : plan->n_posts;
  sides s = {ARENA_ARRAY(memory, 2 * (size_t)n + 1, side), 0};
  teams known = {ARENA_ARRAY(memory, (size_t)n + 1, const rt_post *), 0};
  linking l = {.plan = plan, .spans = spans};
  l.links = ARENA_ARRAY(memory, 2 * (size_t)n + 1, trace_link);
  l.ready_ns = ARENA_ARRAY(memory, (size_t)n + 1, int64_t);
  l.last = ARENA_ARRAY(memory, (size_t)n + 1, uint32_t);
  for (uint32_t p = 0; p < n; p++) {
    l.ready_ns[p] = spans[p].start_ns;
    l.last[p] = p;
    if (plan->posts[p].n_team > 1) add_post(&s, &known, &plan->posts[p], p);
  }
  order_sides(&s);
  for (uint32_t i = 0, k; i < s.len; i = k) {
    for (k = i + 1; k < s.len && same_meeting(&s.data[i], &s.data[k]);) k++;
    link_group(&l, &s.data[i], k - i);
  }
  return (trace_links){l.links, l.len, l.ready_ns, l.last};
}
