/* What holds of the reasons of every lowered program; for the random tests.
 *
 * All of it runs inside a memory_guard(). What does not hold is left in kit_reason. */
#ifndef WEIR_TESTS_WHY_KIT_H
#define WEIR_TESTS_WHY_KIT_H

#include "explain/explain.h"
#include "stream_kit.h"

/* Does the chain end at a line of the user's (or, for a mesh, where nothing places the tensor; or
 * at a stream that pass slice-products added)? Each reason is younger than the one it rests on, so
 * chains end. */
static inline bool kit_chain(const ir_func *f, uint32_t why, bool mesh, const char *what) {
  if (why == 0 || why >= f->whys.len) return kit_wrong("no reason", what);
  while (ir_why_at(f, why)->because) {
    const ir_why *w = ir_why_at(f, why);
    if (w->rule == IR_RULE_NONE || w->rule == IR_RULE_USER || w->rule == IR_RULE_ALL)
      return kit_wrong("a last reason is not the last", what);
    if (w->because >= why) return kit_wrong("a reason rests on a later one", what);
    if (ir_rule_info_of(w->rule)->sentence[0] == '%' && !w->from)
      return kit_wrong("a reason does not say of what it speaks", what);
    why = w->because;
  }
  const ir_why *last = ir_why_at(f, why);
  if (!last->at.known) return kit_wrong("a reason without a place", what);
  if (!mesh && last->rule == IR_RULE_SLICED) return true;
  if (last->rule == IR_RULE_USER || (mesh && last->rule == IR_RULE_ALL)) return true;
  return kit_wrong("a chain that does not end at the user's line", what);
}

static inline bool kit_tensor_reasons(const ir_func *f, ir_tensor t) {
  const ir_tensor_data *d = ir_tensor_at(f, t);
  const char *name = ir_tensor_name(f, t);
  if (d->mesh.id && !kit_chain(f, d->mesh_why, true, name)) return false;
  for (uint32_t i = 0; i < d->now.loop.len; i++) {
    const ir_axis_data *a = ir_axis_at(f, d->now.loop.data[i]);
    bool marked = a->mark.kind == IR_MARK_STREAM || a->mark.kind == IR_MARK_MESH;
    if (marked && !kit_chain(f, a->why, false, name)) return false;
  }
  return true;
}

/* An inserted operation has a reason: because of the mark that asks for it, or of a step that the user
 * wrote and that takes several. */
static inline bool kit_op_reasons(const ir_func *f, const ir_op_data *op) {
  uint32_t why = op->why;
  if (!kit_tensor_reasons(f, op->result)) return false;
  if (!why) return true;
  while (ir_why_at(f, why)->rule == IR_RULE_STEP && ir_why_at(f, why)->because)
    why = ir_why_at(f, why)->because;
  if (ir_why_at(f, why)->rule == IR_RULE_STEP) return ir_why_at(f, why)->at.known;
  return kit_chain(f, why, true, ir_tensor_name(f, op->result));
}

typedef struct kit_instrs {
  bool good;
  uint32_t n; /* communications and buffers */
} kit_instrs;

static inline void kit_instr_reason(void *context, ir_func *h, ir_instr i, uint32_t depth) {
  (void)depth;
  kit_instrs *all = context;
  const ir_instr_data *d = ir_instr_at(h, i);
  bool made = d->source.id && d->source.id < h->host->lowered->ops.len;
  bool said = d->kind != IR_ALLOCATE || d->why != IR_RULE_NONE;
  all->n += d->kind == IR_ALLOCATE || d->kind == IR_COMMUNICATE;
  if (all->good && !made) all->good = kit_wrong("an instruction without an operation", "");
  if (all->good && !said) all->good = kit_wrong("a buffer without a reason", "");
}

/* Those without a reason are the fusion's own, but for what was removed. */
static inline bool kit_inserted(const ir_func *h) {
  const ir_func *f = h->host->lowered, *fusion = h->host->fusion;
  uint32_t own = 0, all = 0;
  for (uint32_t i = 0; i < f->removed.len; i++) /* not those that the schedule made */
    own += ir_func_lookup(fusion, f->removed.data[i].name).id < fusion->n_defined.tensors;
  for (uint32_t i = 0; i < f->order.len; i++) {
    const ir_op_data *op = ir_op_at(f, f->order.data[i]);
    if (!op->why) own += ir_op_n_results(op);
  }
  for (uint32_t i = 0; i < fusion->order.len; i++)
    all += ir_op_n_results(ir_op_at(fusion, fusion->order.data[i]));
  return own == all;
}

static inline bool kit_reasons(ir_func *h) {
  const ir_func *f = h->host->lowered;
  kit_instrs all = {.good = true};
  for (uint32_t i = 0; i < f->inputs.len; i++)
    if (!kit_tensor_reasons(f, f->inputs.data[i])) return false;
  for (uint32_t i = 0; i < f->order.len; i++)
    if (!kit_op_reasons(f, ir_op_at(f, f->order.data[i]))) return false;
  if (!kit_inserted(h)) return kit_wrong("an operation is inserted or not", "");
  ir_host_walk(h, kit_instr_reason, &all);
  return all.good;
}

/* Every tensor of the fusion and of the host program can be asked about, and every communication. */
static inline void kit_ask_comm(void *context, ir_func *h, ir_instr i, uint32_t depth) {
  (void)depth;
  bool *good = context;
  const ir_instr_data *d = ir_instr_at(h, i);
  bool named = d->kind == IR_GROUP_END || (d->kind == IR_COMMUNICATE && d->name);
  if (!*good || !named) return;
  arena scratch;
  strbuf out;
  arena_init(&scratch, &memory_default);
  strbuf_init(&out, &scratch);
  explain_subject s = {.h = h, .scratch = &scratch};
  *good = explain_why(&s, ir_name_text(h, d->name), &out) && strstr(out.data, "because") != NULL;
  if (!*good) kit_wrong("no answer about", ir_name_text(h, d->name));
  arena_destroy(&scratch);
}

static inline bool kit_ask_tensors(const explain_subject *s, const ir_func *f, strbuf *out) {
  for (uint32_t i = 1; i < f->tensors.len; i++) {
    const ir_tensor_data *t = &f->tensors.data[i];
    if (!t->name || t->kind == IR_TENSOR_CONST) continue;
    const char *name = ir_name_text(f, t->name);
    out->len = 0;
    if (!explain_why(s, name, out) || strncmp(out->data, name, strlen(name)) != 0)
      return kit_wrong("no answer about", name);
  }
  return true;
}

/* The program with its reasons parses back to the program without. */
static inline bool kit_explained(subject *s, ir_func *h, host_pipeline pipeline) {
  explain_subject about = {.h = h, .env = &s->env, .scratch = &s->memory};
  strbuf plain, text, out;
  subject again;
  bool good = true;
  strbuf_init(&plain, &s->memory);
  strbuf_init(&text, &s->memory);
  strbuf_init(&out, &s->memory);
  text_print_func(h->host->fusion, &text);
  strbuf_putc(&text, '\n');
  explain_host(&about, pipeline, &text);
  text_print_host(h, &plain);
  bool parsed = subject_parse(&again, text.data);
  if (parsed) {
    strbuf_init(&out, &s->memory);
    text_print_host(again.func, &out);
    good = strcmp(out.data, plain.data) == 0 || kit_wrong("with reasons it is another", text.data);
  }
  subject_close(&again);
  ir_host_walk(h, kit_ask_comm, &good);
  strbuf_init(&out, &s->memory);
  return parsed && good && kit_ask_tensors(&about, h->host->fusion, &out) &&
         kit_ask_tensors(&about, h, &out);
}

#endif
