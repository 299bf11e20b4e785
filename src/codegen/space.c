/* Spaces of few dimensions, the positions in them as text, and how wide memory may be read. */
#include <stdlib.h>
#include <string.h>

#include "codegen/internal.h"

/* ---- collapsing ---- */
static void copy_dim(cg_space *to, uint32_t d, const cg_space *from, uint32_t e) {
  to->extents[d] = from->extents[e];
  for (uint32_t v = 0; v < to->n_views; v++) to->strides[v][d] = from->strides[v][e];
}

/* Does dimension a belong outside of b? The first view in which their strides differ decides. */
static bool goes_outside(const cg_space *s, uint32_t a, uint32_t b) {
  for (uint32_t v = 0; v < s->n_views; v++) {
    int64_t sa = llabs(s->strides[v][a]), sb = llabs(s->strides[v][b]);
    if (sa != sb) return sa > sb;
  }
  return false;
}

static void sort_dims(cg_space *s) {
  for (uint32_t d = 1; d < s->rank; d++) {
    cg_space old = *s;
    uint32_t to = d;
    while (to > 0 && goes_outside(&old, d, to - 1)) to--;
    for (uint32_t e = to; e < d; e++) copy_dim(s, e + 1, &old, e);
    copy_dim(s, to, &old, d);
  }
}

/* Is one step of the outer dimension as far as the whole inner one, in every view? */
static bool can_merge(const cg_space *s, uint32_t outer, uint32_t inner) {
  for (uint32_t v = 0; v < s->n_views; v++)
    if (s->strides[v][outer] != s->strides[v][inner] * s->extents[inner]) return false;
  return true;
}

static void merge_dims(cg_space *s) {
  uint32_t last = 0;
  for (uint32_t d = 1; d < s->rank; d++) {
    int64_t outer = s->extents[last];
    bool merges = can_merge(s, last, d);
    if (!merges) last++;
    copy_dim(s, last, s, d);
    if (merges) s->extents[last] *= outer;
  }
  s->rank = last + 1;
}

/* Rounds the rank up by dimensions of size 1 in front: few different ranks mean few texts. */
static void round_rank(cg_space *s) {
  uint32_t rank = s->rank <= 2 ? s->rank : s->rank <= 4 ? 4 : s->rank <= 8 ? 8 : IR_MAX_RANK;
  cg_space old = *s;
  uint32_t more = rank - s->rank;
  for (uint32_t d = 0; d < old.rank; d++) copy_dim(s, more + d, &old, d);
  for (uint32_t d = 0; d < more; d++) {
    s->extents[d] = 1;
    for (uint32_t v = 0; v < s->n_views; v++) s->strides[v][d] = 0;
  }
  s->rank = rank;
}

void cg_space_make(cg_space *s, const int64_t *extents, uint32_t begin, uint32_t end,
                   const cg_view *const *views, uint32_t n_views, bool sorted) {
  check(n_views <= CG_MAX_VIEWS);
  memset(s, 0, sizeof *s);
  s->n_views = n_views;
  for (uint32_t d = begin; d < end; d++) {
    if (extents[d] == 1) continue;
    s->extents[s->rank] = extents[d];
    for (uint32_t v = 0; v < n_views; v++) s->strides[v][s->rank] = views[v]->strides[d];
    s->rank++;
  }
  if (s->rank == 0) { /* a single position counts as dense */
    s->extents[s->rank++] = 1;
    for (uint32_t v = 0; v < n_views; v++) s->strides[v][0] = 1;
  }
  if (sorted) sort_dims(s);
  merge_dims(s);
  round_rank(s);
}

int64_t cg_space_count(const cg_space *s) {
  int64_t n = 1;
  for (uint32_t d = 0; d < s->rank; d++) n *= s->extents[d];
  return n;
}

int64_t cg_space_reach(const cg_space *s) {
  int64_t most = cg_space_count(s);
  for (uint32_t v = 0; v < s->n_views; v++) {
    int64_t reach = 0;
    for (uint32_t d = 0; d < s->rank; d++) reach += llabs(s->strides[v][d]) * s->extents[d];
    if (reach > most) most = reach;
  }
  return most;
}

/* ---- positions ---- */
/* n / d == (high half of n * factor + n) >> shift for all n below 2^31. */
int64_t cg_magic_of(int64_t divisor) {
  uint64_t d = divisor > 0 ? (uint64_t)divisor : 1, shift = 0; /* 0: never divided by */
  while (UINT64_C(1) << shift < d) shift++;
  uint64_t factor = ((UINT64_C(1) << 32) * ((UINT64_C(1) << shift) - d)) / d + 1;
  return (int64_t)(shift << 32 | (factor & UINT32_MAX));
}

static const char *quotient(cg_writer *w, int64_t extent, const char **extent_text) {
  *extent_text = cg_number_text(w, extent);
  if (w->wide) return cg_text(w, "r / %s", *extent_text);
  return cg_text(w, "weir_div(r, n.at[%u])", cg_number(w, cg_magic_of(extent)));
}

static void put_walk(cg_writer *w, const cg_space *s, uint32_t d, const char *const *names) {
  for (uint32_t v = 0; v < s->n_views; v++)
    if (names[v]) cg_line(w, "    %s += i * %s;\n", names[v], cg_number_text(w, s->strides[v][d]));
}

void cg_put_offsets(cg_writer *w, const cg_space *s, const char *item, const char *const *names,
                    const char *last, int64_t last_extent) {
  cg_line(w, "  {\n    ix r = %s;\n", item);
  for (uint32_t d = s->rank; d-- > 0;) {
    const char *extent;
    bool inner = d + 1 == s->rank && last;
    cg_line(w, "    {\n");
    if (d == 0) cg_line(w, "    const ix i = r;\n");
    else {
      cg_line(w, "    const ix q = %s;\n",
              quotient(w, inner ? last_extent : s->extents[d], &extent));
      cg_line(w, "    const ix i = r - q * %s;\n    r = q;\n", extent);
    }
    if (inner) cg_line(w, "    %s = i;\n", last);
    else put_walk(w, s, d, names);
    cg_line(w, "    }\n");
  }
  cg_line(w, "  }\n");
}

void cg_set_offsets(cg_writer *w, const cg_space *s, const char *item, const char *const *names) {
  strbuf body = cg_apart_begin(w);
  cg_put_offsets(w, s, item, names, NULL, 0);
  cg_set(w, "offsets", cg_apart_end(w, body));
}

/* ---- vectors ---- */
uint32_t cg_widest(size_t smallest_bytes, size_t largest_bytes) {
  size_t width = 16 / smallest_bytes;
  while (width * largest_bytes > 64) width /= 2;
  return (uint32_t)width;
}

static bool aligned(int64_t bytes, int64_t unit) { return bytes % unit == 0; }

static bool fits(const cg_view *v, const cg_space *s, uint32_t view, uint32_t rank, int64_t width) {
  int64_t size = (int64_t)ir_dtype_size_bytes(v->dtype), bytes = width * size;
  int64_t unit = bytes < CG_ALIGN ? bytes : CG_ALIGN;
  if ((int64_t)v->align % unit != 0 || !aligned(v->offset_bytes, unit)) return false;
  for (uint32_t d = 0; d < rank; d++)
    if (s->extents[d] > 1 && !aligned(s->strides[view][d] * size, unit)) return false;
  return true;
}

bool cg_rows_aligned(const cg_view *v, const cg_space *s, uint32_t view, uint32_t width) {
  return fits(v, s, view, s->rank, width);
}

uint32_t cg_vector_width(const cg_view *v, const cg_space *s, uint32_t view, uint32_t most) {
  uint32_t width = most;
  int64_t step = cg_space_step(s, view);
  if (step == 0 && cg_space_run(s) > 1) return most;
  if (step != 1) return 1;
  while (width > 1 && (!fits(v, s, view, s->rank - 1, width) || width > cg_space_run(s)))
    width /= 2;
  return width;
}

typedef struct word {
  const char *type;
  size_t count;
} word;

static word word_of(ir_dtype t, uint32_t width) {
  size_t bytes = ir_dtype_size_bytes(t) * width;
  if (bytes >= 16) return (word){"uint4", bytes / 16};
  if (bytes == 8) return (word){"uint2", 1};
  if (bytes == 4) return (word){"unsigned", 1};
  return (word){bytes == 2 ? "unsigned short" : "unsigned char", 1};
}

void cg_put_vector(cg_writer *w, const char *name, ir_dtype t, uint32_t width) {
  word x = word_of(t, width);
  bool pairs = ir_dtype_size_bytes(t) == 2 && width > 1;
  cg_line(w, "  typedef union { %s w[%zu]; %s e[%u]; ", x.type, x.count, cg_storage(t), width);
  if (pairs) cg_line(w, "unsigned h[%u]; ", width / 2);
  cg_line(w, "} %s;\n", name);
}

void cg_put_vector_load(cg_writer *w, ir_dtype t, uint32_t width, const char *to,
                        const char *from) {
  word x = word_of(t, width);
  for (size_t i = 0; i < x.count; i++)
    cg_line(w, "    %s.w[%zu] = ((const %s *)(%s))[%zu];\n", to, i, x.type, from, i);
}

void cg_put_vector_stream(cg_writer *w, ir_dtype t, uint32_t width, const char *to,
                          const char *from) {
  word x = word_of(t, width);
  for (size_t i = 0; i < x.count; i++)
    cg_line(w, "    %s.w[%zu] = __ldcs((const %s *)(%s) + %zu);\n", to, i, x.type, from, i);
}

void cg_put_vector_store(cg_writer *w, ir_dtype t, uint32_t width, const char *to,
                         const char *from) {
  word x = word_of(t, width);
  for (size_t i = 0; i < x.count; i++)
    cg_line(w, "    ((%s *)(%s))[%zu] = %s.w[%zu];\n", x.type, to, i, from, i);
}
