/* Numbers as text: exact round trips, and no decimal comma even where the program has one. */
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <weir/weir.h>

#include "base/memory.h"
#include "base/number.h"
#include "base/random.h"
#include "base/strbuf.h"
#include "test.h"

/* ---- a locale with decimal commas ----
 * Few machines have one installed, so the test writes one, in the format glibc reads. */
enum { NUMERIC_MAGIC = 0x20031114, N_FIELDS = 6 };

static const struct {
  uint32_t magic, n, offset[N_FIELDS];
  char point[4], separator[4], grouping[4];
  uint32_t wide_point, wide_separator;
  char codeset[8];
} comma_file = {NUMERIC_MAGIC, N_FIELDS, {32, 36, 40, 44, 48, 52}, ",", ".", "\3", ',',
                '.',           "UTF-8"};

static bool write_locale(const char *folder) {
  char path[128];
  (void)snprintf(path, sizeof path, "%s/comma", folder);
  if (mkdir(path, 0700) != 0) return false;
  (void)snprintf(path, sizeof path, "%s/comma/LC_NUMERIC", folder);
  FILE *f = fopen(path, "wb");
  bool ok = f && fwrite(&comma_file, sizeof comma_file, 1, f) == 1;
  return f && fclose(f) == 0 && ok;
}

static void remove_locale(const char *folder) {
  char path[128];
  (void)snprintf(path, sizeof path, "%s/comma/LC_NUMERIC", folder);
  (void)unlink(path);
  (void)snprintf(path, sizeof path, "%s/comma", folder);
  (void)rmdir(path);
  (void)rmdir(folder);
}

static bool has_comma(void) {
  char text[16];
  (void)snprintf(text, sizeof text, "%.1f", 1.5);
  return strcmp(text, "1,5") == 0;
}

/* As a program would that embeds the library; false: this machine has no such locale. */
static bool choose_comma(void) {
  static const char *const installed[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "de_DE", "fr_FR"};
  char folder[] = "/tmp/weir-locale-XXXXXX";
  for (size_t i = 0; i < sizeof installed / sizeof *installed; i++)
    if (setlocale(LC_NUMERIC, installed[i]) && has_comma()) return true;
  if (!mkdtemp(folder)) return false;
  bool ok = write_locale(folder) && setenv("LOCPATH", folder, 1) == 0 &&
            setlocale(LC_NUMERIC, "comma") && has_comma();
  remove_locale(folder);
  return ok;
}

/* ---- what must hold in every locale ---- */
static void round_trip(double value) {
  char text[NUMBER_TEXT_MAX];
  number_print(value, text);
  EXPECT(strchr(text, ',') == NULL);
  EXPECT(strpbrk(text, ".e") != NULL);
  double again = number_parse(text);
  if (!EXPECT(memcmp(&again, &value, sizeof value) == 0)) fprintf(stderr, "  %s\n", text);
}

static void test_round_trips(void) {
  static const double some[] = {0, -0.0, 1, -1, 0.1, 1.5, 1e300, 5e-324, 1.7976931348623157e308};
  for (size_t i = 0; i < sizeof some / sizeof *some; i++) round_trip(some[i]);
  for (uint64_t i = 0; i < 20000; i++) {
    uint64_t bits = random_bits(1, i);
    double value;
    memcpy(&value, &bits, sizeof value);
    if (isfinite(value)) round_trip(value);
  }
}

static status test_strbuf(void *context) {
  strbuf out;
  strbuf_init(&out, context);
  strbuf_double(&out, 0.25);
  strbuf_printf(&out, " %.3f %g", 1234.5, 1e-7);
  EXPECT_STR(out.data, "0.25 1234.500 1e-07");
  return STATUS_OK;
}

static const char program[] = "fusion f {\n"
                              "  x : f32[2]\n"
                              "  y = x * 1.5\n"
                              "  z = y + 2.5e-05\n"
                              "  return z\n"
                              "}\n";

static void test_program(void) {
  weir_module *m = NULL;
  char *text = NULL;
  if (!EXPECT(weir_module_parse("f.weir", program, sizeof program - 1, NULL, &m) == WEIR_OK)) {
    fprintf(stderr, "%s\n", weir_error());
    return;
  }
  EXPECT(weir_module_print(m, &text) == WEIR_OK);
  EXPECT_STR(text, program);
  weir_string_free(text);
  weir_module_destroy(m);
}

static void test_all(void) {
  arena a;
  arena_init(&a, &memory_default);
  test_round_trips();
  EXPECT(memory_guard(test_strbuf, &a) == STATUS_OK);
  test_program();
  arena_destroy(&a);
}

int main(void) {
  test_all();
  if (choose_comma()) {
    test_all();
    EXPECT(has_comma()); /* and the program's own locale is as it was */
  } else {
    printf("skipped: no locale with a decimal comma can be made on this machine\n");
  }
  return test_finish();
}
