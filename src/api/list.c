/* What there is: the lines of `weir list`. */
#include <string.h>

#include "api/api.h"
#include "base/options.h"
#include "pass/pass.h"
#include "runtime/comm.h"
#include "runtime/device.h"
#include "runtime/machine.h"
#include "text/text.h"

enum { MOST_PADDING = 48 };

/* `text`, padded to `width`, and two spaces. */
static void column(strbuf *out, const char *text, size_t width) {
  size_t n = strlen(text);
  strbuf_puts(out, text);
  for (; n < width; n++) strbuf_putc(out, ' ');
  strbuf_puts(out, "  ");
}

static void list_ops(strbuf *out, arena *scratch) {
  for (int code = IR_OP_NONE + 1; code < IR_OP_COUNT; code++) {
    const ir_op_info *info = ir_op_info_of((ir_opcode)code);
    strbuf signature;
    strbuf_init(&signature, scratch);
    text_print_signature(info, &signature);
    column(out, info->name, 13);
    column(out, ir_family_info_of((ir_opcode)code)->group, 14);
    strbuf_puts(out, signature.data);
    for (uint32_t k = 0; info->results && k < info->n_results; k++)
      strbuf_printf(out, k ? ", %s" : " -> %s", info->results[k]);
    strbuf_putc(out, '\n');
  }
}

static void list_passes(strbuf *out, arena *scratch) {
  (void)scratch;
  for (uint32_t i = 0; i < pass_count(); i++) {
    column(out, pass_at(i)->name, 16);
    column(out, pass_level_text(pass_at(i)->level), 10);
    strbuf_puts(out, pass_at(i)->summary);
    strbuf_puts(out, pass_at(i)->use == PASS_OPTIONAL ? " (optional)\n" : "\n");
  }
}

static void list_devices(strbuf *out, arena *scratch) {
  (void)scratch;
  for (uint32_t i = 0; i < rt_device_count(); i++) {
    column(out, rt_device_at(i)->name, 5);
    strbuf_printf(out, "%s\n", rt_device_at(i)->summary);
  }
  column(out, "ref", 5);
  strbuf_puts(out, "the reference evaluator: one thread, the definition without its schedule\n");
}

static void list_comms(strbuf *out, arena *scratch) {
  (void)scratch;
  for (uint32_t i = 0; i < rt_comm_count(); i++) {
    column(out, rt_comm_at(i)->name, 8);
    strbuf_printf(out, "%s\n", rt_comm_at(i)->summary);
  }
  for (uint32_t i = RT_CARRIER_NONE + 1; i < RT_CARRIER_COUNT; i++) {
    column(out, rt_carrier_name((rt_carrier)i), 8);
    strbuf_printf(out, "%s\n", rt_carrier_summary((rt_carrier)i));
  }
}

static void list_machines(strbuf *out, arena *scratch) {
  (void)scratch;
  for (uint32_t i = 0; i < rt_machine_count(); i++) {
    column(out, rt_machine_name(i), 11);
    strbuf_printf(out, "%s\n", rt_machine_summary(i));
  }
  strbuf_puts(out, "\nA file of lines `key = number` is a machine, too:\n");
#define FIELD(key, member, scale, lowest, highest, need, sentence)                                 \
  strbuf_printf(out, "  %-13s%s%s\n", key, sentence, #need[0] == 'N' ? " (needed)" : "");
#include "runtime/machine.def"
#undef FIELD
}

static size_t flag_width(const option_row *row) {
  return strlen(row->name) + strlen(row->placeholder) + 3;
}

static void list_options(strbuf *out, arena *scratch) {
  size_t width = 0;
  for (int i = 0; i < OPTION_ID_COUNT; i++) {
    size_t n = flag_width(option_at((option_id)i));
    if (n > width && n <= MOST_PADDING) width = n;
  }
  for (int i = 0; i < OPTION_ID_COUNT; i++) {
    const option_row *row = option_at((option_id)i);
    const char *separator = row->placeholder[0] ? "=" : "";
    column(out, arena_printf(scratch, "--%s%s%s", row->name, separator, row->placeholder), width);
    column(out, row->environment, 16);
    column(out, row->commands, 10);
    strbuf_puts(out, row->help);
    bool shown = row->initial[0] && row->kind != OPTION_FLAG;
    if (shown) strbuf_printf(out, " (default: %s)", row->initial);
    strbuf_putc(out, '\n');
  }
}

static const struct listing {
  const char *kind;
  void (*print)(strbuf *out, arena *scratch);
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
  c->listing->print(&out, scratch);
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
