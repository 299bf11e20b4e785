/* Places, reasons and placements as text. */
#include <string.h>

#include "explain/internal.h"
#include "text/text.h"

enum { LINE_LIMIT = 100, PLACE_COLUMN = 48 };

const char *explain_name(const explaining *e, ir_tensor t) { return ir_tensor_name(e->f, t); }

/* ---- places ---- */
uint32_t explain_line(explaining *e, loc at) {
  uint32_t line, column;
  if (!at.known || !e->h->module->src.text) return 0;
  source_position(&e->h->module->src, &e->h->module->memory, at.offset, &line, &column);
  return line;
}

void explain_place(explaining *e, loc at) {
  source *src = &e->h->module->src;
  uint32_t line = explain_line(e, at);
  if (line == 0) return;
  const char *text = src->text + src->lines.data[line - 1];
  size_t n = strcspn(text, "\n");
  while (n > 0 && (*text == ' ' || *text == '\t')) text++, n--;
  while (n > 0 && (unsigned char)text[n - 1] <= ' ') n--;
  strbuf_printf(e->out, "%s:%u: ", src->name, line);
  strbuf_add(e->out, text, n < LINE_LIMIT ? n : LINE_LIMIT);
  if (n > LINE_LIMIT) strbuf_puts(e->out, "...");
}

/* ---- reasons ---- */
void explain_sentence(explaining *e, ir_rule rule, uint32_t name, strbuf *out) {
  const char *sentence = ir_rule_info_of(rule)->sentence, *at = strstr(sentence, "%s");
  if (!at) {
    strbuf_puts(out, sentence);
    return;
  }
  strbuf_add(out, sentence, (size_t)(at - sentence));
  strbuf_puts(out, name ? ir_name_text(e->h, name) : "it");
  strbuf_puts(out, at + 2);
}

static void pad_to(strbuf *out, size_t column) {
  size_t begin = out->len;
  while (begin > 0 && out->data[begin - 1] != '\n') begin--;
  strbuf_putc(out, ' ');
  do strbuf_putc(out, ' ');
  while (out->len - begin < column);
}

static void put_indent(strbuf *out, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) strbuf_putc(out, ' ');
}

void explain_chain(explaining *e, uint32_t why, uint32_t indent) {
  /* mutant: why_chain_of_one */
  for (; why; why = ir_why_at(e->f, why)->because) {
    ir_why w = *ir_why_at(e->f, why);
    put_indent(e->out, indent);
    explain_sentence(e, w.rule, w.from, e->out);
    if (explain_line(e, w.at)) pad_to(e->out, PLACE_COLUMN);
    explain_place(e, w.at);
    strbuf_putc(e->out, '\n');
  }
}

/* ---- placements ---- */
void explain_mesh_axis(explaining *e, ir_mesh mesh, uint32_t k) {
  strbuf_puts(e->out, ir_name_text(e->f, ir_mesh_at(e->f, mesh)->name));
  strbuf_puts(e->out,
              ir_mark_text((ir_mark){.kind = IR_MARK_MESH, .mesh_axis = k}) + strlen("mesh"));
}

void explain_cut(explaining *e, const shard_axis *a, ir_mesh mesh, uint32_t k) {
  strbuf *out = e->out;
  int64_t n = ir_mesh_size(ir_mesh_at(e->f, mesh), k);
  switch (a->cut) {
  case SHARD_WHOLE: strbuf_printf(out, "dimension %u, one position each", a->dim); return;
  case SHARD_OUTER: strbuf_printf(out, "dimension %u in %lld ranges", a->dim, (long long)n); return;
  case SHARD_CHUNKS:
    strbuf_printf(out, "dimension %u in ranges of", a->dim);
    for (uint32_t i = 0; i < a->n_chunks; i++)
      strbuf_printf(out, "%s %lld", i ? "," : "", (long long)a->chunks[i]);
    return;
  case SHARD_INNER:
    strbuf_printf(out, "dimension %u, %lld positions in turn", a->dim, (long long)n);
    return;
  case SHARD_MERGED: strbuf_printf(out, "dimension %u merged with others", a->dim); return;
  }
}

static void put_mesh_axis(explaining *e, const shard_placement *p, uint32_t k) {
  const shard_axis *a = &p->axes[k];
  strbuf_puts(e->out, "    ");
  explain_mesh_axis(e, p->mesh, k);
  switch (a->kind) {
  case SHARD_REPLICATED: strbuf_puts(e->out, ": replicated, every device has the same"); break;
  case SHARD_SHARDED:
    strbuf_puts(e->out, ": sharded, ");
    explain_cut(e, a, p->mesh, k);
    if (a->reduced.id) strbuf_puts(e->out, "; partial results are reduced and scattered");
    break;
  case SHARD_PARTIAL:
    strbuf_puts(e->out, ": partial results of each device are reduced; then replicated");
    break;
  }
  strbuf_putc(e->out, '\n');
  if (a->loop.id) explain_chain(e, ir_axis_at(e->f, a->loop)->why, 6);
  if (a->reduced.id && !IR_SAME(a->reduced, a->loop)) {
    strbuf_puts(e->out, "      and the reduction:\n");
    explain_chain(e, ir_axis_at(e->f, a->reduced)->why, 8);
  }
}

/* Which axis of the logical domain a loop axis descends from. */
static uint32_t logical_place(const explaining *e, const ir_domains *d, ir_axis a) {
  for (;;) {
    for (uint32_t i = 0; i < d->logical.len; i++) {
      if (IR_SAME(d->logical.data[i], a)) return i;
    }
    ir_transform def = ir_axis_at(e->f, a)->def;
    if (!def.id) return d->logical.len;
    a = ir_transform_at(e->f, def)->in[0];
  }
}

/* Why a stream axis of f has no loop; NULL: it has one. */
static const ir_unstreamed *unstreamed_at(const explaining *e, ir_axis a) {
  const ir_host *host = e->h->host;
  for (uint32_t i = 0; i < host->unstreamed.len; i++)
    if (IR_SAME(host->unstreamed.data[i].axis, a)) return &host->unstreamed.data[i];
  return NULL;
}

void explain_along(explaining *e, const ir_domains *d, ir_axis a) {
  uint32_t place = logical_place(e, d, a), dim = 0;
  for (uint32_t i = 0; i < place; i++)
    dim += ir_axis_at(e->f, d->logical.data[i])->kind != IR_AXIS_REDUCTION;
  if (ir_axis_at(e->f, a)->kind == IR_AXIS_REDUCTION) strbuf_puts(e->out, "its reduction");
  else strbuf_printf(e->out, "dimension %u", dim);
}

static void put_stream(explaining *e, const ir_domains *d, ir_axis a) {
  const ir_unstreamed *unused = unstreamed_at(e, a);
  strbuf_puts(e->out, unused ? "  marked as a stream along " : "  streamed along ");
  explain_along(e, d, a);
  strbuf_puts(e->out, ", in ");
  ir_print_scalar(e->f, ir_axis_size(e->f, a), e->out);
  strbuf_puts(e->out, unused ? " slices, but made in one piece\n      " : " slices\n");
  if (unused) {
    ir_tensor t = ir_op_at(e->f, unused->source)->result;
    explain_sentence(e, unused->why, ir_tensor_at(e->f, t)->name, e->out);
    strbuf_putc(e->out, '\n');
  }
  explain_chain(e, ir_axis_at(e->f, a)->why, 6);
}

void explain_placement(explaining *e, ir_tensor t) {
  const ir_tensor_data d = *ir_tensor_at(e->f, t);
  shard_placement p;
  shard_placement_of(e->f, t, &p);
  if (d.mesh.id) {
    strbuf_puts(e->out, "  on ");
    text_print_mesh(e->f, d.mesh, e->out);
    strbuf_putc(e->out, '\n');
    explain_chain(e, d.mesh_why, 6);
  }
  for (uint32_t k = 0; k < p.rank; k++) put_mesh_axis(e, &p, k);
  for (uint32_t i = 0; i < d.now.loop.len; i++) {
    if (ir_axis_at(e->f, d.now.loop.data[i])->mark.kind == IR_MARK_STREAM)
      put_stream(e, &d.now, d.now.loop.data[i]);
  }
}
