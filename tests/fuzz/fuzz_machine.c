/* Any text is a machine or is refused with its name and a line, and what a machine prints parses
 * back to the same figures. */
#include "runtime/machine.h"
#include "target.h"

typedef struct trial {
  char *text;
  rt_speed machine, again;
} trial;

static status print_back(void *context) {
  trial *t = context;
  arena memory;
  strbuf once, twice;
  arena_init(&memory, &memory_default);
  strbuf_init(&once, &memory);
  strbuf_init(&twice, &memory);
  rt_machine_print(&t->machine, &once);
  require(rt_machine_parse("printed", once.data, &t->again) == STATUS_OK,
          "what was printed does not parse", once.data);
  rt_machine_print(&t->again, &twice);
  require(strcmp(once.data, twice.data) == 0, "printing again differs", twice.data);
  arena_destroy(&memory);
  return STATUS_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  trial t = {.text = text_of(data, size)};
  status_clear();
  status st = rt_machine_parse("box", t.text, &t.machine);
  require(st == STATUS_OK || st == STATUS_BAD_INPUT, "neither read nor refused", status_message());
  if (st == STATUS_OK) require(memory_guard(print_back, &t) == STATUS_OK, "out of memory", "");
  else require(strncmp(status_message(), "box:", 4) == 0, "refused without a place", t.text);
  free(t.text);
  return 0;
}
