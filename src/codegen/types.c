/* dtypes in text. */
#include "codegen/internal.h"

typedef struct type_words {
  const char *text, *storage, *native, *letter;
} type_words;

static const type_words words[IR_DTYPE_COUNT] = {
    [IR_F64] = {"f64", "double", "double", "d"},
    [IR_F32] = {"f32", "float", "float", "f"},
    [IR_F16] = {"f16", "unsigned short", "float", "f"},
    [IR_BF16] = {"bf16", "unsigned short", "float", "f"},
    [IR_I64] = {"i64", "long long", "long long", "l"},
    [IR_I32] = {"i32", "int", "int", "i"},
    [IR_I8] = {"i8", "signed char", "int", "i"},
    [IR_U8] = {"u8", "unsigned char", "int", "i"},
    [IR_BOOL] = {"bool", "unsigned char", "int", "i"},
};

static const type_words *words_of(ir_dtype t) {
  check(t > IR_DTYPE_NONE && t < IR_DTYPE_COUNT && words[t].text);
  return &words[t];
}

const char *cg_storage(ir_dtype t) { return words_of(t)->storage; }
const char *cg_native(ir_dtype t) { return words_of(t)->native; }
const char *cg_letter(ir_dtype t) { return words_of(t)->letter; }

ir_dtype cg_accumulator(ir_dtype t) {
  if (t == IR_F16 || t == IR_BF16) return IR_F32;
  return ir_dtype_is_float(t) ? IR_F64 : IR_I64;
}

const char *cg_get(cg_writer *w, ir_dtype t) {
  return cg_text(w, "weir_get_%s", words_of(t)->text);
}

const char *cg_of(cg_writer *w, ir_dtype to, ir_dtype from) {
  return cg_text(w, "weir_%s_of_%s", words_of(to)->text, words_of(from)->letter);
}

const char *cg_convert(cg_writer *w, ir_dtype to, ir_dtype from, const char *value) {
  bool small = from == IR_BOOL || from == IR_I8 || from == IR_U8;
  if (to == from) return value;
  if (small && (to == IR_BF16 || to == IR_F16))
    return cg_text(w, "((float)(%s))", value); /* exact */
  if (to == IR_BF16 && *words_of(from)->letter == 'f')
    return cg_text(w, "weir_round_bf16(%s)", value);
  return cg_text(w, "%s(%s(%s))", cg_get(w, to), cg_of(w, to, from), value);
}

const char *cg_element(cg_writer *w, ir_dtype t, uint32_t width, const char *vector) {
  if (t == IR_BF16 && width > 1) return cg_text(w, "weir_half_bf16(%s.h[e / 2], e %% 2)", vector);
  return cg_text(w, "%s(%s.e[e])", cg_get(w, t), vector);
}

ir_dtype cg_bits(ir_dtype t) {
  switch (ir_dtype_size_bytes(t)) {
  case 1: return IR_U8;
  case 2: return IR_BF16;
  case 4: return IR_I32;
  case 8: return IR_I64;
  }
  impossible("an element size");
}
