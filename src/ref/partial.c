/* Partial reductions, as rfactor makes them.
 *
 * After U = T.rfactor(...) the root of U is what the operation reads, and its logical domain is split
 * from it: some parts became dimensions, the others are still reduced.
 *
 *   root     [m, k]   --outer_split(k, 3)-->   logical [m, k0 = 3 (a dimension), k1 (reduced)]
 *
 * So: for each position of the logical domain find the position of the root domain, going back through
 * the transforms; skip the positions that lie outside it, which uneven splits have. */
#include <string.h>

#include "ref/internal.h"

typedef struct walk {
  const ref_call *call;
  ir_domains domains;
  uint8_t *used;     /* by transform id: lies between root and logical */
  int64_t *position; /* by axis id */
  int64_t *extent;   /* by axis id; of the axes of used transforms and of the domains */
} walk;

static bool same_axes(ir_axes a, ir_axes b) {
  if (a.len != b.len) return false;
  for (uint32_t i = 0; i < a.len; i++)
    if (!IR_SAME(a.data[i], b.data[i])) return false;
  return true;
}

/* An axis that was not split, but left to the final reduction as it is, has no transform to show it: its
 * rfactor flag does. */
bool ref_is_partial(const ref_call *c) {
  ir_domains d = ref_domains(c->state, c->op->result);
  if (!same_axes(d.root, d.logical)) return true;
  for (uint32_t i = 0; i < d.logical.len; i++)
    if (ir_axis_at(c->state->f, d.logical.data[i])->rfactor) return true;
  return false;
}

static bool contains(ir_axes axes, ir_axis a) {
  for (uint32_t i = 0; i < axes.len; i++)
    if (IR_SAME(axes.data[i], a)) return true;
  return false;
}

static void learn_extent(walk *w, ir_axis a) {
  w->extent[a.id] = ref_eval_scalar(w->call, ir_axis_size(w->call->state->f, a));
}

/* Transforms are numbered in the order they were made, so going down through the numbers meets every
 * transform after those that use what it makes. */
static void find_transforms(walk *w) {
  const ir_func *f = w->call->state->f;
  for (uint32_t i = 0; i < w->domains.root.len; i++) learn_extent(w, w->domains.root.data[i]);
  for (uint32_t i = 0; i < w->domains.logical.len; i++) {
    ir_axis a = w->domains.logical.data[i];
    learn_extent(w, a);
    if (!contains(w->domains.root, a)) w->used[ir_axis_at(f, a)->def.id] = 1;
  }
  for (uint32_t id = f->transforms.len; id-- > 1;)
    for (uint32_t i = 0; w->used[id] && i < 2; i++) {
      const ir_transform_data *t = &f->transforms.data[id];
      if (t->in[i].id != 0) learn_extent(w, t->in[i]);
      if (t->out[i].id != 0) learn_extent(w, t->out[i]);
      if (t->in[i].id != 0 && !contains(w->domains.root, t->in[i]))
        w->used[ir_axis_at(f, t->in[i])->def.id] = 1;
    }
  check(!w->used[0]);
}

static bool chunk_start(const ir_transform_data *t, int64_t chunk, int64_t offset, int64_t *start) {
  if (chunk >= t->n_chunks || offset >= t->chunks[chunk]) return false;
  *start = 0;
  for (int64_t i = 0; i < chunk; i++) *start += t->chunks[i];
  return true;
}

/* From the positions of a transform's results to those of its sources; false: there is none. */
static bool step_back(walk *w, const ir_transform_data *t) {
  int64_t outer = w->position[t->out[0].id];
  int64_t inner = t->out[1].id ? w->position[t->out[1].id] : 0;
  int64_t *from = &w->position[t->in[0].id];
  switch (t->kind) {
  case IR_SPLIT:
  case IR_OUTER_SPLIT: *from = outer * w->extent[t->out[1].id] + inner; break;
  case IR_CHUNK_SPLIT:
    if (!chunk_start(t, outer, inner, from)) return false;
    *from += inner;
    break;
  case IR_MERGE:
    *from = outer / w->extent[t->in[1].id];
    w->position[t->in[1].id] = outer % w->extent[t->in[1].id];
    break;
  case IR_RESIZE:
    *from = ref_eval_scalar(w->call, t->start) + outer * ref_eval_scalar(w->call, t->step);
    break;
  case IR_SWIZZLE: /* who runs a position does not matter here */ *from = outer; break;
  }
  return *from >= 0 && *from < w->extent[t->in[0].id];
}

static bool root_position(walk *w, int64_t index[IR_MAX_RANK]) {
  const ir_func *f = w->call->state->f;
  for (uint32_t id = f->transforms.len; id-- > 1;)
    if (w->used[id] && !step_back(w, &f->transforms.data[id])) return false;
  for (uint32_t i = 0; i < w->domains.root.len; i++)
    index[i] = w->position[w->domains.root.data[i].id];
  return true;
}

/* The logical domain as an array shape: its dimensions or its reduction axes. */
static uint32_t axes_of(const walk *w, bool reductions, ir_axis axes[IR_MAX_RANK],
                        ir_array *shape) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < w->domains.logical.len; i++) {
    ir_axis a = w->domains.logical.data[i];
    if ((ir_axis_at(w->call->state->f, a)->kind == IR_AXIS_REDUCTION) != reductions) continue;
    shape->extents[n] = w->extent[a.id];
    axes[n++] = a;
  }
  shape->rank = n;
  return n;
}

static void reduce_element(walk *w, const ref_terms *terms, const ir_array *inner,
                           const ir_axis *inner_axes, void *p) {
  const ref_call *c = w->call;
  bool is_reduce = ir_op_info_of(c->op->code)->family == IR_FAMILY_REDUCE;
  bool is_float = ir_dtype_is_float(is_reduce ? terms->left.dtype : c->result.dtype);
  int64_t index[IR_MAX_RANK] = {0}, root[IR_MAX_RANK];
  ref_fold fold = ref_fold_start(c->state, ir_op_fold(c->op->code), is_float, c->result.dtype);
  if (ref_count(inner) > 0) do {
      for (uint32_t i = 0; i < inner->rank; i++) w->position[inner_axes[i].id] = index[i];
      if (root_position(w, root)) ref_fold_term(&fold, terms, root);
    } while (ir_array_next(inner, index));
  ref_fold_store(&fold, c->result.dtype, p);
}

static void reduce_all(walk *w, const ref_terms *terms) {
  ir_axis outer_axes[IR_MAX_RANK], inner_axes[IR_MAX_RANK];
  ir_array outer = {.dtype = IR_F64}, inner = {.dtype = IR_F64};
  int64_t index[IR_MAX_RANK] = {0}, i = 0;
  uint32_t rank = axes_of(w, false, outer_axes, &outer);
  (void)axes_of(w, true, inner_axes, &inner);
  if (ref_count(&outer) == 0) return;
  do {
    for (uint32_t k = 0; k < rank; k++) w->position[outer_axes[k].id] = index[k];
    reduce_element(w, terms, &inner, inner_axes, ref_element(&w->call->result, i++));
  } while (ir_array_next(&outer, index));
}

/* Positions without terms keep the start of the fold (-inf for amax), which does not change the final
 * reduction. */
status ref_reduce_partial(const ref_call *c, const ref_terms *terms) {
  const ir_func *f = c->state->f;
  const allocator *memory = c->state->options->memory;
  size_t axes_bytes = f->axes.len * sizeof(int64_t);
  walk w = {.call = c, .domains = ref_domains(c->state, c->op->result)};
  status st = STATUS_OUT_OF_MEMORY;
  if (!(w.used = memory_alloc(memory, f->transforms.len + 1))) goto out;
  if (!(w.position = memory_alloc(memory, axes_bytes))) goto out;
  if (!(w.extent = memory_alloc(memory, axes_bytes))) goto out;
  memset(w.used, 0, f->transforms.len + 1);
  find_transforms(&w);
  reduce_all(&w, terms);
  st = STATUS_OK;
out:
  memory_free(memory, w.used);
  memory_free(memory, w.position);
  memory_free(memory, w.extent);
  return st;
}
