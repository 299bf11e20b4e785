/* Scalar expressions of ir/ops.def, written into a kernel with the words they use defined around them. */
#include <string.h>

#include "codegen/internal.h"

/* The same function, where the table's form would lose too much in f32: 1 + erf(x) and 1 + tanh(x) are
 * differences of numbers near 1 for negative x. */
static const char *gelu_expression(bool by_tanh) {
  if (!by_tanh) return "K(0.5) * a * erfc(a * K(-0.7071067811865476))";
  return "a / (K(1) + exp(K(-1.5957691216057308) * (a + K(0.044715) * a * a * a)))";
}

/* The exact functions would keep a GPU from reading at full speed, and f16 and bf16 have few bits. */
static const char *quick_expression(const cg_step *step) {
  if (step->code == IR_OP_SIGMOID) return "weir_quick_inverse(K(1) + weir_quick_exp(-a))";
  if (step->code == IR_OP_SILU) return "a * weir_quick_inverse(K(1) + weir_quick_exp(-a))";
  if (step->code != IR_OP_GELU) return NULL;
  if (!step->mode) return "weir_quick_gelu(a)";
  return "a * weir_quick_inverse(K(1) + "
         "weir_quick_exp(K(-1.5957691216057308) * (a + K(0.044715) * a * a * a)))";
}

static const char *float_expression(const cg_step *step) {
  if (step->quick && step->code == IR_OP_EXP) return "weir_quick_exp(a)";
  bool few_bits = step->compute == IR_F16 || step->compute == IR_BF16;
  const char *quick = few_bits ? quick_expression(step) : NULL;
  if (quick) return quick;
  if (step->code == IR_OP_GELU) return gelu_expression(step->mode);
  return ir_op_info_of(step->code)->fexpr;
}

static const char float_words[] = "#define K(x) (($T)(x))\n"
                                  "#define FMOD(a, b) weir_fmod_$l(a, b)\n";
static const char float_words_end[] = "#undef K\n#undef FMOD\n";

static const char int_words[] = "#define WNEG(a) (($T)(0 - ($W)(a)))\n"
                                "#define WADD(a, b) (($T)(($W)(a) + ($W)(b)))\n"
                                "#define WSUB(a, b) (($T)(($W)(a) - ($W)(b)))\n"
                                "#define WMUL(a, b) (($T)(($W)(a) * ($W)(b)))\n"
                                "#define IMOD(a, b) weir_imod_$l(a, b)\n"
                                "#define IPOW(a, b) weir_ipow_$l(a, b)\n"
                                "#define INVERT(a) ($invert(a))\n";
static const char int_words_end[] = "#undef WNEG\n#undef WADD\n#undef WSUB\n#undef WMUL\n"
                                    "#undef IMOD\n#undef IPOW\n#undef INVERT\n";

/* Rounding may give hi; then the largest number of the dtype below hi takes its place. */
static const char uniform[] =
    "  double $name;\n"
    "  {\n"
    "    const double lo = $c, hi = $d;\n"
    "    const unsigned long long bits = weir_drawn($b, $a);\n"
    "    $name = lo + (hi - lo) * $unit;\n"
    "    if ($float) {\n"
    "      double step = fabs(hi) * 5.5511151231257827e-17 + 4.9406564584124654e-324;\n"
    "      for (; (double)$get($of($name)) >= hi && lo < hi && $name > lo; step *= 2)\n"
    "        $name = hi - step > lo ? hi - step : lo;\n"
    "    } else $name = floor($name);\n"
    "  }\n";

/* From 0 to 1, of at most 24 bits: exact in f32; a value that rounding makes 1 becomes the number below 1. */
static const char uniform_unit[] =
    "  const unsigned u$name = weir_drawn_high($b, $a);\n"
    "  const float $name = fminf((float)(u$name >> 8) * 5.9604644775390625e-08f, $below);\n";

static float below_one(ir_dtype t) {
  return t == IR_BF16 ? 0.99609375f : t == IR_F16 ? 0.99951171875f : 0.99999994f;
}

static double unit_of(ir_dtype t, uint32_t bits) {
  uint64_t element = 0;
  float x = (float)bits * 0x1p-24f;
  ir_element_set_f64(t, &element, (double)(x < below_one(t) ? x : below_one(t)));
  return ir_element_as_f64(t, &element);
}

uint32_t cg_units_below(ir_dtype t, double limit, bool reaches) {
  uint32_t low = 0, high = 1 << 24;
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    double x = unit_of(t, middle);
    if (x < limit || (reaches && x == limit)) low = middle + 1;
    else high = middle;
  }
  return low;
}

const char *cg_unit_bits(cg_writer *w, const char *name) { return cg_text(w, "u%s", name); }

static void put_uniform_unit(cg_writer *w, const cg_step *step, const char *name,
                             const char *const operands[CG_MAX_OPERANDS]) {
  ir_dtype t = step->result;
  cg_set(w, "name", name);
  cg_set(w, "a", operands[0]);
  cg_set(w, "b", operands[1]);
  cg_set(w, "below", cg_text(w, "%.8ff", (double)below_one(t)));
  cg_put(w, uniform_unit);
}

static void put_uniform(cg_writer *w, const cg_step *step, const char *name,
                        const char *const operands[CG_MAX_OPERANDS]) {
  bool is_float = ir_dtype_is_float(step->result);
  bool narrow = is_float && step->result != IR_F64;
  const char *unit = narrow ? "((double)(bits >> 40) * 5.9604644775390625e-08)"
                            : "((double)(bits >> 11) * 1.1102230246251565e-16)";
  cg_set(w, "name", name);
  cg_set(w, "a", operands[0]);
  cg_set(w, "b", operands[1]);
  cg_set(w, "c", operands[2]);
  cg_set(w, "d", operands[3]);
  cg_set(w, "unit", unit);
  cg_set(w, "float", is_float ? "1" : "0");
  cg_set(w, "get", cg_get(w, step->result));
  cg_set(w, "of", cg_of(w, step->result, IR_F64));
  cg_put(w, uniform);
}

ir_dtype cg_step_value(const cg_step *step) {
  if (step->code == IR_OP_UNIFORM) return step->quick ? IR_F32 : IR_F64;
  return ir_op_info_of(step->code)->rule == IR_RESULT_TRUTH ? IR_I32 : step->compute;
}

/* A bool is computed as an int, and made 0 or 1 again at once. */
static void put_expression(cg_writer *w, const cg_step *step, const char *name, bool is_float) {
  const ir_op_info *info = ir_op_info_of(step->code);
  const char *expression = is_float ? float_expression(step) : info->iexpr;
  bool truth = step->compute == IR_BOOL;
  check(strcmp(expression, "NO") != 0);
  cg_line(w, "    %s = %s(%s)%s;\n", name, truth ? "(" : "", expression, truth ? " != 0)" : "");
}

void cg_put_step(cg_writer *w, const cg_step *step, const char *name,
                 const char *const operands[CG_MAX_OPERANDS]) {
  static const char *const letters[] = {"a", "b", "c"};
  const char *type = cg_native(step->compute);
  bool is_float = ir_dtype_is_float(step->compute);
  if (step->code == IR_OP_UNIFORM && step->quick) {
    put_uniform_unit(w, step, name, operands);
    return;
  }
  if (step->code == IR_OP_UNIFORM) {
    put_uniform(w, step, name, operands);
    return;
  }
  check(step->n_operands <= 3);
  cg_line(w, "  %s %s;\n  {\n", cg_native(cg_step_value(step)), name);
  cg_set(w, "T", type);
  cg_set(w, "l", cg_letter(step->compute));
  cg_set(w, "W", step->compute == IR_I64 ? "unsigned long long" : "unsigned");
  cg_set(w, "invert", step->compute == IR_BOOL ? "!" : "~");
  cg_put(w, is_float ? float_words : int_words);
  for (uint32_t i = 0; i < step->n_operands; i++)
    cg_line(w, "    const %s %s = %s;\n", type, letters[i], operands[i]);
  put_expression(w, step, name, is_float);
  cg_put(w, is_float ? float_words_end : int_words_end);
  cg_line(w, "  }\n");
}
