/* Host programs for several devices: random texts come back as they were printed, lengths are bound over
 * all devices, and what only a builder can get wrong is found. */
#include <stdarg.h>
#include <stdlib.h>

#include "ir/bind.h"
#include "ir/host.h"
#include "test.h"
#include "text/text.h"

/* ---- random programs ---- */
static uint64_t state;

static uint32_t draw(uint32_t n) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(state >> 33) % n;
}

enum { MESHES = 3 };

typedef struct program {
  char text[8192];
  size_t len;
  uint32_t rank[MESHES], size[MESHES][2]; /* by mark axis */
  uint32_t comms;
} program;

static void put(program *p, const char *fmt, ...) PRINTF_LIKE(2, 3);
static void put(program *p, const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  int n = vsnprintf(p->text + p->len, sizeof p->text - p->len, fmt, args);
  va_end(args);
  p->len += (size_t)n;
  check(p->len < sizeof p->text);
}

static char axis_name(uint32_t axis) { return axis ? 'y' : 'x'; }

static void put_scalar(program *p, bool indexed, uint32_t depth) {
  static const char *const names[] = {"n", "m", "k", "streams", "2", "i"};
  static const char *const infix[] = {" + ", " * ", " - "};
  uint32_t mesh = draw(MESHES);
  if (depth == 0 || draw(3) == 0) {
    if (draw(3) == 0) put(p, "me(m%u.%c)", mesh, axis_name(draw(p->rank[mesh])));
    else put(p, "%s", names[draw(indexed ? 6 : 5)]);
    return;
  }
  uint32_t how = draw(6);
  if (how == 3) put(p, "min(");
  else put(p, "(");
  put_scalar(p, indexed, depth - 1);
  if (how == 3) put(p, ", ");
  else if (how > 3) put(p, "%s", how == 4 ? ") % 3" : ") / 2");
  else put(p, "%s", infix[how]);
  if (how > 3) return;
  put_scalar(p, indexed, depth - 1);
  put(p, ")");
}

/* f32[…] on a mesh, each of its axes cutting one extent at most. The first one stays whole, so that no
 * size is a constant, which might not fit. */
static void put_type(program *p, bool buffer) {
  static const char *const names[] = {"n", "m", "k"};
  uint32_t mesh = draw(MESHES), used = 0, rank = 1 + draw(3);
  put(p, "f32[");
  for (uint32_t i = 0; i < rank; i++) {
    put(p, "%s%s%s", i ? ", " : "", names[draw(3)], buffer && draw(3) == 0 ? " * 2 + m" : "");
    for (uint32_t axis = 0; axis < p->rank[mesh]; axis++) {
      if (i == 0 || (used >> axis & 1) || draw(2)) continue;
      used |= 1u << axis;
      put(p, "@%c", axis_name(axis));
      uint32_t how = draw(4);
      if (how == 1) put(p, "/%s", draw(2) ? "1" : "(k + 1)");
      for (uint32_t c = 0; how == 2 && c < p->size[mesh][axis]; c++) {
        put(p, "%s%u", c ? ", " : "[", draw(5));
      }
      if (how == 2) put(p, "]");
    }
  }
  put(p, "] on m%u", mesh);
}

static void put_comm(program *p, const char *indent, bool indexed) {
  uint32_t kind = draw(IR_COMM_COUNT), mesh = draw(MESHES), axis = draw(p->rank[mesh]);
  const ir_comm_info *info = ir_comm_info_of((ir_comm_kind)kind);
  if (kind == IR_COMM_SEND_RECV && p->size[mesh][axis] != 2) return;
  bool sends = kind != IR_COMM_RECV, receives = kind != IR_COMM_SEND;
  bool to = kind == IR_COMM_PERMUTE || !receives, from = kind == IR_COMM_PERMUTE || !sends;
  bool group = (kind == IR_COMM_SEND || kind == IR_COMM_RECV) && draw(2);
  const char *keys[] = {info->root != IR_ROOT_NO ? "root" : NULL, to ? "to" : NULL,
                        from ? "from" : NULL};
  if (group) put(p, "%sgroup_start()\n%s", indent, indent);
  else put(p, "%sc%u = ", indent, p->comms);
  put(p, "%s(%s%s%s, team=m%u.%c", info->text, sends ? (draw(2) ? "x" : "z") : "",
      sends && receives ? " -> " : "", receives ? (draw(2) ? "y" : "z") : "", mesh,
      axis_name(axis));
  if (info->combines) put(p, ", op=%s", ir_combine_text((ir_combine)draw(IR_COMBINE_AND)));
  for (uint32_t i = 0; i < 3; i++) {
    if (!keys[i]) continue;
    put(p, ", %s=n * n * m * k * k + ", keys[i]); /* no constant, which might not fit */
    put_scalar(p, indexed, 2);
  }
  put(p, ")\n");
  if (group) put(p, "%sc%u = group_end()\n", indent, p->comms);
  put(p, "%swait(c%u)\n", indent, p->comms++);
}

static void put_program(program *p) {
  put(p, "host f(");
  for (uint32_t i = 0; i < MESHES; i++) {
    p->rank[i] = 1 + draw(2);
    for (uint32_t k = 0; k < 2; k++) p->size[i][k] = 1 + draw(3);
    if (p->rank[i] == 2) put(p, "mesh m%u = [%u, %u], ", i, p->size[i][1], p->size[i][0]);
    else put(p, "mesh m%u = [%u], ", i, p->size[i][0]);
  }
  put(p, "w : f32[n, m, k], x : ");
  put_type(p, false);
  put(p, ") -> (y) {\n  y : ");
  put_type(p, true);
  put(p, " = allocate()\n  z : ");
  put_type(p, true);
  put(p, " = allocate()\n  c = allreduce(z -> y, team=m0.x, op=sum)\n  wait(c)\n");
  for (uint32_t i = 0; i < 4; i++) put_comm(p, "  ", false);
  put(p, "  for i in n {\n    if ");
  put_scalar(p, true, 3);
  put(p, "%s", draw(2) ? " <= " : " > ");
  put_scalar(p, true, 3);
  put(p, " {\n");
  for (uint32_t i = 0; i < 3; i++) put_comm(p, "      ", true);
  put(p, "    }\n    if me(m1.x) >= 0 {\n      c = send(x, to=0, team=m0.x)\n    }\n    wait(c)\n");
  put(p, "  }\n}\n");
}

/* ---- reading and printing ---- */
static bool read_text(ir_module *m, const char *text) {
  ir_module_init(m, &memory_default);
  if (text_parse(m, "t", text, strlen(text)) == STATUS_OK && ir_host_verify(m->funcs.data[0])) {
    return true;
  }
  strbuf messages;
  strbuf_init(&messages, &m->memory);
  diags_render(&m->errors, &messages);
  fprintf(stderr, "%s%s", text, messages.data);
  return false;
}

static status check_program(void *context) {
  program *p = context;
  ir_module first, second;
  strbuf once, twice;
  bool good = EXPECT(read_text(&first, p->text));
  strbuf_init(&once, &first.memory);
  text_print_module(&first, &once);
  for (int64_t rank = 0; good && rank < 5; rank++) {
    strbuf shown;
    strbuf_init(&shown, &first.memory);
    text_print_nvfuser(first.funcs.data[0], rank, &shown);
  }
  if (good && EXPECT(read_text(&second, once.data))) {
    strbuf_init(&twice, &second.memory);
    text_print_module(&second, &twice);
    EXPECT_STR(twice.data, once.data);
    ir_module_destroy(&second);
  }
  ir_module_destroy(&first);
  return STATUS_OK;
}

static void test_random(void) {
  for (uint64_t seed = 1; seed <= 2000; seed++) {
    static program p;
    p = (program){0};
    state = seed;
    put_program(&p);
    unsigned failed = test_failed;
    EXPECT(memory_guard(check_program, &p) == STATUS_OK);
    if (test_failed == failed) continue;
    fprintf(stderr, "seed %llu\n", (unsigned long long)seed);
    return;
  }
}

/* ---- lengths over all devices ---- */
static status check_lengths(void *context) {
  (void)context;
  ir_module m;
  ir_env env;
  int64_t extents[IR_MAX_RANK] = {0}, shape[] = {2, 10, 8}, wrong[] = {3, 10, 8};
  uint32_t rank = 0;
  EXPECT(read_text(&m, "host f(mesh g = [2, 2], x : f32[n@x/1, m, 8@y[3, 5]] on g) -> (x) { }"));
  ir_func *h = m.funcs.data[0];
  ir_tensor x = h->inputs.data[0];
  ir_env_init(&env, h, &m.memory);
  EXPECT(ir_bind_shape(&env, x, wrong, 3, "the test"));
  EXPECT(ir_bind_complete(&env) && !ir_bind_check(&env)); /* 3 pieces, 2 devices */
  ir_env_init(&env, h, &m.memory);
  EXPECT(ir_bind_shape(&env, x, shape, 3, "the test"));
  EXPECT(ir_bind_complete(&env) && ir_bind_check(&env));
  EXPECT(ir_env_shape(&env, x, extents, &rank));
  EXPECT_INT(rank, 3);
  EXPECT_INT(extents[0], 2);
  EXPECT_INT(extents[2], 8);
  ir_module_destroy(&m);
  return STATUS_OK;
}

/* ---- what no text can say ---- */
static const char *const built = "host f(mesh d = [4], x : f32[n@x] on d) -> (y) {\n"
                                 "  y : f32[n@x] on d = allocate()\n"
                                 "  c = allreduce(x -> y, team=d.x, op=sum)\n"
                                 "  wait(c)\n"
                                 "}\n";

static void lose_mesh(ir_func *h) { ir_tensor_at(h, h->inputs.data[0])->mesh = (ir_mesh){0}; }

static void cut_otherwise(ir_func *h) {
  ir_cut *cuts = (ir_cut *)h->host->cut.data[0].cuts;
  cuts[0].partition.size = ir_scalar_const(&h->module->scalars, 3);
}

static void wait_first(ir_func *h) {
  ir_instr *body = h->host->body.data, post = body[1];
  body[1] = body[2];
  body[2] = post;
}

static void name_like_mesh(ir_func *h) {
  ir_instr_at(h, h->host->body.data[1])->name = h->meshes.data[1].name;
  ir_instr_at(h, h->host->body.data[2])->name = h->meshes.data[1].name;
}

static void leave_mesh(ir_func *h) { ir_instr_at(h, h->host->body.data[1])->team_axis = 1; }

static const struct mistake {
  void (*make)(ir_func *h);
  const char *message;
} mistakes[] = {
    {lose_mesh, "'x' is cut over devices, but is on no mesh with that axis"},
    {cut_otherwise, "'x' is not cut into as many parts as its mesh has devices"},
    {wait_first, "'c' is waited for before it is posted, or outside its loop"},
    {name_like_mesh, "'d' names two things at once"},
    {leave_mesh, "mesh 'd' has no axis 1; it has 1"},
};

static status check_mistakes(void *context) {
  (void)context;
  for (size_t i = 0; i < sizeof mistakes / sizeof mistakes[0]; i++) {
    ir_module m;
    strbuf messages;
    EXPECT(read_text(&m, built));
    mistakes[i].make(m.funcs.data[0]);
    EXPECT(!ir_host_verify(m.funcs.data[0]));
    strbuf_init(&messages, &m.memory);
    diags_render(&m.errors, &messages);
    EXPECT_CONTAINS(messages.data, mistakes[i].message);
    ir_module_destroy(&m);
  }
  return STATUS_OK;
}

int main(void) {
  test_random();
  EXPECT(memory_guard(check_lengths, NULL) == STATUS_OK);
  EXPECT(memory_guard(check_mistakes, NULL) == STATUS_OK);
  return test_finish();
}
