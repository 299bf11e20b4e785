/* Communications of every kind, with every reduction that the dtype has: apart, in place, with a root that
 * lacks a side, empty; in a team in both directions. One plan per rank, and what must come out. */
#ifndef WEIR_TESTS_CONFORM_MATRIX_H
#define WEIR_TESTS_CONFORM_MATRIX_H

#include <math.h>
#include <stdlib.h>

#include "conform/rig.h"
#include "conform/world_random.h"
#include "order_machine.h"

enum { MATRIX_COUNT = 37, MATRIX_CASES = 64 };

typedef enum matrix_form {
  MATRIX_APART,
  MATRIX_IN_PLACE,
  MATRIX_ROOT_LACKS,
  MATRIX_EMPTY,
  MATRIX_FORMS
} matrix_form;

typedef struct matrix {
  arena memory;
  uint32_t n, cases;
  ir_dtype dtype;
  uint32_t teams[2][WORLD_RANKS]; /* in both directions: they communicate side by side */
  kit kits[WORLD_RANKS];
  rt_plan *plan;
  ir_comm_kind kinds[MATRIX_CASES];
  ir_combine ops[MATRIX_CASES];
  matrix_form forms[MATRIX_CASES];
  void **inputs, **expected, **outputs;
} matrix;

static inline int64_t matrix_room(const matrix *m) { return m->n * (int64_t)MATRIX_COUNT; }

static inline bool matrix_may(const matrix *m, ir_comm_kind kind, matrix_form f) {
  switch (f) {
  case MATRIX_APART:
  case MATRIX_EMPTY: return true;
  case MATRIX_IN_PLACE: return ir_comm_info_of(kind)->in_place;
  case MATRIX_ROOT_LACKS: return ir_comm_has_root(kind) && m->n > 1;
  case MATRIX_FORMS: break;
  }
  return false;
}

/* `pieces` of a buffer, from piece `at` on. */
static inline uint32_t matrix_part(const matrix *m, kit *k, uint32_t buffer, uint32_t at,
                                   uint32_t pieces) {
  rt_view v = k->views.data[buffer];
  int64_t n = pieces * (int64_t)MATRIX_COUNT;
  v.dtype = m->dtype;
  v.extents = arena_copy(&k->memory, &n, sizeof n);
  v.offset_bytes += at * (int64_t)MATRIX_COUNT * (int64_t)ir_dtype_size_bytes(m->dtype);
  vec_push(&k->memory, &k->views, v);
  return k->views.len - 1;
}

static inline void matrix_place(const matrix *m, kit *k, uint32_t c, rt_post *p) {
  uint32_t x = 2 * c, y = 2 * c + 1; /* buffers */
  bool many_in = ir_comm_in_pieces(p->kind), many_out = ir_comm_out_pieces(p->kind);
  bool is_root = p->me == p->root, in_place = m->forms[c] == MATRIX_IN_PLACE;
  uint32_t n = m->forms[c] == MATRIX_EMPTY ? 0 : m->n, one = n > 0;
  uint32_t taken = many_in ? n : one;
  uint32_t given = many_out ? n : one;
  p->in = matrix_part(m, k, in_place ? y : x, in_place && many_out ? p->me : 0, taken);
  p->out = matrix_part(m, k, y, in_place && many_in ? p->me : 0, given);
  bool lacks = m->forms[c] == MATRIX_ROOT_LACKS && is_root;
  bool gives = ir_comm_info_of(p->kind)->root == IR_ROOT_RECEIVES;
  bool takes = ir_comm_info_of(p->kind)->root == IR_ROOT_SENDS;
  if (takes && !is_root) p->in = RT_NO_VIEW;
  if (gives && !is_root) p->out = RT_NO_VIEW;
  if (gives && lacks) p->in = RT_NO_VIEW;
  if (takes && lacks) p->out = RT_NO_VIEW;
}

static inline rt_post matrix_post(const matrix *m, uint32_t c, uint32_t r) {
  rt_post p = {.kind = m->kinds[c], .op = m->ops[c], .dtype = m->dtype, .team = m->teams[c % 2]};
  uint32_t me = 0;
  while (p.team[me] != r) me++;
  p.n_team = m->n;
  p.me = me;
  p.rank = r;
  p.root = c % m->n;
  p.count = p.count_from = m->forms[c] == MATRIX_EMPTY ? 0 : MATRIX_COUNT;
  p.to = (int32_t)((me + 1) % m->n);
  p.from = (int32_t)((me + m->n - 1) % m->n);
  return p;
}

static inline void matrix_list(matrix *m) {
  for (unsigned kind = 0; kind < IR_COMM_POSTED; kind++) {
    for (unsigned op = 0; op < IR_COMBINE_COUNT; op++) {
      if (kind == IR_COMM_SEND || kind == IR_COMM_RECV) continue; /* a permute is both */
      if (!ir_combine_allows((ir_combine)op, m->dtype)) continue;
      for (unsigned f = 0; f < MATRIX_FORMS; f++) {
        if (!matrix_may(m, (ir_comm_kind)kind, (matrix_form)f) ||
            (op > 0 && f != MATRIX_APART && f != (op + 1) % MATRIX_FORMS))
          continue;
        if (m->cases == MATRIX_CASES) abort();
        m->kinds[m->cases] = (ir_comm_kind)kind;
        m->ops[m->cases] = (ir_combine)op;
        m->forms[m->cases++] = (matrix_form)f;
      }
      if (!ir_comm_combines((ir_comm_kind)kind)) break;
    }
  }
}

/* Small numbers, of which sums and products are exact in every dtype and order; a NaN for min and max. */
static inline void matrix_fill(const matrix *m, uint32_t c, uint64_t key, void *data) {
  static const uint16_t halves[] = {0x3c00, 0x4000, 0xbc00, 0},
                        brains[] = {0x3f80, 0x4000, 0xbf80, 0};
  static const int8_t numbers[] = {1, 2, -1, 0};
  bool orders = m->ops[c] == IR_COMBINE_MIN || m->ops[c] == IR_COMBINE_MAX;
  for (int64_t i = 0; i < matrix_room(m); i++) {
    uint64_t bits = random_bits(key, (uint64_t)i);
    int8_t x = numbers[bits % 4];
    switch (m->dtype) {
    case IR_F64: ((double *)data)[i] = x; break;
    case IR_F32: ((float *)data)[i] = orders && i % 11 == 3 && key % 3 == 0 ? NAN : x; break;
    case IR_F16: ((uint16_t *)data)[i] = halves[bits % 4]; break;
    case IR_BF16: ((uint16_t *)data)[i] = brains[bits % 4]; break;
    case IR_I64: ((int64_t *)data)[i] = (int64_t)bits; break;
    case IR_I32: ((int32_t *)data)[i] = (int32_t)bits; break;
    case IR_I8:
    case IR_U8: ((uint8_t *)data)[i] = (uint8_t)bits; break;
    case IR_BOOL: ((uint8_t *)data)[i] = bits & 1; break;
    case IR_DTYPE_NONE:
    case IR_DTYPE_COUNT: abort();
    }
  }
}

static inline bool matrix_is_same(const matrix *m, const void *a, const void *b) {
  size_t size = ir_dtype_size_bytes(m->dtype);
  for (size_t i = 0; i < (size_t)matrix_room(m); i++) {
    if (memcmp((const char *)a + i * size, (const char *)b + i * size, size) == 0) continue;
    bool nan = m->dtype == IR_F32 && isnan(((const float *)a)[i]) && isnan(((const float *)b)[i]);
    if (!nan) return false;
  }
  return true;
}

static inline void matrix_make_rank(matrix *m, uint32_t r) {
  kit *k = &m->kits[r];
  uint32_t posts[MATRIX_CASES];
  kit_init(k, 3);
  for (uint32_t c = 0; c < m->cases; c++) {
    (void)kit_buffer(k, RT_BUFFER_INPUT, c, matrix_room(m));
    (void)kit_buffer(k, RT_BUFFER_OUTPUT, c, matrix_room(m));
  }
  for (uint32_t c = 0; c < m->cases; c++) {
    rt_post p = matrix_post(m, c, r);
    matrix_place(m, k, c, &p);
    posts[c] = kit_post(k, 1 + c % 2, p);
  }
  for (uint32_t c = 0; c < m->cases; c++) (void)kit_join(k, 0, posts[c]);
  (void)kit_plan(k);
}

static inline void matrix_make(matrix *m, ir_dtype dtype, uint32_t n) {
  rt_plan *plans[WORLD_RANKS];
  *m = (matrix){.n = n, .dtype = dtype};
  arena_init(&m->memory, &memory_default);
  for (uint32_t i = 0; i < n; i++) m->teams[0][i] = m->teams[1][n - 1 - i] = n - 1 - i;
  matrix_list(m);
  for (uint32_t r = 0; r < n; r++) {
    matrix_make_rank(m, r);
    plans[r] = &m->kits[r].plan;
  }
  if (rt_plan_join(plans, n, &memory_default, &m->plan) != STATUS_OK) abort();
  uint32_t arrays = n * m->cases;
  m->inputs = ARENA_ARRAY(&m->memory, arrays, void *);
  m->expected = ARENA_ARRAY(&m->memory, arrays, void *);
  m->outputs = ARENA_ARRAY(&m->memory, arrays, void *);
  for (uint32_t i = 0; i < arrays; i++) {
    m->inputs[i] = arena_alloc(&m->memory, (size_t)matrix_room(m) * 8);
    m->expected[i] = arena_alloc(&m->memory, (size_t)matrix_room(m) * 8);
    m->outputs[i] = arena_alloc(&m->memory, (size_t)matrix_room(m) * 8);
    matrix_fill(m, i % m->cases, i, m->inputs[i]);
  }
}

static inline void matrix_clear(const matrix *m, void **outputs) {
  for (uint32_t i = 0; i < m->n * m->cases; i++) matrix_fill(m, i % m->cases, i + 1000, outputs[i]);
}

static inline bool matrix_reduces_all(const rt_post *post, bool all_give) {
  (void)post, (void)all_give;
  return true;
}

static inline status matrix_run_machine(void *context) {
  matrix *m = context;
  issue_order_options o = {.as_posted = true, .reduces = matrix_reduces_all};
  return machine_run(m->plan, &o, m->inputs, m->expected, 1);
}

/* What every output must be. */
static inline bool matrix_expect(matrix *m) {
  matrix_clear(m, m->expected);
  return memory_guard(matrix_run_machine, m) == STATUS_OK;
}

/* Which of a rank's outputs are wrong, with words. */
static inline uint32_t matrix_wrong(const matrix *m, uint32_t rank) {
  uint32_t wrong = 0;
  for (uint32_t c = 0; c < m->cases; c++) {
    uint32_t i = rank * m->cases + c;
    if (matrix_is_same(m, m->outputs[i], m->expected[i])) continue;
    wrong++;
    fprintf(stderr, "%s (%s) of %s, form %d, rank %u of %u\n", ir_comm_text(m->kinds[c]),
            ir_combine_text(m->ops[c]), ir_dtype_text(m->dtype), (int)m->forms[c], rank, m->n);
  }
  return wrong;
}

static inline void matrix_destroy(matrix *m) {
  rt_plan_destroy(m->plan);
  for (uint32_t r = 0; r < m->n; r++) kit_destroy(&m->kits[r]);
  arena_destroy(&m->memory);
}

#endif
