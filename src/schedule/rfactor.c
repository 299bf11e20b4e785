/* U = T.rfactor([axes]): a reduction in two steps.
 *
 *   T[m, n, r k]            = matmul(a, b)          loop [m, n, r 4, r k/4]
 *     =>  U = T.rfactor([3])
 *   U[m, n, 4, r k/4]       = matmul(a, b)          root [m, n, r k]
 *   T[m, n, r 4]            = sum(U, dims=[2])      root = logical
 *
 * Old axes of T have an image in U, and those that survive have one in T. An old reduction axis is
 * *cut* if something in `axes` comes of it: then its transforms move from T's loop domain into U's
 * root-to-logical history, since its parts are now dimensions of their own. All other transforms are
 * replayed below the logical domain of both tensors. */
#include <string.h>

#include "ir/fold.h"
#include "schedule/internal.h"

typedef struct layout {
  ir_axis axes[IR_MAX_RANK];
  uint8_t dense[IR_MAX_RANK];
  uint32_t len;
} layout;

typedef struct rfactoring {
  schedule_step *s;
  ir_func *f;
  ir_domains old;              /* of T */
  schedule_history history;    /* of T, from root to loop */
  map cut;                     /* old axes of which something in `axes` comes */
  ir_axis pieces[IR_MAX_RANK]; /* U's logical axes, as old axes */
  uint32_t n_pieces;
  layout layout;  /* of T, as old axes */
  map in_u, in_t; /* images of old axes */
} rfactoring;

static bool is_reduction(const ir_func *f, ir_axis a) {
  return ir_axis_at(f, a)->kind == IR_AXIS_REDUCTION;
}
static bool is_cut(const rfactoring *r, ir_axis a) { return map_get(&r->cut, a.id, 0) != 0; }

/* ---- may it be done? ---- */
/* The operation that adds up partial results; none when there is no such thing. */
static ir_opcode combiner(const ir_func *f, ir_tensor t) {
  ir_op def = ir_tensor_at(f, t)->scheduled_def;
  if (!def.id) return IR_OP_NONE;
  ir_fold fold = ir_op_fold(ir_op_at(f, def)->code);
  return fold == IR_FOLD_NONE ? IR_OP_NONE : ir_fold_info_of(fold)->reduction;
}

/* "sum, prod, amax, amin, matmul and linear" */
static const char *folding_operations(ir_func *f) {
  strbuf out;
  const char *before = NULL;
  strbuf_init(&out, &f->module->memory);
  for (uint32_t i = IR_OP_NONE + 1; i < IR_OP_COUNT; i++) {
    if (ir_op_fold((ir_opcode)i) == IR_FOLD_NONE) continue;
    if (before) strbuf_printf(&out, "%s%s", out.len ? ", " : "", before);
    before = ir_op_info_of((ir_opcode)i)->name;
  }
  strbuf_printf(&out, " and %s", before);
  return out.data;
}

static bool check_op(schedule_step *s) {
  const char *name = schedule_target_name(s);
  if (combiner(s->f, s->t) == IR_OP_NONE) {
    return SCHEDULE_REFUSE(s, "%s cannot be rfactored: only results of %s can be", name,
                           folding_operations(s->f));
  }
  const ir_op_data *op = ir_op_at(s->f, ir_tensor_at(s->f, s->t)->scheduled_def);
  if (op->code != IR_OP_LINEAR || !ir_op_operand(op, "bias").id) return true;
  return SCHEDULE_REFUSE(s,
                         "%s cannot be rfactored: its linear has a bias, which every part would "
                         "add; add it afterwards",
                         name);
}

static bool check_result_name(schedule_step *s) {
  const ir_target *result = &s->stmt->result;
  ir_name_kind kind = ir_func_lookup(s->f, result->name).kind;
  if (kind == IR_NAME_NONE) return true;
  return SCHEDULE_REFUSE_AT(s, result->at.known ? result->at : s->stmt->at,
                            "'%s' is already the name of %s", ir_name_text(s->f, result->name),
                            schedule_kind_name(kind));
}

/* Reads the list of axes into chosen[position]. */
static bool read_axes(schedule_step *s, bool chosen[IR_MAX_RANK]) {
  if (s->stmt->n_list == 0) return SCHEDULE_REFUSE(s, "rfactor needs at least one axis");
  for (uint32_t i = 0; i < s->stmt->n_list; i++) {
    uint32_t position;
    if (!schedule_axis(s, s->stmt->list[i], &position)) return false;
    if (!is_reduction(s->f, schedule_loop_at(s, position))) {
      return SCHEDULE_REFUSE(s,
                             "axis %u of %s is not a reduction: rfactor takes reduction axes only",
                             position, schedule_target_name(s));
    }
    if (chosen[position]) {
      return SCHEDULE_REFUSE(s, "axis %u of %s is given twice", position, schedule_target_name(s));
    }
    chosen[position] = true;
  }
  return true;
}

static bool check_rest(schedule_step *s, const bool chosen[IR_MAX_RANK]) {
  ir_axes loop = ir_tensor_at(s->f, s->t)->now.loop;
  for (uint32_t i = 0; i < loop.len; i++) {
    if (!chosen[i] && is_reduction(s->f, loop.data[i])) return true;
  }
  return SCHEDULE_REFUSE(
      s, "rfactor must leave a reduction axis to %s: split one first, or name fewer axes",
      schedule_target_name(s));
}

/* ---- which axes are cut, and into what ---- */
static void find_cut(rfactoring *r, const bool chosen[IR_MAX_RANK]) {
  map_init(&r->cut, &r->f->module->memory);
  for (uint32_t i = 0; i < r->old.loop.len; i++) {
    if (chosen[i]) map_put(&r->cut, r->old.loop.data[i].id, 1);
  }
  for (uint32_t i = r->history.len; i-- > 0;) {
    const ir_transform_data *t = ir_transform_at(r->f, r->history.data[i]);
    bool any = false;
    for (uint32_t j = 0; j < schedule_n_out(t); j++) any |= is_cut(r, t->out[j]);
    for (uint32_t j = 0; any && j < schedule_n_in(t); j++) map_put(&r->cut, t->in[j].id, 1);
  }
}

/* Has room beyond IR_MAX_RANK, which is checked afterwards: each transform adds at most one axis. */
typedef struct axis_list {
  ir_axis *data;
  uint32_t len;
} axis_list;

static uint32_t index_in(const axis_list *list, ir_axis a) {
  return schedule_find((ir_axes){list->data, list->len}, a);
}

static void insert(axis_list *list, uint32_t at, ir_axis a) {
  for (uint32_t i = list->len++; i > at; i--) list->data[i] = list->data[i - 1];
  list->data[at] = a;
}

static void erase(axis_list *list, uint32_t at) {
  list->len--;
  for (uint32_t i = at; i < list->len; i++) list->data[i] = list->data[i + 1];
}

/*   [… in …] => [… out0, out1 …];  [… in0 … in1 …] => [… out … …] */
static void replace_cut(rfactoring *r, axis_list *list, const ir_transform_data *t) {
  uint32_t at = index_in(list, t->in[0]);
  if (at == list->len || !is_cut(r, t->in[0])) return;
  list->data[at] = t->out[0];
  if (schedule_n_in(t) == 2) erase(list, index_in(list, t->in[1]));
  if (schedule_n_out(t) == 2) insert(list, at + 1, t->out[1]);
}

/* U's logical domain: that of T, with every cut axis replaced by its parts. */
static bool find_pieces(rfactoring *r) {
  uint32_t room = r->old.logical.len + r->history.len;
  axis_list list = {ARENA_ARRAY(&r->f->module->memory, room, ir_axis), 0};
  for (uint32_t i = 0; i < r->old.logical.len; i++) insert(&list, i, r->old.logical.data[i]);
  for (uint32_t i = 0; i < r->history.len; i++) {
    replace_cut(r, &list, ir_transform_at(r->f, r->history.data[i]));
  }
  if (list.len > IR_MAX_RANK) {
    return SCHEDULE_REFUSE(r->s, "%s would have %u axes: %d are allowed",
                           ir_name_text(r->f, r->s->stmt->result.name), list.len, IR_MAX_RANK);
  }
  memcpy(r->pieces, list.data, list.len * sizeof *list.data);
  r->n_pieces = list.len;
  return true;
}

/* Adds an axis once; false when there is no room. */
static bool place(layout *l, ir_axis a, uint8_t dense) {
  if (schedule_find((ir_axes){l->axes, l->len}, a) < l->len) return true;
  if (l->len == IR_MAX_RANK) return false;
  l->axes[l->len] = a;
  l->dense[l->len++] = dense;
  return true;
}

/* Places the pieces of a cut axis that stay reductions of T, which have no memory. */
static bool place_parts(rfactoring *r, ir_axis a) {
  for (uint32_t i = 0; i < r->n_pieces; i++) {
    ir_axis piece = r->pieces[i];
    if (is_cut(r, piece) || !schedule_descends(r->f, r->old.logical, piece, a)) continue;
    if (!place(&r->layout, piece, IR_DENSE_NONE)) return false;
  }
  return true;
}

/* T is allocated as it was: what has memory keeps its order and density. */
static bool find_layout(rfactoring *r) {
  ir_axes old = r->old.allocation;
  bool room = true;
  for (uint32_t i = 0; i < old.len && room; i++) {
    ir_axis a = old.data[i];
    room = is_cut(r, a) ? place_parts(r, a) : place(&r->layout, a, r->old.dense[i]);
  }
  if (room) return true;
  return SCHEDULE_REFUSE(r->s, "%s would be allocated with more than %d axes",
                         schedule_target_name(r->s), IR_MAX_RANK);
}

/* ---- images ---- */
typedef ir_axis (*copier)(rfactoring *r, ir_axis a);

/* In U a reduction stays one only if it is cut down to something in `axes`. */
static ir_axis copy_to_u(rfactoring *r, ir_axis a) {
  ir_axis copy = ir_axis_copy(r->f, a);
  bool reduction = is_reduction(r->f, a);
  ir_axis_data *data = ir_axis_at(r->f, copy);
  if (reduction && !is_cut(r, a)) data->kind = IR_AXIS_ITERATION;
  data->rfactor = reduction;
  schedule_set_image(&r->in_u, a, copy);
  return copy;
}

static ir_axis copy_to_t(rfactoring *r, ir_axis a) {
  ir_axis copy = ir_axis_copy(r->f, a);
  schedule_set_image(&r->in_t, a, copy);
  return copy;
}

/* Replays the transforms whose inputs have images, and makes images of their outputs. */
static void replay(rfactoring *r, const map *images, copier copy) {
  for (uint32_t i = 0; i < r->history.len; i++) {
    ir_transform_data t = *ir_transform_at(r->f, r->history.data[i]);
    ir_axis in[2] = {schedule_image(images, t.in[0]), schedule_image(images, t.in[1])};
    if (!in[0].id) continue;
    check(schedule_n_in(&t) == 1 || in[1].id);
    ir_axis out[2] = {copy(r, t.out[0]), {0}};
    if (schedule_n_out(&t) == 2) out[1] = copy(r, t.out[1]);
    schedule_transform_like(r->f, t, in, out);
  }
}

/* The images of a list; axes without one are left out. */
static ir_axes images_of(rfactoring *r, const map *images, const ir_axis *axes, uint32_t n) {
  ir_axis list[IR_MAX_RANK];
  uint32_t len = 0;
  for (uint32_t i = 0; i < n; i++) {
    ir_axis image = schedule_image(images, axes[i]);
    if (image.id) list[len++] = image;
  }
  return ir_axes_new(r->f, list, len);
}

static void copy_marks(rfactoring *r, const map *images) {
  for (uint32_t i = 0; i < r->old.loop.len; i++) {
    ir_axis image = schedule_image(images, r->old.loop.data[i]);
    if (!image.id) continue;
    ir_axis_at(r->f, image)->mark = ir_axis_at(r->f, r->old.loop.data[i])->mark;
    ir_axis_at(r->f, image)->why = ir_axis_at(r->f, r->old.loop.data[i])->why;
  }
}

/* Does a reduction of T that becomes a dimension of U carry this mark of the mesh? */
static bool taken_by_piece(const rfactoring *r, ir_mark mark) {
  if (mark.kind != IR_MARK_MESH) return false;
  for (uint32_t i = 0; i < r->old.loop.len; i++) {
    ir_axis a = r->old.loop.data[i];
    if (!is_reduction(r->f, a) || is_cut(r, a)) continue;
    if (ir_mark_same(ir_axis_at(r->f, a)->mark, mark)) return true;
  }
  return false;
}

/* U holds one partial result per device along the mesh axis, so the result is not sharded along it
 * there: of [m mesh.x, r 2 mesh.x, r k] only the second keeps its mark. */
static void drop_conflicting_marks(rfactoring *r) {
  for (uint32_t i = 0; i < r->old.loop.len; i++) {
    ir_axis a = r->old.loop.data[i];
    if (is_reduction(r->f, a) || !taken_by_piece(r, ir_axis_at(r->f, a)->mark)) continue;
    ir_axis_at(r->f, schedule_image(&r->in_u, a))->mark = (ir_mark){0};
  }
}

/* ---- the two tensors ---- */
static ir_op new_op(ir_func *f, const ir_op_data *op) {
  ir_op id = {f->ops.len};
  vec_push(&f->module->memory, &f->ops, *op);
  return id;
}

static ir_domains domains_of_u(rfactoring *r) {
  map_init(&r->in_u, &r->f->module->memory);
  for (uint32_t i = 0; i < r->old.root.len; i++) (void)copy_to_u(r, r->old.root.data[i]);
  replay(r, &r->in_u, copy_to_u);
  ir_domains d;
  d.root = images_of(r, &r->in_u, r->old.root.data, r->old.root.len);
  d.logical = images_of(r, &r->in_u, r->pieces, r->n_pieces);
  d.loop = images_of(r, &r->in_u, r->old.loop.data, r->old.loop.len);
  d.allocation = d.logical;
  d.dense = ir_dense_default(r->f, d.allocation);
  copy_marks(r, &r->in_u);
  drop_conflicting_marks(r);
  return d;
}

static ir_tensor make_u(rfactoring *r) {
  ir_func *f = r->f;
  const ir_stmt *stmt = r->s->stmt;
  ir_domains domains = domains_of_u(r);
  ir_tensor_data t = *ir_tensor_at(f, r->s->t);
  ir_tensor u = {f->tensors.len};
  ir_op_data op = *ir_op_at(f, t.scheduled_def);
  op.result = u;
  ir_op def = new_op(f, &op);
  ir_tensor_data data = {.kind = IR_TENSOR_RESULT,
                         .name = stmt->result.name,
                         .at = stmt->result.at.known ? stmt->result.at : stmt->at,
                         .dtype = t.dtype,
                         .def = def,
                         .defined = domains,
                         .scheduled_def = def,
                         .now = domains,
                         .mesh = t.mesh,
                         .placed = t.placed,
                         .mesh_why = t.mesh_why};
  vec_push(&f->module->memory, &f->tensors, data);
  ir_func_declare(f, stmt->result.name, (ir_name_entry){IR_NAME_TENSOR, u.id});
  return u;
}

/* The dimensions of U that T reduces. */
static ir_attr dims_of_t(rfactoring *r) {
  int64_t *dims = ARENA_ARRAY(&r->f->module->memory, r->n_pieces, int64_t);
  uint32_t n = 0, dim = 0;
  for (uint32_t i = 0; i < r->n_pieces; i++) {
    if (is_cut(r, r->pieces[i])) continue;
    if (is_reduction(r->f, r->pieces[i])) dims[n++] = dim;
    dim++;
  }
  return (ir_attr){.given = true, .len = n, .ints = dims};
}

static ir_op make_combining_op(rfactoring *r, ir_tensor u) {
  arena *memory = &r->f->module->memory;
  ir_opcode code = combiner(r->f, r->s->t);
  const ir_op_data *of = ir_op_at(r->f, ir_tensor_at(r->f, r->s->t)->def);
  check(ir_op_info_of(code)->n_attrs == 3); /* dims, keepdim, empty */
  ir_attr *attrs = ARENA_ARRAY(memory, 3, ir_attr);
  attrs[0] = dims_of_t(r);
  if (ir_op_info_of(of->code)->family == IR_FAMILY_REDUCE) attrs[2] = *ir_op_attr(of, "empty");
  ir_op_data op = {.code = code,
                   .at = r->s->stmt->at,
                   .operands = arena_copy(memory, &u, sizeof u),
                   .n_operands = 1,
                   .attrs = attrs,
                   .result = r->s->t};
  return new_op(r->f, &op);
}

static void allocate_t(rfactoring *r, ir_domains *d) {
  const layout *l = &r->layout;
  d->allocation = images_of(r, &r->in_t, l->axes, l->len);
  d->dense = arena_copy(&r->f->module->memory, l->dense, l->len);
}

static ir_domains domains_of_t(rfactoring *r) {
  map_init(&r->in_t, &r->f->module->memory);
  for (uint32_t i = 0; i < r->n_pieces; i++) {
    if (!is_cut(r, r->pieces[i])) (void)copy_to_t(r, r->pieces[i]);
  }
  replay(r, &r->in_t, copy_to_t);
  ir_domains d;
  d.root = d.logical = images_of(r, &r->in_t, r->pieces, r->n_pieces);
  d.loop = images_of(r, &r->in_t, r->old.loop.data, r->old.loop.len);
  allocate_t(r, &d);
  copy_marks(r, &r->in_t);
  return d;
}

bool schedule_rfactor(schedule_step *s) {
  bool chosen[IR_MAX_RANK] = {false};
  if (!check_op(s) || !check_result_name(s) || !read_axes(s, chosen) || !check_rest(s, chosen)) {
    return false;
  }
  rfactoring r = {.s = s, .f = s->f, .old = ir_tensor_at(s->f, s->t)->now};
  r.history = schedule_history_of(s->f, r.old.root, r.old.loop);
  find_cut(&r, chosen);
  if (!find_pieces(&r) || !find_layout(&r)) return false;
  ir_tensor u = make_u(&r);
  ir_domains now = domains_of_t(&r);
  ir_op def = make_combining_op(&r, u);
  ir_tensor_at(s->f, s->t)->now = now;
  ir_tensor_at(s->f, s->t)->scheduled_def = def;
  return true;
}
