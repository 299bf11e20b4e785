/* Maps: each element of the result is computed from the elements of sources at the same position.
 *
 * A thread computes some items, each of V neighbouring elements of the last dimension. It loads all of
 * them first, so that the loads are under way together, then computes and stores:
 *
 *   for each of U items:  position, offsets of all views, loads
 *   for each of U items:  V times the steps, one store
 *
 * Views that are dense along the last dimension are loaded V elements at a time, those that repeat
 * there once. Indexed and reshaped sources are loaded one by one while computing, except that rows
 * found by an index that repeats along them are dense again. */
#include <stdlib.h>
#include <string.h>

#include "codegen/internal.h"

enum { BLOCK = 256, MANY_ITEMS = 1 << 18 };

/* How a source is read. */
typedef enum access {
  NOTHING,   /* constants, positions */
  VECTOR,    /* V at a time */
  ONCE,      /* one per item */
  ONE_BY_ONE /* while computing */
} access;

typedef struct map_writer {
  cg_writer *w;
  const cg_map *m;
  cg_space space; /* views: the result, then the sources */
  uint32_t width, items;
  bool tail;  /* the last item of a row is not full */
  bool moves; /* elements stay as they are */
  access access[CG_MAX_SOURCES];
  uint32_t address[CG_MAX_SOURCES], result, error;
  ir_dtype dtypes[CG_MAX_SOURCES], to; /* of elements; moved ones are bits */
} map_writer;

static const cg_view nowhere = {.dtype = IR_U8, .align = CG_ALIGN};

/* ---- planning ---- */
static bool in_memory(const cg_source *s) {
  return s->kind == CG_VIEW || s->kind == CG_INDEXED || s->kind == CG_RESHAPED;
}

/* Are its strides those of the result's dimensions? */
static bool is_placed(const cg_source *s) {
  return s->kind != CG_CONSTANT && s->kind != CG_KEY && s->kind != CG_RESHAPED;
}

static void make_space(map_writer *x) {
  const cg_view *views[CG_MAX_VIEWS] = {&x->m->result};
  for (uint32_t i = 0; i < x->m->n_sources; i++) {
    const cg_source *s = &x->m->sources[i];
    bool placed = is_placed(s);
    views[1 + i] = placed ? &s->view : &nowhere;
  }
  cg_space_make(&x->space, x->m->extents, 0, x->m->rank, views, 1 + x->m->n_sources, true);
}

/* Elements that are only moved have an unsigned dtype of their size. */
static void find_dtypes(map_writer *x) {
  const cg_map *m = x->m;
  for (uint32_t i = 0; i < m->n_sources; i++) {
    const cg_source *s = &m->sources[i];
    x->dtypes[i] = in_memory(s) ? s->view.dtype : IR_I64;
    if (s->kind == CG_CONSTANT && s->number.is_float) x->dtypes[i] = IR_F64;
  }
  x->to = m->result.dtype;
  uint32_t last = m->n_sources - 1;
  if (m->n_steps > 0 || !in_memory(&m->sources[last]) || x->dtypes[last] != x->to) return;
  x->moves = true;
  x->to = x->dtypes[last] = cg_bits(x->to);
}

/* Is it an indexed view whose rows are dense and have one index each? */
static bool finds_rows(const map_writer *x, uint32_t i) {
  const cg_source *s = &x->m->sources[i];
  return s->kind == CG_INDEXED && cg_space_step(&x->space, 1 + s->index) == 0 &&
         cg_space_step(&x->space, 1 + i) == 1;
}

static uint32_t source_width(const map_writer *x, uint32_t i, uint32_t most) {
  const cg_source *s = &x->m->sources[i];
  uint32_t width = most;
  if (s->kind == CG_VIEW) return cg_vector_width(&s->view, &x->space, 1 + i, most);
  if (!finds_rows(x, i)) return most;
  width = cg_vector_width(&s->view, &x->space, 1 + i, most);
  int64_t size = (int64_t)ir_dtype_size_bytes(s->view.dtype);
  while (width > 1 && s->step * size % (width * size < CG_ALIGN ? width * size : CG_ALIGN) != 0)
    width /= 2;
  return width;
}

static void find_width(map_writer *x) {
  const cg_map *m = x->m;
  size_t smallest = ir_dtype_size_bytes(m->result.dtype), largest = smallest;
  for (uint32_t i = 0; i < m->n_sources; i++) {
    if (m->sources[i].kind != CG_VIEW) continue;
    size_t size = ir_dtype_size_bytes(m->sources[i].view.dtype);
    if (size < smallest) smallest = size;
    if (size > largest) largest = size;
  }
  uint32_t width = cg_vector_width(&m->result, &x->space, 0, cg_widest(smallest, largest));
  if (cg_space_step(&x->space, 0) != 1) width = 1;
  for (uint32_t i = 0; i < m->n_sources; i++) {
    uint32_t fits = source_width(x, i, width);
    if (fits < width) width = fits;
  }
  x->width = width;
  x->tail = cg_space_run(&x->space) % width != 0;
}

static access access_of(const map_writer *x, uint32_t i) {
  const cg_source *s = &x->m->sources[i];
  bool repeats = cg_space_step(&x->space, 1 + i) == 0;
  switch (s->kind) {
  case CG_CONSTANT:
  case CG_KEY:
  case CG_POSITION: return NOTHING;
  case CG_VIEW: return x->width > 1 && !repeats ? VECTOR : ONCE;
  case CG_INDEXED: return x->width > 1 && finds_rows(x, i) ? VECTOR : ONE_BY_ONE;
  case CG_RESHAPED: return ONE_BY_ONE;
  }
  impossible("a kind of source");
}

/* How far positions reach. The numbers of a reshaped view's elements count too: they may exceed its strides. */
static int64_t reach_of(const map_writer *x) {
  int64_t most = cg_space_reach(&x->space);
  for (uint32_t i = 0; i < x->m->n_sources; i++) {
    const cg_source *s = &x->m->sources[i];
    int64_t count = 1;
    if (s->kind == CG_INDEXED) most += s->n * llabs(s->step);
    for (uint32_t d = 0; s->kind == CG_RESHAPED && d < s->rank; d++) {
      most += s->extents[d] * llabs(s->view.strides[d]);
      count *= s->extents[d];
    }
    most += s->kind == CG_RESHAPED ? count : 0;
  }
  return most;
}

static int64_t count_items(const map_writer *x) {
  int64_t run = cg_space_run(&x->space);
  return cg_space_count(&x->space) / run * cg_ceildiv(run, x->width);
}

static uint32_t items_per_thread(const map_writer *x) {
  uint32_t vectors = 0;
  for (uint32_t i = 0; i < x->m->n_sources; i++)
    if (x->access[i] == VECTOR) vectors++;
  if (count_items(x) < MANY_ITEMS) return 1;
  return x->m->n_steps == 0 && vectors <= 1 ? 4 : 2;
}

/* ---- loads ---- */
static const char *pointer_text(const map_writer *x, uint32_t i) {
  return cg_text(x->w, "(const %s *)p.at[%u]", cg_storage(x->dtypes[i]), x->address[i]);
}

static void put_declarations(const map_writer *x) {
  cg_writer *w = x->w;
  cg_put_vector(w, "v", x->to, x->width);
  cg_line(w, "  ix o[%u];\n", x->items);
  if (x->tail) cg_line(w, "  ix left[%u];\n", x->items);
  for (uint32_t i = 0; i < x->m->n_sources; i++) {
    const cg_source *s = &x->m->sources[i];
    if (s->kind == CG_CONSTANT && s->number.is_float)
      cg_line(w, "  const double x%u = %s;\n", i, cg_f64_text(w, s->number.f));
    else if (s->kind == CG_CONSTANT)
      cg_line(w, "  const long long x%u = n.at[%u];\n", i, cg_number(w, s->number.i));
    else if (s->kind == CG_KEY)
      cg_line(w, "  const unsigned long long x%u = %s;\n", i, cg_key_text(w, s->number.i));
    else if (s->kind != CG_RESHAPED) cg_line(w, "  ix o%u[%u];\n", i, x->items);
    if (x->access[i] == VECTOR) {
      cg_put_vector(w, cg_text(w, "v%u", i), x->dtypes[i], x->width);
      cg_line(w, "  v%u x%u[%u];\n", i, i, x->items);
    }
    if (x->access[i] == ONCE) cg_line(w, "  %s x%u[%u];\n", cg_storage(x->dtypes[i]), i, x->items);
  }
}

/* Writes the offset from the start of a view's row to the item's first element. */
static void put_start(const map_writer *x, uint32_t view, const char *name) {
  int64_t step = cg_space_step(&x->space, view);
  if (x->width == 1) {
    cg_line(x->w, "    %s += c * %s;\n", name, cg_number_text(x->w, step));
    return;
  }
  const cg_source *s = view ? &x->m->sources[view - 1] : NULL;
  bool in_steps = s && s->kind != CG_VIEW;
  if (in_steps)
    cg_line(x->w, "    %s += c * %u * %s;\n", name, x->width, cg_number_text(x->w, step));
  else if (step != 0) cg_line(x->w, "    %s += c * %u;\n", name, x->width);
}

/* The value of an index, as an i64, of element e. */
static const char *value_text(const map_writer *x, uint32_t i);

static void put_vector(const map_writer *x, uint32_t i) {
  cg_writer *w = x->w;
  const char *from = cg_text(w, "%s + o%u[u]", pointer_text(x, i), i);
  const char *to = cg_text(w, "x%u[u]", i);
  if (x->tail) cg_line(w, "    if (left[u] >= %u) {\n", x->width);
  cg_put_vector_load(w, x->dtypes[i], x->width, to, from);
  if (x->tail) {
    cg_set_int(w, "V", x->width);
    cg_set(w, "to", to);
    cg_set(w, "from", from);
    cg_put(w, "    } else {\n"
              "#pragma unroll\n"
              "      for (int e = 0; e < $V; e++) $to.e[e] = e < left[u] ? ($from)[e] : 0;\n"
              "    }\n");
  }
}

static void put_load(const map_writer *x, uint32_t i) {
  cg_writer *w = x->w;
  const cg_source *s = &x->m->sources[i];
  if (s->kind == CG_INDEXED && x->access[i] == VECTOR) {
    cg_set(w, "index", value_text(x, s->index));
    cg_set_place(w, "n", s->n);
    cg_set_int(w, "error", x->error);
    cg_set_int(w, "k", i);
    cg_set_number(w, "step", s->step);
    cg_put(w, "    {\n"
              "      const long long i = $index;\n"
              "      if (weir_inside(i, n.at[$n], p.at[$error])) o$k[u] += (ix)i * $step;\n"
              "    }\n");
  }
  if (x->access[i] == VECTOR) put_vector(x, i);
  if (x->access[i] == ONCE) cg_line(w, "    x%u[u] = (%s)[o%u[u]];\n", i, pointer_text(x, i), i);
}

static void put_item(const map_writer *x) {
  cg_writer *w = x->w;
  const char *names[CG_MAX_VIEWS] = {"o[u]"};
  cg_line(w, "    ix c = 0;\n    o[u] = 0;\n");
  for (uint32_t i = 0; i < x->m->n_sources; i++) {
    const cg_source *s = &x->m->sources[i];
    bool placed = is_placed(s);
    names[1 + i] = placed ? cg_text(w, "o%u[u]", i) : NULL;
    if (placed) cg_line(w, "    o%u[u] = 0;\n", i);
  }
  int64_t run = cg_space_run(&x->space);
  cg_put_offsets(w, &x->space, "item", names, "c", cg_ceildiv(run, x->width));
  if (x->tail) cg_line(w, "    left[u] = %s - c * %u;\n", cg_number_text(w, run), x->width);
  for (uint32_t v = 0; v <= x->m->n_sources; v++)
    if (names[v]) put_start(x, v, names[v]);
  for (uint32_t i = 0; i < x->m->n_sources; i++) put_load(x, i);
}

/* ---- values ---- */
/* The element of a source as it is in memory. */
static const char *raw_text(const map_writer *x, uint32_t i) {
  if (x->access[i] == VECTOR) return cg_text(x->w, "x%u[u].e[e]", i);
  return x->access[i] == ONCE ? cg_text(x->w, "x%u[u]", i) : cg_text(x->w, "x%u", i);
}

static const char *value_text(const map_writer *x, uint32_t i) {
  cg_writer *w = x->w;
  const cg_source *s = &x->m->sources[i];
  if (s->kind == CG_CONSTANT || s->kind == CG_KEY) return cg_text(w, "x%u", i);
  if (s->kind == CG_POSITION) {
    uint32_t step = cg_number(w, cg_space_step(&x->space, 1 + i)), first = cg_number(w, s->first);
    return cg_text(w, "((long long)o%u[u] + e * n.at[%u] + n.at[%u])", i, step, first);
  }
  return cg_text(w, "%s(%s)", cg_get(w, x->dtypes[i]), raw_text(x, i));
}

static void put_indexed(const map_writer *x, uint32_t i) {
  cg_writer *w = x->w;
  const cg_source *s = &x->m->sources[i];
  cg_set(w, "T", cg_storage(x->dtypes[i]));
  cg_set_int(w, "k", i);
  cg_set(w, "index", cg_convert(w, IR_I64, x->dtypes[s->index], value_text(x, s->index)));
  cg_set_place(w, "n", s->n);
  cg_set_int(w, "error", x->error);
  cg_set(w, "from", pointer_text(x, i));
  cg_set_number(w, "inner", cg_space_step(&x->space, 1 + i));
  cg_set_number(w, "step", s->step);
  cg_put(w, "      $T x$k = 0;\n"
            "      {\n"
            "        const long long i = $index;\n"
            "        if (weir_inside(i, n.at[$n], p.at[$error]))\n"
            "          x$k = ($from)[o$k[u] + e * $inner + (ix)i * $step];\n"
            "      }\n");
}

/* Splits the row-major number into coordinates of the operand's own dimensions. */
static void put_reshaped(const map_writer *x, uint32_t i) {
  cg_writer *w = x->w;
  const cg_source *s = &x->m->sources[i];
  cg_space own;
  const cg_view *views[] = {&s->view};
  const char *names[] = {"at"};
  cg_space_make(&own, s->extents, 0, s->rank, views, 1, false);
  cg_line(w, "      %s x%u;\n      {\n      ix at = 0;\n", cg_storage(x->dtypes[i]), i);
  cg_line(w, "      const ix number = (ix)%s;\n", value_text(x, s->index));
  cg_put_offsets(w, &own, "number", names, NULL, 0);
  cg_line(w, "      x%u = (%s)[at];\n      }\n", i, pointer_text(x, i));
}

static void put_step(const map_writer *x, uint32_t s) {
  const cg_map *m = x->m;
  const cg_step *step = &m->steps[s];
  cg_writer *w = x->w;
  const char *operands[CG_MAX_OPERANDS] = {NULL};
  for (uint32_t k = 0; k < step->n_operands; k++) {
    uint32_t from = step->operands[k];
    bool is_source = from < m->n_sources;
    ir_dtype t = is_source ? x->dtypes[from] : m->steps[from - m->n_sources].result;
    const char *value = is_source ? value_text(x, from) : cg_text(w, "t%u", from - m->n_sources);
    bool converts = step->code != IR_OP_UNIFORM; /* uniform takes its operands as they are */
    operands[k] = converts ? cg_convert(w, step->compute, t, value) : value;
  }
  bool last = s + 1 == m->n_steps;
  const char *name = last ? "t" : cg_text(w, "s%u", s);
  cg_put_step(w, step, name, operands);
  if (!last)
    cg_line(w, "      const %s t%u = %s(%s(%s));\n", cg_native(step->result), s,
            cg_get(w, step->result), cg_of(w, step->result, cg_step_value(step)), name);
}

static void put_element(const map_writer *x) {
  const cg_map *m = x->m;
  cg_writer *w = x->w;
  uint32_t last = m->n_sources - 1;
  for (uint32_t i = 0; i < m->n_sources; i++) {
    if (x->access[i] != ONE_BY_ONE) continue;
    if (m->sources[i].kind == CG_INDEXED) put_indexed(x, i);
    else put_reshaped(x, i);
  }
  for (uint32_t s = 0; s < m->n_steps; s++) put_step(x, s);
  if (m->n_steps > 0)
    cg_line(w, "      y.e[e] = %s(t);\n",
            cg_of(w, x->to, cg_step_value(&m->steps[m->n_steps - 1])));
  else if (x->moves) cg_line(w, "      y.e[e] = %s;\n", raw_text(x, last));
  else
    cg_line(w, "      y.e[e] = %s(%s);\n", cg_of(w, x->to, x->dtypes[last]), value_text(x, last));
}

/* ---- the kernel ---- */
static void put_store(const map_writer *x) {
  cg_writer *w = x->w;
  const char *to = cg_text(w, "(%s *)p.at[%u] + o[u]", cg_storage(x->to), x->result);
  if (x->tail) cg_line(w, "    if (left[u] >= %u) {\n", x->width);
  cg_put_vector_store(w, x->to, x->width, to, "y");
  if (x->tail) {
    cg_set_int(w, "V", x->width);
    cg_set(w, "to", to);
    cg_put(w, "    } else {\n"
              "#pragma unroll\n"
              "      for (int e = 0; e < $V; e++) if (e < left[u]) ($to)[e] = y.e[e];\n"
              "    }\n");
  }
}

static const char item_loop[] = "#pragma unroll\n"
                                "  for (int u = 0; u < $U; u++) {\n"
                                "    const ix item = base + u * $T;\n"
                                "    if (item >= count) continue;\n";

static void put_kernel(const map_writer *x) {
  cg_writer *w = x->w;
  const char *items = cg_text(w, "%u", x->items), *block = cg_text(w, "%u", w->block);
  cg_line(w, "  const ix count = %s;\n", cg_number_text(w, count_items(x)));
  cg_line(w, "  const ix base = (ix)blockIdx.x * %u + (ix)threadIdx.x;\n", x->items * w->block);
  put_declarations(x);
  cg_set(w, "U", items);
  cg_set(w, "T", block);
  cg_put(w, item_loop);
  cg_line(w, "    const int e = 0;\n    (void)e;\n");
  put_item(x);
  cg_line(w, "  }\n");
  cg_set(w, "U", items);
  cg_set(w, "T", block);
  cg_put(w, item_loop);
  cg_line(w, "    v y;\n#pragma unroll\n    for (int e = 0; e < %u; e++) {\n", x->width);
  if (x->tail) cg_line(w, "      if (e >= left[u]) continue;\n");
  put_element(x);
  cg_line(w, "    }\n");
  put_store(x);
  cg_line(w, "  }\n");
}

void cg_write_map(cg_kernel *k, const cg_map *m) {
  cg_writer w;
  map_writer x = {.w = &w, .m = m};
  bool indexed = false;
  check(m->n_sources > 0 && m->n_sources <= CG_MAX_SOURCES && m->n_steps <= CG_MAX_STEPS);
  make_space(&x);
  find_dtypes(&x);
  if (x.moves && cg_write_transposed(k, m, &x.space)) return;
  find_width(&x);
  for (uint32_t i = 0; i < m->n_sources; i++) x.access[i] = access_of(&x, i);
  x.items = items_per_thread(&x);
  cg_begin(&w, k->memory, reach_of(&x) > CG_NARROW_REACH, BLOCK);
  x.result = cg_address(&w, &m->result);
  for (uint32_t i = 0; i < m->n_sources; i++) {
    if (in_memory(&m->sources[i])) x.address[i] = cg_address(&w, &m->sources[i].view);
    indexed = indexed || m->sources[i].kind == CG_INDEXED;
  }
  if (indexed) x.error = cg_error_address(&w);
  put_kernel(&x);
  cg_end(&w, k, m->name, cg_ceildiv(count_items(&x), (int64_t)BLOCK * x.items), 1);
}
