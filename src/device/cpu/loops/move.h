/* Functions of one level that its table (table.c) takes from the other files. */
#ifndef WEIR_DEVICE_CPU_LOOPS_MOVE_H
#define WEIR_DEVICE_CPU_LOOPS_MOVE_H

#include "device/cpu/loops/loops.h"

#define cpu_move_copy CPU_OF_LEVEL(cpu_move_copy)
#define cpu_move_fill CPU_OF_LEVEL(cpu_move_fill)
#define cpu_move_transpose CPU_OF_LEVEL(cpu_move_transpose)
#define cpu_move_stream CPU_OF_LEVEL(cpu_move_stream)
#define cpu_move_fence CPU_OF_LEVEL(cpu_move_fence)
#define cpu_make_uniform CPU_OF_LEVEL(cpu_make_uniform)
#define cpu_round_f16 CPU_OF_LEVEL(cpu_round_f16)
#define cpu_round_bf16 CPU_OF_LEVEL(cpu_round_bf16)
#define cpu_row_softmax_f32 CPU_OF_LEVEL(cpu_row_softmax_f32)
#define cpu_row_softmax_f64 CPU_OF_LEVEL(cpu_row_softmax_f64)
#define cpu_row_weigh_f32 CPU_OF_LEVEL(cpu_row_weigh_f32)
#define cpu_row_weigh_f64 CPU_OF_LEVEL(cpu_row_weigh_f64)
#define cpu_row_normalize_f32 CPU_OF_LEVEL(cpu_row_normalize_f32)
#define cpu_row_normalize_bf16 CPU_OF_LEVEL(cpu_row_normalize_bf16)
#define cpu_row_normalize_f64 CPU_OF_LEVEL(cpu_row_normalize_f64)

void cpu_move_copy(size_t size_bytes, int64_t n, char *to, int64_t to_step, const char *from,
                   int64_t from_step);
void cpu_move_fill(size_t size_bytes, int64_t n, char *to, int64_t step, const void *value);
void cpu_move_transpose(size_t size_bytes, int64_t rows, int64_t n, char *to, int64_t to_row,
                        int64_t to_step, const char *from, int64_t from_step);
void cpu_move_stream(int64_t bytes, char *to, const char *from);
void cpu_move_fence(void);
void cpu_make_uniform(const cpu_uniform *u, int64_t n, uint64_t number, uint64_t step, double *to);
void cpu_round_f16(int64_t n, float *x);
void cpu_round_bf16(int64_t n, float *x);
void cpu_row_softmax_f32(int64_t n, const void *x, void *y);
void cpu_row_softmax_f64(int64_t n, const void *x, void *y);
void cpu_row_weigh_f32(int64_t n, void *x, double scale, void *state, void *factor);
void cpu_row_weigh_f64(int64_t n, void *x, double scale, void *state, void *factor);
void cpu_row_normalize_f32(int64_t n, const void *x, double mean, double scale, const void *weight,
                           const void *bias, void *y);
void cpu_row_normalize_bf16(int64_t n, const void *x, double mean, double scale, const void *weight,
                            const void *bias, void *y);
void cpu_row_normalize_f64(int64_t n, const void *x, double mean, double scale, const void *weight,
                           const void *bias, void *y);

#endif
