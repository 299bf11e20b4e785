/* What a nest of loops does with the piece that the device has, before the loops.
 *
 *   main = current_stream()
 *   a$1 = select(a, dim=0, index=0)
 *   c$1 = select(c, dim=0, index=me(d.x))
 *   c$1 <- matmul(a$1, b)
 *   for i in slices stream { … }
 *
 * The own piece is computed on the calling stream. The streams of the loops begin before it, so that they
 * fetch other pieces meanwhile. */
#include "host/emit.h"

/* Opens the loops over slices of the own piece. The index of the loop over pieces is the device's own. */
static uint32_t open_own(emitter *e, const op_plan *plan, const own_first *own, uint32_t anchor,
                         ir_instr_data *loops) {
  ir_scalar me = emit_me(e, own->comm->from, (uint32_t)own->comm->mesh_axis);
  uint32_t n = 0, level = own->whole ? 0 : own->level;
  for (uint32_t q = 0; q < plan->axes.len; q++) {
    open_loop *loop = &e->loops[q];
    *loop = (open_loop){.number = plan->loop[q]};
    if (q == 0) loop->anchor = anchor;
    if (q == level) {
      loop->index = me;
    } else {
      const stream_axis *a = &plan->axes.data[q];
      loop->variable = loop->turn = emit_new_variable(e, n);
      loop->index = emit_slice_index(e, plan->loop[q], a, own->comm->from, loop->variable);
      loops[n++] = (ir_instr_data){.kind = IR_FOR, .variable = loop->variable, .extent = a->count};
    }
  }
  e->depth = plan->axes.len;
  return n;
}

static void emit_all(emitter *e, const own_first *own, uint32_t *anchor) {
  const ir_op *ops = e->l->f->order.data + own->first;
  ir_instr_data loops[HOST_MAX_NEST];
  ir_block body = {0};
  uint32_t n = open_own(e, &e->l->ops[ops[0].id], own, *anchor, loops);
  ir_block *before = emit_begin(e, n ? &body : &e->h->host->body);
  e->own = own;
  for (uint32_t i = 0; i < own->len; i++) {
    e->h->host->source = ops[i];
    emit_step(e, ops[i]);
  }
  e->own = NULL;
  emit_end(e, before);
  *anchor = e->loops[0].anchor;
  e->depth = 0;
  e->slices.len = 0;
  e->h->host->source = ops[0];
  while (n-- > 0) {
    loops[n].body = body;
    body = (ir_block){0};
    if (n > 0) ir_block_add(e->h, &body, ir_host_instr(e->h, &loops[n]));
    else emit_instr(e, &loops[n]);
  }
}

void emit_own_first(emitter *e, const own_first *own, uint32_t *anchor) {
  lowering *l = e->l;
  const ir_op *ops = l->f->order.data + own->first;
  ir_op opener = e->h->host->source;
  op_plan *plans = ARENA_ARRAY(&l->scratch, own->len, op_plan);
  for (uint32_t i = 0; i < own->len; i++) {
    plans[i] = l->ops[ops[i].id];
    l->ops[ops[i].id] = host_own_plan(&plans[i], own);
  }
  ir_rule rule = emit_because(e, IR_RULE_OWN);
  emit_all(e, own, anchor);
  (void)emit_because(e, rule);
  e->h->host->source = opener;
  for (uint32_t i = 0; i < own->len; i++) {
    bool of_piece = l->ops[ops[i].id].inside > 0;
    const ir_op_data *op = ir_op_at(e->f, ops[i]);
    for (uint32_t k = 0; of_piece && k < ir_op_n_results(op); k++)
      e->buffer[ir_op_result(op, k).id] = (ir_tensor){0};
    l->ops[ops[i].id] = plans[i];
  }
}
