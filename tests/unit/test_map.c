/* Maps between producer and consumer axes, and axis classes over whole programs. */
#include "ir/map.h"
#include "ir/verify.h"
#include "schedule/schedule.h"
#include "test.h"
#include "text/text.h"

static ir_module m;

static ir_func *program(const char *text) {
  ir_module_destroy(&m);
  ir_module_init(&m, &memory_default);
  if (!EXPECT(text_parse(&m, "test", text, strlen(text)) == STATUS_OK)) {
    strbuf out;
    strbuf_init(&out, &m.memory);
    diags_render(&m.errors, &out);
    fprintf(stderr, "%s", out.data);
    return NULL;
  }
  ir_func *f = m.funcs.data[0];
  EXPECT(schedule_apply(f));
  EXPECT(ir_verify(f));
  return f;
}

static ir_tensor tensor(const ir_func *f, const char *name) {
  ir_name_entry e = ir_func_lookup(f, strings_find(&f->module->names, name, strlen(name)));
  EXPECT(e.kind == IR_NAME_TENSOR);
  return (ir_tensor){e.id};
}

static uint32_t index_of(ir_axes axes, ir_axis a) {
  for (uint32_t i = 0; i < axes.len; i++) {
    if (IR_SAME(axes.data[i], a)) return i;
  }
  return 99;
}

/* "0>1 1>b2 2>w0": producer dimension > consumer root position, b broadcast, g groups of
 * heads, w whole. */
static const char *pairs_of(const ir_func *f, const char *name, uint32_t operand) {
  ir_pair pairs[IR_MAX_RANK];
  const ir_tensor_data *t = ir_tensor_at(f, tensor(f, name));
  const ir_op_data *op = ir_op_at(f, t->scheduled_def);
  uint32_t n = ir_map_pairs(f, op, operand, pairs);
  ir_axis dims[IR_MAX_RANK];
  ir_axes from = {dims, ir_tensor_dims(f, op->operands[operand], dims)};
  strbuf out;
  strbuf_init(&out, &f->module->memory);
  for (uint32_t p = 0; p < from.len; p++) {
    for (uint32_t i = 0; i < n; i++) {
      if (index_of(from, pairs[i].producer) != p) continue;
      strbuf_printf(&out, "%s%u>%s%u", out.len ? " " : "", p,
                    (const char *[]){"", "b", "g", "w"}[pairs[i].kind],
                    index_of(t->now.root, pairs[i].consumer));
    }
  }
  return out.data;
}

static void test_pairs(void) {
  ir_func *f = program(
      "fusion f {\n  x : f32[n, 4, k]\n  y : f32[4, 1]\n  w : f32[3, k]\n  v : f32[k]\n"
      "  i : i64[n, 4, k]\n  j : i64[5]\n"
      "  add = x + y\n  s = sum(x, dims=[1])\n  sk = sum(x, dims=[1], keepdim=true)\n"
      "  mean = mean(x, dims=[0])\n  b = broadcast(v, [true, false])\n  sq = squeeze(y, dims=[1])\n"
      "  e = expand(y, [2, 4, 7])\n  p = permute(x, [2, 0, 1])\n  t = transpose(x)\n"
      "  r = reshape(x, [n * 4, k])\n  c = cat(x, x, dim=0)\n  sel = select(x, dim=1, index=2)\n"
      "  g = gather(x, i, dim=0)\n  is = index_select(x, j, dim=1)\n  l = linear(x, w)\n"
      "  mm = matmul(x, transpose(w))\n  mv = matmul(x, v)\n  so = softmax(x, dim=1)\n"
      "  ln = layer_norm(x, weight=v)\n  at = sdpa(x, x, x)\n"
      "  cs = cumsum(x, dim=0)\n  as = argsort(x, dim=1)\n  tk = topk(x, k=4, dim=1)\n"
      "  oh = one_hot(i, 7)\n  sa = scatter(x, i, x, dim=2, reduce=add)\n"
      "  return add, s, sk, mean, b, sq, e, p, t, r, c, sel, g, is, l, mm, mv, so, ln, at, cs, as, "
      "tk, oh, sa\n}\n");
  if (!f) return;
  EXPECT_STR(pairs_of(f, "add", 0), "0>0 1>1 2>2");
  EXPECT_STR(pairs_of(f, "add", 1), "0>1 1>b2");
  EXPECT_STR(pairs_of(f, "s", 0), "0>0 1>1 2>2");
  EXPECT_STR(pairs_of(f, "sk", 0), "0>0 2>2");
  EXPECT_STR(pairs_of(f, "mean", 0), "1>0 2>1");
  EXPECT_STR(pairs_of(f, "b", 0), "0>1");
  EXPECT_STR(pairs_of(f, "sq", 0), "0>0");
  EXPECT_STR(pairs_of(f, "e", 0), "0>1 1>b2");
  EXPECT_STR(pairs_of(f, "p", 0), "0>0 1>1 2>2");
  EXPECT_STR(pairs_of(f, "r", 0), "0>0 1>1 2>2");
  EXPECT_STR(pairs_of(f, "c", 1), "1>1 2>2");
  EXPECT_STR(pairs_of(f, "sel", 0), "0>0 2>1");
  EXPECT_STR(pairs_of(f, "g", 0), "1>1 2>2");
  EXPECT_STR(pairs_of(f, "g", 1), "0>0 1>1 2>2");
  EXPECT_STR(pairs_of(f, "is", 0), "0>0 2>2");
  EXPECT_STR(pairs_of(f, "is", 1), "0>1");
  EXPECT_STR(pairs_of(f, "l", 0), "0>0 1>1 2>3");
  EXPECT_STR(pairs_of(f, "l", 1), "0>2 1>3");
  EXPECT_STR(pairs_of(f, "mm", 0), "0>0 1>1 2>3");
  EXPECT_STR(pairs_of(f, "mm", 1), "0>3 1>2");
  EXPECT_STR(pairs_of(f, "mv", 0), "0>0 1>1 2>2");
  EXPECT_STR(pairs_of(f, "mv", 1), "0>2");
  EXPECT_STR(pairs_of(f, "so", 0), "0>0 1>w1 2>2");
  EXPECT_STR(pairs_of(f, "ln", 0), "0>0 1>1 2>w2");
  EXPECT_STR(pairs_of(f, "ln", 1), "0>2");
  EXPECT_STR(pairs_of(f, "at", 0), "0>0 1>1");
  EXPECT_STR(pairs_of(f, "at", 2), "0>0 2>2");
  EXPECT_STR(pairs_of(f, "cs", 0), "0>w0 1>1 2>2");
  EXPECT_STR(pairs_of(f, "as", 0), "0>0 1>w1 2>2");
  EXPECT_STR(pairs_of(f, "tk", 0), "0>0 2>2"); /* though as many are kept as there are */
  EXPECT_STR(pairs_of(f, "oh", 0), "0>0 1>1 2>2");
  EXPECT_STR(pairs_of(f, "sa", 0), "0>0 1>1");
  EXPECT_STR(pairs_of(f, "sa", 2), "0>0 1>1");
}

static ir_axis loop_axis(const ir_func *f, const char *name, uint32_t i) {
  return ir_tensor_at(f, tensor(f, name))->now.loop.data[i];
}

static void test_classes(void) {
  ir_func *f = program("fusion f {\n  x : f32[n, 1]\n  y : f32[n, k]\n  a = x * y\n  b = set(a)\n"
                       "  c = sum(b, dims=[1])\n  return c\n"
                       "  schedule {\n    y.outer_split(0, 3)\n    b.outer_split(0, 3)\n"
                       "    c.outer_split(0, 2)\n  }\n}\n");
  if (!f) return;
  arena scratch;
  arena_init(&scratch, &memory_default);
  ir_classes exact = ir_classes_build(f, IR_CLASS_EXACT, &scratch);
  ir_classes loose = ir_classes_build(f, IR_CLASS_BROADCAST, &scratch);
  EXPECT(ir_class_same(&exact, loop_axis(f, "x", 0), loop_axis(f, "a", 0)));
  EXPECT(!ir_class_same(&exact, loop_axis(f, "x", 1), loop_axis(f, "a", 1)));
  EXPECT(ir_class_same(&loose, loop_axis(f, "x", 1), loop_axis(f, "a", 1)));
  /* Equal splits of equivalent axes are equivalent, piece by piece; other splits are not. */
  EXPECT(ir_class_same(&exact, loop_axis(f, "y", 0), loop_axis(f, "b", 0)));
  EXPECT(ir_class_same(&exact, loop_axis(f, "y", 1), loop_axis(f, "b", 1)));
  EXPECT(!ir_class_same(&exact, loop_axis(f, "y", 0), loop_axis(f, "b", 1)));
  EXPECT(!ir_class_same(&exact, loop_axis(f, "b", 0), loop_axis(f, "c", 0)));
  /* The reduction axis of c is the second axis of b. */
  EXPECT(ir_class_same(&exact, loop_axis(f, "b", 2), loop_axis(f, "c", 2)));
  arena_destroy(&scratch);
}

static status all(void *context) {
  (void)context;
  test_pairs();
  test_classes();
  return STATUS_OK;
}

int main(void) {
  EXPECT(memory_guard(all, NULL) == STATUS_OK);
  ir_module_destroy(&m);
  return test_finish();
}
