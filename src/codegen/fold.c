/* Folds (ir/folds.def) in kernels: accumulators, what they start from, and the functions that fold. */
#include <string.h>

#include "codegen/internal.h"

ir_dtype cg_fold_dtype(ir_fold fold, ir_dtype t) {
  if (!ir_fold_info_of(fold)->noun) return cg_accumulator(t);
  if (ir_dtype_is_float(t)) return t == IR_F64 ? IR_F64 : IR_F32;
  return t == IR_I64 ? IR_I64 : IR_I32;
}

const char *cg_fold_name(cg_writer *w, ir_fold fold, ir_dtype acc) {
  return cg_text(w, "weir_%s_%s", ir_fold_info_of(fold)->name, cg_letter(acc));
}

static const char *extreme(ir_dtype acc, bool least) {
  if (ir_dtype_is_float(acc)) return least ? "-WEIR_INF" : "WEIR_INF";
  if (acc == IR_I64) return least ? "(-9223372036854775807ll - 1)" : "9223372036854775807ll";
  return least ? "(-2147483647 - 1)" : "2147483647";
}

const char *cg_fold_start(ir_fold fold, ir_dtype acc) {
  switch (ir_fold_info_of(fold)->start) {
  case IR_START_ZERO: return "0";
  case IR_START_ONE: return "1";
  case IR_START_ALL: return "(-1)";
  case IR_START_LEAST: return extreme(acc, true);
  case IR_START_GREATEST: return extreme(acc, false);
  }
  impossible("every start is listed");
}

/* ---- the functions ---- */

/* The expression of the table with W(x) as a conversion to the unsigned type. */
static const char *expression(cg_writer *w, const char *text) {
  strbuf out;
  strbuf_init(&out, w->memory);
  for (; *text; text++) {
    bool word = text[0] == 'W' && text[1] == '(';
    if (word) strbuf_puts(&out, "($W)");
    else strbuf_putc(&out, *text);
  }
  return out.data;
}

/* One instruction on a GPU, instead of three with a test for NaN. */
static const char float_extreme[] =
    "@#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800\n"
    "WEIR_DEVICE float weir_$x_f(float a, float b) {\n"
    "  float m;\n"
    "  asm(\"$y.NaN.f32 %0, %1, %2;\" : \"=f\"(m) : \"f\"(a), \"f\"(b));\n"
    "  return m;\n"
    "}\n"
    "#else\n"
    "WEIR_DEVICE float weir_$x_f(float a, float b) { return $e; }\n"
    "#endif\n";

static void put_fold(cg_writer *w, ir_fold fold, bool is_float, bool narrow) {
  const ir_fold_info *info = ir_fold_info_of(fold);
  const char *text = is_float ? info->fexpr : info->iexpr;
  if (strcmp(text, "NO") == 0) return;
  cg_set(w, "x", info->name);
  if (narrow && (fold == IR_FOLD_MAX || fold == IR_FOLD_MIN)) {
    cg_set(w, "y", fold == IR_FOLD_MAX ? "max" : "min");
    cg_set(w, "e", text);
    cg_put(w, float_extreme);
    return;
  }
  cg_put(w, cg_text(w, "@WEIR_DEVICE $T weir_$x_$l($T a, $T b) { return ($T)(%s); }\n",
                    expression(w, text)));
}

void cg_put_folds(cg_writer *w, const char *type, const char *wide, const char *letter,
                  bool is_float) {
  cg_set(w, "T", type);
  cg_set(w, "W", wide);
  cg_set(w, "l", letter);
  for (uint32_t i = IR_FOLD_NONE + 1; i < IR_FOLD_COUNT; i++)
    put_fold(w, (ir_fold)i, is_float, letter[0] == 'f');
}
