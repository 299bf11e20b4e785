/* Which marks arrive where: every family of operations, both directions; the rules; and the rows of the
 * reference's tests of propagation. docs/shard.md has the rules in words, tests/rows.md the rows. */
#include "schedule/internal.h"
#include "unit/shard_kit.h"

/* "t[2 mesh.x, 3] on d", for each of the words in `names`, separated by "; ". */
static const char *where(const char *names) {
  strbuf out;
  strbuf_init(&out, &module.memory);
  for (const char *at = names; *at; at += strspn(at, " ")) {
    size_t n = strcspn(at, " ");
    ir_name_entry e = ir_func_lookup(f, strings_find(&module.names, at, n));
    if (!EXPECT(e.kind == IR_NAME_TENSOR)) return "";
    const ir_tensor_data *t = ir_tensor_at(f, (ir_tensor){e.id});
    strbuf_printf(&out, "%s%.*s%s", out.len ? "; " : "", (int)n, at,
                  schedule_axes_text(f, t->now.loop));
    if (t->mesh.id) strbuf_printf(&out, " on %s", ir_name_text(f, ir_mesh_at(f, t->mesh)->name));
    at += n;
  }
  return out.data ? out.data : "";
}

/* One program: what is defined, what is marked, whom to look at, and how they lie afterwards. */
typedef struct row {
  const char *what, *body, *schedule, *names, *expected;
} row;

/* The scheduled view must follow from the statements: derived again, it is the same. */
static void run_row(const row *r) {
  if (!program("mesh d = [2]\nmesh g = [2, 3]\nmesh e = [3]\n%s\nschedule { %s }", r->body,
               r->schedule))
    return;
  (void)shard_propagate(f);
  const char *now = where(r->names);
  if (!EXPECT_STR(now, r->expected)) fprintf(stderr, "  in row %s\n", r->what);
  EXPECT_INT(module.errors.errors, 0);
  EXPECT(schedule_apply(f) && ir_verify(f));
  EXPECT_STR(where(r->names), now);
  EXPECT_INT(shard_propagate(f), 0);
}
#define RUN_ROWS(rows)                                                                             \
  for (size_t i_ = 0; i_ < sizeof(rows) / sizeof *(rows); i_++) run_row(&(rows)[i_])

/* Marks the first or the last axis of `t`, or axis 1, for two devices; or for three iterations. */
#define DEVICES(t, i) #t ".outer_split(" #i ", d); " #t "[" #i "] = mesh.x; "
#define DEVICES_ON(t, i) #t " on d; " DEVICES(t, i)
#define STREAM(t, i) #t ".outer_split(" #i ", 3); " #t "[" #i "] = stream; "

/* ---- from operands to results ---- */
static const row forward_rows[] = {
    {"unary", "x : f32[a, b]; y = neg(x); return y", DEVICES_ON(x, 0) STREAM(x, 2), "y",
     "y[2 mesh.x, ceildiv(a, 2), 3 stream, ceildiv(b, 3)] on d"},
    {"set, cast", "x : f32[a, b]; t = cast(x, f64); y = set(t); return y", DEVICES_ON(x, 1), "t y",
     "t[a, 2 mesh.x, ceildiv(b, 2)] on d; y[a, 2 mesh.x, ceildiv(b, 2)] on d"},
    {"binary of lower rank", "x : f32[a, b]; z : f32[b]; y = x + z; return y", DEVICES_ON(z, 0),
     "y", "y[a, 2 mesh.x, ceildiv(b, 2)] on d"},
    {"a broadcast dimension", "x : f32[a, b]; z : f32[1, b]; y = x + z; return y", DEVICES_ON(z, 0),
     "y", "y[a, b] on d"},
    {"where", "c : bool[a]; x : f32[a]; y = where(c, x, 0); return y", DEVICES_ON(c, 0), "y",
     "y[2 mesh.x, ceildiv(a, 2)] on d"},
    {"sum, kept", "x : f32[a, b]; y = sum(x, dims=[1]); return y", DEVICES_ON(x, 0), "y",
     "y[2 mesh.x, ceildiv(a, 2), r b] on d"},
    {"sum, reduced", "x : f32[a, b]; y = sum(x, dims=[1]); return y", DEVICES_ON(x, 1), "y",
     "y[a, r 2 mesh.x, r ceildiv(b, 2)] on d"},
    {"amax, streamed", "x : f32[a, b]; y = amax(x, dims=[0]); return y", STREAM(x, 0), "y",
     "y[r 3 stream, r ceildiv(a, 3), b]"},
    {"sum that keeps its dimension", "x : f32[a, b]; y = sum(x, dims=[1], keepdim=true); return y",
     DEVICES_ON(x, 1), "y", "y[a, 1] on d"},
    {"mean", "x : f32[a, b]; y = mean(x, dims=[1]); return y", DEVICES_ON(x, 0) STREAM(x, 2), "y",
     "y[2 mesh.x, ceildiv(a, 2)] on d"},
    {"var", "x : f32[a, b]; y = var(x, dims=[0], keepdim=true); return y", DEVICES_ON(x, 1), "y",
     "y[1, 2 mesh.x, ceildiv(b, 2)] on d"},
    {"broadcast", "x : f32[a]; y = broadcast(x, [true, false]); return y", DEVICES_ON(x, 0), "y",
     "y[1, 2 mesh.x, ceildiv(a, 2)] on d"},
    {"squeeze", "x : f32[1, b]; y = squeeze(x, dims=[0]); return y", DEVICES_ON(x, 1), "y",
     "y[2 mesh.x, ceildiv(b, 2)] on d"},
    {"expand", "x : f32[1, b]; y = expand(x, [4, b]); return y", DEVICES_ON(x, 1), "y",
     "y[4, 2 mesh.x, ceildiv(b, 2)] on d"},
    {"permute", "x : f32[a, b, c]; y = permute(x, [2, 0, 1]); return y", DEVICES_ON(x, 0), "y",
     "y[c, 2 mesh.x, ceildiv(a, 2), b] on d"},
    {"transpose", "x : f32[a, b]; y = transpose(x); return y", STREAM(x, 0), "y",
     "y[b, 3 stream, ceildiv(a, 3)]"},
    {"slice", "x : f32[a, 9]; y = slice(x, starts=[0, 2], stops=[a, 8]); return y",
     DEVICES_ON(x, 0) STREAM(x, 2), "y", "y[2 mesh.x, ceildiv(a, 2), 6] on d"},
    {"pad", "x : f32[a, 9]; y = pad(x, [0, 0, 1, 2]); return y", DEVICES_ON(x, 0) STREAM(x, 2), "y",
     "y[2 mesh.x, ceildiv(a, 2), 12] on d"},
    {"cat", "x : f32[a, 6]; z : f32[a, 3]; y = cat(x, z, dim=1); return y",
     DEVICES_ON(x, 0) STREAM(x, 2), "y", "y[2 mesh.x, ceildiv(a, 2), 9] on d"},
    {"select", "x : f32[a, 6, b]; y = select(x, dim=1, index=2); return y",
     DEVICES_ON(x, 2) STREAM(x, 1), "y", "y[a, 2 mesh.x, ceildiv(b, 2)] on d"},
    {"gather", "x : f32[a, 6]; i : i64[a, 4]; y = gather(x, i, dim=1); return y",
     DEVICES_ON(x, 0) STREAM(x, 2), "y", "y[2 mesh.x, ceildiv(a, 2), 4] on d"},
    {"gather, by its index", "x : f32[a, 6]; i : i64[a, 4]; y = gather(x, i, dim=1); return y",
     DEVICES_ON(i, 1), "y", "y[a, 2 mesh.x, 2] on d"},
    {"scatter",
     "x : f32[a, 6]; i : i64[a, 4]; s : f32[a, 4]; y = scatter(x, i, s, dim=1); return y",
     DEVICES_ON(s, 0) STREAM(x, 1), "y", "y[2 mesh.x, ceildiv(a, 2), 6] on d"},
    {"index_select", "x : f32[6, b]; i : i64[n]; y = index_select(x, i, dim=0); return y",
     DEVICES_ON(i, 0) STREAM(x, 1), "y",
     "y[2 mesh.x, ceildiv(n, 2), 3 stream, ceildiv(b, 3)] on d"},
    {"matmul, rows", "x : f32[m, k]; w : f32[k, n]; y = matmul(x, w); return y", DEVICES_ON(x, 0),
     "y", "y[2 mesh.x, ceildiv(m, 2), n, r k] on d"},
    {"matmul, columns", "x : f32[m, k]; w : f32[k, n]; y = matmul(x, w); return y",
     DEVICES_ON(w, 1), "y", "y[m, 2 mesh.x, ceildiv(n, 2), r k] on d"},
    {"matmul, inner", "x : f32[m, k]; w : f32[k, n]; y = matmul(x, w); return y", DEVICES_ON(x, 1),
     "y", "y[m, n, r 2 mesh.x, r ceildiv(k, 2)] on d"},
    {"matmul, batch", "x : f32[4, m, k]; w : f32[k, n]; y = matmul(x, w); return y",
     DEVICES_ON(x, 0) STREAM(w, 1), "y", "y[2 mesh.x, 2, m, 3 stream, ceildiv(n, 3), r k] on d"},
    {"linear", "x : f32[t, k]; w : f32[n, k]; y = linear(x, w); return y",
     DEVICES_ON(w, 0) STREAM(x, 0), "y",
     "y[3 stream, ceildiv(t, 3), 2 mesh.x, ceildiv(n, 2), r k] on d"},
    {"linear, by its bias",
     "x : f32[t, k]; w : f32[n, k]; b : f32[n]; y = linear(x, w, b); return y", DEVICES_ON(b, 0),
     "y", "y[t, 2 mesh.x, ceildiv(n, 2), r k] on d"},
    {"cumsum", "x : f32[a, b]; y = cumsum(x, dim=1); return y", DEVICES_ON(x, 0) STREAM(x, 2), "y",
     "y[2 mesh.x, ceildiv(a, 2), b] on d"},
    {"argsort", "x : f32[a, b]; y = argsort(x, dim=0); return y", DEVICES_ON(x, 1) STREAM(x, 0),
     "y", "y[a, 2 mesh.x, ceildiv(b, 2)] on d"},
    {"topk", "x : f32[a, 9]; y = topk(x, k=2, dim=1); return y", DEVICES_ON(x, 0) STREAM(x, 2), "y",
     "y[2 mesh.x, ceildiv(a, 2), 2] on d"},
    {"one_hot", "x : i64[a]; y = one_hot(x, 5); return y", DEVICES_ON(x, 0), "y",
     "y[2 mesh.x, ceildiv(a, 2), 5] on d"},
    {"softmax", "x : f32[a, b]; y = softmax(x, dim=1); return y", DEVICES_ON(x, 0) STREAM(x, 2),
     "y", "y[2 mesh.x, ceildiv(a, 2), b] on d"},
    {"layer_norm",
     "x : f32[a, b]; w : f32[b]; v : f32[b]; y = layer_norm(x, weight=w, bias=v); return y",
     DEVICES_ON(x, 0) STREAM(x, 2), "y", "y[2 mesh.x, ceildiv(a, 2), b] on d"},
    {"rms_norm", "x : f32[a, b]; w : f32[b]; y = rms_norm(x, weight=w); return y", DEVICES_ON(x, 0),
     "y", "y[2 mesh.x, ceildiv(a, 2), b] on d"},
    {"sdpa, heads",
     "q : f32[b, h, s, c]; k : f32[b, h, t, c]; v : f32[b, h, t, c]; y = sdpa(q, k, v); return y",
     DEVICES_ON(k, 1), "y", "y[b, 2 mesh.x, ceildiv(h, 2), s, c] on d"},
    {"sdpa, queries",
     "q : f32[b, h, s, c]; k : f32[b, h, t, c]; v : f32[b, h, t, c]; y = sdpa(q, k, v); return y",
     DEVICES_ON(q, 2), "y", "y[b, h, 2 mesh.x, ceildiv(s, 2), c] on d"},
    {"sdpa, keys are not in the result",
     "q : f32[b, h, s, c]; k : f32[b, h, t, c]; v : f32[b, h, t, c]; y = sdpa(q, k, v); return y",
     DEVICES_ON(k, 2) STREAM(v, 3), "y", "y[b, h, s, 3 stream, ceildiv(c, 3)] on d"},
    {"cumsum", "x : f32[n, 8]; y = cumsum(x, dim=1); return y", DEVICES_ON(x, 1), "y",
     "y[n, 2 mesh.x, 4] on d"},
    {"a shift", "x : f32[8, n]; y = pad(x, [1, -1, 0, 0]); return y", DEVICES_ON(x, 0), "y",
     "y[2 mesh.x, 4, n] on d"},
    {"a window of a pad",
     "x : f32[8, 6]; p = pad(x, [1, 1, 2, 2]); y = slice(p, starts=[0, 2], stops=[8, 8]); return y",
     "x on g; x.outer_split(0, g.y); x[0] = mesh.y; x.outer_split(2, g.x); x[2] = mesh.x", "p y",
     "p[10, 10] on g; y[2 mesh.y, 4, 3 mesh.x, 2] on g"},
    {"a window that is shorter",
     "x : f32[8]; p = pad(x, [1, 1]); y = slice(p, starts=[0], stops=[7]); return y",
     DEVICES_ON(x, 0), "y", "y[7] on d"},
};
static void test_forward(void) { RUN_ROWS(forward_rows); }

/* ---- from results to operands: t = set(x) stands between the input and the operation ---- */
#define BACK(what, input, expression, schedule, expected)                                          \
  { what, input "; t = set(x); y = " expression "; return y", schedule, "x t", expected }
static const row backward_rows[] = {
    BACK("unary", "x : f32[a, b]", "neg(t)", DEVICES_ON(y, 0) STREAM(y, 2),
         "x[a, 3 stream, ceildiv(b, 3)] on d; t[2 mesh.x, ceildiv(a, 2), 3 stream, ceildiv(b, 3)] "
         "on d"),
    BACK("binary of lower rank", "z : f32[a, b]; x : f32[b]", "z + t", DEVICES_ON(y, 1),
         "x[b] on d; t[2 mesh.x, ceildiv(b, 2)] on d"),
    BACK("sum, kept", "x : f32[a, b]", "sum(t, dims=[1])", DEVICES_ON(y, 0),
         "x[a, b] on d; t[2 mesh.x, ceildiv(a, 2), b] on d"),
    BACK("sum, reduced", "x : f32[a, b]", "sum(t, dims=[1])", DEVICES_ON(y, 1),
         "x[a, b] on d; t[a, 2 mesh.x, ceildiv(b, 2)] on d"),
    BACK("mean", "x : f32[a, b]", "mean(t, dims=[1])", DEVICES_ON(y, 0),
         "x[a, b] on d; t[2 mesh.x, ceildiv(a, 2), b] on d"),
    BACK("broadcast", "x : f32[b]", "broadcast(t, [true, false])", DEVICES_ON(y, 1),
         "x[b] on d; t[2 mesh.x, ceildiv(b, 2)] on d"),
    BACK("broadcast, its new dimension", "x : f32[b]", "broadcast(t, [true, false])",
         DEVICES_ON(y, 0), "x[b] on d; t[b] on d"),
    BACK("squeeze", "x : f32[1, b]", "squeeze(t, dims=[0])", DEVICES_ON(y, 0),
         "x[1, b] on d; t[1, 2 mesh.x, ceildiv(b, 2)] on d"),
    BACK("expand", "x : f32[1, b]", "expand(t, [4, b])", DEVICES_ON(y, 0) STREAM(y, 2),
         "x[1, 3 stream, ceildiv(b, 3)] on d; t[1, 3 stream, ceildiv(b, 3)] on d"),
    BACK("permute", "x : f32[a, b, c]", "permute(t, [2, 0, 1])", DEVICES_ON(y, 0),
         "x[a, b, c] on d; t[a, b, 2 mesh.x, ceildiv(c, 2)] on d"),
    BACK("slice", "x : f32[a, 9]", "slice(t, starts=[0, 2], stops=[a, 8])",
         DEVICES_ON(y, 0) STREAM(y, 2), "x[a, 9] on d; t[2 mesh.x, ceildiv(a, 2), 9] on d"),
    BACK("pad", "x : f32[a, 9]", "pad(t, [0, 0, 1, 2])", DEVICES_ON(y, 0) STREAM(y, 2),
         "x[a, 9] on d; t[2 mesh.x, ceildiv(a, 2), 9] on d"),
    BACK("cat", "x : f32[a, 6]; z : f32[a, 3]", "cat(z, t, dim=1)", DEVICES_ON(y, 0) STREAM(y, 2),
         "x[a, 6] on d; t[2 mesh.x, ceildiv(a, 2), 6] on d"),
    BACK("select", "x : f32[6, a]", "select(t, dim=0, index=2)", DEVICES_ON(y, 0),
         "x[6, a] on d; t[6, 2 mesh.x, ceildiv(a, 2)] on d"),
    BACK("gather", "x : f32[a, 6]; i : i64[a, 4]", "gather(t, i, dim=1)",
         DEVICES_ON(y, 0) STREAM(y, 2), "x[a, 6] on d; t[2 mesh.x, ceildiv(a, 2), 6] on d"),
    BACK("scatter", "x : f32[a, 6]; i : i64[a, 4]; s : f32[a, 4]", "scatter(t, i, s, dim=1)",
         DEVICES_ON(y, 0) STREAM(y, 2), "x[a, 6] on d; t[2 mesh.x, ceildiv(a, 2), 6] on d"),
    BACK("index_select", "x : f32[6, b]; i : i64[n]", "index_select(t, i, dim=0)",
         DEVICES_ON(y, 0) STREAM(y, 2),
         "x[6, 3 stream, ceildiv(b, 3)] on d; t[6, 3 stream, ceildiv(b, 3)] on d"),
    BACK("matmul, rows", "x : f32[m, k]; w : f32[k, n]", "matmul(t, w)",
         DEVICES_ON(y, 0) STREAM(y, 2), "x[m, k] on d; t[2 mesh.x, ceildiv(m, 2), k] on d"),
    BACK("matmul, inner", "x : f32[m, k]; w : f32[k, n]", "matmul(t, w)", DEVICES_ON(y, 2),
         "x[m, k] on d; t[m, 2 mesh.x, ceildiv(k, 2)] on d"),
    BACK("matmul, the weight", "w : f32[m, k]; x : f32[k, n]", "matmul(w, t)", DEVICES_ON(y, 1),
         "x[k, n] on d; t[k, 2 mesh.x, ceildiv(n, 2)] on d"),
    BACK("linear, rows", "x : f32[m, k]; w : f32[n, k]", "linear(t, w)", DEVICES_ON(y, 0),
         "x[m, k] on d; t[2 mesh.x, ceildiv(m, 2), k] on d"),
    BACK("linear, the weight", "w : f32[m, k]; x : f32[n, k]", "linear(w, t)", DEVICES_ON(y, 1),
         "x[n, k] on d; t[2 mesh.x, ceildiv(n, 2), k] on d"),
    BACK("linear, the bias", "z : f32[m, k]; w : f32[n, k]; x : f32[n]", "linear(z, w, t)",
         DEVICES_ON(y, 1), "x[n] on d; t[2 mesh.x, ceildiv(n, 2)] on d"),
    BACK("softmax", "x : f32[a, b]", "softmax(t, dim=1)", DEVICES_ON(y, 0) STREAM(y, 2),
         "x[a, b] on d; t[2 mesh.x, ceildiv(a, 2), b] on d"),
    BACK("layer_norm", "x : f32[a, b]; w : f32[b]", "layer_norm(t, weight=w)", DEVICES_ON(y, 0),
         "x[a, b] on d; t[2 mesh.x, ceildiv(a, 2), b] on d"),
    BACK("layer_norm, the weight", "z : f32[a, b]; x : f32[b]", "layer_norm(z, weight=t)",
         DEVICES_ON(y, 1), "x[b] on d; t[2 mesh.x, ceildiv(b, 2)] on d"),
    BACK("rms_norm, of what all have", "x : f32[a, b]", "rms_norm(t)", DEVICES_ON(y, 1),
         "x[a, b] on d; t[a, b] on d"),
    BACK("sdpa", "x : f32[b, h, s, c]; k : f32[b, h, l, c]; v : f32[b, h, l, c]", "sdpa(t, k, v)",
         DEVICES_ON(y, 1) STREAM(y, 3),
         "x[b, h, 3 stream, ceildiv(s, 3), c] on d; t[b, 2 mesh.x, ceildiv(h, 2), 3 stream, "
         "ceildiv(s, 3), c] on d"),
    {"makers", "x : f32[a]; t = uniform([a]); u = zeros([a]); y = x + t * u; return y",
     DEVICES_ON(x, 0), "t u", "t[2 mesh.x, ceildiv(a, 2)] on d; u[2 mesh.x, ceildiv(a, 2)] on d"},
};
static void test_backward(void) { RUN_ROWS(backward_rows); }

/* ---- across reshapes ---- */
static const row reshape_rows[] = {
    {"split", "x : f32[b, 12]; y = reshape(x, [b, 4, 3]); return y", DEVICES_ON(x, 1), "y",
     "y[b, 2 mesh.x, 2, 3] on d"},
    {"merge", "x : f32[b, 4, 3]; y = reshape(x, [b, 12]); return y", DEVICES_ON(x, 1), "y",
     "y[b, 2 mesh.x, 6] on d"},
    {"merge of three", "x : f32[4, s, 3]; y = reshape(x, [4 * s * 3]); return y", DEVICES_ON(x, 0),
     "y", "y[2 mesh.x, 6 * s] on d"},
    {"split, backward", "x : f32[12]; t = set(x); y = reshape(t, [4, 3]); return y",
     DEVICES_ON(y, 0), "t", "t[2 mesh.x, 6] on d"},
    {"merge, backward", "x : f32[4, 3]; t = set(x); y = reshape(t, [12]); return y",
     DEVICES_ON(y, 0), "t", "t[2 mesh.x, 2, 3] on d"},
    {"a whole dimension becomes an outer part",
     "x : f32[2, 6, b]; y = reshape(x, [12, b]); return y", "x on d; x[0] = mesh.x", "y",
     "y[2 mesh.x, 6, b] on d"},
    {"so does one of iterations", "x : f32[n, m]; y = reshape(x, [n * m]); return y",
     "x[0] = stream", "y", "y[n stream, m]"},
    {"symbolic, and it divides", "x : f32[4, h]; y = reshape(x, [4 * h]); return y",
     DEVICES_ON(x, 0), "y", "y[2 mesh.x, 2 * h] on d"},
    {"symbolic, and it may not", "x : f32[n, 3]; y = reshape(x, [n * 3]); return y",
     DEVICES_ON(x, 0), "y", "y[2 mesh.x, ceildiv(n, 2), 3] on d"},
    {"ShardedNonDivisibleReshape", "x : f32[6]; y = reshape(x, [3, 2]); return y", DEVICES_ON(x, 0),
     "y", "y[3, 2] on d"},
    {"not divisible on the other side", "x : f32[3, 2]; y = reshape(x, [6]); return y",
     DEVICES_ON(x, 0), "y", "y[2 mesh.x, 2, 2] on d"},
    {"ShardedInnerReshape", "x : f32[3, 10]; y = reshape(x, [30]); return y", DEVICES_ON(x, 1), "y",
     "y[3, 2 mesh.x, 5] on d"},
    {"every second position is no range", "x : f32[12, 3]; y = reshape(x, [36]); return y",
     "x on d; x.split(0, 2); x[1] = mesh.x", "y", "y[6, 2 mesh.x, 3] on d"},
    {"ShardedReshapeWithIndependentSplit",
     "x : f32[9, 5, 14, 9]; y = reshape(x, [45, 126]); return y",
     "x on g; x.outer_split(0, g.x); x[0] = mesh.x; x.outer_split(3, g.y); x[3] = mesh.y", "y",
     "y[3 mesh.x, 15, 2 mesh.y, 63] on g"},
    {"cut twice", "x : f32[12, b]; y = reshape(x, [6, 2, b]); return y",
     DEVICES_ON(x, 0) STREAM(x, 1), "y", "y[2 mesh.x, 3 stream, 1, 2, b] on d"},
    {"cut twice, and the pieces are too small",
     "x : f32[12, b]; y = reshape(x, [2, 6, b]); return y", DEVICES_ON(x, 0) STREAM(x, 1), "y",
     "y[2 mesh.x, 6, b] on d"},
    {"an inner part, backward", "x : f32[b, s]; t = set(x); y = reshape(t, [b * s]); return y",
     "y on d; y.split(0, s); y.outer_split(1, 2); y[1] = mesh.x", "t",
     "t[b, 2 mesh.x, ceildiv(s, 2)] on d"},
    {"a part in the middle", "x : f32[a, b, c]; y = reshape(x, [a * b * c]); return y",
     DEVICES_ON(x, 1), "y", "y[a, 2 mesh.x, ceildiv(b, 2), c] on d"},
    {"outer and inner parts", "x : f32[b, s, h]; y = reshape(x, [b * s, h]); return y",
     "x on g; x.outer_split(0, g.y); x[0] = mesh.y; x.outer_split(2, g.x); x[2] = mesh.x", "y",
     "y[2 mesh.y, ceildiv(b, 2), 3 mesh.x, ceildiv(s, 3), h] on g"},
    {"parts that become dimensions of another shape",
     "x : f32[b, 6, s]; y = reshape(x, [3 * b, 2 * s]); return y", DEVICES_ON(x, 2), "y",
     "y[3 * b, 2, 2 mesh.x, ceildiv(s, 2)] on d"},
    {"a dimension that is cut across", "x : f32[n, 6]; y = reshape(x, [n * 2, 3]); return y",
     DEVICES_ON(x, 1), "y", "y[n, 2 mesh.x, 3] on d"},
    {"a dimension that is cut across, in other pieces",
     "x : f32[n, 6]; y = reshape(x, [n * 3, 2]); return y", DEVICES_ON(x, 1), "y",
     "y[3 * n, 2] on d"},
    {"an expanded dimension is counted, not cut",
     "x : f32[n, 1, 3]; t = expand(x, [n, 4, 3]); y = reshape(t, [n * 4, 3]); return y",
     DEVICES_ON(x, 0), "y", "y[2 mesh.x, ceildiv(n, 2), 4, 3] on d"},
    {"a dimension beside it", "x : f32[a, 4, 3]; y = reshape(x, [a, 12]); return y",
     DEVICES_ON(x, 0), "y", "y[2 mesh.x, ceildiv(a, 2), 12] on d"},
};
static void test_reshape(void) { RUN_ROWS(reshape_rows); }

/* ---- who is asked first ---- */
static const row order_rows[] = {
    {"linear: weight before bias and input",
     "x : f32[t, k]; w : f32[n, k]; b : f32[n]; y = linear(x, w, b); return y",
     DEVICES_ON(x, 0) DEVICES_ON(w, 1) DEVICES_ON(b, 0), "y",
     "y[t, 2 mesh.x, ceildiv(n, 2), r 2 mesh.x, r ceildiv(k, 2)] on d"},
    {"linear: bias before input",
     "x : f32[t, k]; w : f32[n, k]; b : f32[n]; y = linear(x, w, b); return y",
     DEVICES_ON(x, 0) DEVICES_ON(b, 0), "y", "y[t, 2 mesh.x, ceildiv(n, 2), r k] on d"},
    {"linear: though the input says more",
     "x : f32[s, t, k]; w : f32[n, k]; y = linear(x, w); return y",
     "x on g; x.outer_split(0, g.x); x[0] = mesh.x; x.outer_split(2, g.y); x[2] = mesh.y; w on g; "
     "w.outer_split(0, g.x); w[0] = mesh.x",
     "y", "y[s, 2 mesh.y, ceildiv(t, 2), 3 mesh.x, ceildiv(n, 3), r k] on g"},
    {"matmul: the second before the first",
     "x : f32[m, k]; w : f32[k, n]; y = matmul(x, w); return y", DEVICES_ON(x, 0) DEVICES_ON(w, 1),
     "y", "y[m, 2 mesh.x, ceildiv(n, 2), r k] on d"},
    {"others: who has more marks", "x : f32[a, b]; z : f32[a, b]; y = x + z; return y",
     DEVICES_ON(x, 0) DEVICES_ON(z, 1) STREAM(z, 0), "y",
     "y[3 stream, ceildiv(a, 3), 2 mesh.x, ceildiv(b, 2)] on d"},
    {"then who has more mesh axes", "x : f32[a, b]; z : f32[a, b]; y = x + z; return y",
     "x on e; x.outer_split(0, e); x[0] = mesh.x; z on g; z.outer_split(1, g.x); z[1] = mesh.x",
     "y", "y[a, 3 mesh.x, ceildiv(b, 3)] on g"},
    {"then who is written first", "x : f32[a, b]; z : f32[a, b]; y = x + z; return y",
     DEVICES_ON(z, 1) DEVICES_ON(x, 0), "y", "y[2 mesh.x, ceildiv(a, 2), b] on d"},
    {"a reduction says nothing",
     "x : f32[a, b, c]; z : f32[a, b]; t = sum(x, dims=[2]); y = t + z; return y",
     DEVICES_ON(x, 2) DEVICES_ON(z, 1), "t y",
     "t[a, 2 mesh.x, ceildiv(b, 2), r 2 mesh.x, r ceildiv(c, 2)] on d; y[a, 2 mesh.x, ceildiv(b, "
     "2)] on d"},
    {"nor counts it", "x : f32[a, b, c]; z : f32[a, b]; t = sum(x, dims=[2]); y = z + t; return y",
     DEVICES_ON(x, 2) STREAM(x, 0) "z on d; " STREAM(z, 1), "y",
     "y[a, 3 stream, ceildiv(b, 3)] on d"},
    {"the second adds what the first leaves open",
     "x : f32[a, b]; z : f32[a, b]; y = x + z; return y", DEVICES_ON(x, 0) STREAM(z, 1), "y",
     "y[2 mesh.x, ceildiv(a, 2), 3 stream, ceildiv(b, 3)] on d"},
};
static void test_order(void) { RUN_ROWS(order_rows); }

/* ---- what is left alone ---- */
static const row rule_rows[] = {
    {"on is the whole word about a result", "x : f32[a]; y = neg(x); return y",
     DEVICES_ON(x, 0) "y on d", "y", "y[a] on d"},
    {"also about streams", "x : f32[a]; y = neg(x); return y", STREAM(x, 0) "y on d", "x y",
     "x[3 stream, ceildiv(a, 3)] on d; y[a] on d"},
    {"an input may still be streamed", "x : f32[a, b]; y = neg(x); return y",
     DEVICES_ON(x, 0) STREAM(y, 1), "x y",
     "x[2 mesh.x, ceildiv(a, 2), 3 stream, ceildiv(b, 3)] on d; "
     "y[2 mesh.x, ceildiv(a, 2), 3 stream, ceildiv(b, 3)] on d"},
    {"but lies as its owner says", "x : f32[a]; y = neg(x); return y", DEVICES_ON(y, 0), "x",
     "x[a] on d"},
    {"serial keeps an axis free", "x : f32[a, b]; y = neg(x); z = neg(y); return z",
     DEVICES_ON(x, 0) STREAM(x, 2) "y[0] = serial", "y z",
     "y[a serial, 3 stream, ceildiv(b, 3)] on d; z[a, 3 stream, ceildiv(b, 3)] on d"},
    {"what the user split is not split again", "x : f32[a]; y = neg(x); return y",
     DEVICES_ON(x, 0) "y.split(0, 5)", "y", "y[ceildiv(a, 5), 5] on d"},
    {"marks without a mesh stay", "x : f32[a, b]; y = neg(x); return y",
     DEVICES_ON(x, 0) STREAM(y, 1), "y",
     "y[2 mesh.x, ceildiv(a, 2), 3 stream, ceildiv(b, 3)] on d"},
    {"a mesh comes without marks too", "x : f32[a]; y = neg(x); z = neg(y); return z", "x on d",
     "y z", "y[a] on d; z[a] on d"},
    {"a mesh of another size gives no marks", "x : f32[6]; t = neg(x); y = neg(t); return y",
     "x on d; x.outer_split(0, d); x[0] = mesh.x; t on e; y on d", "t y", "t[6] on e; y[6] on d"},
    {"only along axes that both have", "x : f32[6, b]; y = neg(x); z = y + y; return z",
     "x on g; x.outer_split(0, g.y); x[0] = mesh.y; x.outer_split(2, g.x); x[2] = mesh.x; y on e; "
     "y.outer_split(1, e); y[1] = mesh.x",
     "z", "z[6, 3 mesh.x, ceildiv(b, 3)] on e"},
    {"nor of a dimension whose size is not known",
     "x : f32[n, b]; z : f32[n, b]; y = z + x; return y",
     "z on e; " STREAM(z, 1) "x on d; x[0] = mesh.x", "y", "y[n, 3 stream, ceildiv(b, 3)] on e"},
    {"one axis per mesh axis", "x : f32[a, b]; z : f32[a, b]; y = x + z; return y",
     DEVICES_ON(x, 0) DEVICES_ON(z, 1), "y", "y[2 mesh.x, ceildiv(a, 2), b] on d"},
    {"until nothing changes: back, and forward again",
     "x : f32[a]; t = set(x); u = neg(t); y = abs(t); return u, y", DEVICES_ON(y, 0), "t u",
     "t[2 mesh.x, ceildiv(a, 2)] on d; u[2 mesh.x, ceildiv(a, 2)] on d"},
    {"a mark that is refused leaves no split behind", "x : f32[a, b]; y = transpose(x); return y",
     "x on d; x.split(0, 3); x.merge(1); x.outer_split(1, d); x[1] = mesh.x; y[0] = serial", "y",
     "y[b serial, a] on d"},
    {"marks that hang together come in any order", "x : f32[12, b]; y = neg(x); return y",
     DEVICES_ON(x, 0) STREAM(x, 1) "x.reorder(1 -> 0)", "y", "y[2 mesh.x, 3 stream, 2, b] on d"},
    {"nested streams, one of which ends", "x : f32[a, b]; y = select(x, dim=1, index=0); return y",
     STREAM(x, 0) STREAM(x, 2), "y", "y[3 stream, ceildiv(a, 3)]"},
};
static void test_rules(void) { RUN_ROWS(rule_rows); }

/* ---- splits of every kind, meshes of every rank ---- */
static const row split_rows[] = {
    {"inner", "x : f32[a]; y = neg(x); return y", "x on d; x.split(0, d); x[1] = mesh.x", "y",
     "y[ceildiv(a, 2), 2 mesh.x] on d"},
    {"chunks", "x : f32[5]; y = neg(x); return y",
     "x on d; x.outer_split(0, [4, 1]); x[0] = mesh.x", "y", "y[2 mesh.x, 4] on d"},
    {"merged", "x : f32[a, b]; y = neg(x); return y",
     "x on d; x.merge(0); x.outer_split(0, d); x[0] = mesh.x", "y",
     "y[2 mesh.x, ceildiv(a * b, 2)] on d"},
    {"swizzled", "x : f32[a]; y = neg(x); return y",
     "x on d; x.outer_split(0, d); x.swizzle(0, mesh.x); x[0] = stream", "y",
     "y[2 stream, ceildiv(a, 2)] on d"},
    {"nested", "x : f32[a]; y = neg(x); return y",
     "x on g; x.outer_split(0, g.y); x.outer_split(1, g.x); x[0] = mesh.y; x[1] = mesh.x", "y",
     "y[2 mesh.y, 3 mesh.x, ceildiv(a, 6)] on g"},
    {"a whole dimension", "x : f32[2, b]; y = neg(x); return y", "x on d; x[0] = mesh.x", "y",
     "y[2 mesh.x, b] on d"},
    {"a cube", "mesh c = [2, 3, 2]; x : f32[n, i, j, k]; y = neg(x); return y",
     "x on c; x.outer_split(2, c.x); x[2] = mesh.x; x.outer_split(1, c.y); x[1] = mesh.y; "
     "x.outer_split(0, c.z); x[0] = mesh.z",
     "y", "y[2 mesh.z, ceildiv(n, 2), 3 mesh.y, ceildiv(i, 3), 2 mesh.x, ceildiv(j, 2), k] on c"},
    {"not into what an rfactor cut", "x : f32[a, 6]; y = sum(x, dims=[1]); return y",
     "x on d; x.outer_split(1, d); x[1] = mesh.x; y.outer_split(1, d); u = y.rfactor([2])", "u y",
     "u[a, 2, r 3] on d; y[a, r 2] on d"},
};
static void test_splits(void) { RUN_ROWS(split_rows); }

/* ---- rows of the reference's tests ---- */
static const row stream_rows[] = {
    {"ForwardPropagation", "x : f32[m, k]; w : f32[k, n]; y = matmul(x, w); return y",
     "w.outer_split(1, 2); w[1] = stream", "y", "y[m, 2 stream, ceildiv(n, 2), r k]"},
    {"BackwardPropagation", "x : f32[a, b]; t = x + 1; y = t + t; return y",
     "y.outer_split(0, 2); y[0] = stream", "x t y",
     "x[2 stream, ceildiv(a, 2), b]; t[2 stream, ceildiv(a, 2), b]; y[2 stream, ceildiv(a, 2), b]"},
    {"ShardedAllocation",
     "x : f32[a, b, c]; t = x + 1; y = sum(t, dims=[2]); z = t / 2; return y, z",
     "x.outer_split(0, 2); x[0] = stream", "t y z",
     "t[2 stream, ceildiv(a, 2), b, c]; y[2 stream, ceildiv(a, 2), b, r c]; "
     "z[2 stream, ceildiv(a, 2), b, c]"},
    {"ReplicatedAllocation",
     "x : f32[a, b, c]; t = x + 1; y = sum(t, dims=[2]); z = t / 2; return y, z",
     "x.outer_split(0, 2); x[0] = stream; y.outer_split(1, 2); y[1] = stream", "t y z",
     "t[2 stream, ceildiv(a, 2), b, c]; y[a, 2 stream, ceildiv(b, 2), r c]; "
     "z[2 stream, ceildiv(a, 2), b, c]"},
};
static void test_streams(void) { RUN_ROWS(stream_rows); }

/* Column-parallel: activations cut by rows, weights by what they give. Row-parallel: both by what they
 * take. Gradients follow. h = 12288. */
static const row overlap_rows[] = {
    {"Column forward", "x : bf16[t, 12288]; w : bf16[49152, 12288]; y = linear(x, w); return y",
     DEVICES_ON(x, 0) DEVICES_ON(w, 0) "y.outer_split(0, 2); y[0] = stream", "y",
     "y[2 stream, ceildiv(t, 2), 2 mesh.x, 24576, r 12288] on d"},
    {"Column weight gradient",
     "y : bf16[t, 49152]; x : bf16[t, 12288]; v = transpose(y); w = matmul(v, x); return w",
     DEVICES_ON(x, 0) DEVICES_ON(y, 1) "w.outer_split(-1, 2); w[-2] = stream", "y w",
     "y[2 stream, ceildiv(t, 2), 2 mesh.x, 24576] on d; "
     "w[2 mesh.x, 24576, 12288, r 2 stream, r ceildiv(t, 2)] on d"},
    {"Column input gradient",
     "y : bf16[t, 49152]; w : bf16[49152, 12288]; x = matmul(y, w); return x",
     DEVICES_ON(y, 1) "y.outer_split(0, 2); y[0] = stream; " DEVICES_ON(w, 0) DEVICES_ON(x, 0), "x",
     "x[2 mesh.x, ceildiv(t, 2), 12288, r 49152] on d"},
    {"Row forward", "x : bf16[t, 49152]; w : bf16[12288, 49152]; y = linear(x, w); return y",
     DEVICES_ON(x, 1) DEVICES_ON(
         w, 1) "y on d; y.outer_split(0, 2); y[0] = mesh.x; "
               "y.outer_split(-1, 2); y[-2] = mesh.x; x.outer_split(0, 2); x[0] = stream",
     "x y",
     "x[2 stream, ceildiv(t, 2), 2 mesh.x, 24576] on d; "
     "y[2 mesh.x, ceildiv(t, 2), 12288, r 2 mesh.x, r 24576] on d"},
    {"Row weight gradient",
     "y : bf16[t, 12288]; x : bf16[t, 49152]; v = transpose(y); w = matmul(v, x); return w",
     DEVICES_ON(x, 1) "x.outer_split(0, 2); x[0] = stream; " DEVICES_ON(y, 0), "w",
     "w[12288, 2 mesh.x, 24576, r 2 stream, r ceildiv(t, 2)] on d"},
    {"Row input gradient", "y : bf16[t, 12288]; w : bf16[12288, 49152]; x = matmul(y, w); return x",
     DEVICES_ON(w, 1) DEVICES_ON(y, 0) "x.outer_split(0, 2); x[0] = stream", "x",
     "x[2 stream, ceildiv(t, 2), 2 mesh.x, 24576, r 12288] on d"},
    {"Row forward with an allreduce",
     "x : bf16[t, 49152]; w : bf16[12288, 49152]; y = linear(x, w); return y",
     "x on d; x.outer_split(0, 2); x[0] = stream; x.outer_split(2, 2); x[2] = mesh.x; " DEVICES_ON(
         w, 1),
     "y", "y[2 stream, ceildiv(t, 2), 12288, r 2 mesh.x, r 24576] on d"},
};
static void test_overlap(void) { RUN_ROWS(overlap_rows); }

static const row sharding_rows[] = {
    {"PropagateSharding", "a : f32[3, n, 3]; b : f32[3, n, 3]; c = a + b; return c",
     "a, b on e; a[0] = mesh.x; b[2] = mesh.x", "c", "c[3 mesh.x, n, 3] on e"},
    {"ResidualAdd", "x : f32[a, b]; t = uniform([a, b]); y = x + t; return y", DEVICES_ON(x, 0),
     "t", "t[2 mesh.x, ceildiv(a, 2), b] on d"},
    {"PropagateParallelTypeOnce", "x : f32[a, b]; z : f32[a, b]; y = x + z; return y",
     DEVICES_ON(x, 0) DEVICES_ON(z, 1), "y", "y[2 mesh.x, ceildiv(a, 2), b] on d"},
    {"ReductionDIDxIsIgnored",
     "x : f32[m, k]; w : f32[n, k]; z : f32[m, n]; t = linear(x, w); y = z + t; return y",
     DEVICES_ON(x, 1) DEVICES_ON(w, 1) DEVICES_ON(z, 1), "t y",
     "t[m, 2 mesh.x, ceildiv(n, 2), r 2 mesh.x, r ceildiv(k, 2)] on d; "
     "y[m, 2 mesh.x, ceildiv(n, 2)] on d"},
    {"PropagationDoesNotOverwrite", "x : f32[a, b]; z : f32[a, b]; t = set(z); y = x + t; return y",
     "x, z on g; x.outer_split(0, g.x); x[0] = mesh.x; z.outer_split(0, g.y); z[0] = mesh.y", "t y",
     "t[2 mesh.y, ceildiv(a, 2), b] on g; y[3 mesh.x, ceildiv(a, 3), b] on g"},
    {"BackpropagateToShardedTvs", "x : f32[a, b]; z : f32[a, b]; t = set(z); y = x + t; return y",
     "x, z on g; x.outer_split(0, g.x); x[0] = mesh.x; z.outer_split(1, g.y); z[1] = mesh.y", "t y",
     "t[3 mesh.x, ceildiv(a, 3), 2 mesh.y, ceildiv(b, 2)] on g; "
     "y[3 mesh.x, ceildiv(a, 3), 2 mesh.y, ceildiv(b, 2)] on g"},
    {"BackpropMeshes", "x : f32[2, n]; t = uniform([2, n]); y = x + t; return y",
     "x on d; x[0] = mesh.x", "t y", "t[2 mesh.x, n] on d; y[2 mesh.x, n] on d"},
    {"AnnotateWeightOnly", "x : f32[2, 3]; w : f32[2, 3, 5]; y = matmul(x, w); return y",
     "w on d; w[0] = mesh.x", "x y", "x[2, 3] on d; y[2 mesh.x, 2, 5, r 3] on d"},
};
static void test_shardings(void) { RUN_ROWS(sharding_rows); }

/* ---- the command: all tests, those named, or --list ---- */
static const struct {
  const char *name;
  void (*run)(void);
} tests[] = {
    {"forward", test_forward}, {"backward", test_backward}, {"reshape", test_reshape},
    {"order", test_order},     {"rules", test_rules},       {"splits", test_splits},
    {"streams", test_streams}, {"overlap", test_overlap},   {"shardings", test_shardings},
};

typedef struct arguments {
  int n;
  char **words;
} arguments;

static status run_named(void *context) {
  const arguments *a = context;
  for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
    bool named = a->n == 1;
    for (int k = 1; k < a->n; k++) named = named || strcmp(a->words[k], tests[i].name) == 0;
    if (named) tests[i].run();
  }
  return STATUS_OK;
}

int main(int argc, char **argv) {
  bool list = argc == 2 && strcmp(argv[1], "--list") == 0;
  for (size_t i = 0; list && i < sizeof tests / sizeof *tests; i++) puts(tests[i].name);
  if (list) return 0;
  EXPECT(memory_guard(run_named, &(arguments){argc, argv}) == STATUS_OK);
  forget();
  return test_finish();
}
