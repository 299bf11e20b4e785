/* Scalars: the normal form, proofs, evaluation, printing. Random expressions are checked against
 * direct evaluation of the tree they were built from. */
#include <stdlib.h>

#include "ir/scalar.h"
#include "test.h"

static ir_scalars s;
static strings names;
static arena *memory;
static ir_scalar a, b, n;

static ir_scalar k(int64_t v) { return ir_scalar_const(&s, v); }
#define ADD(x, y) ir_scalar_add(&s, x, y)
#define SUB(x, y) ir_scalar_sub(&s, x, y)
#define MUL(x, y) ir_scalar_mul(&s, x, y)
#define CEIL(x, y) ir_scalar_ceildiv(&s, x, y)
#define FLOOR(x, y) ir_scalar_floordiv(&s, x, y)
#define MOD(x, y) ir_scalar_mod(&s, x, y)
#define EXPECT_SAME(x, y) EXPECT_STR(text(x), text(y)), EXPECT(IR_SAME(x, y))

static const char *no_tensor(const void *context, uint32_t tensor) {
  (void)context;
  return tensor == 7 ? "inp" : "?";
}

static const char *text(ir_scalar x) {
  strbuf out;
  strbuf_init(&out, memory);
  ir_scalar_print(&s, &names, x, no_tensor, NULL, &out);
  return out.data;
}

static ir_scalar symbol(const char *name) {
  ir_symbol_data d = {.name = strings_intern(&names, name, strlen(name))};
  return ir_scalar_symbol(&s, d);
}

static void test_simplification(void) {
  EXPECT_SAME(CEIL(MUL(n, k(3)), k(3)), n);
  EXPECT_SAME(CEIL(MUL(a, b), b), a);
  EXPECT_SAME(ADD(a, b), ADD(b, a));
  EXPECT_SAME(SUB(ADD(a, b), a), b);
  EXPECT_SAME(MUL(ADD(a, k(1)), ADD(a, k(-1))), SUB(MUL(a, a), k(1)));
  EXPECT_SAME(CEIL(ADD(MUL(n, k(4)), k(3)), k(4)), ADD(n, k(1)));
  EXPECT_SAME(FLOOR(ADD(MUL(n, k(4)), k(3)), k(4)), n);
  EXPECT_SAME(CEIL(CEIL(n, k(2)), k(3)), CEIL(n, k(6)));
  EXPECT_SAME(MOD(ADD(MUL(n, k(4)), k(7)), k(4)), k(3));
  EXPECT_SAME(MOD(MUL(a, b), a), k(0));
  EXPECT_SAME(MOD(MOD(n, k(5)), k(5)), MOD(n, k(5)));
  EXPECT_SAME(ir_scalar_min(&s, n, ADD(n, k(1))), n);
  EXPECT_SAME(ir_scalar_max(&s, k(0), n), n);
  EXPECT_SAME(ir_scalar_min(&s, n, ir_scalar_max(&s, k(0), SUB(n, k(1)))),
              ir_scalar_max(&s, k(0), SUB(n, k(1))));
  EXPECT_SAME(CEIL(k(-7), k(2)), k(-3));
  EXPECT_SAME(FLOOR(k(-7), k(2)), k(-4));
  EXPECT_SAME(MOD(k(-7), k(3)), k(2));
  EXPECT_SAME(FLOOR(n, n), k(1));
}

static void test_overflow(void) {
  EXPECT(ir_scalar_is_overflow(MUL(k(INT64_MAX), k(2))));
  EXPECT(ir_scalar_is_overflow(ADD(k(INT64_MAX), k(1))));
  EXPECT(ir_scalar_is_overflow(MUL(MUL(n, k(INT64_MAX)), k(3))));
  EXPECT(ir_scalar_is_overflow(ADD(MUL(k(INT64_MAX), k(2)), n)));
  int64_t values[8] = {[0] = INT64_MAX, [1] = INT64_MAX, [2] = 2}, v;
  EXPECT(!ir_scalar_eval(&s, MUL(a, b), values, 8, &v));
  EXPECT(!ir_scalar_eval(&s, CEIL(n, a), (int64_t[]){0, 1, 2}, 3, &v));
  EXPECT(!ir_scalar_eval(&s, n, (int64_t[]){1, 1, IR_UNBOUND}, 3, &v));
}

static void test_proofs(void) {
  EXPECT(ir_scalar_eq(&s, n, ADD(n, k(1))) == IR_FALSE);
  EXPECT(ir_scalar_eq(&s, n, a) == IR_UNKNOWN);
  EXPECT(ir_scalar_eq(&s, MUL(n, k(3)), ADD(n, ADD(n, n))) == IR_TRUE);
  EXPECT(ir_scalar_le(&s, n, ADD(n, a)) == IR_TRUE);
  EXPECT(ir_scalar_le(&s, ADD(n, k(1)), n) == IR_FALSE);
  EXPECT(ir_scalar_lt(&s, MOD(n, k(4)), k(4)) == IR_TRUE);
  EXPECT(ir_scalar_lt(&s, n, k(4)) == IR_UNKNOWN);
  EXPECT(ir_scalar_le(&s, n, MUL(k(4), CEIL(n, k(4)))) == IR_TRUE);
  EXPECT(ir_scalar_le(&s, n, MUL(k(3), CEIL(n, k(4)))) == IR_UNKNOWN);
  EXPECT(ir_scalar_le(&s, n, MUL(k(8), CEIL(n, k(4)))) == IR_TRUE);
  EXPECT(ir_scalar_le(&s, MUL(n, a), MUL(MUL(k(4), a), CEIL(n, k(4)))) == IR_TRUE);
  EXPECT(ir_scalar_le(&s, MUL(n, a), ir_scalar_max(&s, k(1), MUL(MUL(k(4), a), CEIL(n, k(4))))) ==
         IR_TRUE);
  EXPECT(ir_scalar_lt(&s, n, MUL(k(4), CEIL(n, k(4)))) == IR_UNKNOWN);
  EXPECT(ir_scalar_divides(&s, k(3), MUL(n, k(6))) == IR_TRUE);
  EXPECT(ir_scalar_divides(&s, k(4), ADD(MUL(n, k(8)), k(2))) == IR_FALSE);
  EXPECT(ir_scalar_divides(&s, k(4), n) == IR_UNKNOWN);
}

static void test_chunks(void) {
  ir_scalar list = ir_scalar_list(&s, (int64_t[]){7, 5, 3}, 3);
  ir_scalar chunk = ir_scalar_chunk(&s, n, list), start = ir_scalar_chunk_start(&s, n, list);
  EXPECT_STR(text(SUB(chunk, start)), "chunk(n, [7, 5, 3]) - chunk_start(n, [7, 5, 3])");
  EXPECT_SAME(list, ir_scalar_list(&s, (int64_t[]){7, 5, 3}, 3));
  EXPECT_SAME(ir_scalar_chunk(&s, k(1), list), k(5));
  EXPECT_SAME(ir_scalar_chunk(&s, k(-1), list), k(0));
  EXPECT_SAME(ir_scalar_chunk(&s, k(3), list), k(0));
  EXPECT_SAME(ir_scalar_chunk_start(&s, k(2), list), k(12));
  EXPECT_SAME(ir_scalar_chunk_start(&s, k(-4), list), k(0));
  EXPECT_SAME(ir_scalar_chunk_start(&s, k(9), list), k(15));
  EXPECT(ir_scalar_le(&s, chunk, k(7)) == IR_TRUE);
  EXPECT(ir_scalar_le(&s, chunk, k(6)) == IR_UNKNOWN);
  EXPECT(ir_scalar_lt(&s, chunk, k(0)) == IR_FALSE);
  EXPECT(ir_scalar_le(&s, start, k(15)) == IR_TRUE);
  EXPECT(ir_scalar_le(&s, start, k(14)) == IR_UNKNOWN);
  EXPECT(ir_scalar_is_overflow(ir_scalar_list(&s, (int64_t[]){7, -1}, 2)));
  EXPECT(ir_scalar_is_overflow(ir_scalar_list(&s, (int64_t[]){INT64_MAX, 1}, 2)));
  EXPECT(ir_scalar_is_overflow(ir_scalar_chunk(&s, MUL(k(INT64_MAX), k(2)), list)));
  EXPECT(ir_scalar_mentions(&s, chunk, 2) && !ir_scalar_mentions(&s, chunk, 1));
  /* The order of terms is that of what the lists hold, not of when they were made. */
  ir_scalar other = ir_scalar_chunk(&s, n, ir_scalar_list(&s, (int64_t[]){6, 9}, 2));
  EXPECT_STR(text(ADD(chunk, other)), "chunk(n, [6, 9]) + chunk(n, [7, 5, 3])");
}

static void test_printing(void) {
  EXPECT_STR(text(ADD(MUL(a, b), k(-3))), "a * b - 3");
  EXPECT_STR(text(SUB(k(4), n)), "-n + 4");
  EXPECT_STR(text(MUL(k(3), FLOOR(n, k(2)))), "3 * (n / 2)");
  EXPECT_STR(text(CEIL(ADD(a, b), k(2))), "ceildiv(a + b, 2)");
  EXPECT_STR(text(MOD(n, MUL(a, b))), "n % (a * b)");
  EXPECT_STR(text(ir_scalar_min(&s, a, b)), "min(a, b)");
  EXPECT_STR(text(ir_scalar_symbol(&s, (ir_symbol_data){.tensor = 7, .dim = 1})), "inp.1");
}

/* ---- random trees ---- */

static uint64_t random_state = 1;
static uint32_t draw(uint32_t below) {
  random_state = random_state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(random_state >> 33) % below;
}

static int64_t floor_div(int64_t x, int64_t y) { return x / y - (x % y != 0 && x < 0); }

/* Lists meet again, so that terms with equal ones join. */
static ir_scalar random_chunk(ir_scalar index, int64_t i, int64_t *value) {
  static const int64_t lists[3][3] = {{7, 5, 3}, {7, 5, 3}, {2, 0, 4}};
  uint32_t which = draw(3), len = 2 + draw(2);
  bool start = draw(2);
  ir_scalar list = ir_scalar_list(&s, lists[which], len);
  *value = 0;
  for (uint32_t j = 0; j < len; j++) *value += (start ? j < i : j == i) ? lists[which][j] : 0;
  return start ? ir_scalar_chunk_start(&s, index, list) : ir_scalar_chunk(&s, index, list);
}

/* Builds a scalar and its value side by side. Divisors are positive constants or extents. */
static ir_scalar random_tree(int depth, const int64_t *values, int64_t *value) {
  static const int leaf_bias = 3;
  if (depth == 0 || draw((uint32_t)leaf_bias) == 0) {
    uint32_t which = draw(4);
    if (which == 3) {
      *value = (int64_t)draw(9) - 3;
      return k(*value);
    }
    *value = values[which];
    return (ir_scalar[]){a, b, n}[which];
  }
  int64_t x, y;
  ir_scalar p = random_tree(depth - 1, values, &x), q = random_tree(depth - 1, values, &y);
  uint32_t op = draw(9);
  if (op == 8) return random_chunk(p, x, value);
  if (op >= 3 && op <= 5) { /* a divisor is at least 1 */
    int64_t d = 1 + draw(6);
    bool named = draw(3) == 0;
    q = named ? n : k(d);
    y = named ? values[2] : d;
  }
  switch (op) {
  case 0: *value = x + y; return ADD(p, q);
  case 1: *value = x - y; return SUB(p, q);
  case 2: *value = x * y; return MUL(p, q);
  case 3: *value = floor_div(x, y); return FLOOR(p, q);
  case 4: *value = -floor_div(-x, y); return CEIL(p, q);
  case 5: *value = x - y * floor_div(x, y); return MOD(p, q);
  case 6: *value = x < y ? x : y; return ir_scalar_min(&s, p, q);
  default: *value = x > y ? x : y; return ir_scalar_max(&s, p, q);
  }
}

static void test_random(void) {
  for (int i = 0; i < 20000; i++) {
    int64_t values[3] = {draw(6), draw(6), 1 + draw(6)}, want, have;
    ir_scalar x = random_tree(4, values, &want);
    if (!EXPECT(ir_scalar_eval(&s, x, values, 3, &have)) || !EXPECT_INT(have, want)) {
      fprintf(stderr, "a=%d b=%d n=%d: %s\n", (int)values[0], (int)values[1], (int)values[2],
              text(x));
      return;
    }
  }
}

/* ---- what is shared ---- */

/* Each step uses what came before several times: written out, 60 of them have more nodes than bits count. */
enum { STEPS = 60 };

static ir_scalar shared_step(ir_scalar x, ir_scalar y, uint32_t op, int64_t p, int64_t q,
                             int64_t *value) {
  switch (op) {
  case 0: *value = p / 3 + q / 5; return ADD(FLOOR(x, k(3)), FLOOR(y, k(5)));
  case 1: *value = (p + 1) / 2 + q / 4; return ADD(CEIL(x, k(2)), FLOOR(y, k(4)));
  case 2:
    *value = p % 7 > q / 2 ? p % 7 : q / 2;
    return ir_scalar_max(&s, MOD(x, k(7)), FLOOR(y, k(2)));
  default: *value = p < q + 3 ? p : q + 3; return ir_scalar_min(&s, x, ADD(y, k(3)));
  }
}

static ir_scalar two_of_a(const void *context, uint32_t index) {
  (void)context;
  return index == 0 ? MUL(a, k(2)) : (ir_scalar){0};
}

static void expect_value(ir_scalar x, const int64_t *values, int64_t want) {
  int64_t have = 0;
  EXPECT(ir_scalar_eval(&s, x, values, 3, &have));
  EXPECT_INT(have, want);
}

static void test_shared(void) {
  for (int round = 0; round < 50; round++) {
    int64_t values[3] = {draw(60), draw(60), 1 + draw(60)}, v[STEPS] = {0};
    ir_scalar x[STEPS];
    x[0] = ADD(a, MUL(b, k(3)));
    x[1] = ADD(n, a);
    v[0] = values[0] + 3 * values[1];
    v[1] = values[2] + values[0];
    for (int i = 2; i < STEPS; i++) {
      int j = i - 1 - (int)draw(2);
      x[i] = shared_step(x[i - 1], x[j], draw(4), v[i - 1], v[j], &v[i]);
    }
    expect_value(x[STEPS - 1], values, v[STEPS - 1]);
    int64_t halved[3] = {values[0] / 2, values[1], values[2]}, doubled[3] = {halved[0] * 2};
    doubled[1] = values[1];
    doubled[2] = values[2];
    ir_scalar y = ir_scalar_substitute(&s, x[STEPS - 1], two_of_a, NULL);
    int64_t want = 0;
    EXPECT(ir_scalar_eval(&s, x[STEPS - 1], doubled, 3, &want));
    expect_value(y, halved, want);
    EXPECT(ir_scalar_le(&s, k(0), x[STEPS - 1]) == IR_TRUE);
    EXPECT(strlen(text(x[STEPS - 1])) < 1000);
  }
}

static void test_mentions_shared(void) {
  ir_scalar x = n;
  for (int i = 0; i < STEPS; i++) x = ADD(CEIL(x, k(2)), FLOOR(x, k(3)));
  EXPECT(ir_scalar_node_of(&s, x)->size == UINT32_MAX);
  EXPECT(ir_scalar_mentions(&s, x, 2) && !ir_scalar_mentions(&s, x, 1));
  EXPECT(!ir_scalar_mentions(&s, x, 1));
}

static void test_depth(void) {
  ir_scalar x = n;
  for (int i = 0; i < 4000; i++) x = CEIL(FLOOR(x, k(2)), k(3));
  EXPECT(!ir_scalar_is_overflow(x));
  EXPECT_STR(ir_scalar_overflow_text(&s), "overflows 64 bits");
  for (int i = 0; i < 4000; i++) x = CEIL(FLOOR(x, k(2)), k(3));
  EXPECT(ir_scalar_is_overflow(x));
  EXPECT_STR(ir_scalar_overflow_text(&s), "nests more than 8192 operations");
}

static void test_clamping(void) {
  ir_scalar x = n;
  for (int i = 0; i < 9; i++) x = ir_scalar_max(&s, k(0), SUB(x, k(2)));
  EXPECT_STR(text(x), "max(0, n - 18)");
  x = ir_scalar_max(&s, k(9), ADD(ir_scalar_max(&s, k(1), a), k(7)));
  EXPECT_STR(text(x), "max(9, a + 7)");
  x = ir_scalar_min(&s, k(3), SUB(ir_scalar_min(&s, k(4), a), k(2)));
  EXPECT_STR(text(x), "min(2, a - 2)");
}

static status all(void *context) {
  memory = context;
  strings_init(&names, memory);
  ir_scalars_init(&s, memory);
  a = symbol("a");
  b = symbol("b");
  n = symbol("n");
  test_simplification();
  test_overflow();
  test_proofs();
  test_random();
  test_chunks();
  test_printing();
  test_clamping();
  test_shared();
  test_mentions_shared();
  test_depth();
  return STATUS_OK;
}

int main(void) {
  arena m;
  arena_init(&m, &memory_default);
  EXPECT(memory_guard(all, &m) == STATUS_OK);
  arena_destroy(&m);
  return test_finish();
}
