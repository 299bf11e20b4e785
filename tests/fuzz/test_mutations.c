/* Mutated programs: every file of the corpus, the golden tests and the examples, with bytes and
 * tokens changed at random, ends in a module or in diagnostics.
 *
 *   test_mutations [N] [--seed S]      N mutations in all (6000); S replays one */
#include <dirent.h>
#include <stdlib.h>
#include <time.h>

#include "command.h"
#include "gen.h"
#include "test.h"
#include "weir/weir.h"

enum { MAX_SOURCES = 512, MAX_SIZE = 1 << 14 };

typedef struct input {
  char path[512];
  char *text;
  size_t size;
} input;

static input sources[MAX_SOURCES];
static uint32_t n_sources;

/* ---- sources ---- */
static void load_file(const char *path) {
  static char text[MAX_SIZE];
  FILE *f = fopen(path, "rb");
  if (!f) return;
  size_t n = fread(text, 1, sizeof text, f);
  fclose(f);
  input *s = &sources[n_sources++];
  snprintf(s->path, sizeof s->path, "%s", path);
  s->text = malloc(n + 1);
  if (!s->text) abort();
  memcpy(s->text, text, n);
  s->size = n;
}

static int by_name(const struct dirent **a, const struct dirent **b) {
  return strcmp((*a)->d_name, (*b)->d_name);
}

static void load_folder(const char *folder) {
  struct dirent **entries;
  int n = scandir(folder, &entries, NULL, by_name);
  for (int i = 0; i < n; i++) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name);
    bool wanted = entries[i]->d_name[0] != '.' && !strstr(path, ".c") && !strstr(path, ".h");
    if (wanted && n_sources < MAX_SOURCES) load_file(path);
    free(entries[i]);
  }
  if (n >= 0) free(entries);
}

/* ---- mutations ---- */
typedef struct edit {
  gen_random random;
  char text[2 * MAX_SIZE];
  size_t size;
} edit;

static size_t place(edit *e) { return e->size ? gen_below(&e->random, (uint32_t)e->size) : 0; }

/* Replaces `gone` bytes at `at`. */
static void splice(edit *e, size_t at, size_t gone, const char *with, size_t n) {
  if (gone > e->size - at) gone = e->size - at;
  if (e->size - gone + n > sizeof e->text) return;
  memmove(e->text + at + n, e->text + at + gone, e->size - at - gone);
  memcpy(e->text + at, with, n);
  e->size = e->size - gone + n;
}

static void change_byte(edit *e) {
  char c = (char)gen_next(&e->random);
  size_t at = place(e);
  splice(e, at, 1, &c, 1);
}

static void drop_bytes(edit *e) {
  size_t at = place(e);
  splice(e, at, 1 + gen_below(&e->random, 12), "", 0);
}

static const char *const tokens[] = {"(",
                                     ")",
                                     "[",
                                     "]",
                                     "{",
                                     "}",
                                     ",",
                                     ";",
                                     ":",
                                     "=",
                                     "->",
                                     "+",
                                     "-",
                                     "*",
                                     "/",
                                     "<=",
                                     "==",
                                     "?",
                                     "$",
                                     ".",
                                     "#",
                                     "\n",
                                     "0",
                                     "1",
                                     "-1",
                                     "9223372036854775807",
                                     "99999999999999999999",
                                     "1e400",
                                     "0.5",
                                     "inf",
                                     "nan",
                                     "fusion",
                                     "schedule",
                                     "return",
                                     "mesh",
                                     "stream",
                                     "serial",
                                     "mesh.x",
                                     "mesh.z",
                                     " on ",
                                     " of ",
                                     "f32",
                                     "bool",
                                     "i8",
                                     "bf16",
                                     "sum(",
                                     "matmul(",
                                     "reshape(",
                                     "cat(",
                                     "dims=[0]",
                                     "keepdim=true",
                                     ".split(0, 2)",
                                     ".merge(0)",
                                     ".rfactor([1])",
                                     ".outer_split(0, [1, 2])",
                                     ".swizzle(0, mesh.x)",
                                     ".reorder(0 -> 1)",
                                     ".allocate([1, 0])",
                                     ".allocate_as_loop()",
                                     ".contiguity([true])",
                                     ".memory(symmetric)",
                                     "[0] = stream",
                                     "[-1] = mesh.x",
                                     "x",
                                     "y",
                                     "d",
                                     "n"};

static void insert_token(edit *e) {
  const char *token = tokens[gen_below(&e->random, sizeof tokens / sizeof tokens[0])];
  size_t at = place(e);
  splice(e, at, gen_chance(&e->random, 50) ? strlen(token) : 0, token, strlen(token));
}

static void repeat_part(edit *e) {
  char part[128];
  size_t from = place(e), n = 1 + gen_below(&e->random, sizeof part), to = place(e);
  if (n > e->size - from) n = e->size - from;
  memcpy(part, e->text + from, n);
  splice(e, to, 0, part, n);
}

static void cut_short(edit *e) { e->size = place(e); }

static void paste_from_other(edit *e) {
  const input *other = &sources[gen_below(&e->random, n_sources)];
  size_t from = other->size ? gen_below(&e->random, (uint32_t)other->size) : 0;
  size_t n = 1 + gen_below(&e->random, 64), at = place(e);
  if (n > other->size - from) n = other->size - from;
  splice(e, at, gen_chance(&e->random, 50) ? n : 0, other->text + from, n);
}

static void mutate(edit *e) {
  static void (*const ways[])(edit *) = {change_byte,  drop_bytes,  insert_token,     insert_token,
                                         insert_token, repeat_part, paste_from_other, cut_short};
  uint32_t n = 1 + gen_below(&e->random, 4);
  for (uint32_t i = 0; i < n; i++) {
    uint32_t way = gen_below(&e->random, gen_chance(&e->random, 10) ? 8 : 7);
    ways[way](e);
  }
}

/* ---- one seed ---- */
static bool try_seed(uint64_t seed, bool show) {
  static edit e;
  weir_module *m = NULL;
  e.random.state = seed * UINT64_C(0x9e3779b97f4a7c15);
  const input *s = &sources[gen_below(&e.random, n_sources)];
  memcpy(e.text, s->text, s->size);
  e.size = s->size;
  mutate(&e);
  if (show) fwrite(e.text, 1, e.size, stdout);
  weir_status st = weir_module_parse("mutated", e.text, e.size, NULL, &m);
  bool good = st == WEIR_OK || (st == WEIR_BAD_PROGRAM && weir_error()[0] != '\0');
  if (st == WEIR_OK) good = weir_module_verify(m) == WEIR_OK;
  weir_module_destroy(m);
  test_passed += good;
  test_failed += !good;
  if (!good || show)
    fprintf(stderr, "seed %llu (%s): status %d: %s\n", (unsigned long long)seed, s->path, (int)st,
            st == WEIR_OK ? "" : weir_error());
  return good;
}

int main(int argc, char **argv) {
  (void)argc;
  command asked = command_read(argv, (command){.count = 6000, .seconds = 60}, NULL);
  load_folder("tests/fuzz/corpus/parser");
  load_folder("tests/fuzz/corpus/host");
  load_folder("tests/golden");
  load_folder("examples");
  EXPECT(n_sources > 0);
  for (uint64_t i = 0; n_sources && command_more(&asked, i); i++)
    try_seed(asked.first + i, asked.one);
  for (uint32_t i = 0; i < n_sources; i++) free(sources[i].text);
  return test_finish();
}
