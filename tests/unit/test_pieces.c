/* Which part of a tensor every device gets: the reference's test_sharding.py, row by row, for four
 * devices. tests/rows.md has the rows. */
#include "ir/bind.h"
#include "lower_kit.h"
#include "runtime/piece.h"
#include "unit/shard_kit.h"

/* "0..3, 3..6" by dimension, of an input or output of the lowered program. */
static const char *piece_text(const ir_func *h, const ir_env *env, ir_tensor t, int64_t device) {
  strbuf out;
  rt_piece p;
  strbuf_init(&out, &module.memory);
  if (!EXPECT(rt_piece_of(h, env, t, device, &p))) return "";
  for (uint32_t i = 0; i < p.rank; i++) {
    int64_t begin = rt_piece_begin(&p, i), end = begin + p.extents[i];
    strbuf_printf(&out, "%s%" PRId64 "..%" PRId64, i ? ", " : "", begin, end);
  }
  return p.present ? out.data : "absent";
}

typedef struct row {
  const char *what, *body;
  const char *input[4], *output[4]; /* by device; output NULL: not looked at */
} row;

static void run_row(const row *r) {
  ir_func *h;
  ir_env env;
  host_options options = {.pipeline = HOST_AUTO};
  if (!program("%s", r->body)) return;
  if (!EXPECT(kit_lower(f, &options, &h) == STATUS_OK)) return;
  ir_env_init(&env, h, &module.memory);
  EXPECT(ir_bind_complete(&env) && ir_bind_check(&env));
  for (int64_t i = 0; i < 4; i++) {
    bool good = EXPECT_STR(piece_text(h, &env, h->inputs.data[0], i), r->input[i]);
    if (r->output[0])
      good = EXPECT_STR(piece_text(h, &env, h->outputs.data[0], i), r->output[i]) && good;
    if (!good) fprintf(stderr, "  in row %s\n", r->what);
  }
}

static const row rows[] = {
    {"parallel_reduction",
     "mesh d = [4]; x : f32[2, 12]; y = sum(x, dims=[1]); return y\n"
     "schedule { x, y on d; x.outer_split(1, d); x[1] = mesh.x; y.outer_split(1, d); y[1] = mesh.x "
     "}",
     {"0..2, 0..3", "0..2, 3..6", "0..2, 6..9", "0..2, 9..12"},
     {"0..2", "0..2", "0..2", "0..2"}},
    {"2d_sharded_matrix",
     "mesh g = [2, 2]; x : f32[4, 6]; y = neg(x); return y\n"
     "schedule { x on g; x.outer_split(0, g.y); x[0] = mesh.y; x.outer_split(2, g.x); x[2] = "
     "mesh.x }",
     {"0..2, 0..3", "0..2, 3..6", "2..4, 0..3", "2..4, 3..6"},
     {"0..2, 0..3", "0..2, 3..6", "2..4, 0..3", "2..4, 3..6"}},
    {"context_and_tensor_parallel", /* tensor-parallel outside, context-parallel inside */
     "mesh g = [2, 2]; x : f32[2, 12, 5]; y = neg(x); return y\n"
     "schedule { x on g; x.outer_split(1, g.x); x[1] = mesh.x; x.outer_split(2, g.y); x[2] = "
     "mesh.y\n"
     "  x.reorder(2 -> 0, 1 -> 1) }",
     {"0..2, 0..3, 0..5", "0..2, 6..9, 0..5", "0..2, 3..6, 0..5", "0..2, 9..12, 0..5"},
     {"0..2, 0..3, 0..5", "0..2, 6..9, 0..5", "0..2, 3..6, 0..5", "0..2, 9..12, 0..5"}},
    {"broadcast",
     "mesh d = [4]; x : f32[1, 12]; y = neg(x); return y\n"
     "schedule { x on d; x.outer_split(1, d); x[1] = mesh.x }",
     {"0..1, 0..3", "0..1, 3..6", "0..1, 6..9", "0..1, 9..12"},
     {"0..1, 0..3", "0..1, 3..6", "0..1, 6..9", "0..1, 9..12"}},
    {"ShardTensor_OuterSplit",
     "mesh d = [4]; x : f32[2, 12]; y = set(x); return y\n"
     "schedule { x, y on d; x.outer_split(1, d); x[1] = mesh.x; y.outer_split(1, d); y[1] = mesh.x "
     "}",
     {"0..2, 0..3", "0..2, 3..6", "0..2, 6..9", "0..2, 9..12"},
     {"0..2, 0..3", "0..2, 3..6", "0..2, 6..9", "0..2, 9..12"}},
    {"uneven",
     "mesh d = [4]; x : f32[6]; y = neg(x); return y\n"
     "schedule { x on d; x.outer_split(0, d); x[0] = mesh.x }",
     {"0..2", "2..4", "4..6", "6..6"},
     {"0..2", "2..4", "4..6", "6..6"}},
    {"shuffled devices, and one that takes no part",
     "mesh d = [3] of {3, 0, 2}; x : f32[6]; y = neg(x); return y\n"
     "schedule { x on d; x.outer_split(0, d); x[0] = mesh.x }",
     {"2..4", "absent", "4..6", "0..2"},
     {"2..4", "absent", "4..6", "0..2"}},
};

/* inner_split, nonoutermost_split, 2d_sharded_vector: parts that are no ranges; expanded_broadcast. */
static void test_cuts(void) {
  shard_placement p;
  if (program("mesh d = [4]; x : f32[12]; y = set(x); return y\n"
              "schedule { x on d; x.split(0, d); x[1] = mesh.x }")) {
    shard_placement_of(f, tensor("x"), &p);
    EXPECT(p.axes[0].cut == SHARD_INNER && !p.axes[0].contiguous);
    EXPECT_STR(ir_scalar_text(f, p.axes[0].piece), "4");
  }
  if (program("mesh d = [4]; x : f32[24]; y = set(x); return y\n"
              "schedule { x on d; x.outer_split(0, 2); x.outer_split(1, d); x[1] = mesh.x }")) {
    shard_placement_of(f, tensor("x"), &p);
    EXPECT(p.axes[0].cut == SHARD_OUTER && p.axes[0].nested && !p.axes[0].contiguous);
    EXPECT_STR(ir_scalar_text(f, p.axes[0].piece), "3");
  }
  if (program("mesh g = [2, 2]; x : f32[24]; y = set(x); return y\n"
              "schedule { x on g; x.split(0, 6); x.outer_split(0, g.y); x[0] = mesh.y\n"
              "  x.outer_split(2, g.x); x[2] = mesh.x }")) {
    shard_placement_of(f, tensor("x"), &p);
    EXPECT(p.axes[1].kind == SHARD_SHARDED && p.axes[1].contiguous);
    EXPECT_STR(ir_scalar_text(f, p.axes[1].piece), "2");
    EXPECT(p.axes[0].kind == SHARD_SHARDED && p.axes[0].nested && !p.axes[0].contiguous);
    EXPECT_STR(ir_scalar_text(f, p.axes[0].piece), "3");
  }
  if (program("mesh d = [4]; x : f32[2, 1]; y = expand(x, [2, 12]); return y\n"
              "schedule { x, y on d; y.outer_split(1, d); y[1] = mesh.x }")) {
    shard_placement_of(f, tensor("y"), &p);
    EXPECT_INT(p.axes[0].kind, SHARD_REPLICATED);
    EXPECT(!resharding("y"));
  }
}

static status run_all(void *context) {
  (void)context;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) run_row(&rows[i]);
  test_cuts();
  return STATUS_OK;
}

int main(void) {
  EXPECT(memory_guard(run_all, NULL) == STATUS_OK);
  forget();
  return test_finish();
}
