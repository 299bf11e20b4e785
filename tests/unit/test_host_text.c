/* Host programs as text: exact text, round trips, messages and their places, the structural verifier,
 * and the notation of nvFuser's dumps. */
#include <stdlib.h>

#include "ir/build.h"
#include "ir/host.h"
#include "test.h"
#include "text/text.h"

/* ---- running parser, verifier and printers ---- */
typedef struct outcome {
  const char *text;
  bool parsed, verified, linked;
  uint32_t errors;
  char *printed, *nvfuser, *messages; /* freed by the next run */
  void (*edit)(ir_func *h);           /* before verifying; may be NULL */
} outcome;

static ir_module module_now;

static char *keep(const strbuf *b) {
  char *copy = malloc(b->len + 1);
  if (copy) memcpy(copy, b->len ? b->data : "", b->len + 1);
  return copy;
}

static void verify_hosts(outcome *o, strbuf *nvfuser) {
  o->verified = true;
  for (uint32_t i = 0; i < module_now.funcs.len; i++) {
    ir_func *h = module_now.funcs.data[i];
    if (h->kind != IR_FUNC_HOST) continue;
    if (o->edit) o->edit(h);
    o->linked = h->host->fusion != NULL;
    o->verified = ir_host_verify(h) && o->verified;
    text_print_nvfuser(h, 0, nvfuser);
  }
}

static status run_guarded(void *context) {
  outcome *o = context;
  strbuf printed, nvfuser, messages;
  ir_module_init(&module_now, &memory_default);
  o->parsed = text_parse(&module_now, "t", o->text, strlen(o->text)) == STATUS_OK;
  strbuf_init(&printed, &module_now.memory);
  strbuf_init(&nvfuser, &module_now.memory);
  strbuf_init(&messages, &module_now.memory);
  if (o->parsed) {
    text_print_module(&module_now, &printed);
    verify_hosts(o, &nvfuser);
  }
  o->errors = module_now.errors.errors;
  diags_render(&module_now.errors, &messages);
  o->printed = keep(&printed);
  o->nvfuser = keep(&nvfuser);
  o->messages = keep(&messages);
  return STATUS_OK;
}

static void finish(outcome *o) {
  free(o->printed);
  free(o->nvfuser);
  free(o->messages);
  *o = (outcome){0};
}

/* The text is handed over in a block of its own, so that a sanitizer sees a read past it. */
static void run_edited(outcome *o, const char *text, void (*edit)(ir_func *)) {
  size_t n = strlen(text) + 1;
  char *copy = malloc(n);
  if (!copy) abort();
  memcpy(copy, text, n);
  finish(o);
  *o = (outcome){.text = copy, .edit = edit};
  EXPECT(memory_guard(run_guarded, o) == STATUS_OK);
  ir_module_destroy(&module_now);
  free(copy);
}

static void run(outcome *o, const char *text) { run_edited(o, text, NULL); }

/* Parses, verifies, and prints as `expected`, which prints as itself. */
static void expect_text(const char *text, const char *expected) {
  outcome o = {0};
  run(&o, text);
  EXPECT_STR(o.messages, "");
  EXPECT(o.verified);
  EXPECT_STR(o.printed, expected);
  run(&o, expected);
  EXPECT_STR(o.printed, expected);
  finish(&o);
}

static void expect_same(const char *text) { expect_text(text, text); }

/* Is not understood: that many errors, one of them with this place and text. */
static void expect_refused(const char *text, uint32_t errors, const char *message) {
  outcome o = {0};
  run(&o, text);
  EXPECT(!o.parsed);
  if (!EXPECT_INT(o.errors, errors)) fprintf(stderr, "%s\n", o.messages);
  EXPECT_CONTAINS(o.messages, message);
  finish(&o);
}

/* Is understood but broken. */
static void expect_broken(const char *text, uint32_t errors, const char *message) {
  outcome o = {0};
  run(&o, text);
  EXPECT(o.parsed);
  EXPECT(!o.verified);
  if (!EXPECT_INT(o.errors, errors)) fprintf(stderr, "%s\n", o.messages);
  EXPECT_CONTAINS(o.messages, message);
  finish(&o);
}

static void expect_verified(const char *text) {
  outcome o = {0};
  run(&o, text);
  EXPECT_STR(o.messages, "");
  EXPECT(o.verified);
  finish(&o);
}

/* A program around some statements: x : f32[n, m], s : f32, and y like x, which is the output. */
static char *around(const char *body) {
  static char texts[2][4096]; /* two may be in use */
  static unsigned turn;
  char *text = texts[turn++ % 2];
  (void)snprintf(text, sizeof texts[0],
                 "host h(x : f32[n, m], s : f32) -> (y) {\n"
                 "  y : f32[n, m] = allocate()\n"
                 "  y <- set(x)\n"
                 "  main = current_stream()\n"
                 "%s}\n",
                 body);
  return text;
}

/* ---- text ---- */
static const char *const two_sets = "host two_sets(t0 : f32[n, m]) -> (t2) {\n"
                                    "  t2 : f32[n, m] = allocate()\n"
                                    "  main = current_stream()\n"
                                    "  for i in min(n, streams) {\n"
                                    "    set_stream(i)\n"
                                    "    wait_stream(main)\n"
                                    "  }\n"
                                    "  for i in n {\n"
                                    "    set_stream(i % streams)\n"
                                    "    t0$1 = select(t0, dim=0, index=i)\n"
                                    "    t1$1 : f32[m] = allocate()\n"
                                    "    t1$1 <- set(t0$1)\n"
                                    "    t2$1 = select(t2, dim=0, index=i)\n"
                                    "    t2$1 <- set(t1$1)\n"
                                    "    deallocate(t1$1)\n"
                                    "  }\n"
                                    "  set_stream(main)\n"
                                    "  for i in min(n, streams) {\n"
                                    "    wait_stream(i)\n"
                                    "  }\n"
                                    "}\n";

static void test_round_trips(void) {
  expect_same(two_sets);
  /* Names end with their block and may come again; else; every relation; nesting. */
  expect_same(around("  for i in n {\n"
                     "    for j in m {\n"
                     "      t : f32 = allocate()\n"
                     "      t <- full([], 1)\n"
                     "    }\n"
                     "    for j in 2 {\n"
                     "      t : i64[2] = allocate()\n"
                     "      t <- iota(2)\n"
                     "    }\n"
                     "    if i == 0 {\n"
                     "      y <- x + 1\n"
                     "    } else {\n"
                     "      if i != n - 1 {\n"
                     "        y <- x * s\n"
                     "      }\n"
                     "    }\n"
                     "    if i < streams {\n"
                     "    }\n"
                     "    if i + 1 <= streams {\n"
                     "    }\n"
                     "  }\n"));
  /* All ways to cut. */
  expect_same(around("  for i in 3 {\n"
                     "    a = shard(x, dim=0, index=i, parts=3)\n"
                     "    b = shard(x, dim=1, index=i, chunk=n / 2)\n"
                     "    c = shard(x, dim=0, index=i, chunks=[1, 2, 3])\n"
                     "    d = select(a, dim=1, index=streams + 2 * i)\n"
                     "  }\n"));
  expect_same(around("  main = current_stream()\n  set_stream(main)\n")); /* named again */
  expect_same("host none() -> (y) {\n  y : f32[4] = allocate()\n  y <- ones([4])\n}\n");
  expect_same("host same(x : bf16[?, 1]) -> (x) {\n}\n");
}

static void test_operations(void) {
  /* Calls, operators, numbers, extents as values, optional operands, attributes. */
  expect_same("host ops(x : f32[a, ?], w : f32[b, ?]) -> (y) {\n"
              "  y : f32[a, b] = allocate()\n"
              "  y <- linear(x, w)\n"
              "  u : f32[a, x.1] = allocate()\n"
              "  u <- x * 2.5\n"
              "  u <- 1 / x\n"
              "  u <- x - (a + 1)\n"
              "  u <- x * extent(a / 2)\n"
              "  u <- clamp(x, -1, 1)\n"
              "  v : f32[x.1] = allocate()\n"
              "  v <- zeros([x.1])\n"
              "  u <- layer_norm(x, bias=v)\n"
              "  u <- uniform([a, x.1], hi=2, key=7)\n"
              "  u <- gelu(x, approximate=tanh)\n"
              "  c : bool[a, x.1] = allocate()\n"
              "  c <- x < -1\n"
              "  u <- where(c, x, 0)\n"
              "  r : f32[a] = allocate()\n"
              "  r <- sum(x, dims=[1])\n"
              "}\n");
}

static void test_windows(void) {
  expect_same(
      around("  for i in n {\n"
             "    a = shard(y, dim=0, index=i, chunk=4)\n"
             "    a <- uniform([n, m], key=1) at [4 * i, 0]\n"
             "    b = shard(x, dim=0, index=i, chunk=4)\n"
             "    a <- b + x at [4 * i, 0] sliced [[0], []]\n"
             "    a <- cat(b, x, b, dim=1) at [n * streams * i, m] sliced [[0], [], [0, 1]]\n"
             "  }\n"));
  expect_text(around("  y <- set(x) at [0, 0] sliced [[],]\n"),
              around("  y <- set(x) at [0, 0]\n"));
}

static void test_free_forms(void) {
  expect_text(
      "# a comment\nhost f(\n  x : f32[n],\n) -> (y,)\n{ y : f32[n] = allocate(); y <- (-x)\n"
      "c : bool[n] = allocate(); c<-x<-1 }",
      "host f(x : f32[n]) -> (y) {\n  y : f32[n] = allocate()\n  y <- neg(x)\n"
      "  c : bool[n] = allocate()\n  c <- x < -1\n}\n");
  expect_text(around("  a = shard(x, index=0, parts=1 + 1, dim=-1,)\n  for for in 2 { if : f32 = "
                     "allocate(); if <- full([], for * 0 + 1) }\n"),
              around("  a = shard(x, dim=1, index=0, parts=2)\n  for for in 2 {\n"
                     "    if : f32 = allocate()\n    if <- full([], 1)\n  }\n"));
}

static const char *const plain_fusion = "fusion f {\n"
                                        "  x : f32[n]\n"
                                        "  y = exp(x)\n"
                                        "  return y\n"
                                        "}\n";
static const char *const plain_host = "host f(x : f32[n]) -> (y) {\n"
                                      "  y : f32[n] = allocate()\n"
                                      "  y <- exp(x)\n"
                                      "}\n";

static void test_modules(void) {
  char text[1024];
  outcome o = {0};
  (void)snprintf(text, sizeof text, "%s\n%s", plain_fusion, plain_host);
  expect_same(text);
  run(&o, text);
  EXPECT(o.linked);
  (void)snprintf(text, sizeof text, "%s\n%s", plain_host, plain_fusion);
  expect_same(text);
  run(&o, text);
  EXPECT(o.linked);
  run(&o, two_sets);
  EXPECT(!o.linked);
  finish(&o);
  (void)snprintf(text, sizeof text, "%s%s", plain_host, plain_host);
  expect_refused(text, 1, "there is already a host program called 'f'");
  expect_broken("fusion f { x : f32[n]; y = sum(x); return y }\n"
                "host f(x : f32[n]) -> (y) { y : f32[n] = allocate(); y <- exp(x) }",
                1, "2:6: error: the inputs and outputs of host program 'f' are not those of its");
}

/* ---- messages of the parser ---- */
static void test_syntax(void) {
  expect_refused("host", 1, "1:5: error: expected the name of the host program");
  expect_refused("host f x", 1, "1:8: error: expected '(' and the parameters, found 'x'");
  expect_refused("host f(x : f32[n]) {\n y <- x\n}", 3,
                 "1:20: error: expected '->' and the outputs");
  expect_refused("host f(x : f32[n]) -> (x) {\n", 1, "expected '}' at the end of the host program");
  expect_refused(around("  for i in n {\n    for j in n {\n"), 1,
                 "expected '}' at the end of the loop");
  expect_refused(around("  for i on n { }\n"), 1, "5:9: error: expected 'in' and the number of");
  expect_refused(around("  if n = m { }\n"), 1,
                 "5:8: error: expected ==, !=, <, <=, > or >=, found '='");
  expect_refused(around("  y\n"), 1, "expected ':', '=' or '<-' after the name");
  expect_refused(around("  y < - exp(x)\n"), 1, "expected ':', '=' or '<-' after the name");
  expect_refused(around("  return y\n"), 1, "5:3: error: expected a statement, found the reserved");
  expect_refused(around("  z : f32[n]\n"), 1,
                 "expected '= allocate()' or a view of another tensor after the type");
  expect_refused(around("  z = allocate()\n"), 1, "expected the type in front");
  expect_refused(around("  z = add(x, x)\n"), 1, "operations are written 'y <- op(...)'");
  expect_refused(around("  y <- set(x) y\n"), 1, "5:15: error: expected the end of the statement");
  expect_refused("host f(x : f32[n]) -> (x) { }\nfusion f {\n", 1, "at the end of the fusion");
}

static void test_bad_names(void) {
  expect_refused(around("  for i in n {\n    t : f32 = allocate()\n  }\n  deallocate(t)\n"), 1,
                 "8:14: error: unknown tensor 't'");
  expect_refused(around("  for i in n { }\n  set_stream(i)\n"), 1, "6:14: error: unknown name 'i'");
  expect_refused(around("  for n in m { }\n"), 1, "'n' is already the name of an extent");
  expect_refused(around("  for i in n { for i in n { } }\n"), 1, "'i' is already the name of");
  expect_refused(around("  y : f32 = allocate()\n"), 1, "5:3: error: 'y' is already the name of a");
  expect_refused(around("  main : f32 = allocate()\n"), 1,
                 "'main' is already the name of a stream");
  expect_refused(around("  for i in n { main = current_stream() }\n"), 1,
                 "5:16: error: 'main' is already the name of a stream");
  expect_refused(around("  y = current_stream()\n"), 1, "'y' is already the name of a tensor");
  expect_refused(around("  streams : f32 = allocate()\n"), 1, "'streams' is already the name of");
  expect_refused("host f(streams : f32, x : f32) -> (x) { }", 1,
                 "'streams' is the number of worker");
  expect_refused("host f(x : f32[streams]) -> (x) { }", 1, "'streams' is the number of worker");
  expect_refused(around("  n <- set(x)\n"), 1, "5:3: error: 'n' is an integer, not a tensor");
  expect_refused(around("  set_stream(y)\n"), 1, "'y' is a tensor, not an integer");
  expect_refused("host f(x : f32) -> (y, n) {\n  n = current_stream()\n}", 2, "unknown output 'y'");
  expect_refused("host f(x : f32) -> (x, x) { }", 1, "'x' is returned twice");
  expect_refused(around("  wait_steam(main)\n"), 1, "(did you mean 'wait_stream'?)");
  expect_refused(around("  add(x, y)\n"), 1, "an operation names its destination");
}

static void test_bad_steps(void) {
  expect_refused(around("  y <- x\n"), 1, "write set(x) for a copy");
  expect_refused(around("  y <- 2\n"), 1, "a number has no shape");
  expect_refused(around("  y <- x + x * x\n"), 1,
                 "5:10: error: operations of a host program do not");
  expect_refused(around("  y <- exp(exp(x))\n"), 1, "operations of a host program do not nest");
  expect_refused(around("  y <- sett(x)\n"), 1, "did you mean 'set'?");
  expect_refused(around("  z : f32[?] = allocate()\n"), 1, "the extents of an allocation are");
  expect_refused(around("  z : f32[0 - 1] = allocate()\n"), 1,
                 "extent 0 of 'z' cannot be negative: -1");
  expect_refused(around("  z : f32[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1] = allocate()\n"), 1,
                 "a tensor has at most 16 axes, not 17");
  expect_refused(around("  a = select(x, dim=2, index=0)\n"), 1,
                 "5:7: error: dim 2 is out of range");
  expect_refused(around("  a = select(x, dim=0)\n"), 1,
                 "an argument is missing; it is select(t, dim");
  expect_refused(around("  a = select(x, dim=0, index=0, parts=2)\n"), 1,
                 "5:33: error: this is not");
  expect_refused(around("  a = shard(x, dim=0, index=0)\n"), 1,
                 "an argument is missing; it is shard(");
  expect_refused(around("  a = shard(x, dim=0, index=0, parts=0)\n"), 1,
                 "parts must be at least 1");
  expect_refused(around("  a = shard(x, dim=0, index=0, parts=2, chunk=3)\n"), 1,
                 "is given already");
  expect_refused(around("  a = shard(x, dim=0, index=0, chunks=[])\n"), 1,
                 "chunks are one or more");
  expect_refused(around("  y <- set(x) at [0]\n"), 1, "'at' needs 2 offsets, one per dimension of");
  expect_refused(around("  y <- set(x) at [0, 0] sliced [[2]]\n"), 1,
                 "dimension 2 is out of range");
  expect_refused(around("  y <- set(x) at [0, 0] sliced [[0], []]\n"), 1, "2 lists for 1 operands");
}

/* Independent mistakes come together, and what follows from one of them does not. */
static void test_recovery(void) {
  expect_refused(around("  a : f33[n] = allocate()\n"
                        "  a <- set(x)\n"
                        "  b = select(a, dim=0, index=0)\n"
                        "  b <- set(a)\n"
                        "  y <- exp(x\n"
                        "  for i in n {\n"
                        "    y <- add(x, z)\n"
                        "    c = select(z, dim=0, index=i)\n"
                        "  }\n"
                        "  deallocate(w)\n"),
                 4, "5:7: error: unknown dtype 'f33'");
}

static void test_depth(void) {
  enum { LEVELS = 1100 };
  size_t room = LEVELS * 32 + 64;
  char *text = malloc(room), *at = text;
  if (!text) abort();
  at += snprintf(at, room, "host f(x : f32) -> (x) {\n");
  for (int i = 0; i < LEVELS; i++) at += snprintf(at, 24, "for i%d in 2 {", i);
  for (int i = 0; i < LEVELS; i++) *at++ = '}';
  (void)snprintf(at, 4, "\n}\n");
  expect_refused(text, 1, "blocks nest deeper than 1000 levels");
  free(text);
}

/* ---- the verifier ---- */
static void test_lifetimes(void) {
  const char *t = "  t : f32[n, m] = allocate()\n  t <- set(x)\n";
  char body[512];
#define BODY(rest) ((void)snprintf(body, sizeof body, "%s%s", t, rest), around(body))
  expect_verified(BODY("  deallocate(t)\n"));
  expect_broken(BODY("  deallocate(t)\n  y <- set(t)\n"), 1, "'t' is used, but it was deallocated");
  expect_broken(BODY("  deallocate(t)\n  deallocate(t)\n"), 1,
                "8:3: error: 't' is deallocated twice");
  expect_broken(BODY("  a = select(t, dim=0, index=0)\n  deallocate(t)\n  a <- exp(a)\n"), 2,
                "'a' is used, but its buffer 't' was deallocated before");
  expect_broken(BODY("  for i in n {\n    deallocate(t)\n  }\n"), 1,
                "'t' is allocated outside this loop");
  expect_verified(BODY("  for i in 1 {\n    deallocate(t)\n  }\n"));
  expect_broken(BODY("  if n == m {\n    deallocate(t)\n  }\n  y <- set(t)\n"), 1,
                "'t' is used, but it may have been deallocated before");
  expect_broken(BODY("  if n == m {\n    deallocate(t)\n  } else {\n    deallocate(t)\n  }\n"
                     "  deallocate(t)\n"),
                1, "'t' is deallocated twice");
  expect_verified(BODY("  if n == m {\n    y <- set(t)\n    deallocate(t)\n  } else {\n"
                       "    y <- exp(t)\n    deallocate(t)\n  }\n"));
  expect_broken(BODY("  a = select(t, dim=0, index=0)\n  deallocate(a)\n"), 1,
                "'a' is a slice; deallocate 't' instead");
#undef BODY
  expect_broken(around("  deallocate(x)\n"), 1, "'x' is a parameter");
  expect_broken(around("  deallocate(y)\n"), 1, "output 'y' is deallocated");
  expect_broken(around("  x <- set(y)\n"), 1, "'x' is memory of parameter 'x', which is only read");
  expect_broken("host f(x : f32[n]) -> () { }", 1, "host program 'f' returns nothing");
  expect_broken("host f(x : f32[n]) -> (y) { y : f32[n] = allocate() }", 1,
                "nothing is ever written to output 'y'");
  expect_broken("host f(x : f32[n]) -> (y) { y = select(x, dim=0, index=0) }", 1,
                "output 'y' is a slice");
}

static void test_types(void) {
  expect_broken(around("  y <- cast(x, bf16)\n"), 1, "cast gives bf16[n, m], but 'y' is f32[n, m]");
  expect_broken(around("  y <- sum(x)\n"), 1, "5:3: error: sum gives f32, but 'y' is f32[n, m]");
  expect_broken(around("  t : f32[3] = allocate()\n  t <- zeros([4])\n"), 1, "zeros gives f32[4]");
  expect_broken(around("  t : f32[n + 1, m] = allocate()\n  t <- set(x)\n"), 1,
                "set gives f32[n, m]");
  expect_verified(around("  t : f32[m, n] = allocate()\n  t <- set(x)\n")); /* n == m is possible */
  expect_verified(around("  t : f32[n + 1, m] = allocate()\n  t <- set(x) at [0, 0]\n"));
  expect_broken(around("  y <- and(x, x)\n"), 1, "and: needs bools or integers, not f32");
  expect_broken(around("  y <- add(1, 2)\n"), 1, "add: needs at least one tensor");
  expect_broken(around("  t : f32[4] = allocate()\n  a = select(t, dim=0, index=4)\n"), 1,
                "index 4 is out of range: 't' has 4 positions along dimension 0");
  expect_verified(around("  t : f32[1] = allocate()\n  a = select(t, dim=0, index=4)\n"));
  expect_broken(around("  a = shard(x, dim=0, index=3, parts=3)\n"), 1, "'x' has 3 pieces");
  expect_broken(around("  a = shard(x, dim=0, index=0 - 1, parts=3)\n"), 1, "index -1 is negative");
  expect_broken(
      around("  t : f32[7] = allocate()\n  a = shard(t, dim=0, index=0, chunks=[1, 2])\n"), 1,
      "the chunks add up to 3, but dimension 0 of 't' has 7 positions");
  expect_broken(around("  t : f32[4000000000, 4000000000] = allocate()\n"), 1,
                "its size in bytes does not fit 63 bits");
  expect_broken(around("  for i in 0 - 1 { }\n"), 1, "a loop cannot have -1 iterations");
  expect_broken(around("  set_stream(0 - 1)\n"), 1, "the index of a stream cannot be negative");
}

/* What no text can say: a lowering that went wrong. */
static void use_index_outside(ir_func *h) {
  ir_symbol_data symbol = {.kind = IR_SYMBOL_INDEX, .name = h->name};
  ir_scalar index = ir_scalar_symbol(&h->module->scalars, symbol);
  ir_instr_data d = {.kind = IR_SET_STREAM, .stream = {.index = index}};
  ir_block_add(h, &h->host->body, ir_host_instr(h, &d));
}

static void use_undefined(ir_func *h) {
  ir_tensor t = ir_host_tensor(h, h->name, IR_F32, NULL, 0, h->at);
  ir_instr_data d = {.kind = IR_DEALLOCATE, .tensor = t};
  ir_block_add(h, &h->host->body, ir_host_instr(h, &d));
}

static void use_unnamed_stream(ir_func *h) {
  ir_instr_data d = {.kind = IR_WAIT_STREAM, .stream = {.name = h->name}};
  ir_block_add(h, &h->host->body, ir_host_instr(h, &d));
}

static void slice_wrongly(ir_func *h) {
  ir_tensor t = ir_host_tensor(h, h->name, IR_F32, NULL, 0, h->at);
  ir_instr_data d = {.kind = IR_SELECT, .tensor = t, .from = h->inputs.data[0]};
  d.index = ir_scalar_const(&h->module->scalars, 0);
  ir_block_add(h, &h->host->body, ir_host_instr(h, &d));
}

static void name_twice(ir_func *h) {
  ir_instr_data d = {.kind = IR_CURRENT_STREAM};
  d.stream.name = ir_tensor_at(h, h->inputs.data[0])->name;
  ir_block_add(h, &h->host->body, ir_host_instr(h, &d));
}

static void test_built(void) {
  outcome o = {0};
  run_edited(&o, around(""), name_twice);
  EXPECT_CONTAINS(o.messages, "'x' names two things at once");
  run_edited(&o, around(""), use_index_outside);
  EXPECT_CONTAINS(o.messages, "loop index 'h' is used outside its loop");
  run_edited(&o, around(""), use_undefined);
  EXPECT_CONTAINS(o.messages, "'h' is used before it is defined");
  run_edited(&o, around(""), use_unnamed_stream);
  EXPECT_CONTAINS(o.messages, "stream 'h' is used before current_stream() named it");
  run_edited(&o, around(""), slice_wrongly);
  EXPECT_CONTAINS(o.messages, "'h' is f32, which is not such a slice of f32[n, m]");
  EXPECT(!o.verified);
  finish(&o);
}

/* ---- streams are joined ---- */
#define WORK(i)                                                                                    \
  "    a = select(y, dim=0, index=" #i ")\n    b = select(x, dim=0, index=" #i                     \
  ")\n    a <- exp(b)\n"

static void test_joined(void) {
  /* The three placements of the seeds: joins in the iteration, after the loop by residue, by index. */
  expect_verified(
      around("  for i in n {\n    set_stream(i % streams)\n    wait_stream(main)\n" WORK(
          i) "    set_stream(main)\n    wait_stream(i % streams)\n  }\n"));
  expect_verified(around("  for i in n {\n    set_stream(i % streams)\n" WORK(
      i) "  }\n  set_stream(main)\n  for j in n { wait_stream(j % streams) }\n"));
  expect_verified(around("  for i in n {\n    set_stream(i)\n" WORK(
      i) "  }\n  set_stream(main)\n  for j in n { wait_stream(j) }\n"));
  expect_verified(around("  for i in n {\n    set_stream(i % streams)\n" WORK(
      i) "  }\n  set_stream(main)\n  for j in streams { wait_stream(j) }\n"));
  expect_verified(around("  for i in 3 {\n    set_stream(i % streams)\n" WORK(
      i) "  }\n  set_stream(main)\n  for j in min(streams, 3) { wait_stream(j) }\n"));
  /* Nested loops with one number per iteration. */
  expect_verified(
      around("  for i in n {\n   for k in m {\n    set_stream((m * i + k) % streams)\n" WORK(
          i) "   }\n  }\n  set_stream(main)\n  for j in min(n * m, streams) { wait_stream(j) }\n"));
  expect_verified(around("  for i in n {\n   for k in m {\n    set_stream((i + m * k) / 2)\n" WORK(
      i) "   }\n  }\n  set_stream(main)\n  for p in n { for q in m { wait_stream((p + m * q) / 2) "
         "} "
         "}\n"));
  /* By hand; through another worker; a named worker. */
  expect_verified(around("  set_stream(1)\n" WORK(0) "  set_stream(main)\n  wait_stream(1)\n"));
  expect_verified(around("  set_stream(1)\n" WORK(0) "  set_stream(2)\n  wait_stream(1)\n"
                                                     "  set_stream(main)\n  wait_stream(2)\n"));
  expect_verified(around("  set_stream(1)\n  w = current_stream()\n" WORK(
      0) "  set_stream(main)\n  wait_stream(w)\n"));
  expect_verified(around(
      "  if n == m {\n  set_stream(1)\n" WORK(0) "  }\n  set_stream(main)\n  wait_stream(1)\n"));
  expect_verified(around("  for i in n { set_stream(i); wait_stream(main) }\n")); /* got no work */
}

static void test_unjoined(void) {
  const char *never = "is never joined: the stream the program was called on must wait for it";
  expect_broken(around("  set_stream(1)\n" WORK(0)), 1, "5:3: error: stream 1 is never joined");
  expect_broken(around("  set_stream(1)\n" WORK(0) "  set_stream(main)\n  wait_stream(2)\n"), 1,
                never);
  expect_broken(around("  set_stream(1)\n" WORK(0) "  wait_stream(1)\n"), 1, never);
  expect_broken(around("  wait_stream(1)\n  set_stream(1)\n" WORK(0)), 1, never);
  expect_broken(around("  set_stream(1)\n" WORK(0) "  set_stream(2)\n  wait_stream(1)\n"), 1,
                never);
  expect_broken(around("  for i in n {\n    set_stream(i % streams)\n" WORK(i) "  }\n"), 1,
                "stream i % streams is never joined");
  expect_broken(around("  for i in n {\n    set_stream(i % streams)\n" WORK(
                    i) "  }\n  set_stream(main)\n  for j in m { wait_stream(j) }\n"),
                1, never);
  expect_broken(around("  for i in n {\n    set_stream(i)\n" WORK(
                    i) "  }\n  set_stream(main)\n  for j in n - 1 { wait_stream(j) }\n"),
                1, never);
  expect_broken(around("  for i in n {\n    set_stream(2 * i)\n" WORK(
                    i) "  }\n  set_stream(main)\n  for j in n { wait_stream(j) }\n"),
                1, never);
  /* The second iteration works on the stream that the first one left. */
  expect_broken(around("  for i in n {\n" WORK(i) "    set_stream(1)\n  }\n"), 1, never);
}

/* ---- the notation of nvFuser ---- */
static void mark_streams(ir_func *h) {
  for (uint32_t i = 1; i < h->tensors.len; i++) {
    const ir_tensor_data *t = &h->tensors.data[i];
    bool slice = strchr(ir_tensor_name(h, (ir_tensor){i}), '$') != NULL;
    if (t->kind != IR_TENSOR_RESULT || slice || t->now.loop.len == 0) continue;
    ir_axis_at(h, t->now.loop.data[0])->mark.kind = IR_MARK_STREAM;
  }
}

static void test_nvfuser_loop(void) {
  outcome o = {0};
  run_edited(&o,
             "host single_set(t0 : f32[?, ?]) -> (t1) {\n"
             "  t1 : f32[t0.0, t0.1] = allocate()\n"
             "  for i in t0.0 {\n"
             "    main = current_stream()\n"
             "    set_stream(i % streams)\n"
             "    wait_stream(main)\n"
             "    t0$1 = select(t0, dim=0, index=i)\n"
             "    t1$1 = select(t1, dim=0, index=i)\n"
             "    t1$1 <- set(t0$1)\n"
             "    set_stream(main)\n"
             "    wait_stream(i % streams)\n"
             "  }\n"
             "}\n",
             mark_streams);
  EXPECT_STR(o.messages, "");
  EXPECT_STR(
      o.nvfuser,
      "%HostIrContainer { (T0_g_float[iS0{i0}, iS1{i1}]) -> (T1_g_float[iStreamIdx2{i0}, iS3{i1}]) "
      ":\n"
      "  T1_g_float[iStreamIdx2{i0}, iS3{i1}] = ALLOCATE(buffer=T1_g_float[iStreamIdx2{i0}, "
      "iS3{i1}], mem_type=global, size=( i0 * i1 ), zero_init=false, resets_to_zero=false)\n"
      "  FOR StreamIdx in iStreamIdx2{i0}:\n"
      "    GetCurrentStream into Stream 0\n"
      "    SetCurrentStream to Stream ( StreamIdx % numberOfStreams )\n"
      "    Synchronize Stream 0\n"
      "    T2_l_float[iS4{i1}]\n"
      "       = HirAliasSelect( T0_g_float[iS0{i0}, iS1{i1}], axis = iS0{i0}, index = StreamIdx )\n"
      "    T3_l_float[iS5{i1}]\n"
      "       = HirAliasSelect( T1_g_float[iStreamIdx2{i0}, iS3{i1}], axis = iStreamIdx2{i0}, "
      "index "
      "= StreamIdx )\n"
      "    T3_l_float[iS5{i1}]\n"
      "       = Set( T2_l_float[iS4{i1}], cache_op=Streaming )\n"
      "    SetCurrentStream to Stream 0\n"
      "    Synchronize Stream ( StreamIdx % numberOfStreams )\n"
      "} // %HostIrContainer\n");
  finish(&o);
}

static void test_nvfuser_steps(void) {
  outcome o = {0};
  run(&o, "host f(x : bf16[?, 1], w : bf16[8, 1], b : bf16[8]) -> (y) {\n"
          "  y : bf16[x.0, 8] = allocate()\n"
          "  for i in 3 {\n"
          "    x$1 = shard(x, dim=0, index=i, parts=3)\n"
          "    y$1 = shard(y, dim=0, index=i, parts=3)\n"
          "    y$1 <- linear(x$1, w, b)\n"
          "  }\n"
          "  z : bf16[x.0] = allocate()\n"
          "  z <- sum(y, dims=[1])\n"
          "  z <- slice(z, starts=[0], stops=[x.0])\n"
          "  z <- select(y, dim=-1, index=2)\n"
          "  y <- y * 2.5\n"
          "  y <- max(y, y)\n"
          "  y <- broadcast(z, [false, true])\n"
          "  y <- gelu(y)\n"
          "  if x.0 == 0 {\n"
          "    y <- matmul(x, y)\n"
          "  } else {\n"
          "    deallocate(z)\n"
          "  }\n"
          "}\n");
  EXPECT(o.parsed);
  const char *const parts[] = {
      "(T0_g___bfloat[iS0{i0}, bS1{1}], T1_g___bfloat[iS2{8}, bS3{1}], T2_g___bfloat[iS4{8}])",
      "  FOR i1 from 0 to 3:\n    T4_l___bfloat[iS7{( ceilDiv(i0, 3) )}, bS8{1}] = ",
      "] = ShardByStream(T0_g___bfloat[iS0{i0}, bS1{1}], stream_index = i1)\n",
      "       = linear(T4_l___bfloat[",
      ",\n                T1_g___bfloat[iS2{8}, bS3{1}],\n                T2_g___bfloat[iS4{8}])\n",
      "     = reduction( T3_g___bfloat[iS5{i0}, iS6{8}], op = add, initial value = __bfloat(0), "
      "allreduce = false )\n",
      "     = slice( T6_g___bfloat[iS11{i0}], { {0, i0, 1} } )\n",
      "     = select( T3_g___bfloat[iS5{i0}, iS6{8}], axis = iS6{8}, index = 2 )\n",
      "  T3_g___bfloat[iS5{i0}, iS6{8}]\n     = T3_g___bfloat[iS5{i0}, iS6{8}]\n     * "
      "double(2.5);\n",
      "     = fmax(T3_g___bfloat[iS5{i0}, iS6{8}],\n",
      "  PostOnStream (HostUnit0, Inputs:{T6_g___bfloat[iS11{i0}], }, "
      "Outputs:{T3_g___bfloat[iS5{i0}, iS6{8}], })\n",
      "  PostOnStream (HostUnit1, Inputs:{T3_g___bfloat[iS5{i0}, iS6{8}], }, Outputs:",
      "  IF Manual ( i0 == 0 ):\n    T3_g___bfloat[iS5{i0}, iS6{8}]\n       = matmul(",
      "  ELSE:\n    Deallocate {\n      T6_g___bfloat[iS11{i0}]\n    }\n",
      "\nHostUnit0: Inputs={T6_g___bfloat[iS11{i0}], } -> Outputs={T3_g___bfloat[iS5{i0}, iS6{8}], "
      "}Inputs:\n  T6_g___bfloat[iS11{i0}]\nOutputs:\n  T3_g___bfloat[iS5{i0}, iS6{8}]\n\n"
      "%kernel {\nT3_g___bfloat[iS5{i0}, iS6{8}]\n   = broadcast( T6_g___bfloat[iS11{i0}], flags = "
      "{false, true} )\n} // %kernel\n",
  };
  for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) EXPECT_CONTAINS(o.nvfuser, parts[i]);
  finish(&o);
}

static void place_on_mesh(ir_func *h) {
  uint32_t name = strings_intern(&h->module->names, "d", 1);
  int64_t shape[] = {2, 2};
  ir_mesh mesh = ir_build_mesh(h, name, shape, 2, NULL, 0, h->at);
  ir_tensor x = h->inputs.data[0];
  ir_tensor_at(h, x)->mesh = mesh;
  ir_axes loop = ir_tensor_at(h, x)->now.loop;
  ir_axis_at(h, loop.data[0])->mark = (ir_mark){.kind = IR_MARK_MESH, .mesh_axis = 1};
  ir_axis_at(h, loop.data[1])->mark = (ir_mark){.kind = IR_MARK_MESH, .mesh_axis = 0};
  ir_axis_at(h, loop.data[2])->kind = IR_AXIS_REDUCTION;
  ir_axis_at(h, loop.data[2])->rfactor = true;
  ir_axis_at(h, loop.data[3])->expanded = ir_axis_at(h, loop.data[2])->extent;
}

static void test_nvfuser_axes(void) {
  outcome o = {0};
  run_edited(&o, "host f(x : f32[2, 2, n, 1]) -> (x) { }", place_on_mesh);
  EXPECT_CONTAINS(o.nvfuser, "(T0_g_float[ideviceIdx.y0{2}, ideviceIdx.x1{2}, rS2{i0}rf, bS3{1 ex "
                             "i0}] (DeviceMesh{{0 1}{2 3}})) -> (T0_g_float");
  finish(&o);
}

int main(void) {
  test_round_trips();
  test_operations();
  test_windows();
  test_free_forms();
  test_modules();
  test_syntax();
  test_bad_names();
  test_bad_steps();
  test_recovery();
  test_depth();
  test_lifetimes();
  test_types();
  test_built();
  test_joined();
  test_unjoined();
  test_nvfuser_loop();
  test_nvfuser_steps();
  test_nvfuser_axes();
  return test_finish();
}
