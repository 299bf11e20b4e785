/* Buffers of unrelated shapes that have the same memory of the pool, one after the other.
 *
 * Boxes of a region are in one grid. Columns of tensors with unrelated widths have none in common: each view would
 * be as many boxes as it has rows. So such a region is parted: each buffer has a region of its own, with its own grid,
 * and between buffers what was freed counts as a whole: whoever gets its bytes must come after all accesses to it. Plans
 * are bound so (runtime/lives.h). Buffers that live at the same time share no bytes, or the layout is reported. */
#include <stdlib.h>

#include "check/internal.h"

typedef struct tenant {
  uint32_t buffer;
  check_slots any, writes; /* the last access by line */
} tenant;

struct check_reuse {
  tenant *tenants; /* by when they are freed */
  uint32_t n, n_freed;
  uint32_t *of; /* by buffer: its tenant + 1; 0: its region is not parted */
  int64_t *boxes;
  check_tree freed; /* of addresses in the pool, one box for each tenant */
};

/* ---- parting ---- */
static void find_crowded(check_analysis *c, bool *crowded) {
  for (uint32_t v = 0; v < c->plan->n_views; v++) {
    const check_footprint *f = &c->footprints[v];
    const check_region *r = f->used ? check_region_of(c, v) : NULL;
    if (!f->used || f->begin == f->end || !r->written) continue;
    if (c->plan->buffers[check_view(c, v)->buffer].kind != RT_BUFFER_POOL) continue;
    check_strided s = check_region_strided(c, v);
    if (!check_grid_fits(&r->grid, &s, c->options.max_walked)) crowded[r - c->regions] = true;
  }
}

static uint32_t *count_buffers(const check_analysis *c) {
  uint32_t *n = ARENA_ARRAY(c->scratch, c->n_regions + 1, uint32_t);
  for (uint32_t b = 0; b < c->plan->n_buffers; b++) n[c->region_of[b]]++;
  return n;
}

static void find_strides(check_analysis *c) {
  for (uint32_t k = 0; k < c->accesses.len; k++) {
    const check_access *a = &c->accesses.data[k];
    if (a->write && c->reuse->of[check_view(c, a->view)->buffer])
      check_region_of(c, a->view)->written = true;
  }
  for (uint32_t v = 0; v < c->plan->n_views; v++)
    if (c->footprints[v].used && c->reuse->of[check_view(c, v)->buffer]) check_add_strides(c, v);
}

static const rt_buffer *buffer_of(const check_analysis *c, const tenant *t) {
  return &c->plan->buffers[t->buffer];
}

typedef struct leaving {
  uint32_t at, buffer;
} leaving;

static int compare_leaving(const void *a, const void *b) {
  const leaving *x = a, *y = b;
  if (x->at != y->at) return x->at < y->at ? -1 : 1;
  return (x->buffer > y->buffer) - (x->buffer < y->buffer);
}

static void add_tenants(check_analysis *c, const bool *crowded) {
  const rt_plan *plan = c->plan;
  check_reuse *r = c->reuse;
  leaving *list = ARENA_ARRAY(c->scratch, plan->n_buffers, leaving);
  for (uint32_t b = 0; b < plan->n_buffers; b++)
    if (crowded[c->region_of[b]]) list[r->n++] = (leaving){plan->buffers[b].freed_at, b};
  qsort(list, r->n, sizeof *list, compare_leaving);
  r->tenants = ARENA_ARRAY(c->scratch, r->n, tenant);
  r->boxes = ARENA_ARRAY(c->scratch, 2 * (size_t)r->n, int64_t);
  for (uint32_t k = 0; k < r->n; k++) {
    const rt_buffer *b = &plan->buffers[list[k].buffer];
    r->tenants[k].buffer = list[k].buffer;
    r->of[list[k].buffer] = k + 1;
    r->boxes[2 * (size_t)k] = b->offset_bytes;
    r->boxes[2 * (size_t)k + 1] = b->offset_bytes + b->size_bytes;
    c->region_of[list[k].buffer] = check_new_region(c, b->offset_bytes);
  }
  check_tree_build(&r->freed, c->scratch, 1, r->boxes, r->n);
}

void check_reuse_part(check_analysis *c) {
  bool *crowded = ARENA_ARRAY(c->scratch, 2 * (size_t)c->plan->n_buffers, bool), any = false;
  uint32_t *n_buffers = count_buffers(c), n = c->n_regions;
  find_crowded(c, crowded);
  for (uint32_t k = 0; k < n; k++) {
    crowded[k] = crowded[k] && n_buffers[k] > 1;
    any = any || crowded[k];
  }
  if (!any) return;
  c->reuse = ARENA_NEW(c->scratch, check_reuse);
  c->reuse->of = ARENA_ARRAY(c->scratch, c->plan->n_buffers, uint32_t);
  add_tenants(c, crowded);
  find_strides(c);
  for (uint32_t k = n; k < c->n_regions; k++)
    c->regions[k].grid = check_grid_choose(&c->regions[k].strides);
}

/* ---- the walk ---- */
void check_reuse_reach(check_analysis *c, uint32_t instr) {
  check_reuse *r = c->reuse;
  for (; r && r->n_freed < r->n; r->n_freed++) {
    const tenant *t = &r->tenants[r->n_freed];
    if (buffer_of(c, t)->freed_at > instr) return;
    for (uint32_t k = 0; k < t->any.len; k++)
      check_tree_insert(&r->freed, r->n_freed, t->any.data[k].stream, t->any.data[k].last - 1,
                        false);
    for (uint32_t k = 0; k < t->writes.len; k++)
      check_tree_insert(&r->freed, r->n_freed, t->writes.data[k].stream, t->writes.data[k].last - 1,
                        true);
  }
}

/* Is the access to memory that may have belonged to others? An access after the end of its buffer is reported as that. */
static bool follows_others(const check_analysis *c, const check_access *a) {
  const check_reuse *r = c->reuse;
  const check_footprint *f = &c->footprints[a->view];
  uint32_t buffer = check_view(c, a->view)->buffer;
  return r && r->of[buffer] && f->used && f->begin < f->end &&
         a->instr < c->plan->buffers[buffer].freed_at;
}

void check_reuse_search(const check_analysis *c, const check_access *a, check_search *s) {
  const check_footprint *f = &c->footprints[a->view];
  if (!follows_others(c, a)) return;
  int64_t start = check_region_of(c, a->view)->begin;
  const int64_t box[] = {start + f->begin, start + f->end};
  check_tree_search(&c->reuse->freed, box, a->write, s);
}

void check_reuse_note(check_analysis *c, uint32_t access) {
  const check_access *a = &c->accesses.data[access];
  if (!follows_others(c, a)) return;
  tenant *t = &c->reuse->tenants[c->reuse->of[check_view(c, a->view)->buffer] - 1];
  check_slot slot = {.stream = a->line, .last = access + 1};
  check_slots_put(c->scratch, &t->any, slot);
  if (a->write) check_slots_put(c->scratch, &t->writes, slot);
}
