#include "ir/host.h"

#include <string.h>

#include "ir/build.h"

static arena *memory_of(ir_func *h) { return &h->module->memory; }

static ir_func *with_host(ir_func *h) {
  ir_module *m = h->module;
  h->host = ARENA_NEW(&m->memory, ir_host);
  map_init(&h->host->cut_of, &m->memory);
  vec_push(&m->memory, &h->host->instrs, ((ir_instr_data){0}));
  uint32_t streams = strings_intern(&m->names, "streams", strlen("streams"));
  ir_symbol_data symbol = {.kind = IR_SYMBOL_STREAMS, .name = streams};
  h->host->streams = ir_scalar_symbol(&m->scalars, symbol);
  return h;
}

ir_func *ir_host_new(ir_module *m, uint32_t name, loc at) {
  ir_func *h = ir_build_func(m, IR_FUNC_HOST, name, at);
  if (!h) return NULL;
  (void)with_host(h);
  h->host->fusion = ir_build_find(m, IR_FUNC_FUSION, name);
  return h;
}

ir_func *ir_host_of(ir_func *fusion) {
  ir_func *h = with_host(ir_build_unlisted(fusion->module, IR_FUNC_HOST, fusion->name, fusion->at));
  h->host->fusion = fusion;
  h->host->named_by = fusion;
  return h;
}

ir_instr ir_host_instr(ir_func *h, const ir_instr_data *data) {
  ir_instr i = {h->host->instrs.len};
  ir_instr_data stamped = *data;
  if (!stamped.source.id) stamped.source = h->host->source;
  if (stamped.why == IR_RULE_NONE) stamped.why = h->host->why;
  vec_push(memory_of(h), &h->host->instrs, stamped);
  return i;
}

void ir_block_add(ir_func *h, ir_block *block, ir_instr i) { vec_push(memory_of(h), block, i); }

ir_tensor ir_host_tensor(ir_func *h, uint32_t name, ir_dtype dtype, const ir_scalar *sizes,
                         uint32_t rank, loc at) {
  check(rank <= IR_MAX_RANK);
  ir_axis axes[IR_MAX_RANK];
  for (uint32_t i = 0; i < rank; i++) {
    int64_t value;
    bool one = ir_scalar_is_const(&h->module->scalars, sizes[i], &value) && value == 1;
    axes[i] = ir_axis_new(h, one ? IR_AXIS_BROADCAST : IR_AXIS_ITERATION, sizes[i]);
  }
  ir_axes list = ir_axes_new(h, axes, rank);
  ir_tensor_data data = {.kind = IR_TENSOR_RESULT, .name = name, .at = at, .dtype = dtype};
  data.defined = (ir_domains){list, list, list, list, ir_dense_default(h, list)};
  data.now = data.defined;
  ir_tensor t = {h->tensors.len};
  vec_push(memory_of(h), &h->tensors, data);
  return t;
}

bool ir_host_order(ir_func *h, ir_tensor t, const int64_t *order, uint32_t n) {
  ir_axis dims[IR_MAX_RANK], stored[IR_MAX_RANK];
  uint32_t rank = ir_tensor_dims(h, t, dims), seen = 0;
  if (n != rank) return false;
  for (uint32_t i = 0; i < n; i++) {
    if (order[i] < 0 || order[i] >= rank || (seen >> order[i] & 1)) return false;
    seen |= 1u << order[i];
    stored[i] = dims[order[i]];
  }
  ir_tensor_data *d = ir_tensor_at(h, t);
  d->defined.allocation = ir_axes_new(h, stored, n);
  d->defined.dense = ir_dense_default(h, d->defined.allocation);
  d->now = d->defined;
  return true;
}

bool ir_host_is_piece(const ir_func *h, ir_tensor t, uint32_t dim) {
  ir_axis dims[IR_MAX_RANK];
  if (dim < ir_tensor_dims(h, t, dims) && ir_host_cut_of(h, dims[dim])) return true;
  for (uint32_t i = h->host->instrs.len; i-- > 1;) {
    const ir_instr_data *d = &h->host->instrs.data[i];
    if (IR_SAME(d->tensor, t) && (d->kind == IR_SELECT || d->kind == IR_SHARD)) return true;
  }
  return false;
}

/* The buffer or parameter whose memory `t` is or looks at. */
static ir_tensor root_of(const ir_func *h, ir_tensor t) {
  for (uint32_t i = h->host->instrs.len; i-- > 1;) {
    const ir_instr_data *d = &h->host->instrs.data[i];
    if (!IR_SAME(d->tensor, t)) continue;
    if (d->kind == IR_SELECT || d->kind == IR_SHARD) t = d->from;
    else if (d->kind == IR_VIEW) t = ir_op_at(h, d->op)->operands[0];
  }
  return t;
}

/* As in a fusion, random numbers depend on the name of the result; for a slice, on that of its buffer. The
 * key is not `given`, so it is not printed; reading the text derives it from the name again. */
static void key_by_name(const ir_func *h, const ir_op_data *op) {
  if (op->code != IR_OP_UNIFORM) return;
  ir_attr *key = (ir_attr *)ir_op_attr(op, "key"); /* of the operation's own copy */
  const char *name = ir_tensor_name(h, root_of(h, op->result));
  if (!key->given) key->i = (int64_t)hash_bytes(name, strlen(name));
}

ir_op ir_host_op(ir_func *h, ir_opcode code, const ir_tensor *operands, uint32_t n_operands,
                 const ir_attr *attrs, ir_tensor tensor, loc at) {
  ir_op_data op = {.code = code, .at = at, .n_operands = n_operands, .result = tensor};
  op.operands = arena_copy(memory_of(h), operands, n_operands * sizeof *operands);
  op.attrs = ir_attrs_complete(h, ir_op_info_of(code), attrs);
  key_by_name(h, &op);
  ir_op o = {h->ops.len};
  vec_push(memory_of(h), &h->ops, op);
  return o;
}

void ir_host_op_more(ir_func *h, ir_op o, const ir_tensor *more, uint32_t n) {
  check(n < ir_op_info_of(ir_op_at(h, o)->code)->n_results);
  ir_op_at(h, o)->more = arena_copy(memory_of(h), more, n * sizeof *more);
  ir_op_at(h, o)->n_more = n;
}

void ir_host_key_by_name(const ir_func *h, ir_op op) { key_by_name(h, ir_op_at(h, op)); }

/* ---- devices ---- */
static const char *coordinate_name(ir_func *h, const ir_mesh_data *m, uint32_t axis) {
  const char *mesh = ir_name_text(h, m->name);
  if (axis < 3) return arena_printf(memory_of(h), "me(%s.%c)", mesh, "xyz"[axis]);
  return arena_printf(memory_of(h), "me(%s.%u)", mesh, axis);
}

ir_scalar ir_host_coordinate(ir_func *h, ir_mesh mesh, uint32_t axis) {
  for (uint32_t i = 0; i < h->host->coordinates.len; i++) {
    const ir_coordinate *c = &h->host->coordinates.data[i];
    if (IR_SAME(c->mesh, mesh) && c->axis == axis) return c->symbol;
  }
  const char *text = coordinate_name(h, ir_mesh_at(h, mesh), axis);
  ir_symbol_data symbol = {.kind = IR_SYMBOL_RANK, .tensor = mesh.id, .dim = axis};
  symbol.name = strings_intern(&h->module->names, text, strlen(text));
  ir_coordinate c = {ir_scalar_symbol(&h->module->scalars, symbol), mesh, axis};
  vec_push(memory_of(h), &h->host->coordinates, c);
  return c.symbol;
}

ir_scalar ir_host_cut_index(ir_func *h, ir_mesh mesh, const ir_cut *cut) {
  ir_scalars *s = &h->module->scalars;
  ir_scalar me = ir_host_coordinate(h, mesh, cut->mesh_axis);
  if (!cut->turn) return me;
  ir_scalar n = ir_scalar_const(s, ir_mesh_size(ir_mesh_at(h, mesh), cut->mesh_axis));
  return ir_scalar_mod(s, ir_scalar_add(s, me, ir_host_coordinate(h, mesh, cut->turn - 1)), n);
}

ir_scalar ir_host_part(ir_func *h, ir_mesh mesh, const ir_cut *cut, ir_scalar n) {
  ir_scalars *s = &h->module->scalars;
  const ir_partition *p = &cut->partition;
  int64_t length;
  bool one = p->kind == IR_CHUNK && ir_scalar_is_const(s, p->size, &length) && length == 1;
  if (one && !p->period.id) return p->size;
  ir_scalar count = ir_scalar_const(s, ir_mesh_size(ir_mesh_at(h, mesh), cut->mesh_axis));
  return ir_partition_length(s, p, n, ir_host_cut_index(h, mesh, cut), count);
}

/* There must be as many pieces of a given length as devices, and given chunks must add up. Only the bound
 * extents show that. */
static void require_pieces(ir_func *h, ir_mesh mesh, const ir_cut *cut, ir_scalar n) {
  ir_scalars *s = &h->module->scalars;
  if (cut->partition.period.id) n = cut->partition.period;
  if (cut->partition.kind == IR_CHUNKS) {
    ir_scalar total = ir_scalar_const(s, 0);
    for (uint32_t i = 0; i < cut->partition.n_chunks; i++) {
      total = ir_scalar_add(s, total, ir_scalar_const(s, cut->partition.chunks[i]));
    }
    bool periodic = cut->partition.period.id != 0; /* chunks of a piece may be longer than it is */
    ir_require(h, periodic ? IR_REQUIRE_LE : IR_REQUIRE_EQ, periodic ? n : total,
               periodic ? total : n, "the chunks of a dimension that is cut over devices", h->at);
  }
  if (cut->partition.kind != IR_CHUNK) return;
  int64_t devices = ir_mesh_size(ir_mesh_at(h, mesh), cut->mesh_axis);
  ir_scalar count = ir_partition_count(s, &cut->partition, n), all = ir_scalar_const(s, devices);
  bool periodic = cut->partition.period.id != 0; /* the last devices may have nothing then */
  ir_require(h, periodic ? IR_REQUIRE_LE : IR_REQUIRE_EQ, periodic ? count : all,
             periodic ? all : count, "pieces of a dimension that is cut over devices", h->at);
}

void ir_host_cut(ir_func *h, ir_axis a, ir_mesh mesh, const ir_cut *cuts, uint32_t n_cuts) {
  ir_scalar size = ir_axis_size(h, a);
  ir_cut_axis cut = {.axis = a, .whole = size, .n_cuts = n_cuts};
  cut.cuts = arena_copy(memory_of(h), cuts, n_cuts * sizeof *cuts);
  for (uint32_t i = 0; i < n_cuts; i++) {
    require_pieces(h, mesh, &cuts[i], size);
    size = ir_host_part(h, mesh, &cuts[i], size);
  }
  ir_axis_data *d = ir_axis_at(h, a);
  if (d->expanded.id) d->expanded = size;
  else d->extent = size;
  ir_host_note_cut(h, a, &cut);
}

void ir_host_note_cut(ir_func *h, ir_axis a, const ir_cut_axis *like) {
  ir_cut_axis cut = *like;
  cut.axis = a;
  vec_push(memory_of(h), &h->host->cut, cut);
  map_put(&h->host->cut_of, a.id, h->host->cut.len);
}

const ir_cut_axis *ir_host_cut_of(const ir_func *h, ir_axis a) {
  uint32_t at = h->host && h->host->cut.len ? map_get(&h->host->cut_of, a.id, 0) : 0;
  return at ? &h->host->cut.data[at - 1] : NULL;
}

ir_scalar ir_axis_whole(const ir_func *f, ir_axis a) {
  const ir_cut_axis *cut = ir_host_cut_of(f, a);
  return cut ? cut->whole : ir_axis_size(f, a);
}

bool ir_op_is_view(ir_opcode code) { return ir_family_info_of(code)->is_view; }

ir_partition ir_partition_of_period(const ir_partition *p) {
  ir_partition within = *p;
  within.period = (ir_scalar){0};
  return within;
}

/* The length of a piece that is [begin, begin + length) of each period: (n / period) times `length`, plus the part
 * of it in the last, incomplete period. */
static ir_scalar over_periods(ir_scalars *s, const ir_partition *p, ir_scalar n, ir_scalar begin,
                              ir_scalar length) {
  ir_scalar full = ir_scalar_mul(s, ir_scalar_floordiv(s, n, p->period), length);
  ir_scalar left = ir_scalar_sub(s, ir_scalar_mod(s, n, p->period), begin);
  ir_scalar tail = ir_scalar_max(s, ir_scalar_const(s, 0), ir_scalar_min(s, length, left));
  return ir_scalar_add(s, full, tail);
}

/* Of equal pieces the first is the longest; of given chunks any may be. */
static ir_scalar longest_over_periods(ir_scalars *s, const ir_partition *p, ir_scalar n) {
  ir_partition within = ir_partition_of_period(p);
  ir_scalar longest = ir_partition_longest(s, &within, p->period);
  if (p->kind != IR_CHUNKS) return over_periods(s, p, n, ir_scalar_const(s, 0), longest);
  return ir_scalar_mul(s, longest, ir_scalar_ceildiv(s, n, p->period));
}

ir_scalar ir_partition_longest(ir_scalars *s, const ir_partition *p, ir_scalar n) {
  if (p->period.id) return longest_over_periods(s, p, n);
  if (p->kind == IR_PARTS) return ir_scalar_ceildiv(s, n, p->size);
  if (p->kind == IR_CHUNK) return p->size;
  int64_t longest = 0;
  for (uint32_t i = 0; i < p->n_chunks; i++) {
    if (p->chunks[i] > longest) longest = p->chunks[i];
  }
  return ir_scalar_const(s, longest);
}

ir_scalar ir_partition_count(ir_scalars *s, const ir_partition *p, ir_scalar n) {
  if (p->period.id) n = p->period;
  if (p->kind == IR_PARTS) return p->size;
  if (p->kind == IR_CHUNK) return ir_scalar_ceildiv(s, n, p->size);
  return ir_scalar_const(s, p->n_chunks);
}

static bool are_equal(const ir_partition *p) {
  bool equal = p->n_chunks > 0;
  for (uint32_t k = 1; k < p->n_chunks; k++) equal = equal && p->chunks[k] == p->chunks[0];
  return equal;
}

static ir_scalar chunk_length(ir_scalars *s, const ir_partition *p, ir_scalar index) {
  if (are_equal(p)) return ir_scalar_const(s, p->chunks[0]);
  return ir_scalar_chunk(s, index, ir_scalar_list(s, p->chunks, p->n_chunks));
}

/* Does every piece below the count begin within the n positions? Pieces of a given length do. Of equal parts
 * the last ones may not, unless there are one or two. */
static bool begins_inside(ir_scalars *s, const ir_partition *p, ir_scalar piece, ir_scalar count,
                          ir_scalar n) {
  if (p->kind == IR_CHUNK || ir_scalar_le(s, count, ir_scalar_const(s, 2)) == IR_TRUE) return true;
  ir_scalar last = ir_scalar_sub(s, count, ir_scalar_const(s, 1));
  return ir_scalar_le(s, ir_scalar_mul(s, last, piece), n) == IR_TRUE;
}

ir_scalar ir_partition_begin(ir_scalars *s, const ir_partition *p, ir_scalar n, ir_scalar index) {
  if (p->period.id) n = p->period;
  if (p->kind == IR_PARTS) return ir_scalar_mul(s, index, ir_scalar_ceildiv(s, n, p->size));
  if (p->kind == IR_CHUNK) return ir_scalar_mul(s, index, p->size);
  return ir_scalar_chunk_start(s, index, ir_scalar_list(s, p->chunks, p->n_chunks));
}

/* A chunk has its given length, or ends where the dimension ends. */
static ir_scalar length_of_chunk(ir_scalars *s, const ir_partition *p, ir_scalar n,
                                 ir_scalar index) {
  ir_scalar length = chunk_length(s, p, index), total = ir_scalar_const(s, 0);
  for (uint32_t i = 0; i < p->n_chunks; i++) {
    total = ir_scalar_add(s, total, ir_scalar_const(s, p->chunks[i]));
  }
  ir_proof covered = ir_scalar_le(s, total, n);
  if (covered == IR_TRUE || (covered == IR_UNKNOWN && !p->ends_early)) return length;
  ir_scalar left = ir_scalar_sub(s, n, ir_partition_begin(s, p, n, index));
  return ir_scalar_max(s, ir_scalar_min(s, length, left), ir_scalar_const(s, 0));
}

static ir_scalar length_over_periods(ir_scalars *s, const ir_partition *p, ir_scalar n,
                                     ir_scalar index, ir_scalar iterations) {
  ir_partition within = ir_partition_of_period(p);
  if (p->kind == IR_CHUNK && !IR_SAME(n, p->period) && ir_scalar_le(s, n, p->period) == IR_TRUE) {
    ir_scalar left = ir_scalar_sub(s, n, ir_scalar_mul(s, index, p->size)); /* one period */
    return ir_scalar_max(s, ir_scalar_min(s, p->size, left), ir_scalar_const(s, 0));
  }
  ir_scalar length = ir_partition_length(s, &within, p->period, index, iterations);
  ir_scalar rest = ir_scalar_mod(s, n, p->period), zero = ir_scalar_const(s, 0);
  if (ir_scalar_eq(s, rest, zero) == IR_TRUE)
    return ir_scalar_mul(s, ir_scalar_floordiv(s, n, p->period), length);
  return over_periods(s, p, n, ir_partition_begin(s, p, n, index), length);
}

ir_scalar ir_partition_length(ir_scalars *s, const ir_partition *p, ir_scalar n, ir_scalar index,
                              ir_scalar iterations) {
  if (p->period.id) return length_over_periods(s, p, n, index, iterations);
  ir_scalar piece = ir_partition_longest(s, p, n), count = ir_partition_count(s, p, n);
  int64_t none;
  if (p->kind == IR_CHUNKS) return length_of_chunk(s, p, n, index);
  if (ir_scalar_is_const(s, n, &none) && none == 0) return n;
  bool bounded = iterations.id && ir_scalar_le(s, iterations, count) == IR_TRUE;
  bool even = ir_scalar_eq(s, ir_scalar_mul(s, piece, count), n) == IR_TRUE;
  if ((bounded || iterations.id == 0) && even) return piece;
  ir_scalar left = ir_scalar_sub(s, n, ir_scalar_mul(s, index, piece));
  ir_scalar length = ir_scalar_min(s, piece, left);
  if (bounded && begins_inside(s, p, piece, count, n)) return length;
  return ir_scalar_max(s, length, ir_scalar_const(s, 0));
}

static void walk(ir_func *h, const ir_block *block, uint32_t depth, ir_instr_visitor visit,
                 void *context) {
  for (uint32_t i = 0; i < block->len; i++) {
    ir_instr at = block->data[i];
    visit(context, h, at, depth);
    const ir_instr_data d = *ir_instr_at(h, at);
    if (d.kind == IR_LAUNCH) continue;
    walk(h, &d.body, depth + 1, visit, context);
    walk(h, &d.otherwise, depth + 1, visit, context);
  }
}

void ir_host_walk(ir_func *h, ir_instr_visitor visit, void *context) {
  walk(h, &h->host->body, 0, visit, context);
}
