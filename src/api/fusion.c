/* Asking a fusion. */
#include "api/api.h"
#include "data/compare.h"
#include "ir/host.h"

#define DTYPE(id, text, ...) _Static_assert((int)IR_##id == (int)WEIR_##id, "dtypes agree: " text);
#include "ir/dtype.def"
#undef DTYPE

/* ---- dtypes ---- */
static bool is_dtype(weir_dtype t) { return (unsigned)t - 1U < (unsigned)IR_DTYPE_COUNT - 1U; }

const char *weir_dtype_text(weir_dtype t) { return is_dtype(t) ? ir_dtype_text((ir_dtype)t) : ""; }
size_t weir_dtype_size_bytes(weir_dtype t) {
  return is_dtype(t) ? ir_dtype_size_bytes((ir_dtype)t) : 0;
}

enum { DL_INT = 0, DL_UINT = 1, DL_FLOAT = 2, DL_BFLOAT = 4, DL_BOOL = 6 };

static uint8_t dl_code(weir_dtype t) {
  switch (t) {
  case WEIR_F64:
  case WEIR_F32:
  case WEIR_F16: return DL_FLOAT;
  case WEIR_BF16: return DL_BFLOAT;
  case WEIR_I64:
  case WEIR_I32:
  case WEIR_I8: return DL_INT;
  case WEIR_U8: return DL_UINT;
  case WEIR_BOOL: return DL_BOOL;
  }
  return DL_INT;
}

weir_dl_dtype weir_dtype_to_dl(weir_dtype t) {
  return (weir_dl_dtype){dl_code(t), (uint8_t)(8 * weir_dtype_size_bytes(t)), 1};
}

static status refuse_dl(weir_dl_dtype t, const char *what) {
  static const char *const kinds[] = {"int", "uint", "float", NULL, "bfloat", "complex", "bool"};
  const char *kind = t.code < sizeof kinds / sizeof *kinds ? kinds[t.code] : NULL;
  if (kind && t.lanes == 1)
    return fail(STATUS_BAD_USAGE,
                "%s holds %s%d, which is not supported: f64 f32 f16 bf16 i64 i32 i8 u8 bool are",
                what, kind, t.bits);
  return fail(STATUS_BAD_USAGE,
              "%s holds DLPack type code %d with %d bits and %d lanes, which is not supported",
              what, t.code, t.bits, t.lanes);
}

status api_dtype_of(weir_dl_dtype t, const char *what, weir_dtype *result) {
  for (int i = IR_DTYPE_NONE + 1; i < IR_DTYPE_COUNT; i++) {
    weir_dl_dtype d = weir_dtype_to_dl((weir_dtype)i);
    if (d.code != t.code || d.bits != t.bits || d.lanes != t.lanes) continue;
    *result = (weir_dtype)i;
    return STATUS_OK;
  }
  return refuse_dl(t, what);
}

weir_status weir_dtype_from_dl(weir_dl_dtype t, weir_dtype *result) {
  if (!result) return api_refuse("weir_dtype_from_dl: result is NULL");
  api_begin();
  return api_end(api_dtype_of(t, "the type", result));
}

/* ---- fusions ---- */
bool weir_fusion_is_host(const weir_fusion *f) { return f && api_func(f)->host; }

const char *weir_fusion_name(const weir_fusion *f) {
  return f ? ir_name_text(api_func(f), api_func(f)->name) : "";
}
size_t weir_fusion_input_count(const weir_fusion *f) { return f ? api_func(f)->inputs.len : 0; }
size_t weir_fusion_output_count(const weir_fusion *f) { return f ? api_func(f)->outputs.len : 0; }

weir_status weir_fusion_input_at(const weir_fusion *f, size_t i, weir_tensor *result) {
  if (!f || !result || i >= api_func(f)->inputs.len)
    return api_refuse("the fusion has no input number %zu", i);
  *result = api_tensor_handle(api_func(f), api_func(f)->inputs.data[i]);
  return WEIR_OK;
}

weir_status weir_fusion_output_at(const weir_fusion *f, size_t i, weir_tensor *result) {
  if (!f || !result || i >= api_func(f)->outputs.len)
    return api_refuse("the fusion has no output number %zu", i);
  *result = api_tensor_handle(api_func(f), api_func(f)->outputs.data[i]);
  return WEIR_OK;
}

int64_t weir_fusion_devices(const weir_fusion *f) {
  int64_t largest = 0;
  if (!f) return 1;
  for (uint32_t i = 1; i < api_func(f)->meshes.len; i++) {
    const ir_mesh_data *m = &api_func(f)->meshes.data[i];
    for (int64_t k = 0; k < m->n_devices; k++)
      if (m->devices[k] > largest) largest = m->devices[k];
  }
  return largest + 1;
}

/* ---- tensors ---- */
typedef struct tensor_call {
  ir_func *f;
  weir_tensor t;
  weir_tensor_info info;
  ir_dtype least;
} tensor_call;

static status describe_body(arena *scratch, void *context) {
  (void)scratch;
  tensor_call *c = context;
  ir_tensor t = api_tensor(c->f, c->t);
  if (!t.id) return STATUS_BAD_PROGRAM;
  ir_axis dims[IR_MAX_RANK];
  c->info.name = ir_tensor_name(c->f, t);
  c->info.dtype = (weir_dtype)ir_tensor_at(c->f, t)->dtype;
  c->info.rank = ir_tensor_dims(c->f, t, dims);
  return STATUS_OK;
}

weir_status weir_tensor_describe(const weir_fusion *f, weir_tensor t, weir_tensor_info *info) {
  if (!f || !info) return api_refuse("weir_tensor_describe: an argument is NULL");
  tensor_call c = {.f = api_func(f), .t = t};
  weir_status st = api_edit(api_module(f), describe_body, &c);
  if (st == WEIR_OK) *info = c.info;
  return st;
}

typedef struct type_call {
  ir_func *f;
  weir_tensor t;
  char **text;
} type_call;

static status type_body(arena *scratch, void *context) {
  const type_call *c = context;
  ir_tensor t = api_tensor(c->f, c->t);
  strbuf out;
  if (!t.id) return STATUS_BAD_PROGRAM;
  strbuf_init(&out, scratch);
  strbuf_puts(&out, ir_type_text(c->f, t));
  return api_string(&out, c->text);
}

weir_status weir_tensor_type(const weir_fusion *f, weir_tensor t, char **text) {
  if (!f || !text) return api_refuse("weir_tensor_type: an argument is NULL");
  type_call c = {api_func(f), t, text};
  return api_edit(api_module(f), type_body, &c);
}

static status least_body(arena *scratch, void *context) {
  tensor_call *c = context;
  ir_tensor t = api_tensor(c->f, c->t);
  if (!t.id) return STATUS_BAD_PROGRAM;
  const ir_func *fusion = c->f->host ? c->f->host->fusion : NULL;
  if (fusion) { /* it says what the outputs of its host program depend on */
    for (uint32_t i = 0; i < c->f->outputs.len; i++) {
      if (IR_SAME(c->f->outputs.data[i], t)) {
        c->least = data_least_dtype(fusion, fusion->outputs.data[i], scratch);
        return STATUS_OK;
      }
    }
  }
  c->least = c->f->host ? ir_tensor_at(c->f, t)->dtype : data_least_dtype(c->f, t, scratch);
  return STATUS_OK;
}

weir_status weir_fusion_least_dtype(const weir_fusion *f, weir_tensor t, weir_dtype *result) {
  if (!f || !result) return api_refuse("weir_fusion_least_dtype: an argument is NULL");
  tensor_call c = {.f = api_func(f), .t = t};
  weir_status st = api_edit(api_module(f), least_body, &c);
  if (st == WEIR_OK) *result = (weir_dtype)c.least;
  return st;
}
