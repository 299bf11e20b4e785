/* The second half of a scatter, after the copy. Only positions of one line along the indexed axis can
 * have the same target. So one thread goes along each line in order, and the later write wins. */
#include <stdlib.h>

#include "codegen/internal.h"

enum { BLOCK = 128 };

static const char body[] = "  const ix line = (ix)blockIdx.x * $T + (ix)threadIdx.x;\n"
                           "  if (line >= $lines) return;\n"
                           "  ix oi = 0, oy = 0, os = 0;\n"
                           "$offsets"
                           "  for (ix j = 0; j < $length; j++) {\n"
                           "    const long long i = $get(((const $I *)p.at[$i])[oi + j * $is]);\n"
                           "    if (!weir_inside(i, n.at[$n], p.at[$error])) continue;\n"
                           "    const long long to = i$next;\n"
                           "    if (to < n.at[$low] || to >= n.at[$end]) continue;\n"
                           "    (($S *)p.at[$y])[oy + (ix)(to - n.at[$low]) * $ys] = ((const $S "
                           "*)p.at[$s])[os + j * $ss];\n"
                           "  }\n";

static const char add_body[] =
    "  const ix item = (ix)blockIdx.x * $T + (ix)threadIdx.x;\n"
    "  if (item >= $lines * $window) return;\n"
    "  const ix line = item / $window, to = item - line * $window;\n"
    "  ix oi = 0, oy = 0, os = 0;\n"
    "$offsets"
    "  $S *y = ($S *)p.at[$y] + oy + to * $ys;\n"
    "  $A sum = ($A)$load(*y);\n"
    "  for (ix j = 0; j < $length; j++) {\n"
    "    const long long i = $get(((const $I *)p.at[$i])[oi + j * $is]);\n"
    "    if (!weir_inside(i, n.at[$n], p.at[$error])) continue;\n"
    "    if (i == n.at[$low] + to) sum += ($A)$load(((const $S *)p.at[$s])[os + j * $ss]);\n"
    "  }\n"
    "  *y = $of(($V)sum);\n";

static void set_adding(cg_writer *w, const cg_scatter *s) {
  ir_dtype t = s->result.dtype;
  bool is_float = ir_dtype_is_float(t);
  cg_set_number(w, "window", s->end - s->low);
  cg_set(w, "A", is_float ? "double" : "unsigned long long");
  cg_set(w, "V", is_float ? "double" : "long long");
  cg_set(w, "S", cg_storage(t));
  cg_set(w, "load", cg_get(w, t));
  cg_set(w, "of", cg_of(w, t, is_float ? IR_F64 : IR_I64));
}

void cg_write_scatter(cg_kernel *k, const cg_scatter *s) {
  cg_writer w;
  cg_space lines;
  const cg_view *views[] = {&s->index, &s->result, &s->source};
  const char *names[] = {"oi", "oy", "os"};
  cg_space_make(&lines, s->extents, 0, s->rank, views, 3, true);
  int64_t count = cg_space_count(&lines);
  int64_t reach = cg_space_reach(&lines) + (s->end - s->low) * llabs(s->result_step) +
                  s->length * (llabs(s->index_step) + llabs(s->source_step)) +
                  count * (s->adds ? s->end - s->low : 0);
  cg_begin(&w, k->memory, reach > CG_NARROW_REACH, BLOCK);
  cg_set_offsets(&w, &lines, "line", names);
  const char *storage = cg_storage(cg_bits(s->result.dtype));
  cg_set_int(&w, "T", BLOCK);
  cg_set_number(&w, "lines", count);
  cg_set_number(&w, "length", s->length);
  cg_set(&w, "get", cg_get(&w, s->index.dtype));
  cg_set(&w, "I", cg_storage(s->index.dtype));
  cg_set_address(&w, "i", &s->index);
  cg_set_number(&w, "is", s->index_step);
  cg_set_place(&w, "n", s->runs ? s->positions : s->n);
  cg_set(&w, "next", s->runs ? " + j" : "");
  cg_set_int(&w, "error", cg_error_address(&w));
  cg_set_place(&w, "low", s->low);
  cg_set_place(&w, "end", s->end);
  cg_set(&w, "S", storage);
  cg_set_address(&w, "y", &s->result);
  cg_set_number(&w, "ys", s->result_step);
  cg_set_address(&w, "s", &s->source);
  cg_set_number(&w, "ss", s->source_step);
  if (s->adds) set_adding(&w, s);
  cg_put(&w, s->adds ? add_body : body);
  int64_t items = s->adds ? count * (s->end - s->low) : count;
  cg_end(&w, k, s->runs ? "update" : "scatter", cg_ceildiv(items, BLOCK), 1);
}
