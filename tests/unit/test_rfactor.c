/* rfactor: the domains and operations of both tensors, and what is refused. */
#include "unit/schedule_kit.h"

/* ---- rfactor ---- */
static const ir_op_data *def(const char *t) {
  return ir_op_at(f, ir_tensor_at(f, tensor(t))->scheduled_def);
}
static bool reduces(const char *t, ir_opcode code, const char *operand, int64_t dim) {
  const ir_op_data *op = def(t);
  const ir_attr *dims = ir_op_attr(op, "dims");
  return op->code == code && IR_SAME(op->operands[0], tensor(operand)) && dims->given &&
         dims->len == 1 && dims->ints[0] == dim && !ir_op_attr(op, "keepdim")->i;
}

static void rfactor_sum(void) {
  begin();
  ir_tensor x = INPUT("x", sym("a"), sym("k"), num(8));
  REDUCE("y", IR_OP_SUM, x, 1);
  set_of("z", tensor("y"));
  EXPECT(outer_split("y", 1, 4));
  EXPECT(outer_split("y", 3, 2));
  EXPECT(device("y", 3, 0));
  EXPECT_STR(loop("y"), "[a, r 4, r ceildiv(k, 4), 2 mesh.x, 4]");
  EXPECT(RFACTOR("u", "y", 2));
  EXPECT_STR(root("u"), "[a, r k, 8]");
  EXPECT_STR(logical("u"), "[a, 4, r ceildiv(k, 4), 8]");
  EXPECT_STR(loop("u"), "[a, 4, r ceildiv(k, 4), 2 mesh.x, 4]");
  EXPECT_STR(allocation("u"), "[a, 4, r ceildiv(k, 4), 8]");
  EXPECT_STR(dense("u"), "tt-t");
  EXPECT(axis("u", 1).rfactor && axis("u", 2).rfactor && !axis("u", 0).rfactor);
  EXPECT_STR(root("y"), "[a, r 4, 8]");
  EXPECT_STR(logical("y"), "[a, r 4, 8]");
  EXPECT_STR(allocation("y"), "[a, r 4, 8]");
  EXPECT_STR(dense("y"), "t-t");
  EXPECT_STR(loop("y"), "[a, r 4, 2 mesh.x, 4]");
  EXPECT(!axis("y", 1).rfactor && !axis("y", 1).def.id);
  EXPECT_INT(def("u")->code, IR_OP_SUM);
  EXPECT(IR_SAME(def("u")->operands[0], tensor("x")));
  EXPECT(reduces("y", IR_OP_SUM, "u", 1));
  EXPECT_INT(ir_tensor_at(f, tensor("y"))->def.id, f->order.data[0].id); /* the definition stays */
  EXPECT_INT(f->order.len, 2);
  EXPECT_INT(f->scheduled.len, 3);
  EXPECT(IR_SAME(ir_op_at(f, f->scheduled.data[0])->result, tensor("u")));
  EXPECT(IR_SAME(ir_op_at(f, f->scheduled.data[1])->result, tensor("y")));
  EXPECT(IR_SAME(ir_op_at(f, f->scheduled.data[2])->result, tensor("z")));
  EXPECT(stream("u", 1)); /* a logical axis now */
  expect_derivable();
}

static void rfactor_matmul(void) {
  begin();
  ir_tensor a = INPUT("a", sym("m"), num(8)), b = INPUT("b", num(8), num(6));
  op2("c", IR_OP_MATMUL, a, b);
  ir_mesh d = mesh_of("d", 2, 0);
  EXPECT_STR(loop("c"), "[m, 6, r 8]");
  EXPECT(on("c", d));
  EXPECT(outer_split("c", -1, 2));
  EXPECT(device("c", -2, 0));
  EXPECT(outer_split("c", 0, 3));
  EXPECT(stream("c", 0));
  EXPECT(RFACTOR("u", "c", -1));
  EXPECT_STR(root("u"), "[m, 6, r 8]");
  EXPECT_STR(logical("u"), "[m, 6, 2 mesh.x, r 4]");
  EXPECT_STR(loop("u"), "[3 stream, ceildiv(m, 3), 6, 2 mesh.x, r 4]");
  EXPECT_STR(logical("c"), "[m, 6, r 2 mesh.x]");
  EXPECT_STR(loop("c"), "[3 stream, ceildiv(m, 3), 6, r 2 mesh.x]");
  EXPECT_INT(def("u")->code, IR_OP_MATMUL);
  EXPECT(reduces("c", IR_OP_SUM, "u", 2));
  EXPECT(IR_SAME(ir_tensor_at(f, tensor("u"))->mesh, d));
  EXPECT_INT(ir_tensor_at(f, tensor("u"))->dtype, IR_F32);
  expect_derivable();
}

static void rfactor_linear(void) {
  begin();
  ir_tensor x = INPUT("x", sym("t"), num(8)), w = INPUT("w", num(6), num(8));
  ir_tensor bias = INPUT("bias", num(6));
  linear_of("y", x, w, (ir_tensor){0});
  linear_of("z", x, w, bias);
  EXPECT(outer_split("y", -1, 2));
  EXPECT(outer_split("y", 1, 2));
  EXPECT(device("y", 1, 0));
  EXPECT(device("y", -2, 0)); /* [t, 6 on mesh.x, partial results on mesh.x]: reduce-scatter */
  EXPECT_STR(loop("y"), "[t, 2 mesh.x, 3, r 2 mesh.x, r 4]");
  EXPECT(RFACTOR("u", "y", -1));
  EXPECT_STR(loop("u"), "[t, 2, 3, 2 mesh.x, r 4]"); /* one mesh.x */
  EXPECT_STR(loop("y"), "[t, 2 mesh.x, 3, r 2 mesh.x]");
  EXPECT_INT(def("u")->code, IR_OP_LINEAR);
  EXPECT_INT(def("u")->n_operands, 3);
  EXPECT(reduces("y", IR_OP_SUM, "u", 2));
  EXPECT(split("z", -1, 2));
  EXPECT_REFUSED(RFACTOR("v", "z", -1), "its linear has a bias");
  expect_derivable();
}

static void rfactor_others(void) {
  begin();
  ir_tensor x = INPUT("x", sym("a"), num(8), num(9));
  REDUCE("p", IR_OP_PROD, x, 1, 2);
  REDUCE("q", IR_OP_AMAX, x, 1, 2);
  EXPECT(RFACTOR("p1", "p", 2)); /* whole axes: nothing to cut */
  EXPECT_STR(logical("p1"), "[a, 8, r 9]");
  EXPECT_STR(root("p1"), "[a, 8, r 9]");
  EXPECT_STR(logical("p"), "[a, r 8]");
  EXPECT(reduces("p", IR_OP_PROD, "p1", 1));
  EXPECT(merge("q", 1)); /* r 72 */
  EXPECT(split("q", 1, 6));
  EXPECT(split("q", 1, 2)); /* [a, r 6, r 2, r 6] */
  EXPECT(RFACTOR("q1", "q", 3));
  EXPECT_STR(root("q1"), "[a, r 8, r 9]");
  EXPECT_STR(logical("q1"), "[a, 12, r 6]"); /* the split of 12 concerns loops only */
  EXPECT_STR(loop("q1"), "[a, 6, 2, r 6]");
  EXPECT_STR(logical("q"), "[a, r 12]");
  EXPECT_STR(loop("q"), "[a, r 6, r 2]");
  EXPECT(reduces("q", IR_OP_AMAX, "q1", 1));
  EXPECT(RFACTOR("q2", "q", 1)); /* once more, on the second step */
  EXPECT_STR(root("q2"), "[a, r 12]");
  EXPECT_STR(logical("q2"), "[a, r 6, 2]");
  EXPECT_STR(logical("q"), "[a, r 2]");
  EXPECT(reduces("q", IR_OP_AMAX, "q2", 1));
  EXPECT(reduces("q2", IR_OP_AMAX, "q1", 1));
  expect_derivable();
}

static void rfactor_again(void) {
  begin();
  ir_tensor a = INPUT("a", sym("m"), num(8)), b = INPUT("b", num(8), num(6));
  op2("c", IR_OP_MATMUL, a, b);
  EXPECT(split("c", 2, 4));
  EXPECT(split("c", 3, 2)); /* [m, 6, r 2, r 2, r 2] */
  EXPECT(RFACTOR("u", "c", 3, 4));
  EXPECT_STR(logical("u"), "[m, 6, 2, r 2, r 2]");
  EXPECT(RFACTOR("v", "u", 4)); /* of the producer: its root is not its logical domain */
  EXPECT_STR(root("v"), "[m, 6, r 8]");
  EXPECT_STR(logical("v"), "[m, 6, 2, 2, r 2]");
  EXPECT_STR(root("u"), "[m, 6, 2, r 2]");
  EXPECT_STR(loop("u"), "[m, 6, 2, r 2]");
  EXPECT_INT(def("v")->code, IR_OP_MATMUL);
  EXPECT(reduces("u", IR_OP_SUM, "v", 3));
  EXPECT(reduces("c", IR_OP_SUM, "u", 2));
  EXPECT(IR_SAME(ir_op_at(f, f->scheduled.data[0])->result, tensor("v")));
  EXPECT(IR_SAME(ir_op_at(f, f->scheduled.data[1])->result, tensor("u")));
  EXPECT(IR_SAME(ir_op_at(f, f->scheduled.data[2])->result, tensor("c")));
  expect_derivable();
}

static void rfactor_layout(void) {
  begin();
  ir_tensor x = INPUT("x", num(6), num(8), num(5));
  REDUCE("y", IR_OP_SUM, x, 1);
  REDUCE("z", IR_OP_SUM, x, 1);
  EXPECT(ALLOCATE("y", 1, 0));
  EXPECT(CONTIGUITY("y", 0, 1));
  EXPECT(split("y", 1, 2));
  EXPECT(RFACTOR("u", "y", 1));
  EXPECT_STR(allocation("y"), "[5, r 2, 6]");
  EXPECT_STR(dense("y"), "f-t");
  EXPECT(ALLOCATE("y", 0, 1));
  EXPECT_STR(allocation("y"), "[6, r 2, 5]");
  EXPECT(split("z", 1, 2));
  EXPECT(split("z", 0, 3));
  EXPECT(as_loop("z"));
  EXPECT(RFACTOR("v", "z", 2));
  EXPECT_STR(allocation("z"), "[2, 3, r 2, 5]");
  EXPECT_STR(dense("z"), "tt-t");
  expect_derivable();
}

static void rfactor_refusals(void) {
  begin();
  ir_tensor x = INPUT("x", sym("a"), num(8), num(4));
  REDUCE("y", IR_OP_SUM, x, 1, 2);
  set_of("z", x);
  mesh_of("d", 2, 0);
  EXPECT_REFUSED(RFACTOR("u", "x", 0), "x cannot be rfactored: only results of sum");
  EXPECT_REFUSED(RFACTOR("u", "z", 0), "z cannot be rfactored: only results of sum");
  EXPECT_REFUSED(RFACTOR("u", "y", 0), "axis 0 of y is not a reduction");
  EXPECT_REFUSED(RFACTOR("u", "y", 1, 2), "rfactor must leave a reduction axis to y");
  EXPECT_REFUSED(RFACTOR("u", "y", 1, -2), "axis 1 of y is given twice");
  EXPECT_REFUSED(RFACTOR("u", "y", 3), "axis 3 is out of range: y has 3 loop axes [a, r 8, r 4]");
  EXPECT_REFUSED(rfactor_list("u", "y", NULL, 0), "rfactor needs at least one axis");
  EXPECT_REFUSED(RFACTOR("x", "y", 1), "'x' is already the name of a tensor");
  EXPECT_REFUSED(RFACTOR("d", "y", 1), "'d' is already the name of a mesh");
  EXPECT_REFUSED(RFACTOR("a", "y", 1), "'a' is already the name of an extent");
  EXPECT(RFACTOR("u", "y", 1));
  EXPECT_REFUSED(RFACTOR("u", "y", 1), "'u' is already the name of a tensor");
  expect_derivable();
}

static void rfactor_too_wide(void) {
  begin();
  ir_scalar extents[12];
  for (int i = 0; i < 12; i++) extents[i] = num(2);
  REDUCE("y", IR_OP_SUM, input_of("x", extents, 12), 11);
  for (int i = 0; i < 10; i++) EXPECT(merge("y", 0)); /* [2048, r 2] */
  for (int i = 0; i < 5; i++) EXPECT(split("y", -1, 2));
  EXPECT_REFUSED(RFACTOR("u", "y", -1), "u would have 17 axes: 16 are allowed");
}

int main(void) {
  static void (*const tests[])(void) = {rfactor_sum,      rfactor_matmul,  rfactor_linear,
                                        rfactor_others,   rfactor_again,   rfactor_layout,
                                        rfactor_refusals, rfactor_too_wide};
  return run_all(tests, sizeof tests / sizeof *tests);
}
