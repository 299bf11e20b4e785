/* Every kind x dtype x reduction x team size, over shuffled teams, as one program for all ranks. */
#ifndef WEIR_TESTS_CONFORM_COMM_MATRIX_H
#define WEIR_TESTS_CONFORM_COMM_MATRIX_H

#include "conform/comm_kit.h"

typedef struct matrix {
  kit_step *steps;
  uint32_t n, cap, reps;
} matrix;

static void matrix_add(matrix *m, kit_step s, uint32_t team_size) {
  static const int64_t counts[] = {0, 1, 37, SANITIZED ? 131 : 1021};
  s.key = random_mix(m->n + 1);
  kit_team(&s, team_size, s.key % 24); /* teams come again */
  s.root = (uint32_t)(s.key >> 8) % team_size;
  if (s.count == 0) s.count = counts[(s.key >> 16) % 4];
  s.in_place = s.key >> 24 & 1;
  if (m->n == m->cap) {
    m->cap = m->cap ? 2 * m->cap : 64;
    m->steps = realloc(m->steps, m->cap * sizeof *m->steps);
    if (!m->steps) abort();
  }
  m->steps[m->n++] = s;
}

static void matrix_add_ops(matrix *m, ir_comm_kind kind, ir_dtype dtype, int64_t count,
                           uint32_t team_size) {
  for (unsigned op = 0; op < IR_COMBINE_COUNT; op++) {
    kit_step s = {.kind = kind, .dtype = dtype, .count = count, .op = (ir_combine)op};
    if (ir_combine_allows(s.op, dtype)) matrix_add(m, s, team_size);
    if (!ir_comm_combines(kind)) break;
  }
}

static matrix matrix_make(void) {
  matrix m = {0};
  for (unsigned kind = 0; kind <= IR_COMM_ALL_TO_ALL; kind++)
    for (unsigned dtype = 1; dtype < IR_DTYPE_COUNT; dtype++)
      for (uint32_t n = 1; n <= kit_ranks; n++)
        matrix_add_ops(&m, (ir_comm_kind)kind, (ir_dtype)dtype, 0, n);
  return m;
}

/* Several chunks. */
static matrix matrix_make_large(void) {
  static const ir_dtype dtypes[] = {IR_F32, IR_BF16, IR_I8};
  matrix m = {0};
  for (unsigned kind = 0; kind <= IR_COMM_ALL_TO_ALL; kind++)
    for (unsigned d = 0; d < 3; d++)
      for (uint32_t n = 2; n <= kit_ranks && n <= 5; n += kit_ranks < 5 ? 1 : 3) {
        kit_step s = {.kind = (ir_comm_kind)kind, .dtype = dtypes[d]};
        s.count = d == 0 && !SANITIZED ? 200003 : 70001;
        matrix_add(&m, s, n);
      }
  return m;
}

/* Twice the size of common caches, which is where stores go past them. */
static matrix matrix_make_huge(void) {
  matrix m = {0};
  for (unsigned kind = 0; kind <= IR_COMM_ALL_TO_ALL; kind++) {
    kit_step s = {.kind = (ir_comm_kind)kind, .dtype = IR_F64, .count = 3145739};
    if (SANITIZED || !kit_in_process) s.count = 20011;
    matrix_add(&m, s, 2);
  }
  return m;
}

/* Repetitions over the same buffers, with a wait in between. */
static void matrix_step(rt_comm *comm, const kit_step *s, uint32_t reps) {
  int32_t p = kit_position(s, comm->rank);
  if (p < 0) return;
  kit_part part;
  kit_part_make(&part, s, (uint32_t)p);
  for (uint32_t rep = 0; rep < reps; rep++) {
    kit_part_fill(&part, rep);
    if (kit_part_post(&part, comm) != STATUS_OK) kit_wrong("post failed", comm->rank, rep);
    else kit_wait(comm, &part.ticket);
    kit_part_check(&part, comm->rank);
  }
  kit_part_free(&part);
}

static void matrix_body(rt_comm *comm, void *context) {
  const matrix *m = context;
  for (uint32_t i = 0; i < m->n; i++) matrix_step(comm, &m->steps[i], m->reps);
}

/* The same with up to WINDOW steps in flight, which end in another order than they began. */
static void matrix_body_window(rt_comm *comm, void *context) {
  enum { WINDOW = 6 };
  const matrix *m = context;
  kit_part parts[WINDOW] = {0};
  for (uint32_t i = 0; i < m->n + WINDOW; i++) {
    kit_part *t = &parts[random_bits(comm->rank, i) % WINDOW];
    if (i >= m->n) t = &parts[i % WINDOW];
    if (t->step) {
      kit_wait(comm, &t->ticket);
      kit_part_check(t, comm->rank);
      kit_part_free(t);
      t->step = NULL;
    }
    int32_t p = i < m->n ? kit_position(&m->steps[i], comm->rank) : -1;
    if (p < 0) continue;
    kit_part_make(t, &m->steps[i], (uint32_t)p);
    kit_part_fill(t, i);
    if (kit_part_post(t, comm) != STATUS_OK) kit_wrong("post failed", comm->rank, i);
  }
}

#endif
