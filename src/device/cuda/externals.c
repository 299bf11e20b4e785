/* The caller's arrays: which of them a plan reads before it writes them, and which it writes in full. */
#include "device/cuda/device.h"

static const rt_plan *plan_of(const cuda_loaded *l) { return l->plan; }

static int64_t view_bytes(const rt_view *v) {
  int64_t n = (int64_t)ir_dtype_size_bytes(v->dtype);
  for (uint32_t d = 0; d < v->rank; d++) n *= v->extents[d];
  return n;
}

typedef struct coverage {
  int64_t *written; /* by buffer: bytes */
  bool *read_first;
  bool *posted; /* it is an input or output of a communication */
} coverage;

static void note_read(const cuda_loaded *l, coverage *c, uint32_t view) {
  if (view == RT_NO_VIEW) return;
  uint32_t b = plan_of(l)->views[view].buffer;
  if (c->written[b] == 0) c->read_first[b] = true;
}

static void note_posted(const cuda_loaded *l, coverage *c, uint32_t view) {
  if (view != RT_NO_VIEW) c->posted[plan_of(l)->views[view].buffer] = true;
}

static void note_write(const cuda_loaded *l, coverage *c, uint32_t view, uint32_t times) {
  if (view == RT_NO_VIEW) return;
  const rt_view *v = &plan_of(l)->views[view];
  c->written[v->buffer] += times * view_bytes(v);
}

/* Finds the outputs that must be copied in, too: the plan reads them before it writes them, or does not write all of
 * them. */
static void find_coverage(cuda_loaded *l, coverage *c) {
  const rt_plan *plan = plan_of(l);
  c->written = ARENA_ARRAY(&l->memory, plan->n_buffers, int64_t);
  c->read_first = ARENA_ARRAY(&l->memory, plan->n_buffers, bool);
  c->posted = ARENA_ARRAY(&l->memory, plan->n_buffers, bool);
  for (uint32_t i = 0, loop = 0; i < plan->n_instrs; i++) {
    const rt_instr *instr = &plan->instrs[i];
    while (loop < plan->n_loops && plan->loops[loop].first + plan->loops[loop].n <= i) loop++;
    bool again = loop < plan->n_loops && plan->loops[loop].first <= i;
    uint32_t times = again ? plan->loops[loop].times : 1;
    if (instr->kind == RT_POST) {
      const rt_post *p = &plan->posts[instr->task];
      note_read(l, c, p->in);
      note_write(l, c, p->out, 1);
      note_posted(l, c, p->in);
      note_posted(l, c, p->out);
      bool lacks = p->kind == IR_COMM_GATHER && p->in == RT_NO_VIEW && p->out != RT_NO_VIEW;
      if (lacks) /* the root's own piece stays as it was */
        c->written[plan->views[p->out].buffer] -= p->count * (int64_t)ir_dtype_size_bytes(p->dtype);
    }
    if (instr->kind != RT_LAUNCH) continue;
    const rt_task *t = &plan->tasks[instr->task];
    for (uint32_t k = 0; k < t->n_operands; k++)
      if (t->operands[k].kind == RT_OPERAND_VIEW) note_read(l, c, t->operands[k].view);
    for (uint32_t k = 0; k < rt_task_n_results(t); k++)
      note_write(l, c, rt_task_result(t, k), times);
  }
}

void cuda_externals_list(cuda_loaded *l) {
  const rt_plan *plan = plan_of(l);
  coverage c;
  find_coverage(l, &c);
  l->externals = ARENA_ARRAY(&l->memory, plan->n_buffers, cuda_external);
  for (uint32_t b = 0; b < plan->n_buffers; b++) {
    const rt_buffer *buffer = &plan->buffers[b];
    if (buffer->kind == RT_BUFFER_POOL) continue;
    bool is_output = buffer->kind == RT_BUFFER_OUTPUT;
    bool whole = c.written[b] >= buffer->size_bytes && !c.read_first[b];
    cuda_external *e = &l->externals[l->n_externals++];
    *e = (cuda_external){.buffer = b, .rank = l->rank_of_buffer[b], .is_output = is_output};
    /* mutant: cuda_outputs_not_read */
    e->copies_in = !is_output || !whole;
    e->copies_out = is_output || buffer->updated;
    e->is_shared = cuda_is_mapped(l) && c.posted[b];
  }
}
