/* What the pool of a program takes over the most bytes of values that are in use at once, in the
 * order of its plan: transformer blocks and training steps, forward and backward, as they are
 * marked. At most 1.05 is wanted; above that it fails. The last column is the pool of what
 * `--pipeline auto` chooses over that: where it slices products, slices on several streams are in
 * use at the same time, whatever the order of the plan. */
#include <stdio.h>
#include <weir/weir.h>

typedef struct program {
  const char *file, *fusion;
  const char *extents[3];
} program;

static const program programs[] = {
    {"examples/transformer_forward.weir", "tensor_parallel", {"b=8", "s=512"}},
    {"examples/transformer_forward.weir", "sequence_parallel", {"b=8", "s=512"}},
    {"examples/transformer_backward.weir", "tensor_parallel", {"b=8", "s=512"}},
    {"examples/transformer_backward.weir", "sequence_parallel", {"b=8", "s=512"}},
    {"examples/training_steps.weir", "fsdp", {"b=512", "h=1024"}},
    {"examples/training_steps.weir", "data_parallel", {"b=512", "h=1024"}},
    {"examples/training_steps.weir", "tensor_parallel", {"b=512", "h=1024", "f=2048"}},
};

static weir_status bind(weir_fusion *f, const program *p, const char *pipeline,
                        weir_memory *result) {
  weir_options *o = NULL;
  weir_program *compiled = NULL;
  weir_shapes *s = NULL;
  weir_status st = weir_options_create(&o);
  if (st == WEIR_OK) st = weir_options_set(o, "device", "null");
  if (st == WEIR_OK) st = weir_options_set(o, "pipeline", pipeline);
  if (st == WEIR_OK) st = weir_compile(f, o, NULL, &compiled);
  if (st == WEIR_OK) st = weir_shapes_create(f, &s);
  for (int i = 0; i < 3 && p->extents[i] && st == WEIR_OK; i++)
    st = weir_shapes_define(s, p->extents[i]);
  if (st == WEIR_OK) st = weir_shapes_complete(s);
  if (st == WEIR_OK) st = weir_program_memory(compiled, s, result, NULL);
  weir_shapes_destroy(s);
  weir_program_destroy(compiled);
  weir_options_destroy(o);
  return st;
}

static weir_status measure(const program *p, weir_memory *marked, weir_memory *chosen) {
  weir_module *m = NULL;
  weir_fusion *f = NULL;
  weir_status st = weir_module_load(p->file, NULL, &m);
  if (st == WEIR_OK) st = weir_module_find(m, p->fusion, &f);
  if (st == WEIR_OK) st = bind(f, p, "marked", marked);
  if (st == WEIR_OK) st = bind(f, p, "auto", chosen);
  weir_module_destroy(m);
  return st;
}

int main(void) {
  int failed = 0;
  (void)printf("%-36s %-18s %12s %12s %6s %6s\n", "program", "", "pool", "in use", "ratio", "auto");
  for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) {
    const program *p = &programs[i];
    weir_memory m = {.struct_size = sizeof m}, chosen = m;
    if (measure(p, &m, &chosen) != WEIR_OK) {
      (void)fprintf(stderr, "%s %s: %s\n", p->file, p->fusion, weir_error());
      return 1;
    }
    double ratio = m.live_bytes ? (double)m.pool_bytes / (double)m.live_bytes : 1;
    double grown = m.pool_bytes ? (double)chosen.pool_bytes / (double)m.pool_bytes : 1;
    (void)printf("%-36s %-18s %12lld %12lld %6.3f %6.3f\n", p->file, p->fusion,
                 (long long)m.pool_bytes, (long long)m.live_bytes, ratio, grown);
    failed += ratio > 1.05;
  }
  return failed > 0;
}
