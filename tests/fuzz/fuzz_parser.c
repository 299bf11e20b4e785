/* Any bytes end in a module or in diagnostics, and what a module prints parses back to a module
 * that prints the same. */
#include "target.h"
#include "weir/weir.h"

static void check_fixpoint(weir_module *m) {
  weir_module *again = NULL;
  char *once = NULL, *twice = NULL;
  require(weir_module_verify(m) == WEIR_OK, "what was parsed does not verify", weir_error());
  require(weir_module_print(m, &once) == WEIR_OK, "cannot be printed", weir_error());
  require(weir_module_parse("printed", once, strlen(once), NULL, &again) == WEIR_OK,
          "what was printed does not parse", once);
  require(weir_module_print(again, &twice) == WEIR_OK, "cannot be printed again", once);
  require(strcmp(once, twice) == 0, "printing again differs", twice);
  weir_string_free(once);
  weir_string_free(twice);
  weir_module_destroy(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  weir_module *m = NULL;
  weir_status s = weir_module_parse("fuzz", (const char *)data, size, NULL, &m);
  require(s == WEIR_OK || s == WEIR_BAD_PROGRAM, "neither parsed nor refused", weir_error());
  if (s == WEIR_OK) check_fixpoint(m);
  else require(weir_error()[0] != '\0', "refused without a message", "");
  weir_module_destroy(m);
  return 0;
}
