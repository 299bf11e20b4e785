#include "text/extents.h"

#include <string.h>

#include "ir/host.h"

/* About as many operations as fit on a line. */
enum { LONGEST = 24 };

typedef struct naming {
  const ir_func *f;
  ir_scalar_names *names;
  map length; /* scalar -> operations in its text, names counted as one; 0: not seen yet */
  map taken;  /* strings that name something else */
  uint32_t next;
} naming;

/* ---- which names are free ---- */

static void take_names(naming *n) {
  const ir_func *f = n->f;
  const ir_scalars *s = &f->module->scalars;
  for (uint32_t i = 0; i < s->symbols.len; i++) map_put(&n->taken, s->symbols.data[i].name, 1);
  for (uint32_t i = 1; i < f->tensors.len; i++) map_put(&n->taken, f->tensors.data[i].name, 1);
  for (uint32_t i = 1; i < f->meshes.len; i++) map_put(&n->taken, f->meshes.data[i].name, 1);
  for (uint32_t i = 1; f->host && i < f->host->instrs.len; i++) {
    const ir_instr_data *d = &f->host->instrs.data[i];
    map_put(&n->taken, d->name, 1);
    map_put(&n->taken, d->stream.name, 1);
  }
}

static uint32_t free_name(naming *n) {
  ir_module *m = n->f->module;
  for (;;) {
    const char *text = arena_printf(n->names->memory, "e%u", n->next++);
    uint32_t name = strings_intern(&m->names, text, strlen(text));
    if (!map_get(&n->taken, name, 0)) return name;
  }
}

/* ---- which scalars get one ---- */

static uint32_t length_of(const naming *n, ir_scalar x) {
  if (x.id == 0) return 0;
  return map_get(&n->names->by_id, x.id, 0) ? 1 : map_get(&n->length, x.id, 0);
}

/* Visits operands first. A scalar that depends on a loop index or on the device gets no name: it has no
 * value where names are declared. */
static void visit(naming *n, ir_scalar x) {
  const ir_scalars *s = &n->f->module->scalars;
  if (x.id == 0 || map_get(&n->length, x.id, 0)) return;
  const ir_scalar_node node = *ir_scalar_node_of(s, x);
  visit(n, node.a);
  visit(n, node.b);
  uint32_t length = 1 + length_of(n, node.a) + length_of(n, node.b);
  map_put(&n->length, x.id, length);
  if (length <= LONGEST || !ir_scalar_of_extents(s, x)) return;
  map_put(&n->names->by_id, x.id, free_name(n));
  vec_push(n->names->memory, &n->names->large, x);
}

/* Replaces the scalars that were met by those that have names, in the order of their declarations. */
static void choose_names(const ir_func *f, ir_scalar_names *names) {
  naming n = {.f = f, .names = names};
  ir_scalar *met = names->large.data;
  uint32_t n_met = names->large.len;
  map_init(&names->by_id, names->memory);
  map_init(&n.length, names->memory);
  map_init(&n.taken, names->memory);
  names->large.data = NULL;
  names->large.len = names->large.cap = 0;
  take_names(&n);
  for (uint32_t i = 0; i < n_met; i++) visit(&n, met[i]);
}

/* ---- printing ---- */

void text_put_extents(const ir_func *f, strbuf *out) {
  ir_scalar_names *names = f->module->scalars.names;
  if (!names || names->collecting) return;
  for (uint32_t i = 0; i < names->large.len; i++) {
    ir_scalar x = names->large.data[i];
    names->declared = x;
    strbuf_printf(out, "  extent %s = ", ir_name_text(f, map_get(&names->by_id, x.id, 0)));
    ir_print_scalar(f, x, out);
    strbuf_putc(out, '\n');
  }
  names->declared = (ir_scalar){0};
}

ir_scalar_names *text_begin_unnamed(const ir_func *f, ir_scalar_names *none) {
  ir_scalar_names *names = f->module->scalars.names;
  *none = (ir_scalar_names){0};
  f->module->scalars.names = none;
  return names;
}

void text_end_unnamed(const ir_func *f, ir_scalar_names *names) {
  f->module->scalars.names = names;
}

/* Everything is in the memory of the module: if it runs out on the way, no pointer to other memory is left. */
static void begin_names(ir_module *m) {
  ir_scalar_names *names = &m->scalars.naming;
  *names = (ir_scalar_names){.collecting = true, .memory = &m->memory};
  m->scalars.names = names;
}

void text_print_named(const ir_func *f, text_put_program put, void *context, strbuf *out) {
  ir_scalars *s = &f->module->scalars;
  size_t begin = out->len;
  begin_names(f->module);
  put(context, out);
  s->names->collecting = false;
  if (s->names->large.len) {
    choose_names(f, s->names);
    out->len = begin;
    put(context, out);
  }
  s->names = NULL;
}
