/* The rule: which operations one kernel can compute.
 *
 * A kernel walks the positions of one space. Elementwise operations have the space of their result.
 * A reduction has the space of its operand. If it reduces the innermost dimensions, a row of the
 * space stays on chip and operations on the reduced values may follow, as may operations that read
 * the reduced values together with the row:
 *
 *   m = mean(x, dims=[-1], keepdim=true)     reduces [n, k] from dimension 1 on
 *   c = x - m                                the space [n, k] again
 *   s = rsqrt(v + 1e-5)                      rows: [n, 1]
 *
 * If it reduces the outermost dimensions, columns are added up while rows go by: beside operations
 * on the space, reductions of its rows (as in the backward pass of a norm) and reductions of other
 * columns. Only elementwise operations on its result can follow. If it reduces other dimensions, it
 * is the end of its kernel. Casts, copies, broadcasts and makers other than uniform are cheap:
 * every kernel that reads them computes them again at each of its positions. Operations that move
 * elements (slice, pad, cat, permute, reshape, gather) join their readers, which then read
 * elsewhere (but not a pad or cat of very short rows, nor one that is permuted: neither can be read
 * in vectors); and elementwise producers that nothing else reads, which are then computed where
 * they are wanted.
 *
 * Products take what follows them (epilogue.c). Not joined: attention, which libraries compute;
 * sorts, scans and operations whose result depends on values of an index; operations on a part of
 * their result ('at') other than makers. */
#include <string.h>

#include "join/internal.h"

typedef enum kind { ALONE, ELEMENT, MAKES, LOOKS, MOVES, REDUCES, ROW } kind;

static const uint8_t kinds[] = {
#define JOIN(kind) kind
#define FAMILY(id, group, ir, shard, host, join, ...) [IR_FAMILY_##id] = join,
#include "ir/families.def"
};

static kind kind_of(ir_opcode code) { return kinds[ir_op_info_of(code)->family]; }

static void take_sizes(const ir_func *h, ir_tensor t, join_space *s) {
  ir_axis dims[IR_MAX_RANK];
  s->rank = s->kept = ir_tensor_dims(h, t, dims);
  for (uint32_t i = 0; i < s->rank; i++) s->sizes[i] = ir_axis_size(h, dims[i]);
}

/* From which dimension on a reduction reduces. It ends the kernel if those are not the innermost, or all:
 * what it reads is then no row that could stay on chip. */
static void take_reduction(const ir_op_data *op, join_space *s) {
  const ir_attr *dims = ir_op_attr(op, "dims");
  uint32_t reduced = dims->given ? 0 : (1u << s->rank) - 1;
  for (uint32_t i = 0; dims->given && i < dims->len; i++) {
    int64_t d = dims->ints[i] < 0 ? dims->ints[i] + (int64_t)s->rank : dims->ints[i];
    reduced |= 1u << d;
  }
  while (s->kept > 0 && reduced >> (s->kept - 1) & 1) s->kept--;
  s->ends = (reduced & ((1u << s->kept) - 1)) != 0 || s->kept == 0;
  while (reduced >> s->outer & 1) s->outer++;
  if (reduced >> s->outer || s->outer == s->rank) s->outer = 0;
}

static bool is_along_last(const ir_op_data *op, uint32_t rank) {
  if (ir_op_info_of(op->code)->family != IR_FAMILY_SOFTMAX) return true;
  int64_t dim = ir_op_attr(op, "dim")->i;
  return dim == -1 || dim + 1 == (int64_t)rank;
}

bool join_is_border(ir_opcode code) {
  ir_family family = ir_op_info_of(code)->family;
  return family == IR_FAMILY_PAD || family == IR_FAMILY_CAT;
}

/* Parts of very short rows are quicker put together by a kernel of their own. */
static bool is_short(const ir_func *h, const ir_op_data *op, ir_tensor t) {
  enum { SHORT = 8 };
  ir_axis dims[IR_MAX_RANK];
  uint32_t rank = ir_tensor_dims(h, t, dims);
  int64_t n;
  return join_is_border(op->code) && rank > 0 &&
         ir_scalar_is_const(&h->module->scalars, ir_axis_size(h, dims[rank - 1]), &n) && n < SHORT;
}

bool join_space_of(ir_func *h, const ir_instr_data *d, join_space *s) {
  const ir_op_data *op = ir_op_at(h, d->op);
  kind k = kind_of(op->code);
  bool reads = k == REDUCES || k == ROW;
  *s = (join_space){.product = join_is_product(h, d)};
  if (s->product) {
    take_sizes(h, d->tensor, s);
    return s->rank > 0;
  }
  if (is_short(h, op, d->tensor)) return false;
  if (k == ALONE || op->n_more || (d->offsets && k != MAKES)) return false;
  if (reads && ir_tensor_at(h, op->operands[0])->kind == IR_TENSOR_CONST) return false;
  take_sizes(h, reads ? op->operands[0] : d->tensor, s);
  if (reads && s->rank == 0) return false;
  if (k == REDUCES) take_reduction(op, s);
  if (k == ROW && !is_along_last(op, s->rank)) return false;
  if (k == ROW) s->kept = s->rank - 1;
  ir_family family = ir_op_info_of(op->code)->family;
  s->moves = k == MOVES;
  bool drawn = op->code == IR_OP_UNIFORM; /* a number takes longer to draw than to read */
  s->light =
      (k == MAKES && !drawn) || k == LOOKS || family == IR_FAMILY_SET || family == IR_FAMILY_CAST;
  return true;
}

/* ---- two spaces ---- */
static bool same_sizes(ir_func *h, const ir_scalar *a, const ir_scalar *b, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) {
    if (ir_func_equal(h, a[i], b[i]) != IR_TRUE) return false;
  }
  return true;
}

static bool is_one(const ir_func *h, ir_scalar x) {
  int64_t n;
  return ir_scalar_is_const(&h->module->scalars, x, &n) && n == 1;
}

/* One position per row of `full`, with the reduced dimensions gone or of size 1. */
static bool are_rows(ir_func *h, const join_space *full, const join_space *s) {
  if (full->kept == full->rank || s->kept < s->rank) return false;
  if (s->rank != full->kept && s->rank != full->rank) return false;
  for (uint32_t i = full->kept; i < s->rank; i++) {
    if (!is_one(h, s->sizes[i])) return false;
  }
  return same_sizes(h, full->sizes, s->sizes, full->kept);
}

/* Each dimension of `s`, aligned at the last, is one of `full` or 1. */
static bool stretches_to(ir_func *h, const join_space *s, const join_space *full) {
  if (s->rank > full->rank) return false;
  for (uint32_t i = 0; i < s->rank; i++) {
    uint32_t k = full->rank - s->rank + i;
    if (!is_one(h, s->sizes[i]) && ir_func_equal(h, s->sizes[i], full->sizes[k]) != IR_TRUE)
      return false;
  }
  return true;
}

static bool same_reduction(const join_space *a, const join_space *b, uint32_t *kept) {
  bool both = a->kept < a->rank && b->kept < b->rank;
  *kept = a->kept < b->kept ? a->kept : b->kept;
  return !both || a->kept == b->kept;
}

/* Rows beside columns, which are added up over all rows; or columns on both sides. */
static bool same_columns(const join_space *a, const join_space *b, join_space *both) {
  both->ends = true;
  both->outer = a->ends ? a->outer : b->outer;
  if (both->outer == 0 || (a->ends && b->ends && a->outer != b->outer)) return false;
  return both->kept < both->rank ? both->outer == both->kept : a->ends && b->ends;
}

/* Two groups of one space. */
static bool meet(const join_space *a, const join_space *b, join_space *both) {
  *both = *b;
  both->light = a->light && b->light;
  if (!same_reduction(a, b, &both->kept)) return false;
  return (!a->ends && !b->ends) || same_columns(a, b, both);
}

bool join_spaces_fit(ir_func *h, const join_space *p, const join_space *c, join_space *both) {
  if (p->rank == c->rank && same_sizes(h, p->sizes, c->sizes, p->rank)) {
    if (!c->ends || p->ends || p->kept < p->rank) return meet(p, c, both);
    *both = *c;
    both->light = false;
    return true;
  }
  *both = *p;
  both->light = false;
  return are_rows(h, p, c);
}

bool join_space_follows(ir_func *h, const join_space *p, const join_space *c, join_space *both) {
  *both = *p;
  both->light = false;
  if (p->outer == 0 || c->kept < c->rank || c->ends || c->moves) return false;
  uint32_t inner = p->rank - p->outer, extra = c->rank == p->rank ? p->outer : 0;
  for (uint32_t i = 0; i < extra; i++) {
    if (!is_one(h, c->sizes[i])) return false;
  }
  return c->rank == inner + extra && same_sizes(h, p->sizes + p->outer, c->sizes + extra, inner);
}

bool join_spaces_alike(ir_func *h, const join_space *a, const join_space *b, join_space *both) {
  bool fits = join_space_same(h, a, b) && meet(a, b, both);
  both->light = false;
  return fits;
}

bool join_space_moves(ir_func *h, const join_space *p, const join_space *moves, join_space *both) {
  (void)h;
  *both = *moves;
  both->light = false;
  return p->kept == p->rank && !p->ends;
}

bool join_space_same(ir_func *h, const join_space *a, const join_space *b) {
  return a->rank == b->rank && same_sizes(h, a->sizes, b->sizes, a->rank);
}

bool join_space_is_whole(ir_func *h, const join_space *s, ir_tensor t) {
  join_space read;
  take_sizes(h, t, &read);
  return read.rank == s->rank && same_sizes(h, read.sizes, s->sizes, s->rank);
}

bool join_space_absorbs(ir_func *h, const join_space *space, const join_space *small) {
  return small->light && small->kept == small->rank && stretches_to(h, small, space);
}
