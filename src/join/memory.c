/* The rule for memory: no group needs more than its operations alone.
 *
 *   s <- sum(x); deallocate(x)           s is small: if it were computed with z, x would have to stay
 *   t <- …                               while t is computed
 *   z <- s * t
 *
 * A group goes to the end of the one that it joins. What it reads and others gave back before they
 * compute stays until then; what it leaves for that group is there no more. So for each tensor that
 * stays, there must be one as large that goes. */
#include "join/internal.h"

typedef struct merging {
  const join_block *b;
  uint32_t a, into; /* groups: `a` goes to the end of `into` */
  uint32_t last;    /* the last position at which something computes that joins neither */
} merging;

static bool computes(const ir_instr_data *d) {
  return d->kind == IR_COMPUTE || d->kind == IR_LAUNCH;
}

/* Is it in one of the two, or may it still be? Products, attention and what else is a launch of its
 * own may not. */
static bool is_ours(const merging *m, uint32_t at) {
  uint32_t node = m->b->node_at[at], g = node ? m->b->nodes[node - 1].group : JOIN_NONE;
  return g != JOIN_NONE && (g == m->a || g == m->into || !m->b->groups[g].space.product);
}

static bool find_last(merging *m, uint32_t to) {
  uint32_t from = m->b->nodes[m->b->groups[m->a].last].at;
  for (m->last = to; m->last-- > from + 1;)
    if (computes(join_instr(m->b, m->last)) && !is_ours(m, m->last)) return true;
  return false;
}

/* ---- what stays, what goes ---- */
/* Is it made by `a`, and read by nothing but the two, or what may join them? Then it has no memory
 * when they are one. */
static bool is_gone(const merging *m, ir_tensor root) {
  const join_block *b = m->b;
  const join_numbers *readers = join_readers(b, root);
  bool made = false;
  if (!join_is_private(b->facts, root)) return false;
  for (uint32_t n = b->groups[m->a].first; n != JOIN_NONE; n = b->nodes[n].next)
    made = made || join_writes(b, b->nodes[n].at, root);
  for (uint32_t i = 0; made && i < readers->len; i++)
    if (!is_ours(m, readers->data[i])) return false;
  return made;
}

static bool is_read_after(const merging *m, ir_tensor root) {
  const join_numbers *readers = join_readers(m->b, root);
  for (uint32_t i = 0; i < readers->len; i++)
    if (readers->data[i] > m->last) return true;
  return false;
}

static bool is_read_before(const merging *m, ir_tensor root, uint32_t at) {
  const join_block *b = m->b;
  for (uint32_t n = b->groups[m->a].first; n != JOIN_NONE && b->nodes[n].at < at;
       n = b->nodes[n].next)
    if (join_reads(b, b->nodes[n].at, root)) return true;
  return false;
}

/* A tensor that goes and is no smaller. One that is as large is counted once. */
static bool find_room(const merging *m, ir_tensor held, bool *taken) {
  const join_block *b = m->b;
  uint32_t i = 0;
  for (uint32_t n = b->groups[m->a].first; n != JOIN_NONE; n = b->nodes[n].next, i++) {
    const ir_instr_data *d = join_instr(b, b->nodes[n].at);
    if (d->kind == IR_VIEW || taken[i] || !is_gone(m, d->tensor) || !is_read_after(m, d->tensor))
      continue;
    join_size size = join_compare_sizes(b, held, d->tensor);
    if (size == JOIN_LARGER) continue;
    taken[i] = size == JOIN_SAME;
    return true;
  }
  return false;
}

/* If group g computes node p for itself, the operands of p stay in memory until the end of g. */
bool join_absorbs_memory(const join_block *b, uint32_t g, uint32_t p) {
  merging m = {.b = b, .a = b->nodes[p].group, .into = g};
  const ir_instr_data *made = join_instr(b, b->nodes[p].at);
  m.last = b->nodes[b->groups[g].last].at;
  while (m.last > b->nodes[p].at && (!computes(join_instr(b, m.last)) || is_ours(&m, m.last)))
    m.last--;
  for (uint32_t at = b->nodes[p].at + 1; at < m.last; at++) {
    const ir_instr_data *d = join_instr(b, at);
    bool held = d->kind == IR_DEALLOCATE && join_reads(b, b->nodes[p].at, d->tensor);
    if (held && join_compare_sizes(b, d->tensor, made->tensor) == JOIN_LARGER) return false;
  }
  return true;
}

bool join_keeps_memory(const join_block *b, uint32_t a, uint32_t into, uint32_t to) {
  merging m = {.b = b, .a = a, .into = into};
  bool taken[JOIN_MAX_NODES] = {false};
  if (!find_last(&m, to)) return true;
  for (uint32_t at = b->nodes[b->groups[a].first].at + 1; at < m.last; at++) {
    const ir_instr_data *d = join_instr(b, at);
    if (d->kind != IR_DEALLOCATE || !is_read_before(&m, d->tensor, at) || is_gone(&m, d->tensor))
      continue;
    if (!find_room(&m, d->tensor, taken)) return false;
  }
  return true;
}
