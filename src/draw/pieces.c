/* Meshes as grids of devices, and tensors as the pieces that devices hold. */
#include <string.h>

#include "draw/internal.h"
#include "runtime/piece.h"

enum { CELL = 30, HEIGHT = 110, WIDTH = 190, GAP = 28, TEXTS = 48, BESIDE = 80, MOST_DEVICES = 64 };

/* ---- rows of drawings ---- */
/* A place of that width, in the row that began at *x or in the next. */
static double place(draw_picture *p, double *x, double w, double row) {
  if (*x > DRAW_MARGIN && *x + w > DRAW_MOST) {
    *x = DRAW_MARGIN;
    p->y += row;
  }
  double at = *x;
  *x += w + GAP;
  return at;
}

/* ---- meshes ---- */
static void draw_mesh(draw_picture *p, const ir_mesh_data *m, double x) {
  int64_t columns = ir_mesh_size(m, 0);
  draw_text(p, "head", x, p->y + 12,
            arena_printf(p->scratch, "mesh %s", ir_name_text(p->host, m->name)));
  for (int64_t i = 0; i < m->n_devices; i++) {
    int64_t column = i % columns, row = i / columns;
    double left = x + (double)(column * CELL), top = p->y + 20 + (double)(row * CELL);
    draw_device_rect(p, m->devices[i], left, top, CELL, CELL);
    draw_rect(p, "outline", left, top, CELL, CELL);
    draw_text(p, "on", left + CELL / 2.0, top + CELL / 2.0 + 4,
              arena_printf(p->scratch, "%lld", (long long)m->devices[i]));
  }
}

void draw_meshes(draw_picture *p) {
  double x = DRAW_MARGIN, tallest = 0;
  for (uint32_t i = 1; i < p->host->meshes.len; i++) {
    const ir_mesh_data *m = &p->host->meshes.data[i];
    if (m->n_devices > MOST_DEVICES) continue;
    int64_t columns = ir_mesh_size(m, 0), rows = m->n_devices / columns;
    double h = 20 + (double)(rows * CELL) + GAP, w = (double)(columns * CELL);
    draw_mesh(p, m, place(p, &x, w < 80 ? 80 : w, tallest));
    if (h > tallest) tallest = h;
  }
  p->y += tallest;
}

/* ---- tensors ---- */
/* The two dimensions that are shown: those that are cut, or else the last. */
typedef struct shown {
  uint32_t down, across;
  bool flat; /* there is one dimension at most */
} shown;

static bool is_cut(const rt_piece *pieces, uint32_t n, uint32_t d) {
  for (uint32_t i = 0; i < n; i++)
    if (pieces[i].present && pieces[i].extents[d] != pieces[i].whole[d]) return true;
  return false;
}

static shown choose(const rt_piece *pieces, uint32_t n, uint32_t rank) {
  if (rank < 2) return (shown){0, 0, true};
  shown s = {rank - 2, rank - 1, false};
  for (uint32_t d = 0; d + 2 < rank; d++)
    if (is_cut(pieces, n, d)) {
      if (is_cut(pieces, n, rank - 2) && !is_cut(pieces, n, rank - 1)) s.across = rank - 2;
      s.down = d;
      return s;
    }
  return s;
}

/* From `begin` to its end along one dimension, as parts of `length`. */
typedef struct range {
  double at, length;
} range;

static range along(const rt_piece *p, uint32_t d, double length) {
  double whole = p->whole[d] > 0 ? (double)p->whole[d] : 1;
  return (range){(double)rt_piece_begin(p, d) / whole * length,
                 (double)p->extents[d] / whole * length};
}

/* A device that holds the same as `first`, from `i` on; n: there is none. */
static uint32_t next_holder(const rt_piece *pieces, uint32_t n, uint32_t first, uint32_t i) {
  while (i < n && (!pieces[i].present || pieces[i].owner != pieces[first].owner)) i++;
  return i;
}

/* Devices that hold the same are named together, and have a stripe each. */
static void draw_holders(draw_picture *p, const rt_piece *pieces, uint32_t n, uint32_t first,
                         range x, range y) {
  strbuf names;
  strbuf_init(&names, p->scratch);
  uint32_t holders = 0, k = 0;
  for (uint32_t i = first; (i = next_holder(pieces, n, first, i)) < n; i++) {
    strbuf_printf(&names, names.len ? " %u" : "%u", i);
    holders++;
  }
  double stripe = x.length / (double)holders;
  for (uint32_t i = first; (i = next_holder(pieces, n, first, i)) < n; i++, k++)
    draw_device_rect(p, i, x.at + (double)k * stripe, y.at, stripe, y.length);
  draw_rect(p, "outline", x.at, y.at, x.length, y.length);
  draw_text(p, "on", x.at + x.length / 2, y.at + y.length / 2 + 4, names.data);
}

static void draw_piece(draw_picture *p, const rt_piece *pieces, uint32_t n, uint32_t i, shown s,
                       double x, double y) {
  range across = {0, WIDTH}, down = {0, HEIGHT};
  if (pieces[i].rank > 0) across = along(&pieces[i], s.across, WIDTH);
  if (!s.flat) down = along(&pieces[i], s.down, HEIGHT);
  if (s.flat) down.length = HEIGHT / 3.0;
  across.at += x;
  down.at += y;
  draw_holders(p, pieces, n, i, across, down);
}

static void put_extents(strbuf *out, const int64_t *extents, uint32_t rank) {
  for (uint32_t d = 0; d < rank; d++)
    strbuf_printf(out, d ? ", %lld" : "[%lld", (long long)extents[d]);
  strbuf_putc(out, ']');
}

/* "bf16[6, 32]", and below it "each [6, 16]", of the first that holds some. */
static void draw_type(draw_picture *p, ir_tensor t, const rt_piece *piece, double x, double y) {
  bool whole = memcmp(piece->extents, piece->whole, piece->rank * sizeof *piece->whole) == 0;
  strbuf text, part;
  strbuf_init(&text, p->scratch);
  strbuf_init(&part, p->scratch);
  strbuf_puts(&text, ir_dtype_text(ir_tensor_at(p->host, t)->dtype));
  if (piece->rank) put_extents(&text, piece->whole, piece->rank);
  strbuf_puts(&part, whole ? "each has all of it" : "each ");
  if (!whole) put_extents(&part, piece->extents, piece->rank);
  draw_cut_text(p, "", x, y - 21, WIDTH + GAP, text.data);
  draw_cut_text(p, "", x, y - 7, WIDTH + GAP, part.data);
}

/* Draws each piece once, at its owner. Of a piece of many ranges the first is drawn, and a note says so. */
static void draw_pieces(draw_picture *p, ir_tensor t, const rt_piece *pieces, uint32_t n, double x,
                        double y) {
  shown s = {0};
  bool scattered = false, chosen = false;
  for (uint32_t i = 0; i < n; i++) {
    if (!pieces[i].present || pieces[i].owner != (int64_t)i) continue;
    if (!chosen) {
      s = choose(pieces, n, pieces[i].rank);
      draw_type(p, t, &pieces[i], x, y);
    }
    chosen = true;
    scattered = scattered || !pieces[i].is_box;
    draw_piece(p, pieces, n, i, s, x, y);
  }
  if (scattered) draw_text(p, "small", x, y + HEIGHT + 14, "pieces repeat: the first is shown");
}

static uint32_t count_devices(const ir_func *h) {
  int64_t most = 0;
  for (uint32_t i = 1; i < h->meshes.len; i++)
    for (int64_t k = 0; k < h->meshes.data[i].n_devices; k++)
      if (h->meshes.data[i].devices[k] > most) most = h->meshes.data[i].devices[k];
  return (uint32_t)most + 1;
}

static void draw_tensor(draw_picture *p, ir_tensor t, const char *what, double *x) {
  uint32_t n = count_devices(p->host);
  if (n > MOST_DEVICES) return;
  rt_piece *pieces = ARENA_ARRAY(p->scratch, n, rt_piece);
  bool any = false;
  for (uint32_t i = 0; i < n; i++) {
    if (!rt_piece_of(p->host, p->env, t, (int64_t)i, &pieces[i])) return;
    any = any || pieces[i].present;
  }
  if (!any) return;
  double left = place(p, x, WIDTH, HEIGHT + BESIDE);
  draw_text(p, "head", left, p->y + 12,
            arena_printf(p->scratch, "%s %s", what, ir_tensor_name(p->host, t)));
  draw_pieces(p, t, pieces, n, left, p->y + TEXTS);
}

static bool is_listed(const ir_tensor *list, uint32_t n, ir_tensor t) {
  for (uint32_t i = 0; i < n; i++)
    if (IR_SAME(list[i], t)) return true;
  return false;
}

/* Inputs, what is computed on the way, outputs. */
void draw_tensors(draw_picture *p) {
  const ir_func *h = p->host;
  double x = DRAW_MARGIN;
  if (h->meshes.len < 2) return;
  for (uint32_t i = 0; i < h->inputs.len; i++) draw_tensor(p, h->inputs.data[i], "input", &x);
  for (uint32_t i = 0; i < h->host->body.len; i++) {
    const ir_instr_data *d = ir_instr_at(h, h->host->body.data[i]);
    if (d->kind == IR_ALLOCATE && !is_listed(h->outputs.data, h->outputs.len, d->tensor))
      draw_tensor(p, d->tensor, "buffer", &x);
  }
  for (uint32_t i = 0; i < h->outputs.len; i++)
    if (!is_listed(h->inputs.data, h->inputs.len, h->outputs.data[i]))
      draw_tensor(p, h->outputs.data[i], "output", &x);
  if (x > DRAW_MARGIN) p->y += HEIGHT + BESIDE;
}
