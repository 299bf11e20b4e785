/* The generator's model of extents and dtypes: what may meet, and what comes out. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "gen_model.h"

/* ---- extents ---- */
model_dim dim_unknown(int64_t size) { return (model_dim){.size = size}; }

model_dim dim_const(int64_t size) {
  model_dim d = {.size = size};
  snprintf(d.text, sizeof d.text, "%lld", (long long)size);
  return d;
}

model_dim dim_one(void) {
  model_dim d = dim_const(1);
  d.one = true;
  return d;
}

model_dim dim_expr(int64_t size, const char *fmt, ...) {
  model_dim d = {.size = size};
  va_list args;
  va_start(args, fmt);
  int n = vsnprintf(d.text, sizeof d.text, fmt, args);
  va_end(args);
  if (n >= (int)sizeof d.text) d.text[0] = '\0';
  return d;
}

bool dim_is_const(const model_dim *d) {
  return d->text[0] && d->text[strspn(d->text, "0123456789")] == '\0';
}

/* As large as tensors of so many elements may have: dozens, hundreds, or thousands. */
static int64_t large_size(model *m) {
  static const int64_t dozens[] = {3, 9, 12, 16, 17, 24, 33, 40, 64};
  static const int64_t hundreds[] = {64, 128, 200, 500, 512, 1000, 1024, 2048, 4096};
  static const int64_t thousands[] = {3, 512, 4096, 8192, 8192, 8192, 16384, 16384, 16384};
  int64_t most = m->options.max_elements;
  return (most < 100000 ? dozens : most < 100 << 20 ? hundreds : thousands)[below(m, 9)];
}

static model_dim random_symbol(model *m) {
  if (m->n_symbols < MODEL_SYMBOLS && (m->n_symbols == 0 || chance(m, 35))) {
    static const int64_t sizes[] = {2, 3, 4, 4, 6, 8};
    model_dim *d = &m->symbols[m->n_symbols];
    d->size = sizes[below(m, 6)];
    if (m->options.large) d->size = large_size(m);
    if (m->options.edges && chance(m, 15)) d->size = chance(m, 70) ? 1 : 0;
    snprintf(d->text, sizeof d->text, "%c", "nmkt"[m->n_symbols++]);
  }
  return m->symbols[below(m, m->n_symbols)];
}

model_dim dim_random(model *m) {
  static const int64_t sizes[] = {2, 2, 3, 4, 4, 5, 6, 8};
  if (m->options.edges && chance(m, 3)) return dim_const(0);
  if (m->options.edges && chance(m, 12)) return dim_one();
  if (m->options.symbolic && chance(m, 45)) return random_symbol(m);
  return dim_const(m->options.large ? large_size(m) : sizes[below(m, 8)]);
}

bool dim_meet(const model_dim *a, const model_dim *b, model_dim *result) {
  if (a->one || b->one) {
    *result = a->one ? *b : *a;
    return true;
  }
  if (a->size != b->size) return false;
  bool both_named = a->text[0] && b->text[0] && !dim_is_const(a) && !dim_is_const(b);
  *result = strcmp(a->text, b->text) == 0 || both_named ? *a : dim_unknown(a->size);
  return true;
}

int64_t dims_count(const model_dim *dims, uint32_t rank) {
  int64_t count = 1;
  for (uint32_t i = 0; i < rank; i++) count *= dims[i].size;
  return count;
}

bool model_meet(model_tensor *t, const model_tensor *x) {
  model_dim met[GEN_MAX_RANK];
  uint32_t rank = t->rank > x->rank ? t->rank : x->rank;
  for (uint32_t k = 1; k <= rank; k++) {
    model_dim a = k <= t->rank ? t->dims[t->rank - k] : dim_one();
    model_dim b = k <= x->rank ? x->dims[x->rank - k] : dim_one();
    if (!dim_meet(&a, &b, &met[rank - k])) return false;
  }
  memcpy(t->dims, met, rank * sizeof met[0]);
  t->rank = rank;
  return true;
}

const char *axis_text(model *m, uint32_t axis, uint32_t rank, char out[8]) {
  int value = chance(m, 30) ? (int)axis - (int)rank : (int)axis;
  snprintf(out, 8, "%d", value % 1000);
  return out;
}

/* ---- dtypes ---- */
typedef struct dtype_row {
  int kind, width; /* 0 bool, 1 integer, 2 float */
  double exact, largest;
} dtype_row;

static dtype_row row_of(ir_dtype t) {
  static const dtype_row rows[IR_DTYPE_COUNT] = {
      [IR_F64] = {2, 3, 0x1p53, INFINITY}, [IR_F32] = {2, 2, 0x1p24, INFINITY},
      [IR_F16] = {2, 1, 0x1p11, INFINITY}, [IR_BF16] = {2, 1, 0x1p8, INFINITY},
      [IR_I64] = {1, 3, INFINITY, 0x1p63}, [IR_I32] = {1, 2, INFINITY, 0x1p31},
      [IR_I8] = {1, 1, INFINITY, 0x1p7},   [IR_U8] = {1, 1, INFINITY, 0x1p8},
      [IR_BOOL] = {0, 0, INFINITY, 1},
  };
  return rows[t];
}

static ir_dtype pick_dtype(model *m, bool float_only) {
  ir_dtype allowed[IR_DTYPE_COUNT];
  uint32_t n = 0;
  for (uint32_t t = IR_F64; t < IR_DTYPE_COUNT; t++) {
    bool fits = !float_only || row_of((ir_dtype)t).kind == 2;
    if (fits && (m->options.dtypes & (1u << t))) allowed[n++] = (ir_dtype)t;
  }
  return n ? allowed[below(m, n)] : IR_F32;
}

ir_dtype dtype_random(model *m) {
  return chance(m, 40) ? pick_dtype(m, true) : pick_dtype(m, false);
}

ir_dtype dtype_random_float(model *m) { return pick_dtype(m, true); }

ir_dtype dtype_meet(ir_dtype a, ir_dtype b) {
  if (a == b) return a;
  dtype_row ra = row_of(a), rb = row_of(b);
  if (ra.kind != rb.kind) return ra.kind > rb.kind ? a : b;
  if (ra.width != rb.width) return ra.width > rb.width ? a : b;
  return ra.kind == 2 ? IR_F32 : IR_I32;
}

double dtype_exact(ir_dtype t) { return row_of(t).exact; }
double dtype_largest(ir_dtype t) { return row_of(t).largest; }

static int kind_of(const model_tensor *t) { return row_of(t->dtype).kind; }
bool wants_any(const model_tensor *t) { return t->rank <= GEN_MAX_RANK; }
bool wants_number(const model_tensor *t) { return kind_of(t) > 0; }
bool wants_float(const model_tensor *t) { return kind_of(t) == 2; }
bool wants_bits(const model_tensor *t) { return kind_of(t) < 2; }
bool wants_bool(const model_tensor *t) { return kind_of(t) == 0; }
