/* Lexer, parser and printer: tokens, exact text, round trips, messages and their places. */
#include "text/text.h"

#include <math.h>
#include <stdlib.h>

#include "base/suggest.h"
#include "base/utf8.h"
#include "test.h"
#include "text/lexer.h"

/* ---- running the parser ---- */
typedef struct outcome {
  const char *text;
  size_t length;
  status st;
  uint32_t errors;
  char *printed, *messages; /* freed by the next run */
} outcome;

static char *keep(const strbuf *b) {
  char *copy = malloc(b->len + 1);
  if (copy) memcpy(copy, b->data, b->len + 1);
  return copy;
}

static ir_module module_now;

static status parse_and_print(void *context) {
  outcome *o = context;
  strbuf printed, messages;
  ir_module_init(&module_now, &memory_default);
  o->st = text_parse(&module_now, "t", o->text, o->length);
  o->errors = module_now.errors.errors;
  strbuf_init(&printed, &module_now.memory);
  strbuf_init(&messages, &module_now.memory);
  if (o->st == STATUS_OK) text_print_module(&module_now, &printed);
  diags_render(&module_now.errors, &messages);
  o->printed = keep(&printed);
  o->messages = keep(&messages);
  return STATUS_OK;
}

/* The text is handed over in a block of its exact size, so that a sanitizer sees a read past it. */
static void run(outcome *o, const char *text, size_t length) {
  char *exact = malloc(length ? length : 1);
  free(o->printed);
  free(o->messages);
  if (!exact) abort();
  memcpy(exact, text, length);
  *o = (outcome){.text = exact, .length = length};
  EXPECT(memory_guard(parse_and_print, o) == STATUS_OK);
  ir_module_destroy(&module_now);
  free(exact);
}

static void run_text(outcome *o, const char *text) { run(o, text, strlen(text)); }

static void finish(outcome *o) {
  free(o->printed);
  free(o->messages);
}

/* Parses, and what is printed parses and prints the same. */
static void expect_round_trip(const char *text) {
  outcome first = {0}, second = {0};
  run_text(&first, text);
  if (EXPECT_STR(first.messages, "")) {
    run_text(&second, first.printed);
    EXPECT_STR(second.messages, "");
    EXPECT_STR(second.printed, first.printed);
  }
  finish(&first);
  finish(&second);
}

static void expect_printed(const char *text, const char *printed) {
  outcome o = {0};
  run_text(&o, text);
  EXPECT_STR(o.messages, "");
  EXPECT_STR(o.printed, printed);
  expect_round_trip(printed);
  finish(&o);
}

/* One statement in a fusion with inputs x : f32[n, 4], w : bf16[8, 4], i : i64[n], a : f32[?] and
 * meshes d = [2], g = [2, 4]. The statement is on line 3, from column 1. */
static char framed[4096];
static const char *frame(const char *statement) {
  (void)snprintf(framed, sizeof framed,
                 "fusion f { mesh d = [2]; mesh g = [2, 4]\n"
                 "x : f32[n, 4]; w : bf16[8, 4]; i : i64[n]; a : f32[?]\n"
                 "%s\n"
                 "return x }\n",
                 statement);
  return framed;
}

/* The statement prints as `canonical` lines (each with its two blanks and newline). */
static void expect_statement(const char *statement, const char *canonical) {
  static char expected[4096];
  (void)snprintf(expected, sizeof expected,
                 "fusion f {\n  mesh d = [2]\n  mesh g = [2, 4]\n  x : f32[n, 4]\n"
                 "  w : bf16[8, 4]\n  i : i64[n]\n  a : f32[?]\n%s  return x\n}\n",
                 canonical);
  expect_printed(frame(statement), expected);
}

static void expect_schedule(const char *statement, const char *canonical) {
  static char text[2048], expected[4096];
  (void)snprintf(text, sizeof text,
                 "fusion f { mesh d = [2]; mesh g = [2, 4]\nx : f32[n, 4]\ny = sum(x)\nreturn y\n"
                 "schedule { %s } }",
                 statement);
  (void)snprintf(expected, sizeof expected,
                 "fusion f {\n  mesh d = [2]\n  mesh g = [2, 4]\n  x : f32[n, 4]\n  y = sum(x)\n"
                 "  return y\n  schedule {\n%s  }\n}\n",
                 canonical);
  expect_printed(text, expected);
}

/* Exactly `n` errors, one of them at `place` ("3:5") with `message` in it. */
static void expect_errors(const char *text, uint32_t n, const char *place, const char *message) {
  static char wanted[512];
  outcome o = {0};
  run_text(&o, text);
  EXPECT(o.st == STATUS_BAD_PROGRAM);
  if (!EXPECT_INT(o.errors, n)) fprintf(stderr, "%s", o.messages);
  (void)snprintf(wanted, sizeof wanted, "t:%s: error: %s", place, message);
  EXPECT_CONTAINS(o.messages, wanted);
  finish(&o);
}

static void expect_wrong(const char *statement, const char *place, const char *message) {
  expect_errors(frame(statement), 1, place, message);
}

/* ---- the lexer ---- */
typedef struct lexed {
  const char *text;
  size_t length;
  text_token tokens[64];
  uint32_t n, errors;
} lexed;

static status lex_all(void *context) {
  lexed *l = context;
  arena memory;
  arena_init(&memory, &memory_default);
  source src = {.name = "t", .text = l->text, .length = (uint32_t)l->length};
  diags errors;
  diags_init(&errors, &memory, &src);
  text_lexer lexer;
  text_lexer_init(&lexer, &memory, &errors, l->text, (uint32_t)l->length);
  do l->tokens[l->n++] = text_lexer_next(&lexer);
  while (l->tokens[l->n - 1].kind != TOKEN_END && l->n < 64);
  l->errors = errors.errors;
  arena_destroy(&memory);
  return STATUS_OK;
}

static lexed lex(const char *text, size_t length) {
  lexed l = {.text = text, .length = length};
  EXPECT(memory_guard(lex_all, &l) == STATUS_OK);
  return l;
}

#define LEX(literal) lex(literal, sizeof literal - 1)

static void test_tokens(void) {
  const char *text = "a_1$2 -> == != <= >= < > = ? 7 1.5 1e-5 2. inf mesh # comment\n;%";
  static const text_token_kind kinds[] = {
      TOKEN_NAME, TOKEN_ARROW,   TOKEN_EQ,        TOKEN_NE,      TOKEN_LE,
      TOKEN_GE,   TOKEN_LT,      TOKEN_GT,        TOKEN_ASSIGN,  TOKEN_QUESTION,
      TOKEN_INT,  TOKEN_FLOAT,   TOKEN_FLOAT,     TOKEN_FLOAT,   TOKEN_FLOAT,
      TOKEN_MESH, TOKEN_NEWLINE, TOKEN_SEMICOLON, TOKEN_PERCENT, TOKEN_END};
  lexed l = lex(text, strlen(text));
  EXPECT_INT(l.errors, 0);
  EXPECT_INT(l.n, sizeof kinds / sizeof kinds[0]);
  for (uint32_t i = 0; i < l.n; i++) EXPECT_INT(l.tokens[i].kind, kinds[i]);
  EXPECT_INT(l.tokens[1].offset, 6);
  EXPECT_INT(l.tokens[1].length, 2);
  EXPECT_INT(l.tokens[10].integer, 7);
  EXPECT(l.tokens[11].real == 1.5 && l.tokens[12].real == 1e-5 && l.tokens[13].real == 2.0);
  EXPECT(isinf(l.tokens[14].real));
}

static void test_newlines(void) {
  const char *text = "a(\n[\n]\n)\nb";
  static const text_token_kind kinds[] = {TOKEN_NAME,     TOKEN_LPAREN, TOKEN_LBRACKET,
                                          TOKEN_RBRACKET, TOKEN_RPAREN, TOKEN_NEWLINE,
                                          TOKEN_NAME,     TOKEN_END};
  lexed l = lex(text, strlen(text));
  EXPECT_INT(l.n, sizeof kinds / sizeof kinds[0]);
  for (uint32_t i = 0; i < l.n; i++) EXPECT_INT(l.tokens[i].kind, kinds[i]);
}

static void test_bad_bytes(void) {
  lexed l = LEX("a ~~\xff! b \0\0c");
  static const text_token_kind kinds[] = {TOKEN_NAME, TOKEN_BAD,  TOKEN_NAME,
                                          TOKEN_BAD,  TOKEN_NAME, TOKEN_END};
  EXPECT_INT(l.errors, 2);
  EXPECT_INT(l.n, 6);
  for (uint32_t i = 0; i < l.n && i < 6; i++) EXPECT_INT(l.tokens[i].kind, kinds[i]);
  EXPECT_INT(l.tokens[1].length, 4);
}

/* The characters of a text, UTF8_BAD for bytes that are none. */
static void test_utf8(void) {
  static const struct {
    const char *text;
    uint32_t length;
    int32_t code;
  } rows[] = {
      {"a", 1, 'a'},
      {"\xc3\xa9", 2, 0xe9},
      {"\xe2\x88\x92", 3, 0x2212},
      {"\xf0\x9f\x98\x80", 4, 0x1f600},
      {"\xc3", 1, UTF8_BAD},
      {"\xc0\x80", 1, UTF8_BAD},
      {"\xed\xa0\x80", 1, UTF8_BAD},
      {"\xf4\x90\x80\x80", 1, UTF8_BAD},
      {"\x80", 1, UTF8_BAD},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    uint32_t length = 0;
    EXPECT_INT(utf8_next(rows[i].text, (uint32_t)strlen(rows[i].text), &length), rows[i].code);
    EXPECT_INT(length, rows[i].length);
  }
}

static void test_numbers(void) {
  lexed l = LEX("9223372036854775808 9223372036854775809 1e999 0x1f 12ab 1e");
  EXPECT_INT(l.errors, 5);
  EXPECT(l.tokens[0].kind == TOKEN_INT && l.tokens[0].integer == (uint64_t)1 << 63);
  for (uint32_t i = 1; i < 6; i++) EXPECT_INT(l.tokens[i].kind, TOKEN_BAD);
  /* Text that ends in the middle of a token. */
  EXPECT_INT(lex("1.", 2).tokens[0].kind, TOKEN_FLOAT);
  EXPECT_INT(lex("1e+5", 3).errors, 1);
  EXPECT_INT(lex("->", 1).tokens[0].kind, TOKEN_MINUS);
  EXPECT_INT(lex("", 0).tokens[0].kind, TOKEN_END);
}

static void test_suggestions(void) {
  suggestion s;
  suggest_init(&s, "lienar", 6);
  suggest_offer(&s, "log");
  suggest_offer(&s, "linear");
  suggest_offer(&s, "clear");
  EXPECT_STR(s.best, "linear");
  suggest_init(&s, "q", 1);
  suggest_offer(&s, "x");
  EXPECT(!s.best);
}

/* ---- exact text ---- */
static void test_fusion_form(void) {
  expect_printed("fusion f{x:f32;return x}", "fusion f {\n  x : f32\n  return x\n}\n");
  expect_printed("\xEF\xBB\xBF# first\r\nfusion f\n{\r\n x : f32[] ; return x\r\n}\r\n",
                 "fusion f {\n  x : f32\n  return x\n}\n");
  expect_printed("fusion f { x : f32; return x } fusion g { y : bf16[?, n, 3]; return y }",
                 "fusion f {\n  x : f32\n  return x\n}\n\n"
                 "fusion g {\n  y : bf16[?, n, 3]\n  return y\n}\n");
  expect_printed(
      "fusion f { mesh e = [3] of {5, 2,\n 4}; x : u8[1]\n mesh h = [1, 2, 1]; return x }",
      "fusion f {\n  mesh e = [3] of {5, 2, 4}\n  mesh h = [1, 2, 1]\n  x : u8[1]\n"
      "  return x\n}\n");
  expect_printed("fusion f { x : f32; schedule { }; y = -x; return y, x; schedule { y.merge(0) }\n"
                 "schedule { x.merge(1) } }",
                 "fusion f {\n  x : f32\n  y = neg(x)\n  return y, x\n  schedule {\n"
                 "    y.merge(0)\n    x.merge(1)\n  }\n}\n");
}

static void test_expressions(void) {
  expect_statement("y = x + 2 * x - 3", "  y$1 = 2 * x\n  y$2 = x + y$1\n  y = y$2 - 3\n");
  expect_statement("y = (x + 1) * -x", "  y$1 = x + 1\n  y$2 = neg(x)\n  y = y$1 * y$2\n");
  expect_statement("y = x - x - x", "  y$1 = x - x\n  y = y$1 - x\n");
  expect_statement("y = x - (x - x)", "  y$1 = x - x\n  y = x - y$1\n");
  expect_statement("y = x + 1 <= x * 2", "  y$1 = x + 1\n  y$2 = x * 2\n  y = y$1 <= y$2\n");
  expect_statement("y = where(x != 0, -x,\n  abs(x))",
                   "  y$1 = x != 0\n  y$2 = neg(x)\n  y$3 = abs(x)\n  y = where(y$1, y$2, y$3)\n");
  expect_statement("y = add(x, 1) ; z = lt(x, y)", "  y = x + 1\n  z = x < y\n");
  expect_statement("y = x * (1 + 2 * 3 - 4)", "  y = x * 3\n");
  expect_statement("y = x * (1 / 8)", "  y = x * 0.125\n");
  expect_statement("y = x * (6 / 2)", "  y = x * 3.0\n");
  expect_statement("y$1 = x + 1; y = y$1 + 1", "  y$1 = x + 1\n  y = y$1 + 1\n");
}

static void test_number_forms(void) {
  expect_statement("y = i + -9223372036854775808", "  y = i + -9223372036854775808\n");
  expect_statement("y = i - - 9223372036854775807", "  y = i - -9223372036854775807\n");
  expect_statement("y = x + -0.0; z = x + -0", "  y = x + -0.0\n  z = x + 0\n");
  expect_statement("y = x + inf; z = x * -inf", "  y = x + inf\n  z = x * -inf\n");
  expect_statement("y = x + nan; z = x * -nan", "  y = x + nan\n  z = x * nan\n");
  expect_statement("y = x + 1e300; z = x * 5e-324", "  y = x + 1e+300\n  z = x * 5e-324\n");
  expect_statement("y = x + 0.1; z = x * 2.0", "  y = x + 0.1\n  z = x * 2.0\n");
  expect_statement("y = -1 - x; z = -(2) * x", "  y = -1 - x\n  z = -2 * x\n");
}

static void test_extents(void) {
  expect_statement("y = x * n", "  y = x * n\n");
  expect_statement("y = x * (n + 1) / (2 * n)", "  y$1 = x * (n + 1)\n  y = y$1 / (2 * n)\n");
  expect_statement("y = x + a.0 - x.1", "  y$1 = x + a.0\n  y = y$1 - 4\n");
  expect_statement("y = x + (n - n + 3)", "  y = x + 3\n");
  expect_statement("y = -n + x", "  y = (-n) + x\n");
  expect_statement("y = x * extent(n / 2)", "  y = x * extent(n / 2)\n");
  expect_statement("y = max(x, extent(n + 1))", "  y = max(x, n + 1)\n");
  expect_statement("y = zeros([n * 2, a.0, d, g.y, x.0 / 3 % 2, min(n, 4) - 1, ceildiv(n, 3)])",
                   "  y = zeros([2 * n, a.0, 2, 2, (n / 3) % 2, min(4, n) - 1, ceildiv(n, 3)])\n");
  expect_statement("y : f32[n, ?] = x + 1", "  y : f32[n, ?] = x + 1\n");
  expect_statement("y : f32[n * 2 - n, 2 + 2] = x + x * 2",
                   "  y$1 = x * 2\n  y : f32[n, 4] = x + y$1\n");
  expect_statement("y : f32 = sum(x)", "  y : f32 = sum(x)\n");
}

static void test_calls(void) {
  expect_statement("y = sum(x, dims=1)", "  y = sum(x, dims=[1])\n");
  expect_statement("y = sum(x, [0, -1], true)", "  y = sum(x, dims=[0, -1], keepdim=true)\n");
  expect_statement("y = sum(keepdim=false, dims=[-1], x=x)", "  y = sum(x, dims=[-1])\n");
  expect_statement("y = sum(x, dims=[])", "  y = sum(x, dims=[])\n");
  expect_statement("y = var(x, correction=1); z = var(x, correction=0)",
                   "  y = var(x, correction=1)\n  z = var(x)\n");
  expect_statement("y = softmax(x, -1); z = softmax(x, 0)",
                   "  y = softmax(x)\n  z = softmax(x, dim=0)\n");
  expect_statement("y = cast(x, bf16)", "  y = cast(x, bf16)\n");
  expect_statement("y = gelu(x, approximate=none); z = gelu(x, approximate=tanh)",
                   "  y = gelu(x)\n  z = gelu(x, approximate=tanh)\n");
  expect_statement("y = linear(x, w, bias=ones([8]))",
                   "  y$1 = ones([8])\n  y = linear(x, w, y$1)\n");
  expect_statement("y = layer_norm(x, bias=ones([4]), eps=1e-3)",
                   "  y$1 = ones([4])\n  y = layer_norm(x, bias=y$1, eps=0.001)\n");
  expect_statement("y = layer_norm(x, eps=1e-5)", "  y = layer_norm(x)\n");
  expect_statement("y = full([n], -1, dtype=i64)", "  y = full([n], -1, dtype=i64)\n");
  expect_statement("y = full([], 2.5, f32)", "  y = full([], 2.5)\n");
  expect_statement("y = pad(x, [0, 1, n, 0], value=-0.0)",
                   "  y = pad(x, [0, 1, n, 0], value=-0.0)\n");
  expect_statement("y = pad(x, [0, 1, n, 0], value=0.0)", "  y = pad(x, [0, 1, n, 0])\n");
  expect_statement("y = uniform([2], hi=2, lo=-1/4)", "  y = uniform([2], lo=-0.25, hi=2)\n");
  expect_statement("y = cat(x, x * 2, x, dim=0)", "  y$1 = x * 2\n  y = cat(x, y$1, x, dim=0)\n");
  expect_statement("y = select(x, dim=-1, index=n - n)", "  y = select(x, dim=-1, index=0)\n");
  expect_statement("y = broadcast(x, [true, false, false,])",
                   "  y = broadcast(x, [true, false, false])\n");
  expect_statement("y = slice(x, starts=[0, 0], stops=[n, 2], steps=[2, 1])",
                   "  y = slice(x, starts=[0, 0], stops=[n, 2], steps=[2, 1])\n");
  expect_statement("y = reshape(x, [-1]); z = permute(x, [1, 0])",
                   "  y = reshape(x, [-1])\n  z = permute(x, [1, 0])\n");
  expect_statement("y = sdpa(x, x, x, causal=true, scale=0.5)",
                   "  y = sdpa(x, x, x, causal=true, scale=0.5)\n");
  expect_statement("y = iota(n + 1); z = iota(4, dtype=i32)",
                   "  y = iota(n + 1)\n  z = iota(4, dtype=i32)\n");
}

static void test_schedules(void) {
  expect_schedule("x, y on d; y on g", "    x, y on d\n    y on g\n");
  expect_schedule("x.split(0, 3); x.split(-1, n / 2 + 1)",
                  "    x.split(0, 3)\n    x.split(-1, n / 2 + 1)\n");
  expect_schedule("x.outer_split(0, d); x.outer_split(1, g.x); x.split(1, g.1)",
                  "    x.outer_split(0, d)\n    x.outer_split(1, g.x)\n    x.split(1, g.y)\n");
  expect_schedule("x.outer_split(0, d.x); x.outer_split(0, d * 3)",
                  "    x.outer_split(0, d.x)\n    x.outer_split(0, 6)\n");
  expect_schedule("x.outer_split(0, [1,\n 2, 3])", "    x.outer_split(0, [1, 2, 3])\n");
  expect_schedule("x.merge(0); x.reorder(0 -> 1, -1 -> 0)",
                  "    x.merge(0)\n    x.reorder(0 -> 1, -1 -> 0)\n");
  expect_schedule("x.swizzle(0, mesh.y); u = y.rfactor([0, 1])",
                  "    x.swizzle(0, mesh.y)\n    u = y.rfactor([0, 1])\n");
  expect_schedule("x[0] = stream; x[-1] = serial; x[1] = mesh.0; x[0] = mesh.z; x[0] = mesh.7",
                  "    x[0] = stream\n    x[-1] = serial\n    x[1] = mesh.x\n    x[0] = mesh.z\n"
                  "    x[0] = mesh.7\n");
  expect_schedule("x.memory(global); x.memory(symmetric)",
                  "    x.memory(global)\n    x.memory(symmetric)\n");
  expect_schedule("x.allocate([1, 0]); x.allocate_as_loop(); x.contiguity([true, false])",
                  "    x.allocate([1, 0])\n    x.allocate_as_loop()\n"
                  "    x.contiguity([true, false])\n");
}

static const char *const programs[] = {
    "# Row-parallel linear: the allreduce of chunk i overlaps the matmul of chunk i+1.\n"
    "fusion row_parallel_linear {\n"
    "  mesh d = [2]   # devices 0 and 1\n"
    "  inp    : bf16[t, 32]\n"
    "  weight : bf16[8, 32]\n"
    "  scale  : f32\n"
    "  out = linear(inp, weight) * scale\n"
    "  return out                       # return a, b for several outputs\n"
    "  schedule {\n"
    "    inp, weight on d\n"
    "    inp.outer_split(0, 3);     inp[0] = stream\n"
    "    inp.outer_split(2, d);     inp[2] = mesh.x\n"
    "    weight.outer_split(1, d);  weight[1] = mesh.x\n"
    "  }\n"
    "}\n",

    "# Allgather of chunk i overlaps the linear of chunk i-1.\n"
    "fusion ag_linear {\n"
    "  mesh d = [2]\n"
    "  x : bf16[8, 2, 64, 1024]\n"
    "  w : bf16[1024, 1024]\n"
    "  b : bf16[1024]\n"
    "  y = linear(x, w, b)\n"
    "  return y\n"
    "  schedule { x, w, b, y on d; x[1] = mesh.x; y[0] = stream }\n"
    "}\n",

    "fusion ag_matmul {\n"
    "  mesh d = [8]\n"
    "  a : f32[?, ?, ?, ?]        # [S, D, M/(S*D), K]\n"
    "  b : f32[?, ?]              # [K, N]\n"
    "  c = matmul(a, b)\n"
    "  return c\n"
    "  schedule { a, b, c on d; a[1] = mesh.x; c[0] = stream }\n"
    "}\n",

    "# lower with --pipeline p2p\n"
    "fusion ag_matmul_p2p {\n"
    "  mesh d = [8]\n"
    "  a : f32[?, ?, ?]           # [D, M/D, K]\n"
    "  b : f32[?, ?]              # [K, N]\n"
    "  c = matmul(a, b)\n"
    "  return c\n"
    "  schedule { a, b, c on d; a[0] = mesh.x; c[0] = stream }\n"
    "}\n",

    "fusion allgather {\n"
    "  mesh d = [8]\n"
    "  t0 : f32[?, ?]\n"
    "  t1 = set(t0)\n"
    "  return t1\n"
    "  schedule { t0, t1 on d; t0[1] = mesh.x; t1[0] = stream }\n"
    "}\n",

    "# The sharded axis itself becomes the stream axis: one peer's shard per iteration (lower with "
    "--pipeline p2p).\n"
    "fusion allgather_p2p {\n"
    "  mesh d = [8]\n"
    "  t0 : f32[?, ?]\n"
    "  t1 = set(t0)\n"
    "  return t1\n"
    "  schedule { t0, t1 on d; t0[0] = mesh.x; t1[0] = stream }\n"
    "}\n",

    "fusion allreduce {\n"
    "  mesh d = [8]\n"
    "  t0 : f32[?, ?, ?]\n"
    "  t1 = sum(t0, dims=[1])\n"
    "  return t1\n"
    "  schedule { t0, t1 on d; t0[1] = mesh.x; t1[0] = stream }\n"
    "}\n",

    "fusion matmul_ar {\n"
    "  mesh d = [8]\n"
    "  a : f32[?, ?, ?, ?]        # [S, D, M/S, K/D]\n"
    "  b : f32[?, ?, ?]           # [D, K/D, N]\n"
    "  u = matmul(a, b)\n"
    "  c = sum(u, dims=[1])\n"
    "  return c\n"
    "  schedule {\n"
    "    a, b, u, c on d\n"
    "    a[1] = mesh.x; b[0] = mesh.x\n"
    "    u[0] = stream; u[1] = mesh.x\n"
    "    c[0] = stream\n"
    "  }\n"
    "}\n",

    "fusion matmul_rs {\n"
    "  mesh d = [8]\n"
    "  a : f32[?, ?, ?, ?, ?]     # [S, D, D, M/(S*D), K/D]\n"
    "  b : f32[?, ?, ?]           # [D, K/D, N]\n"
    "  bb = broadcast(b, [true, false, true, false, false])\n"
    "  u  = matmul(a, bb)\n"
    "  c  = sum(u, dims=[1])\n"
    "  return c\n"
    "  schedule {\n"
    "    a, b, bb, u, c on d\n"
    "    a[1] = mesh.x; b[0] = mesh.x; bb[1] = mesh.x\n"
    "    u[0] = stream; u[1] = mesh.x\n"
    "    c[0] = stream; c[2] = mesh.x\n"
    "  }\n"
    "}\n",

    "# Loop axes of t1 are [s, r, d, k]: axis 1 is the reduction.\n"
    "fusion reduce_scatter {\n"
    "  mesh d = [8]\n"
    "  t0 : f32[?, ?, ?, ?]\n"
    "  t1 = sum(t0, dims=[1])\n"
    "  return t1\n"
    "  schedule { t0, t1 on d; t0[1] = mesh.x; t1[0] = stream; t1[2] = mesh.x }\n"
    "}\n",

    "# The slice of a reduction's output keeps its reduction axis.\n"
    "fusion reduction {\n"
    "  t0 : f32[?, ?, ?]\n"
    "  t1 = sum(t0, dims=[2])\n"
    "  return t1\n"
    "  schedule { t1[0] = stream }\n"
    "}\n",

    "# Loop-split stream axis; shardings of the output come from propagation.\n"
    "fusion row_parallel_linear {\n"
    "  mesh d = [2]\n"
    "  inp    : bf16[?, 8]\n"
    "  weight : bf16[2, 8]\n"
    "  out = linear(inp, weight)\n"
    "  return out\n"
    "  schedule {\n"
    "    inp, weight on d\n"
    "    inp.outer_split(0, 3);    inp[0] = stream\n"
    "    inp.outer_split(2, 2);    inp[2] = mesh.x\n"
    "    weight.outer_split(1, 2); weight[1] = mesh.x\n"
    "  }\n"
    "}\n",

    "# One op, one stream loop: slice i of the copy runs on stream i.\n"
    "fusion single_set {\n"
    "  t0 : f32[?, ?]\n"
    "  t1 = set(t0)\n"
    "  return t1\n"
    "  schedule { t1[0] = stream }\n"
    "}\n",

    "# An op without a stream axis in between closes the first loop and forces a second.\n"
    "fusion three_sets {\n"
    "  t0 : f32[?, ?]\n"
    "  t1 = set(t0)\n"
    "  t2 = set(t1)\n"
    "  t3 = set(t2)\n"
    "  return t3\n"
    "  schedule { t1[0] = stream; t2[0] = serial; t3[0] = stream }\n"
    "}\n",

    "# Two ops on mapped stream axes share one loop.\n"
    "fusion two_sets {\n"
    "  t0 : f32[?, ?]\n"
    "  t1 = set(t0)\n"
    "  t2 = set(t1)\n"
    "  return t2\n"
    "  schedule { t1[0] = stream; t2[0] = stream }\n"
    "}\n",

};

static void test_programs(void) {
  for (size_t i = 0; i < sizeof programs / sizeof programs[0]; i++) expect_round_trip(programs[i]);
}

static status print_signatures(void *context) {
  static const struct {
    ir_opcode code;
    const char *text;
  } cases[] = {{IR_OP_ADD, "add(a, b)"},
               {IR_OP_CAT, "cat(xs, ..., dim=)"},
               {IR_OP_VAR, "var(x, [dims=], keepdim=false, correction=0)"},
               {IR_OP_FULL, "full(shape, value, dtype=f32)"},
               {IR_OP_GELU, "gelu(x, approximate=none)"},
               {IR_OP_LAYER_NORM, "layer_norm(x, [weight], [bias], eps=1e-05)"}};
  arena *memory = context;
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    strbuf b;
    strbuf_init(&b, memory);
    text_print_signature(ir_op_info_of(cases[i].code), &b);
    EXPECT_STR(b.data, cases[i].text);
  }
  return STATUS_OK;
}

static void test_signatures(void) {
  arena memory;
  arena_init(&memory, &memory_default);
  EXPECT(memory_guard(print_signatures, &memory) == STATUS_OK);
  arena_destroy(&memory);
}

/* ---- errors ---- */
static void test_expression_errors(void) {
  expect_wrong("y = lienar(x, w)", "3:5", "unknown function 'lienar' (did you mean 'linear'?)");
  expect_wrong("y = x + xx", "3:9", "unknown name 'xx'");
  expect_wrong("weight2 = x + x; y = x + wieght2", "3:26", "unknown name 'wieght2' (did you mean");
  expect_wrong("y = x", "3:5", "a name is not an operation; write set(x)");
  expect_wrong("y = (x)", "3:5", "a name is not an operation");
  expect_wrong("y = 2 * 3", "3:5", "a number has no shape; write full([...], 2 * 3)");
  expect_wrong("y = n + 1", "3:5", "an extent has no shape");
  expect_wrong("y = 1 < 2", "3:7", "this compares two numbers");
  expect_wrong("y = x < x < x", "3:11", "expected at most one comparison");
  expect_wrong("y = x * (1 / n)", "3:12", "one side must be a tensor");
  expect_wrong("y = x / (1 / 0)", "3:12", "this divides a number by 0");
  expect_wrong("y = x * (9223372036854775807 + 1)", "3:30", "this integer expression overflows");
  expect_wrong("y = x + 9223372036854775808", "3:9", "this integer does not fit 64 bits");
  expect_wrong("y = x - -(-9223372036854775808)", "3:9", "this integer expression overflows");
  expect_wrong("y = x * d", "3:9", "'d' is a mesh");
  expect_wrong("y = x + a.1", "3:11", "'a' has 1 dimensions");
  expect_wrong("y = x x", "3:7", "expected the end of the statement, found 'x'");
  expect_wrong("y = x ~ x", "3:7", "'~' is no operator; write not(x)");
  expect_wrong("y = x @ x", "3:7",
               "expected an operator; write matmul(a, b) for a product, found '@'");
  expect_wrong("y = x + 12ab", "3:9", "malformed number");
  expect_wrong("y = x +", "3:8", "expected an expression, found the end of the line");
  expect_wrong("y = (x + x", "4:1", "expected ')', found the reserved word 'return'");
  expect_wrong("y = where(true, x, x)", "3:11", "expected a tensor or a number");
  expect_wrong("x = x + x", "3:1", "'x' is already the name of a tensor");
  expect_wrong("stream = x + x", "3:1", "expected a statement, found the reserved word 'stream'");
  expect_wrong("y : f32[n, 5] = x + x", "3:1", "");
  expect_wrong("y : f32[k, 4] = x + x", "3:9", "unknown extent 'k'");
}

static void test_call_errors(void) {
  expect_wrong("y = add(x)", "3:5", "add needs b; it is add(a, b)");
  expect_wrong("y = add(x, x, x)", "3:15", "too many arguments of add; it is add(a, b)");
  expect_wrong("y = sum(x, dim=[0])", "3:12",
               "sum has no argument 'dim' (did you mean 'dims'?); it is sum(x, [dims=]");
  expect_wrong("y = sum(x, dims=[0], dims=[1])", "3:22", "dims is given twice");
  expect_wrong("y = sum(x, x=x)", "3:12", "x is given twice");
  expect_wrong("y = sum(x=x, [1])", "3:14", "an argument without a name follows");
  expect_wrong("y = cat(dim=0)", "3:5", "cat needs xs");
  expect_wrong("y = cat(x, x)", "3:5", "cat needs dim");
  expect_wrong("y = softmax(x, dim=[1])", "3:20", "expected one integer as dim, found '['");
  expect_wrong("y = softmax(x, dim=n)", "3:20", "dim must be a constant integer");
  expect_wrong("y = sum(x, keepdim=1)", "3:20", "expected true or false as keepdim");
  expect_wrong("y = cast(x, float)", "3:13", "expected f32 as dtype");
  expect_wrong("y = gelu(x, approximate=cubic)", "3:25", "expected none or tanh as approximate");
  expect_wrong("y = full(4, 1)", "3:10", "expected a list like [n, 4] as shape");
  expect_wrong("y = full([4], x)", "3:15", "value must be a constant number");
  expect_wrong("y = full([x], 1)", "3:11", "'x' is a tensor, not an integer; 'x.0' is");
  expect_wrong("y = full([g], 1)", "3:11", "mesh 'g' has 2 axes; say which one's size: 'g.x'");
  expect_wrong("y = full([g.z], 1)", "3:11", "mesh 'g' has only 2 axes");
  expect_wrong("y = full([n / 0], 1)", "3:13", "a divisor must be at least 1");
  expect_wrong("y = full([9223372036854775807 + 1], 1)", "3:11",
               "this integer expression overflows");
  expect_wrong("y = full([sum(n)], 1)", "3:11", "expected an integer expression; its functions");
}

static void test_item_errors(void) {
  expect_errors("", 1, "1:1", "there is no fusion in this file");
  expect_errors("hello\nworld", 1, "1:1", "expected 'fusion NAME {', found 'hello'");
  expect_errors("host f(x) { }", 1, "1:9", "expected ':' and the type of the parameter");
  expect_errors("fusion { x : f32; return x }", 1, "1:8", "expected the name of the fusion");
  expect_errors("fusion f { x : f32 }", 1, "1:8", "this fusion has no return");
  expect_errors("fusion f { x : f32; return x", 1, "1:29", "expected '}' at the end of the fusion");
  expect_errors("fusion f { x : f32; return x\nfusion g { y : f32; return y }", 1, "2:1",
                "expected '}' at the end of the fusion");
  expect_errors("fusion f { x : f32; return x }\nfusion f { y : f32; return y }", 1, "2:8", "");
  expect_errors("fusion f { x : f32; return x; return x }", 1, "1:31", "a fusion has one return");
  expect_errors("fusion f { x : f32; return x; y = -x }", 1, "1:31", "only a schedule may follow");
  expect_errors("fusion f { x : f32; return }", 1, "1:28", "expected the name of a tensor");
  expect_errors("fusion f { x : f32[n]; return n }", 1, "1:31", "'n' is an integer, not a tensor");
  expect_errors("fusion f { x : f32; return x + x }", 1, "1:30", "return takes names");
  expect_errors("fusion f { x : f23[n]; return x }", 1, "1:16",
                "unknown dtype 'f23'; there are f64");
  expect_errors("fusion f { x : f32[n]; z : f32[n * 2]; return x }", 1, "1:32",
                "an input's extent is an integer, a name or ?");
  expect_errors("fusion f { x : f32[-1]; return x }", 1, "1:12", "");
  expect_errors("fusion f { x.merge(0); x : f32; return x }", 1, "1:13",
                "expected '=' or ':' after the name (schedule statements belong in schedule");
  expect_errors("fusion f { mesh d = [2] of {0, 1; x : f32; return x }", 1, "1:33",
                "expected ',' or '}', found ';'");
}

static void test_schedule_errors(void) {
#define SCHEDULE(s)                                                                                \
  "fusion f { mesh d = [2]; mesh g = [2, 4]; x : f32[n, 4]; return x; schedule {\n" s "\n} }"
  expect_errors(SCHEDULE("x on e"), 1, "2:6", "unknown mesh 'e'");
  expect_errors(SCHEDULE("x on n"), 1, "2:6", "'n' is an integer, not a mesh");
  expect_errors(SCHEDULE("x.spilt(0, 2)"), 1, "2:3", "unknown schedule statement 'spilt' (did you");
  expect_errors(SCHEDULE("x.split(0)"), 1, "2:10", "expected ',' and a factor, found ')'");
  expect_errors(SCHEDULE("x.split(0, g)"), 1, "2:12", "mesh 'g' has 2 axes");
  expect_errors(SCHEDULE("x.split(0, k)"), 1, "2:12", "unknown name 'k'");
  expect_errors(SCHEDULE("x.rfactor([1])"), 1, "2:3", "write U = T.rfactor([axes])");
  expect_errors(SCHEDULE("u = x.split(0, 2)"), 1, "2:7", "only rfactor gives a new tensor");
  expect_errors(SCHEDULE("x[0] = d.x"), 1, "2:8", "expected stream, serial, mesh.x, mesh.y or");
  expect_errors(SCHEDULE("x[0] = mesh.w"), 1, "2:13",
                "expected a mesh axis: x, y, z or its number");
  expect_errors(SCHEDULE("x[n] = stream"), 1, "2:3", "the axis must be a constant integer");
  expect_errors(SCHEDULE("x.memory(local)"), 1, "2:10", "expected global or symmetric");
  expect_errors(SCHEDULE("x.reorder(0, 1)"), 1, "2:12", "expected '->' and the new position");
  expect_errors(SCHEDULE("x.contiguity([1])"), 1, "2:15", "expected true or false in the contig");
  expect_errors(SCHEDULE("stream = x"), 1, "2:1", "expected a schedule statement");
  expect_errors(SCHEDULE("x y"), 1, "2:3", "expected 'on', '.', '[' or '=' after the name");
#undef SCHEDULE
}

/* Independent errors are all reported, and nothing follows from them. */
static void test_many_errors(void) {
  outcome o = {0};
  run_text(&o, "fusion f {\n"
               "  mesh d = [0]\n"
               "  x : f32[n, m\n"
               "  w : f32[k j]\n"
               "  v : f32[4]\n"
               "  a = lienar(x, w)\n"
               "  b = add(v\n"
               "  c = a + b + v + a$1\n"
               "  e = zeros([n, k, j])\n"
               "  g = v + nothing * nothing\n"
               "  return g, c, v\n"
               "  schedule {\n"
               "    v on d; v[0] stream\n"
               "    v.spilt(0, 1)\n"
               "    a[0] = stream\n"
               "  }\n"
               "}\n"
               "fusion h { x : f32; y = -z; return y }\n");
  static const char *const expected[] = {"t:2:8: error: ",   "t:4:3: error: ",  "t:4:13: error: ",
                                         "t:6:7: error: ",   "t:8:3: error: ",  "t:10:11: error: ",
                                         "t:13:18: error: ", "t:14:7: error: ", "t:18:26: error: "};
  size_t n = sizeof expected / sizeof expected[0];
  for (size_t i = 0; i < n; i++) EXPECT_CONTAINS(o.messages, expected[i]);
  if (!EXPECT_INT(o.errors, n)) fprintf(stderr, "%s", o.messages);
  finish(&o);
}

/* ---- limits ---- */
static char *append(char *to, const char *text, size_t times) {
  size_t n = strlen(text);
  for (size_t i = 0; i < times; i++, to += n) memcpy(to, text, n);
  *to = '\0';
  return to;
}

/* `y = ` open × depth, x, close × depth. */
static void nest(outcome *o, const char *open, const char *close, size_t depth) {
  char *text = malloc(256 + depth * (strlen(open) + strlen(close)));
  if (!text) abort();
  char *end = append(text, "fusion f { x : f32[n]\ny = ", 1);
  end = append(end, open, depth);
  end = append(end, "x + x", 1);
  end = append(end, close, depth);
  append(end, "\nreturn y }", 1);
  run_text(o, text);
  free(text);
}

static void test_nesting(void) {
  static const char *const forms[][2] = {{"(", ")"}, {"abs(", ")"}, {"-(", ")"}, {"- - ", ""}};
  outcome o = {0};
  for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
    size_t levels = i < 2 ? 1 : 2;
    nest(&o, forms[i][0], forms[i][1], TEXT_MAX_NESTING / levels);
    EXPECT_STR(o.messages, "");
    nest(&o, forms[i][0], forms[i][1], TEXT_MAX_NESTING / levels + 1);
    EXPECT_INT(o.errors, 1);
    EXPECT_CONTAINS(o.messages, "nested deeper than 1000 levels");
    nest(&o, forms[i][0], "", 1000000);
    EXPECT_INT(o.errors, 1);
  }
  nest(&o, "zeros([(", "", 1000000);
  EXPECT_INT(o.errors, 1);
  nest(&o, "{", "", 1000000);
  EXPECT_INT(o.st, STATUS_BAD_PROGRAM);
  finish(&o);
}

static void test_garbage(void) {
  enum { SIZE = 1000000 };
  char *text = malloc(SIZE);
  if (!text) abort();
  outcome o = {0};
  uint32_t state = 1;
  for (size_t i = 0; i < SIZE; i++) {
    state = state * 1664525u + 1013904223u;
    text[i] = (char)(state >> 24);
  }
  run(&o, text, SIZE);
  EXPECT_INT(o.st, STATUS_BAD_PROGRAM);
  memcpy(text, "fusion f {", 10);
  run(&o, text, SIZE);
  EXPECT_INT(o.st, STATUS_BAD_PROGRAM);
  memset(text, 0, SIZE);
  run(&o, text, SIZE);
  EXPECT_INT(o.errors, 1);
  free(text);
  finish(&o);
}

/* Every prefix of a program ends in a message or in success, never in a crash. */
static void test_prefixes(void) {
  const char *text = programs[0];
  outcome o = {0};
  for (size_t n = 0; n < strlen(text); n++) run(&o, text, n);
  EXPECT(o.st == STATUS_BAD_PROGRAM || o.st == STATUS_OK);
  finish(&o);
}

static void test_many_statements(void) {
  enum { COUNT = 100000 };
  char *text = malloc((size_t)COUNT * 40 + 256);
  if (!text) abort();
  char *end = append(text, "fusion f { x : f32[n]\ny0 = x + 1\n", 1);
  for (int i = 1; i < COUNT; i++) end += sprintf(end, "y%d = y%d * 2.5\n", i, i - 1);
  append(end, "return y0 }", 1);
  outcome o = {0};
  run_text(&o, text);
  EXPECT_STR(o.messages, "");
  free(text);
  finish(&o);
}

/* ---- extents that share parts ---- */

/* A chain of `steps` slices and pads on a symbolic extent; how each is cut is drawn. */
static char *chain(int steps, uint64_t seed) {
  static const char *const kinds[] = {
      "slice(t%d, starts=[1], stops=[-1])",
      "pad(t%d, [ceildiv(t%d.0, 2), t%d.0 / 3])",
      "slice(t%d, starts=[-3], stops=[t%d.0 / 2])",
      "pad(t%d, [t%d.0 %% 5, m * t%d.0])",
      "slice(t%d, starts=[t%d.0 / 4], stops=[m + 7], steps=[2])",
      "pad(t%d, [min(t%d.0, m), max(t%d.0, 3)])",
  };
  char *text = malloc((size_t)steps * 80 + 256), *end = text;
  if (!text) abort();
  end += sprintf(end, "fusion f { x : f32[n]; y : f32[m]\nt0 = neg(x)\n");
  for (int i = 1; i <= steps; i++) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    end += sprintf(end, "t%d = ", i);
    end += sprintf(end, kinds[(seed >> 33) % 6], i - 1, i - 1, i - 1);
    *end++ = '\n';
  }
  sprintf(end, "return t%d }", steps);
  return text;
}

static void test_shared_extents(void) {
  static const int steps[] = {3, 8, 16, 64, 64, 64, 1000};
  for (int i = 0; i < 70; i++) {
    outcome o = {0};
    char *text = chain(steps[i % 7], (uint64_t)i + 1);
    run_text(&o, text);
    EXPECT_STR(o.messages, "");
    EXPECT(strlen(o.printed) < 500 + 2000 * (size_t)steps[i % 7]);
    expect_round_trip(o.printed);
    finish(&o);
    free(text);
  }
}

static void test_named_extents(void) {
  expect_statement("extent half = n / 2; y = reshape(x, [half, -1])",
                   "  y = reshape(x, [n / 2, -1])\n");
  expect_statement("extent half = n / 2\nextent quarter = half / 2\ny = full([quarter], 1.0)",
                   "  y = full([n / 4], 1.0)\n");
  expect_statement("extent = neg(x)", "  extent = neg(x)\n"); /* elsewhere the word is a name */
  expect_wrong("extent n = 3", "3:8", "'n' is already the name of an extent");
  expect_wrong("extent k : 3", "3:10", "expected '=' and an integer expression, found ':'");
  expect_wrong("extent k = j", "3:12", "unknown name 'j'");
  expect_wrong("extent k = n + 1; z : f32[k]", "3:27",
               "an input's extent is an integer, a name or ?");
}

int main(void) {
  test_tokens();
  test_newlines();
  test_bad_bytes();
  test_utf8();
  test_numbers();
  test_suggestions();
  test_fusion_form();
  test_expressions();
  test_number_forms();
  test_extents();
  test_calls();
  test_schedules();
  test_programs();
  test_signatures();
  test_expression_errors();
  test_call_errors();
  test_item_errors();
  test_schedule_errors();
  test_many_errors();
  test_nesting();
  test_garbage();
  test_prefixes();
  test_many_statements();
  test_shared_extents();
  test_named_extents();
  return test_finish();
}
