/* The host program: lanes of streams, statements from top to bottom, communications beside them. */
#include <string.h>

#include "draw/internal.h"
#include "text/text.h"

enum { NARROW = 150, WIDE = 560, ROW = 24, BOX = 20, INDENT = 10, MOST_ROWS = 400, MOST_LANES = 8 };

/* The place in the picture at which a communication of that name was last posted. */
typedef struct posted {
  uint32_t name;
  double y;
} posted;

typedef struct lanes {
  draw_picture *p;
  const char *names[MOST_LANES]; /* of streams; the first is where the program is called */
  uint32_t n, current;
  uint32_t rows, depth;
  double lane, comm; /* as wide as the longest text needs */
  double top;
  VEC(posted) posts;
} lanes;

static double lane_x(const lanes *l, uint32_t lane) {
  return DRAW_MARGIN + (double)lane * (l->lane + DRAW_MARGIN);
}

/* "h <- kernel(x, up): matmul, gelu" */
static void put_joined(const lanes *l, const ir_instr_data *d, strbuf *text) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < d->body.len; i++) {
    const ir_instr_data *step = ir_instr_at(l->p->host, d->body.data[i]);
    if (step->kind != IR_COMPUTE) continue;
    const ir_op_data *op = ir_op_at(l->p->host, step->op);
    strbuf_printf(text, "%s%s", n++ ? ", " : ": ", ir_op_info_of(op->code)->name);
  }
}

/* The statement on a line, and all of it. */
static const char *words_of(const lanes *l, ir_instr i) {
  strbuf text;
  strbuf_init(&text, l->p->scratch);
  text_print_instr(l->p->host, i, &text);
  const ir_instr_data *d = ir_instr_at(l->p->host, i);
  if (d->kind == IR_LAUNCH) put_joined(l, d, &text);
  return text.data;
}

static const char *all_of(const lanes *l, ir_instr i) {
  strbuf text;
  strbuf_init(&text, l->p->scratch);
  text_print_kernel(l->p->host, i, &text);
  return text.data;
}

/* ---- which lanes there are ---- */
static const char *stream_text(const lanes *l, const ir_stream *s) {
  int64_t index;
  if (s->name) return ir_name_text(l->p->host, s->name);
  if (!ir_scalar_is_const(&l->p->host->module->scalars, s->index, &index)) return "worker streams";
  return arena_printf(l->p->scratch, "stream %lld", (long long)index);
}

/* Streams by an index of a loop share a lane, and so do more streams than there are lanes. */
static uint32_t lane_of(lanes *l, const ir_stream *s) {
  const char *text = stream_text(l, s);
  for (uint32_t i = 0; i < l->n; i++)
    if (strcmp(l->names[i], text) == 0) return i;
  if (l->n < MOST_LANES) l->names[l->n++] = text;
  return l->n - 1;
}

static void widen(const lanes *l, double *width, ir_instr i) {
  double w = draw_text_width(words_of(l, i)) + 24 + (double)l->depth * INDENT * 2;
  if (w > *width) *width = w < WIDE ? w : WIDE;
}

// NOLINTNEXTLINE(misc-no-recursion): as deep as loops are nested
static void find_lanes(lanes *l, const ir_block *block) {
  for (uint32_t i = 0; i < block->len; i++) {
    const ir_instr_data *d = ir_instr_at(l->p->host, block->data[i]);
    if (d->kind == IR_CURRENT_STREAM && l->n == 1 && d->stream.name)
      l->names[0] = ir_name_text(l->p->host, d->stream.name);
    if (d->kind == IR_SET_STREAM || d->kind == IR_WAIT_STREAM) (void)lane_of(l, &d->stream);
    if (d->kind == IR_COMPUTE || d->kind == IR_LAUNCH) widen(l, &l->lane, block->data[i]);
    if (d->kind == IR_COMMUNICATE) widen(l, &l->comm, block->data[i]);
    if (d->kind == IR_FOR || d->kind == IR_IF) {
      l->depth++;
      find_lanes(l, &d->body);
      find_lanes(l, &d->otherwise);
      l->depth--;
    }
  }
}

/* ---- statements ---- */
static double next_row(lanes *l) {
  double y = l->p->y;
  l->p->y += ROW;
  l->rows++;
  return y;
}

static double box_x(const lanes *l, uint32_t lane) {
  return lane_x(l, lane) + 6 + (double)l->depth * INDENT;
}
static double box_width(const lanes *l) { return l->lane - 12 - (double)l->depth * INDENT * 2; }

static void draw_box(lanes *l, const char *class, double x, double y, double w, ir_instr i) {
  draw_rect(l->p, class, x, y, w, BOX);
  draw_titled_text(l->p, "", x + 5, y + 14, w - 10, words_of(l, i), all_of(l, i));
}

static void draw_statement(lanes *l, ir_instr i) {
  double y = next_row(l);
  draw_box(l, "compute", box_x(l, l->current), y, box_width(l), i);
}

/* ---- communications ---- */
static double comm_x(const lanes *l) { return lane_x(l, l->n); }

static void draw_post(lanes *l, const ir_instr_data *d, ir_instr i) {
  double y = next_row(l);
  draw_box(l, "communication", comm_x(l) + 6, y, l->comm - 12, i);
  draw_arrow(l->p, "post", box_x(l, l->current), y + BOX / 2.0, comm_x(l) + 6, y + BOX / 2.0);
  posted post = {d->name, y};
  if (d->name) vec_push(l->p->scratch, &l->posts, post);
}

static double posted_at(const lanes *l, uint32_t name) {
  for (uint32_t i = l->posts.len; i-- > 0;)
    if (l->posts.data[i].name == name) return l->posts.data[i].y;
  return -1;
}

/* A bar from the post down to the wait: it is under way meanwhile. */
static void draw_wait(lanes *l, const ir_instr_data *d, ir_instr i) {
  double y = next_row(l), from = posted_at(l, d->name);
  draw_box(l, "wait", box_x(l, l->current), y, box_width(l), i);
  double right = box_x(l, l->current) + box_width(l), x = comm_x(l) + 12;
  if (from >= 0 && y > from + BOX)
    draw_rect(l->p, "communication", x, from + BOX, 5, y - from - ROW + 14);
  if (from >= 0) draw_arrow(l->p, "done", x, y + BOX / 2.0, right, y + BOX / 2.0);
}

/* ---- streams ---- */
static void draw_order(lanes *l, const ir_instr_data *d) {
  uint32_t from = lane_of(l, &d->stream);
  double y = next_row(l);
  double x0 = from < l->current ? lane_x(l, from) + l->lane - 6 : lane_x(l, from) + 6;
  double x1 = from < l->current ? lane_x(l, l->current) + 6 : lane_x(l, l->current) + l->lane - 6;
  if (from != l->current) draw_arrow(l->p, "order", x0, y + BOX / 2.0, x1, y + BOX / 2.0);
  draw_cut_text(l->p, "small", box_x(l, l->current) + 10, y + 8, box_width(l),
                arena_printf(l->p->scratch, "after %s", l->names[from]));
}

/* ---- blocks ---- */
static void draw_block(lanes *l, const ir_block *block);

/* "for i in 3 [stream] {": without the bracket. */
static const char *head_of(const lanes *l, ir_instr i) {
  strbuf text;
  strbuf_init(&text, l->p->scratch);
  text_print_instr(l->p->host, i, &text);
  size_t n = strcspn(text.data, "{\n");
  while (n > 0 && text.data[n - 1] == ' ') n--;
  return arena_printf(l->p->scratch, "%.*s", (int)n, text.data);
}

// NOLINTNEXTLINE(misc-no-recursion): as deep as loops are nested
static void draw_nested(lanes *l, const ir_instr_data *d, ir_instr i) {
  double top = next_row(l), x = DRAW_MARGIN - 6 + (double)l->depth * INDENT / 2;
  draw_text(l->p, "head", box_x(l, 0), top + 14, head_of(l, i));
  l->depth++;
  uint32_t before = l->current;
  draw_block(l, &d->body);
  if (d->otherwise.len) {
    draw_text(l->p, "head", box_x(l, 0), next_row(l) + 14, "else");
    l->current = before;
    draw_block(l, &d->otherwise);
  }
  l->depth--;
  draw_rect(l->p, "frame", x, top - 2, comm_x(l) + l->comm + 6 - (double)l->depth * INDENT / 2 - x,
            l->p->y - top);
  l->p->y += 6;
}

// NOLINTNEXTLINE(misc-no-recursion): as deep as loops are nested
static void draw_instr(lanes *l, ir_instr i) {
  const ir_instr_data *d = ir_instr_at(l->p->host, i);
  switch (d->kind) {
  case IR_COMPUTE:
  case IR_LAUNCH: draw_statement(l, i); break;
  case IR_COMMUNICATE: draw_post(l, d, i); break;
  case IR_GROUP_END: {
    posted group = {d->name, l->p->y - ROW};
    vec_push(l->p->scratch, &l->posts, group);
    break;
  }
  case IR_WAIT: draw_wait(l, d, i); break;
  case IR_SET_STREAM: l->current = lane_of(l, &d->stream); break;
  case IR_WAIT_STREAM: draw_order(l, d); break;
  case IR_FOR:
  case IR_IF: draw_nested(l, d, i); break;
  /* What only names memory takes no time. */
  case IR_ALLOCATE:
  case IR_DEALLOCATE:
  case IR_CURRENT_STREAM:
  case IR_SELECT:
  case IR_SHARD:
  case IR_VIEW:
  case IR_GROUP_START: break;
  }
}

// NOLINTNEXTLINE(misc-no-recursion): as deep as loops are nested
static void draw_block(lanes *l, const ir_block *block) {
  for (uint32_t i = 0; i < block->len && l->rows < MOST_ROWS; i++) draw_instr(l, block->data[i]);
}

/* ---- the whole ---- */
static void draw_heads(lanes *l, double height) {
  for (uint32_t i = 0; i <= l->n; i++) {
    bool comm = i == l->n;
    draw_rect(l->p, "lane", lane_x(l, i), l->top, comm ? l->comm : l->lane, height);
    draw_text(l->p, "head", lane_x(l, i) + 6, l->top - 6, comm ? "communications" : l->names[i]);
  }
}

/* Lanes are drawn below their content, and are as long as it turns out to be: the content is made
 * first and put after them. */
void draw_lanes(draw_picture *p) {
  strbuf *out = p->out, inner;
  lanes l = {.p = p, .names = {"main stream"}, .n = 1, .lane = NARROW, .comm = NARROW};
  find_lanes(&l, &p->host->host->body);
  strbuf_init(&inner, p->scratch);
  p->y += 18;
  l.top = p->y;
  p->y += 6;
  p->out = &inner;
  draw_block(&l, &p->host->host->body);
  if (l.rows >= MOST_ROWS) draw_text(p, "small", DRAW_MARGIN, p->y + 14, "and so on");
  p->out = out;
  draw_heads(&l, p->y - l.top + 4);
  strbuf_add(out, inner.data, inner.len);
}
