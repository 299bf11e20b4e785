/* All loops of one level. */
#include "device/cpu/loops/move.h"

extern const cpu_vector_loops CPU_OF_LEVEL(cpu_vectors);

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

const cpu_vector_loops CPU_OF_LEVEL(cpu_vectors) = {
    .name = TEXT(CPU_LEVEL),
    .map = {[IR_F64] = cpu_map_f64,
            [IR_F32] = cpu_map_f32,
            [IR_F16] = cpu_map_f16,
            [IR_BF16] = cpu_map_bf16,
            [IR_I64] = cpu_map_i64,
            [IR_I32] = cpu_map_i32,
            [IR_I8] = cpu_map_i8,
            [IR_U8] = cpu_map_u8,
            [IR_BOOL] = cpu_map_bool},
    .lookup = cpu_lookup,
    .convert = cpu_conversions,
    .round = {[IR_F16] = cpu_round_f16, [IR_BF16] = cpu_round_bf16},
    .copy = cpu_move_copy,
    .stream = cpu_move_stream,
    .fence = cpu_move_fence,
    .fill = cpu_move_fill,
    .transpose = cpu_move_transpose,
    .uniform = cpu_make_uniform,
    .folds = {[IR_F32] = cpu_folds_f32,
              [IR_BF16] = cpu_folds_bf16,
              [IR_F64] = cpu_folds_f64,
              [IR_I64] = cpu_folds_i64},
    .softmax = {[IR_F32] = cpu_row_softmax_f32, [IR_F64] = cpu_row_softmax_f64},
    .weigh = {[IR_F32] = cpu_row_weigh_f32, [IR_F64] = cpu_row_weigh_f64},
    .normalize = {[IR_F32] = cpu_row_normalize_f32,
                  [IR_BF16] = cpu_row_normalize_bf16,
                  [IR_F64] = cpu_row_normalize_f64},
};
