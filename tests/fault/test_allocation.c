/* The Nth allocation fails, for N = 0, 1, 2, … until nothing fails any more; once with only that one
 * failing and once with all later ones failing too. Each time the scenario must end with "out of
 * memory" and a message, its objects must be destroyable, and no block may be left. */
#include <stdlib.h>
#include <unistd.h>

#include "base/options.h"
#include "ref/ref.h"
#include "schedule/schedule.h"
#include "test.h"
#include "text/text.h"
#include "weir/weir.h"

/* ---- the allocator ---- */
typedef struct faults {
  _Atomic uint64_t calls; /* also of the program's thread */
  uint64_t fail_at;
  bool sticky; /* once failed, always failed */
  _Atomic int64_t live;
} faults;

static void *faulty_alloc(void *context, size_t size_bytes) {
  faults *f = context;
  uint64_t call = f->calls++;
  if (f->sticky ? call >= f->fail_at : call == f->fail_at) return NULL;
  void *block = malloc(size_bytes);
  f->live += block != NULL;
  return block;
}

static void faulty_free(void *context, void *block) {
  faults *f = context;
  f->live -= block != NULL;
  free(block);
}

/* ---- a program with something of everything ---- */
static const char head[] = "fusion f {\n"
                           "  mesh d = [2]\n"
                           "  mesh g = [2, 2] of {3, 1, 2, 0}\n"
                           "  x : f32[n, 6, k]\n"
                           "  w : bf16[4, k]\n"
                           "  i : i64[3]\n";
static const char rest[] =
    "  y = linear(x, w) * 2 + n\n"
    "  z : f32[n, 4] = sum(relu(y), dims=[1])\n"
    "  r = reshape(transpose(z), [4 * n])\n"
    "  s = index_select(cat(r, r, dim=0), i, dim=0)\n"
    "  p = softmax(pad(slice(x, starts=[0, 1, 0], stops=[n, 5, k]), [0, 0, 1, 1, 0, 0]))\n"
    "  q = layer_norm(where(x < 0.5, x, p), eps=1e-3) / uniform([n, 6, k])\n"
    "  a = scatter(z, argsort(z, dim=0), cumsum(z, dim=0), dim=0, reduce=add)\n"
    "  o = one_hot(topk_index(a, k=1), 4) - cast(topk(a, k=1), i64)\n"
    "  dead = exp(exp(q))\n"
    "  return z, s, q\n"
    "  schedule {\n"
    "    x, y on d; x.outer_split(1, d); x[1] = mesh.x\n"
    "    y$2.split(0, 2); y$2.merge(1); y$2.reorder(0 -> -1)\n"
    "    z.outer_split(1, 3); u = z.rfactor([1]); y[0] = stream\n"
    "    r.outer_split(0, [1, 3, 4]); p on g; p.outer_split(1, g.y); p[1] = mesh.y\n"
    "    q.allocate([2, 0, 1]); q.contiguity([true, false, true]); q.memory(symmetric)\n"
    "    s.split(0, 2); s.allocate_as_loop(); s[1] = serial\n"
    "  }\n"
    "}\n";

/* Arenas ask for memory in few large chunks. Statements in between move the places where one ends. */
static char program[16384];

static void make_program(int padding) {
  size_t n = (size_t)snprintf(program, sizeof program, "%s", head);
  for (int i = 0; i < padding; i++)
    n += (size_t)snprintf(program + n, sizeof program - n, "  p%d = exp(neg(x) + %d)\n", i, i);
  snprintf(program + n, sizeof program - n, "%s", rest);
}

static weir_status parse(const weir_allocator *memory, weir_module **m) {
  return weir_module_parse("fault.weir", program, strlen(program), memory, m);
}

/* ---- scenarios: each cleans up whatever happens ---- */
static weir_status do_parse(const weir_allocator *memory) {
  weir_module *m = NULL;
  weir_status s = parse(memory, &m);
  if (s == WEIR_OK) s = weir_module_verify(m);
  weir_module_destroy(m);
  return s;
}

static weir_status do_load(const weir_allocator *memory) {
  weir_module *m = NULL;
  weir_status s = weir_module_load("tests/fuzz/corpus/parser/row_parallel_linear.weir", memory, &m);
  weir_module_destroy(m);
  return s;
}

/* Many errors: here the program is wrong, unless memory ran out first. */
static weir_status do_wrong_program(const weir_allocator *memory) {
  static const char text[] = "fusion f {\n  x : f32[n\n  y = nothing(x, z)\n  return q\n}\n@";
  weir_module *m = NULL;
  weir_status s = weir_module_parse("wrong.weir", text, sizeof text - 1, memory, &m);
  weir_module_destroy(m);
  return s == WEIR_BAD_PROGRAM ? WEIR_OK : s;
}

static weir_status do_print(const weir_allocator *memory) {
  weir_module *m = NULL;
  char *text = NULL;
  weir_status s = parse(memory, &m);
  if (s == WEIR_OK) s = weir_module_print(m, &text);
  weir_string_free(text);
  weir_module_destroy(m);
  return s;
}

static weir_status do_passes(const weir_allocator *memory) {
  weir_module *m = NULL;
  char *log = NULL;
  weir_pass_args args = {.struct_size = sizeof args,
                         .passes = "cse,dce,strip-schedule",
                         .print_after = "all",
                         .time = true};
  weir_status s = parse(memory, &m);
  if (s == WEIR_OK) s = weir_module_run_passes(m, &args, &log);
  weir_string_free(log);
  weir_module_destroy(m);
  return s;
}

#define STEP(call)                                                                                 \
  do {                                                                                             \
    weir_status step_ = (call);                                                                    \
    if (step_ != WEIR_OK) return step_;                                                            \
  } while (0)

static weir_status build(weir_module *m) {
  weir_fusion *f;
  weir_mesh d;
  weir_tensor x, w, y, z, u;
  static const char *const of_x[] = {"n", "?"}, *const of_w[] = {"8", "k"};
  const int64_t two = 2, axis = 1, from = 0, to = 1, swap[] = {1, 0}, one = 1;
  const bool dense[] = {true, false};
  STEP(weir_fusion_create(m, "built", &f));
  STEP(weir_fusion_mesh(f, "d", &two, 1, NULL, &d));
  STEP(weir_fusion_input(f, "x", WEIR_F32, of_x, 2, &x));
  STEP(weir_fusion_input(f, "w", WEIR_F32, of_w, 2, &w));
  weir_arg linear[] = {weir_arg_tensor(NULL, x), weir_arg_tensor("weight", w)};
  STEP(weir_fusion_op(f, "y", "linear", linear, 2, &y));
  weir_arg sum[] = {weir_arg_tensor(NULL, y), weir_arg_ints("dims", &axis, 1)};
  STEP(weir_fusion_op(f, "z", "sum", sum, 2, &z));
  STEP(weir_fusion_return(f, z));
  STEP(weir_schedule_on(f, x, d));
  STEP(weir_schedule_outer_split(f, x, 1, "d"));
  STEP(weir_schedule_mark(f, x, 1, "mesh.x"));
  STEP(weir_schedule_split(f, z, 1, "n / 2"));
  STEP(weir_schedule_rfactor(f, z, &one, 1, "u", &u));
  STEP(weir_schedule_reorder(f, y, &from, &to, 1));
  STEP(weir_schedule_allocate(f, w, swap, 2));
  STEP(weir_schedule_contiguity(f, w, dense, 2));
  STEP(weir_schedule_memory(f, w, "symmetric"));
  return weir_module_verify(m);
}

static weir_status do_build(const weir_allocator *memory) {
  weir_module *m = NULL;
  weir_status s = weir_module_create(memory, &m);
  if (s == WEIR_OK) s = build(m);
  weir_module_destroy(m);
  return s;
}

static weir_status bind(weir_fusion *f, weir_shapes *s) {
  int64_t extents[WEIR_MAX_RANK], bound;
  size_t rank;
  weir_tensor x, i;
  STEP(weir_fusion_tensor(f, "x", &x));
  STEP(weir_fusion_tensor(f, "i", &i));
  STEP(weir_shapes_define(s, "n=2"));
  STEP(weir_shapes_define(s, "x=2x6x3"));
  STEP(weir_shapes_complete(s));
  STEP(weir_shapes_of(s, x, extents, &rank));
  return weir_shapes_index_bound(s, i, &bound);
}

static weir_status do_shapes(const weir_allocator *memory) {
  weir_module *m = NULL;
  weir_fusion *f = NULL;
  weir_shapes *shapes = NULL;
  weir_status s = parse(memory, &m);
  if (s == WEIR_OK) s = weir_module_find(m, "f", &f);
  if (s == WEIR_OK) s = weir_shapes_create(f, &shapes);
  if (s == WEIR_OK) s = bind(f, shapes);
  weir_shapes_destroy(shapes);
  weir_module_destroy(m);
  return s;
}

/* ---- reasons ---- */
static weir_status ask(weir_fusion *f, weir_options *o) {
  static const char *const names[] = {"y", "h$1", "c0"};
  char *text = NULL;
  weir_status s = weir_why(f, o, NULL, names, 3, &text);
  weir_string_free(text);
  text = NULL;
  if (s == WEIR_OK) s = weir_lower(f, o, "weir", &text);
  weir_string_free(text);
  return s;
}

static weir_status do_why(const weir_allocator *memory) {
  static const char mlp[] = "fusion mlp {\n"
                            "  mesh d = [4]\n"
                            "  x : f32[n, 16]\n"
                            "  w1 : f32[32, 16]\n"
                            "  w2 : f32[16, 32]\n"
                            "  h = relu(linear(x, w1))\n"
                            "  y = linear(h, w2)\n"
                            "  return y\n"
                            "  schedule {\n"
                            "    w1, w2 on d\n"
                            "    w1.outer_split(0, d); w1[0] = mesh.x\n"
                            "    w2.outer_split(1, d); w2[1] = mesh.x\n"
                            "    x.outer_split(0, 2); x[0] = stream\n"
                            "  }\n"
                            "}\n";
  static char text[sizeof mlp + sizeof program]; /* the padding moves the ends of chunks */
  weir_module *m = NULL;
  weir_fusion *f = NULL;
  weir_options *o = NULL;
  size_t n = (size_t)snprintf(text, sizeof text, "%s# %s", mlp, strchr(program, '{'));
  for (size_t i = sizeof mlp; i < n; i++)
    if (text[i] == '\n') text[i] = ' ';
  weir_status s = weir_module_parse("why.weir", text, n, memory, &m);
  if (s == WEIR_OK) s = weir_module_find(m, NULL, &f);
  if (s == WEIR_OK) s = weir_options_create(&o);
  if (s == WEIR_OK) s = weir_options_set(o, "explain", "true");
  if (s == WEIR_OK) s = ask(f, o);
  weir_options_destroy(o);
  weir_module_destroy(m);
  return s;
}

/* ---- running ---- */
typedef struct arrays {
  weir_array *in[3], *out[3];
} arrays;

static weir_status make_arrays(const weir_allocator *memory, arrays *a) {
  static const int64_t x[] = {2, 6, 3}, w[] = {4, 3}, i[] = {3}, z[] = {2, 4};
  STEP(weir_array_create(WEIR_F32, x, 3, memory, &a->in[0]));
  STEP(weir_array_create(WEIR_BF16, w, 2, memory, &a->in[1]));
  STEP(weir_array_create(WEIR_I64, i, 1, memory, &a->in[2]));
  STEP(weir_array_create(WEIR_F32, z, 2, memory, &a->out[0]));
  STEP(weir_array_create(WEIR_F32, i, 1, memory, &a->out[1]));
  STEP(weir_array_create(WEIR_F32, x, 3, memory, &a->out[2]));
  STEP(weir_array_fill(a->in[0], "normal", 1, "x"));
  STEP(weir_array_fill(a->in[1], "int", 1, "w"));
  return weir_array_fill_index(a->in[2], 16, 1, "i");
}

static weir_status run_arrays(weir_program *p, const arrays *a) {
  const weir_dl_tensor *in[3], *out[3];
  for (int i = 0; i < 3; i++) {
    in[i] = weir_array_tensor(a->in[i]);
    out[i] = weir_array_tensor(a->out[i]);
  }
  weir_run_args args = {.struct_size = sizeof args, .inputs = in, .n_inputs = 3, .outputs = out};
  args.n_outputs = 3;
  args.seed = 1;
  args.as_definition = true;
  STEP(weir_run(p, &args));
  args.as_definition = false;
  STEP(weir_run(p, &args));
  const int64_t donated[] = {-1, -1, 0};
  args.donated = donated;
  out[2] = in[0];
  STEP(weir_run(p, &args));
  args.donated = NULL;
  out[2] = weir_array_tensor(a->out[2]);
  STEP(weir_run(p, &args)); /* the check is of a run that is over */
  weir_verdict verdicts[3];
  STEP(weir_check(p, &args, 1e-3, verdicts));
  return weir_check(p, &args, 0, verdicts);
}

/* The same begun and waited for, with one that is cancelled before it. */
static weir_status run_later(weir_program *p, const arrays *a) {
  const weir_dl_tensor *in[3], *out[3];
  weir_pending *first = NULL, *second = NULL;
  for (int i = 0; i < 3; i++) {
    in[i] = weir_array_tensor(a->in[i]);
    out[i] = weir_array_tensor(a->out[i]);
  }
  weir_run_args args = {.struct_size = sizeof args, .inputs = in, .n_inputs = 3, .outputs = out};
  args.n_outputs = 3;
  weir_status s = weir_run_async(p, &args, NULL, NULL, &first);
  weir_pending_cancel(first);
  if (s == WEIR_OK) s = weir_run_async(p, &args, NULL, NULL, &second);
  (void)weir_pending_poll(first, -1);
  (void)weir_pending_poll(second, -1);
  if (s == WEIR_OK && weir_pending_wait(first) == WEIR_OUT_OF_MEMORY) s = WEIR_OUT_OF_MEMORY;
  else if (s == WEIR_OK) s = weir_pending_wait(second);
  weir_pending_destroy(first);
  weir_pending_destroy(second);
  return s;
}

static weir_status compile_and(const weir_allocator *memory,
                               weir_status (*run)(weir_program *p, const arrays *a)) {
  weir_module *m = NULL;
  weir_fusion *f = NULL;
  weir_program *p = NULL;
  arrays a = {0};
  weir_status s = parse(memory, &m);
  if (s == WEIR_OK) s = weir_module_find(m, NULL, &f);
  if (s == WEIR_OK) s = weir_compile(f, NULL, memory, &p);
  weir_module_destroy(m);
  if (s == WEIR_OK) s = make_arrays(memory, &a);
  if (s == WEIR_OK) s = run(p, &a);
  for (int i = 0; i < 3; i++) {
    weir_array_destroy(a.in[i]);
    weir_array_destroy(a.out[i]);
  }
  weir_program_destroy(p);
  return s;
}

static weir_status do_run(const weir_allocator *memory) { return compile_and(memory, run_arrays); }
static weir_status do_run_later(const weir_allocator *memory) {
  return compile_and(memory, run_later);
}

/* Bound with four streams, then with fewer, as the limit of memory asks for; and the note about it. */
static weir_status prepare_small(const weir_allocator *memory, weir_fusion *f, weir_options *o,
                                 weir_shapes *shapes) {
  weir_program *p = NULL;
  char *note = NULL;
  STEP(weir_options_set(o, "memory-limit", "64"));
  STEP(weir_options_set(o, "pipeline", "marked"));
  STEP(weir_shapes_complete(shapes));
  weir_status s = weir_compile(f, o, memory, &p);
  if (s == WEIR_OK) s = weir_program_prepare(p, shapes);
  if (s == WEIR_OK) s = weir_program_note(p, &note);
  if (s == WEIR_OK) EXPECT_CONTAINS(note ? note : "", "on 1 of 4 streams");
  weir_string_free(note);
  weir_program_destroy(p);
  return s;
}

static weir_status do_small(const weir_allocator *memory) {
  static const char text[] =
      "fusion f { x : f32[8, 8]; w : f32[8, 8]; h = matmul(x, w); y = matmul(h, w)\n"
      "return y; schedule { x.outer_split(0, 4); x[0] = stream } }\n";
  weir_module *m = NULL;
  weir_fusion *f = NULL;
  weir_options *o = NULL;
  weir_shapes *shapes = NULL;
  weir_status s = weir_module_parse("small.weir", text, sizeof text - 1, memory, &m);
  if (s == WEIR_OK) s = weir_module_find(m, NULL, &f);
  if (s == WEIR_OK) s = weir_options_create(&o);
  if (s == WEIR_OK) s = weir_shapes_create(f, &shapes);
  if (s == WEIR_OK) s = prepare_small(memory, f, o, shapes);
  weir_shapes_destroy(shapes);
  weir_options_destroy(o);
  weir_module_destroy(m);
  return s;
}

/* ---- files ---- */
static weir_status through_file(const weir_allocator *memory, const char *path, weir_array **made) {
  static const int64_t extents[] = {3, 5};
  weir_comparison c;
  STEP(weir_array_create(WEIR_BF16, extents, 2, memory, &made[0]));
  STEP(weir_array_fill(made[0], "iota", 1, "a"));
  STEP(weir_array_save_npy(made[0], path));
  STEP(weir_array_load_npy(path, memory, &made[1]));
  STEP(weir_array_convert(made[1], WEIR_BF16, &made[2]));
  return weir_array_compare(made[0], made[2], WEIR_BF16, &c);
}

static weir_status do_npy(const weir_allocator *memory) {
  char folder[] = "/tmp/weir-fault-XXXXXX", path[64];
  weir_array *made[3] = {0};
  if (!EXPECT(mkdtemp(folder) != NULL)) return WEIR_SYSTEM;
  snprintf(path, sizeof path, "%s/a.npy", folder);
  weir_status s = through_file(memory, path, made);
  for (int i = 0; i < 3; i++) weir_array_destroy(made[i]);
  unlink(path);
  EXPECT_INT(rmdir(folder), 0); /* nothing half-written is left */
  return s;
}

/* ---- inside the library ---- */
typedef struct inner {
  allocator memory;
  ir_module module;
  ir_array in[3], out[3];
} inner;

static status make_view(ir_array *a, ir_dtype dtype, const int64_t *extents, uint32_t rank) {
  *a = (ir_array){.dtype = dtype, .rank = rank};
  for (uint32_t i = 0; i < rank; i++) a->extents[i] = extents[i];
  ir_array_dense(a);
  int64_t bytes = 0;
  check(ir_array_size_bytes(a, &bytes));
  a->data = calloc(1, (size_t)bytes + 1);
  return a->data ? STATUS_OK : STATUS_OUT_OF_MEMORY;
}

static status evaluate_scheduled(void *context) {
  inner *c = context;
  static const int64_t x[] = {2, 6, 3}, w[] = {4, 3}, i[] = {3}, z[] = {2, 4};
  ir_env env;
  ir_module_init(&c->module, &c->memory);
  TRY(text_parse(&c->module, "fault.weir", program, strlen(program)));
  ir_func *f = c->module.funcs.data[0];
  if (!schedule_apply(f)) return STATUS_BAD_PROGRAM;
  TRY(make_view(&c->in[0], IR_F32, x, 3));
  TRY(make_view(&c->in[1], IR_BF16, w, 2));
  TRY(make_view(&c->in[2], IR_I64, i, 1));
  TRY(make_view(&c->out[0], IR_F32, z, 2));
  TRY(make_view(&c->out[1], IR_F32, i, 1));
  TRY(make_view(&c->out[2], IR_F32, x, 3));
  ir_env_init(&env, f, &c->module.memory);
  for (uint32_t k = 0; k < 3; k++)
    if (!ir_bind_shape(&env, f->inputs.data[k], c->in[k].extents, c->in[k].rank, "test"))
      return STATUS_BAD_PROGRAM;
  ref_options how = {.scheduled = true, .memory = &c->memory};
  return ir_bind_check(&env) ? ref_eval(&env, c->in, c->out, &how) : STATUS_BAD_PROGRAM;
}

static weir_status do_scheduled(const weir_allocator *memory) {
  inner c = {.memory = {memory->alloc, memory->free, memory->context}};
  status s = memory_guard(evaluate_scheduled, &c);
  for (int i = 0; i < 3; i++) {
    free(c.in[i].data);
    free(c.out[i].data);
  }
  ir_module_destroy(&c.module);
  return (weir_status)s;
}

static status set_options(void *context) {
  options *o = context;
  options_init(o, o->memory.memory);
  TRY(options_read_environment(o));
  TRY(options_set(o, option_find("streams"), "3"));
  TRY(options_set(o, option_find("define"), "n=2"));
  return options_set(o, option_find("define"), "k=3");
}

static weir_status do_options(const weir_allocator *memory) {
  allocator a = {memory->alloc, memory->free, memory->context};
  options o = {.memory.memory = &a};
  status s = memory_guard(set_options, &o);
  options_destroy(&o);
  return (weir_status)s;
}

/* ---- driving them ---- */
typedef struct scenario {
  const char *name;
  weir_status (*run)(const weir_allocator *memory);
  int paddings; /* how many programs: many where most memory is that of arenas */
} scenario;

static const scenario scenarios[] = {
    {"parse", do_parse, 60},
    {"load", do_load, 1},
    {"wrong program", do_wrong_program, 1},
    {"print", do_print, 60},
    {"passes", do_passes, 60},
    {"build", do_build, 1},
    {"shapes", do_shapes, 60},
    {"why", do_why, 30},
    {"run", do_run, 2},
    {"run later", do_run_later, 1},
    {"fewer streams", do_small, 1},
    {"npy", do_npy, 1},
    {"options", do_options, 1},
    {"scheduled evaluation", do_scheduled, 4},
};

/* False when all is done: the allocation that was to fail did not come. */
static bool try_fault(const scenario *s, uint64_t fail_at, bool sticky) {
  faults f = {.fail_at = fail_at, .sticky = sticky};
  weir_allocator memory = {faulty_alloc, faulty_free, &f};
  status_clear();
  weir_status st = s->run(&memory);
  bool reached = f.calls > fail_at;
  bool good = EXPECT_INT(f.live, 0);
  good &= EXPECT_INT(st, reached ? WEIR_OUT_OF_MEMORY : WEIR_OK);
  if (reached) good &= EXPECT(weir_error()[0] != '\0');
  if (!good)
    fprintf(stderr, "  %s, allocation %llu%s: %s\n", s->name, (unsigned long long)fail_at,
            sticky ? " and all later ones" : "", weir_error());
  return reached;
}

static uint64_t try_scenario(const scenario *s) {
  uint64_t n = 0;
  while (n < 100000 && try_fault(s, n, false)) n++;
  for (uint64_t k = 0; k < n; k++) try_fault(s, k, true);
  return n;
}

int main(void) {
  for (size_t i = 0; i < sizeof scenarios / sizeof scenarios[0]; i++) {
    uint64_t n = 0;
    for (int padding = 0; padding < scenarios[i].paddings && !test_failed; padding++) {
      make_program(padding);
      n += try_scenario(&scenarios[i]);
    }
    printf("%-22s %llu allocations\n", scenarios[i].name, (unsigned long long)n);
  }
  return test_finish();
}
