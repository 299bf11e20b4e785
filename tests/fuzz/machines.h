/* The devices on which a thread runs random programs, and the extents of those. */
#ifndef WEIR_TESTS_FUZZ_MACHINES_H
#define WEIR_TESTS_FUZZ_MACHINES_H

#include "gen.h"
#include "stream_kit.h"

static _Thread_local rt_device *one_thread, *two_threads, *hostile;
static _Thread_local rt_device *gpu[2]; /* with --cuda, opened in two ways */

/* `ways`: of the GPU; NULL: it is not asked for. False: something is not there, which is said. */
static inline bool machines_open(const rt_device_options *ways) {
  one_thread = kit_device(1, false);
  two_threads = kit_device(2, false);
  hostile = kit_device(1, true);
  gpu[0] = ways ? kit_gpu(ways[0]) : NULL;
  gpu[1] = gpu[0] ? kit_gpu(ways[1]) : NULL;
  if (one_thread && two_threads && hostile && (!ways || gpu[1])) return true;
  fprintf(stderr, "%s\n", kit_reason);
  return false;
}

static inline void machines_close(void) {
  rt_device *cpu[] = {one_thread, two_threads, hostile};
  for (int i = 0; i < 3; i++)
    if (cpu[i]) cpu[i]->ops->close(cpu[i]);
  for (int i = 0; i < 2; i++) rt_device_cuda.close(gpu[i]);
}

/* Every second program is lowered for the extents that it is run with. */
static inline void expect_extents(subject *s) {
  ir_module *m = s->func->module;
  for (uint32_t i = 0; i < s->env.len && s->func->order.len % 2; i++)
    vec_push(&m->memory, &m->expected, s->env.symbols[i]);
}

/* Inputs and outputs of a random program, with the extents that its generator chose. */
static inline bool bind_program(subject *s, const gen_program *p) {
  ir_env_init(&s->env, s->func, &s->memory);
  for (uint32_t i = 0; i < p->n_inputs; i++) {
    const gen_value *v = &p->inputs[i];
    if (!ir_bind_shape(&s->env, s->func->inputs.data[i], v->extents, v->rank, v->name))
      return kit_refused(s, "bind");
  }
  expect_extents(s);
  return subject_values(s);
}

#endif
