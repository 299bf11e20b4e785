/* What the writers of kernels share.
 *
 * A kernel's text is made of templates: pieces of CUDA C with $names in them, which cg_put() replaces,
 * and of lines that a writer adds itself. While writing, positions are of type `ix` (int, or long long
 * where offsets need it), n.at[i] is a number and p.at[i] an address. */
#ifndef WEIR_CODEGEN_INTERNAL_H
#define WEIR_CODEGEN_INTERNAL_H

#include "base/strbuf.h"
#include "base/vec.h"
#include "codegen/codegen.h"

/* ---- text (writer.c) ---- */
typedef struct cg_pair {
  const char *name, *value;
} cg_pair;

typedef struct cg_writer {
  arena *memory;
  strbuf body;
  VEC(int64_t) numbers;
  VEC(cg_pointer) pointers;
  VEC(cg_pair) names; /* the values that cg_set() gave; the last one of a name counts */
  bool wide;          /* positions need 64 bits */
  uint32_t block;
  uint32_t shared_bytes; /* as in cg_launch */
  uint32_t resident;     /* blocks that a multiprocessor must have room for; 0: any number */
} cg_writer;

void cg_begin(cg_writer *w, arena *memory, bool wide, uint32_t block);
/* Closes the kernel and adds the launch. `name`: what the entry is called before its hash. */
void cg_end(cg_writer *w, cg_kernel *k, const char *name, int64_t grid_x, int64_t grid_y);

/* Adds a number or an address; the result is its place in n.at or p.at. */
uint32_t cg_number(cg_writer *w, int64_t value);
uint32_t cg_address(cg_writer *w, const cg_view *v);
uint32_t cg_error_address(cg_writer *w);
/* As text: random stream `number`, as weir_drawn() takes it. */
const char *cg_key_text(cg_writer *w, int64_t number);
/* Adds the address of error record number `record` of the task. */
uint32_t cg_error_record(cg_writer *w, uint32_t record);

/* Gives $name a value, from now on: a text, an integer as text, a number of the launch (of type ix), its
 * place in n.at, or the place of an address in p.at. Numbers are placed in the order of these calls: do not
 * make two of them arguments of one call, which C evaluates in any order. */
void cg_set(cg_writer *w, const char *name, const char *value);
void cg_set_int(cg_writer *w, const char *name, int64_t value);
void cg_set_number(cg_writer *w, const char *name, int64_t value);
void cg_set_place(cg_writer *w, const char *name, int64_t value);
void cg_set_address(cg_writer *w, const char *name, const cg_view *v);
/* Appends the template with every $name replaced by its value. */
void cg_put(cg_writer *w, const char *template);
/* What is put between these two calls becomes a text of its own, for cg_set(). */
strbuf cg_apart_begin(cg_writer *w);
const char *cg_apart_end(cg_writer *w, strbuf body);
/* The template with every $name replaced, as a text of its own. */
const char *cg_filled(cg_writer *w, const char *template);
/* Appends as printf does. */
#define cg_line(w, ...) strbuf_printf(&(w)->body, __VA_ARGS__)
/* Adds a number; the result is the text of it, "n.at[3]", for cg_set(). */
const char *cg_number_text(cg_writer *w, int64_t value);
const char *cg_f64_text(cg_writer *w, double value);
const char *cg_text(cg_writer *w, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* The functions that `body` uses (prelude.c); guarded, so that texts may be joined. */
void cg_put_prelude(cg_writer *w, const char *body);
/* The part of it for GPUs of compute capability 9.0 (prelude_90.c). */
extern const char cg_prelude_90[];

/* ---- dtypes in text (types.c) ---- */
/* The type in memory; the native type, in which it is computed (float for f16 and bf16, int for narrow integers). */
const char *cg_storage(ir_dtype t);
const char *cg_native(ir_dtype t);
/* "f", "d", "i" or "l": the native type, in names of functions. */
const char *cg_letter(ir_dtype t);

/* ---- fold.c ---- */
/* The function that folds two accumulators; the value that one starts with. */
const char *cg_fold_name(cg_writer *w, ir_fold fold, ir_dtype acc);
const char *cg_fold_start(ir_fold fold, ir_dtype acc);
/* Those functions for one type; wide: the type in which integers wrap around. */
void cg_put_folds(cg_writer *w, const char *type, const char *wide, const char *letter,
                  bool is_float);
/* The accumulator of sums: f64 for f32 and f64, f32 for f16 and bf16; for integers the same or a wider dtype. */
ir_dtype cg_accumulator(ir_dtype t);
/* "weir_get_bf16": from storage to native. */
const char *cg_get(cg_writer *w, ir_dtype t);
/* "weir_bf16_of_f": from the native type of `from` to the storage of `to`. */
const char *cg_of(cg_writer *w, ir_dtype to, ir_dtype from);
/* `value`, of the native type of `from`, rounded to `to`; the result has the native type of `to`. */
const char *cg_convert(cg_writer *w, ir_dtype to, ir_dtype from, const char *value);
/* Element e of a vector of `width` elements (cg_put_vector), in the native type. */
const char *cg_element(cg_writer *w, ir_dtype t, uint32_t width, const char *vector);
/* The dtype that is used to move all elements of the same size. */
ir_dtype cg_bits(ir_dtype t);

/* ---- spaces (space.c) ---- */
enum { CG_MAX_VIEWS = 48 };

typedef struct cg_space {
  uint32_t rank, n_views; /* rank >= 1 */
  int64_t extents[IR_MAX_RANK];
  int64_t strides[CG_MAX_VIEWS][IR_MAX_RANK];
} cg_space;

/* Dimensions [begin, end) of the views. Dimensions of size 1 are dropped, and neighbours that are one
 * dimension in all views are merged. sorted: the order is free, and the first view's smallest stride
 * comes last. */
void cg_space_make(cg_space *s, const int64_t *extents, uint32_t begin, uint32_t end,
                   const cg_view *const *views, uint32_t n_views, bool sorted);
int64_t cg_space_count(const cg_space *s);
static inline int64_t cg_space_run(const cg_space *s) { return s->extents[s->rank - 1]; }
static inline int64_t cg_space_step(const cg_space *s, uint32_t view) {
  return s->strides[view][s->rank - 1];
}
/* The farthest that any view goes from its start, either way, in elements; at least the number of
 * positions. Beyond CG_NARROW_REACH, which leaves room for the threads after the last item, positions need
 * 64 bits. */
int64_t cg_space_reach(const cg_space *s);
#define CG_NARROW_REACH (INT32_MAX - (1 << 20))

/* Writes lines that split `item`, a row-major number of the space's positions, into coordinates, and
 * add each view's offset to the variable names[v] (NULL: none). If `last` is not NULL, the coordinate
 * of the last dimension, which has `last_extent` positions, becomes the variable `last` and adds no
 * offset. */
void cg_put_offsets(cg_writer *w, const cg_space *s, const char *item, const char *const *names,
                    const char *last, int64_t last_extent);
/* Gives $offsets those lines, for all dimensions. */
void cg_set_offsets(cg_writer *w, const cg_space *s, const char *item, const char *const *names);

/* A divisor as weir_div() takes it, for a number of the launch. */
int64_t cg_magic_of(int64_t divisor);

/* The most elements, up to `most`, that can be loaded at once: the view must be dense along the last
 * dimension (or repeat there), and every row must begin where so many elements are aligned. */
uint32_t cg_vector_width(const cg_view *v, const cg_space *s, uint32_t view, uint32_t most);
/* Can a row that begins at any position of this space be read `width` elements at once? */
bool cg_rows_aligned(const cg_view *v, const cg_space *s, uint32_t view, uint32_t width);
/* The vector width for elements of these sizes: 16 bytes of the smallest, but at most 64 bytes of the largest. */
uint32_t cg_widest(size_t smallest_bytes, size_t largest_bytes);
/* Writes `typedef union { uint4 w[1]; … e[8]; } NAME;`; elements of 16 bits are also in pairs, h. */
void cg_put_vector(cg_writer *w, const char *name, ir_dtype t, uint32_t width);
/* Writes the moves of all words of a vector; `to` and `from` are the union and a pointer to storage,
 * or the other way round. */
void cg_put_vector_load(cg_writer *w, ir_dtype t, uint32_t width, const char *to, const char *from);
/* The same for data that are read only once. */
void cg_put_vector_stream(cg_writer *w, ir_dtype t, uint32_t width, const char *to,
                          const char *from);
void cg_put_vector_store(cg_writer *w, ir_dtype t, uint32_t width, const char *to,
                         const char *from);

static inline int64_t cg_ceildiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* ---- attention (sdpa_tiles.c) ---- */
/* Rows are cut into pieces of 16 bytes, which have so many elements of 16 bits. */
enum { CG_PIECE = 8 };
bool cg_in_pieces(int64_t width, int64_t widest);
/* Does every row of the view begin at a multiple of 16 bytes, and is it dense? */
bool cg_view_in_pieces(const cg_view *v, uint32_t rank);
/* The width of rows in shared memory: a power of two. */
int64_t cg_padded(int64_t width, int64_t least);
/* Sets how the pieces of rows of width `d` are swizzled: rows that share 128 bytes in the same way. */
void cg_set_turn(cg_writer *w, const char *turn, const char *mask, int64_t d);
/* cg_write_sdpa() on tensor cores, if dtypes, widths and strides allow it; otherwise false. */
bool cg_write_sdpa_tiles(cg_kernel *k, const cg_sdpa *s);
/* cg_write_sdpa() with several queries per block, if there are several and they are not wide; otherwise
 * false (sdpa_blocks.c). */
bool cg_write_sdpa_blocks(cg_kernel *k, const cg_sdpa *s);
/* cg_write_sdpa_backward() on tensor cores, if dtypes, widths and strides allow it; otherwise false
 * (sdpa_backward_tiles.c). */
bool cg_write_sdpa_backward_tiles(cg_kernel *k, const cg_sdpa_backward *s);

/* ---- grouped products (grouped.c, grouped_90.c) ---- */
/* The positions along k that belong to a group: from its first to its last one; positions of other groups
 * between them are left out. Needs index, block and K. */
extern const char cg_group_depth[];
/* Sets the names that a block of so many threads needs for groups: where the index is, how many groups there are. */
void cg_set_groups(cg_writer *w, const cg_matmul *m, int threads);
/* cg_write_matmul() for a grouped product on tensor cores, if dtypes, extents and strides allow it;
 * otherwise false. */
bool cg_write_grouped_tiles(cg_kernel *k, const cg_matmul *m);
/* The same on a GPU of compute capability 9.0, without a batch; otherwise false. */
bool cg_write_grouped_90(cg_kernel *k, const cg_matmul *m);

/* ---- sums (reduce.c, scan.c) ---- */
/* cg_write_reduce() with its scratch memory after the first `taken` bytes, a multiple of CG_ALIGN. */
void cg_write_reduce_after(cg_kernel *k, const cg_reduce *r, int64_t taken);
/* cg_write_lines() for cumsum. */
void cg_write_scan(cg_kernel *k, const cg_lines *l);
/* The same for many lines that are interleaved in memory; otherwise false (scan_across.c). */
bool cg_write_scan_across(cg_kernel *k, const cg_lines *l);

/* ---- interleaved rows (across.c) ---- */
/* cg_write_rows() for rows that are nearer to each other in memory than their elements; otherwise false. */
bool cg_write_rows_across(cg_kernel *k, const cg_rows *r);

/* ---- orders (sort.c) ---- */
/* cg_write_lines() for argsort and topk; false if elements are too large for it, or lines too many. */
bool cg_write_sorted(cg_kernel *k, const cg_lines *l);

/* ---- copies across (transpose.c) ---- */
/* Writes a map that only moves the elements of one view, if that is dense along another dimension than
 * the result; otherwise false. `space`: that of the map; views: the result, the source. */
bool cg_write_transposed(cg_kernel *k, const cg_map *m, const cg_space *space);

/* ---- scalar expressions (expression.c) ---- */
/* Writes `type NAME;` and lines that give it the step's value; operands are texts of native values of
 * the step's compute dtype. The value is of the native type of `compute` (int for truths), not rounded
 * yet. */
void cg_put_step(cg_writer *w, const cg_step *step, const char *name,
                 const char *const operands[CG_MAX_OPERANDS]);
/* For a quick uniform: the name of its 32 random bits, of which the first 24 count. */
const char *cg_unit_bits(cg_writer *w, const char *name);
/* How many of the 2^24 values of these bits give a number of dtype t below the limit, or, with
 * `reaches`, at most the limit; these are the smallest values. */
uint32_t cg_units_below(ir_dtype t, double limit, bool reaches);
/* The dtype whose native type that value has. */
ir_dtype cg_step_value(const cg_step *step);

#endif
