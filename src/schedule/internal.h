/* What the files of schedule/ share: the step being applied, refusals, and the history of axes.
 *
 * A statement is applied in one step. A step first looks at everything that could be wrong and only
 * then changes the function, so a refused statement leaves no trace. */
#ifndef WEIR_SCHEDULE_INTERNAL_H
#define WEIR_SCHEDULE_INTERNAL_H

#include "ir/build.h"
#include "ir/ir.h"
#include "schedule/schedule.h"

typedef struct schedule_step {
  ir_func *f;
  const ir_stmt *stmt;
  ir_tensor t; /* the target; statements with several targets set it to each in turn */
  bool quiet;  /* refuse without a diagnostic: replay tries what may not apply */
} schedule_step;

/* Reports the reason, unless quiet, and is false. */
#define SCHEDULE_REFUSE_AT(s, at, ...)                                                             \
  (((s)->quiet ? (void)0 : diag_error(&(s)->f->module->errors, (at), __VA_ARGS__)), false)
#define SCHEDULE_REFUSE(s, ...) SCHEDULE_REFUSE_AT(s, (s)->stmt->at, __VA_ARGS__)

/* ---- apply.c ---- */
/* The name of the step's target. */
const char *schedule_target_name(const schedule_step *s);
/* "a tensor", "an extent", "a mesh". */
const char *schedule_kind_name(ir_name_kind kind);

/* ---- domain.c: positions in the loop domain ---- */
/* The position a statement means by `written`, which may be negative. Refuses one that is out of range. */
bool schedule_axis(schedule_step *s, int64_t written, uint32_t *position);
/* The loop axis at a position. */
ir_axis schedule_loop_at(const schedule_step *s, uint32_t position);
/* Replaces `n_old` axes of the loop domain at `position` by `n_new` others. */
void schedule_loop_splice(ir_func *f, ir_tensor t, uint32_t position, uint32_t n_old,
                          const ir_axis *axes, uint32_t n_new);
/* "[3 stream, ceildiv(t, 3), r 8]": sizes, r before reductions, marks after them. For messages. */
const char *schedule_axes_text(ir_func *f, ir_axes axes);
/* The position of `a` in the list; its length when it is not there. */
uint32_t schedule_find(ir_axes axes, ir_axis a);

/* ---- history.c ---- */
/* The transforms that lead from the axes in `from` to those in `to`, in order of application. Walks
 * up from `to` and stops at `from` and at axes without a history. */
typedef struct schedule_history {
  const ir_transform *data;
  uint32_t len;
} schedule_history;
schedule_history schedule_history_of(const ir_func *f, ir_axes from, ir_axes to);
/* Is `ancestor` among the axes that `a` was made of, from those in `from` on? An axis descends from
 * itself. */
bool schedule_descends(const ir_func *f, ir_axes from, ir_axis a, ir_axis ancestor);
/* How many axes a transform takes and makes. */
uint32_t schedule_n_in(const ir_transform_data *t);
uint32_t schedule_n_out(const ir_transform_data *t);
/* Makes a transform like `t` on other axes, and enters it as the definition of what it makes. */
void schedule_transform_like(ir_func *f, ir_transform_data t, const ir_axis *in,
                             const ir_axis *out);
/* The statement that makes a transform of the loop axis at `position`. False: it takes two axes, or belongs
 * to the definition. (replay.c) */
bool schedule_statement_of(const ir_transform_data *t, uint32_t position, ir_stmt *stmt);
/* The axis that `a` was copied to; none: it was not copied. Sets it. */
ir_axis schedule_image(const map *images, ir_axis a);
void schedule_set_image(map *images, ir_axis a, ir_axis image);

/* ---- one function per statement; each checks, then changes ---- */
bool schedule_split(schedule_step *s); /* split, outer_split */
bool schedule_chunk_split(schedule_step *s);
bool schedule_merge(schedule_step *s);
bool schedule_reorder(schedule_step *s);
bool schedule_swizzle(schedule_step *s);
bool schedule_rfactor(schedule_step *s);
bool schedule_mark(schedule_step *s);
/* `on` is checked for all targets (schedule_may_place()) before it is done for any. */
bool schedule_may_place(schedule_step *s);
void schedule_place(schedule_step *s);
bool schedule_memory(schedule_step *s);
bool schedule_allocate(schedule_step *s);
bool schedule_allocate_as_loop(schedule_step *s);
bool schedule_contiguity(schedule_step *s);
bool schedule_shrink(schedule_step *s);

/* ---- placement.c: axes and meshes ---- */
/* Does `mesh` have the mark axis `k`? If not, the statement is refused. */
bool schedule_has_axis(schedule_step *s, ir_mesh mesh, uint32_t k);

#endif
