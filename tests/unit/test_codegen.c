/* The text of generated kernels: three of them word by word (tests/unit/kernels/NAME.cu, without what
 * all begin with), and what holds of all.
 *
 *   test_codegen [--update] */
#include "codegen/codegen.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conform/kernel_samples.h"
#include "test.h"

enum { ROWS = 16384, COLUMNS = 8192, MOST = 1 << 16 };

static arena memory;
static bool update;

/* ---- texts ---- */
/* From the arguments on. */
static const char *own_part(const cg_launch *l) {
  const char *at = strstr(l->source, "typedef struct { char *at[");
  check(at != NULL);
  return at;
}

static char *text_of(const cg_kernel *k) {
  char *text = arena_alloc(&memory, MOST);
  size_t len = 0;
  for (uint32_t i = 0; i < k->n_launches; i++) {
    const cg_launch *l = &k->launches[i];
    len += (size_t)snprintf(text + len, MOST - len, "// grid %u x %u, block %u\n%s", l->grid[0],
                            l->grid[1], l->block, own_part(l));
    check(len < MOST);
  }
  return text;
}

static void expect_file(const char *name, const char *text) {
  char path[256], *want = arena_alloc(&memory, MOST);
  (void)snprintf(path, sizeof path, "tests/unit/kernels/%s.cu", name);
  FILE *f = fopen(path, update ? "w" : "r");
  if (!EXPECT(f != NULL)) return;
  if (update) (void)EXPECT(fputs(text, f) >= 0);
  else {
    want[fread(want, 1, MOST - 1, f)] = '\0';
    (void)EXPECT_STR(text, want);
  }
  (void)EXPECT(fclose(f) == 0);
}

static status golden_texts(void *context) {
  static const char *const names[] = {"bias_gelu", "softmax", "column_sum"};
  (void)context;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    cg_kernel k;
    cg_kernel_init(&k, &memory, CG_H100);
    sample_write(&k, names[i], ROWS, COLUMNS);
    expect_file(names[i], text_of(&k));
  }
  return STATUS_OK;
}

/* ---- what holds of all ---- */
static const cg_launch *written(const char *name, int64_t rows, int64_t columns, uint32_t *n) {
  cg_kernel *k = ARENA_NEW(&memory, cg_kernel);
  cg_kernel_init(k, &memory, CG_H100);
  sample_write(k, name, rows, columns);
  *n = k->n_launches;
  return k->launches;
}

/* Shapes that need no other code have the same text, and other numbers. */
static status shapes_share_text(void *context) {
  uint32_t n_a, n_b;
  (void)context;
  for (int s = 0; s < N_SAMPLES; s++) {
    const cg_launch *a = written(samples[s].name, 16384, 8192, &n_a);
    const cg_launch *b = written(samples[s].name, 12288, 8192, &n_b);
    (void)EXPECT_INT(n_a, n_b);
    (void)EXPECT_STR(a->source, b->source);
    (void)EXPECT_STR(a->entry, b->entry);
    (void)EXPECT_INT(a->n_numbers, b->n_numbers);
    (void)EXPECT(memcmp(a->numbers, b->numbers, a->n_numbers * sizeof *a->numbers) != 0 ||
                 a->grid[0] != b->grid[0]);
    (void)EXPECT(strstr(a->source, a->entry) != NULL);
    (void)EXPECT(strstr(a->source, "#include") == NULL);
    (void)EXPECT_INT(a->source_bytes, strlen(a->source));
  }
  return STATUS_OK;
}

/* A view that begins elsewhere, or is not dense, must not be read in vectors. */
static status widths_follow_memory(void *context) {
  cg_map m = {.name = "copy", .rank = 2, .extents = {64, 64}, .n_sources = 1};
  cg_kernel k;
  struct {
    int64_t row, offset_bytes;
    uint32_t align;
    const char *word;
  } cases[] = {
      {64, 0, 16, "uint4 w[1]; unsigned short e[8]"},
      {72, 0, 16, "uint4 w[1]; unsigned short e[8]"},
      {68, 0, 16, "uint2 w[1]; unsigned short e[4]"},
      {66, 0, 16, "unsigned w[1]; unsigned short e[2]"},
      {65, 0, 16, "unsigned short w[1]; unsigned short e[1]"},
      {64, 8, 16, "uint2 w[1]; unsigned short e[4]"},
      {64, 0, 4, "unsigned w[1]; unsigned short e[2]"},
      {64, 2, 16, "unsigned short w[1]; unsigned short e[1]"},
  };
  (void)context;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    m.result = sample_view(0, 64, 1);
    m.sources[0] = (cg_source){.kind = CG_VIEW, .view = sample_view(1, cases[i].row, 1)};
    m.sources[0].view.offset_bytes = cases[i].offset_bytes;
    m.sources[0].view.align = cases[i].align;
    cg_kernel_init(&k, &memory, CG_H100);
    cg_write_map(&k, &m);
    (void)EXPECT_CONTAINS(k.launches[0].source, cases[i].word);
  }
  return STATUS_OK;
}

/* Offsets beyond 31 bits change the type of positions. */
static status far_positions_are_wide(void *context) {
  cg_map m = {.name = "copy", .rank = 1, .extents = {3}, .n_sources = 1};
  (void)context;
  for (int wide = 0; wide < 2; wide++) {
    cg_kernel k;
    m.result = sample_view(0, 1, 0);
    m.sources[0] =
        (cg_source){.kind = CG_VIEW, .view = sample_view(1, INT64_C(1) << (wide ? 30 : 20), 0)};
    cg_kernel_init(&k, &memory, CG_H100);
    cg_write_map(&k, &m);
    (void)EXPECT_CONTAINS(k.launches[0].source, wide ? "typedef long long ix;" : "typedef int ix;");
  }
  return STATUS_OK;
}

/* Numbers of elements of a view that repeats reach further than its memory, and so may those of a piece far
 * behind in it. */
static status far_numbers_are_wide(void *context) {
  cg_map m = {.name = "reshape", .rank = 1, .extents = {16}, .n_sources = 2};
  (void)context;
  for (int wide = 0; wide < 2; wide++) {
    cg_kernel k;
    int64_t repeated = INT64_C(1) << (wide ? 31 : 20);
    m.result = sample_view(0, 1, 0);
    m.sources[0] = (cg_source){.kind = CG_POSITION, .first = repeated - 16};
    m.sources[0].view = sample_view(0, 1, 0);
    m.sources[1] = (cg_source){.kind = CG_RESHAPED, .view = sample_view(1, 0, 1), .index = 0};
    m.sources[1].rank = 2;
    m.sources[1].extents[0] = repeated;
    m.sources[1].extents[1] = 3;
    cg_kernel_init(&k, &memory, CG_H100);
    cg_write_map(&k, &m);
    (void)EXPECT_CONTAINS(k.launches[0].source, wide ? "typedef long long ix;" : "typedef int ix;");
  }
  return STATUS_OK;
}

/* ---- products of groups ---- */
enum { GROUPS = 16, WIDTH = 512, OUT = 1024 };

/* x[rows, WIDTH] by weight[GROUPS, …], or of two such x the sums by groups; dense. */
static cg_matmul grouped_product(bool by_depth, ir_dtype t, ir_dtype result, bool turned,
                                 int64_t rows) {
  cg_view v = {.dtype = t, .align = CG_ALIGN};
  cg_matmul m = {.rank = by_depth ? 4 : 3, .a = v, .b = v, .c = v, .index = v, .grouped = true};
  uint32_t first = by_depth;
  m.by_depth = by_depth;
  m.n_groups = GROUPS;
  m.a.start = 1, m.b.start = 2, m.index.start = 3;
  m.index.dtype = IR_I64;
  m.c.dtype = result;
  m.extents[0] = GROUPS;
  m.extents[first] = by_depth ? WIDTH : rows;
  m.extents[first + 1] = OUT;
  m.extents[first + 2] = by_depth ? rows : WIDTH;
  m.c.strides[0] = (int64_t)WIDTH * OUT;
  m.c.strides[first] = OUT;
  m.c.strides[first + 1] = 1;
  m.a.strides[first] = by_depth ? 1 : WIDTH;
  m.a.strides[first + 2] = by_depth ? WIDTH : 1;
  m.b.strides[first + 1] = by_depth || turned ? 1 : WIDTH;
  m.b.strides[first + 2] = by_depth || turned ? OUT : 1;
  m.group_step = by_depth ? 0 : (int64_t)OUT * WIDTH;
  m.index_step = by_depth;
  m.index.strides[0] = !by_depth;
  return m;
}

/* On GPUs of compute capability 9.0 the groups are listed first; others have one launch. No name of a template is
 * left. */
static void expect_products(const cg_matmul *m) {
  for (int small = 0; small < 2; small++) {
    cg_kernel k;
    cg_kernel_init(&k, &memory, small ? CG_A10 : CG_H100);
    cg_write_matmul(&k, m);
    (void)EXPECT_INT(k.n_launches, small ? 1 : 2);
    for (uint32_t i = 0; i < k.n_launches; i++) (void)EXPECT(!strchr(k.launches[i].source, '$'));
    if (small || k.n_launches != 2) continue;
    (void)EXPECT_CONTAINS(k.launches[0].entry, "_list_");
    (void)EXPECT(strstr(k.launches[1].source, "wgmma.mma_async") != NULL);
    (void)EXPECT(k.scratch_bytes > 0);
    (void)EXPECT(k.launches[1].shared_bytes <= CG_H100->shared_bytes);
  }
}

static status products_of_groups(void *context) {
  (void)context;
  for (unsigned bits = 0; bits < 32; bits++) {
    ir_dtype t = bits & 1 ? IR_F16 : IR_BF16;
    cg_matmul m =
        grouped_product(bits & 2, t, bits & 4 ? IR_F32 : t, bits & 8, bits & 16 ? 4096 : 256);
    expect_products(&m);
  }
  return STATUS_OK;
}

/* ---- memory that runs out ---- */
static status write_all(void *context) {
  arena *a = context;
  for (int s = 0; s < N_SAMPLES; s++) {
    cg_kernel k;
    cg_kernel_init(&k, a, CG_H100);
    sample_write(&k, samples[s].name, ROWS, COLUMNS);
  }
  return STATUS_OK;
}

static void allocations_fail(void) {
  for (uint64_t n = 0;; n++) {
    memory_faults faults = {.fail_at = n};
    allocator faulty = memory_faulty(&faults);
    arena a;
    status_clear();
    arena_init(&a, &faulty);
    status st = memory_guard(write_all, &a);
    arena_destroy(&a);
    (void)EXPECT_INT(st, faults.calls > n ? STATUS_OUT_OF_MEMORY : STATUS_OK);
    (void)EXPECT_INT(faults.live, 0);
    if (faults.calls <= n) return;
  }
}

static void run(status (*fn)(void *)) {
  arena_init(&memory, &memory_default);
  (void)EXPECT(memory_guard(fn, NULL) == STATUS_OK);
  arena_destroy(&memory);
}

int main(int argc, char **argv) {
  update = argc > 1 && strcmp(argv[1], "--update") == 0;
  run(golden_texts);
  run(shapes_share_text);
  run(widths_follow_memory);
  run(far_positions_are_wide);
  run(far_numbers_are_wide);
  run(products_of_groups);
  allocations_fail();
  return test_finish();
}
