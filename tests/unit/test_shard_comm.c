/* The communication rule, row by row: kind, dimensions, teams and roots, layout, bytes. */
#include "unit/shard_kit.h"

/* "allgather x 0>1 (2 0)(1 3)": the mesh axis, dimension before > after, the teams; a root is marked
 * by a star, and "*i" says that it is the iteration. */
static const char *comm_text(const ir_op_data *op) {
  shard_comm m;
  strbuf out;
  strbuf_init(&out, &module.memory);
  switch (shard_comm_of(ctx, op, &m)) {
  case SHARD_ONE: break;
  case SHARD_SEVERAL: strbuf_printf(&out, "several %x", m.changed); return out.data;
  case SHARD_COMPUTES: return "computes";
  case SHARD_UNSUPPORTED: return m.why;
  }
  strbuf_puts(&out, shard_comm_name(m.kind));
  if (m.reduces) strbuf_printf(&out, " %s", ir_combine_text(m.combine));
  if (m.mesh_axis != SHARD_NO_AXIS) strbuf_printf(&out, " %c", "xyz"[m.mesh_axis]);
  if (m.from_dim != SHARD_NO_DIM || m.to_dim != SHARD_NO_DIM)
    strbuf_printf(&out, " %d>%d", m.from_dim, m.to_dim);
  if (m.sliced) strbuf_puts(&out, " sliced");
  shard_teams teams = shard_comm_teams(ctx, &m, SHARD_EVERY_DEVICE);
  for (uint32_t i = 0; i < teams.list.len; i++) {
    const shard_team *t = &teams.list.data[i];
    strbuf_puts(&out, i == 0 ? " (" : "(");
    for (uint32_t k = 0; k < t->len; k++) {
      strbuf_printf(&out, "%s%s%d", k ? " " : "", (int32_t)k == t->root ? "*" : "",
                    (int)t->devices[k]);
    }
    strbuf_puts(&out, t->root == SHARD_ROOT_ITERATION ? " *i)" : ")");
  }
  return out.data;
}

static const char *comm(const char *name) { return comm_text(def(name)); }

#define SET(meshes, schedule)                                                                      \
  program("%s\nx : f32[8, 12]\ny = set(x)\nreturn y\nschedule { x on p; y on q; %s }", meshes,     \
          schedule)
#define EXPECT_COMM(name, text) EXPECT_STR(comm(name), text)

#define X0 "x.outer_split(0, 2); x[0] = mesh.x; "
#define Y0 "y.outer_split(0, 2); y[0] = mesh.x; "
#define X1 "x.outer_split(1, 2); x[1] = mesh.x; "
#define Y1 "y.outer_split(1, 2); y[1] = mesh.x; "

/* ---- 1-D meshes ---- */

static void set_same_mesh(void) {
  const char *same = "mesh p = [2] of {4, 1}\nmesh q = [2] of {4, 1}";
  if (SET(same, "")) EXPECT_COMM("y", "none");
  if (SET(same, X0)) EXPECT_COMM("y", "allgather x 0>0 (4 1)");
  if (SET(same, X1)) EXPECT_COMM("y", "allgather x 1>1 (4 1)");
  if (SET(same, Y0)) EXPECT_COMM("y", "local_slice x 0>0");
  if (SET(same, X0 Y0)) EXPECT_COMM("y", "none");
  if (SET(same, X0 Y1)) EXPECT_COMM("y", "all_to_all x 0>1 (4 1)");
  if (SET(same, X0 "y.split(0, 2); y[1] = mesh.x")) EXPECT_COMM("y", "all_to_all x 0>0 (4 1)");
  if (SET(same, "x.split(0, 2); x[1] = mesh.x")) EXPECT_COMM("y", "allgather x 0>0 (4 1)");
}

static void set_other_mesh(void) {
  const char *inside = "mesh p = [2] of {1, 2}\nmesh q = [2] of {0, 2}";
  if (SET(inside, X0)) EXPECT_COMM("y", "gather x 0>0 (1 2 *0)(1 *2)"); /* LowerGatherTest */
  if (SET(inside, X0 Y0)) EXPECT_COMM("y", "send_recv (*1 0)(*2)");
  if (SET(inside, "")) EXPECT_COMM("y", "broadcast (0 *2)");
  if (SET(inside, Y1)) EXPECT_COMM("y", "scatter x 1>1 (0 *2)");
  if (SET(inside, X0 Y1)) EXPECT_COMM("y", "gather x 0>1 sliced (1 2 *0)(1 *2)");
  if (SET("mesh p = [2]\nmesh q = [1]", X0)) EXPECT_COMM("y", "gather x 0>0 (*0 1)");
  if (SET("mesh p = [2]\nmesh q = [1] of {1}", X0)) EXPECT_COMM("y", "gather x 0>0 (0 *1)");
  if (SET("mesh p = [1]\nmesh q = [2]", Y0)) EXPECT_COMM("y", "scatter x 0>0 (*0 1)");
  if (SET("mesh p = [1] of {1}\nmesh q = [2]", Y0)) EXPECT_COMM("y", "scatter x 0>0 (0 *1)");
  if (SET("mesh p = [2] of {0, 2}\nmesh q = [2] of {1, 2}", Y0))
    EXPECT_COMM("y", "scatter x 0>0 (1 *2)");
  if (SET("mesh p = [1] of {7}\nmesh q = [2]", Y0)) EXPECT_COMM("y", "scatter x 0>0 (0 1 *7)");
  if (SET("mesh p = [1] of {7}\nmesh q = [2]", "")) EXPECT_COMM("y", "broadcast (0 1 *7)");
  if (SET("mesh p = [1]\nmesh q = [3]", "")) EXPECT_COMM("y", "broadcast (*0 1 2)");
  if (SET("mesh p = [2]\nmesh q = [2] of {1, 0}", X0)) EXPECT_COMM("y", "allgather x 0>0 (0 1)");
  if (SET("mesh p = [2]\nmesh q = [2] of {1, 0}", Y0)) EXPECT_COMM("y", "local_slice x 0>0");
  if (SET("mesh p = [2]\nmesh q = [2] of {1, 0}", "")) EXPECT_COMM("y", "none");
  if (SET("mesh p = [2]\nmesh q = [1]", "")) EXPECT_COMM("y", "none");
}

/* LowerSendRecvTest */
static void send_recv(void) {
  if (SET("mesh p = [2] of {1, 2}\nmesh q = [2]", X0 Y0))
    EXPECT_COMM("y", "send_recv (*1 0)(*2 1)");
  if (SET("mesh p = [2] of {1, 2}\nmesh q = [2] of {1, 0}", X0 Y0))
    EXPECT_COMM("y", "send_recv (*1)(*2 0)");
  if (SET("mesh p = [2]\nmesh q = [2] of {1, 0}", X0 Y0))
    EXPECT_COMM("y", "send_recv (*0 1)(*1 0)");
  const char *one = "x.outer_split(0, 1); x[0] = mesh.x; y.outer_split(0, 1); y[0] = mesh.x";
  if (SET("mesh p = [1]\nmesh q = [1] of {1}", one)) EXPECT_COMM("y", "send_recv (*0 1)");
  if (SET("mesh p = [1] of {1}\nmesh q = [1]", one)) EXPECT_COMM("y", "send_recv (*1 0)");
}

#define SUM(op, meshes, schedule)                                                                  \
  program("%s\nx : f32[2, 4, 6]\ny = %s(x, dims=[0])\nreturn y\n"                                  \
          "schedule { x on p; y on q; x[0] = mesh.x; %s }",                                        \
          meshes, op, schedule)

static void reductions(void) {
  const char *same = "mesh p = [2] of {3, 0}\nmesh q = [2] of {3, 0}";
  const char *to_x = "y.outer_split(2, 2); y[2] = mesh.x";
  if (SUM("sum", same, "")) EXPECT_COMM("y", "allreduce sum x 0>-1 (3 0)");
  if (SUM("prod", same, "y[0] = mesh.x")) EXPECT_COMM("y", "allreduce prod x 0>-1 (3 0)");
  if (SUM("amax", same, "")) EXPECT_COMM("y", "allreduce max x 0>-1 (3 0)");
  if (SUM("amin", same, "")) EXPECT_COMM("y", "allreduce min x 0>-1 (3 0)");
  if (SUM("sum", same, to_x)) EXPECT_COMM("y", "reduce_scatter sum x 2>1 (3 0)");
  if (SUM("sum", "mesh p = [2]\nmesh q = [1]", "")) EXPECT_COMM("y", "reduce sum x 0>-1 (*0 1)");
  if (SUM("sum", "mesh p = [2]\nmesh q = [2] of {5, 1}", ""))
    EXPECT_COMM("y", "reduce sum x 0>-1 (0 1 *5)(0 *1)");
  if (SUM("sum", "mesh p = [2]\nmesh q = [2] of {1, 0}", ""))
    EXPECT_COMM("y", "allreduce sum x 0>-1 (0 1)");
  if (SUM("sum", "mesh p = [2]\nmesh q = [2] of {1, 0}", to_x))
    EXPECT_COMM("y", "reduce_scatter sum x 2>1 (1 0)");
  if (SUM("sum", "mesh p = [2]\nmesh q = [2] of {1, 2}", to_x))
    EXPECT_COMM("y", "reduce sum x 2>1 sliced (0 *1)(0 1 *2)");
  if (program("mesh p = [2]\nx : bool[2, 4]\ny = amax(x, dims=[0])\nz = amin(x, dims=[0])\n"
              "return y, z\nschedule { x, y, z on p; x[0] = mesh.x }")) {
    EXPECT_COMM("y", "allreduce or x 0>-1 (0 1)");
    EXPECT_COMM("z", "allreduce and x 0>-1 (0 1)");
  }
}

static void not_communications(void) {
  const char *d = "mesh d = [2]\n";
  if (program("%sx : f32[2, 4]\ny = relu(x)\nreturn y\nschedule { x, y on d; x[0] = mesh.x }", d))
    EXPECT_COMM("y", "computes");
  if (program("%sx : f32[2, 4]\ny = sum(x, dims=[1])\nreturn y\n"
              "schedule { x, y on d; x[0] = mesh.x }",
              d))
    EXPECT_COMM("y", "computes");
  if (program("%sx : f32[4, 4]\ny = sum(x, dims=[0])\nreturn y\n"
              "schedule { x, y on d; x.outer_split(0, 2); x[0] = mesh.x }",
              d))
    EXPECT_COMM("y", "computes"); /* a local sum too */
  if (program("%sx : f32[2, 3, 4]\ny = sum(x, dims=[0, 1])\nreturn y\n"
              "schedule { x, y on d; x[0] = mesh.x }",
              d))
    EXPECT_COMM("y", "computes");
  if (program("%sx : f32[4]\ny = set(x)\nreturn y\nschedule { x on d }", d))
    EXPECT_COMM("y", "a tensor is not placed on a mesh");
  if (program("%sa : f32[m, 4]\nb : f32[4, n]\nc = matmul(a, b)\nreturn c\n"
              "schedule { a, b, c on d; a.outer_split(1, 2); a[1] = mesh.x; b.outer_split(0, 2)\n"
              "  b[0] = mesh.x; c.outer_split(2, 2); c[2] = mesh.x; u = c.rfactor([3]) }",
              d)) {
    EXPECT_COMM("u", "computes");
    EXPECT_COMM("c", "allreduce sum x 2>-1 (0 1)");
  }
}

static void squeezes(void) {
  if (program("mesh d = [2]\nx : f32[6, 1]\ny = squeeze(x, dims=[1])\nreturn y\n"
              "schedule { x, y on d; x.outer_split(0, 2); x[0] = mesh.x }"))
    EXPECT_COMM("y", "allgather x 0>0 (0 1)");
  if (program("mesh d = [1]\nx : f32[1, 6]\ny = squeeze(x, dims=[0])\nreturn y\n"
              "schedule { x, y on d; x[0] = mesh.x }"))
    EXPECT_COMM("y", "none"); /* Allreduce_Concrete on one device */
  if (program("mesh d = [1]\nmesh e = [1] of {3}\nx : f32[1, 6]\ny = squeeze(x, dims=[0])\n"
              "return y\nschedule { x on d; y on e; x[0] = mesh.x }"))
    EXPECT_COMM("y", "broadcast (3 *0)");
}

/* ---- streams ---- */

static void streams(void) {
  const char *same = "mesh p = [2] of {1, 0}\nmesh q = [2] of {1, 0}";
  if (SET(same, X0 "y.outer_split(0, 2); y[0] = stream"))
    EXPECT_COMM("y", "broadcast x 0>0 (1 0 *i)");
  if (SET(same, X0 "y.outer_split(0, 2); y.swizzle(0, mesh.x); y[0] = stream"))
    EXPECT_COMM("y", "permute x 0>0 (1 0 *i)");
  if (SET(same, X0 "y.outer_split(0, 4); y[0] = stream")) /* other pieces than the devices' */
    EXPECT_COMM("y", "allgather x 0>0 (1 0)");
  if (SET(same, X0 "y.outer_split(1, 3); y[1] = stream")) EXPECT_COMM("y", "allgather x 0>0 (1 0)");
  if (SET("mesh p = [2]\nmesh q = [1]", X0 "y.outer_split(0, 2); y[0] = stream"))
    EXPECT_COMM("y", "gather x 0>0 (*0 1)");
  EXPECT_INT(shard_permute_source(3, 2, 4), 1);
  EXPECT_INT(shard_permute_target(1, 2, 4), 3);
}

/* ---- grids: the team runs along the axis that changes ---- */

#define GRID "mesh p = [2, 2] of {5, 2, 0, 7}\nmesh q = [2, 2] of {5, 2, 0, 7}"

static void grids(void) {
  const char *xy = "x.outer_split(0, 2); x[0] = mesh.y; x.outer_split(2, 2); x[2] = mesh.x; ";
  if (SET(GRID, "x.outer_split(0, 2); x[0] = mesh.y"))
    EXPECT_COMM("y", "allgather y 0>0 (5 0)(2 7)");
  if (SET(GRID, X0)) EXPECT_COMM("y", "allgather x 0>0 (5 2)(0 7)");
  char both[256];
  snprintf(both, sizeof both, "%sy.outer_split(0, 2); y[0] = mesh.y", xy);
  if (SET(GRID, both)) EXPECT_COMM("y", "allgather x 1>1 (5 2)(0 7)");
  snprintf(both, sizeof both, "%sy.outer_split(1, 2); y[1] = mesh.x", xy);
  if (SET(GRID, both)) EXPECT_COMM("y", "allgather y 0>0 (5 0)(2 7)");
  if (SET(GRID, xy)) EXPECT_COMM("y", "several 3");
  if (SET(GRID, "x.outer_split(0, 2); x[0] = mesh.y; y.outer_split(1, 2); y[1] = mesh.y"))
    EXPECT_COMM("y", "all_to_all y 0>1 (5 0)(2 7)");
  if (SET(GRID, "x.outer_split(0, 2); x[0] = mesh.y; y.outer_split(0, 2); y[0] = mesh.x"))
    EXPECT_COMM("y", "several 3");
  if (SUM("sum", GRID, "")) EXPECT_COMM("y", "allreduce sum x 0>-1 (5 2)(0 7)");
  if (program(GRID
              "\nx : f32[2, 4]\ny = sum(x, dims=[0])\nreturn y\n"
              "schedule { x on p; y on q; x[0] = mesh.y; y.outer_split(1, 2); y[1] = mesh.y }"))
    EXPECT_COMM("y", "reduce_scatter sum y 1>0 (5 0)(2 7)");
  if (program(GRID "\nx : f32[2, 4]\ny = sum(x, dims=[0])\nreturn y\n"
                   "schedule { x on p; y on q; x[0] = mesh.y; x.outer_split(1, 2); x[1] = mesh.x\n"
                   "  y.outer_split(1, 2); y[1] = mesh.x }"))
    EXPECT_COMM("y", "allreduce sum y 0>-1 (5 0)(2 7)");
}

static void grids_that_differ(void) {
  const char *grow = "mesh p = [2]\nmesh q = [2, 2]";
  if (SET(grow, X0 Y0)) EXPECT_COMM("y", "send_recv (*0)(*1)(*0 2)(*1 3)");
  if (SET(grow, "")) EXPECT_COMM("y", "broadcast (*0 1 2 3)");
  if (SET(grow, "y.outer_split(0, 2); y[0] = mesh.y"))
    EXPECT_COMM("y", "scatter y 0>0 (*0 2)(*1 3)");
  if (SET(grow, X0)) EXPECT_COMM("y", "gather x 0>0 (*0 1)(0 *1)(0 1 *2)(0 1 *3)");
  const char *apart = "mesh p = [2, 2]\nmesh q = [2, 2] of {4, 5, 6, 7}";
  if (SET(apart, X0 Y0)) EXPECT_COMM("y", "send_recv (*0 4)(*1 5)(*2 6)(*3 7)");
  if (SET(apart, X0)) EXPECT_COMM("y", "gather x 0>0 (0 1 *4)(0 1 *5)(2 3 *6)(2 3 *7)");
}

/* The same devices in other lines: no line can share out its pieces among itself. */
static void crossed_grids(void) {
  const char *crossed = "mesh p = [2, 2]\nmesh q = [2, 2] of {0, 2, 1, 3}";
  if (SUM("sum", crossed, "y.outer_split(2, 2); y[2] = mesh.x"))
    EXPECT_COMM("y", "reduce sum x 2>1 sliced (*0 1)(*2 3)(0 *1)(2 *3)");
  if (SUM("sum", crossed, "")) EXPECT_COMM("y", "allreduce sum x 0>-1 (0 1)(2 3)");
  if (SET(crossed, X0 Y1)) EXPECT_COMM("y", "gather x 0>1 sliced (*0 1)(*2 3)(0 *1)(2 *3)");
  if (SET(crossed, X0 Y0)) EXPECT_COMM("y", "send_recv (*0)(*1 2)(*2 1)(*3)");
}

static void cubes(void) {
  const char *cube = "mesh p = [2, 2, 2] of {7, 1, 2, 3, 4, 5, 6, 0}\n"
                     "mesh q = [2, 2, 2] of {7, 1, 2, 3, 4, 5, 6, 0}";
  if (SET(cube, "x.outer_split(0, 2); x[0] = mesh.z"))
    EXPECT_COMM("y", "allgather z 0>0 (7 4)(1 5)(2 6)(3 0)");
  if (SET(cube, "x.outer_split(0, 2); x[0] = mesh.y; x.outer_split(2, 2); x[2] = mesh.z\n"
                "y.outer_split(1, 2); y[1] = mesh.z"))
    EXPECT_COMM("y", "allgather y 0>0 (7 2)(1 3)(4 6)(5 0)");
  if (program("%s\nx : f32[2, 4, 6]\ny = amax(x, dims=[0])\nreturn y\n"
              "schedule { x on p; y on q; x[0] = mesh.z; x.outer_split(1, 2); x[1] = mesh.x\n"
              "  y.outer_split(1, 2); y[1] = mesh.x; y.outer_split(3, 2); y[3] = mesh.z }",
              cube))
    EXPECT_COMM("y", "reduce_scatter max z 2>1 (7 4)(1 5)(2 6)(3 0)");
  if (SET(cube, "y.outer_split(1, 2); y[1] = mesh.y")) EXPECT_COMM("y", "local_slice y 1>1");
}

static void swizzles(void) {
  const char *turn = "x.outer_split(0, 2); x.swizzle(0, mesh.y); x[0] = mesh.x; ";
  char with[256];
  snprintf(with, sizeof with, "%s%s", turn, Y0);
  if (SET(GRID, with)) EXPECT_COMM("y", "send_recv x 0>0 (*5)(*2)(*7 0)(*0 7)");
  if (SET(GRID, turn)) EXPECT_COMM("y", "allgather x 0>0 (5 2)(7 0)");
  if (SET(GRID, "x.outer_split(0, 2); x.swizzle(0, mesh.x); x[0] = mesh.x"))
    EXPECT_COMM("y", "a swizzled device axis turns along the mesh axis that changes");
}

/* ---- one device's view ---- */

static void participation(void) {
  shard_comm m;
  if (!SET("mesh p = [2] of {1, 2}\nmesh q = [2] of {0, 2}", X0)) return;
  EXPECT_INT(shard_comm_of(ctx, def("y"), &m), SHARD_ONE);
  EXPECT_INT(shard_comm_teams(ctx, &m, 0).list.len, 1);
  EXPECT_INT(shard_comm_teams(ctx, &m, 1).list.len, 2);
  EXPECT_INT(shard_comm_teams(ctx, &m, 2).list.len, 2);
  EXPECT_INT(shard_comm_teams(ctx, &m, 3).list.len, 0); /* takes no part */
  EXPECT_INT(shard_comm_piece(ctx, &m, false, 2), 1);
  EXPECT_INT(shard_comm_piece(ctx, &m, false, 0), -1);
  EXPECT_INT(shard_comm_piece(ctx, &m, true, 0), 0);
}

/* ---- bytes ---- */

static const char *bytes(const char *name) {
  shard_comm m;
  if (shard_comm_of(ctx, def(name), &m) != SHARD_ONE) return "no communication";
  return ir_scalar_text(f, shard_comm_bytes(ctx, def(name), &m));
}

static void byte_counts(void) {
  const char *same = "mesh p = [2]\nmesh q = [2]"; /* f32[8, 12]: 384 bytes */
  if (SET(same, X0)) EXPECT_STR(bytes("y"), "192");
  if (SET(same, Y0)) EXPECT_STR(bytes("y"), "0");
  if (SET(same, X0 Y1)) EXPECT_STR(bytes("y"), "96");
  if (SET("mesh p = [1]\nmesh q = [2]", Y0)) EXPECT_STR(bytes("y"), "192");
  if (SET("mesh p = [2]\nmesh q = [1]", X0)) EXPECT_STR(bytes("y"), "384");
  if (SET("mesh p = [1]\nmesh q = [3]", "")) EXPECT_STR(bytes("y"), "384");
  if (SUM("sum", same, "")) EXPECT_STR(bytes("y"), "96"); /* f32[4, 6], twice a half */
  if (program("mesh g = [2, 4]\nx : f32[n, 8]\ny = set(x)\nreturn y\n"
              "schedule { x, y on g; x.outer_split(0, 4); x[0] = mesh.x; x.outer_split(2, 2)\n"
              "  x[2] = mesh.y; y.outer_split(1, 2); y[1] = mesh.y }"))
    EXPECT_STR(bytes("y"), "12 * n"); /* three quarters of n rows of 4 */
  if (program("mesh g = [2, 2]\nx : f32[n, 8]\ny = set(x)\nreturn y\n"
              "schedule { x, y on g; x.outer_split(0, 2); x.outer_split(1, 2); x[0] = mesh.y\n"
              "  x[1] = mesh.x; y.outer_split(0, 3); y[0] = stream }")) {
    ir_scalar here = shard_local_elements(ctx, tensor("x"), 0);
    EXPECT_STR(ir_scalar_text(f, here), "8 * ceildiv(n, 4)");
    EXPECT_STR(ir_scalar_text(f, shard_local_elements(ctx, tensor("x"), 1)), "8 * ceildiv(n, 2)");
    EXPECT_STR(ir_scalar_text(f, shard_local_elements(ctx, tensor("y"), 0)), "8 * n");
  }
}

int main(void) {
  set_same_mesh();
  set_other_mesh();
  send_recv();
  reductions();
  not_communications();
  squeezes();
  streams();
  grids();
  grids_that_differ();
  crossed_grids();
  cubes();
  swizzles();
  participation();
  byte_counts();
  forget();
  return test_finish();
}
