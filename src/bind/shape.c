/* Do the extents of a launch fit together? What types could not show is checked here, with numbers,
 * so that no kernel ever reads or writes outside its views. */
#include <string.h>

#include "bind/fits.h"

/* The result's window lies inside its whole along dimension i; an empty one may begin at its end. */
static bool inside(const shapes *s, uint32_t i) {
  int64_t begin = s->offset[i], n = s->r->extents[i];
  if (n == 0) return begin >= 0;
  return begin >= 0 && begin <= s->whole[i] && n <= s->whole[i] - begin;
}

/* Does every offset lie inside the whole, or where an operand is cut? One that only says what was cut
 * becomes 0 for the kernel, so that the slices of a loop are alike. */
static bool windows_inside(shapes *s) {
  for (uint32_t i = 0; i < s->r->rank; i++) {
    bool known = s->known >> i & 1, cut = s->cut >> i & 1;
    if (known ? !inside(s, i) : !cut && s->offset[i] != 0)
      return fit_mismatch(s, "the destination is not a part of the result");
    if (!known && !(s->kept >> i & 1)) s->offset[i] = 0;
  }
  return true;
}

/* Only some operations know how to compute a part of their result. */
static bool takes_window(ir_opcode code) {
  ir_window window = ir_family_info_of(code)->window;
  if (window == IR_WINDOW_COUNTED) return code == IR_OP_IOTA || code == IR_OP_UNIFORM;
  return window != IR_WINDOW_NONE;
}

/* Entries per dimension that attributes must have, as far as these operations read them. */
static bool entries_fit(const shapes *s) {
  uint32_t rank = s->r->rank;
  switch ((int)s->task->code) {
  case IR_OP_RESHAPE:
  case IR_OP_UNIFORM: return fit_attr(s, "shape")->len == rank;
  case IR_OP_IOTA: return rank == 1;
  case IR_OP_SLICE: return fit_attr(s, "starts")->len == rank && fit_attr(s, "stops")->len == rank;
  case IR_OP_PAD: return fit_attr(s, "widths")->len == 2 * rank;
  default: return true;
  }
}

static bool tensors_only(const shapes *s) {
  for (uint32_t k = 0; k < s->task->n_operands; k++) {
    if (s->task->operands[k].kind == RT_OPERAND_NUMBER) return false;
  }
  return true;
}

static bool has_dim(ir_opcode code) {
  const ir_param *p = ir_op_info_of(code)->params;
  while (p->kind != IR_PARAM_END && strcmp(p->name, "dim") != 0) p++;
  return p->kind != IR_PARAM_END;
}

static bool dim_fits(const shapes *s) {
  int64_t rank = s->task->n_operands ? fit_operand(s, 0)->rank : 0, dim;
  if (!has_dim(s->task->code)) return true;
  dim = fit_attr(s, "dim")->i;
  return dim >= -rank && dim < rank;
}

/* ---- dtypes of destinations, by the names of families.def ---- */
typedef bool writes_fn(const shapes *s);

static bool writes_any(const shapes *s) {
  (void)s;
  return true;
}

/* Elements are written as they are, without being converted. */
static bool writes_same(const shapes *s) { return s->r->dtype == fit_operand(s, 0)->dtype; }

static bool writes_numbers(const shapes *s) { return s->r->dtype == IR_I64; }

static bool writes_topk(const shapes *s) {
  return s->task->code == IR_OP_TOPK ? writes_same(s) : writes_numbers(s);
}

static writes_fn *const writes[] = {
#define RUNTIME(fits, writes) writes_##writes
#define FAMILY(id, group, ir, shard, host, join, ref, runtime, ...) [IR_FAMILY_##id] = runtime,
#include "ir/families.def"
};

static fits_fn *const families[] = {
#define RUNTIME(fits, writes) fits_##fits
#define FAMILY(id, group, ir, shard, host, join, ref, runtime, ...) [IR_FAMILY_##id] = runtime,
#include "ir/families.def"
};

static ir_family family_of(const shapes *s) { return ir_op_info_of(s->task->code)->family; }

/* The result of a window is not inferred, so what inference would refuse is refused here. */
static bool window_fits(shapes *s) {
  if (!takes_window(s->task->code))
    return fit_refuse(s, "cannot compute a part of its result ('at')");
  if (!tensors_only(s)) return fit_refuse(s, "needs a tensor, not a number");
  if (!dim_fits(s)) return fit_refuse(s, "dim is out of range");
  if (!writes[family_of(s)](s))
    return fit_refuse(s, "the destination has another dtype than the result");
  if (!entries_fit(s)) return fit_refuse(s, "the destination has another rank than the result");
  for (uint32_t i = 0; i < s->r->rank; i++) {
    int64_t at = s->offset[i];
    if (at < 0 || at > INT64_MAX / 4) return fit_refuse(s, "an offset is out of range");
  }
  return true;
}

static bool begin_window(shapes *s) {
  const ir_instr_data *d = s->d;
  s->windowed = d->offsets != NULL;
  for (uint32_t i = 0; i < s->r->rank; i++) {
    s->whole[i] = s->r->extents[i];
    /* mutant: plan_offset_ignored */
    if (d->offsets && !bind_eval(s->b, d, d->offsets[i], &s->offset[i])) return false;
  }
  return true;
}

/* ---- further results ---- */
static bool refuse_more(shapes *s, uint32_t k) {
  const ir_op_info *info = ir_op_info_of(s->task->code);
  strbuf out;
  strbuf_init(&out, &s->b->scratch);
  strbuf_printf(&out, "%s: the destination of the %s, ", info->name, info->results[k]);
  fit_put_extents(&out, ir_tensor_name(s->b->h, ir_op_result(ir_op_at(s->b->h, s->d->op), k)),
                  bind_view_at(s->b, rt_task_result(s->task, k)));
  strbuf_puts(&out, ", while that ");
  fit_put_extents(&out, "of the first result", s->r);
  return bind_error(s->b, s->d, "%s", out.data);
}

/* Gradients are like their operands; other results have the extents of the first, or of its window, and
 * the lse has one axis less. */
static bool more_fits(shapes *s, uint32_t k) {
  const rt_view *v = bind_view_at(s->b, rt_task_result(s->task, k)), *like = s->r;
  bool gradient = s->task->code == IR_OP_SDPA_BACKWARD, lse = s->task->code == IR_OP_SDPA;
  ir_dtype dtype = s->r->dtype;
  if (gradient) like = fit_operand(s, k);
  if (gradient) dtype = like->dtype;
  if (lse) dtype = ir_dtype_accumulator(dtype);
  if (s->task->code == IR_OP_TOPK) dtype = IR_I64;
  bool fits =
      v->dtype == dtype && v->rank + lse == like->rank && fit_same_extents(v, like, v->rank);
  return fits || refuse_more(s, k);
}

bool bind_shapes_fit(binder *b, const ir_instr_data *d, rt_task *task) {
  shapes s = {.b = b, .d = d, .task = task, .r = bind_view_at(b, task->result)};
  if (!begin_window(&s) || (s.windowed && !window_fits(&s)) || !families[family_of(&s)](&s))
    return false;
  for (uint32_t k = 1; k < rt_task_n_results(task); k++) {
    if (!more_fits(&s, k)) return false;
  }
  if (!s.windowed) return true;
  if (!windows_inside(&s)) return false;
  task->offset = bind_list(b, s.offset, s.r->rank, NULL);
  task->whole = bind_list(b, s.whole, s.r->rank, NULL);
  return true;
}
