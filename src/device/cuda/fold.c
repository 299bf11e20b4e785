/* Reductions of communications: one kernel that reads all sources and writes all results, element by
 * element, in team order. f16 and bf16 are accumulated in f32 and rounded once, as everywhere. */
#include <stdio.h>
#include <string.h>

#include "base/strbuf.h"
#include "base/table.h"
#include "device/cuda/device.h"

enum { THREADS = 256, MOST_BLOCKS = 1024, VECTOR_BYTES = 16 };

/* ---- text ---- */
/* $ becomes a hash of the text, so that names do not clash with those of other texts. */
typedef struct element {
  const char *stored, *computed; /* C types */
  const char *load, *store;      /* bodies of functions from one to the other, of x */
} element;

static element element_of(ir_dtype t) {
  static const char same[] = "return x;";
  static const element elements[IR_DTYPE_COUNT] = {
      [IR_F64] = {"double", "double", same, same},
      [IR_F32] = {"float", "float", same, same},
      [IR_F16] = {"unsigned short", "float",
                  "float y; asm(\"cvt.f32.f16 %0, %1;\" : \"=f\"(y) : \"h\"(x)); return y;",
                  "stored$ y; asm(\"cvt.rn.f16.f32 %0, %1;\" : \"=h\"(y) : \"f\"(x)); return y;"},
      [IR_BF16] = {"unsigned short", "float", "return __uint_as_float((unsigned)x << 16);",
                   "unsigned u = __float_as_uint(x); if (x != x) return (stored$)(u >> 16 | 64);\n"
                   "  return (stored$)((u + 0x7fff + (u >> 16 & 1)) >> 16);"},
      [IR_I64] = {"long long", "long long", same, same},
      [IR_I32] = {"int", "int", same, same},
      [IR_I8] = {"signed char", "signed char", same, same},
      [IR_U8] = {"unsigned char", "unsigned char", same, same},
      [IR_BOOL] = {"unsigned char", "bool", "return x != 0;", same},
  };
  return elements[t];
}

/* Integers wrap; a NaN among the elements gives NaN. */
static const char *expression_of(ir_combine op, ir_dtype t) {
  bool is_float = ir_dtype_is_float(t), is_bool = t == IR_BOOL;
  switch (op) {
  case IR_COMBINE_SUM:
    return is_bool ? "x | y" : is_float ? "x + y" : "(computed$)((unsigned long long)x + y)";
  case IR_COMBINE_PROD:
    return is_bool ? "x & y" : is_float ? "x * y" : "(computed$)((unsigned long long)x * y)";
  case IR_COMBINE_MIN: return is_bool ? "x & y" : "x < y || x != x ? x : y";
  case IR_COMBINE_MAX: return is_bool ? "x | y" : "x > y || x != x ? x : y";
  case IR_COMBINE_AND: return "x & y";
  case IR_COMBINE_OR: return "x | y";
  case IR_COMBINE_XOR: return "x ^ y";
  case IR_COMBINE_COUNT: break;
  }
  impossible("a reduction");
}

/* For one source: copies bits, whatever they mean. */
static void write_copy(const issue_fold *f, uint32_t width, strbuf *out) {
  strbuf_printf(
      out,
      "struct __align__(%u) vec$ { char x[%u]; };\n"
      "struct pointers$ { const vec$ *in; vec$ *out; long long n; };\n"
      "extern \"C\" __global__ void fold$(const pointers$ p) {\n"
      "  long long step = (long long)gridDim.x * blockDim.x;\n"
      "  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < p.n; i += step)\n"
      "    p.out[i] = p.in[i];\n"
      "}\n",
      (unsigned)(width * ir_dtype_size_bytes(f->dtype)),
      (unsigned)(width * ir_dtype_size_bytes(f->dtype)));
}

/* The text depends only on what makes code differ: op, dtype, number of sources and results, width. */
static void write_text(const issue_fold *f, uint32_t width, strbuf *out) {
  element e = element_of(f->dtype);
  strbuf_printf(out,
                "typedef %s stored$;\ntypedef %s computed$;\n"
                "struct __align__(%u) vec$ { stored$ x[%u]; };\n"
                "struct pointers$ { const vec$ *in[%u]; vec$ *out[%u]; long long n; };\n",
                e.stored, e.computed, (unsigned)(width * ir_dtype_size_bytes(f->dtype)), width,
                f->n_sources, f->n_results);
  strbuf_printf(
      out,
      "__device__ __forceinline__ computed$ load$(stored$ x) { %s }\n"
      "__device__ __forceinline__ stored$ store$(computed$ x) { %s }\n"
      "__device__ __forceinline__ computed$ fold2$(computed$ x, computed$ y) { return %s; }\n",
      e.load, e.store, expression_of(f->op, f->dtype));
  strbuf_printf(out,
                "extern \"C\" __global__ void fold$(const pointers$ p) {\n"
                "  long long step = (long long)gridDim.x * blockDim.x;\n"
                "  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < p.n; i "
                "+= step) {\n"
                "    vec$ v[%u], r;\n"
                "#pragma unroll\n"
                "    for (int s = 0; s < %u; s++) v[s] = p.in[s][i];\n"
                "#pragma unroll\n"
                "    for (int k = 0; k < %u; k++) {\n"
                "      computed$ x = load$(v[0].x[k]);\n"
                "#pragma unroll\n"
                "      for (int s = 1; s < %u; s++) x = fold2$(x, load$(v[s].x[k]));\n"
                "      r.x[k] = store$(x);\n"
                "    }\n"
                "#pragma unroll\n"
                "    for (int o = 0; o < %u; o++) p.out[o][i] = r;\n"
                "  }\n"
                "}\n",
                f->n_sources, f->n_sources, width, f->n_sources, f->n_results);
}

/* ---- preparing ---- */
/* How many elements one access takes: as many as fit 16 bytes, if all places begin at a multiple of that. */
static uint32_t width_of(const issue_fold *f) {
  int64_t size = (int64_t)ir_dtype_size_bytes(f->dtype);
  int64_t bits = f->count * size;
  for (uint32_t i = 0; i < f->n_sources + f->n_results; i++) bits |= f->places[i].offset_bytes;
  return bits % VECTOR_BYTES == 0 ? (uint32_t)(VECTOR_BYTES / size) : 1;
}

static void name(cuda_loaded *l, const strbuf *text, cg_launch *launch) {
  char mark[24];
  strbuf named;
  (void)snprintf(mark, sizeof mark, "_%016llx",
                 (unsigned long long)hash_bytes(text->data, text->len));
  strbuf_init(&named, &l->memory);
  for (const char *at = text->data; *at;) {
    size_t n = strcspn(at, "$");
    strbuf_add(&named, at, n);
    at += n;
    if (!*at) break;
    strbuf_puts(&named, mark);
    at++;
  }
  *launch = (cg_launch){.source = named.data, .source_bytes = named.len, .joins = true};
  launch->entry = arena_printf(&l->memory, "fold%s", mark);
}

void cuda_fold_write(cuda_loaded *l, uint32_t fold) {
  const issue_fold *f = &l->order.folds.data[fold];
  cuda_fold_call *c = &l->folds[fold];
  strbuf text;
  uint32_t width = width_of(f);
  strbuf_init(&text, &l->memory);
  if (f->n_sources == 1 && f->n_results == 1) write_copy(f, width, &text);
  else write_text(f, width, &text);
  name(l, &text, &c->launch);
  c->n_pointers = f->n_sources + f->n_results;
  c->n = f->count / width;
  c->arguments = arena_alloc(&l->memory, (c->n_pointers + 1) * sizeof(int64_t));
  int64_t blocks = (c->n + THREADS - 1) / THREADS;
  c->grid = (uint32_t)(blocks < MOST_BLOCKS ? blocks : MOST_BLOCKS);
  c->params[0] = c->arguments;
}

void cuda_fold_place(cuda_loaded *l, uint32_t fold) {
  const issue_fold *f = &l->order.folds.data[fold];
  cuda_fold_call *c = &l->folds[fold];
  int64_t *arguments = c->arguments;
  for (uint32_t i = 0; i < c->n_pointers; i++)
    arguments[i] = (int64_t)cuda_place_address(l, &f->places[i]);
  arguments[c->n_pointers] = c->n;
}

/* ---- delays ---- */
static const char delay_text[] =
    "extern \"C\" __global__ void delay(const long long ns) {\n"
    "  long long start, now;\n"
    "  asm volatile(\"mov.u64 %0, %globaltimer;\" : \"=l\"(start));\n"
    "  do asm volatile(\"mov.u64 %0, %globaltimer;\" : \"=l\"(now)); while (now - start < ns);\n"
    "}\n";

const cg_launch cuda_delay = {
    .source = delay_text, .source_bytes = sizeof delay_text - 1, .entry = "delay"};
