/* Copies of programs in other modules: a copy prints as the original does, lowers to the same host
 * program, and shares no memory with it. Both are tried on the fusions and host programs of all
 * golden files, on random programs, and on the host programs that these are lowered to.
 *
 *   test_copies [N]          golden files and N random programs, 300 by default
 *   test_copies FILE...      the programs of files */
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gen.h"
#include "ir/build.h"
#include "ir/verify.h"
#include "pass/pass.h"
#include "schedule/schedule.h"
#include "test.h"
#include "text/text.h"

static uint64_t n_fusions, n_hosts, n_lowered;

/* ---- memory that is spoiled when it is freed, so that what is shared is seen ---- */
static void *spoiling_alloc(void *context, size_t bytes) {
  (void)context;
  size_t *block = malloc(bytes + 16);
  if (!block) return NULL;
  *block = bytes;
  return block + 2;
}

static void spoiling_free(void *context, void *block) {
  (void)context;
  if (!block) return;
  size_t *begin = (size_t *)block - 2;
  memset(block, 0xDD, *begin);
  free(begin);
}

static const allocator spoiling = {spoiling_alloc, spoiling_free, NULL};

/* ---- programs ---- */
static bool load(ir_module *m, const char *name, const char *text) {
  if (text_parse(m, name, text, strlen(text)) != STATUS_OK) return false;
  for (uint32_t i = 0; i < m->funcs.len; i++) {
    ir_func *f = m->funcs.data[i];
    if (f->host ? !ir_host_verify(f) : !schedule_apply(f) || !ir_verify(f)) return false;
  }
  return m->errors.errors == 0;
}

/* With its fusion, if it has one. */
static const char *print(const ir_func *f, arena *memory) {
  strbuf out;
  strbuf_init(&out, memory);
  if (f->host && f->host->fusion) text_print_func(f->host->fusion, &out);
  text_print_func(f, &out);
  return out.data;
}

/* NULL: it cannot be lowered. */
static ir_func *lower(ir_func *f) {
  strbuf log;
  strbuf_init(&log, &f->module->memory);
  pass_request request = {0};
  ir_func *h = NULL;
  status st = pass_run_fusion(f, &request, &log, NULL, &h);
  f->module->errors.errors = 0;
  status_clear();
  return st == STATUS_OK ? h : NULL;
}

typedef struct pair {
  ir_module from, to;
  ir_func *f, *copy;
  arena scratch;
} pair;

static void copy(pair *p) {
  ir_module_init(&p->to, &spoiling);
  p->copy = ir_func_copy_to(p->f, &p->to, &p->scratch);
}

static void compare(const char *what, const char *where, const char *text, const char *other) {
  if (!EXPECT(strcmp(text, other) == 0))
    fprintf(stderr, "%s: %s\n%s---- instead of\n%s", where, what, other, text);
}

/* ---- one function ---- */
/* What is done to a copy, up to destroying it, does not change the original. */
static void test_original_stays(pair *p, const char *where, const char *text) {
  copy(p);
  compare("a copy is different", where, text, print(p->copy, &p->scratch));
  if (p->copy->host) {
    if (!EXPECT(ir_host_verify(p->copy)))
      fprintf(stderr, "%s: the copy does not verify\n%s", where, text);
  } else EXPECT(schedule_apply(p->copy) && ir_verify(p->copy) && lower(p->copy) != p->copy);
  EXPECT_INT(p->to.errors.errors, 0);
  ir_module_destroy(&p->to);
  compare("the original changed with its copy", where, text, print(p->f, &p->scratch));
}

/* A copy is lowered as the original is. */
static void test_lowers_same(pair *p, const char *where) {
  ir_func *h = lower(p->f);
  copy(p);
  EXPECT(schedule_apply(p->copy));
  ir_func *same = lower(p->copy);
  EXPECT_INT(h != NULL, same != NULL);
  if (h && same)
    compare("a copy is lowered differently", where, print(h, &p->scratch),
            print(same, &p->scratch));
  ir_module_destroy(&p->to);
  n_lowered += h != NULL;
}

/* The copy outlives the original, whose memory is spoiled. */
static void test_copy_outlives(pair *p, const char *where, const char *text) {
  copy(p);
  ir_module_destroy(&p->from);
  compare("the copy went with the original", where, text, print(p->copy, &p->scratch));
  if (!p->copy->host) EXPECT(schedule_apply(p->copy) && ir_verify(p->copy));
  ir_module_destroy(&p->to);
}

/* The i-th function of the text, or what it is lowered to; false: there is none. */
static bool begin(pair *p, const char *where, const char *text, uint32_t i, bool lowered) {
  arena_init(&p->scratch, &spoiling);
  ir_module_init(&p->from, &spoiling);
  if (load(&p->from, where, text) && i < p->from.funcs.len) {
    p->f = p->from.funcs.data[i];
    if (lowered) p->f = p->f->host ? NULL : lower(p->f);
    if (p->f) return true;
  }
  ir_module_destroy(&p->from);
  arena_destroy(&p->scratch);
  return false;
}

static bool test_function(const char *where, const char *text, uint32_t i, bool lowered) {
  pair p = {0};
  if (!begin(&p, where, text, i, lowered)) return false;
  const char *printed = print(p.f, &p.scratch);
  *(p.f->host ? &n_hosts : &n_fusions) += 1;
  test_original_stays(&p, where, printed);
  if (!p.f->host) test_lowers_same(&p, where);
  test_copy_outlives(&p, where, printed);
  arena_destroy(&p.scratch);
  return true;
}

static void test_program(const char *where, const char *text) {
  for (uint32_t i = 0; test_function(where, text, i, false); i++)
    (void)test_function(where, text, i, true);
}

/* ---- many programs ---- */
static void test_file(const char *path) {
  static char text[1 << 20];
  FILE *file = fopen(path, "rb");
  if (!EXPECT(file != NULL)) return;
  size_t n = fread(text, 1, sizeof text - 1, file);
  text[n] = '\0';
  (void)fclose(file);
  if (strlen(text) == n) test_program(path, text);
}

static void test_goldens(void) {
  glob_t files = {0};
  EXPECT_INT(glob("tests/golden/*.weir", 0, NULL, &files), 0);
  for (size_t i = 0; i < files.gl_pathc; i++) test_file(files.gl_pathv[i]);
  globfree(&files);
  EXPECT(n_fusions > 100 && n_hosts > 100);
}

static void test_random(uint64_t n) {
  for (uint64_t seed = 0; seed < n; seed++) {
    gen_options o = gen_options_default(seed);
    gen_program *p = seed % 3 ? gen_create(&o) : gen_create_along(seed, true);
    char where[32];
    (void)snprintf(where, sizeof where, "seed %llu", (unsigned long long)seed);
    test_program(where, p->text);
    gen_destroy(p);
  }
}

/* ---- what a copy takes along ---- */
/* Scalars that only other functions of the module use stay; symbols keep their order. */
static void test_only_own_scalars(void) {
  static const char text[] = "fusion a { x : f32[p, q]; y = x * 2; return y }\n"
                             "fusion b { x : f32[m, n]; y = reshape(x, [m * n]); return y }\n";
  pair p = {0};
  arena_init(&p.scratch, &spoiling);
  ir_module_init(&p.from, &spoiling);
  EXPECT(load(&p.from, "text", text));
  p.f = p.from.funcs.data[1];
  copy(&p);
  EXPECT_INT(p.from.scalars.symbols.len, 4);
  EXPECT_INT(p.to.scalars.symbols.len, 2);
  EXPECT_STR(strings_text(&p.to.names, p.to.scalars.symbols.data[0].name), "m");
  EXPECT_STR(strings_text(&p.to.names, p.to.scalars.symbols.data[1].name), "n");
  EXPECT(p.to.scalars.nodes.len < p.from.scalars.nodes.len);
  EXPECT_INT(p.to.funcs.len, 1);
  EXPECT_STR(p.to.src.name, "text");
  EXPECT_INT(ir_op_at(p.copy, p.copy->order.data[0])->at.offset,
             ir_op_at(p.f, p.f->order.data[0])->at.offset);
  ir_module_destroy(&p.to);
  ir_module_destroy(&p.from);
  arena_destroy(&p.scratch);
}

int main(int argc, char **argv) {
  bool files = argc > 1 && strtoul(argv[1], NULL, 10) == 0 && strcmp(argv[1], "0") != 0;
  for (int i = 1; files && i < argc; i++) test_file(argv[i]);
  if (!files) {
    test_only_own_scalars();
    test_goldens();
    test_random(argc > 1 ? strtoul(argv[1], NULL, 10) : 300);
  }
  printf("%llu fusions, %llu host programs, %llu lowered\n", (unsigned long long)n_fusions,
         (unsigned long long)n_hosts, (unsigned long long)n_lowered);
  return test_finish();
}
