/* Applying schedules.
 *
 * The statements of a fusion are recorded IR items (ir_stmt). schedule_apply() throws the scheduled
 * view away and derives it again from the definition and the statements; schedule_add() records one
 * more statement and applies it on top, which is how passes transform tensors. So at all times
 *
 *     scheduled view == apply(definition, statements)
 *
 * and printing the statements prints the whole state.
 *
 * What each statement may do, and the message when it may not, is in docs/schedule.md. All errors
 * are diagnostics at the statement's place. */
#ifndef WEIR_SCHEDULE_SCHEDULE_H
#define WEIR_SCHEDULE_SCHEDULE_H

#include "ir/ir.h"
#include "ir/map.h"

/* Derives the scheduled view. False if any statement was refused; the others are applied. */
bool schedule_apply(ir_func *f);

/* Records `stmt` and applies it. On refusal it is not recorded. What it points to (targets, lists) must be in
 * the module's arena. */
bool schedule_add(ir_func *f, const ir_stmt *stmt);

/* As schedule_add(), but a refusal is not reported. Not for rfactor. */
bool schedule_add_quiet(ir_func *f, const ir_stmt *stmt);

/* Writes the statements of `f` anew, so that they lead to the scheduled view as it is: for passes that
 * change the view, or the definition together with it. What the tables hold then counts as defined, so that
 * dropping the view and applying the statements gives it again. No operation may be rfactored. */
void schedule_restate(ir_func *f);

/* Which marks to repeat. */
typedef struct schedule_marks {
  bool streams;
  uint32_t mesh_axes; /* bit k: mesh.k */
} schedule_marks;
bool schedule_has_mark(schedule_marks which, ir_mark mark);

/* Repeats on `to` what the schedule did to `from`: of its loop axes that have one of these marks, the marks and
 * the transforms that lead to them, in order. `pairs` map axes of `from` (producer side) to axes of `to`
 * (consumer side); only EXACT pairs are used. An axis of `to` that is already transformed or marked is left
 * alone. A mark that would be refused is left out with its transforms: replay reports no errors. `why`: the
 * reason of the new marks, each pointing to the reason of the mark it repeats; NULL: they keep that reason.
 * Returns the number of statements added. */
uint32_t schedule_replay_marked(ir_func *f, ir_tensor from, ir_tensor to, const ir_pair *pairs,
                                uint32_t n_pairs, schedule_marks which, const ir_why *why);

/* An axis `from` of one tensor that is a part of a loop axis `to` of another: `size` steps of `step` positions
 * each, repeated if the axis is longer. step * size divides the axis. */
typedef struct schedule_part {
  ir_axis from, to;
  ir_scalar step, size;
} schedule_part;

/* As schedule_replay_marked(), across a reshape: splits the loop axis of `to` so that the part becomes an axis,
 * and repeats on that what was done to `part->from`. */
uint32_t schedule_replay_part(ir_func *f, ir_tensor from, ir_tensor to, const schedule_part *part,
                              schedule_marks which, const ir_why *why);

#endif
