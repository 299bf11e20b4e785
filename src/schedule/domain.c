#include <inttypes.h>
#include <string.h>

#include "schedule/internal.h"

uint32_t schedule_find(ir_axes axes, ir_axis a) {
  uint32_t i = 0;
  while (i < axes.len && !IR_SAME(axes.data[i], a)) i++;
  return i;
}

const char *schedule_axes_text(ir_func *f, ir_axes axes) {
  strbuf text;
  strbuf_init(&text, &f->module->memory);
  strbuf_putc(&text, '[');
  for (uint32_t i = 0; i < axes.len; i++) {
    const ir_axis_data *a = ir_axis_at(f, axes.data[i]);
    if (i) strbuf_puts(&text, ", ");
    if (a->kind == IR_AXIS_REDUCTION) strbuf_puts(&text, "r ");
    ir_print_scalar(f, ir_axis_size(f, axes.data[i]), &text);
    if (a->mark.kind != IR_MARK_NONE) strbuf_printf(&text, " %s", ir_mark_text(a->mark));
  }
  strbuf_putc(&text, ']');
  return text.data;
}

static bool out_of_range(schedule_step *s, int64_t written) {
  ir_axes loop = ir_tensor_at(s->f, s->t)->now.loop;
  const char *name = schedule_target_name(s);
  if (loop.len == 0) {
    return SCHEDULE_REFUSE(s, "axis %" PRId64 " is out of range: %s has no loop axes", written,
                           name);
  }
  return SCHEDULE_REFUSE(s, "axis %" PRId64 " is out of range: %s has %u loop %s %s", written, name,
                         loop.len, loop.len == 1 ? "axis" : "axes", schedule_axes_text(s->f, loop));
}

bool schedule_axis(schedule_step *s, int64_t written, uint32_t *position) {
  int64_t n = ir_tensor_at(s->f, s->t)->now.loop.len;
  if (written < -n || written >= n) return out_of_range(s, written);
  *position = (uint32_t)(written < 0 ? written + n : written);
  return true;
}

ir_axis schedule_loop_at(const schedule_step *s, uint32_t position) {
  return ir_tensor_at(s->f, s->t)->now.loop.data[position];
}

void schedule_loop_splice(ir_func *f, ir_tensor t, uint32_t position, uint32_t n_old,
                          const ir_axis *axes, uint32_t n_new) {
  ir_axes loop = ir_tensor_at(f, t)->now.loop;
  ir_axis list[IR_MAX_RANK + 1];
  uint32_t rest = loop.len - position - n_old;
  check(position + n_new + rest <= IR_MAX_RANK);
  if (position) memcpy(list, loop.data, position * sizeof *list);
  memcpy(list + position, axes, n_new * sizeof *list);
  if (rest) memcpy(list + position + n_new, loop.data + position + n_old, rest * sizeof *list);
  ir_tensor_at(f, t)->now.loop = ir_axes_new(f, list, position + n_new + rest);
}
