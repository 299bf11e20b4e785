/* What there is: the lines of `weir list`. */
#include <string.h>

#include "api/api.h"
#include "base/options.h"
#include "pass/pass.h"
#include "runtime/comm.h"
#include "runtime/device.h"
#include "runtime/machine.h"
#include "text/text.h"

enum { MOST_COLUMNS = 4, MOST_PADDING = 48 };

/* Lines that are written with their columns lined up. */
typedef struct row {
  const char *cells[MOST_COLUMNS]; /* the last ones may be NULL */
} row;

typedef struct lines {
  arena *memory;
  strbuf *out;
  VEC(row) rows;
} lines;

static void add(lines *t, const char *a, const char *b, const char *c, const char *d) {
  vec_push(t->memory, &t->rows, ((row){{a, b, c, d}}));
}

/* The width of the widest cell; very long cells do not count. */
static size_t width_of(const lines *t, int k) {
  size_t width = 0;
  for (uint32_t i = 0; i < t->rows.len; i++) {
    const char *cell = t->rows.data[i].cells[k];
    size_t n = cell ? strlen(cell) : 0;
    if (n > width && n <= MOST_PADDING) width = n;
  }
  return width;
}

static void put_row(strbuf *out, const row *r, const size_t *widths) {
  for (int k = 0; k < MOST_COLUMNS && r->cells[k]; k++) {
    bool last = k + 1 == MOST_COLUMNS || !r->cells[k + 1];
    strbuf_puts(out, r->cells[k]);
    for (size_t n = strlen(r->cells[k]); !last && n < widths[k]; n++) strbuf_putc(out, ' ');
    strbuf_puts(out, last ? "\n" : "  ");
  }
}

static void put_lines(lines *t) {
  size_t widths[MOST_COLUMNS];
  for (int k = 0; k < MOST_COLUMNS; k++) widths[k] = width_of(t, k);
  for (uint32_t i = 0; i < t->rows.len; i++) put_row(t->out, &t->rows.data[i], widths);
  t->rows.len = 0;
}

static void list_ops(lines *t) {
  for (int code = IR_OP_NONE + 1; code < IR_OP_COUNT; code++) {
    const ir_op_info *info = ir_op_info_of((ir_opcode)code);
    strbuf signature;
    strbuf_init(&signature, t->memory);
    text_print_signature(info, &signature);
    for (uint32_t k = 0; info->results && k < info->n_results; k++)
      strbuf_printf(&signature, k ? ", %s" : " -> %s", info->results[k]);
    add(t, info->name, ir_family_info_of((ir_opcode)code)->group, signature.data, NULL);
  }
}

static void list_passes(lines *t) {
  for (uint32_t i = 0; i < pass_count(); i++) {
    const pass_info *p = pass_at(i);
    const char *optional = p->use == PASS_OPTIONAL ? " (optional)" : "";
    add(t, p->name, pass_level_text(p->level),
        arena_printf(t->memory, "%s%s", p->summary, optional), NULL);
  }
}

static void list_devices(lines *t) {
  for (uint32_t i = 0; i < rt_device_count(); i++)
    add(t, rt_device_at(i)->name, rt_device_at(i)->summary, NULL, NULL);
  add(t, "ref", "the reference evaluator: one thread, the definition without its schedule", NULL,
      NULL);
}

static void list_comms(lines *t) {
  for (uint32_t i = 0; i < rt_comm_count(); i++)
    add(t, rt_comm_at(i)->name, rt_comm_at(i)->summary, NULL, NULL);
  for (uint32_t i = RT_CARRIER_NONE + 1; i < RT_CARRIER_COUNT; i++)
    add(t, rt_carrier_name((rt_carrier)i), rt_carrier_summary((rt_carrier)i), NULL, NULL);
}

static void list_machines(lines *t) {
  for (uint32_t i = 0; i < rt_machine_count(); i++)
    add(t, rt_machine_name(i), rt_machine_summary(i), NULL, NULL);
  put_lines(t);
  strbuf_puts(t->out, "\nA file of lines `key = number` is a machine, too:\n");
#define FIELD(key, member, scale, lowest, highest, need, sentence)                                 \
  add(t, "  " key, #need[0] == 'N' ? sentence " (needed)" : sentence, NULL, NULL);
#include "runtime/machine.def"
#undef FIELD
}

static void list_options(lines *t) {
  for (int i = 0; i < OPTION_ID_COUNT; i++) {
    const option_row *o = option_at((option_id)i);
    const char *flag =
        arena_printf(t->memory, "--%s%s%s", o->name, o->placeholder[0] ? "=" : "", o->placeholder);
    bool shown = o->initial[0] && o->kind != OPTION_FLAG;
    const char *help =
        !shown ? o->help : arena_printf(t->memory, "%s (default: %s)", o->help, o->initial);
    add(t, flag, o->environment, o->commands, help);
  }
}

static const struct listing {
  const char *kind;
  void (*fill)(lines *t);
} listings[] = {
    {"ops", list_ops},     {"passes", list_passes},   {"devices", list_devices},
    {"comms", list_comms}, {"options", list_options}, {"machines", list_machines},
};

typedef struct list_call {
  const struct listing *listing;
  char **text;
} list_call;

static status list_body(arena *scratch, void *context) {
  list_call *c = context;
  strbuf out;
  strbuf_init(&out, scratch);
  lines t = {.memory = scratch, .out = &out};
  c->listing->fill(&t);
  put_lines(&t);
  return api_string(&out, c->text);
}

weir_status weir_list(const char *kind, char **text) {
  if (!kind || !text) return api_refuse("weir_list: an argument is NULL");
  for (size_t i = 0; i < sizeof listings / sizeof *listings; i++) {
    if (strcmp(listings[i].kind, kind) != 0) continue;
    list_call c = {&listings[i], text};
    return api_call(&memory_default, list_body, &c);
  }
  return api_refuse(
      "there is no list of '%s'; there are ops, passes, devices, comms, machines and options",
      kind);
}
