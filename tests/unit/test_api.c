/* The public API: building, scheduling, parsing, running, and every way to be refused. */
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

#include <weir/weir.h>

#if defined(__has_include) && __has_include(<dlpack/dlpack.h>)
#include <dlpack/dlpack.h>
#define HAVE_DLPACK 1
#endif

#include "test.h"

#define EXPECT_OK(call)                                                                            \
  do {                                                                                             \
    if (!EXPECT_INT(call, WEIR_OK)) fprintf(stderr, "  %s\n", weir_error());                       \
  } while (0)
#define EXPECT_FAILS(call, status, message)                                                        \
  do {                                                                                             \
    EXPECT_INT(call, status);                                                                      \
    EXPECT_CONTAINS(weir_error(), message);                                                        \
  } while (0)

/* ---- layout ---- */
static void test_dlpack_layout(void) {
#ifdef HAVE_DLPACK
  EXPECT_INT(sizeof(weir_dl_tensor), sizeof(DLTensor));
  EXPECT_INT(sizeof(weir_dl_device), sizeof(DLDevice));
  EXPECT_INT(sizeof(weir_dl_dtype), sizeof(DLDataType));
  EXPECT_INT(offsetof(weir_dl_tensor, data), offsetof(DLTensor, data));
  EXPECT_INT(offsetof(weir_dl_tensor, device), offsetof(DLTensor, device));
  EXPECT_INT(offsetof(weir_dl_tensor, ndim), offsetof(DLTensor, ndim));
  EXPECT_INT(offsetof(weir_dl_tensor, dtype), offsetof(DLTensor, dtype));
  EXPECT_INT(offsetof(weir_dl_tensor, shape), offsetof(DLTensor, shape));
  EXPECT_INT(offsetof(weir_dl_tensor, strides), offsetof(DLTensor, strides));
  EXPECT_INT(offsetof(weir_dl_tensor, byte_offset), offsetof(DLTensor, byte_offset));
  EXPECT_INT(weir_dtype_to_dl(WEIR_F32).code, kDLFloat);
  EXPECT_INT(weir_dtype_to_dl(WEIR_BF16).code, kDLBfloat);
  EXPECT_INT(weir_dtype_to_dl(WEIR_U8).code, kDLUInt);
  EXPECT_INT(weir_dtype_to_dl(WEIR_I64).code, kDLInt);
#endif
  for (int t = WEIR_F64; t <= WEIR_BOOL; t++) {
    weir_dtype back = WEIR_F64;
    EXPECT_OK(weir_dtype_from_dl(weir_dtype_to_dl((weir_dtype)t), &back));
    EXPECT_INT(back, t);
  }
  weir_dtype none;
  EXPECT_FAILS(weir_dtype_from_dl((weir_dl_dtype){2, 32, 4}, &none), WEIR_BAD_USAGE, "4 lanes");
}

/* ---- options ---- */
static void expect_option(const weir_options *o, const char *name, size_t k, const char *want) {
  const char *value = "?";
  EXPECT_OK(weir_options_get(o, name, k, &value));
  if (want) EXPECT_STR(value, want);
  else EXPECT(value == NULL);
}

static void test_options(void) {
  weir_options *o = NULL;
  int64_t n = 0;
  bool flag = true;
  EXPECT_OK(weir_options_create(&o));
  EXPECT_OK(weir_options_get_int(o, "streams", &n));
  EXPECT_INT(n, 4);
  EXPECT_OK(weir_options_get_bool(o, "check", &flag));
  EXPECT(!flag);
  expect_option(o, "fill", 0, "normal");
  EXPECT_OK(weir_options_set(o, "streams", "7"));
  EXPECT_OK(weir_options_get_int(o, "streams", &n));
  EXPECT_INT(n, 7);
  EXPECT_OK(weir_options_set(o, "check", "true"));
  EXPECT_OK(weir_options_get_bool(o, "check", &flag));
  EXPECT(flag);
  EXPECT_OK(weir_options_set(o, "define", "t=6"));
  EXPECT_OK(weir_options_set(o, "define", "s=7"));
  expect_option(o, "define", 1, "s=7");
  expect_option(o, "define", 2, NULL);
  EXPECT_FAILS(weir_options_set(o, "streams", "0"), WEIR_BAD_USAGE, "from 1 to");
  EXPECT_FAILS(weir_options_set(o, "streams", "four"), WEIR_BAD_USAGE, "an integer");
  EXPECT_FAILS(weir_options_set(o, "streams", "99999999999999999999"), WEIR_BAD_USAGE, "from 1");
  EXPECT_FAILS(weir_options_set(o, "fill", "zeros"), WEIR_BAD_USAGE, "normal|int|iota|ones");
  EXPECT_FAILS(weir_options_set(o, "check", "maybe"), WEIR_BAD_USAGE, "true or false");
  EXPECT_FAILS(weir_options_set(o, "colour", "red"), WEIR_BAD_USAGE, "no option");
  EXPECT_FAILS(weir_options_get_int(o, "fill", &n), WEIR_BAD_USAGE, "not an integer");
  weir_options_destroy(o);
}

static void test_environment(void) {
  weir_options *o = NULL;
  (void)setenv("WEIR_STREAMS", "9", 1);
  (void)setenv("WEIR_DEFINE", "t=1,u=2", 1);
  EXPECT_OK(weir_options_create(&o));
  expect_option(o, "streams", 0, "9");
  expect_option(o, "define", 1, "u=2");
  EXPECT_OK(weir_options_set(o, "define", "t=3")); /* replaces what the environment gave */
  expect_option(o, "define", 0, "t=3");
  expect_option(o, "define", 1, NULL);
  weir_options_destroy(o);
  (void)setenv("WEIR_STREAMS", "none", 1);
  EXPECT_FAILS(weir_options_create(&o), WEIR_BAD_USAGE, "--streams");
  (void)unsetenv("WEIR_STREAMS");
  (void)unsetenv("WEIR_DEFINE");
}

/* ---- parsing and printing ---- */
static weir_module *parse(const char *text) {
  weir_module *m = NULL;
  EXPECT_OK(weir_module_parse("test.weir", text, strlen(text), NULL, &m));
  return m;
}

static void expect_print(const weir_module *m, const char *want) {
  char *text = NULL;
  EXPECT_OK(weir_module_print(m, &text));
  EXPECT_STR(text, want);
  weir_string_free(text);
}

static void expect_refused(const char *text, const char *message) {
  weir_module *m = NULL;
  EXPECT_FAILS(weir_module_parse("test.weir", text, strlen(text), NULL, &m), WEIR_BAD_PROGRAM,
               message);
  EXPECT(m == NULL);
}

static void test_parse(void) {
  const char *text = "fusion f {\n  x : f32[n]\n  y = neg(x)\n  return y\n}\n";
  weir_module *m = parse(text);
  expect_print(m, text);
  EXPECT_INT(weir_module_count(m), 1);
  weir_fusion *f = NULL;
  EXPECT_OK(weir_module_find(m, "f", &f));
  EXPECT_STR(weir_fusion_name(f), "f");
  EXPECT_FAILS(weir_module_find(m, "g", &f), WEIR_BAD_USAGE, "'g'");
  EXPECT_FAILS(weir_module_at(m, 1, &f), WEIR_BAD_USAGE, "number 1");
  EXPECT_OK(weir_module_verify(m));
  weir_module_destroy(m);
  expect_refused("fusion f { x : f32[2]; y = nag(x); return y }", "test.weir:1:28: error:");
  expect_refused("fusion f { x : f32[2]; return x; schedule { x[0] = mesh.x; x[0] = stream } }",
                 "error:");
}

/* Many errors: all of them are in the message, which is longer than a fixed record. */
static void test_long_message(void) {
  char text[8192] = "fusion f {\n  x : f32[2]\n";
  for (int i = 0; i < 60; i++) {
    char line[64];
    (void)snprintf(line, sizeof line, "  y%d = unknown_operation_%d(x)\n", i, i);
    strcat(text, line);
  }
  strcat(text, "  return x\n}\n");
  expect_refused(text, "unknown_operation_0'");
  EXPECT_CONTAINS(weir_error(), "unknown_operation_59'");
  EXPECT(strlen(weir_error()) > 4096);
  EXPECT_STR(weir_version(), WEIR_VERSION);
  EXPECT_CONTAINS(weir_error(), "unknown_operation_59'"); /* until the next call that can fail */
}

/* ---- building ---- */
static weir_tensor input(weir_fusion *f, const char *name, weir_dtype dtype, const char *e0,
                         const char *e1) {
  weir_tensor t = {0};
  EXPECT_OK(weir_fusion_input(f, name, dtype, (const char *[]){e0, e1}, e1 ? 2 : 1, &t));
  return t;
}

static weir_tensor op(weir_fusion *f, const char *name, const char *code, const weir_arg *args,
                      size_t n) {
  weir_tensor t = {0};
  EXPECT_OK(weir_fusion_op(f, name, code, args, n, &t));
  return t;
}
#define OP(f, name, code, ...)                                                                     \
  op(f, name, code, (const weir_arg[]){__VA_ARGS__},                                               \
     sizeof((const weir_arg[]){__VA_ARGS__}) / sizeof(weir_arg))
#define T(t) weir_arg_tensor(NULL, t)

static weir_module *module(weir_fusion **f) {
  weir_module *m = NULL;
  EXPECT_OK(weir_module_create(NULL, &m));
  EXPECT_OK(weir_fusion_create(m, "f", f));
  return m;
}

static void test_build(void) {
  weir_fusion *f = NULL;
  weir_module *m = module(&f);
  weir_tensor x = input(f, "x", WEIR_F32, "a", "4"), i = input(f, "i", WEIR_I64, "?", NULL);
  weir_tensor y = OP(f, "y", "add", T(x), weir_arg_float(NULL, 0.5));
  OP(f, "r", "reshape", T(y), weir_arg_text(NULL, "[a * 2, 2]"));
  OP(f, "s", "sum", T(x), weir_arg_ints("dims", (const int64_t[]){0}, 1),
     weir_arg_bool("keepdim", true));
  OP(f, "b", "broadcast", T(i), weir_arg_ints(NULL, (const int64_t[]){1, 0}, 2));
  OP(f, "h", "cast", T(x), weir_arg_dtype(NULL, WEIR_BF16));
  OP(f, "g", "gelu", T(x), weir_arg_text("approximate", "tanh"));
  OP(f, "k", "cat", T(x), T(y), T(x), weir_arg_int("dim", 0));
  OP(f, "z", "zeros", weir_arg_ints(NULL, (const int64_t[]){2, 3}, 2),
     weir_arg_text("dtype", "i8"));
  OP(f, "q", "select", T(x), weir_arg_int("dim", 1), weir_arg_text("index", "2"));
  OP(f, "e", "mul", T(x), weir_arg_text(NULL, "a"));
  weir_tensor w =
      OP(f, "w", "pad", T(x), weir_arg_text(NULL, "[0, 1, 0, 0]"), weir_arg_int("value", 7));
  EXPECT_OK(weir_fusion_return(f, w));
  EXPECT_OK(weir_fusion_return(f, y));
  EXPECT_OK(weir_module_verify(m));
  expect_print(m, "fusion f {\n"
                  "  x : f32[a, 4]\n"
                  "  i : i64[?]\n"
                  "  y = x + 0.5\n"
                  "  r = reshape(y, [2 * a, 2])\n"
                  "  s = sum(x, dims=[0], keepdim=true)\n"
                  "  b = broadcast(i, [true, false])\n"
                  "  h = cast(x, bf16)\n"
                  "  g = gelu(x, approximate=tanh)\n"
                  "  k = cat(x, y, x, dim=0)\n"
                  "  z = zeros([2, 3], dtype=i8)\n"
                  "  q = select(x, dim=1, index=2)\n"
                  "  e = x * a\n"
                  "  w = pad(x, [0, 1, 0, 0], value=7)\n"
                  "  return w, y\n"
                  "}\n");
  weir_tensor_info info;
  weir_dtype least;
  EXPECT_OK(weir_tensor_describe(f, y, &info));
  EXPECT(strcmp(info.name, "y") == 0 && info.dtype == WEIR_F32 && info.rank == 2);
  char *type = NULL;
  EXPECT_OK(weir_tensor_type(f, y, &type));
  EXPECT_STR(type, "f32[a, 4]");
  weir_string_free(type);
  EXPECT_FAILS(weir_tensor_type(f, y, NULL), WEIR_BAD_USAGE, "NULL");
  EXPECT_FAILS(weir_tensor_type(f, (weir_tensor){0}, &type), WEIR_BAD_PROGRAM, "");
  EXPECT_OK(weir_fusion_least_dtype(f, y, &least));
  EXPECT_INT(least, WEIR_F32);
  EXPECT_INT(weir_fusion_devices(f), 1);
  weir_module_destroy(m);
}

/* An operation with several results gives those that are named. */
static void test_build_results(void) {
  weir_fusion *f = NULL;
  weir_module *m = module(&f);
  weir_tensor x = input(f, "x", WEIR_F32, "a", "4"), all[2];
  const char *const names[] = {"u", "i"};
  weir_arg top[] = {T(x), weir_arg_int("k", 1)};
  EXPECT_OK(weir_fusion_op_results(f, names, 2, "topk", top, 2, all));
  weir_tensor_info info;
  EXPECT_OK(weir_tensor_describe(f, all[1], &info));
  EXPECT_STR(info.name, "i");
  EXPECT_INT(info.dtype, WEIR_I64);
  weir_module_destroy(m);
}

/* A refused call says why and leaves the fusion as it was. */
static void test_build_errors(void) {
  weir_fusion *f = NULL, *other = NULL;
  weir_module *m = module(&f);
  weir_tensor x = input(f, "x", WEIR_F32, "a", "4"), t = {0};
  weir_mesh mesh = {0};
  weir_tensor v = input(f, "v", WEIR_F32, "3", NULL);
  weir_arg one[] = {T(x)}, two[] = {T(x), T(v)};
  EXPECT_FAILS(weir_fusion_create(m, "f", &other), WEIR_BAD_PROGRAM, "already");
  EXPECT_FAILS(weir_fusion_create(m, "a b", &other), WEIR_BAD_PROGRAM, "cannot be");
  EXPECT_FAILS(weir_fusion_op(f, "y", "nag", one, 1, &t), WEIR_BAD_PROGRAM, "'nag'");
  const char *const names[] = {"u", "i", "j"}, *const same[] = {"u", "u"};
  weir_tensor all[3];
  weir_arg top[] = {one[0], weir_arg_int("k", 1)};
  EXPECT_FAILS(weir_fusion_op_results(f, names, 3, "topk", top, 2, all), WEIR_BAD_PROGRAM,
               "topk has 2 results, not 3");
  EXPECT_FAILS(weir_fusion_op_results(f, same, 2, "topk", top, 2, all), WEIR_BAD_PROGRAM,
               "already");
  EXPECT_FAILS(weir_fusion_op(f, "y", "add", one, 1, &t), WEIR_BAD_PROGRAM, "add(a, b)");
  EXPECT_FAILS(weir_fusion_op(f, "y", "neg", two, 2, &t), WEIR_BAD_PROGRAM, "too many");
  EXPECT_FAILS(weir_fusion_op(f, "x", "neg", one, 1, &t), WEIR_BAD_PROGRAM, "already");
  EXPECT_FAILS(weir_fusion_op(f, "return", "neg", one, 1, &t), WEIR_BAD_PROGRAM, "cannot be");
  EXPECT_FAILS(weir_fusion_op(f, "y", "add", two, 2, &t), WEIR_BAD_PROGRAM, "error:");
  weir_arg missing[] = {weir_arg_tensor(NULL, (weir_tensor){0})};
  EXPECT_FAILS(weir_fusion_op(f, "y", "neg", missing, 1, &t), WEIR_BAD_PROGRAM, "no tensor");
  weir_arg unknown[] = {T(x), weir_arg_int("colour", 1)};
  EXPECT_FAILS(weir_fusion_op(f, "y", "sum", unknown, 2, &t), WEIR_BAD_PROGRAM, "colour");
  weir_arg wrong[] = {T(x), weir_arg_float("dims", 1)};
  EXPECT_FAILS(weir_fusion_op(f, "y", "sum", wrong, 2, &t), WEIR_BAD_PROGRAM, "dims");
  weir_arg text[] = {T(x), weir_arg_text(NULL, "[a * q]")};
  EXPECT_FAILS(weir_fusion_op(f, "y", "reshape", text, 2, &t), WEIR_BAD_PROGRAM, "'[a * q]'");
  weir_arg tail[] = {T(x), weir_arg_text(NULL, "[a, 4] 5")};
  EXPECT_FAILS(weir_fusion_op(f, "y", "reshape", tail, 2, &t), WEIR_BAD_PROGRAM, "the end");
  EXPECT_FAILS(weir_fusion_mesh(f, "d", (const int64_t[]){2}, 1, (const int64_t[]){1, 1}, &mesh),
               WEIR_BAD_PROGRAM, "twice");
  EXPECT_FAILS(weir_fusion_input(f, "p", WEIR_F32, (const char *[]){"-1"}, 1, &t), WEIR_BAD_PROGRAM,
               "negative");
  EXPECT_FAILS(weir_fusion_input(f, "p", (weir_dtype)77, NULL, 0, &t), WEIR_BAD_USAGE, "dtype");
  EXPECT_FAILS(weir_fusion_op(NULL, "y", "neg", one, 1, &t), WEIR_BAD_USAGE, "NULL");
  EXPECT_FAILS(weir_fusion_tensor(f, "nothing", &t), WEIR_BAD_USAGE, "'nothing'");
  EXPECT_INT(t.id, 0);
  t = OP(f, "y", "neg", T(x));
  EXPECT_OK(weir_fusion_return(f, t));
  expect_print(m, "fusion f {\n  x : f32[a, 4]\n  v : f32[3]\n  y = neg(x)\n  return y\n}\n");
  weir_module_destroy(m);
}

/* ---- scheduling ---- */
static void test_schedule(void) {
  weir_fusion *f = NULL;
  weir_module *m = module(&f);
  weir_mesh d = {0}, g = {0}, again = {0};
  EXPECT_OK(weir_fusion_mesh(f, "d", (const int64_t[]){2}, 1, NULL, &d));
  EXPECT_OK(weir_fusion_mesh(f, "g", (const int64_t[]){2, 3}, 2, NULL, &g));
  EXPECT_OK(weir_fusion_find_mesh(f, "g", &again));
  EXPECT_INT(again.id, g.id);
  EXPECT_INT(weir_fusion_devices(f), 6);
  weir_tensor x = input(f, "x", WEIR_F32, "n", "12"), u = {0};
  EXPECT_OK(weir_schedule_on(f, x, d));
  EXPECT_OK(weir_schedule_outer_split(f, x, 0, "d"));
  EXPECT_OK(weir_schedule_mark(f, x, 0, "mesh.x"));
  weir_tensor y = OP(f, "y", "sum", T(x), weir_arg_ints("dims", (const int64_t[]){1}, 1));
  EXPECT_OK(weir_fusion_return(f, y)); /* definitions may follow schedules */
  EXPECT_OK(weir_schedule_split(f, y, 0, "n / 2"));
  EXPECT_OK(weir_schedule_outer_split(f, y, -1, "g.x"));
  EXPECT_OK(weir_schedule_rfactor(f, y, (const int64_t[]){3}, 1, "u", &u));
  EXPECT_OK(weir_schedule_memory(f, u, "symmetric"));
  EXPECT_OK(weir_schedule_reorder(f, x, (const int64_t[]){1}, (const int64_t[]){2}, 1));
  EXPECT_OK(weir_schedule_chunk_split(f, x, 1, (const int64_t[]){5, 7}, 2));
  EXPECT_OK(weir_schedule_merge(f, x, 1));
  EXPECT_OK(weir_schedule_allocate(f, x, (const int64_t[]){1, 0}, 2));
  EXPECT_OK(weir_module_verify(m));
  expect_print(m, "fusion f {\n"
                  "  mesh d = [2]\n"
                  "  mesh g = [2, 3]\n"
                  "  x : f32[n, 12]\n"
                  "  y = sum(x, dims=[1])\n"
                  "  return y\n"
                  "  schedule {\n"
                  "    x on d\n"
                  "    x.outer_split(0, d)\n"
                  "    x[0] = mesh.x\n"
                  "    y.split(0, n / 2)\n"
                  "    y.outer_split(-1, g.x)\n"
                  "    u = y.rfactor([3])\n"
                  "    u.memory(symmetric)\n"
                  "    x.reorder(1 -> 2)\n"
                  "    x.outer_split(1, [5, 7])\n"
                  "    x.merge(1)\n"
                  "    x.allocate([1, 0])\n"
                  "  }\n"
                  "}\n");
  EXPECT_FAILS(weir_schedule_mark(f, x, 9, "stream"), WEIR_BAD_PROGRAM, "error:");
  EXPECT_FAILS(weir_schedule_mark(f, x, 1, "colour"), WEIR_BAD_PROGRAM, "'colour'");
  EXPECT_FAILS(weir_schedule_mark(f, x, 1, "mesh.q"), WEIR_BAD_PROGRAM, "mesh axis");
  EXPECT_FAILS(weir_schedule_mark(f, x, 1, "stream.rung"), WEIR_BAD_PROGRAM, "stream.rung");
  EXPECT_FAILS(weir_schedule_split(f, x, 1, "zz"), WEIR_BAD_PROGRAM, "'zz'");
  EXPECT_FAILS(weir_schedule_split(f, x, 1, "g"), WEIR_BAD_PROGRAM, "axes");
  EXPECT_FAILS(weir_schedule_memory(f, x, "far"), WEIR_BAD_PROGRAM, "'far'");
  EXPECT_FAILS(weir_schedule_on(f, x, (weir_mesh){0}), WEIR_BAD_PROGRAM, "no mesh");
  EXPECT_FAILS(weir_schedule_swizzle(f, x, 0, NULL), WEIR_BAD_USAGE, "NULL");
  EXPECT_OK(weir_module_verify(m));
  weir_module_destroy(m);
}

/* ---- shapes ---- */
static void test_shapes(void) {
  weir_module *m = parse("fusion f { x : f32[n, m]; y : i64[n]; z = index_select(x, y, dim=1); "
                         "w = neg(x); return z, w }");
  weir_fusion *f = NULL;
  weir_shapes *s = NULL;
  weir_tensor x = {0}, y = {0}, z = {0};
  int64_t extents[WEIR_MAX_RANK], bound = 0;
  size_t rank = 0;
  EXPECT_OK(weir_module_find(m, NULL, &f));
  EXPECT_OK(weir_fusion_tensor(f, "x", &x));
  EXPECT_OK(weir_fusion_input_at(f, 1, &y));
  EXPECT_OK(weir_fusion_output_at(f, 0, &z));
  EXPECT_OK(weir_shapes_create(f, &s));
  EXPECT_INT(weir_shapes_unbound(s), 3);
  EXPECT_FAILS(weir_shapes_complete(s), WEIR_BAD_PROGRAM, "n, m");
  EXPECT_FAILS(weir_shapes_of(s, x, extents, &rank), WEIR_BAD_USAGE, "not complete");
  EXPECT_OK(weir_shapes_define(s, "n=3"));
  EXPECT_FAILS(weir_shapes_define(s, "n=4"), WEIR_BAD_PROGRAM, "4");
  EXPECT_FAILS(weir_shapes_define(s, "q=4"), WEIR_BAD_PROGRAM, "q");
  EXPECT_FAILS(weir_shapes_define(s, "n"), WEIR_BAD_PROGRAM, "not a definition");
  EXPECT_FAILS(weir_shapes_define(s, "n=3y"), WEIR_BAD_PROGRAM, "not a definition");
  EXPECT_FAILS(weir_shapes_define(s, "x=3x99999999999999999999"), WEIR_BAD_PROGRAM,
               "not a definition");
  EXPECT_FAILS(weir_shapes_input(s, x, (const int64_t[]){5, 5}, 2, "x.npy"), WEIR_BAD_PROGRAM,
               "x.npy");
  EXPECT_OK(weir_shapes_define(s, "x=3x5"));
  EXPECT_INT(weir_shapes_unbound(s), 0);
  EXPECT_OK(weir_shapes_complete(s));
  EXPECT_OK(weir_shapes_of(s, z, extents, &rank));
  EXPECT(rank == 2 && extents[0] == 3 && extents[1] == 3);
  EXPECT_OK(weir_shapes_index_bound(s, y, &bound));
  EXPECT_INT(bound, 5);
  EXPECT_OK(weir_shapes_index_bound(s, x, &bound));
  EXPECT_INT(bound, 0);
  weir_shapes_destroy(s);
  weir_module_destroy(m);
}

/* ---- running ---- */
static weir_dl_tensor tensor(void *data, weir_dtype dtype, int64_t *shape, int rank) {
  return (weir_dl_tensor){.data = data,
                          .device = {1, 0},
                          .ndim = rank,
                          .dtype = weir_dtype_to_dl(dtype),
                          .shape = shape};
}

static weir_program *compile(const char *text) {
  weir_module *m = parse(text);
  weir_fusion *f = NULL;
  weir_program *p = NULL;
  EXPECT_OK(weir_module_find(m, NULL, &f));
  EXPECT_OK(weir_compile(f, NULL, NULL, &p));
  weir_module_destroy(m);
  return p;
}

static weir_status run(const weir_program *p, const weir_dl_tensor *in, const weir_dl_tensor *out) {
  weir_run_args args = {
      .struct_size = sizeof args, .inputs = &in, .n_inputs = 1, .outputs = &out, .n_outputs = 1};
  return weir_run(p, &args);
}

static const char *const twice = "fusion f { x : f32[n, 2]; y = x * 2; return y }";

/* A transposed view with an offset in; a view with gaps out. */
static void test_run_strided(void) {
  weir_program *p = compile(twice);
  float in[7] = {-1, 1, 2, 3, 4, 5, 6}, out[12];
  for (int i = 0; i < 12; i++) out[i] = 99;
  int64_t shape[2] = {3, 2}, in_strides[2] = {1, 3}, out_strides[2] = {4, 2};
  weir_dl_tensor x = tensor(in, WEIR_F32, shape, 2), y = tensor(out, WEIR_F32, shape, 2);
  x.strides = in_strides;
  x.byte_offset = sizeof(float);
  y.strides = out_strides;
  EXPECT_OK(run(p, &x, &y));
  const float want[12] = {2, 99, 8, 99, 4, 99, 10, 99, 6, 99, 12, 99};
  EXPECT(memcmp(out, want, sizeof want) == 0);
  weir_program_destroy(p);
}

static void test_run_errors(void) {
  weir_program *p = compile(twice);
  float in[6] = {0}, out[6] = {7, 7, 7, 7, 7, 7};
  int64_t shape[2] = {3, 2}, wrong[2] = {3, 3}, zero[2] = {0, 1};
  weir_dl_tensor x = tensor(in, WEIR_F32, shape, 2), y = tensor(out, WEIR_F32, shape, 2), bad = x;
  weir_run_args args = {.struct_size = sizeof args};
  EXPECT_FAILS(weir_run(p, &args), WEIR_BAD_USAGE, "1 inputs");
  EXPECT_FAILS(run(p, NULL, &y), WEIR_BAD_USAGE, "input x is NULL");
  bad.dtype = weir_dtype_to_dl(WEIR_F64);
  EXPECT_FAILS(run(p, &bad, &y), WEIR_BAD_USAGE, "input x holds f64");
  bad = x;
  bad.dtype.lanes = 2;
  EXPECT_FAILS(run(p, &bad, &y), WEIR_BAD_USAGE, "2 lanes");
  bad = x;
  bad.device.device_type = 4;
  EXPECT_FAILS(run(p, &bad, &y), WEIR_BAD_USAGE, "device of type 4");
  bad = x;
  bad.shape = wrong;
  EXPECT_FAILS(run(p, &bad, &y), WEIR_BAD_PROGRAM, "input x");
  bad = x;
  bad.ndim = 1;
  EXPECT_FAILS(run(p, &bad, &y), WEIR_BAD_PROGRAM, "rank");
  bad.ndim = 17;
  EXPECT_FAILS(run(p, &bad, &y), WEIR_BAD_USAGE, "17 dimensions");
  bad = x;
  bad.data = NULL;
  EXPECT_FAILS(run(p, &bad, &y), WEIR_BAD_USAGE, "no data");
  bad = y;
  bad.shape = wrong;
  EXPECT_FAILS(run(p, &x, &bad), WEIR_BAD_USAGE, "output y");
  bad = y;
  bad.strides = zero;
  EXPECT_FAILS(run(p, &x, &bad), WEIR_BAD_USAGE, "share memory");
  for (int i = 0; i < 6; i++) EXPECT(out[i] == 7);
  EXPECT_OK(run(p, &x, &y));
  weir_program_destroy(p);
}

/* A wrong index is found while running; the output stays as it was. */
/* A fusion that was never text has one for messages: they show the line of the operation. */
static void test_built_places(void) {
  weir_fusion *f = NULL;
  weir_module *m = module(&f);
  weir_program *p = NULL;
  weir_tensor x = input(f, "x", WEIR_F32, "n", NULL), y = input(f, "y", WEIR_F32, "m", NULL);
  weir_arg twice_args[] = {weir_arg_tensor(NULL, x), weir_arg_int(NULL, 2)};
  weir_tensor d = op(f, "d", "mul", twice_args, 2);
  weir_arg args[] = {weir_arg_tensor(NULL, d), weir_arg_tensor(NULL, y)};
  EXPECT_OK(weir_fusion_return(f, op(f, "z", "add", args, 2)));
  EXPECT_OK(weir_compile(f, NULL, NULL, &p));
  weir_module_destroy(m);
  float a[4] = {0}, b[5] = {0}, c[4];
  int64_t four[] = {4}, five[] = {5};
  weir_dl_tensor in[] = {tensor(a, WEIR_F32, four, 1), tensor(b, WEIR_F32, five, 1)};
  weir_dl_tensor out = tensor(c, WEIR_F32, four, 1);
  const weir_dl_tensor *inputs[] = {&in[0], &in[1]}, *outputs[] = {&out};
  weir_run_args run_args = {.struct_size = sizeof run_args, .inputs = inputs, .n_inputs = 2};
  run_args.outputs = outputs;
  run_args.n_outputs = 1;
  EXPECT_FAILS(weir_run(p, &run_args), WEIR_BAD_PROGRAM,
               ":5:3: error: extents of add: n = 4 must equal m = 5\n      z = d + y\n");
  weir_program_destroy(p);
}

static void test_run_fails_late(void) {
  weir_program *p = compile("fusion f { i : i64[2]; x = iota(3); y = index_select(x, i, dim=0); "
                            "return y }");
  int64_t in[2] = {0, 5}, out[2] = {7, 7}, shape[1] = {2};
  weir_dl_tensor x = tensor(in, WEIR_I64, shape, 1), y = tensor(out, WEIR_I64, shape, 1);
  EXPECT_FAILS(run(p, &x, &y), WEIR_BAD_PROGRAM, "5");
  EXPECT(out[0] == 7 && out[1] == 7);
  weir_program_destroy(p);
}

enum { N_THREADS = 4, N_RUNS = 50 };

typedef struct worker {
  const weir_program *p;
  int64_t n;
  int failures;
} worker;

/* Good runs of different shapes, and refused ones, at the same time. */
static void *work(void *context) {
  worker *w = context;
  float in[64], out[64];
  int64_t shape[2] = {w->n, 2}, wrong[2] = {w->n, 3};
  for (int i = 0; i < 64; i++) in[i] = (float)i;
  weir_dl_tensor x = tensor(in, WEIR_F32, shape, 2), y = tensor(out, WEIR_F32, shape, 2);
  weir_dl_tensor bad = tensor(in, WEIR_F32, wrong, 2);
  for (int k = 0; k < N_RUNS; k++) {
    w->failures += run(w->p, &x, &y) != WEIR_OK;
    for (int i = 0; i < 2 * w->n; i++) w->failures += out[i] != 2 * in[i];
    w->failures += run(w->p, &bad, &y) != WEIR_BAD_PROGRAM;
    w->failures += strstr(weir_error(), "input x") == NULL;
  }
  return NULL;
}

static void test_threads(void) {
  weir_program *p = compile(twice);
  pthread_t threads[N_THREADS];
  worker workers[N_THREADS];
  for (int i = 0; i < N_THREADS; i++) {
    workers[i] = (worker){p, i + 1, 0};
    EXPECT_INT(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
  }
  for (int i = 0; i < N_THREADS; i++) {
    (void)pthread_join(threads[i], NULL);
    EXPECT_INT(workers[i].failures, 0);
  }
  weir_program_destroy(p);
}

/* ---- arrays ---- */
static void test_arrays(void) {
  weir_array *a = NULL, *b = NULL, *half = NULL;
  weir_comparison c;
  EXPECT_OK(weir_array_create(WEIR_F32, (const int64_t[]){2, 3}, 2, NULL, &a));
  EXPECT_OK(weir_array_fill(a, "normal", 1, "x"));
  EXPECT_OK(weir_array_convert(a, WEIR_BF16, &half));
  EXPECT_OK(weir_array_convert(half, WEIR_F32, &b));
  EXPECT_OK(weir_array_compare(b, a, WEIR_BF16, &c));
  EXPECT(c.ok && c.max_abs > 0);
  EXPECT_OK(weir_array_compare(b, a, WEIR_F32, &c));
  EXPECT(!c.ok);
  EXPECT_FAILS(weir_array_compare(half, a, WEIR_F32, &c), WEIR_BAD_USAGE, "differ");
  EXPECT_FAILS(weir_array_fill(a, "zeros", 1, "x"), WEIR_BAD_USAGE, "'zeros'");
  EXPECT_FAILS(weir_array_load_npy("/no/such.npy", NULL, &b), WEIR_BAD_INPUT, "/no/such.npy");
  EXPECT_FAILS(weir_array_save_npy(a, "/no/such.npy"), WEIR_BAD_INPUT, "/no/such.npy");
  EXPECT_FAILS(weir_array_create(WEIR_F32, (const int64_t[]){-1}, 1, NULL, &a), WEIR_BAD_USAGE,
               "negative");
  weir_array *huge = NULL;
  EXPECT_FAILS(weir_array_create(WEIR_F32, (const int64_t[]){INT64_MAX, 8}, 2, NULL, &huge),
               WEIR_BAD_PROGRAM, "overflow");
  weir_array_destroy(a);
  weir_array_destroy(b);
  weir_array_destroy(half);
}

/* ---- passes and lists ---- */
static void test_passes(void) {
  weir_module *m = parse("fusion f { x : f32[2]; y = -x; z = exp(x); return y }");
  char *log = NULL;
  weir_pass_args args = {.struct_size = sizeof args, .passes = "dce", .print_after = "all"};
  EXPECT_OK(weir_module_run_passes(m, &args, &log));
  EXPECT_CONTAINS(log, "dce");
  weir_string_free(log);
  expect_print(m, "fusion f {\n  x : f32[2]\n  y = neg(x)\n  return y\n}\n");
  args = (weir_pass_args){.struct_size = sizeof args, .passes = "fly"};
  EXPECT_FAILS(weir_module_run_passes(m, &args, NULL), WEIR_BAD_USAGE, "fly");
  weir_module_destroy(m);
}

static void test_lists(void) {
  static const char *const kinds[] = {"ops", "passes", "devices", "options"};
  static const char *const parts[] = {"matmul(a, b, [dtype=])", "dce", "ref", "--streams=N"};
  char *text = NULL;
  for (int i = 0; i < 4; i++) {
    EXPECT_OK(weir_list(kinds[i], &text));
    EXPECT_CONTAINS(text, parts[i]);
    weir_string_free(text);
  }
  EXPECT_FAILS(weir_list("colours", &text), WEIR_BAD_USAGE, "'colours'");
}

/* ---- memory that runs out ---- */
typedef struct faults {
  uint64_t calls, fail_at;
  int64_t live;
} faults;

static void *faulty_alloc(void *context, size_t size_bytes) {
  faults *f = context;
  if (f->calls++ == f->fail_at) return NULL;
  f->live++;
  return malloc(size_bytes);
}

static void faulty_free(void *context, void *block) {
  faults *f = context;
  if (block) f->live--;
  free(block);
}

/* Builds, schedules, compiles and runs; gives up at the first failure. */
static weir_status whole_life(const weir_allocator *memory, weir_module **m, weir_program **p,
                              weir_array *a[2]) {
  weir_fusion *f;
  weir_tensor x, y;
  weir_status st = weir_module_create(memory, m);
  if (st == WEIR_OK) st = weir_fusion_create(*m, "f", &f);
  if (st == WEIR_OK) st = weir_fusion_input(f, "x", WEIR_F32, (const char *[]){"n"}, 1, &x);
  if (st == WEIR_OK) st = weir_fusion_op(f, "y", "neg", &(weir_arg){.tensor = x}, 1, &y);
  if (st == WEIR_OK) st = weir_fusion_return(f, y);
  if (st == WEIR_OK) st = weir_schedule_outer_split(f, y, 0, "2");
  if (st == WEIR_OK) st = weir_schedule_mark(f, y, 0, "stream.ring");
  if (st == WEIR_OK) st = weir_compile(f, NULL, memory, p);
  for (int i = 0; i < 2 && st == WEIR_OK; i++)
    st = weir_array_create(WEIR_F32, (const int64_t[]){4}, 1, memory, &a[i]);
  return st == WEIR_OK ? run(*p, weir_array_tensor(a[0]), weir_array_tensor(a[1])) : st;
}

static void test_out_of_memory(void) {
  weir_status st = WEIR_OUT_OF_MEMORY;
  for (uint64_t n = 0; st != WEIR_OK && n < 10000; n++) {
    faults f = {.fail_at = n};
    weir_allocator memory = {faulty_alloc, faulty_free, &f};
    weir_module *m = NULL;
    weir_program *p = NULL;
    weir_array *a[2] = {NULL};
    st = whole_life(&memory, &m, &p, a);
    EXPECT(st == WEIR_OK || st == WEIR_OUT_OF_MEMORY);
    if (st != WEIR_OK) EXPECT_CONTAINS(weir_error(), "allocate");
    for (int i = 0; i < 2; i++) weir_array_destroy(a[i]);
    weir_program_destroy(p);
    weir_module_destroy(m);
    EXPECT_INT(f.live, 0);
  }
  EXPECT_INT(st, WEIR_OK);
}

/* Once a shape has been run, running it again allocates nothing. */
static void test_steady_state(void) {
  faults f = {.fail_at = UINT64_MAX};
  weir_allocator memory = {faulty_alloc, faulty_free, &f};
  weir_module *m = NULL;
  weir_program *p = NULL;
  weir_array *a[2] = {NULL};
  EXPECT_INT(whole_life(&memory, &m, &p, a), WEIR_OK);
  EXPECT_INT(run(p, weir_array_tensor(a[0]), weir_array_tensor(a[1])), WEIR_OK);
  uint64_t before = f.calls;
  for (int i = 0; i < 100; i++) {
    EXPECT_INT(run(p, weir_array_tensor(a[0]), weir_array_tensor(a[1])), WEIR_OK);
  }
  EXPECT_INT(f.calls, before);
  for (int i = 0; i < 2; i++) weir_array_destroy(a[i]);
  weir_program_destroy(p);
  weir_module_destroy(m);
  EXPECT_INT(f.live, 0);
}

static void test_null(void) {
  weir_module *m = NULL;
  weir_module_destroy(NULL);
  weir_program_destroy(NULL);
  weir_array_destroy(NULL);
  weir_shapes_destroy(NULL);
  weir_options_destroy(NULL);
  weir_string_free(NULL);
  EXPECT_FAILS(weir_module_parse(NULL, "", 0, NULL, &m), WEIR_BAD_USAGE, "NULL");
  EXPECT_FAILS(weir_module_load("/no/such.weir", NULL, &m), WEIR_BAD_INPUT, "/no/such.weir");
  EXPECT_FAILS(weir_module_load("/", NULL, &m), WEIR_BAD_INPUT, "directory");
  EXPECT_FAILS(weir_module_verify(NULL), WEIR_BAD_USAGE, "NULL");
  EXPECT_FAILS(weir_run(NULL, NULL), WEIR_BAD_USAGE, "NULL");
  EXPECT_FAILS(weir_compile(NULL, NULL, NULL, NULL), WEIR_BAD_USAGE, "NULL");
  EXPECT_INT(weir_exit_code(WEIR_OK), 0);
  EXPECT_INT(weir_exit_code(WEIR_CHECK_FAILED), 1);
  EXPECT_INT(weir_exit_code(WEIR_BAD_INPUT), 2);
  EXPECT_INT(weir_exit_code(WEIR_OUT_OF_MEMORY), 3);
}

int main(void) {
  test_dlpack_layout();
  test_options();
  test_environment();
  test_parse();
  test_long_message();
  test_build();
  test_build_results();
  test_build_errors();
  test_schedule();
  test_shapes();
  test_run_strided();
  test_run_errors();
  test_built_places();
  test_run_fails_late();
  test_threads();
  test_arrays();
  test_passes();
  test_lists();
  test_out_of_memory();
  test_steady_state();
  test_null();
  return test_finish();
}
