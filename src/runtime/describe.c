/* What a plan's instructions are and cost, in words and numbers. */
#include <math.h>
#include <string.h>

#include "runtime/plan.h"

static double elements(const rt_shape *s) {
  double n = 1;
  for (uint32_t i = 0; i < s->rank; i++) n *= (double)s->extents[i];
  return n;
}

static double last_extent(const rt_shape *s) {
  return s->rank ? (double)s->extents[s->rank - 1] : 1;
}

static rt_shape shape_of(const rt_plan *plan, uint32_t view) {
  const rt_view *v = &plan->views[view];
  return (rt_shape){v->dtype, v->rank, v->extents};
}

/* A scatter that adds: `reduce` is its second attribute. */
static bool adds(const rt_attr *attrs) { return attrs[1].i != 0; }

/* One operation of n elements; x: the shapes of its operands, NULL where one is no tensor. */
static double flops_of(ir_opcode code, const rt_attr *attrs, double n, const rt_shape *const x[3]) {
  if (!x[0]) return n;
  switch (ir_family_info_of(code)->flops) {
  case IR_FLOPS_NONE: return 0;
  case IR_FLOPS_RESULT: return n;
  case IR_FLOPS_ROWS: return 4 * n;
  case IR_FLOPS_OPERAND: return elements(x[0]);
  case IR_FLOPS_COMPARISONS: return 4 * elements(x[0]);
  case IR_FLOPS_ADDENDS: return adds(attrs) && x[2] ? elements(x[2]) : 0;
  case IR_FLOPS_PRODUCT: return 2 * n * last_extent(x[0]);
  case IR_FLOPS_OUTER: return 2 * elements(x[0]) * (x[1] ? last_extent(x[1]) : 1);
  case IR_FLOPS_ATTENTION: { /* q·kᵀ and the product with v */
    check(x[1]);
    double positions = (double)x[1]->extents[x[1]->rank - 2];
    return 2 * positions * (n + elements(x[0]));
  }
  case IR_FLOPS_ATTENTION_BACKWARD: { /* three products with features of q, two with those of v */
    check(x[1] && x[2]);
    double positions = (double)x[1]->extents[x[1]->rank - 2], width = last_extent(x[0]);
    double rows = width > 0 ? elements(x[0]) / width : 0;
    return 2 * positions * rows * (3 * width + 2 * last_extent(x[2]));
  }
  }
  return 0;
}

/* Counts the functions in the expression of a pointwise operation for which a processor computes a
 * polynomial. */
static uint32_t count_functions(ir_opcode code) {
  static const char *const names[] = {"exp(", "log(",  "sqrt(", "sin(",
                                      "cos(", "tanh(", "erf(",  "pow("};
  const char *text = ir_op_info_of(code)->fexpr;
  uint32_t n = 0;
  for (size_t i = 0; text && i < sizeof names / sizeof *names; i++)
    for (const char *at = text; (at = strstr(at, names[i])); at++) n++;
  return n;
}

/* The same for operations that are no products, in simple operations of a vector unit. */
static double vector_of(ir_opcode code, const rt_attr *attrs, double n,
                        const rt_shape *const x[3]) {
  enum { OF_FUNCTION = 8, OF_ROWS = 4 }; /* rows are read several times */
  if (ir_op_multiplies(code)) return 0;
  double flops = flops_of(code, attrs, n, x);
  if (ir_family_info_of(code)->flops == IR_FLOPS_ROWS) return OF_ROWS * flops;
  return flops * (1 + OF_FUNCTION * (double)count_functions(code));
}

typedef double work_fn(ir_opcode code, const rt_attr *attrs, double n, const rt_shape *const x[3]);

static double step_work(const rt_body *body, const rt_step *s, work_fn *work) {
  const rt_shape *x[3] = {NULL};
  for (uint32_t k = 0; k < s->n_operands && k < 3; k++) {
    const rt_value *v = &s->operands[k];
    bool tensor = v->kind == RT_VALUE_PARAM || v->kind == RT_VALUE_STEP;
    if (tensor) x[k] = rt_value_shape(body, v);
  }
  return work(s->code, s->attrs, elements(&s->results[0]), x);
}

static double task_work(const rt_plan *plan, const rt_task *task, work_fn *work) {
  rt_shape shapes[3];
  const rt_shape *x[3] = {NULL};
  double sum = 0;
  for (uint32_t i = 0; task->body && i < task->body->n_steps; i++)
    sum += step_work(task->body, &task->body->steps[i], work);
  if (task->body) return sum;
  for (uint32_t k = 0; k < task->n_operands && k < 3; k++) {
    if (task->operands[k].kind != RT_OPERAND_VIEW) continue;
    shapes[k] = shape_of(plan, task->operands[k].view);
    x[k] = &shapes[k];
  }
  rt_shape result = shape_of(plan, task->result);
  return work(task->code, task->attrs, elements(&result), x);
}

double rt_task_flops(const rt_plan *plan, const rt_task *task) {
  return task_work(plan, task, flops_of);
}

double rt_task_vector_flops(const rt_plan *plan, const rt_task *task) {
  return task_work(plan, task, vector_of);
}

static double product_of(ir_opcode code, const rt_attr *attrs, double n,
                         const rt_shape *const x[3]) {
  return ir_op_multiplies(code) ? flops_of(code, attrs, n, x) : 0;
}

double rt_task_product_flops(const rt_plan *plan, const rt_task *task) {
  return task_work(plan, task, product_of);
}

static double view_bytes(const rt_plan *plan, uint32_t view) {
  rt_shape s = shape_of(plan, view);
  return elements(&s) * (double)ir_dtype_size_bytes(s.dtype);
}

static bool same_place(const rt_view *x, const rt_view *y) {
  bool same = x->buffer == y->buffer && x->offset_bytes == y->offset_bytes && x->rank == y->rank;
  for (uint32_t d = 0; d < x->rank && same; d++)
    same = x->extents[d] == y->extents[d] && (x->extents[d] <= 1 || x->strides[d] == y->strides[d]);
  return same;
}

/* Is it an update whose result is where its operand is? It writes the new positions only. */
static bool updates_in_place(const rt_plan *plan, const rt_task *task) {
  if (task->body || task->code != IR_OP_UPDATE) return false;
  const rt_operand *x = &task->operands[0], *src = &task->operands[1];
  return x->kind == RT_OPERAND_VIEW && src->kind == RT_OPERAND_VIEW &&
         same_place(&plan->views[x->view], &plan->views[task->result]);
}

/* Of a tensor that is read at the positions of an index, at most as many bytes as the result has. */
static double operand_bytes(const rt_plan *plan, const rt_task *task, uint32_t k) {
  if (task->operands[k].kind != RT_OPERAND_VIEW) return 0;
  double bytes = view_bytes(plan, task->operands[k].view);
  bool selects = task->code == IR_OP_GATHER || task->code == IR_OP_INDEX_SELECT;
  return !task->body && selects && k == 0 ? fmin(bytes, view_bytes(plan, task->result)) : bytes;
}

double rt_task_bytes(const rt_plan *plan, const rt_task *task) {
  double bytes = 0;
  if (updates_in_place(plan, task))
    return 2 * operand_bytes(plan, task, 1) + operand_bytes(plan, task, 2);
  for (uint32_t k = 0; k < rt_task_n_results(task); k++)
    bytes += view_bytes(plan, rt_task_result(task, k));
  for (uint32_t k = 0; k < task->n_operands; k++) bytes += operand_bytes(plan, task, k);
  return bytes;
}

double rt_post_bytes(const rt_post *p) {
  double piece = (double)p->count * (double)ir_dtype_size_bytes(p->dtype);
  bool sends = !ir_comm_is_message(p->kind) || (p->to >= 0 && (uint32_t)p->to != p->me);
  return sends ? ir_comm_bytes(p->kind, piece, p->n_team, p->me, p->root) : 0;
}

double rt_post_bytes_in(const rt_post *p) {
  int64_t count = p->kind == IR_COMM_PERMUTE ? p->count_from : p->count;
  double piece = (double)count * (double)ir_dtype_size_bytes(p->dtype);
  bool other = !ir_comm_is_message(p->kind) || (p->from >= 0 && (uint32_t)p->from != p->me);
  return other ? ir_comm_bytes_in(p->kind, piece, p->n_team, p->me, p->root) : 0;
}

rt_post rt_post_at_root(const rt_post *p) {
  rt_post r = *p;
  if (!p->root_view) return r;
  r.me = p->root;
  r.rank = p->team[p->root];
  if (ir_comm_info_of(p->kind)->root == IR_ROOT_SENDS) r.in = p->root_view - 1;
  else r.out = p->root_view - 1;
  r.root_view = 0;
  return r;
}

rt_post rt_post_in_turn(const rt_post *p, uint32_t turn) {
  rt_post r = *p;
  r.to += r.to_step * (int32_t)turn;
  r.from += r.from_step * (int32_t)turn;
  return r;
}

bool rt_plan_has_roots(const rt_plan *plan) {
  for (uint32_t p = 0; p < plan->n_posts; p++)
    if (plan->posts[p].n_team > 1 && ir_comm_has_root(plan->posts[p].kind)) return true;
  return false;
}

rt_comm_request rt_post_request(const rt_post *p, const void *in, void *out) {
  return (rt_comm_request){.kind = p->kind,
                           .op = p->op,
                           .dtype = p->dtype,
                           .team = p->team,
                           .n_team = p->n_team,
                           .me = p->me,
                           .root = p->root,
                           .to = p->to,
                           .from = p->from,
                           .count = p->count,
                           .count_from = p->count_from,
                           .in = in,
                           .out = out};
}

static void add_operand(const ir_func *h, ir_tensor t, strbuf *out) {
  if (t.id == 0) {
    strbuf_puts(out, "-");
    return;
  }
  const ir_tensor_data *d = ir_tensor_at(h, t);
  if (d->kind != IR_TENSOR_CONST) strbuf_puts(out, ir_tensor_name(h, t));
  else if (d->value.id) ir_print_scalar(h, d->value, out);
  else if (d->number.is_float) strbuf_double(out, d->number.f);
  else strbuf_int(out, d->number.i);
}

/* "a$1 -> a$1$1"; one of them may be none. */
static void add_sides(const rt_plan *plan, const rt_post *p, strbuf *out) {
  const uint32_t views[] = {p->in, p->out};
  for (int k = 0; k < 2; k++) {
    const char *name = NULL;
    if (views[k] != RT_NO_VIEW) name = plan->buffers[plan->views[views[k]].buffer].name;
    if (k) strbuf_puts(out, views[0] != RT_NO_VIEW ? " -> " : "-> ");
    if (views[k] != RT_NO_VIEW) strbuf_puts(out, name ? name : "?");
  }
}

/* "c0 = allgather(a$1 -> a$1$1)", as the host program has it, or else from the plan. */
static void add_post(const rt_plan *plan, const rt_instr *i, strbuf *out) {
  const ir_func *h = plan->host;
  const rt_post *p = &plan->posts[i->task];
  const ir_instr_data *d = h && i->origin ? ir_instr_at(h, (ir_instr){i->origin}) : NULL;
  bool known = d && d->kind == IR_COMMUNICATE;
  if (known && d->name) strbuf_printf(out, "%s = ", ir_name_text(h, d->name));
  strbuf_printf(out, "%s(", ir_comm_text(p->kind));
  if (!known) add_sides(plan, p, out);
  else {
    if (d->from.id) strbuf_printf(out, "%s ", ir_tensor_name(h, d->from));
    strbuf_puts(out, "->");
    if (d->tensor.id) strbuf_printf(out, " %s", ir_tensor_name(h, d->tensor));
  }
  strbuf_putc(out, ')');
}

/* The post is known by its number; its place is found by a search. */
static void add_join(const rt_plan *plan, const rt_instr *i, strbuf *out) {
  strbuf_puts(out, "waits for ");
  for (uint32_t k = 0; k < plan->n_instrs; k++)
    if (plan->instrs[k].kind == RT_POST && plan->instrs[k].task == i->task) {
      add_post(plan, &plan->instrs[k], out);
      return;
    }
  strbuf_puts(out, ir_comm_text(plan->posts[i->task].kind));
}

static void add_stream(const rt_plan *plan, const rt_instr *i, strbuf *out) {
  uint32_t main = plan->n_ranks > 1 ? plan->first_stream[rt_plan_rank(plan, i->other)] : 0;
  strbuf_puts(out, "waits for ");
  if (i->other == main) strbuf_puts(out, "main");
  else strbuf_printf(out, "stream %u", i->other - main - 1u);
}

static void add_launch(const rt_plan *plan, const rt_instr *i, strbuf *out) {
  const ir_func *h = plan->host;
  const ir_instr_data *d = h && i->origin ? ir_instr_at(h, (ir_instr){i->origin}) : NULL;
  const char *name = rt_task_name(&plan->tasks[i->task]);
  if (!d || (d->kind != IR_COMPUTE && d->kind != IR_LAUNCH)) {
    strbuf_puts(out, name);
    return;
  }
  const ir_op_data *op = ir_op_at(h, d->op);
  for (uint32_t k = 0; k < ir_op_n_results(op); k++)
    strbuf_printf(out, "%s%s", k ? ", " : "", ir_tensor_name(h, ir_op_result(op, k)));
  strbuf_printf(out, " <- %s(", name);
  for (uint32_t k = 0; k < op->n_operands; k++) {
    if (k) strbuf_puts(out, ", ");
    add_operand(h, op->operands[k], out);
  }
  strbuf_putc(out, ')');
}

void rt_describe_post(const rt_plan *plan, uint32_t instr, strbuf *out) {
  check(plan->instrs[instr].kind == RT_POST);
  add_post(plan, &plan->instrs[instr], out);
}

void rt_describe(const rt_plan *plan, uint32_t instr, strbuf *out) {
  const rt_instr *i = &plan->instrs[instr];
  switch ((rt_instr_kind)i->kind) {
  case RT_LAUNCH: add_launch(plan, i, out); break;
  case RT_WAIT: add_stream(plan, i, out); break;
  case RT_JOIN: add_join(plan, i, out); break;
  case RT_POST:
    add_post(plan, i, out);
    strbuf_puts(out, " posted");
    break;
  }
}

/* The line of an instruction; 0: not known. Counts lines itself: the table of the source grows on demand, and
 * belongs to the code that reports errors. */
uint32_t rt_line_of(const rt_plan *plan, uint32_t origin) {
  uint32_t line = 1;
  const ir_func *h = plan->host;
  if (!h || !origin || origin >= h->host->instrs.len) return 0;
  loc at = h->host->instrs.data[origin].at;
  const source *src = &h->module->src;
  if (!at.known || !src->text || at.offset > src->length) return 0;
  for (uint32_t k = 0; k < at.offset; k++) line += src->text[k] == '\n';
  return line;
}

uint32_t rt_line(const rt_plan *plan, uint32_t instr) {
  return rt_line_of(plan, plan->instrs[instr].origin);
}

void rt_place(const rt_plan *plan, uint32_t instr, strbuf *out) {
  uint32_t line = rt_line(plan, instr);
  if (line) strbuf_printf(out, "%s:%u", plan->host->module->src.name, line);
  else rt_describe(plan, instr, out);
}

status rt_fail_at(const rt_plan *plan, uint32_t instr, status st, const char *message) {
  uint32_t line = instr < plan->n_instrs ? rt_line(plan, instr) : 0;
  if (!line) return fail(st, "%s", message);
  return fail(st, "%s:%u: %s", plan->host->module->src.name, line, message);
}

status rt_fail_in_run(const rt_plan *plan, status st, const char *message) {
  uint32_t line = 0;
  for (uint32_t i = 0; i < plan->n_instrs && !line; i++) line = rt_line(plan, i);
  if (!line) return fail(st, "%s", message);
  return fail(st, "%s, in the run that begins at %s:%u", message, plan->host->module->src.name,
              line);
}
