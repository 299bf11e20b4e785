/* The programs of test_checker_strength: seeds and others written by hand, random ones, and host
 * programs with a bug in them. Sums are of floats, so that even the order of additions shows in the bits. */
#ifndef WEIR_TESTS_CONFORM_STRENGTH_PROGRAMS_H
#define WEIR_TESTS_CONFORM_STRENGTH_PROGRAMS_H

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>

#include "base/random.h"

typedef struct strength_program {
  const char *text, *shapes;
} strength_program;

static const strength_program strength_programs[] = {
    {"fusion single_set {\n  t0 : f32[?, ?]\n  t1 = set(t0)\n  return t1\n"
     "  schedule { t1[0] = stream }\n}\n",
     "5x3"},
    {"fusion two_sets {\n  t0 : f32[?, ?]\n  t1 = set(t0)\n  t2 = set(t1)\n  return t2\n"
     "  schedule { t1[0] = stream; t2[0] = stream }\n}\n",
     "5x3"},
    {"fusion three_sets {\n  t0 : f32[?, ?]\n  t1 = set(t0)\n  t2 = set(t1)\n  t3 = set(t2)\n"
     "  return t3\n"
     "  schedule { t1[0] = stream; t2[0] = serial; t3[0] = stream }\n}\n",
     "5x3"},
    {"fusion reduction {\n  t0 : f32[?, ?, ?]\n  t1 = sum(t0, dims=[2])\n  return t1\n"
     "  schedule { t1[0] = stream }\n}\n",
     "5x3x4"},
    /* Loops that depend on one another: rows, columns, rows. */
    {"fusion turns {\n  x : f32[n, m]\n  a = x + 1\n  b = a * 3\n  c = b + x\n  return c\n"
     "  schedule { a[0] = stream; b[1] = stream; c[0] = stream }\n}\n",
     "4x5"},
    {"fusion shared {\n  x : f32[n, m]\n  a = x + 1\n  b = a * 3\n  c = b + a\n  d = c - x\n"
     "  return c, d\n"
     "  schedule { a[0] = stream; b[0] = stream; c[0] = stream; d[0] = stream }\n}\n",
     "6x3"},
    /* Iterations add up, in order. */
    {"fusion reduced {\n  x : f32[n, m]\n  a = sum(x, dims=[0])\n  b = a * 3\n  return b\n"
     "  schedule { a[0] = stream }\n}\n",
     "5x16"},
    {"fusion reduced_matmul {\n  x : f32[n, k]\n  y : f32[k, m]\n  a = matmul(x, y)\n  b = a + 1\n"
     "  return b\n  schedule { a.outer_split(2, 3); a[2] = stream; b[0] = stream }\n}\n",
     "4x7 7x3"},
    {"fusion nested {\n  x : f32[n, m, k]\n  a = x * 3\n  b = a + x\n  return b\n"
     "  schedule { a[0] = stream; a[1] = stream; b[0] = stream; b[1] = stream }\n}\n",
     "4x3x2"},
    /* Buffers of the first loop are free when the third one starts. */
    {"fusion reuse {\n  x : f32[n, m]\n  a = x + 1\n  b = transpose(a)\n  c = b * 3\n"
     "  d = transpose(c)\n  e = d + x\n  f = transpose(e)\n  return f\n"
     "  schedule { a[0] = stream; b[0] = stream; c[1] = stream; d[0] = stream; e[1] = stream\n"
     "             f[0] = stream }\n}\n",
     "5x4"},
    {"fusion chunks {\n  x : f32[n, m]\n  a = x + 1\n  b = a * 3\n  return b\n"
     "  schedule { a.split(0, 2); a[0] = stream; b.outer_split(0, [1, 4, 2]); b[0] = stream }\n}\n",
     "7x3"},
    /* By hand: a pipeline over two streams, two buffers in turn. */
    {"fusion pipeline {\n  x : f32[8, 4]\n  y = x * 3\n  z = y + 1\n  return z\n}\n"
     "host pipeline(x : f32[8, 4]) -> (z) {\n"
     "  z : f32[8, 4] = allocate()\n"
     "  ring : f32[2, 4] = allocate()\n"
     "  main = current_stream()\n"
     "  set_stream(0)\n  wait_stream(main)\n  set_stream(1)\n  wait_stream(main)\n"
     "  for i in 8 {\n"
     "    x$1 = select(x, dim=0, index=i)\n"
     "    z$1 = select(z, dim=0, index=i)\n"
     "    r = select(ring, dim=0, index=i % 2)\n"
     "    set_stream(0)\n"
     "    if 1 < i {\n      wait_stream(1)\n    }\n"
     "    r <- x$1 * 3\n"
     "    set_stream(1)\n"
     "    wait_stream(0)\n"
     "    z$1 <- r + 1\n"
     "  }\n"
     "  set_stream(main)\n  wait_stream(0)\n  wait_stream(1)\n"
     "}\n",
     "8x4"},
    {NULL, NULL},
};

/* ---- random programs ---- */
/* Square f32 matrices; every value is used, and no operation loses what it reads. */
static const char strength_random_shapes[] = "5x5 5x5";

typedef struct strength_text {
  char *data;
  size_t len, size;
  uint64_t seed, draws;
} strength_text;

__attribute__((format(printf, 2, 3))) static inline void strength_add(strength_text *t,
                                                                      const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  int n = vsnprintf(t->data + t->len, t->size - t->len, fmt, args);
  va_end(args);
  if (n > 0 && t->len + (size_t)n < t->size) t->len += (size_t)n;
}

static inline uint32_t strength_below(strength_text *t, uint32_t n) {
  return (uint32_t)(random_bits(t->seed, t->draws++) % n);
}

/* A statement for y<i> of earlier values a and b; how many loop axes its result has. No two
 * intermediates are equal: one that takes the place of the other too early must show. */
static inline uint32_t strength_statement(strength_text *t, uint32_t i, const char *a,
                                          const char *b) {
  switch (strength_below(t, 8)) {
  case 0: strength_add(t, "  y%u = matmul(%s, %s)\n", i, a, b); return 3;
  case 1: strength_add(t, "  y%u = transpose(%s) + %s\n", i, a, b); return 2;
  case 2: strength_add(t, "  y%u = %s + sum(%s * %u.5, dims=[0])\n", i, a, b, i); return 2;
  case 3: strength_add(t, "  y%u = set(%s) + %s * %u.5\n", i, a, b, i); return 2;
  default: strength_add(t, "  y%u = %s + %s * %u.5\n", i, a, b, i); return 2;
  }
}

static inline void strength_marks(strength_text *t, uint32_t i, uint32_t axes) {
  uint32_t kind = strength_below(t, 8), axis = strength_below(t, axes);
  if (kind == 0) return;
  if (kind == 1) strength_add(t, "    y%u.outer_split(%u, 2)\n", i, axis);
  if (kind == 2) strength_add(t, "    y%u.split(%u, 2)\n", i, axis);
  if (kind == 3) strength_add(t, "    y%u.outer_split(%u, [1, 3, 1])\n", i, axis);
  if (kind > 5) axis = 0; /* loops that meet */
  strength_add(t, "    y%u[%u] = stream\n", i, axis);
  if (kind == 4) strength_add(t, "    y%u[%u] = stream\n", i, (axis + 1) % axes);
}

static inline void strength_random(uint64_t seed, char *text, size_t size) {
  strength_text t = {.data = text, .size = size, .seed = seed};
  uint32_t n = 2 + strength_below(&t, 6), axes[8];
  strength_add(&t, "fusion random {\n  x0 : f32[n, m]\n  x1 : f32[m, n]\n");
  for (uint32_t i = 0; i < n; i++) {
    char a[8] = "x0", b[8] = "x1";
    uint32_t k = i ? strength_below(&t, i) : 0;
    if (i) snprintf(a, sizeof a, "y%u", i - 1);
    if (i && k < i - 1) snprintf(b, sizeof b, "y%u", k);
    axes[i] = strength_statement(&t, i, a, b);
  }
  strength_add(&t, "  return y%u", n - 1);
  if (n > 2) strength_add(&t, ", y%u", strength_below(&t, n - 1));
  strength_add(&t, "\n  schedule {\n");
  for (uint32_t i = 0; i < n; i++) strength_marks(&t, i, axes[i]);
  strength_add(&t, "  }\n}\n");
}

/* ---- planted bugs ---- */
typedef struct planted_bug {
  const char *what; /* the class, and where it happened */
  const char *text;
  const char *says[3];
} planted_bug;

#define HOST(body) "host bug(x : i64[4, 3]) -> (y) {\n" body "}\n"
#define WORKERS                                                                                    \
  "  main = current_stream()\n"                                                                    \
  "  for i in min(4, streams) {\n    set_stream(i)\n    wait_stream(main)\n  }\n"
#define JOIN "  set_stream(main)\n  for i in min(4, streams) {\n    wait_stream(i)\n  }\n"
#define TWO                                                                                        \
  "  main = current_stream()\n"                                                                    \
  "  for i in 2 {\n    set_stream(i)\n    wait_stream(main)\n  }\n"
#define JOIN_TWO "  set_stream(main)\n  wait_stream(0)\n  wait_stream(1)\n"
#define ROWS                                                                                       \
  "  for i in 4 {\n    set_stream(i % streams)\n"                                                  \
  "    t$1 = select(t, dim=0, index=i)\n    y$1 = select(y, dim=0, index=i)\n"                     \
  "    y$1 <- set(t$1)\n  }\n"

static const planted_bug planted_bugs[] = {
    {"workers start before main's inputs are ready (nvFuser #3896, #3913)",
     HOST("  y : i64[4, 3] = allocate()\n  t : i64[4, 3] = allocate()\n  t <- x + 1\n"
          "  main = current_stream()\n" ROWS JOIN),
     {"stream 0 reads t, and nothing orders it after the write on stream main",
      "instruction 0 on stream main: t <- add(x, 1)",
      "instruction 1 on stream 0: y$1 <- set(t$1)"}},
    {"a wait in the loop that serialises it (nvFuser #4217)",
     HOST("  y : i64[4, 3] = allocate()\n" WORKERS
          "  for i in 4 {\n    set_stream(i % streams)\n    wait_stream((i + 3) % streams)\n"
          "    x$1 = select(x, dim=0, index=i)\n    y$1 = select(y, dim=0, index=i)\n"
          "    y$1 <- set(x$1)\n  }\n" JOIN),
     {"redundant wait", "stream 1 waits for stream 0", "and no later access needs that"}},
    {"a stream that is not joined (TransformerEngine PR 811)",
     HOST("  y : i64[4, 3] = allocate()\n  main = current_stream()\n"
          "  set_stream(0)\n  wait_stream(main)\n  y <- x + 1\n  set_stream(main)\n"),
     {"stream 0 is never joined", "before the end"}},
    {"all streams but one are joined",
     HOST("  y : i64[4, 3] = allocate()\n  t : i64[4, 3] = allocate()\n  t <- x + 1\n" WORKERS ROWS
          "  set_stream(main)\n  for i in min(3, streams) {\n    wait_stream(i)\n  }\n"),
     {"never joined"}},
    {"joined before the work, not after it",
     HOST("  y : i64[4, 3] = allocate()\n  main = current_stream()\n  set_stream(main)\n"
          "  wait_stream(0)\n  set_stream(0)\n  y <- x + 1\n  set_stream(main)\n"),
     {"stream 0 is never joined"}},
    {"a dependency between workers that nothing states (nvFuser #3120)",
     HOST("  y : i64[4, 3] = allocate()\n  t : i64[4, 3] = allocate()\n" TWO
          "  set_stream(0)\n  t <- x + 1\n  set_stream(1)\n  y <- t * 2\n" JOIN_TWO),
     {"stream 1 reads t, and nothing orders it after the write on stream 0",
      "instruction 2 on stream 0: t <- add(x, 1)", "instruction 3 on stream 1: y <- mul(t, 2)"}},
    {"a buffer overwritten while another stream reads it",
     HOST("  y : i64[4, 3] = allocate()\n  z : i64[4, 3] = allocate()\n"
          "  t : i64[4, 3] = allocate()\n" TWO
          "  set_stream(0)\n  t <- x + 1\n  set_stream(1)\n  wait_stream(0)\n  y <- t * 2\n"
          "  set_stream(0)\n  t <- x + 5\n  z <- set(t)\n" JOIN_TWO),
     {"stream 0 writes t, and nothing orders it after the read on stream 1",
      "on stream 1: y <- mul(t, 2)", "on stream 0: t <- add(x, 5)"}},
    {"two streams write one place",
     HOST("  y : i64[4, 3] = allocate()\n" TWO
          "  set_stream(0)\n  y <- x + 1\n  set_stream(1)\n  y <- x + 2\n" JOIN_TWO),
     {"stream 1 writes y, and nothing orders it after the write on stream 0",
      "on stream 0: y <- add(x, 1)", "on stream 1: y <- add(x, 2)"}},
    {"a sum whose iterations do not wait for one another",
     HOST("  y : i64[3] = allocate()\n" WORKERS
          "  for i in 4 {\n    set_stream(i % streams)\n    x$1 = select(x, dim=0, index=i)\n"
          "    if i == 0 {\n      y <- set(x$1)\n    } else {\n      y <- y + x$1\n    }\n  "
          "}\n" JOIN),
     {"nothing orders it after the write on stream 0", "on stream 0: y <- set(x$1)",
      "on stream 1: y <- add(y, x$1)"}},
    {"memory read before it is written",
     HOST("  y : i64[4, 3] = allocate()\n  t : i64[4, 3] = allocate()\n  y <- set(t)\n"
          "  t <- x + 1\n"),
     {"t is read before all that is read of it was written", "instruction 0 on stream main"}},
    {"an iteration too few",
     HOST("  y : i64[4, 3] = allocate()\n" WORKERS
          "  for i in 3 {\n    set_stream(i % streams)\n    x$1 = select(x, dim=0, index=i)\n"
          "    y$1 = select(y, dim=0, index=i)\n    y$1 <- set(x$1)\n  }\n" JOIN),
     {"the output y is not written completely", "bytes 72..96"}},
    {"use after deallocate",
     HOST("  y : i64[4, 3] = allocate()\n  t : i64[4, 3] = allocate()\n  t <- x + 1\n"
          "  deallocate(t)\n  y <- set(t)\n"),
     {"'t' is used, but it was deallocated before"}},
    {"deallocated twice",
     HOST(
         "  y : i64[4, 3] = allocate()\n  t : i64[4, 3] = allocate()\n  t <- x + 1\n  y <- set(t)\n"
         "  deallocate(t)\n  deallocate(t)\n"),
     {"'t' is deallocated twice"}},
    {"deallocated in a loop that does not own it",
     HOST(
         "  y : i64[4, 3] = allocate()\n  t : i64[4, 3] = allocate()\n  t <- x + 1\n  y <- set(t)\n"
         "  for i in 4 {\n    deallocate(t)\n  }\n"),
     {"'t' is allocated outside this loop"}},
    {"an operation that overwrites what it reads",
     "host bug(x : i64[3, 3]) -> (y) {\n  y : i64[3, 3] = allocate()\n  y <- x + 1\n"
     "  y <- transpose(y)\n}\n",
     {"the result overwrites y while the operation still reads it", "y <- transpose(y)"}},
    {NULL, NULL, {NULL}},
};

#endif
