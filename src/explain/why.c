/* Answers about one name. */
#include <string.h>

#include "base/suggest.h"
#include "explain/internal.h"
#include "text/text.h"

explaining *explain_begin(const explain_subject *s, strbuf *out) {
  explaining *e = ARENA_NEW(s->scratch, explaining);
  *e = (explaining){.s = s, .h = s->h, .f = s->h->host->lowered, .out = out};
  check(e->f);
  if (shard_is_distributed(e->f)) e->shard = shard_begin(e->f, s->scratch);
  explain_find_comms(e);
  return e;
}

/* ---- finding a name ---- */
/* A tensor of the host program, and that of the lowered copy it comes from. One may be none. */
typedef struct asked {
  ir_tensor host, lowered;
} asked;

static ir_tensor tensor_of(const ir_func *f, uint32_t name) {
  ir_name_entry found = ir_func_lookup(f, name);
  return (ir_tensor){found.kind == IR_NAME_TENSOR ? found.id : 0};
}

static ir_tensor origin_of(const explaining *e, ir_tensor t) {
  return t.id < e->h->host->origins.len ? e->h->host->origins.data[t.id].tensor : (ir_tensor){0};
}

static bool is_users(const explaining *e, uint32_t name) {
  return tensor_of(e->h->host->fusion, name).id != 0;
}

/* The tensor called `name`: that of the fusion, if both the fusion and the host program have one. */
static asked find_tensor(const explaining *e, uint32_t name) {
  asked a = {.host = tensor_of(e->h, name)};
  a.lowered = is_users(e, name) || !a.host.id ? tensor_of(e->f, name) : origin_of(e, a.host);
  if (!IR_SAME(origin_of(e, a.host), a.lowered)) a.host = (ir_tensor){0};
  return a;
}

static bool put_comms_named(explaining *e, uint32_t name) {
  bool any = false;
  for (uint32_t i = 0; i < e->comms.len; i++) {
    if (ir_instr_at(e->h, e->comms.data[i].instr)->name != name) continue;
    explain_comm_fully(e, &e->comms.data[i]);
    any = true;
  }
  return any;
}

/* ---- tensors ---- */
typedef struct maker {
  ir_tensor tensor;
  ir_instr instr;
} maker;

static void find_maker(void *context, ir_func *h, ir_instr i, uint32_t depth) {
  (void)depth;
  maker *m = context;
  const ir_instr_data *d = ir_instr_at(h, i);
  bool makes =
      d->kind == IR_ALLOCATE || d->kind == IR_SELECT || d->kind == IR_SHARD || d->kind == IR_VIEW;
  if (makes && IR_SAME(d->tensor, m->tensor)) m->instr = i;
  for (uint32_t k = 0; d->kind == IR_LAUNCH && k < d->body.len; k++) {
    if (IR_SAME(ir_instr_at(h, d->body.data[k])->tensor, m->tensor)) m->instr = i;
  }
}

/* The buffer, slice or view in the host program, or the kernel that it is a local of. */
static void put_maker(explaining *e, ir_tensor t) {
  maker m = {.tensor = t};
  ir_host_walk(e->h, find_maker, &m);
  if (!m.instr.id) return;
  strbuf_puts(e->out, "  ");
  text_print_instr(e->h, m.instr, e->out);
  strbuf_puts(e->out, "\n      ");
  explain_instr(e, m.instr, e->out);
  strbuf_putc(e->out, '\n');
}

/* Communications that make the tensor, and those that bring it to where others need it. */
static void put_comms_of(explaining *e, ir_tensor t) {
  bool any = false;
  for (uint32_t i = 0; i < e->comms.len; i++) {
    const explain_comm *c = &e->comms.data[i];
    const ir_op_data *op = ir_op_at(e->f, c->source);
    bool moves =
        op->why && (IR_SAME(op->operands[0], t) || IR_SAME(explain_moved(e, c->source), t));
    bool makes = false;
    for (uint32_t k = 0; k < ir_op_n_results(op); k++)
      makes = makes || IR_SAME(ir_op_result(op, k), t);
    /* mutant: why_forgets_moves */
    if (!makes && !moves) continue;
    if (!any) strbuf_puts(e->out, "  communications\n");
    explain_comm_briefly(e, c);
    any = true;
  }
}

static void put_definition(explaining *e, ir_tensor t) {
  const ir_tensor_data d = *ir_tensor_at(e->f, t);
  uint32_t why = d.def.id ? ir_op_at(e->f, d.def)->why : 0;
  strbuf_printf(e->out, " : %s", ir_type_text(e->f, t));
  if (d.kind == IR_TENSOR_INPUT) strbuf_puts(e->out, ", an input");
  if (is_users(e, d.name) && explain_line(e, d.at)) {
    strbuf_puts(e->out, ", defined at ");
    explain_place(e, d.at);
  }
  strbuf_putc(e->out, '\n');
  if (!why) return;
  strbuf_printf(e->out, "  a step that was inserted: from %s\n",
                explain_name(e, ir_op_at(e->f, d.def)->operands[0]));
  explain_chain(e, why, 6);
}

static void put_tensor(explaining *e, const char *name, asked a) {
  const char *other = explain_name(e, a.lowered);
  strbuf_puts(e->out, name);
  if (strcmp(name, other) != 0) strbuf_printf(e->out, ", made for %s", other);
  put_definition(e, a.lowered);
  if (a.host.id) put_maker(e, a.host);
  explain_placement(e, a.lowered);
  put_comms_of(e, a.lowered);
}

/* ---- nothing of that name ---- */
enum { MOST_NAMES = 12 };

typedef struct offers {
  suggestion near;
  strbuf list;
  uint32_t n;
} offers;

static void offer(offers *o, const char *name) {
  suggest_offer(&o->near, name);
  if (o->n++ >= MOST_NAMES) return;
  strbuf_printf(&o->list, "%s%s", o->n > 1 ? ", " : "", name);
}

static void offer_tensors(const ir_func *f, offers *o) {
  for (uint32_t i = 1; i < f->tensors.len; i++) {
    const ir_tensor_data *t = &f->tensors.data[i];
    if (t->name && t->kind != IR_TENSOR_CONST) offer(o, ir_name_text(f, t->name));
  }
}

static void end_offers(offers *o) {
  if (o->n > MOST_NAMES) strbuf_printf(&o->list, ", … (%u in all)", o->n);
  o->n = 0;
}

static void offer_comms(const explaining *e, offers *o) {
  uint32_t last = 0;
  if (e->comms.len) strbuf_puts(&o->list, ", the communications ");
  for (uint32_t i = 0; i < e->comms.len; i++) {
    uint32_t name = ir_instr_at(e->h, e->comms.data[i].instr)->name;
    if (name != last) offer(o, ir_name_text(e->h, name)); /* a ring posts twice under one name */
    last = name;
  }
  end_offers(o);
}

static void report_unknown(explaining *e, const char *name) {
  offers o = {0};
  strbuf_init(&o.list, e->s->scratch);
  suggest_init(&o.near, name, strlen(name));
  offer_tensors(e->h->host->fusion, &o);
  end_offers(&o);
  offer_comms(e, &o);
  suggest_advice advice;
  diag_error(&e->h->module->errors, (loc){0},
             "there is nothing called '%.100s'%s; ask about the tensors %s, or what else weir "
             "lower prints",
             name, suggest_text(&o.near, advice), o.list.data);
}

/* Explains a tensor of the fusion that is not computed, because a pass removed it. */
static bool put_removed(explaining *e, uint32_t name) {
  for (uint32_t i = 0; i < e->f->removed.len; i++) {
    ir_removed r = e->f->removed.data[i];
    if (r.name != name) continue;
    strbuf_printf(e->out, "%s is not computed: ", ir_name_text(e->f, name));
    explain_sentence(e, r.rule, r.instead, e->out);
    strbuf_putc(e->out, '\n');
    return true;
  }
  return false;
}

bool explain_why(const explain_subject *s, const char *name, strbuf *out) {
  explaining *e = explain_begin(s, out);
  uint32_t id = strings_find(&s->h->module->names, name, strlen(name));
  asked a = id ? find_tensor(e, id) : (asked){{0}, {0}};
  if (a.lowered.id && ir_tensor_at(e->f, a.lowered)->name) {
    put_tensor(e, name, a);
    return true;
  }
  if (id && (put_comms_named(e, id) || put_removed(e, id))) return true;
  report_unknown(e, name);
  return false;
}
