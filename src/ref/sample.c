/* Which rows of tensors a sample of the outputs depends on.
 *
 * A row is a position of all dimensions but the last. From the outputs back: an operation that
 * computes a row of its result from the same row of an operand needs only those rows of it that its
 * result is needed for; every other one needs all. Products are what takes time, so they leave out
 * rows that are not needed; other operations compute them from zeros, and nothing reads them. */
#include <string.h>

#include "base/random.h"
#include "ref/internal.h"

typedef struct sampling {
  const ir_env *env;
  arena *memory;
  uint8_t **rows; /* by tensor: a flag per row; NULL: all */
  bool *used;     /* by tensor: something needs it */
} sampling;

static bool shape_of(const sampling *s, ir_tensor t, ir_array *a) {
  return ir_tensor_at(s->env->func, t)->kind != IR_TENSOR_CONST &&
         ir_env_shape(s->env, t, a->extents, &a->rank);
}

/* 0: it has no rows. */
static int64_t count_rows(const ir_array *a) {
  int64_t n = 0;
  if (a->rank == 0 || !ir_array_count(a, &n) || n == 0) return 0;
  return n / a->extents[a->rank - 1];
}

/* A tensor that several operations need gets the rows of all of them. */
static void need(const sampling *s, ir_tensor t, const uint8_t *rows) {
  ir_array a = {0};
  int64_t n = shape_of(s, t, &a) ? count_rows(&a) : 0;
  bool first = !s->used[t.id];
  s->used[t.id] = true;
  if (!rows || n == 0 || (!first && !s->rows[t.id])) {
    s->rows[t.id] = NULL;
    return;
  }
  if (first) s->rows[t.id] = arena_alloc(s->memory, (size_t)n);
  for (int64_t i = 0; i < n; i++) s->rows[t.id][i] |= rows[i];
}

static bool same_rows(const ir_array *a, const ir_array *b, bool last_too) {
  if (a->rank != b->rank || a->rank == 0) return false;
  size_t n = (last_too ? a->rank : a->rank - 1) * sizeof *a->extents;
  return memcmp(a->extents, b->extents, n) == 0;
}

/* Does row i of the result come from row i of operand k, and no other? */
static bool keeps_rows(const sampling *s, const ir_op_data *op, uint32_t k) {
  ir_array result = {0}, x = {0};
  if (ir_op_n_results(op) != 1) return false;
  if (!shape_of(s, op->result, &result) || !shape_of(s, op->operands[k], &x)) return false;
  ir_family family = ir_op_info_of(op->code)->family;
  bool elements = family == IR_FAMILY_POINTWISE || family == IR_FAMILY_SET ||
                  family == IR_FAMILY_CAST || (family == IR_FAMILY_NORM && k == 0);
  if (elements) return same_rows(&result, &x, true);
  bool rows = ir_op_is_product(op->code) && op->code != IR_OP_GROUPED_OUTER;
  return rows && k == 0 && x.rank > 1 && same_rows(&result, &x, false);
}

static void need_operands(const sampling *s, const ir_op_data *op) {
  const uint8_t *rows = s->rows[op->result.id];
  for (uint32_t k = 0; k < op->n_operands; k++)
    if (op->operands[k].id) need(s, op->operands[k], keeps_rows(s, op, k) ? rows : NULL);
}

/* `n` rows at random, or all. */
static const uint8_t *draw_rows(const sampling *s, ir_tensor t, int64_t n, uint64_t key) {
  ir_array a = {0};
  int64_t all = shape_of(s, t, &a) ? count_rows(&a) : 0;
  if (all <= n) return NULL;
  uint8_t *rows = arena_alloc(s->memory, (size_t)all);
  for (int64_t drawn = 0, i = 0; drawn < n; i++) {
    uint8_t *row = &rows[random_bits(key, (uint64_t)i) % (uint64_t)all];
    drawn += *row == 0;
    *row = 1;
  }
  return rows;
}

const uint8_t *const *ref_sample(const ir_env *env, int64_t n, uint64_t seed, arena *memory) {
  const ir_func *f = env->func;
  sampling s = {.env = env, .memory = memory};
  s.rows = ARENA_ARRAY(memory, f->tensors.len, uint8_t *);
  s.used = ARENA_ARRAY(memory, f->tensors.len, bool);
  for (uint32_t i = 0; i < f->outputs.len; i++)
    need(&s, f->outputs.data[i], draw_rows(&s, f->outputs.data[i], n, seed + i));
  for (uint32_t i = f->order.len; i-- > 0;) {
    const ir_op_data *op = ir_op_at(f, f->order.data[i]);
    for (uint32_t k = 1; k < ir_op_n_results(op); k++) s.rows[ir_op_result(op, k).id] = NULL;
    need_operands(&s, op);
  }
  return (const uint8_t *const *)s.rows;
}
