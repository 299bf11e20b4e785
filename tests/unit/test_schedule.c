/* Schedules: what every statement does to the domains, and what is said when it is refused. */
#include "unit/schedule_kit.h"

/* ---- splits ---- */
static void splits(void) {
  begin();
  INPUT("x", sym("t"), num(32));
  EXPECT(split("x", 1, 8));
  EXPECT_STR(loop("x"), "[t, 4, 8]");
  EXPECT(outer_split("x", 0, 3));
  EXPECT_STR(loop("x"), "[3, ceildiv(t, 3), 4, 8]");
  EXPECT(outer_split("x", -1, 5));
  EXPECT_STR(loop("x"), "[3, ceildiv(t, 3), 4, 5, 2]");
  EXPECT(split("x", -3, 100)); /* a factor may exceed the extent */
  EXPECT_STR(loop("x"), "[3, ceildiv(t, 3), 1, 100, 5, 2]");
  EXPECT_STR(logical("x"), "[t, 32]");
  EXPECT_STR(allocation("x"), "[t, 32]");
  EXPECT_INT(axis("x", 0).kind, IR_AXIS_ITERATION);
  EXPECT_INT(ir_transform_at(f, axis("x", 0).def)->kind, IR_OUTER_SPLIT);
  expect_derivable();
}

static void split_factors(void) {
  begin();
  INPUT("x", sym("t"), num(32));
  ir_mesh d = mesh_of("d", 2, 0), g = mesh_of("g", 2, 4);
  EXPECT(split_mesh("x", 1, d, 0, false));
  EXPECT_STR(loop("x"), "[t, 2, 16]");
  EXPECT(split_mesh("x", 2, g, 0, true)); /* g.x is the last axis */
  EXPECT_STR(loop("x"), "[t, 2, 4, 4]");
  EXPECT_REFUSED(split_mesh("x", 0, g, 0, false), "mesh g has 2 axes: name one of them");
  EXPECT_REFUSED(split_mesh("x", 0, g, 2, true), "there is no mesh.z");
  EXPECT_REFUSED(split("x", 0, 0), "a factor must be at least 1, and this one is 0");
  EXPECT_REFUSED(split("x", 0, -2), "a factor must be at least 1");
  EXPECT_REFUSED(split_by(IR_STMT_SPLIT, "x", 0, IR_SCALAR_OVERFLOW), "does not fit 64 bits");
  uint32_t before = f->constraints.len;
  EXPECT(split_by(IR_STMT_OUTER_SPLIT, "x", 0, sym("s")));
  EXPECT_STR(loop("x"), "[s, ceildiv(t, s), 2, 4, 4]");
  EXPECT_INT(f->constraints.len, before + 1); /* 1 <= s, checked when s is bound */
  expect_derivable();
}

static void positions(void) {
  begin();
  INPUT("y", sym("a"), num(4));
  ir_build_input(f, name("s"), IR_F32, NULL, 0, (loc){0});
  EXPECT_REFUSED(split("y", 2, 2), "axis 2 is out of range: y has 2 loop axes [a, 4]");
  EXPECT_REFUSED(split("y", -3, 2), "axis -3 is out of range");
  EXPECT_REFUSED(stream("s", 0), "axis 0 is out of range: s has no loop axes");
  EXPECT_REFUSED(merge("y", 7), "axis 7 is out of range");
  EXPECT_REFUSED(swizzle("y", 7, 0), "axis 7 is out of range");
  EXPECT_REFUSED(CHUNKS("y", 7, 1), "axis 7 is out of range");
}

static void chunks(void) {
  begin();
  INPUT("x", sym("t"), num(10));
  EXPECT(CHUNKS("x", 1, 2, 5, 3));
  EXPECT_STR(loop("x"), "[t, 3, 5]");
  uint32_t before = f->constraints.len;
  EXPECT(CHUNKS("x", 0, 4, 1));
  EXPECT_STR(loop("x"), "[2, 4, 3, 5]");
  EXPECT_INT(f->constraints.len, before + 1); /* t == 5 */
  EXPECT_REFUSED(CHUNKS("x", 1, 2, 3), "axis 1 of x has 4 positions, but the chunks add up to 5");
  EXPECT_REFUSED(CHUNKS("x", 1, 4, 0), "chunk 1 has 0");
  EXPECT_REFUSED(with_list(IR_STMT_CHUNK_SPLIT, "x", 1, NULL, 0), "must not be empty");
  EXPECT_REFUSED(CHUNKS("x", 1, INT64_MAX, 1), "does not fit 64 bits");
  expect_derivable();
}

static void split_kinds(void) {
  begin();
  ir_tensor x = INPUT("x", sym("a"), num(32), num(1));
  REDUCE("y", IR_OP_SUM, x, 1);
  EXPECT_STR(loop("y"), "[a, r 32, 1]");
  EXPECT(split("y", 1, 4));
  EXPECT_STR(loop("y"), "[a, r 8, r 4, 1]");
  EXPECT(outer_split("x", 2, 2)); /* of a broadcast: the remainder stays one position */
  EXPECT_STR(loop("x"), "[a, 32, 2, 1]");
  EXPECT_INT(axis("x", 2).kind, IR_AXIS_BROADCAST);
  EXPECT(IR_SAME(axis("x", 2).extent, num(1)) && IR_SAME(axis("x", 2).expanded, num(2)));
  EXPECT_INT(axis("x", 3).kind, IR_AXIS_BROADCAST);
  EXPECT_INT(axis("x", 3).expanded.id, 0);
  EXPECT(serial("x", 0));
  EXPECT(split("x", 0, 2));
  EXPECT_STR(loop("x"), "[ceildiv(a, 2) serial, 2 serial, 32, 2, 1]");
  expect_derivable();
}

static void split_limits(void) {
  begin();
  INPUT("x", num(2), num(2));
  for (int i = 2; i < IR_MAX_RANK; i++) EXPECT(split("x", 0, 2));
  EXPECT_REFUSED(split("x", 0, 2), "x has 16 loop axes already");
  EXPECT_REFUSED(CHUNKS("x", 0, 1), "x has 16 loop axes already");
  INPUT("m", num(4), num(4));
  EXPECT(device("m", 0, 0));
  EXPECT(stream("m", 1));
  EXPECT_REFUSED(split("m", 0, 2), "axis 0 of m is marked mesh.x: split it before marking it");
  EXPECT_REFUSED(CHUNKS("m", 1, 2, 2), "axis 1 of m is marked stream: split it before marking it");
  EXPECT_REFUSED(swizzle("m", 1, 0), "axis 1 of m is marked stream: swizzle it before marking it");
  EXPECT_REFUSED(merge("m", 0), "axis 0 of m is marked mesh.x: merge it before marking it");
}

/* ---- merge, reorder, swizzle ---- */
static void merges(void) {
  begin();
  ir_tensor x = INPUT("x", sym("a"), num(4), num(8), num(1));
  ir_tensor y = REDUCE("y", IR_OP_SUM, x, 1, 2);
  EXPECT(y.id);
  EXPECT(merge("x", 1));
  EXPECT_STR(loop("x"), "[a, 32, 1]");
  EXPECT(serial("x", 1));
  EXPECT(merge("x", -2));
  EXPECT_STR(loop("x"), "[a, 32 serial]");
  EXPECT_INT(axis("x", 1).kind, IR_AXIS_ITERATION);
  EXPECT(merge("x", 0));
  EXPECT_STR(loop("x"), "[32 * a serial]");
  EXPECT_REFUSED(merge("x", 0), "axis 0 is the last loop axis of x");
  EXPECT_REFUSED(merge("y", 0), "axis 1 of y is a reduction and axis 0 is not");
  EXPECT_REFUSED(merge("y", 2), "axis 2 of y is a reduction and axis 3 is not");
  EXPECT(merge("y", 1));
  EXPECT_STR(loop("y"), "[a, r 32, 1]");
  expect_derivable();
}

static void merge_broadcasts(void) {
  begin();
  INPUT("x", num(1), num(1), num(8));
  EXPECT(merge("x", 0));
  EXPECT_INT(axis("x", 0).kind, IR_AXIS_BROADCAST);
  EXPECT(outer_split("x", 0, 3));
  EXPECT_STR(loop("x"), "[3, 1, 8]");
  EXPECT(merge("x", 0));
  EXPECT_INT(axis("x", 0).kind, IR_AXIS_BROADCAST);
  EXPECT(IR_SAME(axis("x", 0).extent, num(1)) && IR_SAME(axis("x", 0).expanded, num(3)));
  EXPECT(merge("x", 0));
  EXPECT_STR(loop("x"), "[24]");
  EXPECT_INT(axis("x", 0).kind, IR_AXIS_ITERATION);
}

static void merge_overflow(void) {
  begin();
  INPUT("x", num(4), num(4));
  EXPECT(split("x", 0, INT64_C(1) << 62));
  EXPECT(split("x", 2, INT64_C(1) << 62));
  EXPECT(REORDER("x", 3, 2));
  EXPECT_REFUSED(merge("x", 1), "the extent of the merged axis of x does not fit 64 bits");
}

static void reorders(void) {
  begin();
  INPUT("x", num(2), num(3), num(4), num(5));
  EXPECT(REORDER("x", 2, 0));
  EXPECT_STR(loop("x"), "[4, 2, 3, 5]");
  EXPECT(REORDER("x", 0, -1, -1, 0));
  EXPECT_STR(loop("x"), "[5, 2, 3, 4]");
  EXPECT(REORDER("x", 2, 0, 1, 1));
  EXPECT_STR(loop("x"), "[3, 2, 5, 4]");
  EXPECT_REFUSED(REORDER("x", 0, 1, 0, 2), "axis 0 of x is moved twice");
  EXPECT_REFUSED(REORDER("x", 0, 1, -2, 1), "two axes of x are moved to position 1");
  EXPECT_REFUSED(REORDER("x", 4, 0), "axis 4 is out of range: x has 4 loop axes [3, 2, 5, 4]");
  EXPECT_REFUSED(REORDER("x", 0, 4), "axis 4 is out of range");
  EXPECT_STR(logical("x"), "[2, 3, 4, 5]");
  expect_derivable();
}

static void swizzles(void) {
  begin();
  INPUT("x", sym("t"), num(8));
  INPUT("z", sym("t"), num(8));
  ir_mesh d = mesh_of("d", 4, 0);
  EXPECT(outer_split("x", 1, 4));
  EXPECT(swizzle("x", 1, 0));
  EXPECT_STR(loop("x"), "[t, 4, 2]");
  EXPECT_INT(ir_transform_at(f, axis("x", 1).def)->kind, IR_SWIZZLE);
  EXPECT(stream("x", 1)); /* the outer part of a split, turned */
  EXPECT(on("x", d));
  EXPECT(on("z", d));
  EXPECT_REFUSED(swizzle("z", 1, 1), "there is no mesh.y");
  EXPECT(swizzle("z", 1, 0)); /* of any length */
  EXPECT(swizzle("z", 0, 0));
  INPUT("late", sym("u"), num(8));
  expect_derivable();
}

static void swizzle_before_mesh(void) {
  begin();
  INPUT("x", sym("t"), num(8));
  INPUT("y", num(8));
  INPUT("z", num(8));
  ir_mesh d = mesh_of("d", 4, 0);
  EXPECT(swizzle("y", 0, 0));
  EXPECT(split("y", 0, 2));
  EXPECT(on("y", d));
  EXPECT(swizzle("z", 0, 1));
  EXPECT_REFUSED(on("z", d), "z is on mesh d, which has 1 axis: there is no mesh.y");
  EXPECT(swizzle("x", 0, 0));
  EXPECT(on("x", d));
  expect_derivable();
}

/* ---- marks and meshes ---- */
static void marks(void) {
  begin();
  ir_tensor x = INPUT("x", num(2), num(4), num(2), num(2));
  REDUCE("y", IR_OP_SUM, x, 1, 3);
  EXPECT(device("y", 0, 0));
  EXPECT(device("y", 0, 0)); /* the same again is nothing new */
  EXPECT_REFUSED(device("y", 2, 0), "axis 0 of y is already marked mesh.x");
  EXPECT(device("y", 3, 0)); /* reduce-scatter */
  EXPECT_REFUSED(device("y", 1, 0), "only one reduction axis");
  EXPECT(device("y", 1, 1));
  EXPECT_REFUSED(stream("y", 0), "axis 0 of y is already marked mesh.x: an axis has one mark");
  EXPECT_REFUSED(serial("y", 0), "an axis has one mark");
  EXPECT_REFUSED(mark("y", 2, IR_MARK_NONE, 0), "a mark is");
  EXPECT(serial("y", 2));
  EXPECT_REFUSED(stream("y", 2), "axis 2 of y is already marked serial");
  EXPECT_STR(loop("y"), "[2 mesh.x, r 4 mesh.y, 2 serial, r 2 mesh.x]");
  EXPECT(stream("x", 0));
  EXPECT(stream("x", 1)); /* stream axes nest */
  expect_derivable();
}

static void stream_axes(void) {
  begin();
  INPUT("x", sym("a"), sym("b"));
  EXPECT(split("x", 0, 4));
  const char *must = "stream axes must be logical axes or the outer part of a split";
  EXPECT_REFUSED(stream("x", 1), must);
  EXPECT(stream("x", 0));
  EXPECT(merge("x", 1));
  EXPECT_REFUSED(stream("x", 1), must);
  INPUT("y", sym("a"), sym("b"));
  EXPECT(outer_split("y", 0, 2));
  EXPECT(outer_split("y", 0, 2));
  EXPECT(stream("y", 0)); /* outer of outer */
  EXPECT(outer_split("y", 2, 2));
  EXPECT_REFUSED(stream("y", 2), must); /* its slices would lie apart */
  INPUT("z", sym("a"), sym("b"));
  EXPECT(outer_split("z", 0, 2));
  EXPECT(device("z", 0, 0));
  EXPECT(outer_split("z", 1, 3));
  EXPECT(stream("z", 1)); /* a range of each device's part */
  EXPECT_REFUSED(stream("z", 2), must);
  EXPECT(stream("z", 3));
  EXPECT_STR(loop("z"), "[2 mesh.x, 3 stream, ceildiv(a, 6), b stream]");
  expect_derivable();
}

static void placement(void) {
  begin();
  INPUT("a", num(8), num(4));
  INPUT("b", num(8), sym("n"));
  ir_mesh d = mesh_of("d", 2, 0), g = mesh_of("g", 4, 2);
  EXPECT(on("a", d));
  EXPECT(on("a", d));
  EXPECT_REFUSED(on("a", g), "a is already on mesh d: a tensor lives on one mesh");
  EXPECT(ir_tensor_at(f, tensor("a"))->placed);
  EXPECT(IR_SAME(ir_tensor_at(f, tensor("a"))->mesh, d));
  EXPECT_REFUSED(device("a", 1, 0),
                 "axis 1 of a has 4 positions, but mesh d has 2 devices along x: split the axis "
                 "first (a.outer_split(1, d))");
  EXPECT_REFUSED(device("a", 1, 1), "a is on mesh d, which has 1 axis: there is no mesh.y");
  EXPECT(outer_split("a", 1, 2));
  EXPECT(device("a", 1, 0));
  EXPECT(device("b", 0, 1)); /* no mesh yet */
  EXPECT_REFUSED(on("b", d), "there is no mesh.y");
  EXPECT_REFUSED(on("b", g),
                 "axis 0 of b has 8 positions, but mesh g has 4 devices along y: split the "
                 "axis first (b.outer_split(0, g.y))");
  EXPECT(!ir_tensor_at(f, tensor("b"))->placed);
  INPUT("late", num(2));
  expect_derivable();
}

static void placement_of_many(void) {
  begin();
  INPUT("a", num(2), sym("n"));
  INPUT("b", num(3));
  ir_mesh d = mesh_of("d", 2, 0);
  EXPECT(device("b", 0, 0));
  ir_stmt s = stmt_of(IR_STMT_ON, "a");
  ir_target targets[3] = {{.name = name("a")}, {.name = name("b")}, {.name = name("n")}};
  s.targets = targets;
  s.n_targets = 3;
  s.mesh = d;
  uint32_t before = module.errors.errors;
  EXPECT(!add(s));
  EXPECT_INT(module.errors.errors, before + 2);  /* b does not fit, n is no tensor */
  EXPECT(!ir_tensor_at(f, tensor("a"))->placed); /* all or none */
  EXPECT(device("a", 1, 0));                     /* symbolic extents are left to binding */
  EXPECT(on("a", d));
}

static void names(void) {
  begin();
  INPUT("x", sym("n"), num(4));
  ir_mesh d = mesh_of("d", 2, 0);
  EXPECT_REFUSED(split("nobody", 0, 2), "there is no tensor called 'nobody'");
  EXPECT_REFUSED(split("n", 0, 2), "'n' is an extent: only tensors can be scheduled");
  EXPECT_REFUSED(on("d", d), "'d' is a mesh: only tensors can be scheduled");
}

/* ---- memory ---- */
static void layouts(void) {
  begin();
  ir_tensor x = INPUT("x", num(2), num(3), num(4), num(1));
  REDUCE("y", IR_OP_SUM, x, 1);
  EXPECT(memory("y", IR_MEMORY_SYMMETRIC));
  EXPECT_INT(ir_tensor_at(f, tensor("y"))->memory, IR_MEMORY_SYMMETRIC);
  EXPECT_STR(dense("y"), "t-t-");
  EXPECT(ALLOCATE("y", 2, 0, -2));
  EXPECT_STR(allocation("y"), "[1, r 3, 2, 4]");
  EXPECT_STR(dense("y"), "--tt");
  EXPECT(CONTIGUITY("y", 1, 0, 1)); /* the broadcast axis has no memory */
  EXPECT_STR(dense("y"), "--ft");
  EXPECT_REFUSED(CONTIGUITY("y", 1, 0), "contiguity takes one value per allocated axis: y has 3");
  EXPECT_REFUSED(ALLOCATE("y", 0, 1),
                 "allocate names each dimension once: y has 3, and 2 are given");
  EXPECT_REFUSED(ALLOCATE("y", 0, 1, 1), "allocate names dimension 1 of y twice");
  EXPECT_REFUSED(ALLOCATE("y", 0, 1, 3), "dimension 3 is out of range: y has 3");
  EXPECT_STR(loop("y"), "[2, r 3, 4, 1]");
  expect_derivable();
}

static void loop_layouts(void) {
  begin();
  ir_tensor x = INPUT("x", num(6), num(4), num(1));
  REDUCE("y", IR_OP_SUM, x, 1);
  EXPECT(CONTIGUITY("x", 0, 1, 1));
  EXPECT(split("x", 0, 2));
  EXPECT(split("x", 2, 2));
  EXPECT(as_loop("x"));
  EXPECT_STR(allocation("x"), "[3, 2, 2, 2, 1]");
  EXPECT_STR(dense("x"), "tftt-");
  EXPECT(merge("x", 2)); /* [3, 2, 4, 1]: the loop moves on, memory stays */
  EXPECT_STR(allocation("x"), "[3, 2, 2, 2, 1]");
  EXPECT(merge("x", 0)); /* t, f => f */
  EXPECT(as_loop("x"));
  EXPECT_STR(allocation("x"), "[6, 4, 1]");
  EXPECT_STR(dense("x"), "ft-");
  EXPECT(merge("x", 0));
  EXPECT_REFUSED(as_loop("x"), "x cannot be allocated as its loop domain");
  EXPECT_STR(allocation("x"), "[6, 4, 1]");
  EXPECT(split("y", 1, 2));
  EXPECT(REORDER("y", 1, 0));
  EXPECT(as_loop("y"));
  EXPECT_STR(allocation("y"), "[r 2, 6, r 2, 1]");
  EXPECT_STR(dense("y"), "-t--");
  expect_derivable();
}

/* Splitting and merging back again and again must not take exponential time. */
static void long_histories(void) {
  begin();
  INPUT("x", num(64), num(2));
  for (int i = 0; i < 200; i++) EXPECT(split("x", 0, 2) && merge("x", 0));
  EXPECT(as_loop("x"));
  EXPECT_STR(dense("x"), "tt");
  EXPECT(on("x", mesh_of("d", 2, 0)));
  EXPECT(device("x", 1, 0));
}

/* ---- whole schedules ---- */
static void applying(void) {
  begin();
  ir_tensor x = INPUT("x", sym("t"), num(8));
  REDUCE("y", IR_OP_SUM, x, 1);
  ir_stmt early = stmt_of(IR_STMT_SPLIT, "u"), bad = stmt_of(IR_STMT_RFACTOR, "y"),
          late = stmt_of(IR_STMT_SPLIT, "u"), good = stmt_of(IR_STMT_SPLIT, "x");
  early.factor = late.factor = good.factor = num(2);
  bad.result.name = name("u");
  bad.list = (int64_t[]){1};
  bad.n_list = 1;
  ir_build_stmt(f, &early);
  ir_build_stmt(f, &bad);
  ir_build_stmt(f, &late);
  ir_build_stmt(f, &good);
  EXPECT(!schedule_apply(f));
  EXPECT_STR(loop("x"), "[ceildiv(t, 2), 2, 8]"); /* the others are applied */
  EXPECT_INT(module.errors.errors, 2); /* what follows from a refusal is not said again */
  EXPECT_CONTAINS(module.errors.entries.data[0].message, "'u' does not exist yet");
  EXPECT_CONTAINS(module.errors.entries.data[1].message, "rfactor must leave a reduction axis");
  ir_func_unschedule(f);
  EXPECT(!f->applied);
  EXPECT_STR(schedule_axes_text(f, ir_tensor_at(f, x)->now.loop), "[t, 8]");
}

/* The operations of many rfactors are in the same order, added one by one or applied at once. */
static void many_rfactors(void) {
  begin();
  ir_tensor x = INPUT("x", sym("t"), num(8), num(4));
  char text[8];
  for (int i = 0; i < 20; i++) {
    (void)snprintf(text, sizeof text, "y%d", i);
    REDUCE(text, IR_OP_SUM, x, 1, 2);
  }
  int added = 0;
  for (int i = 0; i < 20; i++) {
    (void)snprintf(text, sizeof text, "y%d", i);
    ir_stmt stmt = stmt_of(IR_STMT_RFACTOR, text);
    (void)snprintf(text, sizeof text, "u%d", i);
    stmt.result.name = name(text);
    int64_t axis_2 = i == 7 ? 0 : 2;
    stmt.list = arena_copy(&module.memory, &axis_2, sizeof axis_2);
    stmt.n_list = 1;
    added += schedule_add(f, &stmt);
  }
  EXPECT_INT(added, 19);
  EXPECT_INT(f->statements.len, 19);
  EXPECT_INT(f->scheduled.len, 39);
  expect_derivable();
}

/* ---- the original's sharding tests (reference §5.24): their domains, for 4 devices ---- */
static void sharding_one_axis(void) {
  begin();
  INPUT("inner", num(12));
  EXPECT(split("inner", 0, 4) && device("inner", 1, 0));
  EXPECT_STR(loop("inner"), "[3, 4 mesh.x]");
  INPUT("middle", num(24));
  EXPECT(outer_split("middle", 0, 2) && outer_split("middle", 1, 4) && device("middle", 1, 0));
  EXPECT_STR(loop("middle"), "[2, 4 mesh.x, 3]");
  ir_tensor inp = INPUT("inp", num(2), num(12));
  REDUCE("out", IR_OP_SUM, inp, 1);
  EXPECT(outer_split("inp", 1, 4) && device("inp", 1, 0));
  EXPECT(outer_split("out", 1, 4) && device("out", 1, 0));
  EXPECT_STR(loop("inp"), "[2, 4 mesh.x, 3]");
  EXPECT_STR(loop("out"), "[2, r 4 mesh.x, r 3]");
}

static void sharding_grid(void) {
  begin();
  INPUT("matrix", num(4), num(6));
  INPUT("vector", num(24));
  INPUT("context", num(2), num(12), num(5));
  ir_mesh g = mesh_of("g", 2, 2);
  EXPECT(on("matrix", g) && on("vector", g) && on("context", g));
  EXPECT(split_mesh("matrix", 0, g, 1, true) && device("matrix", 0, 1));
  EXPECT(split_mesh("matrix", 2, g, 0, true) && device("matrix", 2, 0));
  EXPECT_STR(loop("matrix"), "[2 mesh.y, 2, 2 mesh.x, 3]");
  EXPECT(split("vector", 0, 6));
  EXPECT(split_mesh("vector", 0, g, 1, true) && device("vector", 0, 1));
  EXPECT(split_mesh("vector", 2, g, 0, true) && device("vector", 2, 0));
  EXPECT_STR(loop("vector"), "[2 mesh.y, 2, 2 mesh.x, 3]");
  EXPECT(split_mesh("context", 1, g, 0, true) && device("context", 1, 0));
  EXPECT(split_mesh("context", 2, g, 1, true) && device("context", 2, 1));
  EXPECT(REORDER("context", 2, 0, 1, 1));
  EXPECT_STR(loop("context"), "[2 mesh.y, 2 mesh.x, 2, 3, 5]");
  expect_derivable();
}

static void sharding_broadcasts(void) {
  begin();
  ir_tensor x = INPUT("x", num(2), num(1));
  ir_attr shape = {.given = true, .len = 2, .scalars = (ir_scalar[]){num(2), num(12)}};
  ir_build_op(f, IR_OP_EXPAND, &x, 1, &shape, name("wide"), (loc){0});
  EXPECT(outer_split("wide", 1, 4) && device("wide", 1, 0));
  EXPECT_STR(loop("wide"), "[2, 4 mesh.x, 3]");
  EXPECT_INT(axis("wide", 1).kind, IR_AXIS_BROADCAST);
  EXPECT_INT(axis("wide", 2).kind, IR_AXIS_BROADCAST);
  EXPECT(as_loop("wide"));
  EXPECT_STR(dense("wide"), "t--");
  INPUT("row", num(1), num(12));
  EXPECT(outer_split("row", 1, 4) && device("row", 1, 0));
  EXPECT_STR(loop("row"), "[1, 4 mesh.x, 3]");
  EXPECT_STR(dense("row"), "-t");
}

int main(void) {
  static void (*const tests[])(void) = {splits,
                                        split_factors,
                                        positions,
                                        chunks,
                                        split_kinds,
                                        split_limits,
                                        merges,
                                        merge_broadcasts,
                                        merge_overflow,
                                        reorders,
                                        swizzles,
                                        swizzle_before_mesh,
                                        marks,
                                        stream_axes,
                                        placement,
                                        placement_of_many,
                                        names,
                                        layouts,
                                        loop_layouts,
                                        long_histories,
                                        applying,
                                        many_rfactors,
                                        sharding_one_axis,
                                        sharding_grid,
                                        sharding_broadcasts};
  return run_all(tests, sizeof tests / sizeof *tests);
}
