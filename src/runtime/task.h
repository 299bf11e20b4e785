/* Reads a task of a plan: operands, attributes with their defaults, and the places that operations which only move
 * elements read from. Devices use it when they prepare kernels. */
#ifndef WEIR_RUNTIME_TASK_H
#define WEIR_RUNTIME_TASK_H

#include "runtime/plan.h"

/* ---- operands ---- */
bool rt_task_has_operand(const rt_task *t, uint32_t k);
/* A number is a view of rank 0, f64 or i64. */
rt_view rt_task_operand(const rt_plan *plan, const rt_task *t, uint32_t k);
/* Was operand k cut along result dimension d already? Then positions along d count from its start. */
bool rt_task_sliced(const rt_task *t, uint32_t k, uint32_t d);

/* Do all of its results have no elements? */
bool rt_task_is_empty(const rt_plan *plan, const rt_task *t);

/* ---- attributes by name, with the defaults of the table ---- */
const rt_attr *rt_task_attr(const rt_task *t, const char *name);
int64_t rt_task_int(const rt_task *t, const char *name);
ir_number rt_task_number(const rt_task *t, const char *name);
/* A dimension of `rank`, counted from the front. */
uint32_t rt_task_dim(const rt_task *t, const char *name, uint32_t rank);
/* Which of `rank` dimensions the list names; all when it was left out. */
void rt_task_dims(const rt_task *t, const char *name, uint32_t rank, bool named[IR_MAX_RANK]);

/* ---- operations that see their operand in another shape ---- */
enum { RT_NO_DIM = -1 };
/* Is it a broadcast, squeeze, permute or transpose? */
bool rt_task_moves_dims(const rt_task *t);
/* For these operations and select: from[d] is the dimension of the operand (which has `rank`) that becomes
 * dimension d of the result; RT_NO_DIM: none, the operand is repeated along d. */
void rt_task_from(const rt_task *t, uint32_t rank, int from[IR_MAX_RANK]);
/* What a select of x reads; STATUS_BAD_PROGRAM if there is no such position. */
NODISCARD status rt_task_selected(const rt_task *t, const rt_view *x, uint32_t *dim,
                                  int64_t *index);
/* Of a slice of x: its step along d, and the position that its window, which begins at `offset`, reads
 * first. A dimension that was cut already is one that the slice keeps whole. */
int64_t rt_task_slice_step(const rt_task *t, uint32_t d);
int64_t rt_task_slice_start(const rt_task *t, const rt_view *x, uint32_t d, int64_t offset);

/* ---- placing: operands as the positions of the result see them (task_place.c) ---- */
/* Where the result begins in the whole, and the whole's extents: 0 and the result's own extents where the task
 * has no window. */
void rt_task_window(const rt_plan *plan, const rt_task *t, int64_t offset[IR_MAX_RANK],
                    int64_t whole[IR_MAX_RANK]);
/* The first `n` dimensions of an operand, aligned at the last of the first `dims` of the result: as NumPy
 * broadcasts. */
void rt_align(uint32_t n, uint32_t dims, int from[IR_MAX_RANK]);
/* The same, except that dimension `at` of the result is dimension `dim` of the operand. */
void rt_align_with(uint32_t n, uint32_t dims, uint32_t at, uint32_t dim, int from[IR_MAX_RANK]);
/* The strides by which operand k is read along the dimensions of the result: result dimension d is its dimension
 * from[d]; RT_NO_DIM, or a dimension of size 1: it is repeated. Returns the element of the operand at which the
 * result's window begins. */
int64_t rt_task_place(const rt_plan *plan, const rt_task *t, uint32_t k, const int *from,
                      int64_t strides[IR_MAX_RANK]);
/* The row-major numbers of the result's positions in the whole, as strides; returns the first one. Dimensions
 * in `cut` count from the window's start, as if it were the whole there. */
int64_t rt_task_place_numbers(const rt_plan *plan, const rt_task *t, uint32_t cut,
                              int64_t strides[IR_MAX_RANK]);

/* Of attention: do k and v have fewer heads, but more than one, so that each serves several of q? */
bool rt_task_has_groups(const rt_plan *plan, const rt_task *t);
/* The same task in a plan of its own, with two head dimensions, so that k and v are repeated along the second:
 *     q[b, 8, L, E], k[b, 2, S, E]  =>  q[b, 2, 4, L, E], k[b, 2, 1, S, E]
 * A result or operand has at most IR_MAX_RANK - 1 axes. */
NODISCARD status rt_task_group_heads(const rt_plan *plan, const rt_task *t, arena *memory,
                                     rt_plan *made, rt_task *grouped);

/* STATUS_BAD_PROGRAM: "gather: index 7 is outside axis 0, which has 3 elements". */
status rt_fail_index(const char *op, int64_t index, uint32_t dim, int64_t n);

/* ---- sharing kernels ---- */
/* Do two tasks of a plan differ only in where their views begin, in any repetition of a loop, and there by multiples of
 * `modulus_bytes`, a power of two? Equal tasks have equal hashes. */
bool rt_task_equal(const rt_plan *plan, const rt_task *a, const rt_task *b, int64_t modulus_bytes);
uint64_t rt_task_hash(const rt_plan *plan, const rt_task *t, int64_t modulus_bytes);

#endif
