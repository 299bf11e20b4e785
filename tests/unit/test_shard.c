/* Placements, and whether data has to move: the device-free rows of the reference's tests
 * (test_sharding, test_resharding), and what they leave out. */
#include "unit/shard_kit.h"

static shard_axis placed(const char *t, uint32_t k) {
  shard_placement p;
  shard_placement_of(f, tensor(t), &p);
  return p.axes[k];
}

static bool differs(const char *t, uint32_t operand, uint32_t k) {
  return shard_differs(ctx, def(t), operand, k);
}

/* ---- placements ---- */

static void placement_rows(void) {
  /* LogicalIsSharded */
  if (program("mesh d = [3]\nx : f32[a, b, 3]\ny = set(x)\nreturn y\n"
              "schedule { x on d; x[2] = mesh.x; x.split(0, 4) }")) {
    shard_axis a = placed("x", 0);
    EXPECT_INT(a.kind, SHARD_SHARDED);
    EXPECT_INT(a.cut, SHARD_WHOLE);
    EXPECT_INT(a.dim, 2);
    EXPECT(a.contiguous && !a.nested);
  }
  /* AllocationIsSharded */
  if (program("mesh d = [3]\nx : f32[a, 12, c]\ny = set(x)\nreturn y\n"
              "schedule { x on d; x.split(1, 4); x[1] = mesh.x; x.allocate_as_loop() }")) {
    shard_axis a = placed("x", 0);
    EXPECT_INT(a.kind, SHARD_SHARDED);
    EXPECT_INT(a.cut, SHARD_OUTER);
    EXPECT_STR(ir_scalar_text(f, a.piece), "4");
  }
  /* MultipleDIDx: refused by the schedule already */
  EXPECT(!try_program("mesh d = [2]\nx : f32[4]\ny = set(x)\nreturn y\n"
                      "schedule { x on d; x.split(0, 2); x[0] = mesh.x; x[1] = mesh.x }"));
  EXPECT_CONTAINS(errors(), "already marked mesh.x");
  /* Allreduce, ReductionScatter */
  if (program(
          "mesh d = [2]\nx : f32[2, 2]\ny = sum(x, dims=[0])\nz = sum(x, dims=[0])\nreturn y, z\n"
          "schedule { x, y, z on d; x[0] = mesh.x; y[0] = mesh.x\n"
          "  z[0] = mesh.x; z[1] = mesh.x }")) {
    EXPECT_INT(placed("y", 0).kind, SHARD_PARTIAL);
    EXPECT_INT(placed("y", 0).dim, 0);
    EXPECT_INT(placed("z", 0).kind, SHARD_SHARDED);
    EXPECT_INT(placed("z", 0).dim, 0);
    EXPECT(placed("z", 0).reduced.id != 0);
    EXPECT(resharding("y") && resharding("z"));
  }
}

static void placement_cuts(void) {
  if (program("mesh g = [2, 2]\nx : f32[a, b]\ny = set(x)\nreturn y\n"
              "schedule { x, y on g; x.outer_split(0, g.y); x.outer_split(1, g.x)\n"
              "  x[0] = mesh.y; x[1] = mesh.x\n"
              "  y.split(1, 2); y[2] = mesh.x; y.outer_split(0, 2); y[0] = mesh.y }")) {
    shard_axis y = placed("x", 1), x = placed("x", 0);
    EXPECT(y.cut == SHARD_OUTER && !y.nested && y.contiguous && y.dim == 0);
    EXPECT(x.cut == SHARD_OUTER && x.nested && x.contiguous && x.dim == 0);
    EXPECT_STR(ir_scalar_text(f, x.piece), "ceildiv(a, 4)");
    x = placed("y", 0);
    EXPECT(x.cut == SHARD_INNER && !x.contiguous && x.dim == 1);
    EXPECT_STR(ir_scalar_text(f, x.piece), "2");
    EXPECT_INT(placed("y", 2).kind, SHARD_REPLICATED);
  }
  if (program("mesh d = [3]\nx : f32[10, 1]\ny = set(x)\nreturn y\n"
              "schedule { x, y on d; x.outer_split(0, [5, 2, 3]); x[0] = mesh.x\n"
              "  y.merge(0); y.outer_split(0, 3); y[0] = mesh.x }")) {
    EXPECT_INT(placed("x", 0).cut, SHARD_CHUNKS);
    EXPECT_INT(placed("x", 0).chunks[2], 3);
    EXPECT(placed("y", 0).cut == SHARD_OUTER && placed("y", 0).contiguous); /* merged with 1 */
  }
  if (program("mesh d = [3]\nx : f32[6, 2]\ny = set(x)\nreturn y\n"
              "schedule { x, y on d; y.merge(0); y.outer_split(0, 3); y[0] = mesh.x }"))
    EXPECT(placed("y", 0).cut == SHARD_MERGED && !placed("y", 0).contiguous);
  if (program("mesh g = [2, 2]\nx : f32[2, 4]\ny = broadcast(x, [true, false, false])\nreturn y\n"
              "schedule { x, y on g; x.swizzle(0, mesh.y); x[0] = mesh.x\n"
              "  y.outer_split(0, 2); y[0] = mesh.x }")) {
    EXPECT(placed("x", 0).swizzled && placed("x", 0).swizzle_axis == 1);
    EXPECT_INT(placed("y", 0).kind, SHARD_REPLICATED); /* a broadcast axis */
    EXPECT(placed("y", 0).loop.id != 0);
  }
}

/* ---- test_resharding: set ---- */

static void set_rows(void) {
  const char *head =
      "mesh d = [2]\nmesh e = [2] of {0, 2}\nx : f32[2, b, c]\ny = set(x)\nreturn y\n";
#define SET(schedule) program("%sschedule { %s }", head, schedule)
  if (SET("x, y on d")) EXPECT(!resharding("y"));
  if (SET("x on d; y on e")) EXPECT(resharding("y"));
  if (SET("x, y on d; y[0] = mesh.x")) EXPECT(resharding("y"));
  if (SET("x, y on d; x[0] = mesh.x; y[0] = mesh.x")) EXPECT(!resharding("y"));
  if (SET("x, y on d; x[0] = mesh.x")) EXPECT(resharding("y"));
  if (SET("")) EXPECT(!resharding("y")); /* no meshes */
#undef SET
  /* Allgather */
  if (program("mesh d = [2]\nx : f32[a, b]\ny = set(x)\nreturn y\n"
              "schedule { x, y on d; x.outer_split(0, 2); x[0] = mesh.x }"))
    EXPECT(resharding("y"));
}

/* SplitingView, MergingView */
static void view_rows(void) {
  if (program("mesh d = [2]\nx : f32[b, s, 12288]\ny = reshape(x, [b, s, 96, 128])\nreturn y\n"
              "schedule { x, y on d; x.outer_split(2, 2); x[2] = mesh.x\n"
              "  y.outer_split(2, 2); y[2] = mesh.x }"))
    EXPECT(!resharding("y"));
  if (program("mesh d = [2]\nx : f32[b, s, 96, 128]\ny = reshape(x, [b, s, 12288])\nreturn y\n"
              "schedule { x, y on d; x.outer_split(2, 2); x[2] = mesh.x\n"
              "  y.outer_split(2, 2); y[2] = mesh.x }"))
    EXPECT(!resharding("y"));
  if (program("mesh d = [2]\nx : f32[b, 6, 4]\ny = reshape(x, [b, 24])\nreturn y\n"
              "schedule { x, y on d; x.outer_split(1, 2); x[1] = mesh.x\n"
              "  y.split(1, 2); y[2] = mesh.x }"))
    EXPECT(resharding("y")); /* ranges against every second position */
  if (program("mesh d = [2]\nx : f32[b, 6, h]\ny = reshape(x, [b, 6 * h])\nreturn y\n"
              "schedule { x, y on d; x.outer_split(1, 2); x[1] = mesh.x\n"
              "  y.outer_split(1, 2); y[1] = mesh.x }"))
    EXPECT(!resharding("y")); /* symbolic, and it divides */
  if (program("mesh d = [2]\nx : f32[b, 5, h]\ny = reshape(x, [b, 5 * h])\nreturn y\n"
              "schedule { x, y on d; x.outer_split(1, 2); x[1] = mesh.x\n"
              "  y.outer_split(1, 2); y[1] = mesh.x }"))
    EXPECT(resharding("y")); /* it does not */
}

static void sum_rows(void) {
  const char *head = "mesh d = [2]\nmesh e = [2] of {0, 2}\nx : f32[2, 2, c]\n";
#define SUM(dims, schedule)                                                                        \
  program("%sy = sum(x, dims=[%s])\nreturn y\nschedule { %s }", head, dims, schedule)
  if (SUM("0", "x, y on d")) EXPECT(!resharding("y"));
  if (SUM("0", "x on d; y on e")) EXPECT(resharding("y"));
  if (SUM("0", "x, y on d; x[0] = mesh.x; y[1] = mesh.x")) EXPECT(resharding("y"));
  if (SUM("1", "x, y on d; x[0] = mesh.x; y[0] = mesh.x")) EXPECT(!resharding("y"));
  if (SUM("0", "x, y on d; x[0] = mesh.x")) EXPECT(resharding("y"));
  if (SUM("0", "x, y on d; x[0] = mesh.x; y[0] = mesh.x")) EXPECT(resharding("y"));
  if (SUM("0", "x, y on d; y[0] = mesh.x")) EXPECT(!resharding("y")); /* partial is replicated */
#undef SUM
  /* ReduceScatter, Allreduce */
  if (program("mesh d = [2]\nx : f32[2, 2, 6]\ny = sum(x, dims=[0])\nreturn y\n"
              "schedule { x, y on d; x[0] = mesh.x; y.outer_split(-1, 2); y[-2] = mesh.x }"))
    EXPECT(resharding("y"));
  if (program("mesh d = [2]\nx : f32[2, 2, 3]\nr = sum(x, dims=[0])\ny = r + r\nreturn y\n"
              "schedule { x, r, y on d; x[0] = mesh.x; r[0] = mesh.x }"))
    EXPECT(resharding("r") && !resharding("y"));
}

static void add_rows(void) {
  const char *head = "mesh d = [3]\nmesh e = [3] of {0, 1, 3}\nx : f32[3, b]\ny : f32[3, b]\n"
                     "z = x + y\nreturn z\n";
#define ADD(schedule) program("%sschedule { %s }", head, schedule)
  if (ADD("x, y, z on d")) EXPECT(!resharding("z"));
  if (ADD("x, y on d; z on e")) EXPECT(resharding("z"));
  if (ADD("x, y, z on d; z[0] = mesh.x")) EXPECT(resharding("z"));
  if (ADD("x, y, z on d; x[0] = mesh.x; y[0] = mesh.x")) EXPECT(resharding("z"));
  if (ADD("x, y, z on d; x[0] = mesh.x; y[0] = mesh.x; z[0] = mesh.x")) EXPECT(!resharding("z"));
  if (ADD("x, y, z on d; x[0] = mesh.x; z[0] = mesh.x")) {
    EXPECT(resharding("z"));
    EXPECT(!differs("z", 0, 0) && differs("z", 1, 0));
  }
#undef ADD
  /* Add_Broadcast, Broadcast: sharding a broadcast axis is free */
  if (program(
          "mesh d = [3]\nx : f32[3, i]\ny : f32[i]\nw = broadcast(y, [true, false])\nz = x + w\n"
          "return z\nschedule { x, y, w, z on d; x[0] = mesh.x; z[0] = mesh.x\n"
          "  w.outer_split(0, 3); w[0] = mesh.x }"))
    EXPECT(!resharding("w") && !resharding("z"));
  if (program("mesh d = [2]\nx : f32[a, b]\ny = broadcast(x, [true, false, false])\nreturn y\n"
              "schedule { x, y on d; y.outer_split(0, 2); y[0] = mesh.x }"))
    EXPECT(!resharding("y"));
}

static void matmul_rows(void) {
  const char *head = "mesh d = [2]\nx : f32[2, k]\ny : f32[k, 2]\nz = matmul(x, y)\nreturn z\n";
#define MATMUL(schedule) program("%sschedule { x, y, z on d; %s }", head, schedule)
  if (MATMUL("x[0] = mesh.x; z[0] = mesh.x")) EXPECT(!resharding("z"));
  if (MATMUL("x[0] = mesh.x; y[1] = mesh.x; z[0] = mesh.x")) EXPECT(resharding("z"));
  if (MATMUL("x.outer_split(1, 2); x[1] = mesh.x; y.outer_split(0, 2); y[0] = mesh.x"))
    EXPECT(resharding("z"));
  /* the local part of a row-parallel matmul needs nothing, its sum everything */
  if (MATMUL("x.outer_split(1, 2); x[1] = mesh.x; y.outer_split(0, 2); y[0] = mesh.x\n"
             "z.outer_split(2, 2); z[2] = mesh.x; u = z.rfactor([3])"))
    EXPECT(!resharding("u") && resharding("z"));
#undef MATMUL
}

static void squeeze_rows(void) {
  const char *head = "mesh d = [2]\nx : f32[2, 1]\ny = squeeze(x, dims=[1])\nreturn y\n";
  if (program("%sschedule { x, y on d; x.merge(0); x[0] = mesh.x }", head)) EXPECT(resharding("y"));
  if (program("%sschedule { x, y on d; x.merge(0); x[0] = mesh.x; y[0] = mesh.x }", head))
    EXPECT(!resharding("y")); /* 0 <= i < 1 is 0 */
}

/* DIDsNotInvolved: only the mesh axes that exist can differ. */
static void not_involved(void) {
  if (!program("mesh d = [2]\nmesh e = [1]\nx : f32[2, b]\ny = set(x)\nreturn y\n"
               "schedule { x on d; x[0] = mesh.x; y on e }"))
    return;
  EXPECT(differs("y", 0, 0));
  EXPECT(!differs("y", 0, 1));
  EXPECT(!differs("y", 0, 2));
}

static void select_rows(void) {
  const char *head = "mesh d = [2]\nx : f32[2, 2, c]\ny = select(x, dim=0, index=1)\nreturn y\n";
  if (program("%sschedule { x, y on d; x[1] = mesh.x; y[0] = mesh.x }", head))
    EXPECT(!resharding("y"));
  if (program("%sschedule { x, y on d; x[0] = mesh.x }", head)) EXPECT(resharding("y"));
  if (program("%sschedule { x, y on d; x[1] = mesh.x }", head)) EXPECT(resharding("y"));
}

static void swizzle_rows(void) {
  const char *head = "mesh d = [2]\nx : f32[a, b]\ny = set(x)\nreturn y\n";
  /* Swizzle1D_DIDToStream */
  if (program("%sschedule { x, y on d; x.outer_split(0, 2); x[0] = mesh.x\n"
              "  y.outer_split(0, 2); y.swizzle(0, mesh.x); y[0] = stream }",
              head))
    EXPECT(differs("y", 0, 0) && resharding("y"));
  /* Swizzle1D_ConsistentSwizzle: streams never count */
  if (program("%sschedule { x, y on d; x.outer_split(0, 2); x.swizzle(0, mesh.x); x[0] = stream\n"
              "  y.outer_split(0, 2); y.swizzle(0, mesh.x); y[0] = stream }",
              head))
    EXPECT(!resharding("y"));
  if (program("%sschedule { x, y on d; x.outer_split(0, 2); x[0] = stream }", head))
    EXPECT(!resharding("y"));
  const char *grid = "mesh g = [2, 2]\nx : f32[a, b]\ny = set(x)\nreturn y\n";
  if (program("%sschedule { x, y on g; x.outer_split(0, 2); x.swizzle(0, mesh.y); x[0] = mesh.x\n"
              "  y.outer_split(0, 2); y.swizzle(0, mesh.y); y[0] = mesh.x }",
              grid))
    EXPECT(!resharding("y"));
  if (program("%sschedule { x, y on g; x.outer_split(0, 2); x.swizzle(0, mesh.y); x[0] = mesh.x\n"
              "  y.outer_split(0, 2); y[0] = mesh.x }",
              grid))
    EXPECT(differs("y", 0, 0) && !differs("y", 0, 1));
}

/* ---- what the rows leave out ---- */

static void indexes(void) {
  const char *head = "mesh d = [2]\nx : f32[n, 8]\ny = set(x)\nreturn y\n";
#define SET(schedule) program("%sschedule { x, y on d; %s }", head, schedule)
  /* [n/4 ranges] in two steps or in one */
  const char *grid = "mesh g = [2, 2]\nx : f32[8, b]\ny = set(x)\nreturn y\n";
  if (program("%sschedule { x, y on g; x.outer_split(0, 2); x.outer_split(1, 2); x[0] = mesh.y\n"
              "  x[1] = mesh.x; y.outer_split(0, 4); y.split(0, 2); y[0] = mesh.y; y[1] = mesh.x }",
              grid))
    EXPECT(!resharding("y"));
  if (SET("x.outer_split(1, 2); x[1] = mesh.x; y.outer_split(1, [4, 4]); y[1] = mesh.x"))
    EXPECT(!resharding("y"));
  if (SET("x.outer_split(1, 2); x[1] = mesh.x; y.outer_split(1, [5, 3]); y[1] = mesh.x"))
    EXPECT(resharding("y"));
  if (SET("x.outer_split(1, [5, 3]); x[1] = mesh.x; y.outer_split(1, [5, 3]); y[1] = mesh.x"))
    EXPECT(!resharding("y"));
  if (SET("x.split(1, 2); x[2] = mesh.x; y.split(1, 4); y.split(2, 2); y[3] = mesh.x"))
    EXPECT(!resharding("y")); /* (i % 4) % 2 */
  if (SET("x.split(1, 4); x[1] = mesh.x; y.split(1, 2); y.merge(1); y.split(1, 4); y[1] = mesh.x"))
    EXPECT(!resharding("y")); /* split and merged back */
  if (SET("x.split(1, 2); x[2] = mesh.x; y.outer_split(1, 2); y[1] = mesh.x"))
    EXPECT(resharding("y"));
  if (SET("x.merge(0); x.outer_split(0, 2); x[0] = mesh.x; y.outer_split(0, 2); y[0] = mesh.x"))
    EXPECT(resharding("y")); /* n may be odd */
#undef SET
}

static void operations(void) {
  const char *d = "mesh d = [2]\n";
  if (program("%sx : f32[2, n]\ny = softmax(x, dim=0)\nreturn y\n"
              "schedule { x, y on d; x[0] = mesh.x; y[0] = mesh.x }",
              d))
    EXPECT(resharding("y")); /* every position needs all */
  if (program("%sx : f32[2, n]\ny = softmax(x, dim=1)\nreturn y\n"
              "schedule { x, y on d; x[0] = mesh.x; y[0] = mesh.x }",
              d))
    EXPECT(!resharding("y"));
  if (program("%sx : f32[2, n]\ny : f32[2, n]\nz = cat(x, y, dim=0)\nreturn z\n"
              "schedule { x, y, z on d; x[0] = mesh.x; y[0] = mesh.x }",
              d))
    EXPECT(resharding("z"));
  if (program("%sx : f32[2, n]\ni : i64[4]\ny = index_select(x, i, dim=0)\nreturn y\n"
              "schedule { x, i, y on d; x[0] = mesh.x }",
              d))
    EXPECT(differs("y", 0, 0) && !differs("y", 1, 0));
  if (program("%sx : f32[2, n]\ni : i64[2]\ny = index_select(x, i, dim=0)\nreturn y\n"
              "schedule { x, i, y on d; i[0] = mesh.x; y[0] = mesh.x }",
              d))
    EXPECT(!resharding("y")); /* x is needed whole, and there */
  if (program("%sx : f32[8, n]\ny = slice(x, starts=[2, 0], stops=[8, n])\nreturn y\n"
              "schedule { x, y on d; x.split(0, 2); x[1] = mesh.x; y.split(0, 2); y[1] = mesh.x }",
              d))
    EXPECT(!resharding("y")); /* every second row, shifted by an even number */
  if (program("%sx : f32[8, n]\ny = slice(x, starts=[1, 0], stops=[7, n])\nreturn y\n"
              "schedule { x, y on d; x.split(0, 2); x[1] = mesh.x; y.split(0, 2); y[1] = mesh.x }",
              d))
    EXPECT(resharding("y"));
  if (program("%sx : f32[4, n]\ny = permute(x, [1, 0])\nreturn y\n"
              "schedule { x, y on d; x.outer_split(0, 2); x[0] = mesh.x\n"
              "  y.outer_split(1, 2); y[1] = mesh.x }",
              d))
    EXPECT(!resharding("y"));
  if (program("%sx : f32[a, n]\ny : f32[b, n]\nz = x * y\nreturn z\n"
              "schedule { x, y, z on d; x.outer_split(0, 2); x[0] = mesh.x\n"
              "  y.outer_split(0, 2); y[0] = mesh.x; z.outer_split(0, 2); z[0] = mesh.x }",
              d))
    EXPECT(!resharding("z")); /* a == b is known from the operation */
  if (program("%sx : f32[2, n]\ny = x * 2\nreturn y\n"
              "schedule { x, y on d; x[0] = mesh.x; y[0] = mesh.x }",
              d))
    EXPECT(!resharding("y"));
}

static void meshes(void) {
  const char *body = "x : f32[4, 4]\ny = set(x)\nreturn y\n";
#define SET(meshes, schedule) program("%s%sschedule { x on p; y on q; %s }", meshes, body, schedule)
  const char *x0 = "x.outer_split(0, 2); x[0] = mesh.x; y.outer_split(0, 2); y[0] = mesh.x";
  const char *y0 = "x.outer_split(0, 2); x[0] = mesh.y; y.outer_split(0, 2); y[0] = mesh.y";
  const char *turned = "mesh p = [2]\nmesh q = [2] of {1, 0}\n";
  if (SET(turned, x0)) EXPECT(resharding("y"));
  if (SET(turned, "")) EXPECT(!resharding("y")); /* replicated on the same devices */
  const char *rows = "mesh p = [2, 2]\nmesh q = [2, 2] of {1, 0, 3, 2}\n";
  if (SET(rows, y0)) EXPECT(!resharding("y")); /* only the order along x, which is replicated */
  if (SET(rows, x0)) EXPECT(differs("y", 0, 0) && !differs("y", 0, 1));
  const char *fewer = "mesh p = [2, 2]\nmesh q = [2]\n";
  if (SET(fewer, x0)) EXPECT(!resharding("y")); /* all that is needed is there */
  const char *more = "mesh p = [2]\nmesh q = [2, 2]\n";
  if (SET(more, x0)) EXPECT(!differs("y", 0, 0) && differs("y", 0, 1));
  const char *apart = "mesh p = [2]\nmesh q = [2] of {5, 6}\n";
  if (SET(apart, "")) EXPECT(differs("y", 0, 0) && !differs("y", 0, 1));
  const char *flat = "mesh p = [1, 2]\nmesh q = [2]\n";
  if (SET(flat, x0)) EXPECT(!resharding("y")); /* an axis of one device is no axis */
  if (SET("mesh p = [1]\nmesh q = [1]\n", "x.outer_split(0, 1); x[0] = mesh.x"))
    EXPECT(!resharding("y"));
#undef SET
  if (program("mesh d = [2]\nx : f32[2]\ny = set(x)\nz = set(y)\nreturn z\n"
              "schedule { x, z on d; x[0] = mesh.x; z[0] = mesh.x }"))
    EXPECT(resharding("y") && resharding("z")); /* y is not placed: replicated */
}

/* ---- before or after ---- */

static void positions(void) {
  const char *d = "mesh d = [2]\n";
#define BEFORE(name) shard_prefer_before(ctx, def(name), 0)
  if (program("%sx : f32[2, n]\ny : f32[2, n]\nz = x + y\nreturn z\n"
              "schedule { x, y, z on d; x[0] = mesh.x; y[0] = mesh.x }",
              d))
    EXPECT(!BEFORE("z")); /* one gather instead of two */
  if (program("%sx : f32[2, n]\ny : f32[2, n]\nz = x + y\nreturn z\n"
              "schedule { x, y, z on d; x[0] = mesh.x; z[0] = mesh.x }",
              d))
    EXPECT(BEFORE("z")); /* the operands lie differently */
  if (program("%sx : f32[2, n]\ny = relu(x)\nreturn y\nschedule { x, y on d; x[0] = mesh.x }", d))
    EXPECT(!BEFORE("y")); /* equal: after, with one operand */
  if (program("%sx : f32[2, n]\ny = cast(x, f64)\nreturn y\nschedule { x, y on d; x[0] = mesh.x }",
              d))
    EXPECT(BEFORE("y")); /* half the bytes */
  if (program("%sx : f32[2, 5, n]\ny = sum(x, dims=[1])\nreturn y\n"
              "schedule { x, y on d; x[0] = mesh.x }",
              d))
    EXPECT(!BEFORE("y"));
  if (program("%sx : f32[2, 1, n]\ny = expand(x, [2, 5, n])\nw : f32[5, n]\nz = y + w\nreturn z\n"
              "schedule { x, y, w, z on d; x[0] = mesh.x; y[0] = mesh.x }",
              d))
    EXPECT(BEFORE("z"));
  if (program("%sx : f32[t, 4 ]\nw : f32[16, 4]\ny = linear(x, w)\nreturn y\n"
              "schedule { x, w, y on d; x.outer_split(0, 2); x[0] = mesh.x }",
              d))
    EXPECT(BEFORE("y")); /* 4 columns before, 16 after */
  if (program("%sx : f32[t, 16]\nw : f32[4, 16]\ny = linear(x, w)\nreturn y\n"
              "schedule { x, w, y on d; x.outer_split(0, 2); x[0] = mesh.x }",
              d))
    EXPECT(!BEFORE("y"));
  if (program("%sx : f32[m, 8]\ny : f32[8, n]\nz = matmul(x, y)\nreturn z\n"
              "schedule { x, y, z on d; x.outer_split(1, 2); x[1] = mesh.x\n"
              "  y.outer_split(0, 2); y[0] = mesh.x }",
              d))
    EXPECT(BEFORE("z")); /* partial results are another matter */
#undef BEFORE
}

int main(void) {
  placement_rows();
  placement_cuts();
  set_rows();
  view_rows();
  sum_rows();
  add_rows();
  matmul_rows();
  squeeze_rows();
  not_involved();
  select_rows();
  swizzle_rows();
  indexes();
  operations();
  meshes();
  positions();
  forget();
  return test_finish();
}
