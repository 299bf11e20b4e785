#include <string.h>

#include "draw/internal.h"

/* The picture may be this wide. */
static void reach(draw_picture *p, double x) {
  if (x + DRAW_MARGIN > p->width) p->width = x + DRAW_MARGIN;
}

static void put_escaped(strbuf *out, const char *text, size_t n) {
  for (size_t i = 0; i < n && text[i]; i++) {
    switch (text[i]) {
    case '<': strbuf_puts(out, "&lt;"); break;
    case '>': strbuf_puts(out, "&gt;"); break;
    case '&': strbuf_puts(out, "&amp;"); break;
    default: strbuf_putc(out, text[i]);
    }
  }
}

void draw_rect(draw_picture *p, const char *class, double x, double y, double w, double h) {
  strbuf_printf(p->out,
                "<rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>\n",
                class, x, y, w, h);
  reach(p, x + w);
}

/* Neighbours differ: steps of the golden angle. */
void draw_device_rect(draw_picture *p, int64_t device, double x, double y, double w, double h) {
  int hue = (int)(device * 137 % 360);
  strbuf_printf(p->out,
                "<rect class=\"piece\" style=\"fill:hsl(%d,65%%,80%%)\" x=\"%.1f\" y=\"%.1f\" "
                "width=\"%.1f\" height=\"%.1f\"/>\n",
                hue, x, y, w, h);
  reach(p, x + w);
}

static void open_text(draw_picture *p, const char *class, double x, double y) {
  strbuf_printf(p->out, "<text class=\"%s\" x=\"%.1f\" y=\"%.1f\">", class, x, y);
}

void draw_text(draw_picture *p, const char *class, double x, double y, const char *text) {
  open_text(p, class, x, y);
  put_escaped(p->out, text, strlen(text));
  strbuf_puts(p->out, "</text>\n");
}

static const double letter = 6.7; /* of the font in the style below, at most */

double draw_text_width(const char *text) { return (double)strcspn(text, "\n") * letter; }

void draw_cut_text(draw_picture *p, const char *class, double x, double y, double w,
                   const char *text) {
  draw_titled_text(p, class, x, y, w, text, text);
}

void draw_titled_text(draw_picture *p, const char *class, double x, double y, double w,
                      const char *text, const char *title) {
  size_t n = strcspn(text, "\n"), room = (size_t)(w / letter);
  bool cut = n > room || text[n];
  if (cut && n >= room) n = room > 1 ? room - 1 : 0;
  open_text(p, class, x, y);
  if (cut || strcmp(text, title) != 0) {
    strbuf_puts(p->out, "<title>");
    put_escaped(p->out, title, strlen(title));
    strbuf_puts(p->out, "</title>");
  }
  put_escaped(p->out, text, n);
  if (cut) strbuf_puts(p->out, "…");
  strbuf_puts(p->out, "</text>\n");
}

void draw_arrow(draw_picture *p, const char *class, double x0, double y0, double x1, double y1) {
  strbuf_printf(p->out,
                "<path class=\"%s\" marker-end=\"url(#head)\" d=\"M%.1f %.1f C%.1f %.1f %.1f %.1f "
                "%.1f %.1f\"/>\n",
                class, x0, y0, (x0 + x1) / 2, y0, (x0 + x1) / 2, y1, x1, y1);
}

/* ---- the whole ---- */
static const char style[] =
    "<style>text{font:11px ui-monospace,monospace;fill:#222}.title{font:600 14px "
    "system-ui,sans-serif}.head{font:600 12px system-ui,sans-serif}.small{font:11px "
    "system-ui,sans-serif;fill:#555}.on{font:11px system-ui,sans-serif;text-anchor:middle}"
    ".paper{fill:#fff}.piece{stroke:none}.outline{fill:none;stroke:#555}.lane{fill:#f5f5f7}"
    ".compute{fill:#cfe3f7;stroke:#3b78b5}.communication{fill:#fbe0c3;stroke:#c9772b}"
    ".wait{fill:none;stroke:#8a8a8a;stroke-dasharray:3 2}.frame{fill:none;stroke:#777}"
    ".post,.done,.order{fill:none;stroke:#c9772b;stroke-width:1.2}.order{stroke:#777}</style>\n"
    "<defs><marker id=\"head\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"7\" "
    "markerHeight=\"7\" orient=\"auto-start-reverse\"><path d=\"M0 0 L8 4 L0 8 z\" "
    "fill=\"#777\"/></marker></defs>\n";

void draw_program(const ir_func *host, const ir_env *env, arena *scratch, strbuf *out) {
  strbuf body;
  strbuf_init(&body, scratch);
  draw_picture p = {.host = host, .env = env, .scratch = scratch, .out = &body, .y = 36};
  draw_text(&p, "title", DRAW_MARGIN, 22, ir_name_text(host, host->name));
  draw_meshes(&p);
  if (env) draw_tensors(&p);
  draw_lanes(&p);
  strbuf_printf(out,
                "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
                "viewBox=\"0 0 %.0f %.0f\">\n%s",
                p.width, p.y + DRAW_MARGIN, p.width, p.y + DRAW_MARGIN, style);
  strbuf_puts(out, "<rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n");
  strbuf_add(out, body.data, body.len);
  strbuf_puts(out, "</svg>\n");
}
