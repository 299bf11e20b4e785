/* Copies into another module. The tables are copied as they are, with every list that their records point
 * to. Their scalars still have ids of the old module: one walk collects them, a second one replaces them. */
#include "ir/build.h"
#include "ir/host.h"
#include "ir/scalar_internal.h"

typedef struct copying {
  const ir_module *from;
  ir_module *to;
  uint32_t *ids; /* by scalar of `from`: 1 if it is used; then its id in `to` */
} copying;

/* ---- lists that records point to ---- */

#define OWN(list, n) ((list) = (list) ? arena_copy(memory, (list), (n) * sizeof *(list)) : NULL)

static bool same_axes(ir_axes a, ir_axes b) { return a.data == b.data && a.len == b.len; }

static ir_axes own_axes(arena *memory, ir_axes a) {
  OWN(a.data, a.len);
  return a;
}

/* Most domains of a tensor share one list, and do so in the copy. */
static ir_domains own_domains(arena *memory, ir_domains d) {
  ir_domains own = {.root = own_axes(memory, d.root), .dense = d.dense};
  own.logical = same_axes(d.logical, d.root) ? own.root : own_axes(memory, d.logical);
  own.allocation =
      same_axes(d.allocation, d.logical) ? own.logical : own_axes(memory, d.allocation);
  own.loop = same_axes(d.loop, d.logical) ? own.logical : own_axes(memory, d.loop);
  OWN(own.dense, d.allocation.len);
  return own;
}

static bool same_domains(const ir_domains *a, const ir_domains *b) {
  return same_axes(a->root, b->root) && same_axes(a->logical, b->logical) &&
         same_axes(a->allocation, b->allocation) && same_axes(a->loop, b->loop) &&
         a->dense == b->dense;
}

static void own_tensor(arena *memory, const ir_func *f, ir_tensor_data *t) {
  ir_axis dims[IR_MAX_RANK];
  bool plain = same_domains(&t->now, &t->defined);
  if (t->stated_extents) OWN(t->stated_extents, ir_axes_dims(f, t->defined.logical, dims));
  t->defined = own_domains(memory, t->defined);
  t->now = plain ? t->defined : own_domains(memory, t->now);
}

static uint32_t n_attrs(const ir_op_data *op) {
  return op->attrs && op->code ? ir_op_info_of(op->code)->n_attrs : 0;
}

static void own_op(arena *memory, ir_op_data *op) {
  OWN(op->operands, op->n_operands);
  OWN(op->more, op->n_more);
  ir_attr *attrs = arena_copy(memory, op->attrs, n_attrs(op) * sizeof *attrs);
  for (uint32_t i = 0; i < n_attrs(op); i++) {
    OWN(attrs[i].ints, attrs[i].len);
    OWN(attrs[i].scalars, attrs[i].len);
  }
  if (op->attrs) op->attrs = attrs;
}

static void own_stmt(arena *memory, ir_stmt *s) {
  OWN(s->targets, s->n_targets);
  OWN(s->list, s->n_list);
}

static void own_lists(arena *memory, ir_func *f) {
  for (uint32_t i = 1; i < f->transforms.len; i++)
    OWN(f->transforms.data[i].chunks, f->transforms.data[i].n_chunks);
  for (uint32_t i = 1; i < f->meshes.len; i++) {
    OWN(f->meshes.data[i].shape, f->meshes.data[i].rank);
    OWN(f->meshes.data[i].devices, (size_t)f->meshes.data[i].n_devices);
  }
  for (uint32_t i = 1; i < f->tensors.len; i++) own_tensor(memory, f, &f->tensors.data[i]);
  for (uint32_t i = 1; i < f->ops.len; i++) own_op(memory, &f->ops.data[i]);
  for (uint32_t i = 0; i < f->statements.len; i++) own_stmt(memory, &f->statements.data[i]);
  for (uint32_t i = 0; i < f->constraints.len; i++) {
    const char *what = f->constraints.data[i].what;
    f->constraints.data[i].what = what ? arena_printf(memory, "%s", what) : NULL;
  }
}

static void own_instr(arena *memory, const ir_func *h, ir_instr_data *d) {
  ir_axis dims[IR_MAX_RANK];
  const ir_op_data *op = ir_op_at(h, d->op);
  OWN(d->partition.chunks, d->partition.n_chunks);
  if (d->offsets) OWN(d->offsets, ir_tensor_dims(h, d->tensor, dims));
  OWN(d->sliced, op->n_operands);
  OWN(d->returns, ir_op_n_results(op));
  OWN(d->body.data, d->body.len);
  OWN(d->otherwise.data, d->otherwise.len);
  d->body.cap = d->body.len;
  d->otherwise.cap = d->otherwise.len;
  d->source = (ir_op){0};
  d->why = IR_RULE_NONE;
}

static void own_cut(arena *memory, ir_cut_axis *c) {
  ir_cut *cuts = arena_copy(memory, c->cuts, c->n_cuts * sizeof *cuts);
  for (uint32_t i = 0; i < c->n_cuts; i++)
    OWN(cuts[i].partition.chunks, cuts[i].partition.n_chunks);
  c->cuts = cuts;
}

static ir_host *own_host(arena *memory, const ir_func *h, ir_func *fusion) {
  const ir_host *from = h->host;
  ir_host *to = ARENA_NEW(memory, ir_host);
  *to = (ir_host){.instrs = from->instrs, .body = from->body, .streams = from->streams};
  to->cut = from->cut;
  to->coordinates = from->coordinates;
  to->cut_of = map_copy(&from->cut_of, memory);
  to->fusion = from->fusion ? fusion : NULL;
  to->named_by = from->named_by ? fusion : NULL;
  OWN(to->instrs.data, to->instrs.len);
  OWN(to->body.data, to->body.len);
  OWN(to->cut.data, to->cut.len);
  OWN(to->coordinates.data, to->coordinates.len);
  to->instrs.cap = to->instrs.len;
  to->body.cap = to->body.len;
  to->cut.cap = to->cut.len;
  to->coordinates.cap = to->coordinates.len;
  for (uint32_t i = 1; i < to->instrs.len; i++) own_instr(memory, h, &to->instrs.data[i]);
  for (uint32_t i = 0; i < to->cut.len; i++) own_cut(memory, &to->cut.data[i]);
  return to;
}

/* ---- every scalar of a function ---- */

typedef void (*scalar_visitor)(copying *c, ir_scalar *x);

static void visit_list(copying *c, const ir_scalar *list, uint32_t n, scalar_visitor visit) {
  for (uint32_t i = 0; list && i < n; i++) visit(c, (ir_scalar *)&list[i]); /* the copy's own */
}

static void visit_op(copying *c, const ir_op_data *op, scalar_visitor visit) {
  for (uint32_t i = 0; i < n_attrs(op); i++) {
    ir_attr *a = (ir_attr *)&op->attrs[i];
    visit(c, &a->scalar);
    visit_list(c, a->scalars, a->len, visit);
  }
}

static void visit_definition(copying *c, ir_func *f, scalar_visitor visit) {
  ir_axis dims[IR_MAX_RANK];
  for (uint32_t i = 1; i < f->axes.len; i++) {
    visit(c, &f->axes.data[i].extent);
    visit(c, &f->axes.data[i].expanded);
  }
  for (uint32_t i = 1; i < f->transforms.len; i++) {
    visit(c, &f->transforms.data[i].factor);
    visit(c, &f->transforms.data[i].start);
    visit(c, &f->transforms.data[i].step);
  }
  for (uint32_t i = 1; i < f->tensors.len; i++) {
    ir_tensor_data *t = &f->tensors.data[i];
    visit(c, &t->value);
    if (t->stated_extents)
      visit_list(c, t->stated_extents, ir_axes_dims(f, t->defined.logical, dims), visit);
  }
  for (uint32_t i = 1; i < f->ops.len; i++) visit_op(c, &f->ops.data[i], visit);
  for (uint32_t i = 0; i < f->constraints.len; i++) {
    visit(c, &f->constraints.data[i].a);
    visit(c, &f->constraints.data[i].b);
  }
  for (uint32_t i = 0; i < f->statements.len; i++) visit(c, &f->statements.data[i].factor);
}

static void visit_partition(copying *c, ir_partition *p, scalar_visitor visit) {
  visit(c, &p->size);
  visit(c, &p->period);
}

static void visit_instr(copying *c, const ir_func *h, ir_instr_data *d, scalar_visitor visit) {
  ir_axis dims[IR_MAX_RANK];
  ir_scalar *const all[] = {&d->index, &d->stream.index, &d->variable, &d->extent, &d->a,
                            &d->b,     &d->root,         &d->to,       &d->peer};
  for (uint32_t i = 0; i < sizeof all / sizeof *all; i++) visit(c, all[i]);
  visit_partition(c, &d->partition, visit);
  if (d->offsets) visit_list(c, d->offsets, ir_tensor_dims(h, d->tensor, dims), visit);
}

static void visit_host(copying *c, const ir_func *h, scalar_visitor visit) {
  ir_host *host = h->host;
  visit(c, &host->streams);
  for (uint32_t i = 1; i < host->instrs.len; i++) visit_instr(c, h, &host->instrs.data[i], visit);
  for (uint32_t i = 0; i < host->cut.len; i++) {
    ir_cut_axis *a = &host->cut.data[i];
    visit(c, &a->whole);
    for (uint32_t k = 0; k < a->n_cuts; k++)
      visit_partition(c, &((ir_cut *)a->cuts)[k].partition, visit);
  }
  for (uint32_t i = 0; i < host->coordinates.len; i++) visit(c, &host->coordinates.data[i].symbol);
}

static void visit_all(copying *c, ir_func *f, scalar_visitor visit) {
  visit_definition(c, f, visit);
  if (f->host) visit_host(c, f, visit);
}

/* ---- scalars of the other module ---- */

static void use(copying *c, ir_scalar *x) { c->ids[x->id] = 1; }
static void replace(copying *c, ir_scalar *x) { x->id = c->ids[x->id]; }

/* Declared extents, and what was learned of symbols, count as used. Maps keep the order of insertion. */
static void use_maps(copying *c, const ir_func *f) {
  for (uint32_t i = 1; i < f->names.len; i++) {
    ir_name_entry e = ir_func_lookup(f, (uint32_t)f->names.keys[i]);
    if (e.kind == IR_NAME_EXTENT) c->ids[e.id] = 1;
  }
  for (uint32_t i = 1; i < f->learned.len; i++) c->ids[f->learned.values[i]] = 1;
}

/* Operands have smaller ids than the scalars made of them. Symbols keep their order, so normal forms stay
 * the same. */
static void make_scalars(copying *c) {
  const ir_scalars *from = &c->from->scalars;
  ir_scalars *to = &c->to->scalars;
  for (uint32_t i = from->nodes.len; i-- > 1;) {
    const ir_scalar_node *n = &from->nodes.data[i];
    if (c->ids[i]) c->ids[n->a.id] = c->ids[n->b.id] = 1;
  }
  c->ids[0] = 0;
  for (uint32_t i = 1; i < from->nodes.len; i++) {
    const ir_scalar_node *n = &from->nodes.data[i];
    ir_scalar a = {c->ids[n->a.id]}, b = {c->ids[n->b.id]}, made;
    if (!c->ids[i]) continue;
    if (n->kind == IR_SCALAR_SYMBOL) {
      made = ir_scalar_symbol(to, from->symbols.data[n->value]);
    } else if (n->kind == IR_SCALAR_LIST) {
      const ir_chunk_list *list = &from->lists.data[n->value];
      made = ir_scalar_list(to, list->lengths, list->len);
    } else {
      made = ir_scalar_intern(to, n->kind, n->value, a, b);
    }
    c->ids[i] = made.id;
  }
}

/* By symbol of `from`; 0: it is not used. */
static uint32_t *find_symbols(const copying *c, arena *scratch) {
  const ir_scalars *from = &c->from->scalars;
  uint32_t *found = ARENA_ARRAY(scratch, from->symbols.len + (size_t)1, uint32_t);
  for (uint32_t i = 1; i < from->nodes.len; i++)
    if (from->nodes.data[i].kind == IR_SCALAR_SYMBOL) found[from->nodes.data[i].value] = c->ids[i];
  return found;
}

static void copy_maps(copying *c, const ir_func *f, ir_func *copy, arena *scratch) {
  arena *memory = &c->to->memory;
  uint32_t *symbols = find_symbols(c, scratch);
  for (uint32_t i = 1; i < copy->names.len; i++) {
    uint32_t name = (uint32_t)copy->names.keys[i];
    ir_name_entry e = ir_func_lookup(copy, name);
    if (e.kind != IR_NAME_EXTENT) continue;
    e.id = c->ids[e.id];
    ir_func_declare(copy, name, e);
  }
  map_init(&copy->learned, memory);
  for (uint32_t i = 1; i < f->learned.len; i++) {
    ir_scalar symbol = {symbols[f->learned.keys[i]]};
    if (!symbol.id) continue;
    int64_t number = ir_scalar_node_of(&c->to->scalars, symbol)->value;
    map_put(&copy->learned, (uint64_t)number, c->ids[f->learned.values[i]]);
  }
  copy->numbers = map_copy(&f->numbers, memory);
}

/* ---- functions and modules ---- */

/* Reasons refer to tables that are not copied. */
static void forget_reasons(ir_func *f) {
  f->spread = NULL;
  f->n_spread = 0;
  f->whys.data = NULL;
  f->whys.len = f->whys.cap = 0;
  f->removed.data = NULL;
  f->removed.len = f->removed.cap = 0;
  for (uint32_t i = 1; i < f->axes.len; i++) f->axes.data[i].why = 0;
  for (uint32_t i = 1; i < f->tensors.len; i++) f->tensors.data[i].mesh_why = 0;
  for (uint32_t i = 1; i < f->ops.len; i++) f->ops.data[i].why = 0;
  for (uint32_t i = 0; i < f->statements.len; i++) f->statements.data[i].why = 0;
}

/* The scalars still have the ids of the old module. */
static ir_func *copy_tables(copying *c, const ir_func *f, ir_func *fusion) {
  arena *memory = &c->to->memory;
  ir_func *copy = ARENA_NEW(memory, ir_func);
  *copy = *f;
  copy->module = c->to;
  ir_func_own_tables(copy, memory);
  ir_func_unschedule(copy);
  own_lists(memory, copy);
  forget_reasons(copy);
  if (f->host) copy->host = own_host(memory, copy, fusion);
  return copy;
}

static void list_func(ir_module *m, ir_func *f) {
  vec_push(&m->memory, &m->funcs, f);
  strings_attach(&m->names, f->name, (uint32_t)f->kind, m->funcs.len);
}

static void copy_source(const ir_module *from, ir_module *to) {
  arena *memory = &to->memory;
  to->src.name = arena_printf(memory, "%s", from->src.name);
  to->src.length = from->src.length;
  if (from->src.text) to->src.text = arena_string(memory, from->src.text, from->src.length);
  for (uint32_t i = 1; i < from->names.len; i++)
    check(strings_intern(&to->names, from->names.text[i], from->names.length[i]) == i);
}

ir_func *ir_func_copy_to(const ir_func *f, ir_module *to, arena *scratch) {
  copying c = {f->module, to, NULL};
  const ir_func *fusion = f->host ? f->host->fusion : NULL;
  c.ids = ARENA_ARRAY(scratch, c.from->scalars.nodes.len, uint32_t);
  copy_source(c.from, to);
  ir_func *first = fusion ? copy_tables(&c, fusion, NULL) : NULL;
  ir_func *copy = copy_tables(&c, f, first);
  const ir_func *from[] = {fusion, f};
  ir_func *made[] = {first, copy};
  for (uint32_t i = fusion ? 0 : 1; i < 2; i++) {
    visit_all(&c, made[i], use);
    use_maps(&c, made[i]);
  }
  make_scalars(&c);
  for (uint32_t i = fusion ? 0 : 1; i < 2; i++) {
    visit_all(&c, made[i], replace);
    copy_maps(&c, from[i], made[i], scratch);
    list_func(to, made[i]);
  }
  return copy;
}
