#include "device/cpu/gemm/units.h"

static const gemm_units *units_of(const char *level) {
#if defined(__x86_64__)
  if (strcmp(level, "avx512") == 0) return &gemm_units_avx512;
  if (strcmp(level, "avx2") == 0 && __builtin_cpu_supports("fma")) return &gemm_units_avx2;
#endif
  (void)level;
  return &gemm_units_base;
}

const cpu_gemm_unit *cpu_gemm_unit_of(ir_dtype native) {
  const gemm_units *u = units_of(cpu_vectors()->name);
  if (native == IR_F32) return u->f32;
  if (native == IR_F64) return u->f64;
  return native == IR_I32 ? u->i32 : u->i64;
}

const cpu_gemm_unit *cpu_gemm_unit_for(ir_dtype a, ir_dtype b, ir_dtype native) {
#ifdef CPU_HAS_BF16_PAIRS
  bool is_bf16 = a == IR_BF16 && b == IR_BF16 && native == IR_F32;
  if (is_bf16 && strcmp(cpu_level_chosen()->name, "avx512_bf16") == 0) return gemm_unit_bf16;
#endif
  (void)a, (void)b;
  return cpu_gemm_unit_of(native);
}
