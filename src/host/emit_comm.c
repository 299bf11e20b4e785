/* Communications, and the copies around those that need contiguous pieces. */
#include <string.h>

#include "host/emit.h"
#include "ir/build.h"

/* ---- instructions ---- */

uint32_t emit_comm_name(emitter *e) {
  for (;;) {
    const char *text = arena_printf(&e->h->module->memory, "c%u", e->n_comms++);
    uint32_t name = strings_intern(&e->h->module->names, text, strlen(text));
    bool taken = ir_func_lookup(e->f, name).kind || ir_func_lookup(e->h, name).kind;
    if (!taken) return name;
  }
}

void emit_wait(emitter *e, uint32_t name, loc at) {
  emit_instr(e, &(ir_instr_data){.kind = IR_WAIT, .name = name, .at = at});
}

void emit_comm(emitter *e, const comm_call *c, ir_tensor in, ir_tensor out) {
  ir_instr_data d = {.kind = IR_COMMUNICATE, .at = c->at, .from = in, .tensor = out};
  d.comm = c->kind;
  d.combine = c->combine;
  d.team = c->team;
  d.team_axis = c->axis;
  d.root = c->root;
  d.name = emit_comm_name(e);
  emit_instr(e, &d);
  emit_wait(e, d.name, c->at);
}

/* ---- dense memory ---- */

static uint32_t sizes_of(const emitter *e, ir_tensor t, ir_scalar *sizes) {
  ir_axis dims[IR_MAX_RANK];
  uint32_t rank = ir_tensor_dims(e->h, t, dims);
  for (uint32_t i = 0; i < rank; i++) sizes[i] = ir_axis_size(e->h, dims[i]);
  return rank;
}

/* Guards what is done with `t`, which a communication reads or writes: it is done on the devices that have
 * it, or, if only the root takes part with it, on the root. */
static void guard_role(emitter *e, const comm_call *c, ir_tensor t, bool target, host_guard *g) {
  bool roots = ir_comm_info_of(c->kind)->root == (target ? IR_ROOT_RECEIVES : IR_ROOT_SENDS);
  bool other = c->kind == IR_COMM_SEND_RECV;
  if (!roots && !other) {
    emit_guard(e, ir_tensor_at(e->h, t)->mesh, g);
    return;
  }
  ir_scalar who = c->root;
  if (other && target)
    who = ir_scalar_sub(emit_scalars(e), ir_scalar_const(emit_scalars(e), 1), who);
  emit_guard_if(e, who, emit_me(e, c->team, c->axis), g);
}

/* Is its memory dense, in the order of its dimensions (not counting those of size 1)? */
static bool is_plain(const emitter *e, ir_tensor t) {
  ir_axis dims[IR_MAX_RANK], stored[IR_MAX_RANK];
  uint32_t rank = ir_tensor_dims(e->h, t, dims);
  if (!emit_is_dense(e, t)) return false;
  if (ir_axes_dims(e->h, emit_order(e, t), stored) != rank) return false;
  for (uint32_t i = 0; i < rank; i++) {
    if (!IR_SAME(dims[i], stored[i])) return false;
  }
  return true;
}

ir_tensor emit_densely(emitter *e, ir_tensor t, ir_mesh where, loc at) {
  if (is_plain(e, t)) return t;
  ir_tensor tmp = emit_dense_target(e, t, at);
  emit_copy_because(e, t, tmp, where, IR_RULE_PACK, at);
  return tmp;
}

ir_tensor emit_dense_target(emitter *e, ir_tensor t, loc at) {
  if (is_plain(e, t)) return t;
  ir_scalar sizes[IR_MAX_RANK];
  uint32_t rank = sizes_of(e, t, sizes);
  ir_tensor tmp = emit_scratch(e, t, sizes, rank);
  emit_allocation_because(e, tmp, IR_RULE_PACK, at);
  return tmp;
}

void emit_copy_back(emitter *e, ir_tensor from, ir_tensor to, ir_mesh where, loc at) {
  if (!IR_SAME(from, to)) emit_copy_because(e, from, to, where, IR_RULE_PACK, at);
}

static ir_mesh mesh_of(const emitter *e, ir_tensor t) { return ir_tensor_at(e->h, t)->mesh; }

/* to <- from, on the devices that have a part in what the communication sends or gets. */
/* mutant: why_packed_by_itself */
static void copy_for(emitter *e, const comm_call *c, ir_tensor from, ir_tensor to, bool back) {
  ir_rule before = emit_because(e, IR_RULE_PACK);
  host_guard g;
  guard_role(e, c, back ? to : from, back, &g);
  emit_simple(e, IR_OP_SET, &from, 1, to, c->at);
  emit_unguard(e, &g, c->at);
  (void)emit_because(e, before);
}

static ir_tensor densely_for(emitter *e, const comm_call *c, ir_tensor in) {
  if (is_plain(e, in)) return in;
  ir_tensor tmp = emit_dense_target(e, in, c->at);
  copy_for(e, c, in, tmp, false);
  return tmp;
}

void emit_dense_comm(emitter *e, const comm_call *c, ir_tensor in, ir_tensor out) {
  ir_tensor from = densely_for(e, c, in);
  ir_tensor to = emit_dense_target(e, out, c->at);
  emit_comm(e, c, from, to);
  if (!IR_SAME(to, out)) copy_for(e, c, to, out, true);
}

/* ---- pieces ---- */

/* Are all n pieces of the dimension equally long, for all extents? Pieces of one position are: there is
 * one per device. */
static bool is_even(emitter *e, const ir_partition *p, ir_scalar size, int64_t n) {
  ir_scalars *s = emit_scalars(e);
  ir_scalar piece = ir_partition_longest(emit_scalars(e), p, size);
  int64_t one;
  if (e->assume_even) return true;
  if (p->period.id) {
    ir_partition within = ir_partition_of_period(p);
    ir_scalar rest = ir_scalar_mod(s, size, p->period), zero = ir_scalar_const(s, 0);
    if (ir_scalar_eq(s, rest, zero) != IR_TRUE) return false;
    if (p->kind == IR_CHUNKS) return is_even(e, &within, p->period, n);
    piece = ir_partition_longest(s, &within, p->period);
    return ir_scalar_eq(s, ir_scalar_mul(s, piece, ir_scalar_const(s, n)), p->period) == IR_TRUE;
  }
  if (p->kind == IR_CHUNK && ir_scalar_is_const(s, p->size, &one) && one == 1) return true;
  if (p->kind == IR_CHUNKS && !p->ends_early) {
    for (uint32_t i = 1; i < p->n_chunks; i++) {
      if (p->chunks[i] != p->chunks[0]) return false;
    }
    return true;
  }
  return ir_scalar_eq(s, ir_scalar_mul(s, piece, ir_scalar_const(s, n)), size) == IR_TRUE;
}

static int64_t team_size(const emitter *e, const comm_call *c) {
  return ir_mesh_size(ir_mesh_at(e->h, c->team), c->axis);
}

/* How many pieces there are: a root that only sends or receives has none. */
static int64_t piece_count(const emitter *e, const comm_call *c, const pieces *p) {
  return p->count ? p->count : team_size(e, c);
}

static ir_scalar size_of(const emitter *e, ir_tensor t, int32_t dim) {
  ir_scalar sizes[IR_MAX_RANK];
  (void)sizes_of(e, t, sizes);
  return sizes[dim];
}

static bool lie_in_order(emitter *e, const comm_call *c, ir_tensor t, const pieces *p) {
  if (!emit_piece_is_range(&p->partition) || p->turn.id) return false;
  /* mutant: dev_in_rows_ignored */
  return is_plain(e, t) && emit_is_outermost(e, t, (uint32_t)p->dim) &&
         is_even(e, &p->partition, size_of(e, t, p->dim), piece_count(e, c, p));
}

/* A buffer for n contiguous pieces like the longest of `t`. */
static ir_tensor pieces_buffer(emitter *e, const comm_call *c, ir_tensor t, const pieces *p) {
  ir_scalar sizes[IR_MAX_RANK + 1];
  uint32_t rank = sizes_of(e, t, sizes + 1);
  sizes[0] = ir_scalar_const(emit_scalars(e), piece_count(e, c, p));
  sizes[p->dim + 1] = ir_partition_longest(emit_scalars(e), &p->partition, sizes[p->dim + 1]);
  ir_tensor tmp = emit_scratch(e, t, sizes, rank + 1);
  emit_allocation_because(e, tmp, IR_RULE_PACK, c->at);
  return tmp;
}

/* A view of `t` by the operation, with these extents. */
static ir_tensor view_of(emitter *e, ir_tensor t, ir_opcode code, const ir_attr *attrs,
                         const ir_scalar *sizes, uint32_t rank, loc at) {
  ir_tensor view = emit_scratch(e, t, sizes, rank);
  e->dense.data[view.id] = false;
  ir_instr_data d = {.kind = IR_VIEW, .at = at, .tensor = view};
  d.op = ir_host_op(e->h, code, &t, 1, attrs, view, at);
  emit_instr(e, &d);
  return view;
}

ir_tensor emit_first(emitter *e, ir_tensor t, uint32_t which, const ir_scalar *lengths, loc at) {
  ir_scalar sizes[IR_MAX_RANK];
  uint32_t rank = sizes_of(e, t, sizes);
  for (uint32_t i = 0; i < rank; i++) {
    if (which >> i & 1) sizes[i] = lengths[i];
  }
  arena *memory = &e->h->module->memory;
  ir_scalar *starts = ARENA_ARRAY(memory, rank, ir_scalar);
  for (uint32_t i = 0; i < rank; i++) starts[i] = ir_scalar_const(emit_scalars(e), 0);
  ir_attr attrs[3] = {
      {.given = true, .len = rank, .scalars = starts},
      {.given = true, .len = rank, .scalars = arena_copy(memory, sizes, rank * sizeof *sizes)},
      {.given = false}};
  return view_of(e, t, IR_OP_SLICE, attrs, sizes, rank, at);
}

/* The first positions of `t` along each dimension, as many as `like` has. */
static ir_tensor shortened(emitter *e, ir_tensor t, ir_tensor like, loc at) {
  ir_scalar sizes[IR_MAX_RANK];
  uint32_t rank = sizes_of(e, like, sizes);
  return emit_first(e, t, (1u << rank) - 1, sizes, at);
}

static ir_tensor take(emitter *e, ir_instr_kind kind, ir_tensor from, uint32_t dim,
                      const ir_partition *p, ir_scalar index, ir_scalar count, loc at) {
  stream_axis cut = {.count = count};
  if (p) cut.partition = *p;
  return emit_cut(e, from, dim, &cut, kind == IR_SELECT, index, at);
}

/* ---- one piece ---- */

bool emit_piece_is_range(const ir_partition *p) { return p->period.id == 0; }

/* Which piece member `i` has. */
static ir_scalar piece_of(emitter *e, const pieces *p, ir_scalar i, ir_scalar n) {
  ir_scalars *s = emit_scalars(e);
  return p->turn.id ? ir_scalar_mod(s, ir_scalar_add(s, i, p->turn), n) : i;
}

/* x$1 = slice(x, starts=[…, start, …], stops=[…, stop, …], steps=[…, step, …]) */
static ir_tensor view_range(emitter *e, ir_tensor t, uint32_t dim, ir_scalar start, ir_scalar stop,
                            int64_t by, ir_scalar length, loc at) {
  ir_scalar sizes[IR_MAX_RANK];
  uint32_t rank = sizes_of(e, t, sizes);
  arena *memory = &e->h->module->memory;
  ir_scalar *starts = ARENA_ARRAY(memory, rank, ir_scalar);
  ir_scalar *stops = arena_copy(memory, sizes, rank * sizeof *sizes);
  int64_t *steps = ARENA_ARRAY(memory, rank, int64_t);
  for (uint32_t i = 0; i < rank; i++) {
    starts[i] = i == dim ? start : ir_scalar_const(emit_scalars(e), 0);
    steps[i] = i == dim ? by : 1;
  }
  stops[dim] = stop;
  sizes[dim] = length;
  ir_attr attrs[3] = {{.given = true, .len = rank, .scalars = starts},
                      {.given = true, .len = rank, .scalars = stops},
                      {.given = by != 1, .len = by != 1 ? rank : 0, .ints = steps}};
  return view_of(e, t, IR_OP_SLICE, attrs, sizes, rank, at);
}

static void copy_either_way(emitter *e, const piece_copy *c, ir_tensor whole, ir_tensor part) {
  emit_simple(e, IR_OP_SET, c->back ? &part : &whole, 1, c->back ? whole : part, c->at);
}

/* Every n-th position, one for each of n devices: a view. */
static bool copy_strided(emitter *e, const piece_copy *c, ir_scalar n) {
  ir_scalars *s = emit_scalars(e);
  const ir_partition *p = &c->partition;
  int64_t one, by, n_pieces;
  bool strided = p->kind == IR_CHUNK && ir_scalar_is_const(s, p->size, &one) && one == 1;
  if (!strided || !ir_scalar_is_const(s, p->period, &by)) return false;
  /* mutant: strided_by_fewer */
  if (!ir_scalar_is_const(s, c->count, &n_pieces) || n_pieces != by) return false;
  ir_scalar length = ir_partition_length(s, p, n, c->index, c->count);
  ir_tensor view =
      view_range(e, c->whole, c->dim, ir_scalar_min(s, c->index, n), n, by, length, c->at);
  copy_either_way(e, c, view, c->part);
  return true;
}

/* for j in ceildiv(n, period) { piece of period j of the whole <-> j-th range of the part } */
static void copy_periods(emitter *e, const piece_copy *c, ir_scalar n) {
  ir_scalars *s = emit_scalars(e);
  const ir_partition *p = &c->partition;
  ir_partition within = ir_partition_of_period(p);
  ir_scalar length = ir_partition_length(s, &within, p->period, c->index, c->count);
  ir_scalar begin = ir_partition_begin(s, p, n, c->index), one = ir_scalar_const(s, 1);
  ir_instr_data loop = {.kind = IR_FOR, .at = c->at, .extent = ir_scalar_ceildiv(s, n, p->period)};
  loop.variable = emit_new_variable(e, c->nested);
  ir_block *before = emit_begin(e, &loop.body);
  ir_partition chunk = {.kind = IR_CHUNK, .size = p->period};
  ir_tensor period = take(e, IR_SHARD, c->whole, c->dim, &chunk, loop.variable, loop.extent, c->at);
  ir_scalar positions = size_of(e, period, (int32_t)c->dim);
  ir_scalar start = ir_scalar_min(s, begin, positions);
  ir_scalar stop = ir_scalar_min(s, ir_scalar_add(s, begin, length), positions);
  ir_scalar taken = ir_scalar_sub(s, stop, start);
  ir_tensor from = view_range(e, period, c->dim, start, stop, 1, taken, c->at);
  chunk.size = ir_scalar_max(s, length, one);
  ir_tensor to = take(e, IR_SHARD, c->part, c->dim, &chunk, loop.variable, loop.extent, c->at);
  copy_either_way(e, c, from, to);
  emit_end(e, before);
  emit_instr(e, &loop);
}

void emit_copy_piece(emitter *e, const piece_copy *c) {
  ir_scalar n = size_of(e, c->whole, (int32_t)c->dim);
  if (emit_piece_is_range(&c->partition)) {
    ir_tensor piece = take(e, IR_SHARD, c->whole, c->dim, &c->partition, c->index, c->count, c->at);
    copy_either_way(e, c, piece, c->part);
  } else if (!copy_strided(e, c, n)) {
    copy_periods(e, c, n);
  }
}

pieces emit_pieces_along(emitter *e, ir_tensor t, uint32_t mesh_axis) {
  ir_cut cut = host_cut_along(e->l, t, mesh_axis);
  pieces p = {.partition = cut.partition};
  if (cut.turn) p.turn = emit_me(e, ir_tensor_at(e->f, t)->mesh, cut.turn - 1);
  return p;
}

/* The first positions of a row, as many as there are in the piece that it is for. */
static ir_tensor row_for(emitter *e, const piece_copy *c, ir_tensor row) {
  ir_scalar lengths[IR_MAX_RANK], mine[IR_MAX_RANK];
  uint32_t rank = sizes_of(e, c->whole, lengths), n = sizes_of(e, row, mine);
  bool same = n == rank;
  lengths[c->dim] =
      ir_partition_length(emit_scalars(e), &c->partition, lengths[c->dim], c->index, c->count);
  for (uint32_t i = 0; i < rank && same; i++) same = IR_SAME(lengths[i], mine[i]);
  if (same || e->assume_even) return row;
  ir_instr_data zero = emit_fill(e, row, 0, c->at);
  if (!c->back) emit_instr(e, &zero);
  return emit_first(e, row, (1u << rank) - 1, lengths, c->at);
}

/* t as its pieces, a view: reshape(t, […, n, length, …]), with the pieces first. */
static ir_tensor view_pieces(emitter *e, ir_tensor t, uint32_t dim, ir_scalar n, loc at) {
  arena *memory = &e->h->module->memory;
  ir_scalars *s = emit_scalars(e);
  ir_scalar sizes[IR_MAX_RANK + 1], turned[IR_MAX_RANK];
  uint32_t rank = sizes_of(e, t, sizes);
  ir_scalar length = ir_scalar_ceildiv(s, sizes[dim], n);
  memmove(&sizes[dim + 1], &sizes[dim], (rank - dim) * sizeof *sizes);
  sizes[dim] = n;
  sizes[dim + 1] = length;
  ir_attr shape = {.given = true, .len = rank + 1};
  shape.scalars = arena_copy(memory, sizes, (rank + 1) * sizeof *sizes);
  ir_tensor split = view_of(e, t, IR_OP_RESHAPE, &shape, sizes, rank + 1, at);
  if (dim == 0) return split;
  int64_t *list = ARENA_ARRAY(memory, rank + 1, int64_t);
  for (uint32_t i = 0; i <= rank; i++) {
    list[i] = i == 0 ? dim : i <= dim ? i - 1 : i;
    turned[i] = sizes[list[i]];
  }
  ir_attr order = {.given = true, .len = rank + 1, .ints = list};
  return view_of(e, split, IR_OP_PERMUTE, &order, turned, rank + 1, at);
}

/* Are the pieces ranges, in order, and as long as the rows in every dimension, for all extents? Then one
 * copy does for all. */
static bool are_copied_at_once(emitter *e, const comm_call *c, ir_tensor t, const pieces *p,
                               ir_tensor rows) {
  ir_scalars *s = emit_scalars(e);
  ir_scalar sizes[IR_MAX_RANK], of_rows[IR_MAX_RANK];
  ir_axis dims[IR_MAX_RANK];
  if (ir_tensor_dims(e->h, t, dims) == IR_MAX_RANK || p->turn.id ||
      !emit_piece_is_range(&p->partition))
    return false;
  uint32_t rank = sizes_of(e, t, sizes);
  ir_scalar n = ir_scalar_const(s, piece_count(e, c, p));
  (void)sizes_of(e, rows, of_rows);
  for (uint32_t i = 0; i < rank; i++) {
    ir_scalar row = of_rows[i + 1];
    if (i == (uint32_t)p->dim) row = ir_scalar_mul(s, row, n);
    if (ir_scalar_eq(s, row, sizes[i]) != IR_TRUE) return false;
  }
  bool assumed = e->assume_even;
  e->assume_even = false;
  bool even = is_even(e, &p->partition, sizes[p->dim], piece_count(e, c, p));
  e->assume_even = assumed;
  return even;
}

/* for p in n { row p of `rows` <-> piece p of t } */
static void copy_one_by_one(emitter *e, const comm_call *c, ir_tensor t, const pieces *p,
                            ir_tensor rows, bool into_rows) {
  ir_scalar n = ir_scalar_const(emit_scalars(e), piece_count(e, c, p));
  ir_instr_data loop = {.kind = IR_FOR, .at = c->at, .extent = n};
  loop.variable = emit_new_variable(e, 0);
  ir_block *before = emit_begin(e, &loop.body);
  ir_tensor row = take(e, IR_SELECT, rows, 0, NULL, loop.variable, n, c->at);
  piece_copy piece = {.whole = t, .dim = (uint32_t)p->dim, .partition = p->partition, .at = c->at};
  piece.index = piece_of(e, p, loop.variable, n);
  piece.count = n;
  piece.back = !into_rows;
  piece.nested = 1;
  piece.part = row_for(e, &piece, row);
  emit_copy_piece(e, &piece);
  emit_end(e, before);
  emit_instr(e, &loop);
}

/* Rows of `rows` <-> pieces of t. */
static void copy_pieces(emitter *e, const comm_call *c, ir_tensor t, const pieces *p,
                        ir_tensor rows, bool into_rows) {
  ir_scalars *s = emit_scalars(e);
  ir_scalar n = ir_scalar_const(s, piece_count(e, c, p));
  ir_rule why = emit_because(e, IR_RULE_PACK);
  host_guard g;
  guard_role(e, c, t, !into_rows, &g);
  if (are_copied_at_once(e, c, t, p, rows)) {
    ir_tensor all = view_pieces(e, t, (uint32_t)p->dim, n, c->at);
    emit_simple(e, IR_OP_SET, into_rows ? &all : &rows, 1, into_rows ? rows : all, c->at);
  } else {
    copy_one_by_one(e, c, t, p, rows, into_rows);
  }
  emit_unguard(e, &g, c->at);
  (void)emit_because(e, why);
}

/* One piece, as long as the longest of all of them. */
static ir_tensor padded(emitter *e, const comm_call *c, ir_tensor t, const pieces *p, ir_tensor all,
                        const pieces *q) {
  ir_scalar sizes[IR_MAX_RANK], whole = size_of(e, all, q->dim);
  uint32_t rank = sizes_of(e, t, sizes);
  if (is_even(e, &q->partition, whole, piece_count(e, c, q))) return densely_for(e, c, t);
  if (p->whole.id) whole = p->whole;
  sizes[p->dim] = ir_partition_longest(emit_scalars(e), &q->partition, whole);
  ir_tensor tmp = emit_scratch(e, t, sizes, rank);
  emit_allocation_because(e, tmp, IR_RULE_PAD, c->at);
  return tmp;
}

static void fill_padded(emitter *e, const comm_call *c, ir_tensor t, ir_tensor tmp) {
  ir_rule before = emit_because(e, IR_RULE_PAD);
  host_guard g;
  guard_role(e, c, t, false, &g);
  ir_instr_data zero = emit_fill(e, tmp, 0, c->at);
  emit_instr(e, &zero);
  emit_simple(e, IR_OP_SET, &t, 1, shortened(e, tmp, t, c->at), c->at);
  emit_unguard(e, &g, c->at);
  (void)emit_because(e, before);
}

/* gather, allgather: one piece -> all of them. */
static void emit_gathering(emitter *e, const comm_call *c, ir_tensor in, const pieces *one,
                           ir_tensor out, const pieces *all) {
  bool direct = lie_in_order(e, c, out, all);
  bool even = is_even(e, &all->partition, size_of(e, out, all->dim), piece_count(e, c, all));
  ir_tensor from = padded(e, c, in, one, out, all);
  if (!even) fill_padded(e, c, in, from);
  ir_tensor to = direct ? out : pieces_buffer(e, c, out, all);
  emit_comm(e, c, from, to);
  if (!direct) copy_pieces(e, c, out, all, to, false);
}

/* scatter, reduce_scatter: all pieces -> one. */
static void emit_scattering(emitter *e, const comm_call *c, ir_tensor in, const pieces *all,
                            ir_tensor out, const pieces *one) {
  bool direct = lie_in_order(e, c, in, all);
  bool even = is_even(e, &all->partition, size_of(e, in, all->dim), piece_count(e, c, all));
  ir_tensor from = direct ? in : pieces_buffer(e, c, in, all), to;
  if (!direct) copy_pieces(e, c, in, all, from, true);
  if (!even) to = padded(e, c, out, one, in, all);
  else to = emit_dense_target(e, out, c->at);
  emit_comm(e, c, from, to);
  if (IR_SAME(to, out)) return;
  ir_rule before = emit_because(e, even ? IR_RULE_PACK : IR_RULE_PAD);
  host_guard g, member; /* of several teams, others have got theirs already */
  /* mutant: dev_teams_overwrite */
  emit_guard(e, c->team, &member);
  emit_guard(e, mesh_of(e, out), &g);
  ir_tensor back = even ? to : shortened(e, to, out, c->at);
  emit_simple(e, IR_OP_SET, &back, 1, out, c->at);
  emit_unguard(e, &g, c->at);
  emit_unguard(e, &member, c->at);
  (void)emit_because(e, before);
}

static void emit_exchange(emitter *e, const comm_call *c, ir_tensor in, const pieces *p,
                          ir_tensor out, const pieces *q) {
  /* Rows of both sides are as long as the longest piece along both dimensions: the part of the first
   * that a device holds may itself be shorter than others'. */
  ir_scalar sizes[IR_MAX_RANK + 1];
  uint32_t rank = sizes_of(e, in, sizes + 1);
  bool even = is_even(e, &p->partition, size_of(e, in, p->dim), piece_count(e, c, p)) &&
              is_even(e, &q->partition, size_of(e, out, q->dim), piece_count(e, c, q));
  bool direct_in = even && lie_in_order(e, c, in, p),
       direct_out = even && lie_in_order(e, c, out, q);
  ir_tensor from = in, to = out;
  sizes[0] = ir_scalar_const(emit_scalars(e), team_size(e, c));
  sizes[p->dim + 1] = ir_partition_longest(emit_scalars(e), &p->partition, size_of(e, in, p->dim));
  sizes[q->dim + 1] = ir_partition_longest(emit_scalars(e), &q->partition, size_of(e, out, q->dim));
  if (!direct_in) {
    if (even) sizes[q->dim + 1] = size_of(e, in, q->dim);
    from = emit_scratch(e, in, sizes, rank + 1);
    emit_allocation_because(e, from, even ? IR_RULE_PACK : IR_RULE_PAD, c->at);
    copy_pieces(e, c, in, p, from, true);
  }
  if (!direct_out) {
    if (even) sizes[p->dim + 1] = size_of(e, out, p->dim);
    sizes[q->dim + 1] =
        ir_partition_longest(emit_scalars(e), &q->partition, size_of(e, out, q->dim));
    to = emit_scratch(e, out, sizes, rank + 1);
    emit_allocation_because(e, to, even ? IR_RULE_PACK : IR_RULE_PAD, c->at);
  }
  emit_comm(e, c, from, to);
  if (!direct_out) copy_pieces(e, c, out, q, to, false);
}

static void emit_pieces_form(emitter *e, const comm_call *c, ir_tensor in, const pieces *p,
                             ir_tensor out, const pieces *q) {
  bool gives = ir_comm_in_pieces(c->kind), takes = ir_comm_out_pieces(c->kind);
  if (gives && takes) emit_exchange(e, c, in, p, out, q);
  else if (gives) emit_scattering(e, c, in, p, out, q);
  else if (takes) emit_gathering(e, c, in, p, out, q);
  else emit_dense_comm(e, c, in, out);
}

/* ---- with and without padding ---- */

static bool names_device(const ir_scalars *s, ir_scalar x) {
  return ir_scalar_has(s, x, IR_SYMBOL_RANK);
}

/* Adds to `rest` what is left when the dimension is cut into equal pieces, if that depends on the extents;
 * false if the pieces are of different length anyway. */
static bool add_rest(emitter *e, const comm_call *c, ir_tensor t, const pieces *p,
                     ir_scalar *rest) {
  ir_scalars *s = emit_scalars(e);
  ir_scalar size = size_of(e, t, p->dim);
  if (is_even(e, &p->partition, size, piece_count(e, c, p))) return true;
  if (p->partition.kind == IR_CHUNKS || p->partition.period.id) return false;
  ir_scalar mine = ir_scalar_mod(s, size, p->partition.size);
  /* mutant: chunks_taken_for_even */
  if (p->partition.kind == IR_CHUNK) { /* what the last pieces lack */
    ir_scalar count = ir_scalar_const(s, piece_count(e, c, p));
    mine = ir_scalar_sub(s, ir_scalar_mul(s, count, p->partition.size), size);
  }
  *rest = ir_scalar_add(s, *rest, mine);
  return !ir_scalar_is_const(s, mine, NULL);
}

/* Is it worth emitting the communication in two variants? Only where all devices choose the same one. */
static bool has_variants(emitter *e, const comm_call *c, ir_tensor in, const pieces *p,
                         ir_tensor out, const pieces *q, ir_scalar *rest) {
  ir_scalars *s = emit_scalars(e);
  bool gives = ir_comm_in_pieces(c->kind), takes = ir_comm_out_pieces(c->kind);
  if (p->dim < 0 || q->dim < 0) return false;
  *rest = ir_scalar_const(s, 0);
  if (gives && !add_rest(e, c, in, p, rest)) return false;
  if ((takes || !gives) && !add_rest(e, c, out, q, rest)) return false;
  return !ir_scalar_is_const(s, *rest, NULL) && !names_device(s, *rest);
}

/* if n % 4 == 0 { as it is } else { through padded copies } */
void emit_pieces_comm(emitter *e, const comm_call *c, ir_tensor in, const pieces *p, ir_tensor out,
                      const pieces *q) {
  ir_instr_data choice = {.kind = IR_IF, .at = c->at, .relation = IR_EQ};
  if (!has_variants(e, c, in, p, out, q, &choice.a)) {
    emit_pieces_form(e, c, in, p, out, q);
    return;
  }
  choice.b = ir_scalar_const(emit_scalars(e), 0);
  ir_block *before = emit_begin(e, &choice.body);
  e->assume_even = true;
  emit_pieces_form(e, c, in, p, out, q);
  e->assume_even = false;
  emit_end(e, before);
  /* mutant: variants_always_even */
  before = emit_begin(e, &choice.otherwise);
  emit_pieces_form(e, c, in, p, out, q);
  emit_end(e, before);
  emit_instr(e, &choice);
}
