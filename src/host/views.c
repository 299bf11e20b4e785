/* Results that only look at their operand differently become views of its memory.
 *
 *   t : f32[m, n] = allocate()
 *   t <- transpose(x)                =>    t : f32[m, n] = transpose(x)
 *   y <- t + 1                             y <- t + 1
 *
 * A reshape looks at dense memory: at a buffer of the program, or at one with its dimensions in
 * another order, which is then allocated in that order:
 *
 *   a : f32[h, s, 64] = allocate()         a : f32[h, s, 64] = allocate(order=[1, 0, 2])
 *   t <- permute(a, [1, 0, 2])       =>    t : f32[s, h, 64] = permute(a, [1, 0, 2])
 *   u <- reshape(t, [s, h * 64])           u : f32[s, h * 64] = reshape(t, [s, h * 64])
 *
 * Communications need dense memory, so what they use keeps its buffer. So does a result whose
 * operand is written or freed again while it is still read, one that is returned, and one that has
 * an order of its own in memory. */
#include "host/host.h"
#include "ir/build.h"
#include "ir/infer.h"

typedef VEC(uint32_t) positions;

/* What is known of a tensor, by its id. Of buffers: of all slices and views of them together. */
typedef struct facts {
  ir_tensor root;     /* the buffer or input that it is a part of */
  uint32_t last;      /* where it is used last */
  positions changes;  /* where it is written or freed */
  uint32_t n_written; /* how often */
  bool keeps;         /* it needs its own memory */
  bool allocated;     /* by the program, so that it is dense */
  bool reshaped;      /* by a view: it must stay dense */
} facts;

typedef struct viewing {
  ir_func *h;
  arena *memory;
  facts *of;    /* by tensor id */
  uint32_t *at; /* by instruction id: its position in the program */
  uint32_t n;   /* positions so far */
} viewing;

/* ---- facts ---- */
static facts *root_of(viewing *v, ir_tensor t) { return &v->of[v->of[t.id].root.id]; }

static void note_use(viewing *v, ir_tensor t, uint32_t at) {
  if (t.id) root_of(v, t)->last = at;
}

static void note_change(viewing *v, ir_tensor t, uint32_t at) {
  if (!t.id) return;
  note_use(v, t, at);
  vec_push(v->memory, &root_of(v, t)->changes, at);
  root_of(v, t)->n_written++;
}

static void note_op(viewing *v, const ir_op_data *op, uint32_t at) {
  for (uint32_t k = 0; k < op->n_operands; k++) note_use(v, op->operands[k], at);
  for (uint32_t k = 0; k < op->n_more; k++) note_change(v, op->more[k], at);
}

static void note_instr(void *context, ir_func *h, ir_instr i, uint32_t depth) {
  (void)depth;
  viewing *v = context;
  const ir_instr_data *d = ir_instr_at(h, i);
  uint32_t at = v->at[i.id] = ++v->n;
  switch (d->kind) {
  case IR_SELECT:
  case IR_SHARD:
    v->of[d->tensor.id].root = v->of[d->from.id].root;
    note_use(v, d->from, at);
    return;
  case IR_VIEW:
    v->of[d->tensor.id].root = v->of[ir_op_at(h, d->op)->operands[0].id].root;
    note_use(v, d->tensor, at);
    return;
  case IR_COMPUTE:
  case IR_LAUNCH:
    note_op(v, ir_op_at(h, d->op), at);
    note_change(v, d->tensor, at);
    return;
  case IR_COMMUNICATE:
    note_use(v, d->from, at);
    note_change(v, d->tensor, at);
    /* mutant: view_sent */
    if (d->from.id) root_of(v, d->from)->keeps = true;
    if (d->tensor.id) root_of(v, d->tensor)->keeps = true;
    return;
  case IR_DEALLOCATE:
    note_change(v, d->tensor, at);
    root_of(v, d->tensor)->keeps = true;
    return;
  case IR_ALLOCATE: v->of[d->tensor.id].allocated = true; return;
  case IR_CURRENT_STREAM:
  case IR_SET_STREAM:
  case IR_WAIT_STREAM:
  case IR_FOR:
  case IR_IF:
  case IR_GROUP_START:
  case IR_GROUP_END:
  case IR_WAIT: return;
  }
}

/* ---- which ---- */
/* Does the result have the extents that the operation gives, and memory in the order of its dimensions? A
 * part of an axis that a broadcast inserts is no view. Elsewhere binding compares what only the extents
 * tell. */
static bool fits(ir_func *h, bool exactly, ir_axis a, ir_axis b) {
  ir_proof same = ir_func_equal(h, ir_axis_size(h, a), ir_axis_size(h, b));
  return exactly ? same == IR_TRUE : same != IR_FALSE;
}

static bool has_usual_form(viewing *v, const ir_op_data *op, ir_tensor t) {
  ir_func *h = v->h;
  const ir_tensor_data d = *ir_tensor_at(h, t);
  ir_axis dims[IR_MAX_RANK], given[IR_MAX_RANK], stored[IR_MAX_RANK];
  uint32_t n_axes = h->axes.len, n_transforms = h->transforms.len, n_require = h->constraints.len;
  ir_inferred types[IR_MAX_RESULTS];
  bool exactly = ir_op_info_of(op->code)->family == IR_FAMILY_BROADCAST;
  if (!ir_infer(h, op, types)) return false;
  uint32_t rank = ir_tensor_dims(h, t, dims);
  bool same = rank == ir_axes_dims(h, types[0].domains.logical, given) &&
              rank == ir_axes_dims(h, d.defined.allocation, stored);
  for (uint32_t i = 0; same && i < rank; i++)
    same = IR_SAME(stored[i], dims[i]) && fits(h, exactly, dims[i], given[i]);
  h->axes.len = n_axes;
  h->transforms.len = n_transforms;
  h->constraints.len = n_require;
  return same;
}

static bool is_changed_between(const positions *changes, uint32_t after, uint32_t last) {
  /* mutant: view_of_what_changes */
  for (uint32_t i = 0; i < changes->len; i++)
    if (changes->data[i] > after && changes->data[i] <= last) return true;
  return false;
}

/* ---- reshapes ---- */
static bool is_plain(viewing *v, ir_tensor t) {
  ir_axis dims[IR_MAX_RANK], stored[IR_MAX_RANK];
  uint32_t rank = ir_tensor_dims(v->h, t, dims);
  bool same = ir_axes_dims(v->h, ir_tensor_at(v->h, t)->defined.allocation, stored) == rank;
  for (uint32_t i = 0; same && i < rank; i++) same = IR_SAME(stored[i], dims[i]);
  return same;
}

/* Memory of the program's own, in the order of its dimensions. */
static bool is_dense(viewing *v, ir_tensor t) {
  const facts *x = &v->of[t.id];
  return x->allocated && IR_SAME(x->root, t) && !x->keeps && is_plain(v, t);
}

/* The dimension of the operand that becomes dimension i of a permute. */
static uint32_t permuted_dim(const ir_op_data *op, uint32_t i, uint32_t rank) {
  if (op->code == IR_OP_TRANSPOSE) return i + 2 < rank ? i : i + 2 == rank ? rank - 1 : rank - 2;
  int64_t dim = ir_op_attr(op, "order")->ints[i];
  return (uint32_t)(dim < 0 ? dim + (int64_t)rank : dim);
}

/* Can the operand be allocated so that this permute of it is dense? Its rows stay rows. */
static bool can_order(viewing *v, const ir_op_data *op) {
  ir_axis dims[IR_MAX_RANK];
  ir_tensor x = op->operands[0];
  uint32_t rank = ir_tensor_dims(v->h, x, dims);
  return ir_op_info_of(op->code)->family == IR_FAMILY_PERMUTE && is_dense(v, x) &&
         !v->of[x.id].reshaped && rank > 0 && permuted_dim(op, rank - 1, rank) == rank - 1;
}

static void set_order(viewing *v, const ir_op_data *op) {
  ir_tensor_data *d = ir_tensor_at(v->h, op->operands[0]);
  ir_axis dims[IR_MAX_RANK], stored[IR_MAX_RANK];
  uint32_t rank = ir_tensor_dims(v->h, op->operands[0], dims);
  for (uint32_t i = 0; i < rank; i++) stored[i] = dims[permuted_dim(op, i, rank)];
  d->defined.allocation = ir_axes_new(v->h, stored, rank);
  d->defined.dense = ir_dense_default(v->h, d->defined.allocation);
  d->now = d->defined;
}

/* Can this computation be a view instead? */
static bool can_be_view(viewing *v, ir_instr i) {
  const ir_instr_data *d = ir_instr_at(v->h, i);
  if (d->kind != IR_COMPUTE || d->offsets || !ir_op_is_view(ir_op_at(v->h, d->op)->code))
    return false;
  const facts *t = &v->of[d->tensor.id];
  const ir_op_data *op = ir_op_at(v->h, d->op);
  if (!IR_SAME(t->root, d->tensor) || t->keeps || t->n_written != 1) return false;
  if (ir_tensor_at(v->h, op->operands[0])->kind == IR_TENSOR_CONST) return false;
  if (is_changed_between(&root_of(v, op->operands[0])->changes, v->at[i.id], t->last)) return false;
  bool reshape = ir_op_info_of(op->code)->family == IR_FAMILY_RESHAPE;
  if (reshape && !is_dense(v, op->operands[0])) return false;
  if (t->reshaped && !reshape && !can_order(v, op)) return false;
  return has_usual_form(v, op, d->tensor);
}

/* ---- rewriting ---- */
/* The position at which the block allocates `t`, which the instruction at `i`, or all of an `if` there,
 * writes; the block's length: it does not. */
static uint32_t find_allocation(const viewing *v, const ir_block *block, uint32_t i, ir_tensor t) {
  for (uint32_t k = i; k-- > 0;) {
    const ir_instr_data *d = ir_instr_at(v->h, block->data[k]);
    if (d->kind == IR_ALLOCATE && IR_SAME(d->tensor, t)) return k;
  }
  return block->len;
}

/* The only instruction of an `if`, or the instruction itself. */
static ir_instr computation(const viewing *v, ir_instr i) {
  const ir_instr_data *d = ir_instr_at(v->h, i);
  bool guards = d->kind == IR_IF && d->body.len == 1 && d->otherwise.len == 0;
  return guards ? d->body.data[0] : i;
}

static void make_view(viewing *v, ir_instr i) {
  ir_instr_data *d = ir_instr_at(v->h, i);
  facts *t = &v->of[d->tensor.id], *x;
  const ir_op_data *op = ir_op_at(v->h, d->op);
  bool reshape = ir_op_info_of(op->code)->family == IR_FAMILY_RESHAPE;
  if (t->reshaped && !reshape) set_order(v, op);
  /* The view must stay dense, so its operand keeps its buffer and its order. */
  if (reshape || t->reshaped) v->of[op->operands[0].id].reshaped = true;
  d->kind = IR_VIEW;
  d->sliced = NULL;
  t->root = v->of[ir_op_at(v->h, d->op)->operands[0].id].root;
  x = &v->of[t->root.id];
  if (x->last < t->last) x->last = t->last;
}

/* Goes backward: a view of a view must not outlive what that one looks at. */
static uint32_t view_block(viewing *v, ir_block *block) {
  uint32_t n = 0, kept = 0;
  for (uint32_t i = block->len; i-- > 0;) {
    ir_instr_data *d = ir_instr_at(v->h, block->data[i]);
    if (d->kind != IR_LAUNCH) n += view_block(v, &d->body) + view_block(v, &d->otherwise);
    ir_instr c = computation(v, block->data[i]);
    ir_tensor t = ir_instr_at(v->h, c)->tensor;
    uint32_t from = can_be_view(v, c) ? find_allocation(v, block, i, t) : block->len;
    /* mutant: view_never */
    if (from == block->len) continue;
    make_view(v, c);
    block->data[i] = c;
    block->data[from] = (ir_instr){0};
    n++;
  }
  for (uint32_t i = 0; i < block->len; i++)
    if (block->data[i].id) block->data[kept++] = block->data[i];
  block->len = kept;
  return n;
}

uint32_t host_make_views(ir_func *h) {
  arena *memory = &h->module->memory;
  viewing v = {.h = h, .memory = memory};
  v.of = ARENA_ARRAY(memory, h->tensors.len, facts);
  v.at = ARENA_ARRAY(memory, h->host->instrs.len, uint32_t);
  for (uint32_t i = 0; i < h->tensors.len; i++) v.of[i].root = (ir_tensor){i};
  for (uint32_t i = 0; i < h->outputs.len; i++) v.of[h->outputs.data[i].id].keeps = true;
  ir_host_walk(h, note_instr, &v);
  return view_block(&v, &h->host->body);
}
