/* Which operations share which loops, and where their results live. */
#include "host/internal.h"

typedef struct nest {
  uint32_t len;
  uint32_t number[HOST_MAX_NEST];
  stream_axis axis[HOST_MAX_NEST];
} nest;

static bool same_number(const lowering *l, ir_scalar a, ir_scalar b) {
  return IR_SAME(a, b) || (a.id && b.id && ir_func_equal(l->f, a, b) == IR_TRUE);
}

bool host_same_partition(const lowering *l, const ir_partition *a, const ir_partition *b) {
  if (a->kind != b->kind || a->n_chunks != b->n_chunks) return false;
  if (!same_number(l, a->size, b->size) || !same_number(l, a->period, b->period)) return false;
  for (uint32_t i = 0; i < a->n_chunks; i++) {
    if (a->chunks[i] != b->chunks[i]) return false;
  }
  return true;
}

static bool same_loop(lowering *l, const stream_axis *a, const stream_axis *b) {
  bool alike = a->swizzled == b->swizzled && (!a->swizzled || a->swizzle_axis == b->swizzle_axis);
  /* mutant: loops_never_shared, loops_unmapped */
  return alike && a->logical == b->logical && host_same_partition(l, &a->slice, &b->slice) &&
         ir_class_same(&l->classes, a->axis, b->axis) &&
         ir_func_equal(l->f, a->count, b->count) == IR_TRUE;
}

/* Within a shared loop an operand must be read just as it is made: slice i from slice i, and not while
 * it is still being added up. */
static bool read_as_made(const lowering *l, const ir_op_data *op, uint32_t k,
                         const stream_axis *mine, const stream_axis *made) {
  uint32_t dim;
  bool stretched;
  return !made->reduction && host_operand_dim(l, op, k, mine, &dim, &stretched) && !stretched &&
         dim == made->dim;
}

/* A result that comes piece by piece is complete only after the loop. */
static bool arrives_late(const op_plan *made) {
  return made->kind == STEP_EXCHANGES || made->kind == STEP_REDUCES;
}

static uint32_t levels_with_operand(const lowering *l, const ir_op_data *op, uint32_t k,
                                    const stream_axes *axes, const nest *open, uint32_t levels) {
  ir_op producer = l->producer[op->operands[k].id];
  /* mutant: loops_read_across */
  if (producer.id == 0) return levels;
  const op_plan *made = &l->ops[producer.id];
  for (uint32_t q = 0; q < levels; q++) {
    if (made->axes.len <= q || made->loop[q] != open->number[q]) return levels;
    if (arrives_late(made)) return q;
    if (!read_as_made(l, op, k, &axes->data[q], &made->axes.data[q])) return q;
  }
  return levels;
}

/* Does iteration i of loop q make the slice of some operand that the operation needs in it? Then the loop
 * runs over the right slices, though a reshape may have made other axes of them. */
static bool follows_operand(lowering *l, const ir_op_data *op, const stream_axes *axes,
                            const nest *open, uint32_t q) {
  const stream_axis *mine = &axes->data[q];
  for (uint32_t k = 0; k < op->n_operands; k++) {
    ir_op producer = l->producer[op->operands[k].id];
    const op_plan *made = &l->ops[producer.id];
    if (producer.id == 0 || made->axes.len <= q || made->loop[q] != open->number[q]) continue;
    const stream_axis *theirs = &made->axes.data[q];
    /* mutant: loops_part_for_whole */
    if (mine->logical == theirs->logical && !mine->swizzled && !theirs->swizzled &&
        mine->depth == theirs->depth && /* a device's part is not the whole */
        host_same_partition(l, &mine->slice, &theirs->slice) &&
        ir_func_equal(l->f, mine->count, theirs->count) == IR_TRUE &&
        read_as_made(l, op, k, mine, theirs))
      return true;
  }
  return false;
}

static uint32_t levels_joined(lowering *l, const ir_op_data *op, const stream_axes *axes,
                              const nest *open) {
  /* mutant: loops_skip_outer */
  uint32_t n = 0;
  while (n < axes->len && n < open->len &&
         (same_loop(l, &open->axis[n], &axes->data[n]) || follows_operand(l, op, axes, open, n)))
    n++;
  for (uint32_t k = 0; k < op->n_operands; k++) {
    n = levels_with_operand(l, op, k, axes, open, n);
  }
  return n;
}

static bool never_runs(lowering *l, const stream_axes *axes) {
  ir_scalar zero = ir_scalar_const(&l->f->module->scalars, 0);
  for (uint32_t q = 0; q < axes->len; q++) {
    if (ir_func_equal(l->f, axes->data[q].count, zero) == IR_TRUE) return true;
  }
  return false;
}

/* Does the operation take its pieces from the loop that is open, one per iteration? */
static bool joins_pieces(lowering *l, const ir_op_data *op, op_plan *plan, const nest *open) {
  ir_op producer = op->n_operands ? l->producer[op->operands[0].id] : (ir_op){0};
  if (producer.id == 0 || open->len != 1) return false;
  const op_plan *made = &l->ops[producer.id];
  if (made->axes.len != 1 || made->loop[0] != open->number[0] || arrives_late(made)) return false;
  return host_join_pieces(l, op, plan, made);
}

static bool has_axis(const stream_axes *axes, ir_axis a) {
  for (uint32_t q = 0; q < axes->len; q++)
    if (IR_SAME(axes->data[q].axis, a)) return true;
  return false;
}

/* Records the axes of `before` that are not in `now` any more. */
static void note_dropped(lowering *l, ir_op o, const stream_axes *before, const stream_axes *now,
                         ir_rule why) {
  for (uint32_t q = 0; q < before->len; q++) {
    ir_unstreamed u = {o, before->data[q].axis, why};
    if (!has_axis(now, u.axis)) vec_push(&l->h->module->memory, &l->h->host->unstreamed, u);
  }
}

static bool plan_op(lowering *l, ir_op o, nest *open) {
  const ir_op_data *op = ir_op_at(l->f, o);
  op_plan *plan = &l->ops[o.id];
  stream_axes marked, shared, fitting;
  if (!host_stream_axes(l, op->result, &plan->axes)) return false;
  marked = plan->axes;
  host_drop_unshared_streams(l, op, &plan->axes);
  shared = plan->axes;
  if (!host_check_results(l, op, &plan->axes)) return false;
  if (!host_plan_devices(l, op, plan)) return false;
  fitting = plan->axes;
  host_drop_recut_streams(l, op, plan);
  for (uint32_t q = 0; q < plan->axes.len; q++) {
    /* Devices that meet must have the same slice, and those that add up the same order. */
    bool meets = plan->partial || plan->kind == STEP_MOVES;
    if ((meets && host_piece_level(plan) != (int32_t)q) || plan->axes.data[q].reduction)
      plan->axes.data[q].swizzled = false;
  }
  if (never_runs(l, &plan->axes)) fitting.len = plan->axes.len = 0; /* one step does it */
  uint32_t joined = joins_pieces(l, op, plan, open) ? 1 : levels_joined(l, op, &plan->axes, open);
  note_dropped(l, o, &marked, &shared, IR_RULE_UNSHARED);
  note_dropped(l, o, &shared, &fitting, IR_RULE_UNFIT);
  if (!arrives_late(plan)) note_dropped(l, o, &fitting, &plan->axes, IR_RULE_RECUT);
  open->len = joined;
  for (uint32_t q = joined; q < plan->axes.len; q++) {
    open->axis[q] = plan->axes.data[q];
    open->number[q] = l->n_loops++;
    open->len++;
  }
  for (uint32_t q = 0; q < plan->axes.len; q++) plan->loop[q] = open->number[q];
  for (uint32_t k = 0; k < ir_op_n_results(op); k++) l->producer[ir_op_result(op, k).id] = o;
  return true;
}

/* ---- buffers ---- */

static uint32_t common_levels(const op_plan *a, const op_plan *b) {
  uint32_t n = 0;
  while (n < a->axes.len && n < b->axes.len && a->loop[n] == b->loop[n]) n++;
  return n;
}

/* The number of levels, from the outermost on, within whose iterations the result is complete. */
static uint32_t levels_inside(op_plan *plan, bool shrinks) {
  plan->buffer = plan->axes.len ? IR_RULE_INSIDE : IR_RULE_BUFFER;
  for (uint32_t q = 0; q < plan->axes.len; q++) {
    const stream_axis *s = &plan->axes.data[q];
    bool late = plan->kind == STEP_EXCHANGES || plan->kind == STEP_REDUCES;
    /* mutant: buffer_always_whole */
    if (s->reduction || late || (s->logical && !shrinks)) {
      plan->buffer = s->reduction ? IR_RULE_SUM : late ? IR_RULE_LATE : IR_RULE_PLAIN;
      return q;
    }
  }
  return plan->axes.len;
}

static void keep_within(op_plan *plan, uint32_t levels, ir_rule why) {
  if (plan->inside <= levels) return;
  plan->inside = levels;
  /* mutant: why_buffer_unsaid */
  plan->buffer = why;
}

static void place_buffers(lowering *l) {
  ir_func *f = l->f;
  bool *returned = ARENA_ARRAY(&l->scratch, f->tensors.len, bool); /* those are whole anyway */
  for (uint32_t i = 0; i < f->outputs.len; i++) returned[f->outputs.data[i].id] = true;
  for (uint32_t i = 0; i < f->order.len; i++) {
    ir_tensor t = ir_op_at(f, f->order.data[i])->result;
    op_plan *plan = &l->ops[f->order.data[i].id];
    plan->inside = levels_inside(plan, returned[t.id] || ir_tensor_at(f, t)->shrinks);
  }
  for (uint32_t i = 0; i < f->order.len; i++) {
    const ir_op_data *op = ir_op_at(f, f->order.data[i]);
    for (uint32_t k = 0; k < op->n_operands; k++) {
      ir_op producer = l->producer[op->operands[k].id];
      if (producer.id == 0) continue;
      uint32_t common = common_levels(&l->ops[producer.id], &l->ops[f->order.data[i].id]);
      /* mutant: buffer_ignores_consumers */
      keep_within(&l->ops[producer.id], common, IR_RULE_OUTSIDE);
    }
  }
  for (uint32_t i = 0; i < f->outputs.len; i++) {
    ir_op producer = l->producer[f->outputs.data[i].id];
    /* mutant: buffer_of_output_inside */
    if (producer.id) keep_within(&l->ops[producer.id], 0, IR_RULE_OUTPUT);
  }
}

/* Does the operation communicate, other than piece by piece in level q, among devices that a turn along
 * this mesh axis gives different slices? */
static bool spoils_turn(const lowering *l, ir_op o, uint32_t q, const shard_comm *turn) {
  const op_plan *plan = &l->ops[o.id];
  uint32_t along = 1u << turn->mesh_axis;
  ir_mesh mesh = ir_tensor_at(l->f, ir_op_at(l->f, o)->result)->mesh;
  if (plan->partial) return !IR_SAME(mesh, turn->from) || (plan->partial & along);
  if (plan->kind != STEP_MOVES) return false;
  const shard_comm *m = plan->comm;
  bool same = IR_SAME(m->from, turn->from) && m->mesh_axis == turn->mesh_axis;
  if (host_piece_level(plan) == (int32_t)q) return !same;
  return !shard_comm_is_in_lines(m->kind) || !IR_SAME(m->from, turn->from) ||
         !IR_SAME(m->to, turn->from) || m->mesh_axis == turn->mesh_axis;
}

/* May iterations add up in turn? They add up in the order of the pieces, which is the same on all devices;
 * where each device has a part of the result to itself, the order may be its own. */
static bool adds_in_turn(const lowering *l, ir_op o, const shard_comm *turn) {
  const ir_op_data *op = ir_op_at(l->f, o);
  shard_placement p;
  if (l->options->deterministic || ir_op_fold(op->code) != IR_FOLD_SUM) return false;
  shard_placement_of(l->f, op->result, &p);
  return IR_SAME(p.mesh, turn->from) && p.axes[turn->mesh_axis].kind == SHARD_SHARDED;
}

static bool asks_for_turn(const lowering *l, ir_op o) {
  ir_form form = host_form_asked(l, ir_op_at(l->f, o));
  return form == IR_FORM_OFFSET || form == IR_FORM_OWN || form == IR_FORM_RING;
}

/* With one piece per iteration, device c begins with its own, so that not all ask the same one at once. */
static void turn_loops(lowering *l) {
  const shard_comm **pieces = ARENA_ARRAY(&l->scratch, l->n_loops, const shard_comm *);
  for (uint32_t i = 0; i < l->f->order.len; i++) {
    const op_plan *plan = &l->ops[l->f->order.data[i].id];
    int32_t q = host_piece_level(plan);
    if (q >= 0) pieces[plan->loop[q]] = plan->comm;
    if (q >= 0 && !plan->axes.data[q].swizzled && asks_for_turn(l, l->f->order.data[i]))
      l->loop_turns[plan->loop[q]] = plan->comm;
    if (plan->kind == STEP_EXCHANGES) l->loop_turns[plan->loop[0]] = plan->comm;
  }
  for (uint32_t i = 0; i < l->f->order.len; i++) {
    const op_plan *plan = &l->ops[l->f->order.data[i].id];
    for (uint32_t q = 0; q < plan->axes.len; q++) {
      const shard_comm *over = pieces[plan->loop[q]];
      bool meets = over && spoils_turn(l, l->f->order.data[i], q, over);
      l->loop_meets[plan->loop[q]] = l->loop_meets[plan->loop[q]] || meets;
      bool ordered =
          plan->axes.data[q].reduction && !(over && adds_in_turn(l, l->f->order.data[i], over));
      /* mutant: dev_turned_anyway */
      if (ordered || meets) l->loop_turns[plan->loop[q]] = NULL;
    }
  }
}

/* What a ring forwards must outlive the iteration. */
static void keep_ring_buffers(lowering *l) {
  for (uint32_t i = 0; i < l->f->order.len; i++) {
    op_plan *plan = &l->ops[l->f->order.data[i].id];
    int32_t q = host_piece_level(plan);
    if (q < 0 || !l->loop_turns[plan->loop[q]]) continue;
    if (host_form_asked(l, ir_op_at(l->f, l->f->order.data[i])) == IR_FORM_RING)
      keep_within(plan, (uint32_t)q, IR_RULE_RELAY);
  }
}

/* A loop's slices drop their dimension if every operation in it can work that way. */
static void choose_slices(lowering *l) {
  /* mutant: slice_never_drops */
  for (uint32_t i = 0; i < l->n_loops; i++) l->loop_drops[i] = true;
  for (uint32_t i = 0; i < l->f->order.len; i++) {
    const ir_op_data *op = ir_op_at(l->f, l->f->order.data[i]);
    const op_plan *plan = &l->ops[l->f->order.data[i].id];
    for (uint32_t q = 0; q < plan->axes.len; q++) {
      const stream_axis *s = &plan->axes.data[q];
      /* mutant: slice_always_drops */
      if (!s->logical || !host_can_drop(l, op, s)) l->loop_drops[plan->loop[q]] = false;
    }
  }
}

bool host_group(lowering *l) {
  ir_func *f = l->f;
  uint32_t n;
  host_step *steps = host_segment(f, host_never_merge, &l->scratch, &n);
  nest open = {.len = 0};
  /* mutant: dev_inputs_unchecked */
  bool ok = host_check_inputs(l);
  for (uint32_t i = 0; i < n; i++) {
    check(steps[i].len == 1);
    ok = plan_op(l, f->order.data[steps[i].first], &open) && ok;
  }
  if (!ok) return false;
  host_add_parts(l);
  if (!l->options->one_phase) host_split_phases(l);
  l->loop_drops = arena_alloc(&l->scratch, l->n_loops);
  l->loop_turns = ARENA_ARRAY(&l->scratch, l->n_loops, const shard_comm *);
  l->loop_meets = ARENA_ARRAY(&l->scratch, l->n_loops, bool);
  place_buffers(l);
  turn_loops(l);
  keep_ring_buffers(l);
  choose_slices(l);
  host_find_own(l);
  return true;
}
