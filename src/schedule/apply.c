/* The driver: derives the scheduled view, resolves names, hands statements to their functions. */
#include <string.h>

#include "base/suggest.h"
#include "schedule/internal.h"

const char *schedule_target_name(const schedule_step *s) { return ir_tensor_name(s->f, s->t); }

const char *schedule_kind_name(ir_name_kind kind) {
  switch (kind) {
  case IR_NAME_NONE: return "nothing";
  case IR_NAME_TENSOR: return "a tensor";
  case IR_NAME_EXTENT: return "an extent";
  case IR_NAME_MESH: return "a mesh";
  }
  impossible("a name of no kind");
}

/* ---- names ---- */
typedef enum made_by { MADE_NOWHERE, MADE_BEFORE, MADE_LATER } made_by;

/* Is the name that of an rfactor's result, and does that statement come before this one? */
static made_by find_maker(const schedule_step *s, uint32_t name) {
  made_by when = MADE_BEFORE;
  for (uint32_t i = 0; i < s->f->statements.len; i++) {
    const ir_stmt *other = &s->f->statements.data[i];
    if (other == s->stmt) when = MADE_LATER;
    if (other->kind == IR_STMT_RFACTOR && other->result.name == name) return when;
  }
  return MADE_NOWHERE;
}

static bool refuse_unknown(schedule_step *s, const ir_target *target) {
  const char *name = ir_name_text(s->f, target->name);
  switch (find_maker(s, target->name)) {
  case MADE_BEFORE: return false; /* the rfactor was refused, which was reported */
  case MADE_LATER:
    return SCHEDULE_REFUSE_AT(s, target->at, "'%s' does not exist yet: its rfactor comes later",
                              name);
  case MADE_NOWHERE: break;
  }
  suggestion near;
  suggest_advice advice;
  suggest_init(&near, name, strlen(name));
  for (uint32_t i = 0; i < s->f->order.len; i++)
    suggest_offer(&near, ir_tensor_name(s->f, ir_op_at(s->f, s->f->order.data[i])->result));
  for (uint32_t i = 0; i < s->f->inputs.len; i++)
    suggest_offer(&near, ir_tensor_name(s->f, s->f->inputs.data[i]));
  return SCHEDULE_REFUSE_AT(s, target->at, "there is no tensor called '%s'%s", name,
                            suggest_text(&near, advice));
}

static bool resolve(schedule_step *s, const ir_target *target) {
  ir_name_entry entry = ir_func_lookup(s->f, target->name);
  if (entry.kind == IR_NAME_TENSOR) {
    s->t = (ir_tensor){entry.id};
    return true;
  }
  if (entry.kind == IR_NAME_NONE) return refuse_unknown(s, target);
  return SCHEDULE_REFUSE_AT(s, target->at, "'%s' is %s: only tensors can be scheduled",
                            ir_name_text(s->f, target->name), schedule_kind_name(entry.kind));
}

/* ---- one statement ---- */
/* All targets or none: a statement is never half applied. */
static bool apply_on(schedule_step *s) {
  bool good = true;
  for (uint32_t i = 0; i < s->stmt->n_targets; i++) {
    good &= resolve(s, &s->stmt->targets[i]) && schedule_may_place(s);
  }
  if (!good) return false;
  for (uint32_t i = 0; i < s->stmt->n_targets; i++) {
    if (resolve(s, &s->stmt->targets[i])) schedule_place(s);
  }
  return true;
}

static bool apply_to_tensor(schedule_step *s) {
  switch (s->stmt->kind) {
  case IR_STMT_ON: return apply_on(s);
  case IR_STMT_SPLIT:
  case IR_STMT_OUTER_SPLIT: return schedule_split(s);
  case IR_STMT_CHUNK_SPLIT: return schedule_chunk_split(s);
  case IR_STMT_MERGE: return schedule_merge(s);
  case IR_STMT_REORDER: return schedule_reorder(s);
  case IR_STMT_SWIZZLE: return schedule_swizzle(s);
  case IR_STMT_RFACTOR: return schedule_rfactor(s);
  case IR_STMT_MARK: return schedule_mark(s);
  case IR_STMT_MEMORY: return schedule_memory(s);
  case IR_STMT_ALLOCATE: return schedule_allocate(s);
  case IR_STMT_ALLOCATE_AS_LOOP: return schedule_allocate_as_loop(s);
  case IR_STMT_CONTIGUITY: return schedule_contiguity(s);
  case IR_STMT_SHRINK: return schedule_shrink(s);
  }
  impossible("a statement of no kind");
}

static bool apply_stmt(ir_func *f, const ir_stmt *stmt, bool quiet) {
  schedule_step s = {.f = f, .stmt = stmt, .quiet = quiet};
  check(stmt->n_targets >= 1);
  if (stmt->kind != IR_STMT_ON && !resolve(&s, &stmt->targets[0])) return false;
  return apply_to_tensor(&s);
}

/* ---- the order of operations ---- */
/* The operations that now represent `op`, which came before all rfactors of this batch: its result's
 * definition, and before it those of the tensors that the batch put in between. */
static void emit_chain(ir_func *f, ir_op op, uint32_t n_tensors) {
  arena *memory = &f->module->memory;
  uint32_t first = f->scheduled.len;
  ir_tensor t = ir_op_at(f, op)->result;
  for (;;) {
    ir_op def = ir_tensor_at(f, t)->scheduled_def;
    vec_push(memory, &f->scheduled, def);
    const ir_op_data *data = ir_op_at(f, def);
    if (IR_SAME(def, op) || data->n_operands == 0 || data->operands[0].id < n_tensors) break;
    t = data->operands[0];
  }
  for (uint32_t i = first, j = f->scheduled.len - 1; i < j; i++, j--) {
    ir_op swap = f->scheduled.data[i];
    f->scheduled.data[i] = f->scheduled.data[j];
    f->scheduled.data[j] = swap;
  }
}

/* Rebuilds the order of operations, once per batch, so that many rfactors cost one pass. */
static void rebuild_order(ir_func *f, uint32_t n_tensors) {
  if (f->tensors.len == n_tensors) return;
  ir_op *old = f->scheduled.data;
  uint32_t n = f->scheduled.len;
  f->scheduled.data = NULL;
  f->scheduled.len = f->scheduled.cap = 0;
  for (uint32_t i = 0; i < n; i++) emit_chain(f, old[i], n_tensors);
}

/* ---- batches ---- */
/* Without a scheduled view every tensor is as it was defined, so recording the lengths is enough. */
static void begin_view(ir_func *f) {
  f->n_defined = (ir_counts){.axes = f->axes.len,
                             .transforms = f->transforms.len,
                             .tensors = f->tensors.len,
                             .ops = f->ops.len,
                             .constraints = f->constraints.len};
  f->scheduled.len = 0;
  for (uint32_t i = 0; i < f->order.len; i++) {
    vec_push(&f->module->memory, &f->scheduled, f->order.data[i]);
  }
  f->applied = true;
}

bool schedule_apply(ir_func *f) {
  ir_func_unschedule(f);
  begin_view(f);
  bool good = true;
  uint32_t n_tensors = f->tensors.len;
  for (uint32_t i = 0; i < f->statements.len; i++) {
    good &= apply_stmt(f, &f->statements.data[i], false);
  }
  rebuild_order(f, n_tensors);
  return good;
}

bool schedule_add(ir_func *f, const ir_stmt *stmt) {
  if (!f->applied) (void)schedule_apply(f);
  uint32_t n_tensors = f->tensors.len;
  if (!apply_stmt(f, stmt, false)) return false;
  vec_push(&f->module->memory, &f->statements, *stmt);
  rebuild_order(f, n_tensors);
  return true;
}

bool schedule_add_quiet(ir_func *f, const ir_stmt *stmt) {
  check(f->applied && stmt->kind != IR_STMT_RFACTOR);
  if (!apply_stmt(f, stmt, true)) return false;
  vec_push(&f->module->memory, &f->statements, *stmt);
  return true;
}
