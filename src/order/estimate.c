/* How long things take, and how large they are, for nominal extents. */
#include <math.h>

#include "order/internal.h"

struct order_estimate {
  ir_func *h;
  const order_machine *m;
  int64_t *symbols;
  uint32_t n_symbols;
};

enum { NOMINAL_STREAMS = 4 };

const order_machine order_nominal = {.post_ns = 20000,
                                     .bytes_per_ns = 0.25,
                                     .launch_ns = 2000,
                                     .flops_per_ns = 100,
                                     .memory_bytes_per_ns = 10};

order_estimate *order_estimate_new(ir_func *h, const order_machine *machine, arena *scratch) {
  const ir_scalars *s = &h->module->scalars;
  order_estimate *e = ARENA_NEW(scratch, order_estimate);
  e->h = h;
  e->m = machine;
  e->n_symbols = s->symbols.len;
  e->symbols = ir_module_usual(h->module, scratch);
  for (uint32_t i = 0; i < e->n_symbols; i++) {
    switch (s->symbols.data[i].kind) {
    case IR_SYMBOL_EXTENT: break;
    case IR_SYMBOL_INDEX:
    case IR_SYMBOL_RANK: e->symbols[i] = 0; break;
    case IR_SYMBOL_STREAMS: e->symbols[i] = NOMINAL_STREAMS; break;
    }
  }
  return e;
}

bool order_knows_extents(const ir_func *h, arena *scratch) {
  const ir_module *m = h->module;
  uint32_t n = m->scalars.symbols.len;
  int64_t *values = ir_module_usual(m, scratch), v;
  for (uint32_t i = 0; i < n; i++)
    if (m->scalars.symbols.data[i].kind == IR_SYMBOL_EXTENT)
      values[i] = i < m->expected.len ? m->expected.data[i] : IR_UNBOUND;
  for (uint32_t t = 1; t < h->tensors.len; t++) {
    ir_axis dims[IR_MAX_RANK];
    uint32_t rank = ir_tensor_dims(h, (ir_tensor){t}, dims);
    for (uint32_t k = 0; k < rank; k++)
      if (!ir_scalar_eval(&m->scalars, ir_axis_size(h, dims[k]), values, n, &v)) return false;
  }
  return true;
}

static int64_t value(const order_estimate *e, ir_scalar x, int64_t otherwise) {
  int64_t v;
  bool known = ir_scalar_eval(&e->h->module->scalars, x, e->symbols, e->n_symbols, &v);
  return known ? v : otherwise;
}

static double elements(const order_estimate *e, ir_tensor t) {
  ir_axis dims[IR_MAX_RANK];
  uint32_t rank = ir_tensor_dims(e->h, t, dims);
  double n = 1;
  for (uint32_t i = 0; i < rank; i++) {
    int64_t size = value(e, ir_axis_size(e->h, dims[i]), IR_USUAL_EXTENT);
    n *= size > 0 ? (double)size : 0;
  }
  return n;
}

double order_bytes(const order_estimate *e, ir_tensor t) {
  return elements(e, t) * (double)ir_dtype_size_bytes(ir_tensor_at(e->h, t)->dtype);
}

static double last_extent(const order_estimate *e, ir_tensor t) {
  ir_axis dims[IR_MAX_RANK];
  uint32_t rank = ir_tensor_dims(e->h, t, dims);
  if (rank == 0) return 1;
  int64_t size = value(e, ir_axis_size(e->h, dims[rank - 1]), IR_USUAL_EXTENT);
  return size > 0 ? (double)size : 0;
}

/* Attention: for every element of the result a row of scores, and a row of values. */
static double op_flops(const order_estimate *e, const ir_op_data *op) {
  ir_flops flops = ir_family_info_of(op->code)->flops;
  double n = elements(e, op->result);
  if (flops == IR_FLOPS_PRODUCT) return 2 * n * last_extent(e, op->operands[0]);
  if (flops == IR_FLOPS_OUTER)
    return 2 * elements(e, op->operands[0]) * last_extent(e, op->operands[1]);
  if (!ir_op_multiplies(op->code)) return n;
  double keys = elements(e, op->operands[1]) / fmax(1, last_extent(e, op->operands[1]));
  double heads = n / fmax(1, last_extent(e, op->result));
  double per_row = fmax(1, keys / fmax(1, sqrt(heads)));
  return (flops == IR_FLOPS_ATTENTION ? 4 : 10) * n * per_row;
}

static double flops_per_ns(const order_estimate *e, const ir_op_data *op) {
  if (!ir_op_multiplies(op->code)) return e->m->flops_per_ns;
  ir_dtype t = ir_tensor_at(e->h, op->operands[0])->dtype;
  if (t == IR_BF16 && e->m->bf16_flops_per_ns > 0) return e->m->bf16_flops_per_ns;
  bool narrow = (t == IR_F16 || t == IR_BF16) && e->m->narrow_flops_per_ns > 0;
  return narrow ? e->m->narrow_flops_per_ns : e->m->flops_per_ns;
}

static double op_ns(const order_estimate *e, const ir_op_data *op) {
  double bytes = 0;
  for (uint32_t k = 0; k < op->n_operands; k++)
    if (op->operands[k].id) bytes += order_bytes(e, op->operands[k]);
  for (uint32_t k = 0; k < ir_op_n_results(op); k++) bytes += order_bytes(e, ir_op_result(op, k));
  double compute = op->code == IR_OP_NONE ? 0 : op_flops(e, op) / flops_per_ns(e, op);
  return e->m->launch_ns + fmax(compute, bytes / e->m->memory_bytes_per_ns);
}

/* Are the members of the first device's team on several islands? */
static bool is_far(const order_estimate *e, const ir_instr_data *d) {
  const ir_mesh_data *mesh = ir_mesh_at(e->h, d->team);
  int64_t n = ir_mesh_size(mesh, d->team_axis), island = (int64_t)e->m->island, apart = 1;
  bool far = false;
  for (uint32_t k = 0; k < d->team_axis; k++) apart *= ir_mesh_size(mesh, k);
  for (int64_t i = 1; island && i < n && !far; i++)
    far = mesh->devices[i * apart] / island != mesh->devices[0] / island;
  return far;
}

/* As a ring moves them; what is larger of both sides is the whole. */
order_comm order_comm_cost(const order_estimate *e, const ir_instr_data *d) {
  double from = d->from.id ? order_bytes(e, d->from) : 0;
  double to = d->tensor.id ? order_bytes(e, d->tensor) : 0, bytes = fmax(from, to);
  double n = (double)ir_mesh_size(ir_mesh_at(e->h, d->team), d->team_axis), steps = 1;
  double others = n > 1 ? (n - 1) / n : 0;
  ir_comm_way way = ir_comm_info_of(d->comm)->way;
  if (way == IR_WAY_RING || way == IR_WAY_TWICE) {
    double times = way == IR_WAY_TWICE ? 2 : 1;
    bytes *= times * others;
    steps = times * fmax(1, n - 1);
  }
  if (way == IR_WAY_TWICE && e->m->direct > 0) steps *= 0.75;
  bool far = is_far(e, d);
  double latency_ns = far && e->m->far_latency_ns > 0 ? e->m->far_latency_ns : e->m->latency_ns;
  double rate = far && e->m->far_bytes_per_ns > 0 ? e->m->far_bytes_per_ns : e->m->bytes_per_ns;
  return (order_comm){e->m->post_ns + steps * latency_ns, bytes / rate};
}

static bool holds(const order_estimate *e, const ir_instr_data *d) {
  int64_t a = value(e, d->a, 0), b = value(e, d->b, 0);
  switch (d->relation) {
  case IR_EQ: return a == b;
  case IR_NE: return a != b;
  case IR_LT: return a < b;
  case IR_LE: return a <= b;
  }
  return true;
}

static void block_cost(const order_estimate *e, const ir_block *b, double times, double *work_ns,
                       double *link_ns) {
  double work = 0, link = 0;
  for (uint32_t i = 0; i < b->len; i++) order_instr_cost(e, b->data[i], &work, &link);
  *work_ns += times * work;
  *link_ns += times * link;
}

void order_instr_cost(const order_estimate *e, ir_instr i, double *work_ns, double *link_ns) {
  const ir_instr_data *d = ir_instr_at(e->h, i);
  if (d->kind == IR_COMPUTE || d->kind == IR_LAUNCH) *work_ns += op_ns(e, ir_op_at(e->h, d->op));
  if (d->kind == IR_COMMUNICATE) {
    order_comm c = order_comm_cost(e, d);
    *link_ns += c.fixed_ns + c.bytes_ns;
  }
  if (d->kind == IR_IF) block_cost(e, holds(e, d) ? &d->body : &d->otherwise, 1, work_ns, link_ns);
  if (d->kind != IR_FOR) return;
  int64_t n = value(e, d->extent, 1);
  block_cost(e, &d->body, n > 0 ? (double)n : 0, work_ns, link_ns);
}

void order_find_costs(order_graph *g, const order_estimate *e) {
  for (uint32_t i = 0; i < g->nodes.len; i++) {
    order_node *n = &g->nodes.data[i];
    n->work_ns = n->link_ns = 0;
    for (uint32_t k = n->first; k < n->first + n->len; k++)
      order_instr_cost(e, g->block->data[k], &n->work_ns, &n->link_ns);
  }
}
